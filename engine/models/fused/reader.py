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
from .gpt2 import Gpt2Decoder
from .host import HostDecoder
from .prepared import PreparedBody

DECODERS: dict[str, Sequence[type[PreparedBody]]] = {"cpu": (HostDecoder, Gpt2Decoder), "cuda": (FusedDecoder,)}
"""What runs bodies, by their device."""


class FusedReader(PackedReader):
    """Runs packed steps by a fused decoder; as `PackedReader` does if its body is changed later."""

    def __init__(self, body: Any, config: Any, run: Callable[..., Tensor], fused: PreparedBody) -> None:
        super().__init__(body, config, run)
        self.fused = fused

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is one of the copied model."""
        return type(self), (self._body, self._config, self._run, self.fused)

    @property
    def baked(self) -> tuple[Any, ...]:
        """What changes when weights have moved, without a look at each module."""
        number = self.fused.prepare()
        return super().baked if number is None else (number,)

    def _read_all(self, chunks: Sequence[Chunk], storage: Any) -> tuple[Tensor, Step]:
        """The states [tokens, size] of all tokens."""
        if self.fused.prepare() is None:
            return super()._read_all(chunks, storage)
        device = self._body.device
        step = Step(chunks, storage, self._reaches, device)
        ids, positions = torch.tensor([step.ids, step.positions], device=device)
        slots = step.places.on(device)
        states = self.fused.run_at_once(ids, positions, slots, step)
        return (self._fused_states(ids, positions, slots, step) if states is None else states), step

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
    for decoder in DECODERS.get(body.device.type, ()):
        fused = decoder.of(body, config)
        if fused is not None:
            return FusedReader(body, config, run, fused)
    return None
