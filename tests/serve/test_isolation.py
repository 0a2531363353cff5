"""Requests fail alone, clients that go away take nothing with them, and nobody gets more than there is."""

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import pytest
from trellm import Engine, models
from trellm.errors import LimitError, PatternError
from trellm.guides import ChoiceGuide, RegexGuide
from trellm.serve import Settings, trimming

from .conftest import HANGS, SETTINGS, Running, running, turned, until
from .support import BURST, ApiError, ConstraintCompiler, Metrics, keys_of, make_guides_by, work_without_end

SHORT: dict[str, Any] = {"model": "small", "prompt": "a", "max_tokens": 2}
LONG: dict[str, Any] = {"model": "small", "prompt": "Write.", "regex": "[a-z ]{900}", "max_tokens": 950}


def line_to(server: Running) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.http.base_url.port or 0), timeout=HANGS)


def sent(body: dict[str, Any]) -> bytes:
    """A request as it goes over a line."""
    data = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(data)}"
    return head.encode() + b"\r\n\r\n" + data


def test_a_client_that_goes_away_frees_its_row(server: Running) -> None:
    """In the midst of a stream."""
    with server.http.stream("POST", "/v1/completions", json={**LONG, "stream": True}) as answer:
        lines = answer.iter_lines()
        next(lines)
        assert server.service.engine.held_bytes > 0
    until(lambda: server.service.engine.held_bytes == 0)
    assert server.service.texts == 0


def test_a_client_that_waits_and_goes_away(server: Running) -> None:
    """Without streaming, where nothing is written to find that out."""
    with line_to(server) as line:
        line.sendall(sent({**LONG, "n": 16}))
        until(lambda: server.service.texts == 16)
    until(lambda: server.service.texts == 0)
    until(lambda: server.service.engine.held_bytes == 0)


def test_a_client_that_goes_away_before_its_body_is_there(server: Running) -> None:
    with line_to(server) as line:
        line.sendall(sent(SHORT)[:-9])
    assert server.text("Write July 20, 1969 as YYYY-MM-DD.\nAnswer:\n", max_tokens=2)


def test_requests_that_fail_fail_alone(server: Running) -> None:
    """Good ones and bad ones at once; the good ones say what they say alone."""
    good = {"model": "small", "prompt": "Write July 20, 1969 as YYYY-MM-DD.\nAnswer:\n", "temperature": 0}
    bad: list[dict[str, Any]] = [{"regex": "("}, {"max_tokens": -1}, {"ebnf": "a"}, {"stop_token_ids": [99999]}]
    bodies = [good | (bad[number % 4] if number % 2 else {"max_tokens": 9}) for number in range(40)]
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda body: server.post("/v1/completions", body), bodies))
    assert [answer.status_code for answer in answers] == [400 if number % 2 else 200 for number in range(40)]
    assert len({answer.json()["choices"][0]["text"] for answer in answers[::2]}) == 1


def test_too_many_texts_are_told_to_come_again(server: Running) -> None:
    with contextlib.ExitStack() as streams:
        lines: list[Iterator[str]] = []
        for _ in range(4):
            stream = server.http.stream("POST", "/v1/completions", json={**LONG, "n": 16, "stream": True})
            lines.append(streams.enter_context(stream).iter_lines())
            next(lines[-1])
        answer = server.post("/v1/completions", {"model": "small", "prompt": "a"})
        assert answer.status_code == 429
        assert answer.json()["error"]["code"] == "too_many_requests"
        assert int(answer.headers["retry-after"]) >= 1
        assert server.http.get("/health/ready").status_code == 200
    until(lambda: server.service.texts == 0)
    assert server.post("/v1/completions", {"model": "small", "prompt": "a", "max_tokens": 1}).status_code == 200
    assert 'trellm_refused_total{reason="texts"}' in server.http.get("/metrics").text


def test_a_constraint_is_compiled_once_for_all(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def slow(pattern: str, *given: Any, **options: Any) -> Any:
        made.append(pattern)
        until(lambda: server.service.compiler._waiting == 8)
        return RegexGuide(pattern, *given, **options)

    make_guides_by(monkeypatch, RegexGuide=slow)
    body = {"model": "small", "prompt": "a", "regex": "[pqr]{3}", "max_tokens": 3}
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: server.post("/v1/completions", body), range(8)))
    assert [answer.status_code for answer in answers] == [200] * 8
    assert made == ["[pqr]{3}"]


def forever(begin: Callable[[], object] = int) -> None:
    """Work that does not end by itself."""
    begin()
    work_without_end()


def compiler(**options: Any) -> ConstraintCompiler:
    return ConstraintCompiler(Settings(**{"compile_seconds": 300, **options}), Metrics().of("small"))


def test_what_a_constraint_comes_to_is_found_within_the_time_of_its_compilation(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both together take no longer than one may."""

    async def run() -> None:
        made = compiler()
        assert await made.compile("compiled", lambda: "a", len) == "a" and 0 < made.elapsed("compiled") < 300
        with pytest.raises(LimitError, match="more than 300 seconds"):
            await made.compile("words", forever, len, elapsed=300)
        made.close()

    asyncio.run(run())
    body = {"model": "small", "regex": "[lmn]{3}"}
    monkeypatch.setattr(server.service.compiler, "elapsed", lambda key: 1e9)
    assert server.error("/constraint", body)["code"] == "constraint_too_large"
    monkeypatch.undo()
    assert server.post("/constraint", body).status_code == 200


def test_a_compilation_that_never_ends_is_ended() -> None:
    async def run() -> None:
        made = compiler(compile_seconds=0.1)
        with pytest.raises(LimitError, match=r"more than 0\.1 seconds"):
            await made.compile("a", forever, lambda value: 1)
        made.close()

    asyncio.run(run())


def test_what_is_due_to_others_counts_as_time_that_a_compilation_takes() -> None:
    """Else it would wait for it beyond its limit: here for days, where something has worked for long in one go."""

    def busy() -> int:
        begin = time.thread_time()
        while time.thread_time() - begin < 3 * BURST:
            pass
        return 7

    async def run() -> None:
        settings = Settings(compile_seconds=0.5, compile_share=1e-7, compilers=1)
        made = ConstraintCompiler(settings, Metrics().of("small"), lambda: True, lambda: 10**9)
        with contextlib.suppress(LimitError):  # on a slow machine
            assert await made.compile("a", busy, lambda value: 1) == 7
        with pytest.raises(LimitError, match=r"more than 0\.5 seconds"):
            await made.compile("b", lambda: 7, lambda value: 1)
        made.close()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_compilation_that_nobody_waits_for_is_ended() -> None:
    async def run() -> None:
        made, has_begun = compiler(compilers=1), threading.Event()
        ask = partial(made.compile, "a", lambda: forever(has_begun.set), lambda value: 1)
        waiting = [asyncio.create_task(ask()) for _ in range(2)]
        await turned(lambda: has_begun.is_set() and made._waiting == 2)
        waiting[0].cancel()
        await turned(lambda: made._waiting == 1)
        assert not waiting[1].done()
        waiting[1].cancel()
        assert await made.compile("b", lambda: 7, lambda value: 1) == 7  # the one thread is free again
        assert not made._compilations
        made.close()

    asyncio.run(asyncio.wait_for(run(), HANGS))


def test_what_is_kept_is_bounded_by_what_it_weighs_when_it_was_used_last() -> None:
    """And for each new one only that is weighed, however many there are."""

    async def run() -> None:
        made, weighed, sizes = compiler(kept_bytes=1000), list[int](), [10] * 60

        async def ask(number: int) -> None:
            def weigh(value: int) -> int:
                weighed.append(value)
                return sizes[value]

            assert await made.compile(number, lambda: number, weigh) == number

        for number in range(50):
            await ask(number)
        assert weighed == [*range(50)] and len(made._cache) == 50
        sizes[0] = 600  # it has grown, which is seen when it is used
        await ask(0)
        assert list(made._cache) == [*range(10, 50), 0] and made._held == 1000
        await ask(50)
        assert list(made._cache) == [*range(11, 50), 0, 50] and made._held == 1000
        made.close()

    asyncio.run(run())


def test_too_many_compilations_are_told_to_come_again() -> None:
    async def run() -> None:
        made = compiler(compiling=1)
        first = asyncio.create_task(made.compile("a", forever, lambda value: 1))
        await turned(lambda: made._waiting == 1)
        with pytest.raises(ApiError, match="being compiled") as caught:
            await made.compile("b", lambda: 7, lambda value: 1)
        assert caught.value.status == 429
        first.cancel()
        made.close()

    asyncio.run(run())


def test_what_is_kept_has_a_weight() -> None:
    async def run() -> list[int]:
        made = compiler(kept_bytes=10)
        times: list[int] = []

        def make(number: int) -> Callable[[], int]:
            return lambda: times.append(number) or number

        for number in (1, 2, 1, 3, 1, 2):
            await made.compile(number, make(number), lambda value: 4)
        made.close()
        return times

    assert asyncio.run(run()) == [1, 2, 3, 2]  # 2 was what had not been used for longest when 3 came


def test_what_was_asked_for_once_is_forgotten_where_there_is_nothing_to_do() -> None:
    async def run() -> None:
        made = compiler(kept_bytes=1600)

        async def ask(number: int) -> None:
            assert await made.compile(number, lambda: number, lambda value: 40) == number

        for number in (*range(10), 3, 7, 5, 3):
            await ask(number)
        assert not made.is_busy and made._held == 400
        made.forget()
        assert list(made._cache) == [5, 3] and made._held == 80, "a sixteenth of the room, of what was asked for again"
        await ask(0)
        made.forget()
        assert list(made._cache) == [5, 3]
        made.close()

    asyncio.run(run())


def test_memory_is_given_back_where_something_was_done_and_what_is_kept_once_all_is_idle() -> None:
    done, looked, is_idle, threads, forgotten = 0, 0, False, list[str](), list[int]()

    def count() -> int:
        nonlocal looked
        looked += 1
        return done

    async def run() -> None:
        nonlocal done, looked, is_idle
        system = trimming.trim_of_system()
        assert system is None or system() in (0, 1)
        trim = lambda: threads.append(threading.current_thread().name)  # noqa: E731
        trimmer = trimming.MemoryTrimmer(count, lambda: is_idle, lambda: forgotten.append(done), 0.001, trim)
        await turned(lambda: looked > 3)
        assert not threads
        done, looked = 1, 0
        await turned(lambda: looked > 3)
        assert len(threads) == 1
        done = 2
        await turned(lambda: len(threads) == 2)
        assert not forgotten, "a text may take long"
        is_idle = True
        await turned(lambda: len(threads) == 3)
        assert forgotten == [2]
        looked = 0
        await turned(lambda: looked > 3)
        assert len(threads) == 3 and forgotten == [2], "once"
        await trimmer.close()
        done = 3
        await asyncio.sleep(0.01)
        assert len(threads) == 3 and "MainThread" not in threads

    asyncio.run(run())


def test_refusals_are_remembered() -> None:
    calls: list[int] = []

    def make() -> None:
        calls.append(1)
        raise PatternError("no", "(", 1)

    async def run() -> None:
        made = compiler()
        for _ in range(3):
            with pytest.raises(PatternError):
                await made.compile("a", make, lambda value: 1)
        made.close()

    asyncio.run(run())
    assert calls == [1]


UNTOLD = "a-name-of-ours"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with keys, that a page of one other origin may ask."""
    file = tmp_path_factory.mktemp("keys") / "keys.txt"
    file.write_text("# ours\n\nsecret-one\nsecret-two\n")
    origins, hosts = ("https://page.example",), ("localhost", "Models.example")
    keys = keys_of(str(file))
    yield from running(models.small(), replace(SETTINGS, name=UNTOLD, keys=keys, origins=origins, hosts=hosts))


def test_keys(guarded: Running) -> None:
    assert guarded.http.get("/v1/models").status_code == 401
    for key, status in (("secret-one", 200), ("secret-two", 200), ("secret", 401), ("é", 401)):
        answer = guarded.http.get("/v1/models", headers={"Authorization": f"Bearer {key}".encode()})
        assert answer.status_code == status, key
    assert guarded.http.get("/v1/models", headers={"Authorization": "Basic secret-one"}).status_code == 401
    assert guarded.http.get("/metrics").json()["error"]["code"] == "invalid_api_key"
    assert guarded.http.get("/health/live").status_code == 200


def test_what_needs_no_key_tells_nothing_of_the_server(guarded: Running, server: Running) -> None:
    """The page, on which a key is typed, is the same for every server."""
    for path in ("/", "/health", "/health/live", "/health/ready"):
        answer = guarded.http.get(path)
        assert answer.status_code == 200 and UNTOLD not in f"{answer.text} {answer.headers}"
        assert answer.content == server.http.get(path).content
    for path in ("/v1/models", f"/v1/models/{UNTOLD}", "/openapi.json", "/metrics", "/nothing"):
        answer = guarded.http.get(path)
        assert answer.status_code == 401 and UNTOLD not in f"{answer.text} {answer.headers}"
    assert guarded.http.post("/tokenize", json={"prompt": "a"}).status_code == 401


def test_pages_of_other_origins(guarded: Running, server: Running) -> None:
    asked = {"Origin": "https://page.example", "Access-Control-Request-Method": "POST"}
    allowed = guarded.http.options("/v1/completions", headers=asked)
    assert allowed.headers["access-control-allow-origin"] == "https://page.example"
    client = {"Access-Control-Request-Headers": "authorization, content-type, x-stainless-lang"}
    assert guarded.http.options("/v1/completions", headers=asked | client).status_code == 200
    answer = guarded.http.post("/v1/completions", headers=asked)
    assert answer.headers["access-control-expose-headers"] == "Retry-After"
    refused = guarded.http.options("/v1/completions", headers={**asked, "Origin": "https://other.example"})
    assert "access-control-allow-origin" not in refused.headers
    assert "access-control-allow-origin" not in server.http.options("/v1/completions", headers=asked).headers


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *((host, 200) for host in ("127.0.0.1", "127.0.0.1:8000", "[::1]:8000", "192.168.0.7", "localhost:8000")),
        *((host, 200) for host in ("a.localhost", "models.example:80", "MODELS.example.", "")),
        *((host, 403) for host in ("evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.nip.io")),
        *((host, 403) for host in ("notlocalhost", "127.1.evil", "[::1", "user@evil.example")),
    ],
)
def test_names_that_a_server_is_asked_by(guarded: Running, host: str, status: int) -> None:
    """A page on the internet whose name leads to this machine reads nothing, not even the page of the server."""
    headers = {"Host": host, "Authorization": "Bearer secret-one"}
    for path in ("/v1/models", "/"):
        answer = guarded.http.get(path, headers=headers)
        assert answer.status_code == status
        assert status == 200 or answer.json()["error"]["code"] == "host_not_allowed"
    assert guarded.http.get("/health/live", headers=headers).status_code == 200


def test_whoever_comes_while_a_server_drains_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs is finished; what comes, by new connections, is refused with 503; then the server ends."""
    go_on = threading.Event()
    make_guides_by(monkeypatch, ChoiceGuide=lambda *given, **options: go_on.wait(60) and ChoiceGuide(*given, **options))
    servers = running(models.small(), SETTINGS)
    server = next(servers)
    found: list[httpx.Response] = []

    def ask() -> None:
        body = {**SHORT, "guided_choice": ["a"], "max_tokens": 9}
        found.append(httpx.post(f"{server.url}/v1/completions", json=body, timeout=100))

    asking, ending = threading.Thread(target=ask), threading.Thread(target=lambda: next(servers, None))
    asking.start()
    until(lambda: bool(server.service.compiler._compilations))
    ending.start()
    until(lambda: server.models.is_draining)
    time.sleep(0.3)  # in which a server that waits for nobody would be gone
    try:
        for path in ("/v1/completions", "/v1/chat/completions", "/v1/responses", "/constraint", "/tokenize"):
            texts = {"messages": [{"role": "user", "content": "a"}]} if "chat" in path else {"prompt": "a"}
            texts = {"input": "a"} if "responses" in path else {} if "constraint" in path else texts
            answer = httpx.post(f"{server.url}{path}", json={"model": "small", **texts})
            assert answer.status_code == 503 and answer.json()["error"]["code"] == "shutting_down", path
        assert httpx.get(f"{server.url}/health/ready").status_code == 503
        assert httpx.get(f"{server.url}/health/live").status_code == 200
    finally:
        go_on.set()
        asking.join(60)
        ending.join(60)
    assert found[0].json()["choices"][0]["text"] == "a"
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/health/ready")


def test_what_outlasts_draining_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams have an event that says so, others are 503, and so is what was still compiled."""
    servers = running(models.small(), replace(SETTINGS, drain_seconds=0.3))
    server = next(servers)
    make_guides_by(monkeypatch, ChoiceGuide=lambda *given, **options: work_without_end())
    texts: list[str] = []

    def read(body: dict[str, Any]) -> None:
        with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=HANGS) as answer:
            texts.append("")
            number = len(texts) - 1
            for piece in answer.iter_text():
                texts[number] += piece

    bodies = [LONG | {"stream": number % 2 == 0, "n": 4} for number in range(4)] + [SHORT | {"guided_choice": ["a"]}]
    threads = [threading.Thread(target=read, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    service = server.service
    until(lambda: service.dispatcher.writing == 16 and bool(service.compiler._compilations))
    server.http.close()
    with contextlib.suppress(StopIteration):
        next(servers)
    for thread in threads:
        thread.join(HANGS)
    assert len(texts) == 5
    for text in texts:
        error = json.loads(text.rstrip().rpartition("\n\n")[2].removeprefix("data: "))["error"]
        assert error["code"] == "cancelled"
    assert sum(text.startswith("data: ") for text in texts) == 2
    assert service.dispatcher.writing == service.texts == 0


def test_an_engine_that_is_closed_ends_streams_with_an_error() -> None:
    """As a program may do that runs the server in a thread of its own."""
    model = models.small()
    for server in running(model, SETTINGS):
        with server.http.stream("POST", "/v1/completions", json={**LONG, "stream": True}) as answer:
            lines = answer.iter_lines()
            next(lines)
            Engine.of(model).close()
            found = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
        said = "the engine of the model was closed"
        assert found[-1]["error"]["message"] == server.error("/v1/completions", SHORT, 503)["message"] == said


def test_a_client_that_says_no_more_is_gone(server: Running) -> None:
    """Nobody can tell half a connection that is closed from all of it; its row is free, and its connection closed."""
    with line_to(server) as line:
        line.sendall(sent({**LONG, "stream": True, "n": 4}))
        assert line.recv(1 << 16)
        line.shutdown(socket.SHUT_WR)
        received = b"begun"
        while received:
            received = line.recv(1 << 16)
    until(lambda: server.service.texts == server.service.dispatcher.writing == 0)
    until(lambda: server.service.engine.held_bytes == 0)


def test_requests_that_do_not_come_to_an_end() -> None:
    """Neither half a header nor half a body holds a connection."""
    servers = running(models.small(), replace(SETTINGS, request_seconds=0.3))
    server = next(servers)
    for begun in (b"", sent(SHORT)[:40], sent(SHORT)[:-9]):
        with line_to(server) as client:
            client.sendall(begun)
            while client.recv(1 << 16):
                pass
    server.http.close()
    with contextlib.suppress(StopIteration):
        next(servers)
