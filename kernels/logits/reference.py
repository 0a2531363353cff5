"""Reference implementations of the kernels, in plain NumPy and float64; they share no code with the kernels.

Masks are as in the kernels: `masks` uint32 [R, W] or None, `rows` [B] or None. A status is 0 if a token can be chosen,
1 if a relevant logit is NaN or +inf, 2 if no allowed logit is above -inf.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def allowed_tokens(batch: int, width: int, masks: Any = None, rows: Any = None, size: int | None = None) -> Bools:
    """Return the allowed tokens of each row: bool [B, width]."""
    allowed = np.zeros((batch, width), np.bool_)
    if size is None:
        size = width if masks is None else min(width, 32 * masks.shape[1])
    for row in range(batch):
        number = row if rows is None else int(rows[row])
        for token in range(size):
            if masks is None or number == -1:
                allowed[row, token] = True
            else:
                allowed[row, token] = int(masks[number, token // 32]) >> (token % 32) & 1
    return allowed


def apply_mask(logits: Any, allowed: Bools) -> Any:
    """Return the logits with -inf where a token is not allowed."""
    return np.where(allowed, logits, -np.inf)


def status(logits: Any, allowed: Bools, counting: Bools | None = None) -> int:
    """Return the status of one row, logits and allowed [V]; `counting` selects the relevant logits."""
    counts: Floats = np.asarray(logits[allowed if counting is None else counting], np.float64)
    if np.isnan(counts).any() or np.isposinf(counts).any():
        return 1
    return 0 if (logits[allowed] > -np.inf).any() else 2


def argmax(logits: Any, allowed: Bools) -> int:
    """Return the lowest allowed token with the largest logit of one row [V]; -1 unless the status is 0."""
    if status(logits, allowed):
        return -1
    return int(np.argmax(np.where(allowed, logits, -np.inf)))


def logsumexp(logits: Any, allowed: Bools) -> float:
    """Return the log-sum-exp of one row's allowed logits, -inf if there are none."""
    values = logits[allowed].astype(np.float64)
    if not (values > -np.inf).any():
        return -np.inf
    return float(values.max() + np.log(np.exp(values - values.max()).sum()))


def filtered(
    logits: Any,
    allowed: Bools,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
) -> Floats:
    """Return the probabilities [V] for sampling one row; filters apply in the order of transformers."""
    values = np.where(allowed, logits, -np.inf).astype(np.float64)
    passing = values > -np.inf
    if 0 < top_k < passing.sum():
        passing &= values >= np.sort(values[passing])[-top_k]
    weights = np.where(passing, np.exp((values - values.max()) / temperature), 0.0)
    if top_p < 1:
        order = np.lexsort((np.arange(len(values)), -values))
        better = np.cumsum(weights[order]) - weights[order]
        passing[order[better >= top_p * weights.sum()]] = False
        weights = np.where(passing, weights, 0.0)
    if min_p > 0:
        weights = np.where(weights >= min_p * weights.max(), weights, 0.0)
    return weights / weights.sum()


def draw(probabilities: Floats, uniform: float) -> int:
    """Return the first token at which the cumulative distribution exceeds `uniform`."""
    return int(np.searchsorted(np.cumsum(probabilities), uniform, side="right"))


def best(
    logits: Any, allowed: Bools, k: int, scores: Any, group: int, normalise: str
) -> list[list[tuple[float, int, int]]]:
    """Return for every group of rows the best k of (score, row, token), best first, then by row and token.

    Logits are [B, V] without any beyond the vocabulary.
    """
    found: list[list[tuple[float, int, int]]] = []
    everything = np.ones_like(allowed)
    for first in range(0, len(logits), group):
        candidates: list[tuple[float, int, int]] = []
        for row in range(first, first + group):
            scope = everything[row] if normalise == "raw" else allowed[row]
            if scores[row] == -np.inf or status(logits[row], allowed[row], scope):
                continue
            total = 0.0 if normalise == "none" else logsumexp(logits[row], scope)
            for token in np.flatnonzero(allowed[row] & (logits[row] > -np.inf)):
                candidates.append((float(logits[row, token]) - total + scores[row], row, int(token)))
        found.append(sorted(candidates, key=lambda one: (-one[0], one[1], one[2]))[:k])
    return found
