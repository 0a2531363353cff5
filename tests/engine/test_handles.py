"""Handles: looked at in several ways, given up before and between steps, waited for by tasks, threads and forks."""

from __future__ import annotations

import asyncio
import copy
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest
from trellm import Cancelled, Engine, Generator, OptionError, generate

from .conftest import HANGS, until
from .paged import PagedModel

LONG = {"max_tokens": 60, "min_tokens": 60}


def endless(model: PagedModel) -> Generator:
    return generate.text(model)


def test_every_way_of_looking_at_a_handle_gives_all() -> None:
    model = PagedModel()
    engine = Engine.of(model)
    handle = engine.submit(endless(model), ["a", "b"], **LONG)
    pieces = handle.pieces()
    first = next(pieces)
    texts = [result.text for result in handle.result()]
    rest = [first, *pieces]
    for number, text in enumerate(texts):
        assert "".join(piece.text for piece in rest if piece.prompt == number) == text
    assert sum(piece.result is not None for piece in rest) == 2
    assert [each.result.text for each in sorted(handle.finished(), key=lambda each: each.prompt)] == texts
    assert [piece.text for piece in handle.pieces()] == texts, "each in one piece"


def test_what_was_cancelled_before_any_step_leaves_the_engine_free() -> None:
    model = PagedModel()
    engine = Engine.of(model)
    handle = engine.submit(endless(model), "abc", **LONG)
    handle.cancel()
    assert not engine.is_busy and not engine._entering and not engine._loop.calls
    with engine._lock:  # in the midst of another thread's step
        handle = engine.submit(endless(model), "abc", **LONG)
        canceller = threading.Thread(target=handle.cancel)
        canceller.start()
        canceller.join()
        assert not engine.is_busy
    assert not engine.step() and not engine._entering
    Engine(model).close()


def test_a_cancelled_task_cancels_what_it_waits_for() -> None:
    model = PagedModel()
    engine = Engine.of(model)

    async def read(handle: Any) -> None:
        async for _ in handle.stream():
            pass

    async def wait(handle: Any) -> None:
        await handle

    async def main(waits: Callable[[Any], Any]) -> Any:
        handle = engine.submit(endless(model), "abc", max_tokens=5000, min_tokens=5000)  # nobody waits for its end
        task = asyncio.ensure_future(waits(handle))
        while not engine._loop.steps > steps:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return handle

    for waits in (wait, read):
        steps = engine._loop.steps
        handle = asyncio.run(main(waits))
        assert handle.done and None in handle.results()
        assert not engine.step() and engine.held_bytes == 0
        with pytest.raises(Cancelled, match="or its engine closed"):
            handle.result()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked here")
def test_a_fork_lets_a_thread_go_on_that_found_the_steps_taken_by_it() -> None:
    model = PagedModel()
    engine = Engine.of(model)
    handle = engine.submit(endless(model), "abc", **LONG)
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.append(handle.result()), daemon=True)
    news: Any = engine._news
    with engine._lock:  # as a fork takes it, before the thread does
        reader.start()
        until(lambda: news._waiters)
    child = os.fork()
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    reader.join(HANGS)
    assert len(found[0].token_ids) == 60


def test_what_the_engines_own_threads_call_does_not_wait_for_them() -> None:
    model = PagedModel()
    expected = endless(model)("b", max_tokens=4)
    found: list[str] = []
    told = threading.Event()
    with Engine(model).start() as engine:

        def look() -> None:
            if not told.is_set():
                found.append(endless(model)("b", max_tokens=4))
                try:
                    engine.submit(endless(model), "b", max_tokens=4).result()
                except OptionError as error:
                    found.append(str(error))
                told.set()

        engine.watch(look)
        handle = engine.submit(endless(model), "abc", **LONG)
        assert told.wait(HANGS)
        engine.unwatch(look)
        assert len(handle.result().token_ids) == 60
    assert found[0] == expected and "the engine's steps" in found[1]


def test_generators_are_copied_with_their_model() -> None:
    model = PagedModel()
    for generator in (endless(model), generate.regex(model, "[a-h]{9,}")):
        twin = copy.deepcopy(generator)
        assert twin.model is not model and Engine.of(twin.model) is not Engine.of(model)
        assert twin("abc", max_tokens=12) == generator("abc", max_tokens=12)
        listed = copy.deepcopy([generator, generator])
        assert listed[0] is listed[1]
