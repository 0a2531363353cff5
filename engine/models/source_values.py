"""What decoders look at of an encoded prompt: keys and values of cross-attention, shared by all rows of the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, EncoderDecoderCache

from .key_values import KeyValueSlots


@dataclass(frozen=True, eq=False)
class Source:
    """One prompt: for each layer keys and values [heads, length, head size]."""

    layers: list[tuple[Tensor, Tensor]]
    length: int


@dataclass(frozen=True)
class Shown:
    """What a forward pass needs besides keys and values.

    shape_only: [rows, length, 1], stands for the encoder's states, of which only the shape is used
    mask: int64 [rows, length], 1 for what is of a row's own prompt; None where all are as long
    """

    shape_only: Tensor
    mask: Tensor | None


class SourceSlots(KeyValueSlots):
    """Slots of the decoder's own tokens, each row bound to a source, which forked rows share."""

    def __init__(self, rows: int, capacity: int, layers: int) -> None:
        super().__init__(rows, capacity, layers)
        self._bound: list[Source | None] = []
        self._cross = [SourceLayer() for _ in range(layers)]
        self._shown: tuple[list[Source | None], Shown] | None = None
        self.both = EncoderDecoderCache(self.view, Cache(layers=list[Any](self._cross)))
        self.both.is_updated = dict.fromkeys(range(layers), True)

    def join(self, count: int) -> None:
        """Add empty rows; `bind` gives them their sources."""
        super().join(count)
        self._bound += [None] * count

    def bind(self, first: int, layers: Sequence[tuple[Tensor, Tensor]], lengths: Sequence[int]) -> None:
        """Give rows from `first` on their sources; keys and values are [rows, heads, longest, head size]."""
        for row, length in enumerate(lengths):
            own = [(keys[row, :, :length], values[row, :, :length]) for keys, values in layers]
            self._bound[first + row] = Source(own, length)

    def arrange(self, parents: Sequence[int], shared: Sequence[int] | None = None) -> None:
        """As for all slots; the sources themselves stay where they are."""
        super().arrange(parents, shared)
        self._bound = [self._bound[parent] for parent in parents]

    def show(self, rows: Sequence[int]) -> Shown:
        """Let the layers see the sources of these rows; what was put together for the same rows is used again."""
        sources = [self._bound[row] for row in rows]
        if self._shown is None or self._shown[0] != sources:
            self._shown = sources, self._put_together([source for source in sources if source is not None])
        return self._shown[1]

    def _put_together(self, sources: list[Source]) -> Shown:
        count, longest = len(sources), max(source.length for source in sources)
        alone = all(source is sources[0] for source in sources)
        for number, layer in enumerate(self._cross):
            if alone:
                keys, values = sources[0].layers[number]
                layer.keys, layer.values = (part.expand(count, *part.shape) for part in (keys, values))
            else:
                layer.keys = _stacked([source.layers[number][0] for source in sources], longest)
                layer.values = _stacked([source.layers[number][1] for source in sources], longest)
        like = sources[0].layers[0][0]
        mask = None
        if any(source.length < longest for source in sources):
            lengths = torch.tensor([source.length for source in sources], device=like.device)
            mask = (torch.arange(longest, device=like.device) < lengths[:, None]).long()
        return Shown(like.new_zeros(1, 1, 1).expand(count, longest, 1), mask)


class SourceLayer(CacheLayerMixin):
    """One layer's keys and values of the rows at hand: [rows, heads, length, head size]."""

    is_sliding = False
    supports_early_init = False

    def __init__(self) -> None:
        self.keys: Tensor | None = None
        self.values: Tensor | None = None
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """There is nothing to allocate."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Sources are bound before the decoder runs."""
        raise AssertionError("cross-attention was to use the keys and values that it has")

    def get_seq_length(self) -> int:
        """The length of the longest source."""
        return 0 if self.keys is None else self.keys.shape[2]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of what attention sees."""
        return self.get_seq_length(), 0

    def get_max_length(self) -> int:
        """Sources do not grow."""
        return self.get_seq_length()


def _stacked(parts: Sequence[Tensor], length: int) -> Tensor:
    """Tensors [heads, n, size] as one [rows, heads, length, size], padded with zeros."""
    stacked = parts[0].new_zeros(len(parts), parts[0].shape[0], length, parts[0].shape[2])
    for row, part in zip(stacked, parts, strict=True):
        row[:, : part.shape[1]] = part
    return stacked
