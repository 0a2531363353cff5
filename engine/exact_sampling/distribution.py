"""The model's distribution of the next token, the probability mass of a mask, and draws that a predicate may reject."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...guides.protocol import Mask
from ...kernels.logits.select import NAN, logsumexp, masked_sample
from ..scores import as_list, stack_masks
from ..search import Target
from .path import SampledPath


class Distribution(NamedTuple):
    """Unnormalised distributions of some rows.

    logits: float32 [rows, V], divided by the temperature, -inf for tokens that a filter removes
    masks: int32 [rows, ceil(V / 32)], None if all tokens are allowed
    masses: log-probability of all tokens that each row's mask allows; -inf for 0
    raws: log-sum-exp of each row; sound: False for rows that are no distribution
    """

    logits: Tensor
    masks: Tensor | None
    masses: list[float]
    raws: list[float]
    sound: list[bool]

    def probabilities(self, row: int, ids: NDArray[np.int32] | None) -> NDArray[np.float64]:
        """Return probabilities of some tokens of a row, or of all, float64 [len(ids)]."""
        return np.exp(self._logits(row, ids) - self.raws[row])

    def shares(self, row: int, ids: NDArray[np.int32]) -> tuple[NDArray[np.float64], float]:
        """Return probabilities of some tokens relative to the largest, float64 [len(ids)], and that one's logarithm.

        Some probability must be above 0.
        """
        logits = self._logits(row, ids)
        most = float(logits.max())
        return np.exp(logits - most), most - self.raws[row]

    def _logits(self, row: int, ids: NDArray[np.int32] | None) -> NDArray[np.float64]:
        logits = self.logits[row]
        if ids is not None:
            logits = logits[torch.as_tensor(ids, dtype=torch.int64, device=logits.device)]
        return logits.cpu().numpy().astype(np.float64)


class LogitsQuery(NamedTuple):
    """A population's query: rows of the computed logits, and their masks."""

    rows: list[int]
    paths: list[SampledPath]
    masks: list[Mask | None]


class Draw(NamedTuple):
    """A request to draw a token from a row. uniform: number in [0, 1) for the inverse distribution function"""

    row: int
    uniform: float


def draw(found: Distribution, draws: Sequence[Draw]) -> list[int]:
    """Draw a token for each request, from its row under its mask."""
    if not draws:
        return []
    rows = [row for row, _ in draws]
    is_each_once = rows == list(range(len(found.logits)))
    logits = found.logits if is_each_once else found.logits[rows]
    masks = found.masks if is_each_once or found.masks is None else found.masks[rows]
    return as_list(masked_sample(logits, [uniform for _, uniform in draws], masks).tokens)


def distribution(logits: Tensor, masks: Sequence[Mask | None], target: Target) -> Distribution:
    """Return the target's distributions for logits float32 [rows, V]."""
    found = filtered(logits, target) if target.is_filtered else logits
    if target.temperature != 1:
        found = found / target.temperature
    stacked = stack_masks(masks, found)
    sums = logsumexp(found, stacked)
    raws: list[float] = as_list(sums.raw)
    masked: list[float] = as_list(sums.masked)
    unusable = [status == NAN or not np.isfinite(raw) for status, raw in zip(as_list(sums.status), raws, strict=True)]
    masses = [
        0.0 if mask is None or bad else min(0.0, some - raw)
        for mask, bad, some, raw in zip(masks, unusable, masked, raws, strict=True)
    ]
    return Distribution(found, stacked, masses, raws, [not bad for bad in unusable])


def filtered(logits: Tensor, target: Target) -> Tensor:
    """Set logits to -inf where top_k, top_p and min_p remove a token, as `Sample` does without a mask."""
    found = logits
    if target.top_k is not None and target.top_k < logits.shape[1]:
        least = torch.topk(found, target.top_k, dim=1).values[:, -1:]
        found = found.masked_fill(found < least, -torch.inf)
    if target.top_p < 1:
        weights = _weights(found, target.temperature)
        ordered, order = torch.sort(weights, dim=1, descending=True, stable=True)
        before = torch.cumsum(ordered, 1) - ordered
        is_out = before >= target.top_p * weights.sum(1, keepdim=True)
        found = found.masked_fill(torch.zeros_like(is_out).scatter(1, order, is_out), -torch.inf)
    if target.min_p > 0:
        weights = _weights(found, target.temperature)
        found = found.masked_fill(weights < target.min_p * weights.max(1, keepdim=True).values, -torch.inf)
    return found


def _weights(logits: Tensor, temperature: float) -> Tensor:
    """Return probabilities relative to each row's largest, float64 [rows, V]."""
    values = logits.double()
    return torch.exp((values - values.max(1, keepdim=True).values) / temperature)


_LEAST = 1e-300
"""Remaining shares below this are treated as 0."""


def first_accepted(
    chances: NDArray[np.float64], accepts: Callable[[int], bool], uniforms: Iterator[float]
) -> tuple[int, float]:
    """Return the index of the first accepted draw, and an estimate of the accepted share of all draws.

    chances: float64 [n], unnormalised, not all 0. If nothing is accepted the index is -1 and the share 0.
    The estimate is (hits - 1) / (draws - 1), with the draws up to the second hit. It is unbiased and independent of the
    first accepted index. Each index is tested once. Draws of indices already rejected are counted by a geometric random
    number. The search gives up when less than 1e-300 is left. Source: B. Lipkin and others (2025), see `SMC`.
    """
    left = chances / chances.sum()
    accepted: set[int] = set()
    first, draws, hits = -1, 0, 0
    while hits < 2:
        sums = np.cumsum(left)
        rest = float(sums[-1])
        if rest <= _LEAST:
            return -1, 0.0
        draws += 1 + _refused_before(rest, next(uniforms))
        place = min(int(np.searchsorted(sums, next(uniforms) * rest, side="right")), int(np.flatnonzero(left)[-1]))
        if place in accepted or accepts(place):
            accepted.add(place)
            first = place if first < 0 else first
            hits += 1
        else:
            left[place] = 0.0
    return first, 1 / (draws - 1)


def _refused_before(rest: float, uniform: float) -> int:
    """Return the number of draws of rejected indices before one of the others, whose share is `rest`."""
    return 0 if rest >= 1 else math.floor(math.log1p(-uniform) / math.log1p(-rest))
