"""Connections: what comes one behind the other, in pieces, broken off or never ends."""

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn
from starlette.requests import Request

from ..thresholds import thresholds
from .conftest import HANGS, until
from .support import HEADER_BYTES, ApiError, Connection, Guard, Metrics, error_answer, listen, read_whole

SOON = 0.2
MAX = 1 << 16


class Echo:
    """An application that says what it was asked; at /slow it waits for its client to go away, at /soon it does not
    wait for a body, at /most a body has a limit, at /hurry it has requests come soon from then on. asked: where, so
    far; gone: how many clients are
    """

    def __init__(self, kind: Any) -> None:
        self.asked: list[str] = []
        self.gone = 0
        self._kind = kind

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked.append(scope["path"])
        if scope["path"] == "/hurry":
            self._kind.seconds = SOON
        body = b""
        if scope["path"] == "/most":
            try:
                body = await read_whole(Request(scope, receive), MAX)
            except ApiError as error:
                await error_answer(error, scope["path"])(scope, receive, send)
                return
        while scope["path"] not in ("/soon", "/most"):
            message = await receive()
            if message["type"] == "http.disconnect":
                self.gone += 1
                return
            body += message["body"]
            if not message["more_body"] and scope["path"] != "/slow":
                break
        names = [name.decode() for name, _ in scope["headers"]]
        said = json.dumps({"path": scope["path"], "body": body.decode(), "names": names}).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(said))]})
        await send({"type": "http.response.body", "body": said})


class Asking:
    """A server on a port of its own."""

    def __init__(self) -> None:
        self.kind: Any = type("Connection", (Connection,), {"seconds": HANGS})
        self.echo = Echo(self.kind)
        guard = Guard(self.echo, (), (), Metrics())
        config = uvicorn.Config(guard, http=self.kind, ws="none", lifespan="off", log_level="error")
        self._server = uvicorn.Server(config)
        self._listening = listen("127.0.0.1", 0)
        self.port = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        asyncio.run(self._server._serve(sockets=[self._listening]))

    def line(self) -> socket.socket:
        """A connection to it."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=HANGS)

    def close(self) -> None:
        """End it."""
        self._server.should_exit = True
        self._thread.join(HANGS)
        assert not self._thread.is_alive()


@pytest.fixture
def asking() -> Iterator[Asking]:
    made = Asking()
    yield made
    made.close()


def post(path: str, body: str = "", *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: a", f"Content-Length: {len(body)}", *headers, "", body]
    return "\r\n".join(lines).encode()


LAST = post("/last", "", "Connection: close")


def answers(line: socket.socket) -> list[tuple[int, dict[str, Any]]]:
    """All that comes until the server closes the connection: status and body of each."""
    found, several = b"", list[tuple[int, dict[str, Any]]]()
    while part := line.recv(1 << 16):
        found += part
    while found:
        head, _, found = found.partition(b"\r\n\r\n")
        sizes = [row for row in head.decode().lower().split("\r\n") if row.startswith("content-length: ")]
        size = int(sizes[0].partition(": ")[2])
        several.append((int(head.split()[1]), json.loads(found[:size])))
        found = found[size:]
    return several


def said(asking: Asking, *sent: bytes, pause: float = 0.0) -> list[tuple[int, str]]:
    """What comes of bytes that are sent one after the other: status, and path and body or the error's code."""
    with asking.line() as line:
        for each in sent:
            line.sendall(each)
            time.sleep(pause)
        return in_short(answers(line))


def in_short(found: list[tuple[int, dict[str, Any]]]) -> list[tuple[int, str]]:
    return [
        (status, f"{body['path']} {body['body']}" if status == 200 else body["error"]["code"]) for status, body in found
    ]


def said_soon(asking: Asking, sent: bytes) -> list[tuple[int, str]]:
    """What comes of bytes behind a request that was answered, if they may take but a moment to come."""
    with asking.line() as line:
        line.sendall(post("/1"))
        found = b""
        while not found.endswith(b"}"):
            found += line.recv(1 << 16)
        asking.kind.seconds = SOON
        line.sendall(sent)
        return in_short(answers(line))


def test_requests_one_behind_the_other(asking: Asking) -> None:
    sent = post("/1", "a") + post("/2", "b") + LAST
    assert said(asking, sent) == [(200, "/1 a"), (200, "/2 b"), (200, "/last ")]
    bytewise = [sent[at : at + 1] for at in range(len(sent))]
    assert said(asking, *bytewise) == [(200, "/1 a"), (200, "/2 b"), (200, "/last ")]
    assert said(asking, post("/1", "a"), post("/2", "b"), LAST, pause=0.05) == said(asking, sent)


def test_what_is_no_http_behind_a_request(asking: Asking) -> None:
    """Those in front of it are answered first."""
    assert said(asking, post("/1", "a") + b"\x16\x03\x01\r\n\r\n") == [(200, "/1 a"), (400, "invalid_http")]
    assert said(asking, post("/1") + post("/2") + b"(\r\n\r\n")[2:] == [(400, "invalid_http")]
    broken = b"POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n"
    assert said(asking, broken) == [(400, "invalid_http")]
    assert said(asking, post("/1", "a") + broken) == [(200, "/1 a"), (400, "invalid_http")]


def test_bodies_in_chunks(asking: Asking) -> None:
    """What stands behind one is no header."""
    head = b"POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = b"2\r\nab\r\n1;x=y\r\nc\r\n0\r\nAuthorization: b\r\n\r\n"
    assert said(asking, head + chunks + LAST) == [(200, "/c abc"), (200, "/last ")]
    with asking.line() as line:
        line.sendall(head + chunks + LAST)
        assert answers(line)[0][1]["names"] == ["host", "transfer-encoding"]


def test_heads_without_an_end(asking: Asking) -> None:
    filled = b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * (HEADER_BYTES + 9)
    assert said(asking, filled) == [(431, "headers_too_large")]
    assert said(asking, filled + b"\r\n\r\n") == [(431, "headers_too_large")]
    assert said(asking, post("/1", "a"), filled, pause=0.1) == [(200, "/1 a"), (431, "headers_too_large")]
    many = b"".join(b"X%d: a\r\n" % number for number in range(HEADER_BYTES // 8))
    assert said(asking, b"GET / HTTP/1.1\r\nHost: a\r\n" + many) == [(431, "headers_too_large")]
    large = post("/1", "a" * 200_000)
    assert said(asking, large + LAST[:20], LAST[20:], pause=0.1)[1:] == [(200, "/last ")], "no head is large here"


@pytest.mark.parametrize("sent", [b"", b"POST /1", post("/1", "abc")[:-1]])
def test_what_never_ends(asking: Asking, sent: bytes) -> None:
    asking.kind.seconds = SOON
    assert said(asking, sent) == []


@pytest.mark.parametrize("sent", [b"POST /2", post("/2", "abc")[:-1]])
def test_what_never_ends_behind_a_request(asking: Asking, sent: bytes) -> None:
    """Its time begins anew, whether it comes after the answer or before."""
    assert said_soon(asking, sent) == []
    asking.kind.seconds = HANGS
    assert said(asking, post("/hurry") + sent) == [(200, "/hurry ")]


def test_bodies_that_nobody_waits_for(asking: Asking) -> None:
    """Neither does the connection for ever."""
    assert said_soon(asking, post("/soon", "abc")[:-1])[:1] == [(200, "/soon ")]


@pytest.mark.parametrize("hosts", [[], ["Host: a", "Host: b"]])
def test_hosts(asking: Asking, hosts: list[str]) -> None:
    sent = "\r\n".join(["GET / HTTP/1.1", *hosts, "", ""]).encode()
    assert said(asking, sent) == [(400, "invalid_http")]
    assert said(asking, post("/1", "abc") + sent) == [(200, "/1 abc"), (400, "invalid_http")]


def test_older_and_other_protocols(asking: Asking) -> None:
    """A client may say that it could speak another; nobody does."""
    assert said(asking, b"GET /old HTTP/1.0\r\n\r\n") == [(200, "/old ")]
    upgrade = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk")
    for body in ("abc", ""):
        sent = post("/1", body, *upgrade) + LAST
        assert said(asking, sent) == [(200, f"/1 {body}"), (200, "/last ")]
        pieces = [sent[at : at + 7] for at in range(0, len(sent), 7)]
        assert said(asking, *pieces, pause=0.001) == said(asking, sent)


def test_bodies_that_wait_to_be_asked_for(asking: Asking) -> None:
    with asking.line() as line:
        head, _, body = post("/1", "abc", "Expect: 100-continue", "Connection: close").rpartition(b"\r\n\r\n")
        line.sendall(head + b"\r\n\r\n")
        assert line.recv(1 << 16).startswith(b"HTTP/1.1 100 ")
        line.sendall(body)
        assert answers(line)[0][1]["body"] == "abc"


CHUNKED = b"POST /most HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
CHUNK = b"%x\r\n%b\r\n" % (MAX, b"a" * MAX)


@pytest.fixture
def is_dropped_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of a body that was refused is waited for in vain for a fifth of the time."""
    thresholds(monkeypatch, seconds_of_a_dropped_body=1)


@pytest.mark.usefixtures("is_dropped_soon")
def test_a_body_that_is_too_large_is_refused_before_its_end(asking: Asking) -> None:
    """It need not have one; that it is not read leaves the answer whole, and nothing behind it is a request."""
    refusal = [(413, "request_too_large")]
    assert said(asking, CHUNKED + b"\r\n" + CHUNK + b"1\r\na\r\n") == refusal
    with asking.line() as line:
        line.sendall(CHUNKED + b"\r\n" + CHUNK + b"1\r\na\r\n")
        line.recv(1, socket.MSG_PEEK)  # it was refused before more of it comes
        line.sendall(post("/1"))
        assert in_short(answers(line)) == refusal
    assert said(asking, CHUNKED + b"\r\n" + CHUNK + b"1\r\na\r\n" + post("/1")) == [(400, "invalid_http")]
    assert said(asking, post("/most", "a" * (MAX + 1))[:-1]) == refusal
    whole_body = CHUNK + b"0\r\n\r\n"
    assert said(asking, CHUNKED + b"\r\n" + whole_body + LAST) == [(200, "/most " + "a" * MAX), (200, "/last ")]
    with asking.line() as line:
        line.sendall(CHUNKED + b"\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(64):
                line.sendall(CHUNK)
        assert [status for status, _ in answers(line)] == [413]


@pytest.mark.usefixtures("is_dropped_soon")
def test_a_body_that_is_too_large_is_not_asked_for(asking: Asking) -> None:
    with asking.line() as line:
        line.sendall(post("/most", "a" * (MAX + 1), "Expect: 100-continue").partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
        assert [status for status, _ in answers(line)] == [413]
    with asking.line() as line:  # one that does not say how large it is
        line.sendall(CHUNKED + b"Expect: 100-continue\r\n\r\n")
        assert line.recv(1 << 16).startswith(b"HTTP/1.1 100 ")
        line.sendall(CHUNK + CHUNK)
        assert [status for status, _ in answers(line)] == [413]


@pytest.mark.parametrize("behind", [b"", post("/slow"), post("/slow") + post("/slow")], ids=["0", "1", "2"])
def test_clients_that_go_away(asking: Asking, behind: bytes) -> None:
    """Whoever waits for them is told, also where further requests came meanwhile."""
    with asking.line() as line:
        line.sendall(post("/slow") + behind)
        until(lambda: asking.echo.asked == ["/slow"])
    until(lambda: asking.echo.gone == 1)


def test_clients_that_go_away_behind_half_of_a_request(asking: Asking) -> None:
    """It came while they waited for the answer to the one in front of it."""
    with asking.line() as line:
        line.sendall(post("/slow"))
        until(lambda: asking.echo.asked == ["/slow"])
        line.sendall(post("/1", "abc")[:-1])
    until(lambda: asking.echo.gone == 1)


def test_answers_that_take_longer_than_requests_may(asking: Asking) -> None:
    asking.kind.seconds = SOON
    with asking.line() as line:
        line.sendall(post("/slow") + post("/1", "abc")[:-1])
        time.sleep(3 * SOON)
        assert not asking.echo.gone, "what comes behind it is not waited for meanwhile"
