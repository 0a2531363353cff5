"""The runner that calls a decoder's own modules, on chunks as rows [rows, width].

A transformers cache passes keys, values and recurrent states from `BlockStorage` to the modules. Without a cache, each
step reads whole texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from itertools import accumulate, groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import OptionError
from ..memory.tables import BlockTable, Chunk
from .blocks.reach import AttentionSpan, LayerMemory, reaches
from .blocks.storage import BlockStorage, GatherIndices, LayerBlocks, RightAligned, SlotMapping, slots_of
from .caches import CacheLayer, Carrier, CurrentLayer, ScanChunks
from .modules import Modules
from .packed.runner import PackedRunner
from .ways import Way


class ForwardPass:
    """Input of one forward pass: chunks as rows [rows, width], padded on the right.

    aligned: the chunks have equal widths, and attention gets their texts padded on the left
    start: common start of the chunks in their texts; None if starts differ
    alike: True if the chunks have equal widths
    end: number of key columns
    before: number of key columns before the new tokens; 0 for differing starts, unless aligned
    ids: int64 [rows, width]; real: bool [rows, width], False for padding; None without padding
    positions: int64 [rows, width], positions in the texts; padding repeats a row's last; [1, width] for a common start
    layers: layers of the cache for the model
    """

    def __init__(
        self, chunks: Sequence[Chunk], storage: BlockStorage, device: torch.device, *, aligned: bool = False
    ) -> None:
        self._chunks, self._device, self._is_aligned = chunks, device, aligned
        self._starts = [len(table.tokens) for table, _ in chunks]
        self.widths = [len(tokens) for _, tokens in chunks]
        self._ends = [start + width for start, width in zip(self._starts, self.widths, strict=True)]
        width, self.end = max(self.widths), max(self._ends)
        self.start = self._starts[0] if self._starts.count(self._starts[0]) == len(self._starts) else None
        self.alike = self.widths.count(width) == len(self.widths)
        self.ids = _pad([tokens for _, tokens in chunks], device)
        steps, lasts = torch.arange(width, device=device), torch.tensor(self.widths, device=device)[:, None] - 1
        if self.start is not None:
            self.positions = (steps + self.start)[None]
        else:
            self.positions = torch.tensor(self._starts, device=device)[:, None] + torch.minimum(steps, lasts)
        self.real = None if self.alike else steps <= lasts
        self.before = self.end - width if aligned else self.start or 0
        self.layers: list[Any] = [_BlockLayer(self, layer) for layer in storage.layers]

    @cached_property
    def places(self) -> SlotMapping:
        """Slots for the keys and values of the tokens."""
        several = zip(self._chunks, self._starts, self.widths, strict=True)
        slots = [slots_of(chunk.table, start, width) for chunk, start, width in several]
        return SlotMapping(torch.as_tensor(np.concatenate(slots)))

    @cached_property
    def texts(self) -> GatherIndices | RightAligned | None:
        """The texts to gather from blocks; None if all chunks begin their texts."""
        gathered = RightAligned if self._is_aligned else GatherIndices
        tables = [table for table, _ in self._chunks]
        return None if self.start == 0 else gathered(tables, self._ends, self._device)


class _BlockLayer(CacheLayer):
    """A layer's keys and values in blocks, as a cache layer for one pass."""

    def __init__(self, run: ForwardPass, blocks: LayerBlocks) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self.run = run
        self.blocks = blocks

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write the new tokens. Return the keys and values of the whole texts."""
        run = self.run
        keys, values = (
            states.transpose(1, 2).flatten(0, 1) if run.real is None else states.transpose(1, 2)[run.real]
            for states in (key_states, value_states)
        )
        self.blocks.write(keys, values, run.places)
        # Chunks that begin their texts only have padding on the right, which causal attention does not see.
        return (key_states, value_states) if run.texts is None else self.blocks.read(run.texts)

    def get_seq_length(self) -> int:
        """Return the number of key columns before the new tokens. Models create their masks from it."""
        return self.run.before

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return length and offset of the keys that `update` returns."""
        return self.run.end, 0


def _pad(rows: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """Return tokens int64 [rows, width]. Each row is padded with its last token."""
    width = max(map(len, rows))
    return torch.tensor([[*row, *[row[-1]] * (width - len(row))] for row in rows], device=device)


def by_cut(chunks: Sequence[Chunk], *, is_cut: bool = True) -> list[list[int]]:
    """Group chunks by equal start and width, ordered by start; the chunks of a group are ordered by slot.

    A chunk may read blocks that another chunk fills. The other one starts earlier in its text, and so runs first.
    is_cut: False to treat all starts above 0 as equal, for models with states, which reuse no prefixes
    """

    def cut(row: int) -> tuple[int, int]:
        start, width = len(chunks[row].table.tokens), len(chunks[row].tokens)
        return start if is_cut else min(start, 1), width

    order = sorted(range(len(chunks)), key=lambda row: (cut(row), chunks[row].table.slot))
    return [list(alike) for _, alike in groupby(order, cut)]


def by_length(chunks: Sequence[Chunk]) -> list[list[int]]:
    """Group neighbours of equal width in the order of starts, for the reason in `by_cut`."""
    order = sorted(range(len(chunks)), key=lambda row: (len(chunks[row].table.tokens), len(chunks[row].tokens)))
    return [list(alike) for _, alike in groupby(order, lambda row: len(chunks[row].tokens))]


def by_width(chunks: Sequence[Chunk]) -> list[list[int]]:
    """Group neighbours of similar width in the order of starts. The rows of a group are padded to one width."""
    order = sorted(range(len(chunks)), key=lambda row: len(chunks[row].table.tokens))
    return [list(alike) for _, alike in groupby(order, lambda row: (len(chunks[row].tokens) - 1).bit_length())]


def ends_of(states: Tensor, widths: Sequence[int], ends: Sequence[int] | None) -> Tensor:
    """Return the states [rows, size] of the last tokens, from states [rows, width, size] of rows of `widths` tokens.

    ends: return the states [sum(ends), size] of the last ends[i] tokens of row i instead
    """
    if ends is None:
        if min(widths) == states.shape[1]:
            return states[:, -1]
        ends = [1] * len(widths)
    both = list(zip(widths, ends, strict=True))
    rows = [row for row, (_, count) in enumerate(both) for _ in range(count)]
    return states[rows, [place for width, count in both for place in range(width - count, width)]]


Read = Callable[[Sequence[Chunk], Sequence[int] | None], Tensor]
"""Function that reads chunks, and returns states of the last ends[i] tokens of chunk i; of the last token for None."""


def in_passes(
    chunks: Sequence[Chunk], groups: list[list[int]], read: Read, ends: Sequence[int] | None = None
) -> Tensor:
    """Call `read` for each group of chunks. Return the states [chunks, size] in the order of the chunks.

    ends: numbers of last tokens of each chunk; the result is [sum(ends), size]
    """
    if len(groups) == 1 and groups[0] == list(range(len(chunks))):
        return read(chunks, ends)
    parts = [
        read([chunks[row] for row in group], None if ends is None else [ends[row] for row in group]) for group in groups
    ]
    counts = [1] * len(chunks) if ends is None else ends
    starts = list(accumulate(counts, initial=0))
    hidden = parts[0].new_empty(starts[-1], parts[0].shape[1])
    for group, part in zip(groups, parts, strict=True):
        hidden[[place for row in group for place in range(starts[row], starts[row + 1])]] = part
    return hidden


class BodyRunner:
    """A `Runner` that calls a decoder's own modules once for each group of chunks, or for each token of a group.

    way: the grouping of chunks, and the arguments of the modules, see `Way`
    kinds: the memory of each layer; carrier: passes states to the modules
    packed: attention over blocks, which permits different starts in a group; None for the model's own attention
    masks: attention masks for groups of rows with different starts or widths
    """

    def __init__(
        self,
        modules: Modules,
        way: Way,
        device: torch.device,
        kinds: Sequence[LayerMemory],
        carrier: Carrier,
        packed: PackedRunner | None = None,
        masks: AttentionMasks | None = None,
    ) -> None:
        self._modules = modules
        self._way = way
        self._device = device
        self._carrier = carrier
        self._packed = packed
        self._masks = masks
        self._scans = ScanChunks(device)
        self._is_cut = packed is None and any(kind.reach is not None for kind in kinds)

    def read(self, chunks: Sequence[Chunk], storage: Any, ends: Sequence[int] | None = None) -> Tensor:
        """Return states [chunks, size] of the last tokens, or [sum(ends), size] of the last ends[i] of chunk i."""
        return in_passes(chunks, self._groups(chunks), partial(self._read, storage), ends)

    def _groups(self, chunks: Sequence[Chunk]) -> list[list[int]]:
        if self._way.alone:
            return [[row] for row in range(len(chunks))]
        match self._way.rows:
            case "whole":
                return [list(range(len(chunks)))]
            case "padded":
                return by_width(chunks)
            case "aligned":
                return by_length(chunks)
            case _:
                return by_cut(chunks, is_cut=self._is_cut)

    def _read(self, storage: Any, chunks: Sequence[Chunk], ends: Sequence[int] | None) -> Tensor:
        """Run one group; see `read`."""
        widths = [len(tokens) for _, tokens in chunks]
        if self._way.rows == "whole":
            texts = [[*table.tokens, *tokens] for table, tokens in chunks]
            widths, states = list(map(len, texts)), self._modules(_pad(texts, self._device), use_cache=False)
        elif self._way.continues or widths[0] == 1 or not chunks[0].table.tokens:
            states = self._pass(storage, chunks)
        else:
            places = range(widths[0])
            states = torch.cat([self._pass(storage, [_token_chunk(chunk, at) for chunk in chunks]) for at in places], 1)
        return ends_of(states, widths, ends)

    def _pass(self, storage: BlockStorage, chunks: Sequence[Chunk]) -> Tensor:
        """Return the states [rows, width, size] of all tokens."""
        slots, network = [table.slot for table, _ in chunks], self._modules.network
        before = storage.rows(slots) if chunks[0].table.tokens else None
        run: Callable[..., Tensor] = self._modules
        extra: dict[str, Any] = {}
        layers: Sequence[Any]
        if self._packed is None:
            batch = ForwardPass(chunks, storage, self._device, aligned=self._way.rows == "aligned")
            ids, positions, layers, extra = batch.ids, batch.positions, batch.layers, self._mask_of(batch, len(chunks))
        else:
            step = self._packed.step(chunks, storage)
            ids, positions = torch.tensor([step.ids, step.positions], device=self._device).view(2, len(chunks), -1)
            layers = [CurrentLayer(step, number) for number in range(len(storage.layers))]
            run = partial(self._packed.run, step=step)
        if self._modules.takes_positions:
            extra["position_ids"] = positions
        with self._scans.of(network, ids.shape[1]), self._carrier(network, layers, before) as inputs:
            states = run(ids, use_cache=True, **inputs.arguments, **extra)
        storage.store(slots, inputs.found)
        return states

    def _mask_of(self, batch: ForwardPass, rows: int) -> dict[str, Any]:
        """Return the mask of a pass as an argument, for models that need one."""
        if self._masks is not None:
            is_plain = batch.start == 0 or (batch.start is not None and batch.alike)  # the model's own masks suffice
            return {"attention_mask": None if is_plain else self._masks(batch.positions.expand(rows, -1), batch.end)}
        if self._way.rows == "aligned" and batch.texts is not None and batch.texts.absent is not None:
            return {"attention_mask": (~batch.texts.absent).long()}
        return {}


def _token_chunk(chunk: Chunk, place: int) -> Chunk:
    """Return a chunk of one token, whose table contains the tokens before it. place: index of the token in the chunk"""
    table, tokens = chunk
    before = BlockTable(table.source)
    before.tokens, before.blocks, before.slot = [*table.tokens, *tokens[:place]], table.blocks, table.slot
    return Chunk(before, tokens[place : place + 1])


class AttentionMasks:
    """Attention masks by layer type, as the configuration defines them.

    Raises OptionError for layers other than full, sliding-window or chunked attention.
    """

    def __init__(self, config: Any, implementation: str, dtype: torch.dtype) -> None:
        if implementation not in ("sdpa", "eager"):
            raise OptionError(
                f"attention implementation {implementation!r} cannot run rows of different lengths; load the "
                "model with attn_implementation='sdpa' or 'eager', or pass cache=False"
            )
        self._is_additive = implementation == "eager"
        self._dtype = dtype
        self._reaches = reaches(config)

    def __call__(self, positions: Tensor, end: int) -> Tensor | dict[str, Tensor]:
        """Return a mask [rows, 1, width, end], or a dict by layer type if there are several."""
        masks = {kind: self._mask(reach, positions, end) for kind, reach in self._reaches.items()}
        return masks if len(masks) > 1 else next(iter(masks.values()))

    def _mask(self, reach: AttentionSpan, positions: Tensor, end: int) -> Tensor:
        seen = reach.allowed(positions, end)
        if not self._is_additive:
            return seen
        lowest = torch.finfo(self._dtype).min
        return torch.zeros(seen.shape, dtype=self._dtype, device=seen.device).masked_fill_(~seen, lowest)
