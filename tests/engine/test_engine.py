"""The engine: callers in several threads and in asyncio share its steps, and one request's fate is its own."""

from __future__ import annotations

import asyncio
import copy
import gc
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import trellm
from trellm import Beam, Cancelled, Engine, Generator, OptionError, Sample, generate, models

from ..watching import in_thread, watched
from .conftest import HANGS, until
from .machines import TABLE
from .machines import VOCABULARY as FEW
from .paged import LETTERS, PagedModel
from .support import Options, requests_of

LONG = {"max_tokens": 60, "min_tokens": 60}


def endless(model: PagedModel) -> Generator:
    return generate.text(model)


def test_the_engine_of_a_model_is_one_for_all_its_generators() -> None:
    model = PagedModel()
    assert Engine.of(model) is Engine.of(model)
    generate.text(model)("abc", max_tokens=3)
    steps = model.steps
    assert steps == 3 and Engine.of(PagedModel()) is not Engine.of(model)
    mine = Engine(model, memory=64 * 100, chunk=16)
    assert Engine.of(model) is mine
    mine.close()
    assert Engine.of(model) is not mine
    assert copy.deepcopy(model).__dict__["_trellm_engine"] is None, "a copy has none yet"


def test_the_thread_of_constraints_sleeps_where_there_is_nothing_to_find_out(monkeypatch: pytest.MonkeyPatch) -> None:
    model = PagedModel()

    with Engine(model).start() as engine:
        looked = watched(monkeypatch, engine._loop, "to_prepare", in_thread)
        engine.submit(generate.text(model), list(LETTERS), **LONG).result()
    assert model.steps >= 60
    assert looked.count("trellm constraints") < 5, "it was woken after each step"


def test_callers_in_several_threads_share_steps() -> None:
    model = PagedModel()
    generator = endless(model)
    expected = [generator(letter, **LONG) for letter in LETTERS]
    apart, model.steps = model.steps, 0
    engine = Engine.of(model)
    found: dict[str, str] = {}

    def call(letter: str) -> None:
        found[letter] = generator(letter, **LONG)

    threads = [threading.Thread(target=call, args=[letter]) for letter in LETTERS]
    with engine._hold_lock():  # nobody takes a step before all have come
        for thread in threads:
            thread.start()
        until(lambda: len(engine._entering) == len(LETTERS))
    for thread in threads:
        thread.join()
    assert [found[letter] for letter in LETTERS] == expected
    assert apart == 60 * len(LETTERS) and model.steps == 60


def test_a_thread_of_its_own() -> None:
    model = PagedModel()
    expected = generate.text(model)(list(LETTERS), **LONG)
    with Engine(model).start() as engine:
        handles = [engine.submit(endless(model), letter, **LONG) for letter in LETTERS]
        assert [handle.result().text for handle in handles] == expected
        assert generate.text(model)(list(LETTERS), **LONG) == expected, "calls use it too"
        pieces = list(engine.submit(endless(model), ["a", "b"], **LONG).pieces())
        assert "".join(piece.text for piece in pieces if piece.prompt == 1) == expected[1]
        assert "started" in repr(engine)
    assert "closed" in repr(engine)
    with pytest.raises(OptionError, match="closed"):
        engine.submit(endless(model), "a")


def test_asyncio() -> None:
    model = PagedModel()
    expected = generate.text(model)(list(LETTERS), **LONG)

    async def main(engine: Engine) -> None:
        handles = [engine.submit(endless(model), letter, **LONG) for letter in LETTERS]
        found = await asyncio.gather(*handles)
        assert [result.text for result in found] == expected
        pieces = [piece async for piece in engine.submit(endless(model), "c", **LONG).stream()]
        assert "".join(piece.text for piece in pieces) == expected[2] and pieces[-1].result is not None

    asyncio.run(main(Engine.of(model)))
    with Engine(model).start() as started:
        asyncio.run(main(started))


def test_results_as_they_come() -> None:
    model = PagedModel()
    generator = generate.regex(model, "[a-h]{1,40}")
    prompts = list(LETTERS)
    expected = [result.text for result in generator.run(prompts)]
    order = [(number, result.text) for number, result in generator.iter(prompts)]
    assert sorted(order) == list(enumerate(expected))
    pieces = list(generator.stream(prompts))
    for number, text in enumerate(expected):
        own = [piece for piece in pieces if piece.prompt == number]
        assert "".join(piece.text for piece in own) == text
        assert [piece.result is not None for piece in own] == [False] * (len(own) - 1) + [True]
        assert own[-1].result.text == text and own[-1].result.finish_reason == "complete"


def test_a_step_at_a_time() -> None:
    model = PagedModel()
    engine = Engine.of(model)
    handle = engine.submit(endless(model), "abc", **LONG)
    assert not handle.done
    steps = 0
    while engine.step():
        steps += 1
    assert steps == 59 and len(handle.result().token_ids) == 60 and handle.done
    assert not engine.step() and not engine.is_busy


def test_a_stream_looks_after_each_step_whoever_takes_it() -> None:
    model = PagedModel()
    engine = Engine.of(model)
    pieces = engine.submit(endless(model), "abc", **LONG).pieces()
    found = [next(pieces)]
    told = threading.Event()
    reader = threading.Thread(target=lambda: (found.append(next(pieces)), told.set()))
    call = engine._loop.calls[0]
    with engine._lock:  # the reader cannot take a step itself
        reader.start()
        until(lambda: call.waiting)
        with engine._hold_lock():
            engine._step()
        until(lambda: not call.waiting)  # it goes to look
    reader.join(HANGS)
    assert told.is_set() and all(piece.text for piece in found)


def test_cancelled_and_dropped_handles_free_their_memory() -> None:
    model = PagedModel()
    engine = Engine.of(model)
    handle = engine.submit(endless(model), "abc" * 50, **LONG)
    engine.step()
    assert engine.held_bytes == 64 * 10
    handle.cancel()
    handle.cancel()
    assert engine.held_bytes == 0 and not engine.is_busy
    with pytest.raises(Cancelled, match="cancelled, or its engine closed, before"):
        handle.result()
    other = engine.submit(endless(model), "abc" * 50, **LONG)
    engine.step()
    assert engine.held_bytes > 0
    del other
    gc.collect()
    assert engine.held_bytes == 0


def test_cancelling_from_another_thread_in_the_midst_of_a_step() -> None:
    victims: list[Any] = []

    class Reading(PagedModel):
        """While it reads, another thread cancels."""

        def forward(self, chunks: Any, memory: Any) -> Any:
            if victims and self.steps == 3:
                other = threading.Thread(target=victims.pop().cancel)
                other.start()
                other.join(HANGS)
                assert not other.is_alive(), "cancelling waits for no step"
            return super().forward(chunks, memory)

    model = Reading()
    engine = Engine.of(model)
    kept, victim = engine.submit(endless(model), "abc", **LONG), engine.submit(endless(model), "d" * 50, **LONG)
    victims.append(victim)
    for _ in range(5):
        engine.step()
    assert not victims and victim.done and not kept.done
    engine._loop.check()
    held = engine.held_bytes
    with pytest.raises(Cancelled):
        victim.result()
    assert kept.result().text == endless(PagedModel())("abc", **LONG)
    assert held == 64 and engine.held_bytes == 0


def test_no_thread_is_started_unasked() -> None:
    before = set(threading.enumerate())
    model = PagedModel()
    generator = generate.regex(model, "[a-h]{1,9}")
    generator(["a", "b"], search=Sample(n=2), seed=1)
    assert list(generator.stream(["a", "b"])) and list(generator.iter(["a", "b"]))
    handle = Engine.of(model).submit(generator, "a", search=Beam(2))
    Engine.of(model).step()
    assert handle.result() and set(threading.enumerate()) <= before


def test_closing_ends_what_runs() -> None:
    model = PagedModel()
    engine = Engine(model)
    handle = engine.submit(endless(model), "abc", **LONG)
    engine.step()
    engine.close()
    engine.close()
    with pytest.raises(Cancelled):
        handle.result()
    with Engine(model).start() as started:
        late = started.submit(endless(model), "abc", max_tokens=10**6, min_tokens=10**6)
        caught: list[BaseException] = []

        def wait() -> None:
            try:
                late.result()
            except Cancelled as error:
                caught.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        until(lambda: model.steps >= 5)
        started.close()
        thread.join(HANGS)
    assert caught


def test_a_request_that_fails_fails_alone() -> None:
    class BrokenGuide:
        """Allows everything, and breaks after three tokens."""

        vocabulary, start = PagedModel().vocabulary, 0

        def mask(self, state: int) -> Any:
            if state == 3:
                raise RuntimeError("broken")
            return np.array([(1 << len(LETTERS)) - 1], np.uint32)

        def advance(self, state: int, token: int) -> int:
            return state + 1

        def is_accepting(self, state: int) -> bool:
            return True

        def distance(self, state: int) -> int:
            return 0

    model = PagedModel()
    engine = Engine.of(model)
    expected = [endless(model)(letter, **LONG) for letter in "ab"]
    for search in (trellm.Greedy(), Beam(2)):
        good = [engine.submit(endless(model), letter, **LONG) for letter in "ab"]
        bad = engine.submit(Generator(model, BrokenGuide()), "c", max_tokens=30, search=search)  # type: ignore[arg-type]
        with pytest.raises(RuntimeError, match="broken"):
            bad.result()
        assert [handle.result().text for handle in good] == expected


def test_logits_that_are_unusable_fail_alone() -> None:
    def logits(ids: Sequence[int]) -> Any:
        return [float("nan")] * 6 if ids[0] == 2 and len(ids) > 2 else TABLE[ids[-1]]

    model = models.from_function(logits, FEW)
    engine, generator = Engine.of(model), generate.text(model)
    good, bad = engine.submit(generator, "a", max_tokens=9), engine.submit(generator, "c", max_tokens=9)
    with pytest.raises(trellm.ModelError, match="step 2 of prompt 0"):
        bad.result()
    both = engine.submit(generator, ["a", "c"], max_tokens=2)
    assert [result.text for result in both.result()] == generator(["a", "c"], max_tokens=2)
    both = engine.submit(generator, ["c", "a", "c"], max_tokens=9, batch_size=1)
    with pytest.raises(trellm.ModelError) as caught:
        both.result()
    assert caught.value.finished == [None, None, None]  # type: ignore[attr-defined]
    assert good.result().text == generator("a", max_tokens=9)


def test_an_interrupted_caller_leaves_the_others_running() -> None:
    model = PagedModel()
    engine = Engine.of(model)
    generator = generate.regex(model, "[a-h]{40}")
    expected = [generator(letter) for letter in "abc"]
    others = [engine.submit(generator, letter) for letter in "ab"]
    beams = engine.submit(generator, "c", search=Beam(3))
    wide = generator.run("c", search=Beam(3)).text
    model.raises = [None] * 12 + [KeyboardInterrupt()]
    with pytest.raises(trellm.Interrupted):
        generator("c")
    assert [handle.result().text for handle in others] == expected[:2]
    assert beams.result().text == wide
    assert engine.held_bytes == 0


def test_what_can_never_fit_is_refused_with_the_numbers() -> None:
    model = PagedModel()
    Engine(model, memory=64 * 10)
    assert len(endless(model)("a" * 60, max_tokens=80)) <= 80
    with pytest.raises(OptionError, match=r"prompt 0 of 60 tokens, with up to 180 of output, takes .* the engine has"):
        endless(model)("a" * 60, max_tokens=180)
    with pytest.raises(OptionError, match="in 4 beams"):
        endless(model)("a" * 60, max_tokens=60, search=Beam(4))
    with pytest.raises(OptionError, match="too small for"):
        Engine(PagedModel(), memory=63)
    with pytest.raises(OptionError, match="are free"):
        Engine(PagedModel(), memory=1 << 59)


def test_mistakes_are_told_at_once() -> None:
    model = PagedModel()
    engine = Engine.of(model)
    with pytest.raises(OptionError, match="submit takes a generator"):
        engine.submit("abc", "abc")
    with pytest.raises(OptionError, match="share one model"):
        engine.submit(generate.text(PagedModel()), "abc")
    with pytest.raises(OptionError, match="max_tokens"):
        engine.submit(generate.text(model), "abc", max_tokens=0)
    with pytest.raises(OptionError, match="first argument must be a model"):
        Engine("gpt2")  # type: ignore[arg-type]
    engine.submit(generate.text(model), "abc", **LONG)
    kept = engine.submit(generate.text(model), "abc", **LONG)
    engine.step()
    with pytest.raises(OptionError, match="running engine"):
        Engine(model)
    kept.cancel()


def test_a_model_may_call_a_generator_of_its_own() -> None:
    inner: list[str] = []

    def logits(ids: Sequence[int]) -> Any:
        if len(ids) == 2 and not inner:
            inner.append("")
            inner.append(generate.text(model)("b", max_tokens=3))
        return TABLE[ids[-1]]

    model = models.from_function(logits, FEW)
    text = generate.text(model)("a", max_tokens=4)
    assert inner[1] == generate.text(model)("b", max_tokens=3)
    assert text == generate.text(model)("a", max_tokens=4)


def test_retries_and_samples_in_an_engine() -> None:
    model = PagedModel()
    generator = Generator(model, generate.regex(model, "[a-h]{2}").guide, convert=_only_of_the_first_four)
    found = Engine.of(model).submit(generator, ["c", "d"], search=Sample(n=3), seed=1, retries=200).result()
    assert all(set(result.value) <= {"a", "b", "c", "d"} for entry in found for result in entry)
    assert found == generator.run(["c", "d"], search=Sample(n=3), seed=1, retries=200)


def _only_of_the_first_four(text: str) -> str:
    if set(text) <= {"a", "b", "c", "d"}:
        return text
    raise ValueError(text)


def test_requests_know_their_width() -> None:
    model = PagedModel()
    job = generate.text(model).job("a")
    assert [requests_of(model, [job], Options(search=search))[0].width for search in (Beam(5), Sample(n=3))] == [5, 1]


def test_a_prompt_may_have_a_budget_of_its_own() -> None:
    model = PagedModel()
    job = generate.text(model).job("a")
    jobs = [job, replace(job, max_tokens=3), job]
    assert [request.budget for request in requests_of(model, jobs, Options(max_tokens=5))] == [5, 3, 5]
