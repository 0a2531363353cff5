"""What the loop writes down of a step when diagnostics are on: numbers only, from the logits that it has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...errors import ModelError
from ...guides.protocol import Mask
from ...kernels.mask import popcount
from ...kernels.select import masked_argmax
from ..arrays import as_list


class Trace(NamedTuple):
    """One token's step; all logarithms are natural, all probabilities those at temperature 1.

    state: of the guide before the token; left: tokens that were left, this one included
    logprob, raw_logprob: of the token, among the allowed tokens and among all
    rank: of the token among all, 1 + how many are likelier
    leader, leading_logprob: the likeliest token of all, of equals the lowest, and its raw log-probability
    leader_allowed: whether it might have been chosen
    allowed: how many tokens were allowed; log_mass: the logarithm of their raw probability together
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


def traces(
    logits: Tensor,
    masks: Sequence[Mask | None],
    places: Sequence[tuple[int, int]],
    tokens: Sequence[int],
    logprobs: Sequence[tuple[float, float]],
) -> list[Trace]:
    """A trace for each row of `logits`, float32 [rows, V].

    masks: what was allowed, uint32 [ceil(V / 32)], None where there is no constraint
    places: the state before the token, and the tokens left; logprobs: of the token, masked and raw
    """
    leaders: list[int] = as_list(masked_argmax(logits).tokens)
    if min(leaders, default=0) < 0:
        raise ModelError(
            "diagnostics need a distribution over all tokens, but some of the model's logits are NaN or infinite"
        )
    pairs = torch.tensor([tokens, leaders], device=logits.device).T
    values: list[tuple[float, float]] = as_list(logits.gather(1, pairs).double())
    ranks = _ranks(logits, [chosen for chosen, _ in values])
    found: list[Trace] = []
    for i, (leader, mask, (logprob, raw)) in enumerate(zip(leaders, masks, logprobs, strict=True)):
        leading = raw + values[i][1] - values[i][0]
        if mask is None:
            choice = (True, logits.shape[1], 0.0)
            logprob = raw  # in a batch with masks they were added up in another order
        else:
            allows_leader = bool(mask[leader >> 5] >> np.uint32(leader & 31) & np.uint32(1))
            choice = (allows_leader, int(popcount(mask[None])[0]), min(0.0, raw - logprob))
        found.append(Trace(*places[i], tokens[i], logprob, raw, ranks[i], leader, leading, *choice))
    return found


def _ranks(logits: Tensor, values: Sequence[float]) -> list[int]:
    """For each row 1 + how many of its logits exceed the value."""
    if logits.device.type == "cpu":  # torch takes six times as long
        rows = zip(logits.numpy(), values, strict=True)
        return [1 + int(np.count_nonzero(row > np.float32(value))) for row, value in rows]
    bounds = torch.tensor(values, device=logits.device, dtype=logits.dtype)
    return as_list((logits > bounds[:, None]).sum(1) + 1)
