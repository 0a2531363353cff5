"""Storage of keys and values in blocks, and of recurrent states in slots."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ....errors import OptionError
from ....kernels.attention.paged import write_blocks
from ....kernels.attention.stored import row_length, widened_rows
from ...memory.tables import BLOCK, FREED, BlockTable


class DeviceRows(NamedTuple):
    """Rows of a step in tensors of one device. Row r is `widths[r]` tokens of the step from `firsts[r]` on.

    slots: int32 [tokens], slots for keys and values of the step's tokens, block * BLOCK + offset; -1 for none
    tables: int32 [rows, most], block ids of each row
    firsts, widths, starts: int32 [rows]; row r's tokens begin at position `starts[r]` of its text; width 0 is allowed
    longest, widest: bounds of text lengths after this step, and of widths
    """

    slots: Tensor
    tables: Tensor
    firsts: Tensor
    widths: Tensor
    starts: Tensor
    longest: int
    widest: int

    def on(self, device: torch.device) -> DeviceRows:
        """Return the rows on a device."""
        if self.slots.device == device:
            return self
        slots, tables, firsts, widths, starts = (tensor.to(device) for tensor in self[:5])
        return DeviceRows(slots, tables, firsts, widths, starts, self.longest, self.widest)

    def part(self, low: int, high: int, longest: int, widest: int) -> DeviceRows:
        """Return rows `low` to `high`."""
        tables, firsts, widths, starts = (column[low:high] for column in self[1:5])
        return DeviceRows(self.slots, tables, firsts, widths, starts, longest, widest)


def has_kernels(device: torch.device) -> bool:
    """Test whether there are kernels for tensors of this device."""
    return device.type == "cuda" and _has_triton()


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


IN_PLACE = {torch.float32, torch.float64}
"""dtypes that CPU kernels read and write in place."""


class LayerBlocks:
    """Keys and values of a layer: [blocks, heads, BLOCK, row length]. Keys and values may differ in size.

    storage_dtype: storage dtype; None for the dtype of the states
    dtype: dtype of the states, known after allocation; sizes: elements of a key and of a value
    arrays: keys and values as NumPy arrays, if kernels read them in place (see stored.py); else None
    """

    def __init__(self, blocks: int, storage_dtype: torch.dtype | None = None) -> None:
        self.blocks = blocks
        self.storage_dtype = storage_dtype
        self.dtype: torch.dtype | None = None
        self.sizes = 0, 0
        self.keys = torch.empty(0)
        self.values = torch.empty(0)
        self.arrays: tuple[NDArray[Any], NDArray[Any]] | None = None

    def write(self, keys: Tensor, values: Tensor, places: SlotMapping) -> None:
        """Write keys and values [tokens, heads, size] of new tokens."""
        self.allocate(keys, values)
        if self.arrays is not None:
            slots = places.on(keys.device).numpy()
            write_blocks(self.arrays[0], keys.contiguous().numpy(), slots)
            write_blocks(self.arrays[1], values.contiguous().numpy(), slots)
        elif has_kernels(keys.device):
            from ....kernels.attention.triton_paged import write_paged

            write_paged(self.keys, self.values, _rows(keys), _rows(values), places.on(keys.device))
        else:
            blocks, within = places.split(keys.device)
            self.keys[blocks, :, within] = keys
            self.values[blocks, :, within] = values

    def allocate(self, keys: Tensor, values: Tensor) -> None:
        """Allocate storage for keys and values like these [tokens, heads, size], unless it is allocated.

        Raises OptionError if they cannot be stored in another dtype.
        """
        if self.keys.numel():
            return
        in_place = keys.device.type == "cpu" and not has_kernels(keys.device)
        in_place = in_place and keys.dtype == values.dtype and keys.dtype in IN_PLACE
        if self.storage_dtype is not None and not (in_place and keys.dtype == torch.float32):
            kind = str(keys.dtype).removeprefix("torch.")
            raise OptionError(
                f"kv_cache_dtype: some keys and values are in {kind} on {keys.device}, and only those in float32 on a "
                "CPU can be kept in another type; leave the option out"
            )
        self.dtype, self.sizes = keys.dtype, (keys.shape[2], values.shape[2])
        self.keys = _zeros(self.blocks, keys, self.storage_dtype or keys.dtype)
        self.values = _zeros(self.blocks, values, self.storage_dtype or values.dtype)
        if in_place:
            self.arrays = _array(self.keys), _array(self.values)

    def read(self, rows: GatherIndices | RightAligned) -> tuple[Tensor, Tensor]:
        """Return keys and values [rows, heads, longest, size] of whole texts, with zeros for absent tokens."""
        keys, values = rows.of(self.keys), rows.of(self.values)
        if self.storage_dtype is None:
            return keys, values
        return _widen(keys, self.sizes[0]), _widen(values, self.sizes[1])


States = dict[Hashable, Tensor]
"""Tensors [rows, ...] by layer and kind of state."""


class BlockStorage:
    """The `Memory` of a model in torch: `LayerBlocks` of each layer, allocated at the first write.

    Recurrent states are in slots, one for each sequence. Their storage grows with the slots in use.
    layers: number of layers; 0 for models that compute every step from the whole text
    """

    def __init__(self, blocks: int, layers: int, storage_dtype: torch.dtype | None = None) -> None:
        self.layers = [LayerBlocks(blocks, storage_dtype) for _ in range(layers)]
        self._stored: States = {}

    @property
    def bytes(self) -> int:
        """Bytes of allocated blocks."""
        return sum(layer.keys.nbytes + layer.values.nbytes for layer in self.layers)

    @property
    def state_bytes(self) -> int:
        """Bytes of a text's state."""
        return sum(stored[0].nbytes for stored in self._stored.values())

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy blocks of all layers simultaneously; pairs are (from, to)."""
        if not pairs:
            return
        for layer in self.layers:
            if layer.keys.numel():
                sources, targets = torch.tensor(pairs, device=layer.keys.device).T
                layer.keys[targets] = layer.keys[sources]
                layer.values[targets] = layer.values[sources]

    def rows(self, slots: Sequence[int]) -> States:
        """Return the states of slots. For adjacent slots these are views, and in-place changes are stored."""
        first, count = slots[0], len(slots)
        if list(slots) == list(range(first, first + count)):
            return {key: stored[first : first + count] for key, stored in self._stored.items()}
        return {key: stored[torch.tensor(slots, device=stored.device)] for key, stored in self._stored.items()}

    def store(self, slots: Sequence[int], states: States) -> None:
        """Store states in slots; views of `rows` are in place already."""
        index: Tensor | None = None
        for key, state in states.items():
            stored = self._ensure_room(key, state, max(slots) + 1)
            if stored[slots[0]].data_ptr() == state.data_ptr():
                continue
            if index is None:
                index = torch.tensor(slots, device=state.device)
            stored[index] = state

    def copy_states(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy states simultaneously; pairs are slots (from, to)."""
        most = max(target for _, target in pairs) + 1
        for key in self._stored:
            stored = self._ensure_room(key, self._stored[key], most)
            sources, targets = torch.tensor(pairs, device=stored.device).T
            stored[targets] = stored[sources]

    def _ensure_room(self, key: Hashable, like: Tensor, count: int) -> Tensor:
        """Return storage of a key for at least `count` slots. like: [rows, ...] of the same shape and dtype"""
        stored = self._stored.get(key)
        if stored is not None and len(stored) >= count:
            return stored
        larger = like.new_zeros(max(count, 8 if stored is None else 2 * len(stored)), *like.shape[1:])
        if stored is not None:
            larger[: len(stored)] = stored
        self._stored[key] = larger
        return larger


class SlotMapping:
    """Slots of a pass's new tokens.

    slots: int32 [tokens], block * BLOCK + offset in the block, on any device
    """

    def __init__(self, slots: Tensor) -> None:
        self._slots = {slots.device: slots}
        self._first = slots
        self._split: tuple[Tensor, Tensor] | None = None

    def on(self, device: torch.device) -> Tensor:
        """Return the slots on a device."""
        if device not in self._slots:
            self._slots[device] = self._first.to(device)
        return self._slots[device]

    def split(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return blocks and offsets in them, int64 [tokens]."""
        if self._split is None or self._split[0].device != device:
            slots = self.on(device).long()
            self._split = slots // BLOCK, slots % BLOCK
        return self._split


class GatherIndices:
    """Indices to gather whole texts, padded on the right to the longest.

    tables: block tables of the texts; ends: lengths of the texts after this pass
    """

    def __init__(self, tables: Sequence[BlockTable], ends: Sequence[int], device: torch.device) -> None:
        longest = (max(ends) + BLOCK - 1) // BLOCK
        index = np.zeros((len(tables), longest), np.int64)
        for row, table in enumerate(tables):
            count = min(len(table.blocks), (ends[row] + BLOCK - 1) // BLOCK)
            index[row, :count] = np.frombuffer(table.blocks, np.int32, count)
        freed = index == FREED
        places = np.arange(longest * BLOCK)
        absent = (places >= np.array(ends)[:, None]) | freed.repeat(BLOCK, axis=1)
        self.end = max(ends)
        self.absent = torch.as_tensor(absent[:, : self.end]).to(device) if absent[:, : self.end].any() else None
        self._index = torch.as_tensor(np.where(freed, 0, index).ravel()).to(device)
        self._rows = len(tables)

    def of(self, stored: Tensor) -> Tensor:
        """Return keys or values [rows, heads, end, size] of these texts.

        Absent tokens have zeros: attention multiplies masked values by 0, and 0 times NaN is NaN.
        """
        _, heads, _, size = stored.shape
        blocks = stored.index_select(0, self._index).view(self._rows, -1, heads, BLOCK, size)
        texts = blocks.transpose(1, 2).reshape(self._rows, heads, -1, size)[:, :, : self.end]
        return texts if self.absent is None else texts.masked_fill(self.absent[:, None, :, None], 0)


class RightAligned:
    """Indices to gather whole texts, padded on the left to the longest.

    tables: block tables of the texts; ends: lengths of the texts after this pass
    absent: bool [rows, end], True for padding; None without padding
    """

    def __init__(self, tables: Sequence[BlockTable], ends: Sequence[int], device: torch.device) -> None:
        self.end = max(ends)
        slots = np.zeros((len(tables), self.end), np.int64)
        for row, (table, end) in enumerate(zip(tables, ends, strict=True)):
            slots[row, self.end - end :] = slots_of(table, 0, end)
        absent = np.arange(self.end) < self.end - np.array(ends)[:, None]
        self.absent = torch.as_tensor(absent).to(device) if absent.any() else None
        self._blocks = torch.as_tensor(slots // BLOCK).to(device)
        self._within = torch.as_tensor(slots % BLOCK).to(device)

    def of(self, stored: Tensor) -> Tensor:
        """Return keys or values [rows, heads, end, size] of these texts, zeros for padding as in `GatherIndices`."""
        texts = stored[self._blocks, :, self._within].transpose(1, 2)
        return texts if self.absent is None else texts.masked_fill(self.absent[:, None, :, None], 0)


def slots_of(table: BlockTable, start: int, width: int) -> NDArray[np.int32]:
    """Return the slots of tokens `start` to `start + width - 1` of a text, int32."""
    at = np.arange(start, start + width, dtype=np.int32)
    return np.frombuffer(table.blocks, np.int32)[at // BLOCK] * np.int32(BLOCK) + at % BLOCK


def _rows(entries: Tensor) -> Tensor:
    """Return [tokens, heads, size] with a contiguous last dimension, for kernels."""
    return entries if entries.stride(2) == 1 else entries.contiguous()


def _zeros(blocks: int, like: Tensor, kind: torch.dtype) -> Tensor:
    """Return zeros [blocks, heads, BLOCK, row length] for keys or values like `like` [tokens, heads, size].

    On a CPU the operating system provides memory pages at the first write of a block.
    """
    if like.device.type != "cpu":
        return like.new_zeros((blocks, like.shape[1], BLOCK, like.shape[2]), dtype=kind)
    kinds: dict[int, Any] = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
    shape = blocks, like.shape[1], BLOCK, row_length(like.shape[2], kinds[kind.itemsize])
    return torch.as_tensor(np.zeros(shape, kinds[kind.itemsize])).view(kind)


def _array(stored: Tensor) -> NDArray[Any]:
    """Return stored keys or values as an array for kernels; float16 as uint16."""
    return stored.numpy().view(np.uint16) if stored.dtype == torch.float16 else stored.numpy()


def _widen(stored: Tensor, size: int) -> Tensor:
    """Return keys or values [..., size] in float32 of rows stored in float16 or int8."""
    return torch.as_tensor(widened_rows(_array(stored))[..., :size])
