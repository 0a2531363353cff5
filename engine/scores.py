"""Token scores from logits and masks: log-probabilities, top tokens and traces; and statistics of weighted texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import ModelError
from ..guides.protocol import Mask
from ..kernels.logits.mask import popcount
from ..kernels.logits.select import Best, logsumexp, masked_argmax, masked_topk, token_logprobs

Ranked = tuple[tuple[int, float], ...]
"""Tokens with log-probabilities, highest first; of equals the lowest id comes first."""


def best_tokens(logits: Tensor, masks: Tensor | None, k: int) -> list[tuple[Ranked, Ranked]]:
    """Return the k most probable tokens of each row, among the allowed ones and among all. Impossible tokens are left
    out.

    logits: float32 [rows, V]; masks: int32 [rows, ceil(V / 32)] or None
    """
    k = min(k, logits.shape[1])
    everything = _ranked(masked_topk(logits, k))
    allowed = everything if masks is None else _ranked(masked_topk(logits, k, masks, normalise="masked"))
    return list(zip(allowed, everything, strict=True))


def _ranked(best: Best) -> list[Ranked]:
    rows = zip(as_list(best.tokens), as_list(best.scores), strict=True)
    return [tuple((token, score) for token, score in zip(*row, strict=True) if token >= 0) for row in rows]


def log_probabilities(logits: Tensor, masks: Tensor | None, tokens: Sequence[int]) -> list[tuple[float, float]]:
    """Return the log-probability of each row's token, among the allowed tokens and among all.

    logits: float32 [rows, V]; masks: int32 [rows, ceil(V / 32)] or None
    """
    found = token_logprobs(logits, tokens, masks)
    return list(zip(as_list(found.logprobs), as_list(found.raw_logprobs), strict=True))


class TokenScore(NamedTuple):
    """A token's log-probability, its rank among all tokens, from 1, and the most probable tokens at its place."""

    logprob: float
    rank: int
    best: Ranked


def token_scores(logits: Tensor, tokens: Sequence[int], k: int) -> list[TokenScore]:
    """Return the scores of one token in each row, with the k most probable tokens. logits: float32 [rows, V]"""
    logprobs: list[float] = as_list(token_logprobs(logits, tokens).raw_logprobs)
    ranks = _ranks(logits, range(len(tokens)), as_list(logits[range(len(tokens)), list(tokens)].double()))
    best = _ranked(masked_topk(logits, min(k, logits.shape[1]))) if k else [()] * len(tokens)
    both = zip(tokens, logprobs, ranks, best, strict=True)
    # Use one number for one token: sums in another order differ in their last bits.
    return [TokenScore(dict(top).get(token, logprob), rank, top) for token, logprob, rank, top in both]


def as_list(array: Any) -> list[Any]:
    """Return a 1-D tensor or NumPy array as a list. torch does not type the result of `tolist`."""
    return array.tolist()


class Trace(NamedTuple):
    """One token's step. Logarithms are natural, probabilities at temperature 1.

    state: guide state before the token; left: tokens left, including this one
    logprob, raw_logprob: of the token among the allowed tokens, and among all
    rank: of the token among all, 1 + number of more probable ones
    leader, leading_logprob: the most probable token of all, of equals the lowest id, and its raw log-probability
    leader_allowed: True if it was allowed
    allowed: number of allowed tokens; log_mass: logarithm of their total raw probability
    log_weight: log_mass at the sampling temperature; None if the token was not sampled from the model's own scores
    """

    state: int
    left: int
    token: int
    logprob: float
    raw_logprob: float
    rank: int
    leader: int
    leading_logprob: float
    leader_allowed: bool
    allowed: int
    log_mass: float
    log_weight: float | None


def traces(
    logits: Tensor,
    masks: Sequence[Mask | None],
    rows: Sequence[int],
    places: Sequence[tuple[int, int]],
    tokens: Sequence[int],
    logprobs: Sequence[tuple[float, float]],
    temperature: float | None = None,
) -> list[Trace]:
    """Return the traces of tokens, each chosen from one row of `logits`, float32 [n, V].

    masks: allowed tokens of each row, uint32 [ceil(V / 32)], None without a constraint
    rows: row of each token; places: state and tokens left before each; logprobs: masked and raw of each
    temperature: sampling temperature of all tokens; None if they were not sampled from the model's own scores

    Raises ModelError if the logits are no distribution.
    """
    leaders: list[int] = as_list(masked_argmax(logits).tokens)
    if min(leaders, default=0) < 0:
        raise ModelError(
            "diagnostics need a distribution over all tokens, but some of the model's logits are NaN or infinite"
        )
    chosen = as_list(logits[list(rows), list(tokens)].double())
    ranks = _ranks(logits, rows, chosen)
    leading: list[float] = as_list(logits[range(len(leaders)), leaders].double())
    weights = _weights(logits, masks, temperature)
    found: list[Trace] = []
    for i, (row, (logprob, raw)) in enumerate(zip(rows, logprobs, strict=True)):
        leader, mask = leaders[row], masks[row]
        if mask is None:
            choice = (True, logits.shape[1], 0.0)
            logprob = raw  # a batch with masks sums in another order
        else:
            allows_leader = bool(mask[leader >> 5] >> np.uint32(leader & 31) & np.uint32(1))
            choice = (allows_leader, int(popcount(mask[None])[0]), min(0.0, raw - logprob))
        margin = raw + leading[row] - chosen[i]
        weight = choice[2] if temperature == 1 else weights[row]
        found.append(Trace(*places[i], tokens[i], logprob, raw, ranks[i], leader, margin, *choice, weight))
    return found


def _weights(logits: Tensor, masks: Sequence[Mask | None], temperature: float | None) -> list[float | None]:
    """Return the log mass of each row's mask at a temperature; None for temperature 1, where the caller knows it."""
    if temperature is None or temperature == 1:
        return [None] * len(masks)
    scaled = logits / temperature
    sums = logsumexp(scaled, stack_masks(masks, scaled))
    masked: list[float] = as_list(sums.masked)
    raws: list[float] = as_list(sums.raw)
    return [0.0 if mask is None else min(0.0, some - raw) for mask, some, raw in zip(masks, masked, raws, strict=True)]


def _ranks(logits: Tensor, rows: Sequence[int], values: Sequence[float]) -> list[int]:
    """Return 1 + the number of logits in the row that exceed each value."""
    if logits.device.type == "cpu":  # NumPy is six times as fast as torch here
        array = logits.numpy()
        return [
            1 + int(np.count_nonzero(array[row] > np.float32(value))) for row, value in zip(rows, values, strict=True)
        ]
    bounds = torch.tensor(values, device=logits.device, dtype=logits.dtype)
    return as_list((logits[list(rows)] > bounds[:, None]).sum(1) + 1)


def stack_masks(masks: Sequence[Mask | None], logits: Tensor) -> Tensor | None:
    """Return the masks of all rows on the logits' device, int32 [rows, words], all ones for None."""
    if all(mask is None for mask in masks):
        return None
    words = (logits.shape[1] + 31) // 32
    stacked = np.full((len(masks), words), 0xFFFFFFFF, np.uint32)
    for row, mask in zip(stacked, masks, strict=True):
        if mask is not None:
            row[:] = mask
    return torch.as_tensor(stacked.view(np.int32), device=logits.device)


def first_columns(counts: Sequence[int], logits: Tensor) -> Tensor | None:
    """Return masks of the first `counts[r]` columns of each row r, as `stack_masks` does; None if these are all
    columns."""
    width = logits.shape[1]
    if min(counts) == width:
        return None
    bits = np.arange((width + 31) // 32 * 32) < np.array(counts)[:, None]
    packed = np.packbits(bits, axis=1, bitorder="little").view("<u4").astype(np.uint32, copy=False)
    return torch.as_tensor(packed.view(np.int32), device=logits.device)


class SampleStatistics(NamedTuple):
    """Statistics of a drawn text. See `Generation` for the fields."""

    log_weight: float
    log_z: float
    ess: float
    tokens_read: float
    acceptance: float | None = None
    distance: float | None = None


def log_mean(log_weights: Sequence[float]) -> float:
    """Return the logarithm of the mean of weights."""
    most = max(log_weights)
    if most == -math.inf:
        return most
    return most + math.log(sum(math.exp(one - most) for one in log_weights) / len(log_weights))


def shares(log_weights: Sequence[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return weights normalised to sum 1, float64 [n]. Some weight must be above 0."""
    found = np.exp(np.asarray(log_weights, np.float64) - max(log_weights))
    return found / found.sum()


def effective(log_weights: Sequence[float]) -> float:
    """Return the effective sample size, 1 / sum of squared shares. Source: A. Kong (1992)."""
    if max(log_weights) == -math.inf:
        return 0.0
    return float(1 / np.square(shares(log_weights)).sum())


def distance(log_weights: Sequence[float]) -> float:
    """Estimate the total variation distance between masked sampling and the model's own distribution.

    log_weights: of texts drawn under masks, as by `Importance`. The estimate is half the mean of |weight / mean - 1|: 0
        for one text, at most (n - 1) / n for n texts.
    """
    if max(log_weights) == -math.inf:
        return math.nan
    found = shares(log_weights)
    return float(np.abs(found - 1 / len(found)).sum() / 2)


def systematic(shares: NDArray[np.float64], count: int, uniforms: Sequence[float]) -> list[int]:
    """Return the indices of `count` particles by systematic resampling with the first uniform number.

    Source: J. Carpenter, P. Clifford, P. Fearnhead, "Improved particle filter for nonlinear problems" (1999).
    """
    return places_of(shares, (np.arange(count) + uniforms[0]) / count)


def stratified(shares: NDArray[np.float64], count: int, uniforms: Sequence[float]) -> list[int]:
    """Return the indices of `count` particles by stratified resampling, with one uniform number for each stratum.

    Source: G. Kitagawa, "Monte Carlo filter and smoother for non-Gaussian nonlinear state space models" (1996).
    """
    return places_of(shares, (np.arange(count) + np.asarray(uniforms[:count])) / count)


def places_of(shares: NDArray[np.float64], uniforms: NDArray[np.float64]) -> list[int]:
    """Return the indices that numbers in [0, 1) select by the inverse distribution function. Some share must be above
    0."""
    sums = np.cumsum(shares)
    found = sums.searchsorted(uniforms * float(sums[-1]), side="right")
    return as_list(np.minimum(found, np.flatnonzero(shares)[-1]))
