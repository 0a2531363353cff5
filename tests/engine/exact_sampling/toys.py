"""Small languages under toy models, and what the right distribution of their texts is, by enumeration."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from trellm import Generation, Vocabulary, models

from ..support import Target, reference

WORDS = [b"a", b"b", b"c", b"ab", b"1", b",", b"[", b"]", None]
EOS = len(WORDS) - 1
VOCABULARY = Vocabulary(WORDS, eos_ids=(EOS,))
TABLE = np.random.default_rng(20).normal(size=(EOS + 1, 3, EOS + 1)) * 1.2

Texts = dict[str, float]


def toy_logits(ids: Sequence[int]) -> NDArray[np.float64]:
    """Logits that depend on the last token and on how many there are."""
    return TABLE[ids[-1], len(ids) % 3]


def toy_model(**options: Any) -> Any:
    return models.from_function(toy_logits, VOCABULARY, **options)


def chances_of(ids: Sequence[int], search: Target, penalty: float = 1.0) -> NDArray[np.float64]:
    """The model's distribution of the next token, by its definition."""
    values = toy_logits(ids).astype(np.float64)
    for token in set(ids):
        values[token] *= penalty if values[token] < 0 else 1 / penalty
    everything = np.ones(len(values), bool)
    filters = search.temperature, search.top_k or 0, search.top_p, search.min_p
    return reference.filtered(values, everything, *filters)


def texts_of(
    accepts: Callable[[str], Any],
    budget: int,
    search: Target,
    prompt: Sequence[int] = (0,),
    *,
    tail: str = "",
    is_cut: bool = False,
    penalty: float = 1.0,
) -> Texts:
    """The probability of every text that meets a constraint, by its definition: all token sequences that there are.

    tail: what the tokens spell before the text; those that end within it are not counted against the budget
    is_cut: whether a text may also end, without EOS, where its budget does
    """
    found: dict[str, float] = defaultdict(float)

    def spread(tokens: tuple[int, ...], said: str, left: int, probability: float) -> None:
        text = said[len(tail) :]
        is_there = said.startswith(tail)
        if not (is_there or tail.startswith(said)):
            return
        if is_cut and left == 0:
            if accepts(text):
                found[text] += probability
            return
        for token, chance in enumerate(chances_of([*prompt, *tokens], search, penalty).tolist()):
            if token == EOS:
                if is_there and accepts(text) and chance > 0:
                    found[text] += probability * chance
            elif chance > 0:
                after = said + VOCABULARY.decode([token]).decode()
                rest = left - (len(after) > len(tail))
                if rest >= 0:
                    spread((*tokens, token), after, rest, probability * chance)

    spread((), "", budget, 1.0)
    return dict(found)


def conditional(texts: Texts) -> Texts:
    total = sum(texts.values())
    return {text: probability / total for text, probability in texts.items()}


def is_fair(counts: Mapping[str, int], expected: Texts) -> bool:
    """Whether counts pass a chi-square test that a right program fails for one seed in 10,000.

    Texts of which fewer than five are expected are counted together.
    """
    total = sum(counts.values())
    if not set(counts) <= set(expected):
        return False
    often = [text for text, probability in expected.items() if probability * total >= 5]
    cells = [(counts.get(text, 0), expected[text] * total) for text in often]
    rest = total - sum(expected for _, expected in cells)
    if rest > 1e-9:
        cells.append((total - sum(count for count, _ in cells), rest))
    statistic = sum((count - mean) ** 2 / mean for count, mean in cells)
    freedom = len(cells) - 1
    # Wilson and Hilferty's approximation of the quantile
    cube = 1 - 2 / (9 * freedom) + 3.72 * math.sqrt(2 / (9 * freedom)) if freedom else 0
    return statistic <= freedom * cube**3 + 1e-9


def weighed(results: Sequence[Generation[Any]]) -> Texts:
    """The shares of texts by their weights."""
    weights: dict[str, float] = defaultdict(float)
    for result in results:
        assert result.log_weight is not None
        weights[result.text] += math.exp(result.log_weight)
    return conditional(dict(weights))


def are_close(results: Sequence[Generation[Any]], expected: Texts) -> bool:
    """Whether shares are within twice the total variation that so many draws have on average."""
    found = weighed(results)
    worth = min(results[0].ess or 0, len(results) / 3)
    noise = sum(math.sqrt(chance * (1 - chance) / worth) for chance in expected.values()) / math.sqrt(2 * math.pi)
    return set(found) <= set(expected) and total_variation(found, expected) < 2 * noise


def total_variation(found: Texts, expected: Texts) -> float:
    return sum(abs(found.get(text, 0.0) - expected.get(text, 0.0)) for text in {*found, *expected}) / 2
