"""Backends of the device batch: input and output of one launch."""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

from ...kernels.lanes.layout import CLASSES, EMPTY, FREE, UNKNOWN, LaunchState, SlotState, StateTables, advance, begin
from ...kernels.logits.select import masked_argmax, masked_sample
from ..memory.tables import BLOCK, BlockTable, Chunk
from ..models.protocol import DraftedModel, Memory, Model
from .state_table import DENSE, DeviceStateTable, News, charsets

LANES = 256
WIDTHS = (1, 8)
"""Numbers of tokens that a slot may read in a launch. The larger one needs at most FEW slots."""
FEW = 4

TEMPERATURE, TOP_K, TOP_P, MIN_P = range(4)
"""Rows of `Launch.choices`. Temperature 0 selects the most likely token."""


class Launch(NamedTuple):
    """A step of all slots.

    rows: int32 [B, HEADER + width + blocks], see kernels/lanes/layout.py; width: tokens for each slot
    choices: float64 [4, B]; is_greedy: all slots choose greedily; is_filtered: some have top-k or top-p
    news: changes of the state table to apply first
    """

    rows: NDArray[np.int32]
    width: int
    choices: NDArray[np.float64]
    is_greedy: bool
    is_filtered: bool
    news: News


class BatchBackend(Protocol):
    """A backend that runs launches in order. It owns the arrays passed to it."""

    def prepare(self) -> None:
        """Check before a run that prepared launches are still valid. No launch is in flight."""
        ...

    def launch(self, launch: Launch) -> Any:
        """Start a launch asynchronously. Return the handle for `answer`."""
        ...

    def answer(self, begun: Any) -> NDArray[np.int32]:
        """Wait for a launch. Return int32 [B, TOKENS + 2 * width], see kernels/lanes/layout.py."""
        ...


@runtime_checkable
class DeviceBatchModel(Model, Protocol):
    """A model with its own backend for device batches."""

    def lanes(self, memory: Memory, records: DeviceStateTable) -> BatchBackend | None:
        """Return a backend for sequences in a memory; None if the device has none."""
        ...


class HostBackend:
    """A host backend for tests. It runs a launch when its answer is requested, as late as a device may."""

    def __init__(self, model: DraftedModel, memory: Memory, records: DeviceStateTable) -> None:
        self._model = model
        self._memory = memory
        size = model.vocabulary.size
        self._known = StateTables(
            np.zeros((records.count, (size + 31) // 32), np.uint32),
            np.full(records.count, -1, np.int32),
            np.zeros((records.count, 3), np.int64),
            charsets(model.vocabulary),
            np.full(records.capacity, EMPTY, np.int64),
            np.zeros(records.capacity, np.int32),
            np.full(records.count, UNKNOWN, np.int32),
            np.zeros((DENSE, size), np.uint8),
            np.full((DENSE, CLASSES), UNKNOWN, np.int32),
        )
        self._kept = SlotState(np.zeros(LANES, np.int32), np.full(LANES, UNKNOWN, np.int32), np.zeros(LANES, np.int32))
        self._waiting: list[Launch] = []
        self._answers: dict[int, NDArray[np.int32]] = {}
        self._launched = 0

    def prepare(self) -> None:
        """Do nothing: there is nothing to check."""

    def launch(self, launch: Launch) -> int:
        """Queue a launch and return its number."""
        self._waiting.append(launch)
        self._launched += 1
        return self._launched

    def answer(self, begun: int) -> NDArray[np.int32]:
        """Run queued launches up to this one, in order."""
        while begun not in self._answers:
            first = self._launched - len(self._waiting) + 1
            self._answers[first] = self._run(self._waiting.pop(0))
        return self._answers.pop(begun)

    def _run(self, launch: Launch) -> NDArray[np.int32]:
        known = self._known
        if launch.news.forgotten:
            known.keys[:] = EMPTY
            known.dense[:] = UNKNOWN
            known.forced[:] = -1
        for number, mask in launch.news.masks.items():
            known.masks[number] = mask
        for number, back in launch.news.loops.items():
            known.loops[number] = back
        for number, token in launch.news.forced.items():
            known.forced[number] = token
        for place, key, value in launch.news.transitions:
            known.keys[place], known.values[place] = key, value
        for row, (record, classes, targets) in launch.news.dense.items():
            known.dense[record], known.classes[row], known.targets[row] = row, classes, targets
        for row, number, record in launch.news.targets:
            known.targets[row, number] = record
        begun = begin(launch.rows, launch.width, BLOCK, known, self._kept)
        tokens = np.full(len(begun.ids), -1, np.int32)
        lanes = np.flatnonzero(begun.widths).tolist()
        if lanes:
            chunks = [_chunk(begun, lane, launch.width) for lane in lanes]
            read = np.flatnonzero(np.arange(launch.width) < begun.widths[:, None])
            with torch.inference_mode():
                hidden = self._model.forward_ends(chunks, begun.widths[lanes].tolist(), self._memory)
                logits = self._model.logits(hidden, range(len(read)), None)
            choices = launch.choices[:, read // launch.width]
            tokens[read] = self._choose(logits.numpy(), begun.records[read], choices, begun.draws[read])
        return advance(tokens, begun, known, self._kept)

    def _choose(
        self,
        logits: NDArray[np.float32],
        records: NDArray[np.int32],
        choices: NDArray[np.float64],
        draws: NDArray[np.float64],
    ) -> NDArray[np.int32]:
        numbers = np.where(records == FREE, -1, records).astype(np.int32)
        masks = self._known.masks
        best: NDArray[np.int32] = masked_argmax(logits, masks, numbers).tokens
        warm = choices[TEMPERATURE] > 0
        drawn: NDArray[np.int32] = masked_sample(
            logits,
            draws,
            masks,
            numbers,
            temperature=np.where(warm, choices[TEMPERATURE], 1),
            top_k=choices[TOP_K],
            top_p=choices[TOP_P],
            min_p=choices[MIN_P],
        ).tokens
        return np.where(warm, drawn, best)


def _chunk(begun: LaunchState, lane: int, width: int) -> Chunk:
    """Return a slot's tokens as a chunk."""
    start, count = int(begun.starts[lane]), int(begun.widths[lane])
    table = BlockTable()
    table.tokens = [0] * start
    table.blocks = array("i", begun.tables[lane, : -(-(start + count) // BLOCK)].tolist())
    return Chunk(table, begun.ids[lane * width : lane * width + count].tolist())
