"""Whether logits that were computed in two ways are the same but for rounding."""

from __future__ import annotations

import torch
from torch import Tensor

_TOLERANCES = {torch.float64: 1e-5, torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""By how much of their spread they may differ, by the type of the model; some layers compute in float32."""


def distance(found: Tensor, expected: Tensor) -> float:
    """How far logits [rows, V] are from others, in parts of what these spread around each row's mean."""
    expected = expected.double()
    far = (found.double() - expected).square().sum().sqrt().item()
    spread = (expected - expected.mean(-1, keepdim=True)).square().sum().sqrt().item()
    return far / spread if spread else far


def tolerance(dtype: torch.dtype) -> float:
    """How far they may be."""
    return _TOLERANCES.get(dtype, 5e-2)
