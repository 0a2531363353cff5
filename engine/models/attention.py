"""Which tokens may attend to which, when the rows of a batch are at different lengths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...errors import OptionError

MASKED_BY_BOOL = {"sdpa"}
MASKED_BY_ADDITION = {"eager"}


@dataclass(frozen=True)
class Reach:
    """How far back a layer looks: `window` tokens, or to the start of the current block of `chunk` tokens."""

    window: int | None = None
    chunk: int | None = None

    def allowed(self, positions: Tensor, end: int) -> Tensor:
        """bool [rows, 1, width, end]: the columns that the tokens at `positions` [rows, width] see."""
        query = positions[:, None, :, None]
        column = torch.arange(end, device=positions.device)
        seen = column <= query
        if self.window is not None:
            seen &= column > query - self.window
        if self.chunk is not None:
            seen &= column >= query // self.chunk * self.chunk
        return seen


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
        self._reaches = _reaches(config)

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


def _reaches(config: Any) -> dict[str, Reach]:
    window: int | None = getattr(config, "sliding_window", None)
    chunk: int | None = getattr(config, "attention_chunk_size", None)
    kinds: list[str] | None = getattr(config, "layer_types", None)
    if kinds is None:
        return {"all": Reach(window=window, chunk=None if window is not None else chunk)}
    reaches: dict[str, Reach] = {}
    for kind in kinds:
        match kind:
            case "full_attention":
                reaches[kind] = Reach()
            case "sliding_attention":
                reaches[kind] = Reach(window=window)
            case "chunked_attention":
                reaches[kind] = Reach(chunk=chunk)
            case _:
                raise OptionError(
                    f"layers of kind {kind!r} keep no keys and values per token; pass cache=False to run "
                    "this architecture, slowly, without a cache"
                )
    return reaches
