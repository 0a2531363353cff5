"""Products of a few tokens with a matrix on a CPU, on one thread. Small ones gain most: no library is called.

For very few tokens (`along`) time is dominated by reading the matrix. Sums run along its rows. A tile of the result,
some rows by some tokens, stays in registers, with a vector of partial sums for each number; a step reads a vector of
each row and each token. At the end the vectors are reduced all at once by exchanging halves, quarters and so on between
pairs. Each number is summed in one order in every tile, so a token's result does not depend on the other tokens.

For more tokens (`add_products`) a vectoriser would load and store the sums at every step. Here a tile of the result,
some rows by one or two vectors of tokens, stays in registers until its sums are done; a step reads a vector of states,
and broadcasts a number of each row. So the matrix is read in place, without a transposed copy.
"""
# llvmlite has no type stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, cast

import numpy as np
from numba import types
from numpy.typing import NDArray

from ..jit.aliases import Int, Longs, Truth
from ..jit.vectors import INT, VECTOR, WIDE, Vectors, in_vectors, place_of, repeat
from ..jit.wide import inner_njit, njit, shared_njit

Reals = NDArray[np.floating[Any]]

ROWS = 4
"""Rows of a tile of one or two tokens; more rows side by side are read no faster."""
SHORT = 4 if WIDE else 2
"""Rows of a tile of four tokens, whose sums fill half of the registers."""


def _dots_of(tokens: int, rows: int) -> Callable[[Reals, Reals, Reals, Int, Int], None]:
    """Return tile(out, states, weight, token, row): out[token + t, row + r] = states[token + t] @ weight[row + r].

    For fixed numbers of tokens and rows. Sums cover whole vectors of a row only, without the remaining columns.
    """

    def tile(context: Any, out: Any, states: Any, weight: Any, token: Any, row: Any) -> Any:
        def build(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kinds = signature.args
            unit = Vectors(target, builder, kinds[0].dtype)

            def lines(which: int, first: Any, count: int) -> list[Any]:
                at = [builder.add(first, INT(i)) for i in range(count)]
                return [place_of(target, builder, kinds[which], arguments[which], each, INT(0)) for each in at]

            texts, table = lines(1, arguments[3], tokens), lines(2, arguments[4], rows)
            vectorised = builder.and_(table[0][1], INT(-unit.lanes))

            def step(at: Any, totals: Sequence[Any]) -> Sequence[Any]:
                parts = [unit.load(builder.gep(line, [at])) for line, _ in texts]
                numbers = [unit.load(builder.gep(line, [at])) for line, _ in table]
                pairs = [(part, number) for part in parts for number in numbers]
                return [unit.add_product(total, *pair) for total, pair in zip(totals, pairs, strict=True)]

            found = repeat(builder, vectorised, unit.lanes, [unit.zero] * (tokens * rows), step)
            run = min(rows, unit.lanes)
            for first in range(0, len(found), unit.lanes):
                several = found[first : first + unit.lanes]
                total = unit.totals(several)
                for lane in range(0, len(several), run):
                    text, at = divmod(first + lane, rows)
                    place = builder.add(arguments[3], INT(text)), builder.add(arguments[4], INT(at))
                    unit.store_some(total, lane, run, place_of(target, builder, kinds[0], arguments[0], *place)[0])
            return target.get_dummy_value()

        return types.void(out, states, weight, token, row), build

    def plain(out: Reals, states: Reals, weight: Reals, token: Int, row: Int) -> None:
        vectorised = weight.shape[1] // (VECTOR // out.itemsize) * (VECTOR // out.itemsize)
        for t in range(token, token + tokens):
            for r in range(row, row + rows):
                total = states.dtype.type(0)
                for k in range(vectorised):
                    total += states[t, k] * weight[r, k]
                out[t, r] = total

    return in_vectors(plain, tile)


_of_one, _of_two, _of_four = _dots_of(1, ROWS), _dots_of(2, ROWS), _dots_of(4, SHORT)


@inner_njit
def along(out: Reals, states: Reals, tokens: Int, weight: Reals, bias: Reals) -> None:
    """out[t, :count] = weight @ states[t, :width] + bias for t < tokens, see `multiply`."""
    count, width = weight.shape
    in_tiles, in_fours = count // ROWS * ROWS, tokens // 4 * 4
    left = tokens - in_fours
    is_again = left == 3 and tokens > 4  # computing one of four tokens twice costs less than reading the matrix again
    for first in range(0, in_tiles, ROWS):
        for row in range(first, first + ROWS, SHORT):
            for token in range(0, in_fours, 4):
                _of_four(out, states, weight, token, row)
            if is_again:
                _of_four(out, states, weight, tokens - 4, row)
        if left >= 2 and not is_again:
            _of_two(out, states, weight, in_fours, first)
        if left % 2 == 1 and not is_again:
            _of_one(out, states, weight, tokens - 1, first)
    behind = width // (VECTOR // out.itemsize) * (VECTOR // out.itemsize)
    if behind < width:
        for token in range(tokens):
            for row in range(in_tiles):
                for k in range(behind, width):
                    out[token, row] += states[token, k] * weight[row, k]
    for token in range(tokens):
        for row in range(in_tiles, count):
            total = states.dtype.type(0)
            for k in range(width):
                total += states[token, k] * weight[row, k]
            out[token, row] = total
    if bias.size > 0:
        for token in range(tokens):
            for row in range(count):
                out[token, row] += bias[row]


HEIGHT = 12 if WIDE else 6
"""Rows of the tallest tile: two vectors each fill the registers, save those for operands."""


def _tile_of(height: int, vectors: int) -> Callable[[Reals, Reals, Reals, Int], None]:
    """Return tile(sums, weight, states, row): sums[row + i, :] += weight[row + i] @ states.

    For `height` rows and `vectors` vectors of tokens; sums [rows, tokens], weight [rows, width], states [width,
    tokens].
    """

    def tile(context: Any, sums: Any, weight: Any, states: Any, row: Any) -> Any:
        def build(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kinds = signature.args
            unit = Vectors(target, builder, kinds[0].dtype)
            rows = [builder.add(arguments[3], INT(i)) for i in range(height)]
            lines = [place_of(target, builder, kinds[1], arguments[1], at, INT(0)) for at in rows]
            outs = [
                place_of(target, builder, kinds[0], arguments[0], at, INT(v * unit.lanes))[0]
                for at in rows
                for v in range(vectors)
            ]

            def step(at: Any, totals: Sequence[Any]) -> Sequence[Any]:
                places = [
                    place_of(target, builder, kinds[2], arguments[2], at, INT(v * unit.lanes))[0]
                    for v in range(vectors)
                ]
                parts = [unit.load(place) for place in places]
                grown: list[Any] = []
                for i, (line, _) in enumerate(lines):
                    number = unit.spread(builder.load(builder.gep(line, [at])))
                    these = totals[i * vectors : (i + 1) * vectors]
                    grown += [unit.add_product(total, number, part) for total, part in zip(these, parts, strict=True)]
                return grown

            found = repeat(builder, lines[0][1], 1, [unit.load(out) for out in outs], step)
            for vector, out in zip(found, outs, strict=True):
                unit.store(vector, out)
            return target.get_dummy_value()

        return types.void(sums, weight, states, row), build

    def plain(sums: Reals, weight: Reals, states: Reals, row: Int) -> None:
        for i in range(row, row + height):
            for token in range(vectors * VECTOR // sums.itemsize):
                total = sums[i, token]
                for k in range(weight.shape[1]):
                    total += weight[i, k] * states[k, token]
                sums[i, token] = total

    return in_vectors(plain, tile)


def _turn(context: Any, turned: Any, row: Any, column: Any, table: Any, from_row: Any, from_column: Any) -> Any:
    def build(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = signature.args
        unit = Vectors(target, builder, kinds[0].dtype)
        start, width = place_of(target, builder, kinds[3], arguments[3], *arguments[4:])
        lines = [unit.load(builder.gep(start, [builder.mul(width, INT(i))])) for i in range(unit.lanes)]
        size = 1
        while size < unit.lanes:
            for i in range(unit.lanes):
                if not i & size:
                    lines[i], lines[i + size] = unit.exchanged(lines[i], lines[i + size], size)
            size *= 2
        start, width = place_of(target, builder, kinds[0], arguments[0], *arguments[1:3])
        for i, line in enumerate(lines):
            unit.store(line, builder.gep(start, [builder.mul(width, INT(i))]))
        return target.get_dummy_value()

    return types.void(turned, row, column, table, from_row, from_column), build


def _plain_turn(turned: Reals, row: Int, column: Int, table: Reals, from_row: Int, from_column: Int) -> None:
    for i in range(VECTOR // table.itemsize):
        for j in range(VECTOR // table.itemsize):
            turned[row + i, column + j] = table[from_row + j, from_column + i]


# Tiles of HEIGHT rows, of four rows, and of one; by one vector of tokens and by two.
tall_narrow, tall_wide = _tile_of(HEIGHT, 1), _tile_of(HEIGHT, 2)
low_narrow, low_wide = _tile_of(4, 1), _tile_of(4, 2)
line_narrow, line_wide = _tile_of(1, 1), _tile_of(1, 2)
# turn(turned, row, column, table, from_row, from_column): turned[row + i, column + j] = table[from_row + j,
# from_column + i], for a square whose side is the number of lanes.
turn: Callable[[Reals, Int, Int, Reals, Int, Int], None] = in_vectors(_plain_turn, _turn)


FAST = {"contract", "reassoc", "nsz", "arcp"}


def lanes_of(dtype: Any) -> int:
    """Return the number of tokens that are multiplied at once: two vectors of them."""
    return 2 * VECTOR // np.dtype(dtype).itemsize


def few_of(dtype: Any) -> int:
    """Return the most tokens for which sums run along rows of the matrix; more tokens lie side by side in vectors."""
    return 3 * lanes_of(dtype) // 8


def room_of(widest: int, tallest: int, dtype: Any) -> tuple[Reals, Reals]:
    """Return scratch arrays of `multiply`: for states of up to `widest` numbers, and up to `tallest` sums a token."""
    lanes = lanes_of(dtype)
    empty = cast("Any", np.empty)
    return empty((widest, lanes), dtype), empty((tallest, lanes), dtype)


def product_of(states: Reals, weight: Reals, bias: Reals | None) -> Reals:
    """Return states [n, width] times a matrix [count, width], plus a bias [count] if given: [n, count].

    All contiguous, of float32 or float64.
    """
    tokens, (count, width) = len(states), weight.shape
    room = room_of(width, count, states.dtype) if tokens > few_of(states.dtype) else room_of(0, 0, states.dtype)
    out = np.empty((tokens, count), states.dtype)
    multiply_rows(out, states, weight, np.empty(0, states.dtype) if bias is None else bias, *room)
    return out


def products_of_some(states: Reals, weight: Reals, bias: Reals | None, several: Sequence[NDArray[np.int64]]) -> Reals:
    """Return each state [n, width] times selected rows of a matrix [count, width], plus the bias of these rows.

    several: the row numbers for each state, at least one for all together
    Returns [n, most]: the results of each state in the order of its rows, then zeros. Rounding differs from
    `product_of`.
    """
    counts = list(map(len, several))
    ends = np.array(list(accumulate(counts)), np.int64)
    out = np.zeros((len(states), max(counts)), states.dtype)
    beside = np.empty(0, states.dtype) if bias is None else bias
    multiply_some(out, states, weight, beside, np.concatenate(several), ends)
    return out


@shared_njit(fastmath=FAST, error_model="numpy")
def multiply(out: Reals, states: Reals, tokens: Int, weight: Reals, bias: Reals, across: Reals, sums: Reals) -> None:
    """out[t, :count] = weight @ states[t, :width] + bias for t < tokens.

    out, states: may have more rows and columns than that; further numbers of `out` are undefined afterwards
    tokens: at most `lanes_of`
    weight: [count, width]; bias: [count], or empty
    across, sums: from `room_of` these sizes or larger ones
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
    add_products(sums, weight, across, tokens > lanes)
    to_rows(out, sums, tokens, count)


@inner_njit
def squares_of(tokens: Int, lanes: Int, rows: Int) -> Int:
    """Return the number of tokens to transpose in squares: rounded up if `rows` allows, else rounded down."""
    more = (tokens + lanes - 1) // lanes * lanes
    return more if more <= rows else tokens // lanes * lanes


@inner_njit
def to_columns(across: Reals, states: Reals, tokens: Int, width: Int) -> None:
    """across[i, t] = states[t, i] for t < tokens; further columns are undefined."""
    lanes = VECTOR // states.itemsize
    in_squares, squares = squares_of(tokens, lanes, states.shape[0]), width // lanes * lanes
    for token in range(0, in_squares, lanes):
        for i in range(0, squares, lanes):
            turn(across, i, token, states, token, i)
    for token in range(tokens):
        for i in range(squares if token < in_squares else 0, width):
            across[i, token] = states[token, i]


@inner_njit
def add_products(sums: Reals, weight: Reals, states: Reals, is_wide: Truth) -> None:
    """sums += weight @ states, for one vector of tokens, or two if it is wide."""
    count, row = weight.shape[0], 0
    while row + HEIGHT <= count:
        if is_wide:
            tall_wide(sums, weight, states, row)
        else:
            tall_narrow(sums, weight, states, row)
        row += HEIGHT
    while row + 4 <= count:
        if is_wide:
            low_wide(sums, weight, states, row)
        else:
            low_narrow(sums, weight, states, row)
        row += 4
    while row < count:
        if is_wide:
            line_wide(sums, weight, states, row)
        else:
            line_narrow(sums, weight, states, row)
        row += 1


@inner_njit
def to_rows(out: Reals, sums: Reals, tokens: Int, count: Int) -> None:
    """out[t, i] = sums[i, t] for t < tokens; further rows are undefined."""
    lanes = VECTOR // sums.itemsize
    in_squares, squares = squares_of(tokens, lanes, out.shape[0]), count // lanes * lanes
    for token in range(0, in_squares, lanes):
        for i in range(0, squares, lanes):
            turn(out, token, i, sums, i, token)
    for token in range(tokens):
        for i in range(squares if token < in_squares else 0, count):
            out[token, i] = sums[i, token]


@njit(fastmath=FAST, error_model="numpy")
def multiply_some(out: Reals, states: Reals, weight: Reals, bias: Reals, rows: Longs, ends: Longs) -> None:
    """out[t, i] = weight[r] @ states[t] + bias[r], for the i-th row r of token t; its rows end before ends[t]."""
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
    """out [n, count] = states [n, width] @ weight.T + bias, for any number of tokens; the rest as in `multiply`."""
    lanes = across.shape[1]
    for first in range(0, states.shape[0], lanes):
        tokens = min(lanes, states.shape[0] - first)
        multiply(out[first:], states[first:], tokens, weight, bias, across, sums)
