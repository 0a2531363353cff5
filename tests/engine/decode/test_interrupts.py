"""Whatever ends a call midway, what is finished is kept."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from trellm import Beam, Engine, Interrupted, ModelError, Sample, generate, models

from ..machines import TABLE, VOCABULARY

ENGINE = str(Path(generate.__file__).parent / "engine")
PROMPTS = ["a", "b", "c", "d", "e"]
SEARCHES = [{}, {"search": Sample(n=2), "seed": 3}, {"search": Beam(2)}]


def table_model() -> Any:
    return models.from_function(lambda ids: TABLE[ids[-1]], VOCABULARY)


class InterruptAt:
    """Raises KeyboardInterrupt at the n-th line of the engine that runs below `run_together`, or at once."""

    def __init__(self, line: int, is_inside: bool = False) -> None:
        self.left = line
        self.is_inside = is_inside

    def __call__(self, frame: Any, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(ENGINE):
            return None
        if frame.f_code.co_name == "_progress_bar":
            self.is_inside = True
        if frame.f_code.co_name == "run_together" and event == "return":
            self.is_inside = False
        if self.is_inside and event == "line":
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self


@pytest.mark.parametrize("options", SEARCHES, ids=["greedy", "samples", "beams"])
@pytest.mark.slow
def test_an_interrupt_at_any_line_keeps_what_is_finished(options: dict[str, Any]) -> None:
    generator = generate.regex(table_model(), "[ab]{1,3}(c|de)")
    whole = generator.run(PROMPTS, batch_size=3, **options)
    kept: set[int] = set()
    for line in range(1, 100_000, 151):
        trace = InterruptAt(line)
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            finished = generator.run(PROMPTS, batch_size=3, **options)
        except Interrupted as interrupt:
            finished = interrupt.finished
        finally:
            sys.settrace(before)
        for result, right in zip(finished, whole, strict=True):
            several = zip(result, right, strict=True) if isinstance(result, list) else [(result, right)]
            assert all(one is None or one == other for one, other in several)
        kept.add(sum(result is not None for result in finished))
        if trace.left > 0:
            break
    assert len(kept) > 2, "interrupts came before, among and after the first results"
    assert trace.left > 0, "the last one came after the end"


class PowerError(Exception):
    """What a model of the caller's own may raise."""


@pytest.mark.parametrize("wrong", [PowerError("no power"), ModelError("no power"), MemoryError()])
def test_what_a_model_raises_comes_through_with_the_results(wrong: Exception) -> None:
    calls = 0

    def logits(ids: Sequence[int]) -> list[float]:
        nonlocal calls
        calls += 1
        if calls > 10:
            raise wrong
        return [1.0, 0, 0, 0, 0, 5.0 if len(ids) > ids[0] else -5.0]

    generator = generate.text(models.from_function(logits, VOCABULARY))
    with pytest.raises(type(wrong)) as caught:
        generator.run(["b", "e", "c", "d"], batch_size=2)
    assert caught.value is wrong
    assert [result and result.text for result in caught.value.finished] == ["a", "aaaa", "aa", None]  # type: ignore[attr-defined]
    assert "3 of 4 prompts were finished" in caught.value.__notes__[0]


def test_an_error_that_takes_no_attributes_comes_through_as_well() -> None:
    class ClosedError(Exception):
        @property
        def finished(self) -> str:
            """Something of its own."""
            return "never"

    def logits(ids: Sequence[int]) -> list[float]:
        raise ClosedError

    with pytest.raises(ClosedError) as caught:
        generate.text(models.from_function(logits, VOCABULARY))("a")
    assert caught.value.finished == "never"


def test_mistakes_before_the_start_have_no_results() -> None:
    with pytest.raises(Exception, match="max_tokens=1 is too small") as caught:
        generate.regex(table_model(), "abc")("a", max_tokens=1)
    assert not hasattr(caught.value, "finished")


def test_samples_that_are_finished_are_kept_beside_those_that_are_not() -> None:
    def logits(ids: Sequence[int]) -> list[float]:
        if ids[-1] == 1 and len(ids) > 3:
            raise KeyboardInterrupt
        return [0.0, 0.0, -99, -99, -99, 0.0 if len(ids) > 1 else -99]

    generator = generate.text(models.from_function(logits, VOCABULARY))
    with pytest.raises(Interrupted) as caught:
        generator.run(["a", "a"], search=Sample(n=4), seed=[1, 2], max_tokens=9, batch_size=2)
    entries = caught.value.finished
    partly = [entry for entry in entries if entry is not None and None in entry]
    assert partly and any(result is not None for entry in partly for result in entry)
    assert f"{sum(entry is not None and None not in entry for entry in entries)} of 2" in str(caught.value)
    assert pickle.loads(pickle.dumps(caught.value)).finished == entries


def test_spans_that_are_found_are_kept() -> None:
    calls = 0

    def logits(ids: Sequence[int]) -> list[float]:
        nonlocal calls
        calls += 1
        if calls > 3:
            raise KeyboardInterrupt
        return [float(ids[-1] == token) for token in range(6)]

    model = models.from_function(logits, VOCABULARY)
    generator = generate.extract(model, "abcdea", boundary="character", max_chars=1, spans=3)
    with pytest.raises(Interrupted) as caught:
        generator.run(["a", "b"])
    found = [result for entry in caught.value.finished if entry for result in entry if result is not None]
    assert found and all(result.value.text == result.text for result in found)


def test_an_interrupt_where_the_lead_is_taken_or_given_back_leaves_it_to_others() -> None:
    model = table_model()
    generator = generate.regex(model, "[ab]{1,3}(c|de)")
    expected = generator.run("a").text
    lines = 1
    while True:
        engine = Engine(model)
        handle, left = engine.submit(generator, "a"), lines

        def trace(frame: Any, event: str, argument: Any, engine: Engine = engine) -> Any:
            nonlocal left
            if frame.f_code.co_name != "_help_step":
                return trace if frame.f_code.co_filename.startswith(ENGINE) else None
            if event == "line" and engine._is_stepping:
                left -= 1
                if left == 0:
                    raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            engine.wait(handle.call)
        except KeyboardInterrupt:
            lines += 1
        finally:
            sys.settrace(before)
        assert not engine._is_stepping
        assert handle.result().text == expected
        if left > 0:
            break
    assert lines > 3, "there are some lines between"
