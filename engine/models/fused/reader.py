"""Reads chunks by a fused decoder, where there is one for the model's body."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...memory.tables import Chunk
from ..blocks.attention import Scoring, attend
from ..blocks.devices import DeviceRows
from ..blocks.packed import PackedReader
from ..blocks.step import DeviceStep, Step
from ..blocks.storage import BlockStorage
from .decoder import FusedDecoder
from .host import HostDecoder

DECODERS: dict[str, type[FusedDecoder]] = {"cpu": HostDecoder, "cuda": FusedDecoder}
"""What runs a body, by its device."""


class FusedReader(PackedReader):
    """Runs packed steps by a fused decoder; as `PackedReader` does if its body is changed later."""

    def __init__(self, body: Any, config: Any, run: Callable[..., Tensor], fused: FusedDecoder) -> None:
        super().__init__(body, config, run)
        self.fused = fused

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is one of the copied model."""
        return type(self), (self._body, self._config, self._run, self.fused)

    @property
    def baked(self) -> tuple[int, ...]:
        """What changes when weights have moved, without a look at each module."""
        number = self.fused.prepare()
        return super().baked if number is None else (number,)

    def read(self, chunks: Sequence[Chunk], storage: Any) -> Tensor:
        """The states [chunks, size] of the last tokens."""
        if self.fused.prepare() is None:
            return super().read(chunks, storage)
        device = self._body.device
        step = Step(chunks, storage, self._reaches, device)
        ids, positions = torch.tensor([step.ids, step.positions], device=device)
        states = self._fused_states(ids, positions, step.places.on(device), step)
        return states if len(states) == len(step.last) else states[step.last]

    def read_static(self, ids: Tensor, positions: Tensor, rows: DeviceRows, storage: BlockStorage) -> Tensor:
        """The states [tokens, size] of all tokens of a step that is on the device only."""
        if self.fused.prepare() is None:
            return super().read_static(ids, positions, rows, storage)
        return self._fused_states(ids, positions, rows.slots, DeviceStep(storage.layers, self._reaches, rows))

    def _fused_states(self, ids: Tensor, positions: Tensor, slots: Tensor, step: Step | DeviceStep) -> Tensor:
        scoring = Scoring(self.fused.scale, None, None)

        def mix(number: int, queries: Tensor) -> Tensor:
            return attend(step, step.layers[number], step.reaches[number], (queries, None, None), scoring)

        return self.fused.run_prepared(ids, positions, slots, step.layers, mix)


def fused_reader(body: Any, config: Any, run: Callable[..., Tensor]) -> FusedReader | None:
    """A reader for a body whose states are wanted; None if there is no fused decoder for it."""
    decoder = DECODERS.get(body.device.type)
    fused = None if decoder is None else decoder.of(body, config)
    return None if fused is None else FusedReader(body, config, run, fused)
