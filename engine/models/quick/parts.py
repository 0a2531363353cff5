"""Products and norms that stand in for a body's own: products in float32 and float64, norms in float32.

Norms of transformers compute in float32 whatever they are given. In another order they would come to other last bits of
that, which float64 shows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ....kernels.decoder.layers import normalise_rows
from ..blocks.storage import IN_PLACE
from ..head import product

_TOLERANCE = 1e-5
_NONE = np.empty(0, np.float32)


class QuickLinear(nn.Linear):
    """A linear layer by the product that the head takes too."""

    def forward(self, input: Tensor) -> Tensor:
        """As `nn.Linear` has it."""
        parameters = vars(self)["_parameters"]
        weight, bias = parameters["weight"], parameters["bias"]
        if input.dtype != weight.dtype or input.dtype not in IN_PLACE:
            return super().forward(input)
        return product(input.reshape(-1, weight.shape[1]), weight, bias).view(*input.shape[:-1], weight.shape[0])


class QuickNorm(nn.Module):
    """The root mean square norm of transformers in float32, under whichever name it has its epsilon."""

    def forward(self, hidden_states: Tensor) -> Tensor:
        """The norm of each row [..., size]."""
        weight = vars(self)["_parameters"]["weight"].detach()
        if hidden_states.dtype != torch.float32:
            return super().forward(hidden_states)
        rows = hidden_states.reshape(-1, weight.shape[0]).contiguous().numpy()
        out = np.empty_like(rows)
        normalise_rows(out, rows, self._scales(weight.numpy()), _NONE, _eps(self))
        return torch.as_tensor(out).view(hidden_states.shape)

    def _scales(self, weight: Any) -> Any:
        return weight


class QuickShiftedNorm(QuickNorm):
    """The same where what is multiplied by is one more than the weight."""

    def _scales(self, weight: Any) -> Any:
        return weight + weight.dtype.type(1)


@torch.no_grad()
def norm_like(module: nn.Module) -> type[QuickNorm] | None:
    """Which of the norms here a module is, by its name and what it makes of random numbers; None if it is neither."""
    weights = dict(module.named_parameters())
    if not type(module).__name__.endswith("RMSNorm") or {*weights} != {"weight"} or weights["weight"].ndim != 1:
        return None
    like = weights["weight"]
    if like.dtype != torch.float32 or not isinstance(_eps(module), float):
        return None
    noise = torch.Generator().manual_seed(0)
    rows = torch.randn(3, len(like), generator=noise, dtype=like.dtype)
    scales = torch.randn(len(like), generator=noise, dtype=like.dtype)
    try:
        expected = torch.func.functional_call(module, {"weight": scales}, (rows,))
    except Exception:  # a norm that is called in another way
        return None
    root = rows * (rows.square().mean(-1, keepdim=True) + _eps(module)).rsqrt()
    for kind, factor in ((QuickNorm, scales), (QuickShiftedNorm, 1 + scales)):
        if expected.shape == rows.shape and torch.allclose(expected, root * factor, _TOLERANCE, _TOLERANCE):
            return kind
    return None


def _eps(module: nn.Module) -> Any:
    own = vars(module)
    return own.get("variance_epsilon", own.get("eps"))
