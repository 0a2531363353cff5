"""The keys and values of attention, in slots: what a transformers model writes and reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from ..decode.cache import Slots


class Placement:
    """Where a forward pass puts its tokens: `width` columns for each of `count` rows from row `first`.

    start: the column at which all rows begin, if all begin alike and fill `width`; else None
    columns: int64 [count, width], the column of each token, if they do not; padding goes to the spare column
    end: one past the last column that attention may see
    rows: which rows, if they may not be neighbours
    """

    def __init__(
        self,
        first: int,
        count: int,
        width: int,
        start: int | None,
        columns: Tensor | None,
        end: int,
        rows: list[int] | None = None,
    ) -> None:
        neighbours = rows is None or rows == list(range(first, first + count))
        self.rows = slice(first, first + count) if neighbours else rows
        self.width = width
        self.start = start
        self.end = end
        self.columns = columns
        self.index = None if columns is None else torch.arange(first, first + count, device=columns.device)[:, None]


class KeyValueSlots(Slots):
    """Keys and values of every layer: [rows, heads, capacity + 1, head size], allocated at the first pass.

    The last column is spare: rows that read fewer tokens than others write their padding there.
    """

    def __init__(self, rows: int, capacity: int, layers: int) -> None:
        super().__init__(rows, capacity)
        self.place = Placement(0, 0, 0, 0, None, 0)
        self.layers = [SlotLayer(self) for _ in range(layers)]
        self.view = Cache(layers=list[Any](self.layers))

    @property
    def bytes(self) -> int:
        """How much memory the slots take, once allocated."""
        return sum(layer.nbytes for layer in self.layers)

    def copy(self, sources: Sequence[int], targets: Sequence[int], begin: int, end: int) -> None:
        for layer in self.layers:
            if layer.keys is not None and layer.values is not None:
                layer.keys[targets, :, begin:end] = layer.keys[sources, :, begin:end]
                layer.values[targets, :, begin:end] = layer.values[sources, :, begin:end]


class SlotLayer(CacheLayerMixin):
    """One layer's keys and values, as transformers' models see them during a forward pass."""

    is_sliding = False
    supports_early_init = False

    def __init__(self, slots: KeyValueSlots) -> None:
        self.slots = slots
        self.keys: Tensor | None = None
        self.values: Tensor | None = None
        self.is_initialized = False

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate all slots. Zeros: attention multiplies what it masks by 0, and 0 times NaN is NaN."""
        shape = (self.slots.rows, self.slots.capacity + 1)
        self.keys = key_states.new_zeros(shape[0], key_states.shape[1], shape[1], key_states.shape[3])
        self.values = value_states.new_zeros(shape[0], value_states.shape[1], shape[1], value_states.shape[3])
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write the new tokens of the rows at hand; returns all that these rows hold."""
        if self.keys is None or self.values is None:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        place = self.slots.place
        if place.start is not None:
            stop = place.start + place.width
            self.keys[place.rows, :, place.start : stop] = key_states
            self.values[place.rows, :, place.start : stop] = value_states
            if place.start == 0:
                return key_states, value_states
        else:
            self.keys[place.index, :, place.columns] = key_states.transpose(1, 2)
            self.values[place.index, :, place.columns] = value_states.transpose(1, 2)
        return self.keys[place.rows, :, : place.end], self.values[place.rows, :, : place.end]

    @property
    def nbytes(self) -> int:
        """How much memory its slots take."""
        return 0 if self.keys is None or self.values is None else self.keys.nbytes + self.values.nbytes

    def get_seq_length(self) -> int:
        """Tokens before this pass, where all rows have as many: models then make their masks themselves."""
        return self.slots.place.start or 0

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of what `update` returns."""
        return self.slots.place.end, 0

    def get_max_length(self) -> int:
        """The capacity of a slot."""
        return self.slots.capacity
