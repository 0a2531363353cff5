"""The server as a process: its socket, its signals, how it ends, and the connections of clients.

Requests that never end are dropped. They are parsed by httptools, a parser in C. A small request takes h11, which is
written in Python, so much longer that a server answers a third fewer of them (eight connections, texts of one token).
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from enum import Enum
from http import HTTPStatus
from importlib import import_module
from importlib.util import find_spec
from types import FrameType
from typing import Any, ClassVar

import httptools
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..errors import OptionError
from .errors import ApiError
from .guard import HEADER_BYTES
from .hosting.manager import ModelManager
from .settings import Settings

BACKLOG = 2048
CUT_SECONDS = 5
"""So long what was cut when draining was over may take to tell its clients."""
TICK_SECONDS = 0.1
"""So often it is looked at whether draining is to end, where not all that ran has ended."""
TELL_SECONDS = 0.1
"""The same where a second Ctrl-C ended it."""
IDLE_SECONDS = 75
"""So long a connection without a request is kept: longer than clients keep theirs, or they write into one that is
being closed."""


class Server(uvicorn.Server):
    """Takes no requests any more after SIGTERM or Ctrl-C, and ends when those that run are done."""

    def __init__(self, app: Starlette, settings: Settings) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=type("Connection", (Connection,), {"seconds": settings.request_seconds}),
                ws="none",
                timeout_graceful_shutdown=CUT_SECONDS,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=BACKLOG,
                timeout_keep_alive=IDLE_SECONDS,
            )
        )
        self._models: ModelManager = app.state.models
        self._drain_seconds = settings.drain_seconds

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for what runs, and let what takes too long end with an error, which its client is told.

        Meanwhile whoever comes is told to go elsewhere, and not left before a closed door.
        """
        models = self._models
        models.is_draining = True
        asyncio.get_running_loop().call_later(self._drain_seconds, models.cut)
        running = set(self.server_state.tasks)
        while running and not (models.is_cut or self.force_exit):
            _, running = await asyncio.wait(running, timeout=TICK_SECONDS)
        await super().shutdown(sockets)
        if self.force_exit:  # then nothing else has been ended
            models.cut()
            await asyncio.sleep(TELL_SECONDS)
            await self.lifespan.shutdown()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain; a second Ctrl-C ends at once."""
        self._models.is_draining = True
        super().handle_exit(sig, frame)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 for any. Raises OptionError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio lets small packets go at once only where a socket says that it is one of TCP; else an answer's body waits
    # some 40 ms for the client to acknowledge the head.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        raise OptionError(f"cannot listen on {host}, port {port}: {error.strerror or error}") from None
    return made


def run(app: Starlette, settings: Settings, listening: socket.socket) -> None:
    """Run until a signal ends it."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(Server(app, settings).serve(sockets=[listening]))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where it is installed; else asyncio's."""
    return import_module("uvloop").new_event_loop if find_spec("uvloop") else None


HEAD = b"HTTP/1.1 "
"""Beginning of the head of an answer."""
MOST_WAITING = 8
"""Requests that are read while the one in front of them is answered."""


class JoiningTransport:
    """A transport that sends an answer's head together with what is written next in the same go of the event loop.

    Each call of the system lets another thread have the interpreter, and to have it back takes as long as all the rest.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""

    def write(self, data: bytes) -> None:
        """Send it, a head soon."""
        if not self._head and data.startswith(HEAD):
            self._head = data
            self._loop.call_soon(self._flush)
        elif data:
            head, self._head = self._head, b""
            self._transport.write(head + data if head else data)

    def close(self) -> None:
        """Send what was written, and close."""
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        """All else is as the transport has it."""
        return getattr(self._transport, name)

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)


class At(Enum):
    """Place of a client: between requests, in the head of one, or behind that."""

    BETWEEN = 0
    HEAD = 1
    BODY = 2


class HostError(Exception):
    """A request that does not say once whom it asks; the parser has it as the context of its own error."""


class Connection(HttpToolsProtocol):
    """A connection that is closed where a request takes too long to come, from its first byte to its last, or none
    comes at all. Requests wait in `pipeline` until the one in front of them is answered.

    llhttp has no limit of headers, and reads on behind a request that is being answered: both are seen to here.
    seconds: how long a request may take to come, and how long a client may read nothing of what waits for it; how long
        an answer takes is another thing
    """

    seconds: ClassVar[float] = 60.0
    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    _coming: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None
    _at = At.BETWEEN
    _heads = 0
    _head_bytes = 0
    _answering: Any = None
    _fault: ApiError | None = None
    _is_again = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The client is there."""
        joined: Any = JoiningTransport(transport, self.loop)  # type: ignore[arg-type]
        super().connection_made(joined)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone; so are the requests that wait."""
        self._wait_no_more()
        self._watch_no_more()
        waiting = [cycle for cycle, _ in self.pipeline]
        self.pipeline.clear()
        for cycle in [self._answering, *waiting]:
            if cycle is not None:
                _leave(cycle)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """More of a request, or of several."""
        if self._fault is not None:
            return
        self._unset_keepalive_if_required()
        self._heads = 0
        was_at = self._at
        self._feed(data)
        if self._at is At.HEAD and self._fault is None:
            # Of what came with requests in front of it nobody knows where it begins.
            if self._heads == (0 if was_at is At.HEAD else 1) and was_at is not At.BODY:
                self._head_bytes += len(data)
            if self._head_bytes > HEADER_BYTES:
                self._refuse(_too_large())
        if self._fault is None and 0 < len(self.pipeline) <= MOST_WAITING and len(self.cycle.body) <= HEADER_BYTES:
            self.flow.resume_reading()  # or nobody would notice that the client goes away
        self._look()

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        if self._is_again:
            return
        self._at = At.HEAD
        self._heads += 1
        self._head_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """The path of a request."""
        if not self._is_again:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field; one behind the body is none of the head's, and nobody asks for it."""
        if self._at is At.HEAD:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is there; the request is answered, or waits."""
        if self._is_again:
            self._is_again = False
            return
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts != 1 and self.parser.get_http_version() == "1.1":  # whoever is asked is not plain (RFC 9112, 3.2)
            raise HostError(f"a request has one Host header, not {hosts}")
        self._at = At.BODY
        is_answering = self._is_answering
        super().on_headers_complete()
        if not is_answering:
            self._answering = self.cycle

    def on_message_complete(self) -> None:
        """All of a request is there."""
        if self.parser.should_upgrade():
            return
        self._at = At.BETWEEN
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """An answer is sent; of a request that came with the one before it, the rest may be missing."""
        self._answering = self.pipeline[-1][0] if self.pipeline else None
        super().on_response_complete()
        if self._answering is None and self._fault is not None:
            self._tell(self._fault)
        elif self._at is not At.BETWEEN:
            self._look()

    def send_400_response(self, msg: str) -> None:
        """Answer a malformed request as other mistakes are answered."""
        self._refuse(_no_http(msg))

    def pause_writing(self) -> None:
        """Much waits for the client to read it."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """The client has read most of it."""
        self._watch_no_more()
        super().resume_writing()

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as found:
            self._go_on(data[found.args[0] :])
        except httptools.HttpParserError as fault:
            self.send_400_response(str(fault.__context__ if isinstance(fault.__context__, HostError) else fault))

    def _go_on(self, data: bytes) -> None:
        """Read the body of a request whose client could speak another protocol too, of which llhttp has read the head
        alone: as that of the same request without the field that says so."""
        kept = (b"content-length", b"transfer-encoding")
        fields = [name + b": " + value + b"\r\n" for name, value in self.scope["headers"] if name in kept]
        self.parser = httptools.HttpRequestParser(self)
        self._is_again = True
        self._feed(b"".join([b"POST / HTTP/1.1\r\n", *fields, b"\r\n", data]))

    @property
    def _is_answering(self) -> bool:
        return self._answering is not None and not self._answering.response_complete

    def _look(self) -> None:
        """Wait for the rest of a request, unless it is there, or those in front of it are answered first."""
        is_own = self._at is At.BODY and self._answering is self.cycle
        if self._is_answering and not is_own:
            self._wait_no_more()
        elif not self.transport.is_closing():
            self._wait()

    def _refuse(self, error: ApiError) -> None:
        """Say what is wrong with a request, when those in front of it are answered."""
        self._fault = error
        if self._at is At.BODY and self.pipeline:
            self.pipeline.popleft()
        elif self._at is At.BODY and self._is_answering:  # what came is this request's own
            assert self._answering is not None
            if self._answering.response_started:
                self.transport.close()
                return
            _leave(self._answering)
            self._answering = None
        if self._is_answering:
            self.flow.pause_reading()
        else:
            self._tell(error)

    def _watch(self) -> None:
        """Look after a while whether the client has read anything: its texts and their room would wait for ever."""
        size = self.transport.get_write_buffer_size()

        def look() -> None:
            if self.transport.get_write_buffer_size() < size:
                self._watch()
            else:
                self.transport.abort()

        self._reading = self.loop.call_later(self.seconds, look)

    def _watch_no_more(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _wait(self) -> None:
        """Close the connection after a while, if it is not waited for already."""
        if self._coming is None:
            self._coming = self.loop.call_later(self.seconds, self.transport.close)

    def _wait_no_more(self) -> None:
        if self._coming is not None:
            self._coming.cancel()
            self._coming = None

    def _tell(self, error: ApiError) -> None:
        """Answer a request that no application sees, and close the connection."""
        body = json.dumps(error.body).encode()
        head = f"{error.status} {HTTPStatus(error.status).phrase}\r\nContent-Type: application/json\r\n"
        self.transport.write(HEAD + f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        self.transport.close()


def _leave(cycle: Any) -> None:
    """Let whoever answers a request know that the client is gone."""
    cycle.disconnected = True
    cycle.message_event.set()


def _too_large() -> ApiError:
    """Error of headers that never end."""
    return ApiError("the headers are too large", status=431, code="headers_too_large")


def _no_http(reason: str, status: int = 400) -> ApiError:
    """Error of bytes that are no HTTP request."""
    return ApiError(f"malformed HTTP request: {reason}", status=status, code="invalid_http")
