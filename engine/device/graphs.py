"""The device batch on a GPU: a launch copies the input, replays a captured graph, and copies the answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...kernels.device_batch import triton_batch
from ...kernels.device_batch.layout import FREE, HEADER, TOKENS, LaunchState, room_of
from ...kernels.logits.triton_mask import MaskRows, on
from ...kernels.logits.triton_select import argmax_rows, sample_rows
from ..memory.tables import BLOCK
from ..models.blocks.storage import BlockStorage, DeviceRows
from ..models.head import Head
from ..models.packed.runner import PackedRunner
from .backend import FEW, SLOTS, TOP_K, TOP_P, WIDTHS, DeviceTables, Launch
from .capturing import WaitsError, WithoutWaiting
from .state_table import DeviceStateTable

_RING = 4
"""Number of answer buffers in turn, more than launches in flight."""


class LaunchShape(NamedTuple):
    """Constants of a graph: slots, tokens of each, blocks of each sequence, and sampling variants."""

    slots: int
    width: int
    blocks: int
    is_greedy: bool
    is_filtered: bool


class CapturedGraph(NamedTuple):
    """A captured launch. It reads `rows` and `choices`, and writes `answer`."""

    replay: Callable[[], Any]
    rows: Tensor
    choices: Tensor
    answer: Tensor


class PendingOutput(NamedTuple):
    """A launch in flight. Its answer on the host is valid after the event."""

    answer: Tensor
    event: torch.cuda.Event | None


class GraphBackend:
    """Runs slots of a packed model by CUDA graphs, one for each `LaunchShape`.

    All work goes through one stream in order. Data for a launch is there when it runs, and released blocks are only
    overwritten later. A launch that cannot be captured runs eagerly each time, such as one of experts that read data of
    the device on the host. On a CPU, with Triton's interpreter, all launches run eagerly.
    """

    def __init__(
        self,
        reader: PackedRunner,
        head: Head,
        storage: BlockStorage,
        records: DeviceStateTable,
        vocabulary: Any,
        device: Any,
    ) -> None:
        self._reader = reader
        self._head = head
        self._storage = storage
        self._device = device
        self._size: int = vocabulary.size
        self._tables = DeviceTables(records, vocabulary, device)
        self._graphs: dict[LaunchShape, CapturedGraph] = {}
        self._baked: tuple[Any, ...] = ()
        self._pool: Any = None
        self._is_captured = _has_graphs(device)
        size = max(slots * (TOKENS + 2 * width) for slots, width in zip((SLOTS, FEW), WIDTHS, strict=True))
        self._answers = [torch.empty(size, dtype=torch.int32, pin_memory=self._is_captured) for _ in range(_RING)]
        self._events = [torch.cuda.Event() if self._is_captured else None for _ in range(_RING)]
        self._turn = 0

    def prepare(self) -> None:
        """Drop graphs if weights or blocks have moved, or if modules were replaced."""
        layers = ((layer.keys.data_ptr(), layer.values.data_ptr()) for layer in self._storage.layers)
        baked = (*self._reader.baked, *self._head.baked, *layers)
        if baked != self._baked:
            self._graphs.clear()
            self._pool = None  # the last graph held it
            self._baked = baked

    def launch(self, launch: Launch) -> PendingOutput:
        """Start a launch asynchronously."""
        with on(self._tables.state_tables.masks):  # CUDA events and graphs belong to the current device
            return self._launch(launch)

    def _launch(self, launch: Launch) -> PendingOutput:
        slots = len(launch.rows)
        blocks = launch.rows.shape[1] - HEADER - room_of(launch.width)
        shape = LaunchShape(slots, launch.width, blocks, launch.is_greedy, launch.is_filtered)
        graph = self._graphs.get(shape) or self._graphs.setdefault(shape, self._prepare(shape))
        self._turn = turn = (self._turn + 1) % _RING
        self._tables.write(launch.news)
        graph.rows.copy_(self._tables.staged(launch.rows), non_blocking=True)
        if not shape.is_greedy:
            graph.choices.copy_(self._tables.staged(launch.choices), non_blocking=True)
        graph.replay()
        answer, event = self._answers[turn][: graph.answer.numel()].view_as(graph.answer), self._events[turn]
        answer.copy_(graph.answer, non_blocking=True)
        if event is not None:
            event.record()
        return PendingOutput(answer, event)

    def answer(self, handle: PendingOutput) -> NDArray[np.int32]:
        """Wait for a launch."""
        if handle.event is not None:
            handle.event.synchronize()
        return handle.answer.numpy().copy()

    def _prepare(self, shape: LaunchShape) -> CapturedGraph:
        """Run a launch without reading slots, so that kernels are compiled, and capture it."""
        columns = HEADER + room_of(shape.width) + shape.blocks
        rows = torch.zeros((shape.slots, columns), dtype=torch.int32, device=self._device)
        choices = torch.zeros((4, shape.slots), dtype=torch.float64, device=self._device)
        choices[TOP_K], choices[TOP_P] = self._size, 1
        if not self._is_captured:
            return self._without_graph(rows, choices, shape)
        saved = [each.clone() for each in self._tables.slot_state]
        now, beside = torch.cuda.current_stream(self._device), _trial_stream(self._device)
        beside.wait_stream(now)
        with torch.cuda.stream(beside):
            for _ in range(2):
                self._run(rows, choices, shape)
        now.wait_stream(beside)
        try:
            found = self._capture(rows, choices, shape)
        except WaitsError:
            found = self._without_graph(rows, choices, shape)
        for mine, before in zip(self._tables.slot_state, saved, strict=True):
            mine.copy_(before)
        return found

    def _capture(self, rows: Tensor, choices: Tensor, shape: LaunchShape) -> CapturedGraph:
        graph = torch.cuda.CUDAGraph()
        capture = torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local")
        # One capture at a time: all use one stream of torch, and each begins with a device-wide synchronisation, which
        # is not allowed during another capture.
        with _capturing, capture, WithoutWaiting(self._device):
            answer = self._run(rows, choices, shape)
        self._pool = graph.pool()
        return CapturedGraph(graph.replay, rows, choices, answer)

    def _without_graph(self, rows: Tensor, choices: Tensor, shape: LaunchShape) -> CapturedGraph:
        """Return the launch without a graph."""
        answer = torch.empty((shape.slots, TOKENS + 2 * shape.width), dtype=torch.int32, device=self._device)
        return CapturedGraph(lambda: answer.copy_(self._run(rows, choices, shape)), rows, choices, answer)

    def _run(self, rows: Tensor, choices: Tensor, shape: LaunchShape) -> Tensor:
        """Run the launch: begin, read, choose, advance."""
        state_tables, slot_state = self._tables.state_tables, self._tables.slot_state
        state: LaunchState = triton_batch.begin(rows, shape.width, BLOCK, state_tables, slot_state)
        device_rows = DeviceRows(
            state.slot_mapping,
            state.tables,
            state.firsts,
            state.widths,
            state.starts,
            shape.blocks * BLOCK,
            shape.width,
        )
        states = self._reader.read_static(state.ids, state.positions, device_rows, self._storage)
        logits = self._head.raw(states)
        numbers = torch.where(state.records == FREE, -1, state.records)
        masks = state_tables.masks
        mask_rows = MaskRows(logits, logits.stride(0), masks, masks.shape[1], masks.shape[0], numbers, self._size)
        if shape.is_greedy:
            tokens, _ = argmax_rows(mask_rows)
        else:
            choices = choices.repeat_interleave(shape.width, 1)
            tokens, _ = sample_rows(mask_rows, torch.cat([choices, state.draws[None]]), filtered=shape.is_filtered)
        return triton_batch.advance(tokens, state, state_tables, slot_state)


def _has_graphs(device: torch.device) -> bool:
    return device.type == "cuda"


@cache
def _trial_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream of trial launches. There is one per device, since cuBLAS keeps a workspace for each stream."""
    return torch.cuda.Stream(device)


_capturing = Lock()
