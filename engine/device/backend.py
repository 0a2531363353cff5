"""Backends of the device batch: input and output of one launch, and what a backend keeps between launches."""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...kernels.device_batch.layout import (
    CLASSES,
    EMPTY,
    FREE,
    UNKNOWN,
    LaunchState,
    SlotState,
    StateTables,
    advance,
    begin,
)
from ...kernels.logits.select import masked_argmax, masked_sample
from ...tokenizers_adapter import Vocabulary
from ..memory.tables import BLOCK, BlockTable, Chunk
from ..models.protocol import DraftedModel, Memory, Model
from .state_table import DENSE, DeviceStateTable, TableUpdates, charsets

SLOTS = 256
WIDTHS = (1, 8)
"""Numbers of tokens that a slot may read in a launch. The larger one needs at most FEW slots."""
FEW = 4

TEMPERATURE, TOP_K, TOP_P, MIN_P = range(4)
"""Rows of `Launch.choices`. Temperature 0 selects the most likely token."""


class Launch(NamedTuple):
    """A step of all slots.

    rows: int32 [B, HEADER + width + blocks], see kernels/device_batch/layout.py; width: tokens for each slot
    choices: float64 [4, B]; is_greedy: all slots choose greedily; is_filtered: some have top-k or top-p
    news: changes of the state table to apply first
    """

    rows: NDArray[np.int32]
    width: int
    choices: NDArray[np.float64]
    is_greedy: bool
    is_filtered: bool
    news: TableUpdates


class BatchBackend(Protocol):
    """A backend that runs launches in order. It owns the arrays passed to it."""

    def prepare(self) -> None:
        """Check before a run that prepared launches are still valid. No launch is in flight."""
        ...

    def launch(self, launch: Launch) -> Any:
        """Start a launch asynchronously. Return the handle for `answer`."""
        ...

    def answer(self, handle: Any) -> NDArray[np.int32]:
        """Wait for a launch. Return int32 [B, TOKENS + 2 * width], see kernels/device_batch/layout.py."""
        ...


@runtime_checkable
class DeviceBatchModel(Model, Protocol):
    """A model with its own backend for device batches."""

    def batch_backend(self, memory: Memory, records: DeviceStateTable) -> BatchBackend | None:
        """Return a backend for sequences in a memory; None if the device has none."""
        ...


class DeviceTables:
    """The state table, and the state of slots between launches, in tensors of a device.

    state_tables, slot_state: see layout.py
    """

    def __init__(self, records: DeviceStateTable, vocabulary: Vocabulary, device: torch.device) -> None:
        self._device = device
        self._pins = device.type == "cuda"
        size = vocabulary.size

        def full(value: int, *shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
            return torch.full(shape, value, dtype=dtype, device=device)

        self.state_tables = StateTables(
            masks=full(0, records.count, (size + 31) // 32),
            forced=full(-1, records.count),
            loops=full(0, records.count, 3, dtype=torch.int64),
            charsets=torch.as_tensor(charsets(vocabulary)).to(device),
            keys=full(EMPTY, records.capacity, dtype=torch.int64),
            values=full(0, records.capacity),
            dense=full(UNKNOWN, records.count),
            classes=full(0, DENSE, size, dtype=torch.uint8),
            targets=full(UNKNOWN, DENSE, CLASSES),
        )
        self.slot_state = SlotState(last=full(0, SLOTS), records=full(UNKNOWN, SLOTS), ends=full(0, SLOTS))

    def write(self, news: TableUpdates) -> None:
        """Apply changes to the state table on the device."""
        tables = self.state_tables
        if news.forgotten:
            tables.keys.fill_(EMPTY)
            tables.dense.fill_(UNKNOWN)
            tables.forced.fill_(-1)
        if news.masks:
            masks = np.stack(list(news.masks.values())).view(np.int32)
            tables.masks[self._places(list(news.masks))] = self._to_device(masks)
        if news.loops:
            tables.loops[self._places(list(news.loops))] = self._to_device(np.stack(list(news.loops.values())))
        if news.forced:
            tokens = np.array(list(news.forced.values()), np.int32)
            tables.forced[self._places(list(news.forced))] = self._to_device(tokens)
        if news.transitions:
            places, keys, values = (np.array(column) for column in zip(*news.transitions, strict=True))
            where = self._places(places.tolist())
            tables.keys[where] = self._to_device(keys.astype(np.int64))
            tables.values[where] = self._to_device(values.astype(np.int32))
        if news.dense:
            rows = self._places(list(news.dense))
            records, classes, targets = zip(*news.dense.values(), strict=True)
            tables.dense[self._places(list(records))] = rows.to(torch.int32)
            tables.classes[rows] = self._to_device(np.stack(classes))
            tables.targets[rows] = self._to_device(np.stack(targets))
        if news.targets:
            found = np.array(news.targets, np.int64)
            where = self._to_device(found[:, 0] * CLASSES + found[:, 1])
            tables.targets.view(-1)[where] = self._to_device(found[:, 2].astype(np.int32))

    def _places(self, numbers: list[int]) -> Tensor:
        return self._to_device(np.array(numbers, np.int64))

    def _to_device(self, array: NDArray[Any]) -> Tensor:
        return self.staged(array).to(self._device, non_blocking=True)

    def staged(self, array: NDArray[Any]) -> Tensor:
        """Return a copy in pinned memory. torch keeps it until the device has read it."""
        staged = torch.empty(array.shape, dtype=_KINDS[array.dtype.name], pin_memory=self._pins)
        staged.numpy()[...] = array
        return staged


_KINDS = {"uint8": torch.uint8, "int32": torch.int32, "int64": torch.int64, "float64": torch.float64}


class HostBackend:
    """A host backend for tests. It runs a launch when its answer is requested, as late as a device may."""

    def __init__(self, model: DraftedModel, memory: Memory, records: DeviceStateTable) -> None:
        self._model = model
        self._memory = memory
        self._tables = DeviceTables(records, model.vocabulary, torch.device("cpu"))
        self._state_tables = StateTables(*(tensor.numpy() for tensor in self._tables.state_tables))
        self._slot_state = SlotState(*(tensor.numpy() for tensor in self._tables.slot_state))
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

    def answer(self, handle: int) -> NDArray[np.int32]:
        """Run queued launches up to this one, in order."""
        while handle not in self._answers:
            first = self._launched - len(self._waiting) + 1
            self._answers[first] = self._run(self._waiting.pop(0))
        return self._answers.pop(handle)

    def _run(self, launch: Launch) -> NDArray[np.int32]:
        state_tables = self._state_tables
        self._tables.write(launch.news)
        state = begin(launch.rows, launch.width, BLOCK, state_tables, self._slot_state)
        tokens = np.full(len(state.ids), -1, np.int32)
        slots = np.flatnonzero(state.widths).tolist()
        if slots:
            chunks = [_chunk(state, slot, launch.width) for slot in slots]
            read = np.flatnonzero(np.arange(launch.width) < state.widths[:, None])
            with torch.inference_mode():
                hidden = self._model.forward_ends(chunks, state.widths[slots].tolist(), self._memory)
                logits = self._model.logits(hidden, range(len(read)), None)
            choices = launch.choices[:, read // launch.width]
            tokens[read] = self._choose(logits.numpy(), state.records[read], choices, state.draws[read])
        return advance(tokens, state, state_tables, self._slot_state)

    def _choose(
        self,
        logits: NDArray[np.float32],
        records: NDArray[np.int32],
        choices: NDArray[np.float64],
        draws: NDArray[np.float64],
    ) -> NDArray[np.int32]:
        numbers = np.where(records == FREE, -1, records).astype(np.int32)
        masks = self._state_tables.masks
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


def _chunk(state: LaunchState, slot: int, width: int) -> Chunk:
    """Return a slot's tokens as a chunk."""
    start, count = int(state.starts[slot]), int(state.widths[slot])
    table = BlockTable()
    table.tokens = [0] * start
    table.blocks = array("i", state.tables[slot, : -(-(start + count) // BLOCK)].tolist())
    return Chunk(table, state.ids[slot * width : slot * width + count].tolist())
