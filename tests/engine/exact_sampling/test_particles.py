"""Weighted texts: shares and masses as enumerated, without bias; others must not pass for that; potentials."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from trellm import SMC, Exact, Generator, Importance, OptionError, SamplingError, Vocabulary, generate, models
from trellm.engine import scores
from trellm.engine.exact_sampling import distribution, particles
from trellm.guides import SubstringGuide

from ..support import Target
from .test_exact import LISTS, NESTED, SCHEMA, SPELT, matches, nested, quoted, without_memory
from .toys import VOCABULARY, are_close, conditional, texts_of, total_variation, toy_model

MODEL = toy_model()
PATTERN = "(a|b)*(c|1)(a|b|,)*"
COUNT = 1000


def mass_of(accepts: Callable[[str], Any], budget: int = 3, **options: Any) -> float:
    return sum(texts_of(accepts, budget, Importance(), **options).values())


def check(
    generator: Generator[Any],
    accepts: Callable[[str], Any],
    search: Target,
    budget: int,
    prompt: Any = (0,),
    *,
    is_cut: bool = False,
    tail: str = "",
    **options: Any,
) -> None:
    """Whether shares and mass are those of the enumeration, which has the model's own tokens as prompt."""
    given = list(prompt) if isinstance(prompt, tuple) else prompt
    results: Any = generator.run(given, search=search, max_tokens=budget, seed=2, **options)
    texts = texts_of(accepts, budget, search, (1,) if tail else (0,), is_cut=is_cut, tail=tail)
    assert are_close(results, conditional(texts))
    assert math.exp(results[0].log_z) == pytest.approx(sum(texts.values()), rel=0.1)


SEARCHES = [Importance(COUNT), SMC(COUNT, ess=1.0), SMC(COUNT, ess=1.0, resampling="stratified")]


@pytest.mark.parametrize("search", SEARCHES, ids=["importance", "systematic", "stratified"])
@pytest.mark.parametrize(
    ("generator", "accepts"),
    [
        (generate.regex(MODEL, "a?(b|c)*1?"), matches("a?(b|c)*1?")),
        (generate.cfg(MODEL, NESTED), nested),
        (generate.json(MODEL, SCHEMA), LISTS.__contains__),
        (Generator(MODEL, SubstringGuide("abcab", VOCABULARY, boundary="character")), quoted),
    ],
    ids=["regex", "grammar", "json", "quotation"],
)
def test_each_kind_of_guide(generator: Generator[Any], accepts: Callable[[str], Any], search: Target) -> None:
    check(generator, accepts, search, 4)


@pytest.mark.parametrize("search", SEARCHES[:2], ids=["importance", "smc"])
@pytest.mark.parametrize("filters", [{"temperature": 0.6}, {"top_k": 6, "top_p": 0.9, "min_p": 0.05}], ids=str)
def test_filters_are_the_models(search: Target, filters: dict[str, Any]) -> None:
    check(generate.regex(MODEL, PATTERN), matches(PATTERN), replace(search, **filters), 3)


@pytest.mark.parametrize("search", SEARCHES[:2], ids=["importance", "smc"])
def test_budgets_goals_and_prompts(search: Target) -> None:
    cut = generate.regex(MODEL, "(ab)*1")
    check(cut, matches("(ab)*1"), search, 2)
    check(generate.text(MODEL), lambda text: "c" in text, search, 3, is_cut=True, include="c")
    check(generate.regex(MODEL, "[abc]*"), lambda text: "cb" in text and "1" not in text and matches("[abc]*")(text),
          search, 4, include="cb")  # fmt: skip
    check(generate.regex(MODEL, "b?(c|1)*"), matches("b?(c|1)*"), search, 3, "ba", tail="a")


def test_a_budget_whose_distances_say_too_much() -> None:
    """Tokens after which the rest may not fit, by a distance that is too great, are drawn all the same."""
    generator = generate.regex(MODEL, "(a|b){2,4}")
    guide: Any = generator.guide

    class Doubtful:
        def __getattr__(self, name: str) -> Any:
            return getattr(guide, name)

        def distance(self, state: int) -> int:
            return guide.distance(state) * 2

        def fits(self, state: int, left: int) -> bool:
            return guide.distance(state) * 2 <= left

        def mask_within(self, state: int, left: int) -> Any:
            return guide.mask_within(state, 1 if left == 1 else (left + 2) // 2)

    check(Generator(MODEL, Doubtful()), matches("(a|b){2,4}"), Importance(3000), 4)


RUNS = 2000
SHORT = "ab|c?1"


def estimates(search: Target, runs: int = RUNS) -> list[float]:
    """Of many runs, each the estimate of the mass of `SHORT`; those all of whose particles died say 0."""
    found: list[float] = []
    results: Any = generate.regex(MODEL, SHORT).run(
        [[0]] * runs, search=search, max_tokens=2, seed=list(range(runs)), batch_size=512
    )
    for entry in results:
        found.append(math.exp((entry[0] if isinstance(entry, list) else entry).log_z))
    return found


def is_unbiased(found: Sequence[float], mass: float) -> bool:
    """Whether the mean of estimates is within three standard errors."""
    return abs(float(np.mean(found)) - mass) < 3 * float(np.std(found)) / math.sqrt(len(found))


def test_the_mass_is_unbiased() -> None:
    mass = mass_of(matches(SHORT), 2)
    assert is_unbiased(estimates(SMC(2, ess=1.0)), mass)
    one: Any = generate.regex(MODEL, SHORT).run([0], search=Importance(RUNS), max_tokens=2, seed=1)
    assert is_unbiased([math.exp(result.log_weight) for result in one], mass)


@pytest.mark.parametrize("search", [Importance(COUNT), SMC(COUNT, ess=0.0)], ids=["importance", "not resampled"])
def test_texts_that_are_not_weighed_are_told_from_weighed_ones(search: Target) -> None:
    """Drawn under masks, they have other shares than the model gives them."""
    results: Any = generate.regex(MODEL, PATTERN).run([0], search=search, max_tokens=3, seed=2)
    expected = conditional(texts_of(matches(PATTERN), 3, search))
    assert are_close(results, expected)
    assert not are_close([replace(result, log_weight=0.0) for result in results], expected)


def test_a_mass_of_the_likeliest_is_told_from_an_unbiased_one() -> None:
    """Particles that count as the likeliest does, and not as all do on average."""
    results: Any = generate.regex(MODEL, SHORT).run(
        [[0]] * RUNS, search=Importance(2), max_tokens=2, seed=list(range(RUNS)), batch_size=512
    )
    found = [max(math.exp(result.log_weight) for result in entry) for entry in results]
    assert not is_unbiased(found, mass_of(matches(SHORT), 2))


def no_ca(text: str, complete: bool) -> bool:
    """Neither "ca" nor "a1" is in it; and in the end no comma."""
    return "ca" not in text and "a1" not in text and not (complete and "," in text)


def likes_b(text: str, complete: bool) -> float:
    """Prefers "b"; only what complete texts weigh is in the target."""
    return 1.5 * text.count("b") + (0.0 if complete else 0.3 * len(text))


def test_a_function_that_refuses_texts() -> None:
    def both(text: str) -> bool:
        return bool(matches(PATTERN)(text)) and no_ca(text, True)

    generator = generate.regex(MODEL, PATTERN)
    for given in ({"potential": no_ca}, {"accepts": no_ca}, {"accepts": no_ca, "potential": no_ca}):
        check(generator, both, SMC(2 * COUNT, **given), 3)
    check(generate.text(MODEL), lambda text: no_ca(text, True), SMC(COUNT, accepts=no_ca), 2, is_cut=True)


def test_a_function_that_weighs_texts() -> None:
    texts = texts_of(matches(PATTERN), 3, Importance())
    tilted = {text: chance * math.exp(1.5 * text.count("b")) for text, chance in texts.items()}
    generator = generate.regex(MODEL, PATTERN)
    results: Any = generator.run([0], search=SMC(COUNT, potential=likes_b), max_tokens=3, seed=3)
    assert are_close(results, conditional(tilted))
    assert math.exp(results[0].log_z) == pytest.approx(sum(tilted.values()), rel=0.1)
    few: Any = generator.run([0], search=SMC(2 * COUNT, n=COUNT, potential=likes_b), max_tokens=3, seed=3)
    assert len(few) == COUNT and are_close(few, conditional(tilted))
    assert {result.log_weight for result in few} == {0.0}


@pytest.mark.parametrize("accepted", [{0, 2, 5}, {3}, set[int]()], ids=str)
def test_the_accepted_share_is_unbiased_and_apart_from_the_draw(accepted: set[int]) -> None:
    chances = np.array([0.1, 0.3, 0.05, 0.02, 0.4, 0.13])
    asked: Counter[int] = Counter()

    def accepts(place: int) -> bool:
        asked[place] += 1
        return place in accepted

    random = np.random.default_rng(4)
    runs = 4000
    found = [distribution.first_accepted(chances * 7, accepts, iter(random.random, None)) for _ in range(runs)]
    assert max(asked.values()) <= runs, "each place once in a run"
    for place in range(6):
        weights = [share if one == place else 0.0 for one, share in found]
        mean, error = np.mean(weights), np.std(weights) / math.sqrt(runs)
        assert abs(mean - (chances[place] if place in accepted else 0.0)) <= 4 * error
    assert not accepted or min(share for _, share in found) > 0


@pytest.mark.parametrize("comb", [scores.systematic, particles.stratified])
def test_resampling_is_unbiased(comb: Callable[..., list[int]]) -> None:
    shares = np.array([0.5, 0.0, 0.07, 0.33, 0.1])
    random = np.random.default_rng(6)
    counts = [np.bincount(comb(shares, 7, random.random(7)), minlength=5) for _ in range(4000)]
    assert np.allclose(np.mean(counts, 0), 7 * shares, atol=0.04)
    assert all(abs(count - 7 * shares).max() < 2 for count in counts)
    assert comb(np.array([0.0, 1.0, 0.0]), 3, [0.0, 1 - 1e-16, 0.5]) == [1, 1, 1]


def test_a_dead_potential_names_its_step() -> None:
    generator = generate.regex(MODEL, "[abc]{5}")
    with pytest.raises(SamplingError, match=r"at step 2 of prompt 0 all particles have weight 0, because of the poten"):
        generator([0], search=SMC(8, potential=lambda text, complete: len(text) < 3), max_tokens=5, seed=1)
    with pytest.raises(SamplingError, match=r"step 0 of prompt 0 .*because of accepts, which refuses all"):
        generator([0], search=SMC(8, accepts=lambda text, complete: False), max_tokens=5, seed=1)
    rarely = models.from_function(lambda ids: [0.0, -math.inf, 0.0, 0.0], Vocabulary([b"a", b"b", b"c", None], [3]))
    with pytest.raises(SamplingError, match=r"step 1 of prompt 0 .*the model, which gives all"):
        generate.regex(rarely, "ab")([0], search=Importance(4), seed=1)


@pytest.mark.parametrize("name", ["potential", "accepts"])
@pytest.mark.parametrize("value", [None, "yes", math.nan, math.inf, 10**400, 1j])
def test_what_functions_must_return(name: str, value: Any) -> None:
    search = SMC(2, **{name: lambda text, complete: value})
    with pytest.raises(OptionError, match=name):
        generate.regex(MODEL, "a{3}")([0], search=search, max_tokens=3)


def test_numpys_booleans_are_some() -> None:
    generator = generate.regex(MODEL, "[abc]{3}")
    for name in ("potential", "accepts"):
        search = SMC(8, **{name: lambda text, complete: np.bool_("c" not in text)})
        assert "c" not in "".join(generator([0], search=search, max_tokens=3, seed=1))


def test_functions_see_whole_characters() -> None:
    vocabulary = Vocabulary([bytes([byte]) for byte in "é€".encode()] + [None], eos_ids=(5,))
    model = models.from_function(lambda ids: [0.0] * 6, vocabulary)
    seen: set[str] = set()

    def potential(text: str, complete: bool) -> bool:
        seen.add(text)
        return True

    generate.choice(model, ["é€", "€é"])([0], search=SMC(8, potential=potential), seed=1)
    assert seen == {"", "é", "€", "é€", "€é"}


def test_the_distance_of_masked_sampling() -> None:
    """Against the enumeration of what masked sampling draws."""
    generator = generate.regex(MODEL, PATTERN)
    results: Any = generator.run([0], search=Importance(4000), max_tokens=3, seed=1)
    masked = Counter(result.text for result in results)
    right = conditional(texts_of(matches(PATTERN), 3, Importance()))
    exact = total_variation({text: count / 4000 for text, count in masked.items()}, right)
    assert results[0].distance == pytest.approx(exact, abs=0.03) and exact > 0.1
    assert 1 <= results[0].ess <= 4000
    easy: Any = generate.text(MODEL).run([0], search=Importance(50), max_tokens=3, seed=1)
    assert easy[0].distance == pytest.approx(0, abs=1e-9) and easy[0].ess == pytest.approx(50)


def test_seeds_repeat_and_particles_share_what_they_read(decoder: Callable[..., Any], hugging_face: Any) -> None:
    model = decoder("llama")
    options: dict[str, Any] = {"search": SMC(6, ess=1.0), "seed": 4, "max_tokens": 12}
    prompts = ["an inning on the 12th", "a the in on 123 abc abc abc"]
    generator = generate.regex(model, SPELT)
    results: Any = generator.run(prompts, **options)
    alone: Any = generator.run(prompts[0], **options)
    assert [one.text for one in alone] == [one.text for one in results[0]]
    assert [one.log_weight for one in alone] == pytest.approx([one.log_weight for one in results[0]], rel=1e-5)
    assert all(re.fullmatch(SPELT, result.text) for entry in results for result in entry)
    slow = generate.regex(without_memory(model, hugging_face("llama")), SPELT)
    assert [one.text for one in slow.run(prompts[0], **options)] == [one.text for one in results[0]]
    assert results[0][0].tokens_read * 6 <= sum(len(one.token_ids) for one in results[0])


@pytest.mark.parametrize(
    ("kind", "options"),
    [(Importance, {"n": 0}), (SMC, {"particles": 0}), (SMC, {"n": 17}), (SMC, {"ess": 1.5}), (SMC, {"potential": 3}),
     (SMC, {"accepts": "x"}), (SMC, {"resampling": "multinomial"}), (SMC, {"temperature": -1.0})],
)  # fmt: skip
def test_impossible_parameters_are_refused(kind: type[Target], options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=next(iter(options))):
        kind(**options)


@pytest.mark.parametrize("gap", [700.0, 712.0, 740.0, 760.0, 1e4, 1e30])
@pytest.mark.parametrize("tokens", [2, 5])
def test_what_is_allowed_may_be_too_unlikely_for_a_float(gap: float, tokens: int) -> None:
    vocabulary = Vocabulary([b"a", b"b", b"c", None], eos_ids=[3])
    model = models.from_function(lambda ids: [-gap, 0, 0, 0] if len(ids) < 2 else [0.0] * 4, vocabulary)
    generator = generate.regex(model, "a[bc]?")
    given = {"max_tokens": tokens, "seed": 1}
    known = -gap - math.log(3) + math.log(0.25 + 0.5 * 0.25)
    searches = [SMC(64), Importance(64), SMC(64, potential=lambda text, ends: 0.0)]
    for search in [*searches, SMC(64, accepts=lambda text, ends: True)]:
        found: Any = generator.run([1], search=search, **given)
        assert {each.text for each in found} <= {"a", "ab", "ac"}
        assert found[0].log_z == pytest.approx(known, abs=0.3, rel=1e-6)
    if gap < 760:
        found = generator.run([1], search=Exact(3), **given)
        assert found[0].log_z == pytest.approx(known, abs=2)
    else:
        with pytest.raises(SamplingError):
            generator.run([1], search=Exact(3), **given)


@pytest.mark.parametrize("log_share", [-5.0, -36.0, -60.0, -600.0])
def test_shares_that_are_small_are_estimated_without_bias(log_share: float) -> None:
    """The number of draws before the second hit has no upper bound: its reciprocal is right on average."""
    chances = np.array([1.0, math.exp(log_share) / 2, math.exp(log_share) / 2])
    random = np.random.default_rng(1)
    found = [distribution.first_accepted(chances, bool, iter(random.random, None))[1] for _ in range(4000)]
    assert np.mean(found) / math.exp(log_share) == pytest.approx(1, abs=0.12)


def test_a_share_that_nobody_can_count_is_none() -> None:
    assert distribution.first_accepted(np.array([1.0, 1e-305]), bool, iter([0.5] * 9)) == (-1, 0.0)


def test_numbers_of_other_types_are_weights() -> None:
    generator = generate.regex(MODEL, "[ab]")
    for weight in (np.float16(-1), np.float64(-1), -1):
        found: Any = generator.run([0], search=SMC(4, potential=lambda text, ends, w=weight: w), max_tokens=3, seed=1)
        assert found[0].log_weight < 0
