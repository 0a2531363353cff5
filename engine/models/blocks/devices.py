"""Rows of a step on a device whose kernels read keys and values where they lie."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor


class DeviceRows(NamedTuple):
    """Rows of a step, in tensors of one device; row r reads tokens `firsts[r]` ... of the step.

    slots: int32 [tokens], where the keys and values of the step's tokens go, block * BLOCK + place; -1 for nowhere
    tables: int32 [rows, most], the blocks of each row
    firsts, widths, starts: int32 [rows]; row r's tokens lie at `starts[r]` ... of its text, a row may have none
    longest, widest: no text has more tokens, with those of this step, and no row reads more
    """

    slots: Tensor
    tables: Tensor
    firsts: Tensor
    widths: Tensor
    starts: Tensor
    longest: int
    widest: int

    def on(self, device: torch.device) -> DeviceRows:
        """The same on another device."""
        if self.slots.device == device:
            return self
        slots, tables, firsts, widths, starts = (tensor.to(device) for tensor in self[:5])
        return DeviceRows(slots, tables, firsts, widths, starts, self.longest, self.widest)

    def part(self, low: int, high: int, longest: int, widest: int) -> DeviceRows:
        """Some of the rows."""
        tables, firsts, widths, starts = (column[low:high] for column in self[1:5])
        return DeviceRows(self.slots, tables, firsts, widths, starts, longest, widest)


def has_kernels(device: torch.device) -> bool:
    """True if there are kernels for what lies on this device."""
    return device.type == "cuda" and _triton()


@cache
def _triton() -> bool:
    return find_spec("triton") is not None
