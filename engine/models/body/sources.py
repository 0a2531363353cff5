"""Encoded prompts for decoders: keys and values of cross-attention, shared by all texts of the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from ..blocks.storage import BlockStorage


@dataclass(frozen=True, eq=False)
class EncodedSource:
    """One prompt: for each layer keys and values [heads, length, head size]."""

    layers: list[tuple[Tensor, Tensor]]
    length: int

    @property
    def bytes(self) -> int:
        """Bytes that it takes."""
        return sum(keys.nbytes + values.nbytes for keys, values in self.layers)


@dataclass(frozen=True)
class SourceInputs:
    """Sources of a forward pass's rows, as it takes them.

    view: keys and values of all layers
    shape_only: [rows, length, 1], stands for the encoder's states, of which only the shape is used
    mask: int64 [rows, length], 1 for what is of a row's own prompt; None where all are as long
    """

    view: Cache
    shape_only: Tensor
    mask: Tensor | None


class SourceStorage(BlockStorage):
    """Blocks of the decoder's own tokens, and the sources of the rows that were last read, put together."""

    def __init__(self, blocks: int, layers: int) -> None:
        super().__init__(blocks, layers)
        self._shown: list[tuple[list[EncodedSource], SourceInputs]] = []

    def show(self, groups: Sequence[list[EncodedSource]]) -> list[SourceInputs]:
        """For each pass the sources of its rows; what was put together for the same rows last time is used again."""
        before = self._shown
        self._shown = [next((each for each in before if each[0] == sources), None) or (sources, _put_together(sources))
                       for sources in groups]  # fmt: skip
        return [shown for _, shown in self._shown]


def _put_together(sources: list[EncodedSource]) -> SourceInputs:
    count, longest = len(sources), max(source.length for source in sources)
    alone = all(source is sources[0] for source in sources)
    layers: list[Any] = []
    for number, (keys, values) in enumerate(sources[0].layers):
        if alone:
            layers.append(SourceLayer(*(part.expand(count, *part.shape) for part in (keys, values))))
        else:
            each = [source.layers[number] for source in sources]
            layers.append(SourceLayer(*(_stacked(parts, longest) for parts in zip(*each, strict=True))))
    like = sources[0].layers[0][0]
    mask = None
    if any(source.length < longest for source in sources):
        lengths = torch.tensor([source.length for source in sources], device=like.device)
        mask = (torch.arange(longest, device=like.device) < lengths[:, None]).long()
    return SourceInputs(Cache(layers=layers), like.new_zeros(1, 1, 1).expand(count, longest, 1), mask)


class SourceLayer(CacheLayerMixin):
    """One layer's keys and values of the rows at hand: [rows, heads, length, head size]."""

    is_sliding = False
    supports_early_init = False

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys: Tensor | None = keys
        self.values: Tensor | None = values
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """There is nothing to allocate."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Sources are there before the decoder runs."""
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

    def get_max_cache_shape(self) -> int:
        """The same, as older releases of transformers 5 call it."""
        return self.get_max_length()


def _stacked(parts: Sequence[Tensor], length: int) -> Tensor:
    """Tensors [heads, n, size] as one [rows, heads, length, size], padded with zeros."""
    stacked = parts[0].new_zeros(len(parts), parts[0].shape[0], length, parts[0].shape[2])
    for row, part in zip(stacked, parts, strict=True):
        row[:, : part.shape[1]] = part
    return stacked
