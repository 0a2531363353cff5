"""Products of states with packed weights on a CPU, of any number of tokens: see tiles.py for how each number is summed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..jit.aliases import Int
from ..jit.wide import njit
from .formats import FORMATS, GROUP
from .tiles import product_of

Reals = NDArray[np.float32]
_NUMBERS = {name: number for number, name in enumerate(FORMATS)}
_LEAST = np.float32(2.0**-100)
"""States of a group that are all smaller are zero: their scale would have no inverse."""
_product = product_of()


@dataclass(frozen=True, eq=False)
class PackedMatrix:
    """Weights [rows, width] as they are packed.

    kind: the name of their format; data: uint8 [rows, bytes of a row], contiguous
    """

    kind: str
    width: int
    data: NDArray[np.uint8]

    @property
    def number(self) -> int:
        """Of its format."""
        return _NUMBERS[self.kind]

    @property
    def blocks(self) -> int:
        """In a row."""
        return self.width // FORMATS[self.kind].weights

    def product(self, states: Reals) -> Reals:
        """float32 [n, rows] of states float32 [n, width]."""
        tokens, rows = len(states), len(self.data)
        out = np.empty((tokens, rows), np.float32)
        room = RoundedStates.of(tokens, self.width)
        round_states(room.numbers, room.scales, room.totals, states, tokens)
        multiply_packed(out, self.number, self.data, self.blocks, *room.arrays, tokens, 0, rows)
        return out

    def product_of_rows(self, states: Reals, ids: NDArray[np.int64]) -> Reals:
        """float32 [n, len(ids)], of these rows only."""
        tokens = len(states)
        out = np.empty((tokens, len(ids)), np.float32)
        room = RoundedStates.of(tokens, self.width)
        round_states(room.numbers, room.scales, room.totals, states, tokens)
        multiply_rows_of(out, self.number, self.data, self.blocks, *room.arrays, tokens, ids)
        return out


@dataclass(frozen=True, eq=False)
class RoundedStates:
    """Room for states in int8. numbers: int8 [n, width]; scales: float32 [n, groups]; totals: float32 [n, groups, 2]"""

    numbers: NDArray[np.int8]
    scales: Reals
    totals: Reals

    @classmethod
    def of(cls, tokens: int, width: int) -> RoundedStates:
        """Room for the states of so many tokens."""
        groups = width // GROUP
        shape = tokens, groups
        return cls(np.empty((tokens, width), np.int8), np.empty(shape, np.float32), np.empty((*shape, 2), np.float32))

    @property
    def arrays(self) -> tuple[Any, Any, Any]:
        """As kernels take them."""
        return self.numbers, self.scales, self.totals


@njit(error_model="numpy")
def round_states(numbers: NDArray[np.int8], scales: Reals, totals: Reals, states: Reals, tokens: Int) -> None:
    """States [n, width] in int8, each group of 32 by a scale of its own, and the sums of its halves times that scale."""
    for token in range(tokens):
        for group in range(scales.shape[1]):
            first, most = group * GROUP, np.float32(0)
            for i in range(first, first + GROUP):
                most = max(most, abs(states[token, i]))
            scale = most / np.float32(127) if most >= _LEAST else np.float32(0)
            factor = np.float32(127) / most if most >= _LEAST else np.float32(0)
            scales[token, group] = scale
            for half in range(2):
                total = 0
                for i in range(first + 16 * half, first + 16 * half + 16):
                    number = np.int32(np.rint(states[token, i] * factor))
                    numbers[token, i] = number
                    total += number
                totals[token, group, half] = scale * np.float32(total)


@njit(error_model="numpy")
def multiply_packed(
    out: Reals,
    number: Int,
    weight: NDArray[np.uint8],
    blocks: Int,
    states: NDArray[np.int8],
    scales: Reals,
    totals: Reals,
    tokens: Int,
    first: Int,
    last: Int,
) -> None:
    """out[t, row] = weight[row] @ states[t], of the rows from `first` on and before `last`.

    out: [n, rows]; weight: uint8 [rows, bytes], of the format of that number; states, scales, totals: `round_states`
    """
    _product(
        number, out.ctypes.data, out.shape[1], weight.ctypes.data, weight.shape[1], blocks, states.ctypes.data,
        scales.ctypes.data, totals.ctypes.data, tokens, 0, first, last,
    )  # fmt: skip


@njit(error_model="numpy")
def multiply_rows_of(
    out: Reals,
    number: Int,
    weight: NDArray[np.uint8],
    blocks: Int,
    states: NDArray[np.int8],
    scales: Reals,
    totals: Reals,
    tokens: Int,
    rows: NDArray[np.int64],
) -> None:
    """out[t, i] = weight[rows[i]] @ states[t]."""
    _product(
        number, out.ctypes.data, out.shape[1], weight.ctypes.data, weight.shape[1], blocks, states.ctypes.data,
        scales.ctypes.data, totals.ctypes.data, tokens, rows.ctypes.data, 0, rows.size,
    )  # fmt: skip
