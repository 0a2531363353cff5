"""Products of states with quantized weights on a CPU, of any number of tokens; tiles.py says how a number is summed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..jit.aliases import Int
from ..jit.wide import inner_njit, njit
from .formats import FORMATS, GROUP
from .tiles import product_of

Reals = NDArray[np.float32]
_NUMBERS = {name: number for number, name in enumerate(FORMATS)}
_LEAST = np.float32(2.0**-100)
"""States of a group that are all smaller are zero: their scale would have no inverse."""
_product = product_of()


@dataclass(frozen=True, eq=False)
class QuantizedMatrix:
    """Weights [rows, width] in a format of GGUF.

    kind: the name of their format; data: uint8 [rows, bytes of a row], contiguous
    """

    kind: str
    width: int
    data: NDArray[np.uint8]

    def __deepcopy__(self, memo: dict[int, Any]) -> QuantizedMatrix:
        """The same, since weights are never changed: a copied model shares the memory that is mapped."""
        return self

    @property
    def number(self) -> int:
        """Of its format."""
        return _NUMBERS[self.kind]

    @property
    def blocks(self) -> int:
        """In a row."""
        return self.width // FORMATS[self.kind].weights

    def rounded(self, states: Reals) -> RoundedStates:
        """States [n, width] as products take them."""
        room = RoundedStates.of(len(states), self.width)
        round_states(room.numbers, room.scales, room.totals, states, len(states))
        return room

    def multiply(self, out: Reals, states: RoundedStates, ids: NDArray[np.int64] | None, first: int, last: int) -> None:
        """out[:, i] = the products of row ids[i], or of row i where no ids are given, for i in range(first, last)."""
        given = self.number, self.data, self.blocks, *states.arrays, len(out)
        if ids is None:
            multiply_quantized(out, *given, first, last)
        else:
            multiply_rows_of(out, *given, ids, first, last)


@dataclass(frozen=True, eq=False)
class RoundedStates:
    """Room for states in int8. numbers: int8 [n * width]; scales: float32 [n * groups]; totals: twice as many"""

    numbers: NDArray[np.int8]
    scales: Reals
    totals: Reals

    @classmethod
    def of(cls, tokens: int, width: int) -> RoundedStates:
        """Room for the states of so many tokens."""
        groups = tokens * (width // GROUP)
        return cls(np.empty(tokens * width, np.int8), np.empty(groups, np.float32), np.empty(2 * groups, np.float32))

    @property
    def arrays(self) -> tuple[Any, Any, Any]:
        """As kernels take them."""
        return self.numbers, self.scales, self.totals


@inner_njit
def round_row(numbers: NDArray[np.int8], scales: Reals, totals: Reals, states: Reals, token: Int, width: Int) -> None:
    """A token's states [width] in int8, and of each group of 32 a scale and the sums of its halves times the scale.

    numbers: [tokens * width]; scales: [tokens * groups]; totals: [tokens * groups * 2], written for this token
    """
    groups = width // 32
    for group in range(groups):
        first, most = group * 32, np.float32(0)
        for i in range(first, first + 32):
            most = max(most, abs(states[i]))
        scale = most / np.float32(127) if most >= _LEAST else np.float32(0)
        factor = np.float32(127) / most if most >= _LEAST else np.float32(0)
        scales[token * groups + group] = scale
        for half in range(2):
            total = np.int32(0)
            for i in range(first + 16 * half, first + 16 * half + 16):
                number = np.int32(np.rint(states[i] * factor))
                numbers[token * width + i] = number
                total += number
            totals[(token * groups + group) * 2 + half] = scale * np.float32(total)


@njit(error_model="numpy")
def round_states(numbers: NDArray[np.int8], scales: Reals, totals: Reals, states: Reals, tokens: Int) -> None:
    """States [n, width] of the first tokens, as `round_row` has them."""
    for token in range(tokens):
        round_row(numbers, scales, totals, states[token], token, states.shape[1])


@njit(error_model="numpy")
def multiply_quantized(
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
    first: Int,
    last: Int,
) -> None:
    """out[t, i] = weight[rows[i]] @ states[t], for i from `first` on and before `last`."""
    _product(
        number, out.ctypes.data, out.shape[1], weight.ctypes.data, weight.shape[1], blocks, states.ctypes.data,
        scales.ctypes.data, totals.ctypes.data, tokens, rows.ctypes.data, first, last,
    )  # fmt: skip
