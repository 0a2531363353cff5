"""Products of states with GGUF weights on a CPU, for any number of tokens.

tiles.py defines the order of summation for quantized weights, floats.py for floats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..jit.aliases import Int
from ..jit.wide import inner_njit, njit, shared_njit
from .formats import FORMATS, GROUP, FloatFormat
from .rounding import round_at
from .tiles import product_of

Reals = NDArray[np.float32]
_NUMBERS = {name: number for number, name in enumerate(FORMATS)}
_product = product_of()
_ALL = np.empty(0, np.int64)
_EXACT = False
"""Disables `fastmath` explicitly. Numba otherwise inlines a kernel with the flags of its first caller."""


@dataclass(frozen=True, eq=False)
class QuantizedMatrix:
    """Weights [rows, width] in a format of GGUF.

    kind: name of the format; data: uint8 [rows, bytes of a row], contiguous
    order: int64 [rows], the row of `data` for each row; None if they are in order
    """

    kind: str
    width: int
    data: NDArray[np.uint8]
    order: NDArray[np.int64] | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> QuantizedMatrix:
        """Return the same object. Weights are immutable, so copies of a model share the mapped memory."""
        return self

    @property
    def number(self) -> int:
        """The number of the format."""
        return _NUMBERS[self.kind]

    @property
    def blocks(self) -> int:
        """Blocks of a row."""
        return self.width // FORMATS[self.kind].weights

    def rounded(self, states: Reals) -> RoundedStates:
        """Return states [n, width], contiguous, in the form that `multiply` takes."""
        if isinstance(FORMATS[self.kind], FloatFormat):
            return RoundedStates.of(0, 0, states)
        room = RoundedStates.of(len(states), self.width, states)
        round_states(room.numbers, room.scales, room.totals, states, len(states))
        return room

    def multiply(self, out: Reals, states: RoundedStates, ids: NDArray[np.int64] | None, first: int, last: int) -> None:
        """out[:, i] = the products of row ids[i], or of row i without ids, for i in range(first, last)."""
        operands = self.number, self.data, self.blocks, *states.arrays, states.states, len(out)
        if self.order is not None:
            ids = self.order if ids is None else self.order[ids]
        multiply_quantized(out, *operands, _ALL if ids is None else ids, first, last)


@dataclass(frozen=True, eq=False)
class RoundedStates:
    """States, and their int8 form, which is empty for products with floats.

    numbers: int8 [n * width]; scales: float32 [n * groups]; totals: float32 [n * groups * 2]; states: float32 [n,
        width]
    """

    numbers: NDArray[np.int8]
    scales: Reals
    totals: Reals
    states: Reals

    @classmethod
    def of(cls, tokens: int, width: int, states: Reals) -> RoundedStates:
        """Allocate the int8 form of some states."""
        groups = tokens * (width // GROUP)
        room = np.empty(groups, np.float32), np.empty(2 * groups, np.float32)
        return cls(np.empty(tokens * width, np.int8), *room, states)

    @property
    def arrays(self) -> tuple[Any, Any, Any]:
        """The arrays of the int8 form, in the order of the kernels' arguments."""
        return self.numbers, self.scales, self.totals


@inner_njit
def address(array: NDArray[Any]) -> Int:
    """Return an array's address as int64. With one integer type `multiply_at` is compiled once."""
    return np.int64(array.ctypes.data)


@inner_njit(fastmath=_EXACT)
def round_row(numbers: NDArray[np.int8], scales: Reals, totals: Reals, states: Reals, token: Int, width: Int) -> None:
    """Round a token's states [width] to int8, with a scale for each 32 and the sum of each half times the scale.

    States that are all below 2 ** -100 become 0. If one is infinite or NaN, the scale is NaN, and so is every product.

    numbers: [tokens * width]; scales: [tokens * groups]; totals: [tokens * groups * 2], written for this token
    """
    groups = width // GROUP
    first = token * groups
    round_at(
        address(numbers[token * width :]),
        address(scales[first:]),
        address(totals[2 * first :]),
        address(states),
        groups,
    )


@njit(error_model="numpy")
def round_states(numbers: NDArray[np.int8], scales: Reals, totals: Reals, states: Reals, tokens: Int) -> None:
    """Round the states [n, width] of the first tokens, see `round_row`."""
    for token in range(tokens):
        round_row(numbers, scales, totals, states[token], token, states.shape[1])


@shared_njit(error_model="numpy", fastmath=_EXACT)
def multiply_at(
    number: Int,
    out: Int,
    stride: Int,
    weights: Int,
    row_bytes: Int,
    blocks: Int,
    states: Int,
    scales: Int,
    totals: Int,
    floats: Int,
    pitch: Int,
    tokens: Int,
    ids: Int,
    first: Int,
    last: Int,
) -> None:
    """Call the product of tiles.py, compiled once for all callers: arrays are given by address."""
    _product(
        number, out, stride, weights, row_bytes, blocks, states, scales, totals, floats, pitch, tokens, ids, first, last
    )


@njit(error_model="numpy")
def multiply_quantized(
    out: Reals,
    number: Int,
    weight: NDArray[np.uint8],
    blocks: Int,
    states: NDArray[np.int8],
    scales: Reals,
    totals: Reals,
    floats: Reals,
    tokens: Int,
    ids: NDArray[np.int64],
    first: Int,
    last: Int,
) -> None:
    """out[t, i] = weight[ids[i]] @ states[t], for i in range(first, last).

    out: [n, rows]; weight: uint8 [rows, bytes], in format `number`; states, scales, totals: from `round_states`
    floats: the states themselves, [n, width]; ids: empty for rows i
    """
    multiply_at(
        number, address(out), out.shape[1], address(weight), weight.shape[1], blocks, address(states),
        address(scales), address(totals), address(floats), floats.shape[1], tokens,
        address(ids) if ids.size > 0 else np.int64(0), first, last,
    )  # fmt: skip
