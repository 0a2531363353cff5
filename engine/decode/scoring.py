"""Log-probabilities of chosen tokens."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ...kernels.logits.select import token_logprobs
from .arrays import as_list


def log_probabilities(logits: Tensor, masks: Tensor | None, tokens: Sequence[int]) -> list[tuple[float, float]]:
    """Natural logarithms of each row's token's probability: among the allowed tokens, and among all.

    logits: float32 [rows, V]; masks: int32 [rows, ceil(V / 32)] or None
    """
    found = token_logprobs(logits, tokens, masks)
    return list(zip(as_list(found.logprobs), as_list(found.raw_logprobs), strict=True))
