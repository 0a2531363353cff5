"""Engines after what breaks a step off, in a forked process, and within their own steps."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from trellm import Beam, Engine, OptionError, Sample, generate, models

from ...watching import failing_at, watched
from ..machines import VOCABULARY as FEW
from ..paged import PagedModel
from ..support import BeamSearch

LONG = {"max_tokens": 60, "min_tokens": 60}


def drained(engine: Engine, most: int = 2000) -> int:
    """Take steps until all is done; how many were broken off."""
    broken = 0
    for _ in range(most):
        try:
            if not engine.step():
                return broken
        except KeyboardInterrupt:
            broken += 1
    raise AssertionError("this goes on for ever")


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_a_text_at_its_end_does_not_grow_where_the_rest_of_the_step_is_broken_off(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    model = PagedModel()
    generator = generate.text(model)
    expected = [generator.run(letter, max_tokens=5, min_tokens=5) for letter in "abc"]
    beams = generator.run("d", max_tokens=9, search=Beam(2))
    engine = Engine(model)
    rows = engine.submit(generator, ["a", "b", "c"], max_tokens=5, min_tokens=5)
    wide = engine.submit(generator, "d", max_tokens=9, search=Beam(2))
    advanced = watched(monkeypatch, BeamSearch, "advance", failing_at(5, error()))
    assert drained(engine) == (error is KeyboardInterrupt) and len(advanced) >= 5
    assert [each.token_ids for each in rows.result()] == [each.token_ids for each in expected]
    assert wide.result().text == beams.text
    assert engine.held_bytes == 0


def test_a_text_longer_than_memory_is_read_again_behind_its_window() -> None:
    model = PagedModel(window=7)
    generator = generate.text(model)
    expected = generator("abc", max_tokens=200, min_tokens=200)
    engine = Engine(model, memory=model.block_bytes * 4)
    handle = engine.submit(generator, "abc", max_tokens=200, min_tokens=200)
    model.raises = [None] * 190 + [KeyboardInterrupt()]
    assert drained(engine) == 1
    assert handle.result().text == expected and engine.held_bytes == 0


@pytest.mark.parametrize("is_started", [False, True])
def test_a_step_that_waits_for_its_own_engine_is_refused(is_started: bool) -> None:
    refused: list[str] = []

    def logits(ids: Any) -> Any:
        if len(ids) == 3:
            for ask in (engine.step, lambda: engine.submit(generator, "a", max_tokens=2).result()):
                try:
                    ask()
                except OptionError as error:
                    refused.append(str(error))
        return np.arange(FEW.size) % 3

    model = models.from_function(logits, FEW)
    engine, generator = Engine(model), generate.text(model)
    with engine.start() if is_started else engine:
        assert len(engine.submit(generator, "a", max_tokens=4, min_tokens=4).result().token_ids) == 4
        assert len(refused) == 2 and "the engine's steps" in refused[0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked here")
def test_a_forked_process_takes_the_steps_that_a_thread_took() -> None:
    model = PagedModel()
    generator = generate.text(model)
    expected = generator("ab", **LONG)
    with Engine(model).start() as engine:
        assert engine.submit(generator, "ab", **LONG).result().text == expected
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            os._exit(0 if generator("ab", **LONG) == expected else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert generator("ab", **LONG) == expected


def test_what_is_drawn_again_is_no_stream() -> None:
    model = PagedModel()
    handle = Engine(model).submit(generate.text(model), "ab", max_tokens=4, search=Sample(), retries=1)
    with pytest.raises(OptionError, match="use result"):
        next(handle.pieces())


def test_cancelling_what_is_done_keeps_its_results() -> None:
    model = PagedModel()
    handle = Engine(model).submit(generate.text(model), "ab", max_tokens=4)
    before = handle.result()
    handle.cancel()
    assert handle.result() is before


@pytest.mark.parametrize(("tokens", "most", "width", "length"), [(16, 40, 3, 20), (16, 70, 2, 3), (64, 40, 2, 20)])
def test_beams_that_gave_up_their_blocks_read_again_in_parts(tokens: int, most: int, width: int, length: int) -> None:
    model = PagedModel()
    generator = generate.text(model)
    options = {"max_tokens": most, "min_tokens": most, "search": Beam(width)}
    prompts = [letter * length for letter in "abc"]
    expected = generator(prompts, **options)
    engine = Engine(model, memory=14 * model.block_bytes, tokens=tokens, chunk=16)
    handles = [engine.submit(generator, prompt, **options) for prompt in prompts]
    assert drained(engine) == 0
    assert [handle.result().text for handle in handles] == expected and engine.held_bytes == 0


AT_EXIT = """
import atexit, threading
atexit.register(lambda: print([each.name for each in threading.enumerate() if each.name == "trellm engine"]))
import trellm
vocabulary = trellm.Vocabulary([b"a", b"b", None], eos_ids=(2,))
begun = threading.Event()
model = trellm.models.from_function(lambda ids: begun.set() or [1.0, 2.0, 0.0], vocabulary)
engine = trellm.Engine(model).start()
handle = engine.submit(trellm.generate.text(model), "a", max_tokens=100_000)
begun.wait()
"""


@pytest.mark.slow
def test_a_thread_of_an_engine_ends_before_the_process() -> None:
    found = subprocess.run([sys.executable, "-c", AT_EXIT], capture_output=True, text=True, timeout=1000)
    assert (found.returncode, found.stdout) == (0, "[]\n")
