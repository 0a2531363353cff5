"""Log-probabilities of chosen tokens, and the best tokens beside them."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ...kernels.logits.select import Best, masked_topk, token_logprobs
from .arrays import as_list

Ranked = tuple[tuple[int, float], ...]
"""Tokens with their log-probabilities, the likeliest first, of equals the one with the lowest id."""


def best_tokens(logits: Tensor, masks: Tensor | None, k: int) -> list[tuple[Ranked, Ranked]]:
    """The k likeliest tokens of each row: among the allowed ones, and among all; fewer where others are impossible.

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
    """Natural logarithms of each row's token's probability: among the allowed tokens, and among all.

    logits: float32 [rows, V]; masks: int32 [rows, ceil(V / 32)] or None
    """
    found = token_logprobs(logits, tokens, masks)
    return list(zip(as_list(found.logprobs), as_list(found.raw_logprobs), strict=True))
