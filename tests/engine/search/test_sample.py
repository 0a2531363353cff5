"""Samples have the probabilities they should, and depend on nothing but seed and step."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from trellm import Generator, OptionError, Sample, Vocabulary, models

from ..support import row_key, uniform

LOGITS = [0.3, 1.5, -0.7, 0.9, 2.1, -1.2, 0.0]
# The 0.9999 quantile of chi-square, by degrees of freedom: a right program fails one time in 10,000 seeds,
# and the seeds are fixed.
QUANTILE = {1: 15.1, 2: 18.4, 3: 21.1, 4: 23.5, 5: 25.7, 6: 27.9, 7: 29.9, 8: 31.8, 9: 33.7, 11: 37.4}


def chi_square(counts: dict[Any, int], expected: dict[Any, float]) -> float:
    total = sum(counts.values())
    assert set(counts) <= {key for key, probability in expected.items() if probability > 0}
    return sum((counts.get(key, 0) - total * p) ** 2 / (total * p) for key, p in expected.items() if p > 0)


def distribution(allowed: set[int], search: Sample) -> dict[int, float]:
    """By the definition: temperature, then top_k, top_p, min_p, each on what the one before left."""
    weights = {t: math.exp(LOGITS[t] / search.temperature) for t in allowed}
    order = sorted(weights, key=lambda t: -weights[t])[: search.top_k or len(weights)]
    total = sum(weights[t] for t in order)
    kept: list[int] = []
    for token in order:
        if sum(weights[t] for t in kept) < search.top_p * total:
            kept.append(token)
    kept = [token for token in kept if weights[token] >= search.min_p * weights[order[0]]]
    return {token: weights[token] / sum(weights[t] for t in kept) for token in kept}


@pytest.mark.parametrize("allowed", [set(range(7)), {0, 2, 3, 5}])
@pytest.mark.parametrize(
    "search",
    [Sample(), Sample(temperature=0.5), Sample(top_k=3), Sample(top_p=0.6), Sample(min_p=0.3),
     Sample(temperature=1.7, top_k=5, top_p=0.9, min_p=0.1)],
)  # fmt: skip
def test_a_draw_has_its_probability(search: Sample, allowed: set[int]) -> None:
    count = 4000
    mask = sum(1 << token for token in allowed)
    draws = [uniform(row_key(seed, 0), 3) for seed in range(count)]
    logits = torch.tensor([LOGITS]).repeat(count, 1)
    tokens = search.pick(logits, torch.full((count, 1), mask, dtype=torch.int32), draws)
    expected = distribution(allowed, search)
    assert chi_square(Counter(tokens), expected) < QUANTILE.get(len(expected) - 1, math.inf)
    if len(expected) == 1:
        assert set(tokens) == set(expected)


def test_whole_texts_have_their_probability(table_guide: Any) -> None:
    """A language of 12 texts of two or three tokens, over a model whose logits depend on the last token."""
    vocabulary = Vocabulary([b"a", b"b", b"c", None], eos_ids=(3,))
    table = np.random.default_rng(5).normal(size=(4, 4))
    model = models.from_function(lambda ids: table[ids[-1]], vocabulary)
    guide = table_guide(vocabulary, [{0: 1, 1: 1, 2: 1}, {0: 2, 1: 2}, {2: 3}, {}], {2, 3})
    expected: dict[str, float] = {}

    def spread(state: int, last: int, text: str, probability: float) -> None:
        allowed = list(guide.edges[state]) + ([3] if guide.is_accepting(state) else [])
        total = sum(math.exp(table[last, token]) for token in allowed)
        for token in allowed:
            share = probability * math.exp(table[last, token]) / total
            if token == 3:
                expected[text] = share
            else:
                spread(guide.advance(state, token), token, text + "abc"[token], share)

    spread(0, 0, "", 1.0)
    texts = Generator(model, guide)("a", search=Sample(n=6000), seed=11, batch_size=600)
    assert len(expected) == 12
    assert chi_square(Counter(texts), expected) < QUANTILE[11]


def test_same_seed_same_tokens_alone_or_batched(decoder: Callable[..., Any]) -> None:
    generator = Generator(decoder("llama"))
    prompts = ["the", "an inning on the 12th", "x", "123"]
    search = Sample(temperature=1.5, n=2)
    alone = [generator(prompt, search=search, seed=3, max_tokens=15, batch_size=1) for prompt in prompts]
    assert generator(prompts, search=search, seed=3, max_tokens=15) == alone
    assert generator(prompts[::-1], search=search, seed=3, max_tokens=15, batch_size=3) == alone[::-1]
    assert generator(prompts, search=search, seed=4, max_tokens=15) != alone
    assert alone[0][0] != alone[0][1], "samples of one prompt differ"
    several = generator(["the", "the"], search=Sample(), seed=[1, 2], max_tokens=15)
    assert several[0] != several[1]
    unseeded = generator(["the"] * 4, search=Sample(temperature=50.0), max_tokens=15)
    assert len(set(unseeded)) == 4, "without a seed every prompt has its own"


def test_uniforms_are_uniform() -> None:
    draws = np.array([uniform(row_key(seed, sample), step) for seed in range(20) for sample in range(5)
                      for step in range(40)])  # fmt: skip
    counts = np.bincount((draws * 8).astype(int), minlength=8)
    assert chi_square(dict(enumerate(counts.tolist())), dict.fromkeys(range(8), 1 / 8)) < QUANTILE[7]
    assert draws.min() >= 0 and draws.max() < 1 and len(set(draws.tolist())) == len(draws)


@pytest.mark.parametrize(
    "options",
    [{"temperature": 0}, {"temperature": -1.0}, {"temperature": math.nan}, {"temperature": math.inf}, {"top_k": 0},
     {"top_k": 1.5}, {"top_p": 0.0}, {"top_p": 1.1}, {"min_p": -0.1}, {"min_p": 2}, {"n": 0}, {"n": True}],
)  # fmt: skip
def test_impossible_parameters_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=next(iter(options))):
        Sample(**options)
