"""A body of transformers on a CPU with quick products, norms and steps of states in place of its own.

Products are in float32 and float64, norms in float32: those of transformers compute in float32 whatever they are given,
and in another order they would come to other last bits of that, which float64 shows.
"""

from __future__ import annotations

import copy
from functools import partial
from itertools import chain
from types import MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from ...kernels.decoder.layers import normalise_rows
from .blocks.storage import IN_PLACE
from .head import product
from .quick_steps import quick_forward
from .stock import Links

_TOLERANCE = 1e-5
_NONE = np.empty(0, np.float32)


class QuickBody:
    """A body's modules once more, of the same weights and configurations; some have a quicker `forward`.

    The body itself is left as it is. What is written into its weights is seen; once modules, parameters or buffers are
    others, or hooks or the mode of training, it `is_intact` no longer, and is to be made anew.
    """

    def __init__(self, body: nn.Module) -> None:
        self._links = Links(body)
        self.network: Any = _shared_copy(body)
        for module in self.network.modules():
            forward = _quick_forward(module)
            if forward is not None:
                module.forward = forward

    @staticmethod
    def suits(body: nn.Module) -> bool:
        """True if there are quick parts for a body of transformers: on a CPU, in a type that the kernels have."""
        kinds = {(weights.device.type, weights.dtype) for weights in body.parameters()}
        return all(place == "cpu" and dtype in IN_PLACE for place, dtype in kinds)

    @property
    def is_intact(self) -> bool:
        """True if the body still is what this was made from."""
        return self._links.are_intact and self._links.are_called_alike


def _shared_copy(body: nn.Module) -> nn.Module:
    """A copy of modules, whose tensors and configurations are those of the original."""
    shared: list[Any] = list(chain(body.parameters(), body.buffers()))
    shared += [each for module in body.modules() if (each := getattr(module, "config", None)) is not None]
    return copy.deepcopy(body, {id(each): each for each in shared})


def _quick_forward(module: Any) -> Any:
    """A quicker function in place of a module's own `forward`; None where there is none."""
    if type(module) is nn.Linear:
        return partial(_multiply, module.weight, module.bias)
    shift = norm_shift(module)
    if shift is not None:
        return partial(_normalise, module.weight, shift, _eps(module), module.forward)
    forward = quick_forward(module.__class__)
    return None if forward is None else MethodType(forward, module)


def _multiply(weight: Tensor, bias: Tensor | None, input: Tensor) -> Tensor:
    """A linear layer by the product that the head takes too."""
    if input.dtype != weight.dtype or input.dtype not in IN_PLACE:
        return linear(input, weight, bias)
    return product(input.reshape(-1, weight.shape[1]), weight, bias).view(*input.shape[:-1], weight.shape[0])


def _normalise(weight: Tensor, shift: float, eps: float, own: Any, hidden_states: Tensor) -> Tensor:
    """The root mean square norm of each row [..., size] by weights plus `shift`; `own` in other types."""
    if hidden_states.dtype != torch.float32:
        return own(hidden_states)
    rows = hidden_states.reshape(-1, weight.shape[0]).contiguous().numpy()
    scales = weight.detach().numpy()
    out = np.empty_like(rows)
    normalise_rows(out, rows, scales + np.float32(shift) if shift else scales, _NONE, eps)
    return torch.as_tensor(out).view(hidden_states.shape)


@torch.no_grad()
def norm_shift(module: nn.Module) -> float | None:
    """Number that a root mean square norm in float32 adds to its weights, 0 or 1; None for another module.

    Known by its name, and by what it makes of random numbers.
    """
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
    for shift in (0.0, 1.0):
        if expected.shape == rows.shape and torch.allclose(expected, root * (scales + shift), _TOLERANCE, _TOLERANCE):
            return shift
    return None


def _eps(module: nn.Module) -> Any:
    """Number that a norm adds to mean squares, under whichever name it has that."""
    return getattr(module, "variance_epsilon", getattr(module, "eps", None))
