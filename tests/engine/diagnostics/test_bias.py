"""How far masked sampling is from the right distribution: against the enumeration, and when it is said."""

from __future__ import annotations

import html
import math
import pickle
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from trellm import Beam, Exact, Greedy, Sample, Vocabulary, generate, models

from ..support import Bias

VOCABULARY = Vocabulary([b"a", b"b", b"c", None], eos_ids=(3,))
TABLE = np.random.default_rng(7).normal(size=(4, 4)) * 1.5
MODEL = models.from_function(lambda ids: TABLE[ids[-1]], VOCABULARY)
LATE = "a[abc]a|[bc]{3}|b"


def distributions(temperature: float) -> tuple[dict[str, float], dict[str, float]]:
    """Of the texts of `LATE` the right probabilities, and those of masked sampling, by their definition."""
    texts = [text for text in _texts("", 3) if re.fullmatch(LATE, text)]
    right: dict[str, float] = defaultdict(float)
    masked: dict[str, float] = defaultdict(float)
    for text in texts:
        mass, chosen, last = 1.0, 1.0, 0
        for place in range(len(text) + 1):
            weights = np.exp(TABLE[last] / temperature)
            weights /= weights.sum()
            behind = [other[place : place + 1] for other in texts if other.startswith(text[:place])]
            allowed = [3 if token == "" else "abc".index(token) for token in set(behind)]
            token = 3 if place == len(text) else "abc".index(text[place])
            mass, chosen, last = mass * weights[token], chosen * weights[token] / weights[allowed].sum(), token
        right[text], masked[text] = mass, chosen
    total = sum(right.values())
    return {text: mass / total for text, mass in right.items()}, masked


def _texts(begin: str, left: int) -> list[str]:
    return [begin, *(text for token in "abc" * (left > 0) for text in _texts(begin + token, left - 1))]


def sampled(pattern: str = LATE, **options: Any) -> list[Any]:
    found: Any = generate.regex(MODEL, pattern).run([0], max_tokens=3, seed=4, diagnostics=True, **options)
    return found if isinstance(found, list) else [found]


def said(result: Any) -> list[Any]:
    return [hint for hint in result.diagnostics.summary.hints if hint.kind == "sampling"]


@pytest.mark.parametrize("temperature", [1.0, 0.4])
def test_the_distance_is_that_of_the_enumeration(temperature: float) -> None:
    right, masked = distributions(temperature)
    assert sum(masked.values()) == pytest.approx(1)
    exact = sum(abs(right[text] - masked[text]) for text in right) / 2
    assert exact > 0.15
    results = sampled(search=Sample(temperature, n=600))
    bias = results[0].diagnostics.bias
    assert abs(bias.distance - exact) < 4 * bias.error < 0.15
    assert {result.diagnostics.bias for result in results} == {bias}
    weighed: dict[str, float] = defaultdict(float)
    for result in results:
        weighed[result.text] += math.exp(result.diagnostics.summary.log_weight)
    for text, chance in right.items():
        assert weighed[text] / sum(weighed.values()) == pytest.approx(chance, abs=0.06)


def test_the_error_is_the_spread_of_estimates() -> None:
    weights, chances = np.array([0.9, 0.2, 0.05, 0.6]), np.array([0.2, 0.5, 0.1, 0.2])
    mean = float(weights @ chances)
    random = np.random.default_rng(2)
    found = [Bias.of(np.log(random.choice(weights, 300, p=chances)).tolist()) for _ in range(400)]
    estimates = [bias.distance for bias in found]
    assert np.mean(estimates) == pytest.approx(float(np.abs(weights / mean - 1) @ chances / 2), abs=0.01)
    assert np.mean([bias.error for bias in found]) == pytest.approx(np.std(estimates), rel=0.15)
    assert np.mean([math.exp(bias.log_z) for bias in found]) == pytest.approx(mean, rel=0.02)


def test_weights_out_of_reach_of_floats() -> None:
    bias = Bias.of([-5000.0, -5001.0, -math.inf])
    assert bias.distance == pytest.approx(Bias.of([0.0, -1.0, -math.inf]).distance)
    assert bias.log_z == pytest.approx(-5000 + math.log((1 + math.exp(-1)) / 3))
    none = Bias.of([-math.inf, -math.inf])
    assert math.isnan(none.distance) and none.log_z == -math.inf and not none.is_far


def test_a_hint_names_the_search_to_take() -> None:
    (hint,) = said(sampled(search=Sample(n=200))[3])
    assert "search=Exact(200)" in hint.text and "by 200 texts" in hint.text
    assert Bias(16, 0.5, 0.1, math.log(0.9e-3), 3.0).search == "SMC(64, n=16)"
    assert Bias(100, 0.5, 0.1, -30.0, 3.0).search == "SMC(100)"
    assert "or more, since few of them" in Bias(100, 0.9, 0.1, -30.0, 3.0).advice
    assert not Bias(2, 0.2, 0.15, -1.0, 1.5).is_far, "which may be chance"


def test_one_text_says_what_it_can() -> None:
    """Where the masks took much behind the first choice, however much they took before it."""
    begin, end = [0.4999, 0.4999, 0.0001, 0.0001], [0.01, 0.01, 0.01, 0.97]
    behind = {0: [0.4999, 0.4999, 0.0001, 0.0001], 1: [0.33, 0.33, 0.33, 0.01], 2: [0.97, 0.01, 0.01, 0.01]}
    chances = {1: lambda ids: begin, 2: lambda ids: behind[ids[-1]], 3: lambda ids: end}
    model = models.from_function(lambda ids: np.log(chances[len(ids)](ids)), VOCABULARY)

    def hinted(pattern: str, seed: int) -> tuple[str, list[Any]]:
        result = generate.regex(model, pattern).run([0], max_tokens=3, seed=seed, search=Sample(), diagnostics=True)
        return result.text, said(result)

    found = dict(hinted("ac|b[abc]", seed) for seed in range(12))
    assert {text[0] for text in found} == {"a", "b"}
    (hint,) = found["ac"]
    assert "9.7e-05 of its probability" in hint.text and hint.positions == (1,)
    assert all(not hints for text, hints in found.items() if text in ("ba", "bb"))
    shared = generate.regex(model, "c[ab]?").run([0], max_tokens=3, search=Sample(), diagnostics=True, seed=1)
    assert shared.diagnostics.summary.log_feasible_mass < math.log(0.001) and not said(shared)


def test_what_all_texts_share_is_no_bias() -> None:
    model = models.from_function(lambda ids: [0.0, 1.0, -5.0, 0.5], VOCABULARY)
    generator = generate.regex(model, "c[ab]{2}")
    results: Any = generator.run([0], max_tokens=3, seed=4, diagnostics=True, search=Sample(n=40))
    bias = results[0].diagnostics.bias
    assert bias.log_z < -5 and bias.distance == pytest.approx(0, abs=1e-6) and bias.ess == pytest.approx(40)
    assert not any(map(said, results))


@pytest.mark.parametrize(
    "options",
    [{"search": Sample(n=5, top_k=2)}, {"search": Sample(n=5, top_p=0.9)}, {"search": Sample(n=5, min_p=0.1)},
     {"search": Sample(n=5), "logit_bias": {0: 1.0}}, {"search": Sample(n=5), "repetition_penalty": 1.3},
     {"search": Greedy()}, {"search": Beam(3, n=3)}],
    ids=str,
)  # fmt: skip
def test_nothing_is_said_of_searches_that_the_masks_alone_do_not_explain(options: dict[str, Any]) -> None:
    for result in sampled(**options):
        summary = result.diagnostics.summary
        assert (summary.bias, summary.log_weight, said(result)) == (None, None, [])


def test_all_forms_show_it() -> None:
    result = sampled(search=Sample(n=60))[0]
    line = f"sampling: {result.diagnostics.bias}"
    assert line in str(result.diagnostics) and html.escape(line) in result.diagnostics.to_html()
    assert pickle.loads(pickle.dumps(result.diagnostics)).summary.bias == result.diagnostics.bias


def test_the_search_that_is_named_has_no_bias() -> None:
    right, masked = distributions(1.0)
    draws: Sequence[str] = generate.regex(MODEL, LATE)([0], search=Exact(400), max_tokens=3, seed=1)
    found = {text: draws.count(text) / 400 for text in right}
    apart = {name: sum(abs(found[text] - one[text]) for text in right) / 2 for name, one in
             (("right", right), ("masked", masked))}  # fmt: skip
    assert apart["right"] < 0.07 < apart["masked"]
