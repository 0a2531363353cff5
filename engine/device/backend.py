"""Backends of the device batch: what one launch is told and answers."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..models.protocol import Memory, Model
from .state_table import DeviceStateTable, News

LANES = 256
WIDTHS = (1, 8)
"""Tokens that a lane may read in a launch; more than one only where lanes are few."""
FEW = 4

TEMPERATURE, TOP_K, TOP_P, MIN_P = range(4)
"""Rows of what a launch is told of choices; a temperature of 0 is the most likely token."""


class Launch(NamedTuple):
    """A step of lanes.

    rows: int32 [B, HEADER + width + blocks], see kernels/lanes/layout.py; width: of these, the tokens
    choices: float64 [4, B]; is_greedy: all take the most likely token; is_filtered: some have a top k or top p
    """

    rows: NDArray[np.int32]
    width: int
    choices: NDArray[np.float64]
    is_greedy: bool
    is_filtered: bool
    news: News


class BatchBackend(Protocol):
    """Runs launches in their order. Arrays that it is given are its own."""

    def prepare(self) -> None:
        """See to it that what was prepared for launches still holds; none is under way."""
        ...

    def launch(self, launch: Launch) -> Any:
        """Begin a launch, without waiting for it: what `answer` takes."""
        ...

    def answer(self, begun: Any) -> NDArray[np.int32]:
        """Wait for a launch: int32 [B, TOKENS + 2 * width], see kernels/lanes/layout.py."""
        ...


@runtime_checkable
class DeviceBatchModel(Model, Protocol):
    """A model whose rows may go on by themselves."""

    def lanes(self, memory: Memory, records: DeviceStateTable) -> BatchBackend | None:
        """A backend for lanes whose texts lie in a memory; None if this device has none."""
        ...
