"""Diagnostics against a float64 reference, their laws, and that they leave the output as it is."""

from __future__ import annotations

import hashlib
import json
import math
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from trellm import Beam, Generation, Generator, Sample, Vocabulary, generate, models
from trellm.errors import ModelError, OptionError
from trellm.guides import RegexGuide, mask_within, tokens_of

from ..support import Diagnostics, Options, Step, run_together

TOKENS = [b"a", b"b", b"ab", b"ba", b" ", b"1", b"23", b"\xc3", b"\xa9", b"<script>", None, None]
VOCABULARY = Vocabulary(TOKENS, eos_ids=[10, 11])
PATTERNS = ["(ab)+ [0-9]{2,}", "a{1,3}b?", "[ab]*1", "é+ ", "b", "(a|b| )*<script>"]


def logits(ids: Sequence[int]) -> Any:
    """Logits that look random, far apart, and depend on every token."""
    seed = int.from_bytes(hashlib.sha256(bytes(ids)).digest()[:4])
    return np.random.default_rng(seed).normal(0, 3, len(TOKENS)).astype(np.float32)


MODEL = models.from_function(logits, VOCABULARY)


def reference(prompt: Sequence[int], step: Step, before: Sequence[int], allowed: Sequence[int]) -> dict[str, Any]:
    """What a step must say, in float64 and slowly."""
    values = logits([*prompt, *before]).astype(np.float64)
    raw = np.exp(values - values.max())
    raw /= raw.sum()
    mass = raw[list(allowed)].sum()
    leader = int(raw.argmax())
    return {
        "probability": raw[step.token_id] / mass,
        "raw_probability": raw[step.token_id],
        "rank": 1 + int((raw > raw[step.token_id]).sum()),
        "leading_token_id": leader,
        "leading_probability": raw[leader],
        "leading_allowed": leader in allowed,
        "allowed": len(allowed),
        "feasible_mass": mass,
    }


def check(prompt: str, result: Generation, guide: RegexGuide | None, max_tokens: int) -> None:
    steps = result.diagnostics
    assert steps is not None
    ids = MODEL.tokenizer.encode(prompt)
    chosen = [step.token_id for step in steps]
    ended = chosen[-1] in VOCABULARY.eos_ids
    assert tuple(chosen[: len(chosen) - ended]) == result.token_ids
    state = 0 if guide is None else guide.start
    for number, step in enumerate(steps):
        left = max_tokens - number
        if guide is None:
            allowed = list(range(len(TOKENS)))
        else:
            allowed = tokens_of(guide.mask(state))
            fitting = tokens_of(mask_within(guide, state, left))
            allowed = fitting if len(fitting) == step.allowed else allowed
            assert step.state == state
            assert set(fitting) <= set(allowed)
            state = guide.advance(state, step.token_id)
        assert (step.position, step.left) == (number, left)
        found = {name: getattr(step, name) for name in reference(ids, step, chosen[:number], allowed)}
        assert found == pytest.approx(reference(ids, step, chosen[:number], allowed), rel=1e-5)
        assert 0 <= step.feasible_mass <= 1


@pytest.mark.parametrize("search", [None, Sample(n=3), Sample(temperature=0.5, top_k=3, n=2), Beam(3, n=3)], ids=repr)
@pytest.mark.parametrize("pattern", [*PATTERNS, None], ids=str)
def test_every_number_is_that_of_the_reference(pattern: str | None, search: Any) -> None:
    guide = None if pattern is None else RegexGuide(pattern, VOCABULARY)
    options: dict[str, Any] = {} if search is None else {"search": search}
    found: Any = Generator(MODEL, guide).run(["ab", "1"], max_tokens=9, seed=3, diagnostics=True, **options)
    for prompt, results in zip(["ab", "1"], found, strict=True):
        for result in results if search else [results]:
            check(prompt, result, guide, 9)


def test_rows_without_a_constraint_have_all_the_mass_beside_rows_with_one() -> None:
    pairs = [(Generator(MODEL, RegexGuide(PATTERNS[0], VOCABULARY)), "a"), (generate.text(MODEL), "a")]
    constrained, free = run_together(pairs, Options(max_tokens=8, diagnostics=True))
    check("a", constrained, pairs[0][0].guide, 8)  # type: ignore[arg-type]
    check("a", free, None, 8)
    assert all(step.feasible_mass == 1 and step.probability == step.raw_probability for step in free.diagnostics)
    assert any(step.feasible_mass < 0.9 for step in constrained.diagnostics)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_probabilities_multiply_to_those_of_the_model(decoder: Callable[..., Any], name: str) -> None:
    model = decoder(name)
    written = generate.regex(model, r"(the|an?|[0-9]+)( (th|on|in)){2,4}\.").run(
        ["one", "the other", "12"],
        search=Sample(n=2),
        max_tokens=24,
        seed=1,
        heal=False,
        diagnostics=True,
        logprobs=True,
    )
    for result in [result for results in written for result in results]:
        summary = result.diagnostics.summary
        assert summary.logprob + summary.log_feasible_mass == pytest.approx(summary.raw_logprob, abs=1e-5)
        assert summary.log_feasible_mass < -1
        assert summary.logprob == pytest.approx(result.score)
        assert [step.logprob for step in result.diagnostics][: len(result.logprobs)] == list(result.logprobs)


def test_the_mass_of_a_single_text_is_the_models_probability_of_it() -> None:
    """Nothing is left out of the importance weight: neither forced tokens nor the end."""
    ends = sum(math.exp(_logprob([0, 1, end], 2)) for end in VOCABULARY.eos_ids)
    free = ends * math.exp(_logprob([0, 1], 0) + _logprob([0, 1], 1))
    vocabulary = Vocabulary([*TOKENS[:2], *[None] * 10], eos_ids=[10, 11])
    model = models.from_function(logits, vocabulary)
    result = generate.regex(model, "ab").run("b", diagnostics=True)
    assert math.exp(result.diagnostics.summary.log_feasible_mass) == pytest.approx(free, rel=1e-5)
    assert [step.forced for step in result.diagnostics] == [True, True, False]
    assert result.diagnostics.summary.forced == 2


def _logprob(ids: list[int], at: int) -> float:
    values = logits([1, *ids[:at]]).astype(np.float64)
    return float(values[ids[at]] - values.max() - np.log(np.exp(values - values.max()).sum()))


@pytest.mark.parametrize("search", [None, Sample(n=3), Beam(4, n=2)], ids=repr)
def test_the_output_is_the_same_with_and_without(search: Any) -> None:
    options: dict[str, Any] = {"max_tokens": 12, "seed": 5} | ({} if search is None else {"search": search})
    for pattern in PATTERNS:
        generator = Generator(MODEL, RegexGuide(pattern, VOCABULARY))
        plain, traced = (generator.run("a", **options, diagnostics=on) for on in (False, True))
        plain, traced = (found if isinstance(found, list) else [found] for found in (plain, traced))
        assert [found.token_ids for found in plain] == [found.token_ids for found in traced]
        assert [found.finish_reason for found in plain] == [found.finish_reason for found in traced]
        assert all(found.diagnostics is None for found in plain)


def test_the_model_is_asked_once_for_each_token() -> None:
    calls: list[int] = []
    model = models.from_function(lambda ids: calls.append(len(ids)) or logits(ids), VOCABULARY)
    result = generate.regex(model, "(ab){3}[0-9]+").run("b", max_tokens=6, diagnostics=True)
    assert calls == [1 + number for number in range(len(result.diagnostics))]


def test_stop_strings_and_ids_are_recorded_too() -> None:
    free = generate.text(models.from_function(lambda ids: [3.0, 2.0, *[0.0] * 10], VOCABULARY))
    text = free.run("b", stop=["aa"], diagnostics=True)
    assert (text.text, [step.token for step in text.diagnostics]) == ("", ["a", "a"])
    stopped = free.run("b", stop_ids=[0], diagnostics=True)
    assert (stopped.token_ids, [step.token for step in stopped.diagnostics]) == ((), ["a"])


def test_a_model_without_a_distribution_is_an_error() -> None:
    model = models.from_function(lambda ids: [0.0, math.nan, *[1.0] * 10], VOCABULARY)
    assert generate.regex(model, "a").run("a").text == "a"
    with pytest.raises(ModelError, match="diagnostics need a distribution"):
        generate.regex(model, "a").run("a", diagnostics=True)


@pytest.fixture(scope="module")
def found() -> Diagnostics:
    return Generator(MODEL, RegexGuide("(é|ab) [0-9]{2}", VOCABULARY)).run("b", diagnostics=True).diagnostics


def test_it_is_a_sequence_of_steps(found: Diagnostics) -> None:
    assert len(found) == len(found.steps) == len(list(found))
    assert found[-1].ends
    assert found[-1].token is None
    assert found[:2] == found.steps[:2]
    assert found[0].expected == '"a" or "é"'
    assert found[-1].expected == "a digit 0-9" or found[-1].expected == "the end of the text"


def test_dicts_are_json_and_frames_have_the_same_columns(found: Diagnostics) -> None:
    dicts = json.loads(json.dumps(found.to_dicts(), allow_nan=False))
    assert [one["token_id"] for one in dicts] == [step.token_id for step in found]
    pandas = pytest.importorskip("pandas")
    frame = found.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == list(dicts[0])
    assert frame["feasible_mass"].tolist() == [step.feasible_mass for step in found]


def test_without_pandas_the_error_says_what_to_do(found: Diagnostics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(OptionError, match="pip install pandas"):
        found.to_pandas()


def test_tables_are_aligned_and_have_the_columns_asked_for(found: Diagnostics) -> None:
    lines = found.table("token", "token_id", "raw_probability").splitlines()
    assert lines[0].split() == ["token", "token_id", "raw_probability"]
    assert len(lines) == 1 + len(found)
    assert len({len(line) for line in lines}) == 1
    assert str(found).startswith(found.table())
    assert "log feasible mass" in str(found).splitlines()[len(lines)]
    with pytest.raises(OptionError, match="'score' is not a column; the columns are position, token"):
        found.table("score")


def test_on_a_terminal_rich_shows_the_same_cells(found: Diagnostics, capsys: pytest.CaptureFixture[str]) -> None:
    found.show()
    assert capsys.readouterr().out == f"{found}\n"
    console = pytest.importorskip("rich.console").Console(width=200, record=True, file=__import__("io").StringIO())
    console.print(found)
    shown = console.export_text()
    for line in found.table().splitlines()[1:]:
        assert all(part in shown for part in line.split())


def test_a_pickled_result_keeps_its_words(found: Diagnostics) -> None:
    copy = pickle.loads(pickle.dumps(found))
    assert copy == found
    assert str(copy) == str(found)
    assert copy.to_html() == found.to_html()


def test_where_streams_and_calls_are_concerned_there_is_no_such_option() -> None:
    with pytest.raises(OptionError, match=r"diagnostics=True: .*generator\.run\(prompts, diagnostics=True\)"):
        generate.text(MODEL)("a", diagnostics=True)  # type: ignore[call-arg]
