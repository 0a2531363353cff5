"""A packed step: the tokens of all chunks are concatenated, without padding."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ....kernels.attention.paged import AttentionRows
from ...memory.tables import BLOCK, Chunk
from .reach import AttentionSpan
from .storage import BlockStorage, DeviceRows, GatherIndices, LayerBlocks, SlotMapping, has_kernels, slots_of

SHORT = 16
"""Most tokens of a short chunk on a GPU. Short chunks have a kernel of their own."""
FEW = 6
"""Most tokens of a short chunk on a CPU. That kernel reads keys and values for each token, and is as fast as the kernel
of long chunks for 4 to 7 tokens."""
SDPA_PROMPT = 1024
"""Fewest tokens of a whole prompt that gets its own call of SDPA on a GPU."""


class DeviceStep(NamedTuple):
    """A step without data on the host. Contents of `rows` may change between launches of a CUDA graph."""

    layers: list[LayerBlocks]
    reaches: list[AttentionSpan]
    rows: DeviceRows
    turn: int | None = None
    mutual: list[tuple[int, int]] | None = None

    @property
    def places(self) -> SlotMapping:
        """Slots of the tokens; -1 for tokens without one."""
        return SlotMapping(self.rows.slots)

    def write(self, layer: LayerBlocks, keys: Tensor, values: Tensor) -> None:
        """Write keys and values [tokens, heads, size] of the step's tokens that have a slot."""
        slots = self.rows.slots
        if not has_kernels(keys.device):
            real = slots >= 0
            keys, values, slots = keys[real], values[real], slots[real]
        layer.write(keys, values, SlotMapping(slots))


class UploadedRows(NamedTuple):
    """Rows of a step on a device: with few tokens, with many, and whole prompts."""

    narrow: DeviceRows
    wide: DeviceRows
    prompt_rows: DeviceRows
    prompts: list[int]


class PackedStep:
    """The attention metadata of a step, shared by all layers.

    firsts, widths, starts, ends: for each chunk, the index of its first token in the step, its number of tokens, its
        position in the text, and the text's length after it
    short, long: indices of short and long chunks; rows: kernel input of the short ones
    turn: current layer, if layers share an attention module; else None
    uploaded: kernel input of all chunks on a GPU; None for a CPU
    mutual: ranges (from, to) of the step's tokens with bidirectional attention; None for models without it
    """

    def __init__(
        self, chunks: Sequence[Chunk], storage: BlockStorage, reaches: list[AttentionSpan], device: Any
    ) -> None:
        self.layers: list[LayerBlocks] = storage.layers
        self.reaches: list[AttentionSpan] = reaches
        self.turn: int | None = None
        self.mutual: list[tuple[int, int]] | None = None
        self._chunks = chunks
        self._device = device
        self.ids: list[int] = []
        self.positions: list[int] = []
        most = SHORT if has_kernels(device) else FEW
        slots = array("i")
        self.firsts, self.widths, self.starts = array("i"), array("i"), array("i")
        for table, tokens in chunks:
            start, width, blocks = len(table.tokens), len(tokens), table.blocks
            self.firsts.append(len(self.ids))
            self.widths.append(width)
            self.starts.append(start)
            self.ids += tokens
            if width == 1:
                self.positions.append(start)
                slots.append(blocks[start // BLOCK] * BLOCK + start % BLOCK)
            else:
                self.positions += range(start, start + width)
                slots.frombytes(slots_of(table, start, width).tobytes())
        self.ends = [start + width for start, width in zip(self.starts, self.widths, strict=True)]
        self.short = [row for row, width in enumerate(self.widths) if width <= most]
        self.long = [row for row, width in enumerate(self.widths) if width > most]
        self.uploaded = self._upload(slots) if has_kernels(device) else None
        host = torch.frombuffer(slots, dtype=torch.int32)
        self.places = SlotMapping(host if self.uploaded is None else self.uploaded.narrow.slots)
        self.rows = self._rows(self.short)
        self._scratch: dict[Any, NDArray[Any]] = {}
        self._blocks: dict[int, NDArray[np.int32]] = {}
        self._gather_cache: dict[tuple[int, ...], GatheredChunks] = {}
        self.last = [first + width - 1 for first, width in zip(self.firsts, self.widths, strict=True)]

    def _rows(self, chosen: list[int]) -> AttentionRows:
        """Return kernel rows of chosen chunks."""
        if not chosen:
            none = np.empty(0, np.int32)
            return AttentionRows(none, none, none, none, none)
        blocks, tables = array("i"), array("i")
        for chunk in chosen:
            tables.append(len(blocks))
            blocks.extend(self._chunks[chunk].table.blocks)
        columns = [np.frombuffer(column, np.int32) for column in (self.firsts, self.widths, self.starts)]
        if len(chosen) < len(self.firsts):
            columns = [column[chosen] for column in columns]
        return AttentionRows(np.frombuffer(blocks, np.int32), np.frombuffer(tables, np.int32), *columns)

    @property
    def long_rows(self) -> AttentionRows:
        """Kernel rows of the long chunks."""
        return self._rows(self.long)

    def rows_of(self, width: int) -> AttentionRows:
        """Return kernel rows of all chunks, cut into pieces of up to `width` tokens."""
        blocks, pieces = array("i"), array("i")
        for first, count, start, chunk in zip(self.firsts, self.widths, self.starts, self._chunks, strict=True):
            for at in range(0, count, width):
                pieces.extend((len(blocks), first + at, min(width, count - at), start + at))
            blocks.extend(chunk.table.blocks)
        columns = np.frombuffer(pieces, np.int32).reshape(-1, 4).T
        return AttentionRows(np.frombuffer(blocks, np.int32), *(np.ascontiguousarray(column) for column in columns))

    @property
    def limits(self) -> NDArray[np.int64]:
        """Attention span of each layer [layers, 2]: window and chunk, 0 for unbounded."""
        return np.array([(reach.window or 0, reach.chunk or 0) for reach in self.reaches], np.int64)

    def _upload(self, slots: array[int]) -> UploadedRows:
        """Copy all kernel inputs to the device in one asynchronous transfer."""
        wide: list[int] = []
        prompts: list[int] = []
        for row in self.long:
            (prompts if self.starts[row] == 0 and self.widths[row] >= SDPA_PROMPT else wide).append(row)
        kinds = (self.short, wide, prompts)
        order = [row for kind in kinds for row in kind]
        count, tokens = len(order), len(slots)
        most = (max(self.ends) + BLOCK - 1) // BLOCK
        packed = torch.zeros(tokens + (3 + most) * count, dtype=torch.int32, pin_memory=self._device.type == "cuda")
        numbers = packed.numpy()
        numbers[:tokens] = slots
        columns = numbers[tokens : tokens + 3 * count].reshape(3, count)
        for column, values in zip(columns, (self.firsts, self.widths, self.starts), strict=True):
            column[:] = np.frombuffer(values, np.int32)[order]
        tables = numbers[tokens + 3 * count :].reshape(count, most)
        for place, row in enumerate(order):
            blocks = self._chunks[row].table.blocks
            used = min(len(blocks), most)
            tables[place, :used] = np.frombuffer(blocks, np.int32, used)
        moved = packed.to(self._device, non_blocking=True)
        firsts, widths, starts = moved[tokens : tokens + 3 * count].view(3, count)
        rows = DeviceRows(moved[:tokens], moved[tokens + 3 * count :].view(count, most), firsts, widths, starts, 0, 0)
        parts: list[DeviceRows] = []
        low = 0
        for kind in kinds:
            ends, widths = ([column[row] for row in kind] for column in (self.ends, self.widths))
            parts.append(rows.part(low, low + len(kind), max(ends, default=0), max(widths, default=0)))
            low += len(kind)
        narrow, many, long = parts
        return UploadedRows(narrow, many, long, prompts)

    def write(self, layer: LayerBlocks, keys: Tensor, values: Tensor) -> None:
        """Write keys and values [tokens, heads, size] of the step's tokens."""
        layer.write(keys, values, self.places)

    def blocks_of(self, chunk: int) -> NDArray[np.int32]:
        """Return the block ids of a long chunk's text."""
        if chunk not in self._blocks:
            # A copy: an array that views a table prevents its growth.
            self._blocks[chunk] = np.array(self._chunks[chunk].table.blocks, np.int32)
        return self._blocks[chunk]

    def scratch(self, part: int, heads: int, dtype: Any) -> NDArray[Any]:
        """Return a thread's buffer for the scores of one token."""
        key = part, heads, dtype
        if key not in self._scratch:
            longest = max(self.ends[row] for row in self.short)
            self._scratch[key] = np.empty((heads, longest), dtype)
        return self._scratch[key]

    def similar(self) -> list[list[int]]:
        """Return the short chunks grouped by similar lengths."""
        found: dict[tuple[int, int], list[int]] = {}
        for row in self.short:
            length = (self.ends[row] // BLOCK).bit_length(), (self.widths[row] - 1).bit_length()
            found.setdefault(length, []).append(row)
        return list(found.values())

    def gather(self, chosen: list[int]) -> GatheredChunks:
        """Return the texts of chosen chunks, cached for all layers."""
        key = tuple(chosen)
        if key not in self._gather_cache:
            self._gather_cache[key] = GatheredChunks(self, self._chunks, chosen, self._device)
        return self._gather_cache[key]


class GatheredChunks:
    """Texts of some chunks of a step, padded.

    tokens: int64 [rows, width], indices in the step; shorter chunks repeat their last; real: bool, False for repeats
    positions: of the same tokens in their texts
    """

    def __init__(self, step: PackedStep, chunks: Sequence[Chunk], chosen: list[int], device: Any) -> None:
        self._texts = GatherIndices([chunks[row].table for row in chosen], [step.ends[row] for row in chosen], device)
        width = max(step.widths[row] for row in chosen)
        lengths, firsts, starts = (
            torch.tensor([numbers[row] for row in chosen], device=device)[:, None]
            for numbers in (step.widths, step.firsts, step.starts)
        )
        steps = torch.arange(width, device=device)
        within = torch.minimum(steps, lengths - 1)
        self.tokens: Tensor = firsts + within
        self.positions: Tensor = starts + within
        self.real: Tensor = steps < lengths

    def of_layer(self, layer: LayerBlocks) -> tuple[Tensor, Tensor]:
        """Return keys and values [rows, heads, tokens, size]."""
        return layer.read(self._texts)
