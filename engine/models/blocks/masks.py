"""Masks for models whose attention is their own, when the rows of a pass are at different lengths."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ....errors import OptionError
from .reach import Reach, reaches

MASKED_BY_BOOL = {"sdpa"}
MASKED_BY_ADDITION = {"eager"}


class AttentionMasks:
    """The masks of a model, for its kinds of layers; made as its configuration says.

    Raises OptionError for layers that are not attention over all keys, a window or chunks.
    """

    def __init__(self, config: Any, implementation: str, dtype: torch.dtype) -> None:
        if implementation not in MASKED_BY_BOOL | MASKED_BY_ADDITION:
            raise OptionError(
                f"attention implementation {implementation!r} cannot run rows of different lengths; load the "
                "model with attn_implementation='sdpa' or 'eager', or pass cache=False"
            )
        self._additive = implementation in MASKED_BY_ADDITION
        self._dtype = dtype
        self._reaches = reaches(config)

    def __call__(self, positions: Tensor, end: int) -> Tensor | dict[str, Tensor]:
        """A mask [rows, 1, width, end], or one by kind of layer where a model has several kinds."""
        masks = {kind: self._mask(reach, positions, end) for kind, reach in self._reaches.items()}
        return masks if len(masks) > 1 else next(iter(masks.values()))

    def _mask(self, reach: Reach, positions: Tensor, end: int) -> Tensor:
        seen = reach.allowed(positions, end)
        if not self._additive:
            return seen
        lowest = torch.finfo(self._dtype).min
        return torch.zeros(seen.shape, dtype=self._dtype, device=seen.device).masked_fill_(~seen, lowest)
