"""Nearness of logits that were computed in two ways: whether they are the same but for rounding, and are numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import ModelError

_COARSE = 5e-2
_TOLERANCES = {torch.float64: 1e-5, torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: _COARSE}
"""By how much of their spread they may differ, by the type of the model; some layers compute in float32."""
_SHORT = (torch.float16, torch.bfloat16)
_TIMES = 2
"""Times that they may be farther than rounding takes the model: that is measured once, with one kind of noise."""


def distance(found: Tensor, expected: Tensor) -> float:
    """Distance of logits [rows, V] from others, in parts of what these spread around each row's mean."""
    expected = expected.double()
    far = (found.double() - expected).square().sum().sqrt().item()
    spread = (expected - expected.mean(-1, keepdim=True)).square().sum().sqrt().item()
    return far / spread if spread else far


def tolerance(model: Any, dtype: torch.dtype) -> float:
    """Distance that logits may have in any case, of a model whose weights are of this type.

    Some quantized layers round what they multiply too, in one way for all rows that are multiplied at once.
    """
    is_quantized = getattr(model, "hf_quantizer", None) is not None
    return _COARSE if is_quantized else _TOLERANCES.get(dtype, _COARSE)


def is_rounding(far: float, model: Any, anew: Callable[[], float]) -> bool:
    """True if a distance may come of nothing but products that are rounded in another way.

    Such differences grow layer by layer, the more the wider and deeper a model of 16 bits is, so that no distance could
    be given that is right for all of them. anew: runs the model, and says how far it is from what it gave before
    """
    return model.dtype in _SHORT and far <= _TIMES * _rounded_anew(model, anew)


def _rounded_anew(model: Any, anew: Callable[[], float]) -> float:
    """Distance of a model from itself with noise as large as the rounding of each product."""
    noise = torch.Generator(device=model.device).manual_seed(0)

    def rounded(module: Any, given: Any, product: Tensor) -> Tensor:
        amounts = torch.rand(product.shape, generator=noise, device=product.device) - 0.5
        return (product.float() * (1 + torch.finfo(product.dtype).eps * amounts)).to(product.dtype)

    hooks = [part.register_forward_hook(rounded) for part in model.modules() if isinstance(part, nn.Linear)]
    try:
        return anew()
    finally:
        for hook in hooks:
            hook.remove()


def check_numbers(model: Any, logits: Tensor) -> None:
    """Raise ModelError if some logits of a model are not numbers, with the first weights that are not."""
    if not bool(logits.isnan().any()):
        return
    names = (name for name, weight in model.named_parameters() if not bool(weight.isfinite().all()))
    name, place = next(names, None), getattr(model.config, "name_or_path", "")
    if name is not None:
        cause = f"some weights of {name} are NaN or infinite; load weights that are whole"
    elif model.dtype in _SHORT:
        cause = "they grow too large for its type; load it with dtype=torch.float32 or bfloat16"
    else:
        cause = "they grow too large; its weights or its configuration are damaged: fetch it again"
    raise ModelError(
        f"{place}{': ' if place else ''}{type(model).__name__} gives logits that are NaN where it reads its first few "
        f"tokens: {cause}"
    )
