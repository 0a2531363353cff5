"""The record of a beam search: what it holds, as text and as a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any
from xml.etree import ElementTree

import pytest
from trellm import Beam, Greedy, OptionError, Vocabulary, generate, models

from ..support import SearchTrace, TracedBeam

WORDS = ["The", " dog", " nice", " car", " is", " fast", " and", " slow", " mad", " runs", " barks"]
AFTER: dict[str, dict[str, float]] = {
    "The": {" dog": 0.45, " nice": 0.35, " car": 0.19, " is": 0.01},
    " dog": {" and": 0.5, " runs": 0.3, " is": 0.2},
    " nice": {" car": 0.6, " dog": 0.39, " is": 0.01},
    " is": {" slow": 0.4, " fast": 0.3, " mad": 0.3},
    " and": {" barks": 0.5, " runs": 0.4, " is": 0.1},
}
END = len(WORDS)


def table(ids: Sequence[int]) -> list[float]:
    """The logits after a word; most words end the text."""
    after = AFTER.get(WORDS[ids[-1]], {})
    return [math.log(after.get(word, 1e-9)) for word in WORDS] + [math.log(max(1 - sum(after.values()), 1e-9))]


MODEL = models.from_function(table, Vocabulary.from_characters(WORDS))
TEXT = generate.text(MODEL)


def words(trace: SearchTrace, step: int, number: int) -> list[str]:
    """The tokens of a hypothesis, by way of its parents."""
    found: list[str] = []
    at: int | None = number
    while at is not None:
        beam = trace.steps[step][at]
        found.append(beam.token or "<end>")
        at, step = beam.parent, step - 1
    assert step == -1, "the chain of parents leads to the first step"
    return found[::-1]


def by_text(trace: SearchTrace, step: int) -> dict[str, tuple[int | None, float]]:
    return {
        "The" + "".join(words(trace, step, number)): (beam.bank, round(math.exp(beam.logprob), 4))
        for number, beam in enumerate(trace.steps[step])
    }


def test_the_blogs_example() -> None:
    trace = TEXT.run("The", include="is fast", search=Beam(3), max_tokens=6, trace=True).trace
    assert by_text(trace, 0) == {"The is": (1, 0.01), "The dog": (0, 0.45), "The nice": (0, 0.35)}
    assert by_text(trace, 1) == {"The is fast": (2, 0.003), "The dog is": (1, 0.09), "The dog and": (0, 0.225)}
    third = by_text(trace, 2)
    assert third["The dog is fast"] == (2, 0.027)
    assert third["The is fast<end>"] == (2, 0.003)
    ended = next(beam for beam in trace.steps[2] if beam.token is None)
    assert (ended.token_id, ended.finish_reason) == (END, "complete")
    assert ended.score == pytest.approx(math.log(0.003) / 3)


@pytest.mark.parametrize("search", [Beam(4, n=3), Beam(3, n=3, length_penalty=0.0), Beam(5, n=2, early_stopping=True)])
@pytest.mark.parametrize("include", ["", "is"])
@pytest.mark.parametrize("ends", [{}, {"stop": " and"}, {"stop_ids": [3]}])
def test_paths_lead_to_the_results(search: Beam, include: str, ends: dict[str, Any]) -> None:
    options: dict[str, Any] = {"search": search, "max_tokens": 5, "include": [include] if include else [], **ends}
    for results in TEXT.run(["The", "The dog", "The nice"], trace=True, batch_size=10, **options):
        trace = results[0].trace
        assert len(trace.best) == len(results)
        for number, result in enumerate(results):
            assert result.trace is trace
            step, last = trace.best[number]
            beam = trace.steps[step][last]
            path = [trace.steps[at][one].token_id for at, one in enumerate(trace.path(number))]
            assert tuple(path[: len(result.token_ids)]) == result.token_ids
            assert len(path) - len(result.token_ids) in (0, 1)
            assert (beam.score, beam.finish_reason) == (result.score, result.finish_reason)
        running = [sum(beam.finish_reason is None for beam in beams) for beams in trace.steps]
        assert max(running) <= search.width
        assert all((beam.bank is not None) == bool(include) for beams in trace.steps for beam in beams)


def test_a_trace_changes_nothing() -> None:
    options: dict[str, Any] = {"search": Beam(4, n=3), "max_tokens": 5, "logprobs": True, "diagnostics": True}
    for constrained in (TEXT, generate.regex(MODEL, "( [a-z]+){2,4}")):
        plain, traced = (
            list[Any](chain(*constrained.run(["The", "The dog"], **options, trace=on))) for on in (False, True)
        )
        for without, found in zip(plain, traced, strict=True):
            assert without.trace is None
            assert (without.text, without.score) == (found.text, found.score)
            assert found.trace is not None


def test_the_text_is_aligned() -> None:
    trace = TEXT.run("The", include="is fast", search=Beam(3), max_tokens=6, trace=True).trace
    head, *lines = str(trace).splitlines()
    assert head.split() == ["step", "beam", "parent", "token", "logprob", "bank", "finished", "score"]
    assert len(lines) == sum(map(len, trace.steps))
    assert len({line.index("␣") for line in lines if "␣" in line}) == 1
    marked = [line for line in lines if "*" in line]
    assert [int(line.split()[0]) for line in marked] == list(range(trace.best[0][0] + 1))
    assert [int(line.split()[1][1:]) for line in marked] == trace.path()
    assert "EOS" in str(trace)
    assert "bank" not in repr(trace)


def test_the_picture_is_a_tree() -> None:
    trace = TEXT.run("The", include="is fast", search=Beam(3), max_tokens=6, trace=True).trace
    root = ElementTree.fromstring(trace.to_svg())
    beams = sum(map(len, trace.steps))
    paths = [path for path in root.iter("{http://www.w3.org/2000/svg}path") if path.get("marker-end")]
    boxes = [box for box in root.iter("{http://www.w3.org/2000/svg}rect") if box.get("rx")]
    assert len(paths) == beams + 1  # an arrow to each, and the one to the prompt
    assert len(boxes) == beams + 1
    assert sum(box.get("fill") != "white" for box in boxes) == len(trace.path()) + 1
    assert sum(path.get("stroke-width") == "7" for path in root.iter()) == len(trace.path())
    middles = {float(box.get("x", 0)) + float(box.get("width", 0)) / 2 for box in boxes}
    columns = [round(middle) for middle in sorted(middles)]
    assert sum(right - left > 20 for left, right in pairwise(columns)) == len(trace.steps), "one for each step"
    texts = ["".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("␣fast") == sum(beam.token == " fast" for step in trace.steps for beam in step)


def test_tokens_that_are_markup_or_no_text() -> None:
    texts = ["<b>&\"'", "\n\x00]]>", "\udcff", None]
    steps = tuple(
        (TracedBeam(0 if at else None, at, text, -1.0, -1.0, None, "stop" if at == 3 else None),)
        for at, text in enumerate(texts)
    )
    trace = SearchTrace(steps, ((3, 0),))
    root = ElementTree.fromstring(trace.to_svg())
    shown = ["".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert [name for name in shown if not name.startswith("-1")] == [
        "prompt", "<b>&\"'", "\\n\\x00]]>", "\\udcff", "token 3"]  # fmt: skip
    assert len(str(trace).splitlines()) == 5


def test_only_beams_have_a_trace() -> None:
    with pytest.raises(OptionError, match=r"trace=True with search=Greedy\(\).*use search=Beam"):
        TEXT.run("The", search=Greedy(), trace=True)
    with pytest.raises(OptionError, match="trace"):
        TEXT("The", search=Beam(2), trace=True)  # pyright: ignore[reportCallIssue]
