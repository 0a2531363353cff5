"""Products of a few tokens with a matrix on a CPU, on one thread: no library is called, so that small ones pay too."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..jit.aliases import Int, Longs
from ..jit.vectors import VECTOR
from ..jit.wide import inner_njit, njit, shared_njit
from .sums import along
from .tiles import HEIGHT, line_narrow, line_wide, low_narrow, low_wide, tall_narrow, tall_wide, turn

Reals = NDArray[np.floating[Any]]

FAST = {"contract", "reassoc", "nsz", "arcp"}


def lanes_of(dtype: Any) -> int:
    """How many tokens are multiplied at once: two vectors of them."""
    return 2 * VECTOR // np.dtype(dtype).itemsize


def few_of(dtype: Any) -> int:
    """Up to so many tokens each sum is taken along its row of the matrix; more lie side by side in vectors."""
    return 3 * lanes_of(dtype) // 8


def room_of(widest: int, tallest: int, dtype: Any) -> tuple[Reals, Reals]:
    """Where `multiply` turns states of up to `widest` numbers, and has up to `tallest` sums of each token."""
    lanes = lanes_of(dtype)
    empty = cast("Any", np.empty)
    return empty((widest, lanes), dtype), empty((tallest, lanes), dtype)


def product_of(states: Reals, weight: Reals, bias: Reals | None) -> Reals:
    """States [n, width] times a matrix [count, width], plus a bias [count] if there is one: [n, count].

    All contiguous, of float32 or float64.
    """
    tokens, (count, width) = len(states), weight.shape
    room = room_of(width, count, states.dtype) if tokens > few_of(states.dtype) else room_of(0, 0, states.dtype)
    out = np.empty((tokens, count), states.dtype)
    multiply_rows(out, states, weight, np.empty(0, states.dtype) if bias is None else bias, *room)
    return out


def products_of_some(states: Reals, weight: Reals, bias: Reals | None, several: Sequence[NDArray[np.int64]]) -> Reals:
    """Each of some states [n, width] times some rows of a matrix [count, width] of its own, plus those of a bias.

    several: the numbers of the rows for each state, of which there is one at least
    Returns [n, most]: as many numbers for each state as it has rows, then zeros. As `product_of`, with other roundings.
    """
    counts = list(map(len, several))
    ends = np.array(list(accumulate(counts)), np.int64)
    out = np.zeros((len(states), max(counts)), states.dtype)
    beside = np.empty(0, states.dtype) if bias is None else bias
    multiply_some(out, states, weight, beside, np.concatenate(several), ends)
    return out


@shared_njit(fastmath=FAST, error_model="numpy")
def multiply(out: Reals, states: Reals, tokens: Int, weight: Reals, bias: Reals, across: Reals, sums: Reals) -> None:
    """out[t, :count] = weight @ states[t, :width] + bias, of the first tokens.

    out, states: of as many rows or more, and as many columns or more; what `out` has beyond `tokens` means nothing then
    tokens: no more than `lanes_of`
    weight: [count, width]; bias: [count], or none
    across, sums: `room_of` such sizes or larger ones
    """
    lanes = VECTOR // states.itemsize
    if 4 * tokens <= 3 * lanes:
        along(out, states, tokens, weight, bias)
        return
    count, width = weight.shape
    to_columns(across, states, tokens, width)
    for row in range(count):
        start = bias[row] if bias.size > 0 else states.dtype.type(0)
        for lane in range(2 * lanes):
            sums[row, lane] = start
    if tokens <= lanes:
        narrow(sums, weight, across)
    else:
        wide(sums, weight, across)
    to_rows(out, sums, tokens, count)


@inner_njit
def squares_of(tokens: Int, lanes: Int, rows: Int) -> Int:
    """How many tokens are turned in squares: all, if there are rows for what that is beyond them."""
    more = (tokens + lanes - 1) // lanes * lanes
    return more if more <= rows else tokens // lanes * lanes


@inner_njit
def to_columns(across: Reals, states: Reals, tokens: Int, width: Int) -> None:
    """across[i, t] = states[t, i]; anything for tokens that there are not."""
    lanes = VECTOR // states.itemsize
    whole, squares = squares_of(tokens, lanes, states.shape[0]), width // lanes * lanes
    for token in range(0, whole, lanes):
        for i in range(0, squares, lanes):
            turn(across, i, token, states, token, i)
    for token in range(tokens):
        for i in range(squares if token < whole else 0, width):
            across[i, token] = states[token, i]


@inner_njit
def narrow(sums: Reals, weight: Reals, states: Reals) -> None:
    """sums += weight @ states, of the first vector of tokens."""
    count, row = weight.shape[0], 0
    while row + HEIGHT <= count:
        tall_narrow(sums, weight, states, row)
        row += HEIGHT
    while row + 4 <= count:
        low_narrow(sums, weight, states, row)
        row += 4
    while row < count:
        line_narrow(sums, weight, states, row)
        row += 1


@inner_njit
def wide(sums: Reals, weight: Reals, states: Reals) -> None:
    """sums += weight @ states, of both vectors of tokens."""
    count, row = weight.shape[0], 0
    while row + HEIGHT <= count:
        tall_wide(sums, weight, states, row)
        row += HEIGHT
    while row + 4 <= count:
        low_wide(sums, weight, states, row)
        row += 4
    while row < count:
        line_wide(sums, weight, states, row)
        row += 1


@inner_njit
def to_rows(out: Reals, sums: Reals, tokens: Int, count: Int) -> None:
    """out[t, i] = sums[i, t]."""
    lanes = VECTOR // sums.itemsize
    whole, squares = squares_of(tokens, lanes, out.shape[0]), count // lanes * lanes
    for token in range(0, whole, lanes):
        for i in range(0, squares, lanes):
            turn(out, token, i, sums, i, token)
    for token in range(tokens):
        for i in range(squares if token < whole else 0, count):
            out[token, i] = sums[i, token]


@njit(fastmath=FAST, error_model="numpy")
def multiply_some(out: Reals, states: Reals, weight: Reals, bias: Reals, rows: Longs, ends: Longs) -> None:
    """out[t, i] = weight[r] @ states[t] + bias[r], for the i-th of the rows that are t's: those before `ends[t]`."""
    width, place = states.shape[1], 0
    for token in range(states.shape[0]):
        first = place
        while place < ends[token]:
            row = rows[place]
            total = bias[row] if bias.size > 0 else states.dtype.type(0)
            for i in range(width):
                total += weight[row, i] * states[token, i]
            out[token, place - first] = total
            place += 1


@njit(error_model="numpy")
def multiply_rows(out: Reals, states: Reals, weight: Reals, bias: Reals, across: Reals, sums: Reals) -> None:
    """out [n, count] = states [n, width] @ weight.T + bias, of any number of tokens; the rest as `multiply` has it."""
    lanes = across.shape[1]
    for first in range(0, states.shape[0], lanes):
        tokens = min(lanes, states.shape[0] - first)
        multiply(out[first:], states[first:], tokens, weight, bias, across, sums)
