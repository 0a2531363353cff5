"""How far back the layers of a model look."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ....errors import OptionError


@dataclass(frozen=True)
class Reach:
    """How far back a layer looks: `window` tokens, or to the start of the current block of `chunk` tokens."""

    window: int | None = None
    chunk: int | None = None

    @property
    def longest(self) -> int | None:
        """The most tokens that any token sees; None without limit."""
        return min((size for size in (self.window, self.chunk) if size is not None), default=None)

    def begin(self, position: int) -> int:
        """The first position that the token at a position sees."""
        begin = 0 if self.window is None else max(0, position - self.window + 1)
        return begin if self.chunk is None else max(begin, position // self.chunk * self.chunk)

    def allowed(self, positions: Tensor, end: int, first: int = 0) -> Tensor:
        """bool [rows, 1, width, end - first]: which of the tokens from `first` on those at `positions` see.

        positions: [rows, width]
        """
        query = positions[:, None, :, None]
        column = torch.arange(first, end, device=positions.device)
        seen = column <= query
        if self.window is not None:
            seen &= column > query - self.window
        if self.chunk is not None:
            seen &= column >= query // self.chunk * self.chunk
        return seen


def reaches(config: Any) -> dict[str, Reach]:
    """The reach of each kind of layer. Raises OptionError for layers that are not attention over keys and values."""
    window: int | None = getattr(config, "sliding_window", None)
    chunk: int | None = getattr(config, "attention_chunk_size", None)
    kinds: list[str] | None = getattr(config, "layer_types", None)
    if kinds is None:
        return {"all": Reach(window=window, chunk=None if window is not None else chunk)}
    found: dict[str, Reach] = {}
    for kind in kinds:
        match kind:
            case "full_attention":
                found[kind] = Reach()
            case "sliding_attention":
                found[kind] = Reach(window=window)
            case "chunked_attention":
                found[kind] = Reach(chunk=chunk)
            case _:
                raise OptionError(
                    f"layers of kind {kind!r} keep no keys and values per token; pass cache=False to run "
                    "this architecture, slowly, without a cache"
                )
    return found


def layer_reaches(config: Any) -> list[Reach]:
    """The reach of each layer, in order. Raises OptionError as `reaches` does."""
    found = reaches(config)
    kinds: list[str] | None = getattr(config, "layer_types", None)
    count: int = config.num_hidden_layers
    return [found["all"]] * count if kinds is None else [found[kind] for kind in kinds[:count]]
