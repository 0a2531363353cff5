"""Texts whose constraints have something to find out sit out steps, and nobody else; their tokens are the same."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from trellm import Engine, LimitError, generate
from trellm.guides import RegexGuide

from ...thresholds import thresholds
from ..paged import PagedModel, results
from ..support import Call, EngineCore, Options, SchedulerConfig, requests_of
from .test_scheduler import Some, alone

FREE = {"max_tokens": 40, "min_tokens": 40}


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a guide was not asked before takes too long."""
    thresholds(monkeypatch, steps_of_a_quick_answer=1)
    yield


class WatchedGuide(RegexGuide):
    """A guide that calls `before` and `behind` around the work on a mask, where they are set."""

    before: Callable[[], object] | None = None
    behind: Callable[[], object] | None = None

    def _complete(self, state: int) -> Any:
        if self.before is not None:
            self.before()
        found = super()._complete(state)
        if self.behind is not None:
            self.behind()
        return found


def entered(loop: EngineCore, generator: Any, **options: Any) -> Call:
    call = Call(requests_of(loop.model, [generator.job("abc")], Options(**options)), 16)
    loop.calls.append(call)
    return call


def test_neighbours_get_a_token_in_every_step() -> None:
    model = PagedModel()
    loop = EngineCore(model, 300, SchedulerConfig())
    loop.waiting.is_attended = True
    writing = entered(loop, generate.text(model), **FREE)
    for _ in range(3):
        loop.step()
    met = entered(loop, generate.regex(model, "[a-d]{3,9}e"), max_tokens=20)
    row: Any = writing.groups[0].work
    for step in range(4, 8):
        loop.step()
        loop.check()
        assert len(row.tokens) == step
        assert met.groups[0].waits and not met.groups[0].work.readers[0].table.tokens
    sat_out = 0
    while not met.outcomes:
        preparation = loop.to_prepare()
        if preparation is not None:
            preparation.run()
            assert preparation.is_ended and preparation.error is None
            sat_out += 1
        before = len(row.tokens)
        loop.step()
        assert len(row.tokens) == before + 1
    assert sat_out > 3, "states were met for the first time again and again"
    assert results(met)[0] == alone(met.requests[0])


def test_nobody_waits_where_nobody_finds_out_or_nobody_is_held_up() -> None:
    model = PagedModel()
    for attended, neighbours in [(False, 2), (True, 1)]:
        loop = EngineCore(model, 300, SchedulerConfig())
        loop.waiting.is_attended = attended
        calls = [entered(loop, generate.regex(model, f"[a-d]{{3,{9 + i}}}e"), max_tokens=20) for i in range(neighbours)]
        while not all(call.outcomes for call in calls):
            loop.step()
            assert loop.to_prepare() is None
        assert [results(call)[0] for call in calls] == [alone(call.requests[0]) for call in calls]


def test_what_goes_wrong_meanwhile_is_the_text_s_own() -> None:
    model = PagedModel()
    loop = EngineCore(model, 300, SchedulerConfig())
    loop.waiting.is_attended = True
    writing = entered(loop, generate.text(model), **FREE)
    guide = WatchedGuide("[a-c]{4,7}e", model.vocabulary)
    met = entered(loop, generate.Generator(model, guide), max_tokens=20)
    loop.step()

    def refuse() -> None:
        raise LimitError("too much")

    preparation = loop.to_prepare()
    assert preparation is not None
    guide.behind = refuse
    preparation.run()
    while not writing.outcomes:
        loop.step()
    assert isinstance(met.outcomes[0].error, LimitError) and writing.outcomes[0].error is None


def test_a_cancelled_text_breaks_off_what_is_found_out_for_it() -> None:
    model = PagedModel()
    loop = EngineCore(model, 300, SchedulerConfig())
    loop.waiting.is_attended = True
    entered(loop, generate.text(model), **FREE)
    guide = WatchedGuide("[a-c]{4,8}e", model.vocabulary)
    met = entered(loop, generate.Generator(model, guide), max_tokens=20)
    loop.step()
    preparation = loop.to_prepare()
    assert preparation is not None
    done: list[str] = []

    def cancel() -> None:
        done.append("begun")
        met.is_cancelled = True
        loop.forget()

    guide.before, guide.behind = cancel, lambda: done.append("ended")
    preparation.run()
    assert done == ["begun"] and preparation.error is None and preparation.is_ended
    assert loop.to_prepare() is None


@pytest.mark.parametrize("blocks", [32, 300])
def test_whatever_waits_comes_to_what_it_comes_to_alone(blocks: int) -> None:
    """In memory that is too small, too, and whether what is waited for is found out soon, late or in the step."""
    model = PagedModel()
    loop, some, pick = (
        EngineCore(model, blocks, SchedulerConfig(max_num_batched_tokens=64, prefill_chunk_size=16)),
        Some(model, blocks),
        random.Random(blocks),
    )
    calls: list[Call] = []
    waited = 0
    while len(calls) < 16 or loop.calls:
        if len(calls) < 16 and len(loop.calls) < 4:
            call = Call([some.request() for _ in range(pick.randint(1, 3))], 16)
            calls.append(call)
            loop.calls.append(call)
        loop.waiting.is_attended = pick.random() < 0.9
        found = loop.to_prepare()
        if found is not None and pick.random() < 0.4:
            waited += 1
            found.run()
        loop.step()
        loop.check()
    assert waited > 3
    for call in calls:
        assert results(call) == [alone(request) for request in call.requests]


def test_threads_find_out_what_their_own_texts_wait_for() -> None:
    """With an engine's own threads, and without: then whoever waits for the text does it, and the others go on."""
    by: list[str] = []
    patterns = [f"[a-d]{{{n},9}}e" for n in range(3, 8)]
    plain = PagedModel()
    expected = [generate.regex(plain, each)("abc") for each in patterns]
    for is_started in (False, True):
        model = PagedModel()
        engine = Engine(model)
        if is_started:
            engine.start()
        found: dict[int, Any] = {}
        gate = threading.Barrier(len(patterns))

        def call(number: int, model: PagedModel = model, found: dict[int, Any] = found, gate: Any = gate) -> None:
            guide = WatchedGuide(patterns[number], model.vocabulary)
            guide.before = lambda: by.append(threading.current_thread().name)
            gate.wait()
            found[number] = generate.Generator(model, guide)("abc")

        by.clear()
        threads = [threading.Thread(target=call, args=[i], name=f"caller {i}") for i in range(len(patterns))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [found[i] for i in range(len(patterns))] == expected
        assert by and ("trellm constraints" in by) == is_started
        engine.close()


def test_another_guide_s_walk_does_not_hold_up_masks() -> None:
    """Guides of one vocabulary share a table of masks, and not the time that one of them takes."""
    model = PagedModel()
    slow, quick = (WatchedGuide(each, model.vocabulary) for each in ("[a-d]{5}b", "[b-f]{5}c"))
    begun, goes_on = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        assert goes_on.wait(20)

    slow.before = hold
    thread = threading.Thread(target=slow.mask, args=[slow.start])
    thread.start()
    try:
        assert begun.wait(20)
        asked = threading.Thread(target=quick.mask, args=[quick.start])
        asked.start()
        asked.join(20)
        assert not asked.is_alive()
    finally:
        goes_on.set()
        thread.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_what_another_thread_was_at_is_found_out_after_a_fork() -> None:
    model = PagedModel()
    loop = EngineCore(model, 300, SchedulerConfig())
    loop.waiting.is_attended = True
    entered(loop, generate.text(model), **FREE)
    met = entered(loop, generate.regex(model, "[a-c]{5,9}e"), max_tokens=20)
    loop.step()
    preparation = loop.to_prepare()
    assert preparation is not None
    preparation._claim.acquire()
    loop.after_fork()
    for _ in range(100):
        loop.step()
    assert results(met)[0] == alone(met.requests[0])
