"""Products of states with weights as files of GGUF have them, on a CPU, of any number of tokens.

tiles.py says how a number is summed where weights are quantized, floats.py where they are floats.
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
"""Said to Numba of what has to be done as it stands: else a kernel gets the `fastmath` of its first caller."""


@dataclass(frozen=True, eq=False)
class QuantizedMatrix:
    """Weights [rows, width] in a format of GGUF.

    kind: the name of their format; data: uint8 [rows, bytes of a row], contiguous
    order: int64 [rows], which row of the data each is, where they lie in another order
    """

    kind: str
    width: int
    data: NDArray[np.uint8]
    order: NDArray[np.int64] | None = None

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
        """States [n, width], contiguous, as products take them."""
        if isinstance(FORMATS[self.kind], FloatFormat):
            return RoundedStates.of(0, 0, states)
        room = RoundedStates.of(len(states), self.width, states)
        round_states(room.numbers, room.scales, room.totals, states, len(states))
        return room

    def multiply(self, out: Reals, states: RoundedStates, ids: NDArray[np.int64] | None, first: int, last: int) -> None:
        """out[:, i] = the products of row ids[i], or of row i where no ids are given, for i in range(first, last)."""
        given = self.number, self.data, self.blocks, *states.arrays, states.states, len(out)
        if self.order is not None:
            ids = self.order if ids is None else self.order[ids]
        multiply_quantized(out, *given, _ALL if ids is None else ids, first, last)


@dataclass(frozen=True, eq=False)
class RoundedStates:
    """States, and room for them in int8, which products with floats leave empty.

    numbers: int8 [n * width]; scales: float32 [n * groups]; totals: twice as many; states: float32 [n, width]
    """

    numbers: NDArray[np.int8]
    scales: Reals
    totals: Reals
    states: Reals

    @classmethod
    def of(cls, tokens: int, width: int, states: Reals) -> RoundedStates:
        """Room for so many tokens of some states."""
        groups = tokens * (width // GROUP)
        room = np.empty(groups, np.float32), np.empty(2 * groups, np.float32)
        return cls(np.empty(tokens * width, np.int8), *room, states)

    @property
    def arrays(self) -> tuple[Any, Any, Any]:
        """As kernels take what is rounded."""
        return self.numbers, self.scales, self.totals


@inner_njit
def address(array: NDArray[Any]) -> Int:
    """Where an array begins, as one type of integer: else `multiply_at` would be compiled for several."""
    return np.int64(array.ctypes.data)


@inner_njit(fastmath=_EXACT)
def round_row(numbers: NDArray[np.int8], scales: Reals, totals: Reals, states: Reals, token: Int, width: Int) -> None:
    """A token's states [width] in int8, and of each group of 32 a scale and the sums of its halves times the scale.

    States that are all below 2 ** -100 are 0. Where one is infinite or NaN the scale is NaN, and so is every product.

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
    """States [n, width] of the first tokens, as `round_row` has them."""
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
    """The product of tiles.py, compiled once for all that use it: arrays are named by their addresses."""
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
    """out[t, i] = weight[ids[i]] @ states[t], for i from `first` on and before `last`.

    out: [n, rows]; weight: uint8 [rows, bytes], of the format of that number; states, scales, totals: `round_states`
    floats: the states themselves, [n, width]; ids: none for the rows i themselves
    """
    multiply_at(
        number, address(out), out.shape[1], address(weight), weight.shape[1], blocks, address(states),
        address(scales), address(totals), address(floats), floats.shape[1], tokens,
        address(ids) if ids.size > 0 else np.int64(0), first, last,
    )  # fmt: skip
