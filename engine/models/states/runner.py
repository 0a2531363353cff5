"""Models whose layers keep a state: passes of rows that are as long, so that padding never reaches a state."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...memory.tables import BlockTable, Chunk
from ..blocks.reach import LayerMemory
from ..body.passes import Pass, ends_of, in_passes
from ..body.runner import Run
from ..packed.runner import PackedRunner
from .carriers import Carrier
from .layers import TurnLayer
from .storage import StateStorage

_FEW, _MANY = 16, 32
"""Tokens of a chunk that is scanned, in a pass of few and of many."""


class StatesRunner:
    """Rows that are as long together, all of which begin, or all of which go on.

    body: what `run` calls; carrier: how it gets its states; takes_positions: whether it takes positions of tokens
    packed: attention out of blocks, for which rows may begin anywhere; None where the model's own attention needs
        rows that begin alike
    continues: whether a text can go on with several tokens at once; else it does so with one after the other
    alone: whether each text runs by itself, where a model mixes those that go on together
    scans: the modules that scan in chunks
    """

    def __init__(
        self, body: Any, kinds: Sequence[LayerMemory], run: Run, *, carrier: Carrier, device: torch.device,
        takes_positions: bool, packed: PackedRunner | None, continues: bool, alone: bool, scans: Scans,
    ) -> None:  # fmt: skip
        self._body = body
        self._kinds = kinds
        self._run = run
        self._carrier = carrier
        self._device = device
        self._takes_positions = takes_positions
        self._packed = packed
        self._continues = continues
        self._alone = alone
        self._scans = scans
        self._is_cut = packed is None and any(kind.reach is not None for kind in kinds)

    def read(self, chunks: Sequence[Chunk], storage: Any, ends: Sequence[int] | None = None) -> Tensor:
        """The states [chunks, size] of the last tokens; with ends [sum(ends), size], so many of each chunk."""
        groups = self._groups(chunks)
        if len(groups) == 1 and groups[0] == list(range(len(chunks))):
            return self._group(storage, chunks, ends)
        return in_passes(chunks, groups, partial(self._group, storage), ends)

    def _groups(self, chunks: Sequence[Chunk]) -> list[list[int]]:
        """Which chunks to run together, in the order of their slots."""
        if self._alone:
            return [[row] for row in range(len(chunks))]
        alike: dict[tuple[int, int], list[int]] = {}
        for row in sorted(range(len(chunks)), key=lambda row: chunks[row].table.slot):
            start, width = len(chunks[row].table.tokens), len(chunks[row].tokens)
            alike.setdefault((start if self._is_cut else min(start, 1), width), []).append(row)
        return list(alike.values())

    def _group(self, storage: StateStorage, chunks: Sequence[Chunk], ends: Sequence[int] | None) -> Tensor:
        width, most = len(chunks[0].tokens), 1 if ends is None else max(ends)
        if self._continues or width == 1 or not chunks[0].table.tokens:
            states = self._pass(storage, chunks)
        else:
            last: deque[Tensor] = deque(maxlen=most)
            for place in range(width):
                last.append(self._pass(storage, [_one(chunk, place) for chunk in chunks]))
            states = torch.cat(list(last), 1)
        return states[:, -1] if ends is None else ends_of(states, [states.shape[1]] * len(chunks), ends)

    def _pass(self, storage: StateStorage, chunks: Sequence[Chunk]) -> Tensor:
        """The states [rows, width, size] of all tokens."""
        slots = [table.slot for table, _ in chunks]
        before = storage.rows(slots) if chunks[0].table.tokens else None
        ids, positions, attention, run = self._shown(storage, chunks)
        more = {"position_ids": positions} if self._takes_positions and positions is not None else {}
        with self._scans.of(ids.shape[1]), self._carrier.shown(self._body, attention, before) as now:
            states = run(ids, use_cache=True, **now.arguments, **more)
        storage.store(slots, now.found)
        return states

    def _shown(self, storage: StateStorage, chunks: Sequence[Chunk]) -> tuple[Tensor, Tensor | None, list[Any], Run]:
        """Ids and positions [rows, width], the layers of the cache that attend, and how to call the model."""
        if self._packed is not None:
            step = self._packed.step(chunks, storage)
            numbers = torch.tensor([step.ids, step.positions], device=self._device).view(2, len(chunks), -1)
            attention: list[Any] = [TurnLayer(step, number) for number in range(len(self._kinds))]
            return numbers[0], numbers[1], attention, self._packed.over(step)
        if self._is_cut:
            alike = Pass(chunks, storage, self._device)
            return alike.ids, alike.positions, alike.view.layers, self._run
        ids = torch.tensor([tokens for _, tokens in chunks], device=self._device)
        positions = None
        if self._takes_positions:
            starts = torch.tensor([len(table.tokens) for table, _ in chunks], device=self._device)
            positions = starts[:, None] + torch.arange(ids.shape[1], device=self._device)
        return ids, positions, [None] * len(self._kinds), self._run


def _one(chunk: Chunk, place: int) -> Chunk:
    """One token of a chunk, as if those before it had been read."""
    table, tokens = chunk
    before = BlockTable(table.source)
    before.tokens, before.blocks, before.slot = [*table.tokens, *tokens[:place]], table.blocks, table.slot
    return Chunk(before, tokens[place : place + 1])


class Scans:
    """The modules of a body that scan tokens in chunks (Mamba 2 and its kin), and how long a pass lets these be.

    What they compute is the same for every length of chunks, but for rounding. Configurations say 256, which suits
    kernels of GPUs; in torch the work grows with its square, and a prompt of 8 tokens is filled up to it: measured with
    Mamba 2 of hidden size 256, 8 tokens took 62 ms with chunks of 256 and 5 ms with chunks of 16, and 512 tokens 147 ms
    and 55 ms with chunks of 32.
    """

    def __init__(self, body: Any, device: torch.device) -> None:
        found = body.modules() if device.type == "cpu" else ()
        self._scanning = [(module, size) for module in found if (size := _chunks(module)) > _FEW]

    @contextmanager
    def of(self, width: int) -> Generator[None, None, None]:
        """The modules as a pass of so many tokens wants them; then as they were."""
        if width == 1 or not self._scanning:
            yield
            return
        try:
            for module, size in self._scanning:
                module.chunk_size = min(size, _FEW if width <= _FEW else _MANY)
            yield
        finally:
            for module, size in self._scanning:
                module.chunk_size = size


def _chunks(module: Any) -> int:
    """Number of tokens that a module scans at once; 0 for one that does not scan as Mamba 2 does."""
    size: Any = getattr(module, "chunk_size", None)
    return size if type(size) is int and isinstance(getattr(module, "A_log", None), torch.Tensor) else 0
