"""Exact draws: every text as likely as the model says, given the constraint; others must not pass for that."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from trellm import Exact, Generator, OptionError, Sample, SamplingError, Vocabulary, generate, models
from trellm.engine.exact_sampling import path
from trellm.engine.models.generation_config import SuppressedTokens
from trellm.guides import SubstringGuide

from ...thresholds import thresholds
from ...watching import watched
from .cars import Cars, Rejection
from .toys import VOCABULARY, chances_of, conditional, is_fair, texts_of, toy_model

MODEL = toy_model()
NESTED = 'start: "a" | "[" start? "]" | start "," start'
LISTS = {"[]", "[1]", "[1,1]", "[11]", "1", "11", "111"}
SCHEMA = {"anyOf": [{"type": "array", "items": {"enum": [1, 11]}, "maxItems": 2}, {"enum": [1, 11, 111]}]}
DRAWS = 500


def matches(pattern: str) -> Callable[[str], Any]:
    return re.compile(pattern, re.DOTALL).fullmatch


def nested(text: str) -> bool:
    while (shorter := re.sub(r"\[a?\]|a(,a)+", "a", text)) != text:
        text = shorter
    return text == "a"


def quoted(text: str) -> bool:
    return text != "" and text in "abcab"


def draw(generator: Generator[Any], prompt: Any = (0,), count: int = DRAWS, **options: Any) -> Counter[str]:
    """Texts of `count` draws; `search` and `seed` as they are given."""
    options = {"search": Exact(count), "seed": 5, **options}
    given = list(prompt) if isinstance(prompt, tuple) else prompt
    return Counter(result.text for result in generator.run(given, **options))


@pytest.mark.parametrize(
    ("generator", "accepts"),
    [
        (generate.regex(MODEL, "a?(b|c)*1?"), matches("a?(b|c)*1?")),
        (generate.choice(MODEL, ["ab", "abc", "c", "1,1"]), {"ab", "abc", "c", "1,1"}.__contains__),
        (generate.cfg(MODEL, NESTED), nested),
        (generate.json(MODEL, SCHEMA), LISTS.__contains__),
        (Generator(MODEL, SubstringGuide("abcab", VOCABULARY, boundary="character")), quoted),
    ],
    ids=["regex", "choice", "grammar", "json", "quotation"],
)
def test_each_kind_of_guide(generator: Generator[Any], accepts: Callable[[str], Any]) -> None:
    expected = conditional(texts_of(accepts, 4, Exact()))
    assert len(expected) > 3
    assert is_fair(draw(generator, max_tokens=4), expected)


PATTERN = "(a|b)*(c|1)(a|b|,)*"


@pytest.mark.parametrize(
    "filters",
    [{"temperature": 0.6}, {"temperature": 1.8}, {"top_k": 4}, {"top_p": 0.7}, {"min_p": 0.12},
     {"temperature": 1.4, "top_k": 6, "top_p": 0.9, "min_p": 0.05}],
    ids=str,
)  # fmt: skip
def test_filters_are_the_models_and_not_the_masks(filters: dict[str, Any]) -> None:
    """They apply to all tokens, before any is refused; applied to the allowed ones they would leave other texts."""
    search = Exact(DRAWS, **filters)
    expected = conditional(texts_of(matches(PATTERN), 3, search))
    assert is_fair(draw(generate.regex(MODEL, PATTERN), search=search, max_tokens=3), expected)


def test_a_budget_that_cuts_the_language() -> None:
    generator = generate.regex(MODEL, "(ab)*1")
    found = [conditional(texts_of(matches("(ab)*1"), budget, Exact())) for budget in (1, 2, 5)]
    assert [len(expected) for expected in found] == [1, 2, 5]
    for budget, expected in zip((1, 2, 5), found, strict=True):
        assert is_fair(draw(generator, max_tokens=budget), expected)


@pytest.mark.parametrize("include", ["c", "1,"])
def test_goals(include: str) -> None:
    def said(text: str) -> bool:
        return include in text

    free = conditional(texts_of(said, 3, Exact(), is_cut=True))
    assert is_fair(draw(generate.text(MODEL), include=include, max_tokens=3), free)
    within = conditional(texts_of(lambda text: said(text) and matches("[abc1,]*")(text), 3, Exact()))
    assert is_fair(draw(generate.regex(MODEL, "[abc1,]*"), include=include, max_tokens=3), within)


def test_free_text_is_as_the_model_says() -> None:
    expected = conditional(texts_of(bool, 2, Exact(), is_cut=True) | texts_of(lambda text: not text, 2, Exact()))
    assert is_fair(draw(generate.text(MODEL), max_tokens=2), expected)


def test_a_healed_prompt() -> None:
    """The output's first token may begin in the prompt: "ab" is one token, or two."""
    generator = generate.regex(MODEL, "b?(c|1)*")
    expected = conditional(texts_of(matches("b?(c|1)*"), 3, Exact(), (1,), tail="a"))
    assert is_fair(draw(generator, "ba", max_tokens=3), expected)


def test_a_penalty_is_the_models() -> None:
    expected = conditional(texts_of(matches(PATTERN), 3, Exact(), penalty=1.7))
    found = draw(generate.regex(MODEL, PATTERN), max_tokens=3, repetition_penalty=1.7)
    assert is_fair(found, expected)


def test_what_the_models_own_settings_leave_out_is_never_said() -> None:
    """As banned tokens are, and not as under a mask, where the rest of a text would be as likely as before."""
    model: Any = toy_model()
    model.suppressed = SuppressedTokens(frozenset({3}))
    banned = draw(generate.regex(MODEL, PATTERN), max_tokens=3, logit_bias={3: -math.inf})
    assert draw(generate.regex(model, PATTERN), max_tokens=3) == banned
    assert draw(generate.regex(MODEL, PATTERN), max_tokens=3) != banned


def test_a_guide_over_tokens_and_several_ends(table_guide: Any) -> None:
    """A machine in which equal texts have several tokenisations, and a vocabulary with two EOS."""
    vocabulary = Vocabulary([b"a", b"b", b"ab", None, None], eos_ids=(3, 4))
    table = np.random.default_rng(3).normal(size=(5, 5))
    model = models.from_function(lambda ids: table[ids[-1]], vocabulary)
    guide = table_guide(vocabulary, [{0: 1, 2: 2}, {1: 2}, {0: 0}], {2})
    shares = np.exp(table) / np.exp(table).sum(1, keepdims=True)
    ends = shares[:, 3:].sum(1)
    expected = {"ab": shares[0, 0] * shares[0, 1] * ends[1] + shares[0, 2] * ends[2]}
    expected["abaab"] = sum(
        first * again
        for first in (shares[0, 0] * shares[0, 1] * shares[1, 0], shares[0, 2] * shares[2, 0])
        for again in (shares[0, 0] * shares[0, 1] * ends[1], shares[0, 2] * ends[2])
    )
    assert is_fair(draw(Generator(model, guide), max_tokens=5), conditional(expected))


# A language of long likely texts and short ones, half of which the model leaves at its end.
ENDS = Vocabulary([b"a", b"b", b"x", None], eos_ids=(3,))
LATE = "b|aaaa|aaab"


def late_logits(ids: Sequence[int]) -> list[float]:
    return [math.log(chance) for chance in ((0.55, 0.2, 0.2, 0.05), (0.1, 0.1, 0.4, 0.4))[ids[-1] == 1]]


def late_texts() -> dict[str, float]:
    return conditional({"b": 0.2 * 0.4, "aaaa": 0.55**4 * 0.05, "aaab": 0.55**3 * 0.2 * 0.4})


def first_draws(count: int = 800) -> Counter[str]:
    """The first text of each of many calls, each of which begins with an empty trie."""
    generator = generate.regex(models.from_function(late_logits, ENDS), LATE)
    search = Exact(1, parallel=6)
    results: Any = generator.run([[0]] * count, search=search, seed=list(range(count)), batch_size=512)
    return Counter(result.text for result in results)


def test_the_first_draws_of_many_calls() -> None:
    assert is_fair(first_draws(), late_texts())


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[path.PathTrie]:
    """The tries that are made."""
    return watched(monkeypatch, path.PathTrie, "__init__", lambda self, _: self)


def test_masked_sampling_is_told_from_exact_draws() -> None:
    """Its texts are as likely as the masks leave them, and short ones come too often."""
    expected = conditional(texts_of(matches(PATTERN), 3, Exact()))
    assert not is_fair(draw(generate.regex(MODEL, PATTERN), search=Sample(n=DRAWS), max_tokens=3), expected)
    generator = generate.regex(models.from_function(late_logits, ENDS), LATE)
    results: Any = generator.run([[0]] * 800, search=Sample(), seed=list(range(800)), batch_size=512)
    assert not is_fair(Counter(result.text for result in results), late_texts())


def test_a_seed_repeats_and_what_is_learnt_is_kept_without_one() -> None:
    generator = generate.regex(MODEL, PATTERN)
    first: Any = generator.run([0], search=Exact(20), seed=8, max_tokens=4)
    generator.run([0], search=Exact(200), max_tokens=4)
    assert generator.run([0], search=Exact(20), seed=8, max_tokens=4) == first
    together: Any = generator.run([[0], [1]], search=Exact(20), seed=8, max_tokens=4)
    assert together[0] == first, "whatever else is in the batch"
    later: Any = generator.run([0], search=Exact(400), max_tokens=4)
    assert later[0].acceptance > first[0].acceptance
    assert later[0].tokens_read < first[0].tokens_read / 2


def test_bounds_only_fall_and_never_below_what_is_there(made: list[path.PathTrie]) -> None:
    mass = sum(texts_of(matches(PATTERN), 3, Exact()).values())
    generator = generate.regex(MODEL, PATTERN)
    bounds = [1.0]
    for seed in range(30):
        generator.run([0], search=Exact(3), max_tokens=3, seed=None if seed else 1)
        bounds.append(made[-1].root.bound)
    assert len(made) == 2, "the one with a seed, and the one that is kept"
    assert bounds[2:] == sorted(bounds[2:], reverse=True)
    assert mass * (1 - 1e-6) <= bounds[-1] < bounds[2]


def test_what_does_not_fit_into_the_trie_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for next to nothing draws are as right, and take more tokens."""
    thresholds(monkeypatch, weights_of_paths=250)
    expected = conditional(texts_of(matches(PATTERN), 3, Exact()))
    generator = generate.regex(MODEL, PATTERN)
    results: Any = generator.run([0], search=Exact(DRAWS), seed=5, max_tokens=3)
    assert is_fair(Counter(result.text for result in results), expected)
    monkeypatch.undo()
    assert generator.run([0], search=Exact(DRAWS), seed=5, max_tokens=3)[0].tokens_read < results[0].tokens_read / 3


def test_what_results_say() -> None:
    generator = generate.regex(MODEL, PATTERN)
    mass = sum(texts_of(matches(PATTERN), 3, Exact()).values())
    results: Any = generator.run([0], search=Exact(2000), seed=3, max_tokens=3)
    one = results[0]
    assert (one.log_weight, one.ess) == (0.0, 2000.0)
    assert math.exp(one.log_z) == pytest.approx(mass, rel=0.05)
    assert 0 < one.acceptance <= 1 and one.tokens_read > 0
    assert all(result.finish_reason == "complete" for result in results)
    assert generator([0], search=Exact(), max_tokens=3, seed=1) in texts_of(matches(PATTERN), 3, Exact())
    assert len(generator([0], search=Exact(5), max_tokens=3)) == 5


def wide_logits(ids: Sequence[int]) -> list[float]:
    return [0.0, 0.0, math.log(2.0), -0.5]


def test_a_mass_that_is_too_small_ends_with_its_estimate() -> None:
    """Of all that may follow, half is refused a hundred times: attempts cannot come to the end, particles can."""
    generator = generate.regex(models.from_function(wide_logits, ENDS), "(a|b){100}")
    with pytest.raises(SamplingError, match=r"0 of 1 texts after 300 attempts.*search=SMC") as caught:
        generator([0], search=Exact(attempts=300), max_tokens=100, seed=1)
    total = 4 + math.exp(-0.5)
    exact = 100 * math.log(2 / total) + math.log(math.exp(-0.5) / total)
    assert -75 > exact > -99 and caught.value.log_z == pytest.approx(exact, abs=1e-3)
    follow = generate.regex(models.from_function(wide_logits, ENDS), "a{40}")
    assert follow([0], search=Exact(attempts=300), max_tokens=40, seed=1) == "a" * 40, "1e-27, by one way only"


def test_what_the_model_never_says() -> None:
    model = models.from_function(lambda ids: [0.0, -math.inf, 0.0, 0.0], ENDS)
    with pytest.raises(SamplingError, match="is 0, or too small"):
        generate.regex(model, "a?b")([0], search=Exact(), max_tokens=4)


def test_unusable_logits_are_an_error_of_their_prompt() -> None:
    model = models.from_function(lambda ids: [math.nan if len(ids) > 2 else 0.0] * 4, ENDS)
    with pytest.raises(Exception, match="step 2 of prompt 0 are NaN"):
        generate.regex(model, "[ab]{9}")([0], search=Exact(), max_tokens=9)


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_a_model_with_blocks(name: str, decoder: Callable[..., Any], hugging_face: Callable[[str], Any]) -> None:
    """Attempts go on from what others have read, in part or, behind a window, in whole: texts are the model's own."""
    model = decoder(name)
    options: dict[str, Any] = {"search": Exact(3, parallel=4, temperature=2.0), "seed": 4, "max_tokens": 12}
    results: Any = generate.regex(model, SPELT).run("an inning on the 12th", **options)
    assert len(results) == 3 and all(re.fullmatch(SPELT, result.text) for result in results)
    assert results[0].acceptance < 1
    slow = generate.regex(without_memory(model, hugging_face(name)), SPELT)
    assert [one.text for one in slow.run("an inning on the 12th", **options)] == [one.text for one in results]


SPELT = "[^0-9]{1,4}"


def without_memory(model: Any, network: Any) -> Any:
    """The same model, which reads every text from its beginning, each time."""

    def logits(ids: Sequence[int]) -> Any:
        with torch.no_grad():
            return network(torch.tensor([list(ids)])).logits[0, -1]

    return models.from_function(logits, model.vocabulary, model.tokenizer)


@pytest.mark.parametrize(
    "options",
    [{"n": 0}, {"parallel": 0}, {"attempts": 0}, {"temperature": 0.0}, {"top_p": 0.0}, {"top_k": 0}, {"min_p": 2.0}],
)
def test_impossible_parameters_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=next(iter(options))):
        Exact(**options)


@pytest.mark.parametrize(
    "options",
    [{"logprobs": True}, {"diagnostics": True}, {"retries": 2}, {"min_tokens": 3}, {"no_repeat_ngram_size": 2}],
)
def test_options_without_meaning_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=next(iter(options))):
        generate.regex(MODEL, "a").run([0], search=Exact(), **options)


@pytest.mark.parametrize("reference", [Cars, Rejection])
def test_references_are_right_and_take_more_passes(reference: type[Cars | Rejection]) -> None:
    generator = generate.regex(MODEL, PATTERN)
    expected = conditional(texts_of(matches(PATTERN), 3, Exact()))
    chances = cache(lambda tokens: chances_of([0, *tokens], Exact()))
    slow = reference(chances, generator.guide, 3, seed=1)
    count = 60
    assert is_fair(Counter(VOCABULARY.decode(slow.draw() or ()).decode() for _ in range(count)), expected)
    ours: Any = generator.run([0], search=Exact(count, parallel=1), seed=1, max_tokens=3)
    assert ours[0].tokens_read * count < slow.passes / 2


def test_nodes_count_and_not_only_their_probabilities(
    made: list[path.PathTrie], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trie of many narrow nodes stays as small as one of few wide ones."""

    def nodes(node: path.PathNode) -> int:
        return 1 + sum(map(nodes, node.children.values()))

    thresholds(monkeypatch, weights_of_paths=1000)
    generator = generate.regex(MODEL, "[abc]{1,8}1")
    generator([0], search=Exact(20), max_tokens=9, seed=1)
    assert 3 < nodes(made[0].root) <= 1000 / path.A_NODE + 1


def test_an_estimate_that_no_float_holds() -> None:
    generator = generate.regex(models.from_function(wide_logits, ENDS), "(a|b){900}")
    with pytest.raises(SamplingError, match=r"is about \d(\.\d)?e-3\d\d \(log_z=-7\d\d") as caught:
        generator([0], search=Exact(attempts=8), max_tokens=900, seed=1)
    assert caught.value.log_z < -745
