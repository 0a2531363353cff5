"""What a request takes on its way: how often it is made tokens of, sent, and handed from thread to thread."""

import asyncio
import sys
import threading
from asyncio.selector_events import _SelectorSocketTransport  # type: ignore[attr-defined]
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import ClientDisconnect
from trellm.errors import Cancelled
from trellm.serve import dispatcher

from ..thresholds import thresholds
from ..watching import in_thread, watched
from .conftest import Running
from .support import HEAD, JoiningTransport, Options, while_connected

PLAIN: dict[str, Any] = {"max_tokens": 3, "min_tokens": 3}


class Line:
    """A transport that remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[bytes | str] = []
        self.extra = 7

    def write(self, data: bytes) -> None:
        self.told.append(data)

    def close(self) -> None:
        self.told.append("closed")


def test_an_answers_head_is_sent_with_what_follows() -> None:
    async def write() -> list[bytes | str]:
        line: Any = Line()
        joined: Any = JoiningTransport(line, asyncio.get_running_loop())
        joined.write(HEAD + b"head ")
        joined.write(b"")
        assert line.told == [] and joined.extra == 7
        joined.write(b"body")
        joined.write(b"more")
        assert line.told == [HEAD + b"head body", b"more"], "what is no head does not wait"
        joined.write(HEAD + b"alone")
        await asyncio.sleep(0)
        joined.write(HEAD + b"first")
        joined.write(HEAD + b"second")
        joined.write(HEAD + b"last")
        joined.close()
        await asyncio.sleep(0)
        return line.told[2:]

    expected = [HEAD + b"alone", HEAD + b"first" + HEAD + b"second", HEAD + b"last", "closed"]
    assert asyncio.run(write()) == expected


@pytest.mark.parametrize("body", [{}, {"regex": "[a-z]{3}"}], ids=["free", "regex"])
def test_an_answer_is_sent_at_once(server: Running, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    server.text("Write.", **body, **PLAIN)
    written = watched(monkeypatch, _SelectorSocketTransport, "write", lambda _, data: bytes(data))
    server.text("Write.", **body, **PLAIN)
    sent = [data for data in written if data.startswith(b"HTTP/1.1 200") or b"choices" in data]
    assert len(sent) == 1 and sent[0].startswith(b"HTTP/1.1 200") and b"choices" in sent[0]


def test_a_prompt_is_made_tokens_of_once(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = watched(monkeypatch, server.service.model.tokenizer, "encode", lambda text, *_, **__: text)
    for body in ({}, {"regex": "[a-z]{3}"}):
        seen.clear()
        server.text("Write a word.", **body, **PLAIN)
        assert seen.count("Write a word.") == 1


def entered(server: Running, several: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each of several requests is taken to the engine by a thread beside the event loop's."""
    threads = watched(monkeypatch, server.service.engine, "enter", in_thread)
    for body in several:
        answer = server.post("/v1/completions", {"model": "small", "prompt": "Write a word.", **PLAIN, **body})
        assert answer.status_code in (200, 400)
    return [name.startswith("trellm entering") for name in threads]


def test_short_free_texts_enter_without_another_thread(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    others: list[dict[str, Any]] = [
        {"trellm": {"include": ["a"]}},
        {"prompt": ["Write."] * 9},
        {"prompt": "Write a word. " * 200},
    ]
    assert entered(server, [{}, *others], monkeypatch) == [False, *(True for _ in others)]


@pytest.mark.parametrize(
    "asked",
    [{"regex": "[a-k]{3}"}, {"regex": "[a-k]{4}", "trellm": {"heal": False}}, {"regex": "[a-k]{5}", "prompt": [5, 6]}],
    ids=["healed", "as it is", "ids"],
)
def test_prompts_that_a_constraint_has_seen_enter_without_another_thread(
    server: Running, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that it has not may have to wait for somebody who is at it; two prompts that end alike are one to it."""
    asked |= {"max_tokens": 6, "min_tokens": 0}
    more = [asked, asked, asked | {"prompt": "Here is another long prompt. Write a word."}]
    ways = entered(server, more if "prompt" not in asked and "trellm" not in asked else more[:2], monkeypatch)
    assert ways == ([True, False, False] if len(ways) == 3 else [False, False])


def test_short_chats_enter_without_another_thread(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their template is filled in on the event loop too, with small tools as without; no long chat's is."""
    threads = watched(monkeypatch, server.service.verbatim, "ids", in_thread)
    tool = {"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": {}}}}
    for content, tools in (("Write.", None), ("Write. " * 300, None), ("Write.", [tool]), ("Write. " * 300, [tool])):
        asked: dict[str, Any] = {"model": "small", "messages": [{"role": "user", "content": content}], "max_tokens": 60}
        answer = server.post("/v1/chat/completions", asked if tools is None else asked | {"tools": tools})
        assert answer.status_code in (200, 400), answer.text
    assert [name.startswith("trellm entering") for name in threads] == [False, True, False, True]


def test_no_thread_is_begun_to_watch_a_compilation(server: Running) -> None:
    begun: list[str] = []

    def note(*_: Any) -> None:
        """Called in each thread that begins, and not again there."""
        sys.setprofile(None)
        begun.append(threading.current_thread().name)

    before = server.service.compiler.started
    threading.setprofile(note)
    try:
        for length in (3, 4, 5):
            server.text("Write a word.", regex=f"[a-y]{{{length}}}", max_tokens=9)
    finally:
        threading.setprofile(None)
    assert server.service.compiler.started == before + 3
    assert all(name.startswith(("trellm compiler", "trellm entering")) for name in begun)


@pytest.mark.parametrize("body", [{}, {"regex": "[a-z ]{40}"}], ids=["free", "regex"])
def test_tokens_of_quick_steps_are_told_together(
    server: Running, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {"max_tokens": 40, "min_tokens": 40, **body}
    whole = server.text("Write.", **asked)
    asked |= {"model": "small", "prompt": "Write.", "temperature": 0}

    def texts(seconds: float, slow: float = 1e9) -> list[str]:
        thresholds(monkeypatch, seconds_of_gathered_events=seconds, seconds_of_a_slow_step=slow)
        return [event["choices"][0]["text"] for event in server.events("/v1/completions", asked)]

    each, few, after_slow_steps = texts(0.0), texts(1e9), texts(1e9, 0.0)
    assert "".join(each) == "".join(few) == "".join(after_slow_steps) == whole
    assert len(each) > 3 and len(few) <= 3, "the beginning, what came after it, and the end"
    assert len(after_slow_steps) > 3
    assert len(few[0]) < len(whole) / 2, "nobody waits for the beginning"


def test_what_is_waited_for_ends_where_the_client_goes_away() -> None:
    """The work is cancelled; what another cancels is no client that went away."""
    told = list[str]()

    async def run() -> None:
        leaves = asyncio.Event()

        async def receive() -> dict[str, str]:
            await leaves.wait()
            return {"type": "http.disconnect"}

        async def work(seconds: float) -> int:
            try:
                await asyncio.sleep(seconds)
            except asyncio.CancelledError:
                told.append("cancelled")
                raise
            return 7

        request: Any = SimpleNamespace(receive=receive)
        assert await while_connected(request, work(0)) == 7
        asyncio.get_running_loop().call_later(0.01, leaves.set)
        with pytest.raises(ClientDisconnect):
            await while_connected(request, work(60))
        await asyncio.sleep(0.01)  # nothing is left to be cancelled
        leaves.clear()
        waiting = asyncio.ensure_future(while_connected(request, work(60)))
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        soon = asyncio.ensure_future(while_connected(request, work(0)))
        await asyncio.sleep(0)
        leaves.set()  # as the work is done
        await asyncio.wait([soon])
        assert soon.exception() is None or isinstance(soon.exception(), ClientDisconnect)

    asyncio.run(run())
    assert told[:2] == ["cancelled", "cancelled"]


def test_an_answer_takes_few_tasks(server: Running) -> None:
    made = list[str]()

    def counted(loop: asyncio.AbstractEventLoop, work: Any, **named: Any) -> Any:
        made.append(getattr(work, "__qualname__", ""))
        return asyncio.Task(work, loop=loop, **named)

    server.loop.call_soon_threadsafe(server.loop.set_task_factory, counted)
    server.text("Write.", **PLAIN)
    server.loop.call_soon_threadsafe(server.loop.set_task_factory, None)
    assert made
    # A connection that was idle for long has ended, and another one is accepted: that is no cost of an answer.
    made = [name for name in made if "_accept_connection" not in name]
    assert len(made) <= 2, "one that answers, and one that looks whether the client is there"


def test_what_enters_while_all_is_cut_ends_too() -> None:
    """A thread that makes tokens of a prompt when the server is cut short hands its run over behind that."""

    async def end() -> None:
        cancelled: list[Any] = []
        engine: Any = SimpleNamespace(watch=lambda _: None, is_closed=False)
        metrics: Any = None
        line = dispatcher.Dispatcher(engine, metrics)
        line.cut()
        call: Any = SimpleNamespace(requests=[0], outcomes={})
        handle: Any = SimpleNamespace(call=call, cancel=lambda: cancelled.append(call), options=Options())
        cursor: Any = SimpleNamespace(handle=handle)
        arrivals = await asyncio.to_thread(line.add, cursor)
        try:
            async for _ in arrivals.pieces(is_quick=True):
                raise AssertionError("there is no news")
        finally:
            assert arrivals.is_finished and line.writing == 0 and cancelled == [call]

    with pytest.raises(Cancelled):
        asyncio.run(end())
