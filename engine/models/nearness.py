"""Whether logits that were computed in two ways are the same but for rounding."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_COARSE = 5e-2
_TOLERANCES = {torch.float64: 1e-5, torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: _COARSE}
"""By how much of their spread they may differ, by the type of the model; some layers compute in float32."""


def distance(found: Tensor, expected: Tensor) -> float:
    """How far logits [rows, V] are from others, in parts of what these spread around each row's mean."""
    expected = expected.double()
    far = (found.double() - expected).square().sum().sqrt().item()
    spread = (expected - expected.mean(-1, keepdim=True)).square().sum().sqrt().item()
    return far / spread if spread else far


def tolerance(model: Any, dtype: torch.dtype) -> float:
    """How far those of a model may be, whose weights are of this type.

    Some quantized layers round what they multiply too, in one way for all rows that are multiplied at once.
    """
    is_quantized = getattr(model, "hf_quantizer", None) is not None
    return _COARSE if is_quantized else _TOLERANCES.get(dtype, _COARSE)
