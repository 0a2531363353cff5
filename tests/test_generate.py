"""The public face, from prompt to value, with real guides over small models."""

from __future__ import annotations

import datetime
import re
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from itertools import chain
from typing import Any, Literal

import interegular
import pytest
import trellm
from trellm import BudgetError, Generation, LanguageError, PatternError, Sample, generate, models

TEXT = (
    "The moon landing was on 1969-07-20, a Sunday. The crew spent 21 hours there and came home on 1969-07-24. "
    "The weather was fine and the reviews were positive. Nobody was sad."
)


@pytest.fixture(scope="module")
def model() -> Any:
    return models.ziplm(TEXT)


def test_ziplm_copies_what_it_has_read(model: Any) -> None:
    assert generate.regex(model, r"[0-9]{4}-[0-9]{2}-[0-9]{2}")("The moon landing was on ") == "1969-07-20"
    assert generate.choice(model, ["terrible", "positive"])("and the reviews were ") == "positive"
    assert len(generate.text(model)("The moon landing", max_tokens=7)) == 7


@pytest.mark.parametrize(
    "pattern",
    [r"[a-z]{3,8} [A-Z]\w+", r"([0-9]+)?\.[0-9]+", r"(ab|a)(c|bcd)(d*)", r"\d{4}-\d\d", r".{1,9}", r"(x|yy)*"],
)
def test_whatever_comes_out_matches(model: Any, pattern: str) -> None:
    generator = generate.regex(model, pattern)
    shortest = generator.guide.distance(generator.guide.start)
    for budget in (shortest, shortest + 1, shortest + 7):
        if budget > 0:
            texts = generator(["The ", "12"], max_tokens=budget, search=Sample(temperature=9.0, n=4), seed=budget)
            for text in chain(*texts):
                assert re.fullmatch(pattern, text, re.ASCII) or re.fullmatch(pattern, text)
                assert len(text) <= budget
    if shortest > 1:
        with pytest.raises(BudgetError) as caught:
            generator("The ", max_tokens=shortest - 1)
        assert caught.value.needed == shortest


class Mood(Enum):
    HAPPY = "happy"
    SAD = "sad"


@pytest.mark.parametrize(
    ("kind", "types"),
    [(int, int), (float, float), (bool, bool), (datetime.datetime, datetime.datetime), (Mood, Mood),
     (Literal["a", 7], (str, int))],
)  # fmt: skip
def test_values_have_their_type(model: Any, kind: Any, types: Any) -> None:
    generator = generate.format(model, kind)
    assert isinstance(generator("Nobody was ", max_tokens=40), types)
    results = generator.run(["On ", "In "], max_tokens=40, search=Sample(n=2), seed=1)
    assert [len(result) for result in results] == [2, 2]
    for result in chain(*results):
        assert isinstance(result, Generation) and isinstance(result.value, types)
        assert result.finish_reason == "complete" and str(result.text)


def test_flags_dialects_and_machines(model: Any) -> None:
    assert generate.regex(model, "SUNDAY", re.IGNORECASE)("a ").lower() == "sunday"
    assert generate.regex(model, r"\u{53}unday", dialect="ecma")("a ") == "Sunday"
    machine = interegular.parse_pattern("Sun(day|set)").to_fsm()
    assert generate.fsm(model, machine)("a ") == "Sunday"


def test_streams_join_to_the_text(model: Any) -> None:
    generator = generate.regex(model, r"[0-9]{4}-[0-9]{2}-[0-9]{2}|é+")
    pieces = list(generator.stream("The moon landing was on "))
    assert "".join(pieces) == "1969-07-20" and len(pieces) > 1


def test_batches_of_different_generators(model: Any) -> None:
    pairs = [
        (generate.format(model, int), "spent "),
        (generate.choice(model, ["good", "fine"]), "weather was "),
        (generate.text(model), "The crew "),
    ]
    assert generate.batch(pairs, max_tokens=5) == [generator(prompt, max_tokens=5) for generator, prompt in pairs]
    with pytest.raises(trellm.OptionError, match="pairs"):
        generate.batch([("spent ", generate.text(model))])  # pyright: ignore


def test_threads_share_a_generator(model: Any) -> None:
    generator = generate.regex(model, r"[a-z]{2,6}( [a-z]{1,5})*")
    prompts = ["The ", "moon", "crew spent ", "Nobody", "12", "came "]
    search = Sample(temperature=5.0)
    alone = [
        generate.regex(model, r"[a-z]{2,6}( [a-z]{1,5})*")(p, max_tokens=9, search=search, seed=2) for p in prompts
    ]
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(lambda p: generator(p, max_tokens=9, search=search, seed=2), prompts))
    assert together == alone


def test_mistakes_are_found_when_the_generator_is_made(model: Any) -> None:
    with pytest.raises(PatternError, match="offset 1"):
        generate.regex(model, "a(b")
    with pytest.raises(LanguageError):
        generate.choice(model, ["日本"])
    with pytest.raises(trellm.OptionError):
        generate.choice(model, [])


def test_a_progress_bar_on_request(model: Any, capfd: pytest.CaptureFixture[str]) -> None:
    generate.choice(model, ["a", "b"])(["x"] * 3, progress=True)
    assert "3/3" in capfd.readouterr().err
    generate.choice(model, ["a", "b"])(["x"] * 3)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "make",
    [
        lambda model, **limits: generate.regex(model, "[ab]{9}", **limits),
        lambda model, **limits: generate.format(model, int, **limits),
        lambda model, **limits: generate.choice(model, ["a", "b"], **limits),
        lambda model, **limits: generate.format(model, bool, **limits),
        lambda model, **limits: generate.fsm(model, interegular.parse_pattern("[ab]{3}").to_fsm(), **limits),
        lambda model, **limits: generate.cfg(model, 'start: "a"', **limits),
        lambda model, **limits: generate.json(model, True, **limits),
        lambda model, **limits: generate.extract(model, "a b", **limits),
    ],
    ids=["regex", "int", "choice", "bool", "fsm", "cfg", "json", "extract"],
)
def test_limits_are_those_of_the_guide(make: Any, model: Any) -> None:
    """It may take no step of work, where it is made or where its first mask is."""
    limits = trellm.Limits(work=10**7)
    assert make(model, limits=limits).limits == limits
    with pytest.raises(trellm.LimitError, match="more than 1 steps"):
        guide = make(model, limits=trellm.Limits(work=1)).guide
        guide.mask(guide.start)
    with pytest.raises(trellm.OptionError, match="limits must be a Limits"):
        make(model, limits=5)


def test_public_names_are_those_that_are_documented() -> None:
    assert set(trellm.__all__) == {
        "AllOf", "AnyOf", "Gap", "Ordered", "Phrase", "Template", "Span",
        "Beam", "BudgetError", "Cancellation", "Cancelled", "Capture", "ConversionError", "Engine", "Exact",
        "Generation", "Generator", "Audio", "AudioError", "AudioLimits", "Image", "ImageError", "ImageLimits",
        "Importance", "SMC", "SamplingError", "Search",
        "GrammarError", "Greedy", "GuideFileError", "Interrupted", "Limits", "StateError",
        "LanguageError", "LimitError", "MediaError", "ModelError", "OptionError", "PatternError", "Quote", "Sample",
        "SchemaError", "TextSyntaxError", "TokenLogprob", "TrellmError", "Vocabulary", "VocabularyError", "generate",
        "guides", "models", "prompts", "tools",
    }  # fmt: skip
    assert set(generate.__all__) == {
        "Generator", "batch", "cfg", "choice", "embedding", "extract", "format", "fsm", "json", "regex", "text",
    }  # fmt: skip
