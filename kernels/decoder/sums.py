"""Sums along the rows of a matrix for a few tokens, so few that it is mostly the matrix that takes time to read.

A tile of the result, some rows by some tokens, stays in registers, a vector of partial sums for each of its numbers; a
step reads a vector of each row and each token. At the end the vectors are added up all at once, by exchanging halves,
quarters and so on between pairs of them, so that one vector has all the sums. Each number is summed in the same order
whichever tile it is in: a token comes to the same, to the last bit, beside any others.
"""

# llvmlite says nothing of the types of what is inside it.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportMissingTypeStubs=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from ..jit.aliases import Int
from ..jit.vectors import INT, VECTOR, WIDE, Vectors, in_vectors, place_of
from ..jit.wide import inner_njit

Reals = NDArray[np.floating[Any]]

ROWS = 4
"""Of a tile of one or two tokens; memory is read no faster where more rows are read side by side."""
SHORT = 4 if WIDE else 2
"""Rows of a tile of four tokens, whose sums fill half of the registers."""


def _tile_of(tokens: int, rows: int) -> Callable[[Reals, Reals, Reals, Int, Int], None]:
    """tile(out, states, weight, token, row): out[token + t, row + r] = states[token + t] @ weight[row + r].

    For so many tokens and rows; of the whole vectors only that lie in a row, without what is left behind.
    """

    def tile(context: Any, out: Any, states: Any, weight: Any, token: Any, row: Any) -> Any:
        def build(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kinds = signature.args
            unit = Vectors(target, builder, kinds[0].dtype)

            def lines(which: int, first: Any, count: int) -> list[Any]:
                at = [builder.add(first, INT(i)) for i in range(count)]
                return [place_of(target, builder, kinds[which], arguments[which], each, INT(0)) for each in at]

            texts, table = lines(1, arguments[3], tokens), lines(2, arguments[4], rows)
            whole = builder.and_(table[0][1], INT(-unit.lanes))

            def step(at: Any, totals: Sequence[Any]) -> Sequence[Any]:
                parts = [unit.load(builder.gep(line, [at])) for line, _ in texts]
                numbers = [unit.load(builder.gep(line, [at])) for line, _ in table]
                pairs = [(part, number) for part in parts for number in numbers]
                return [unit.add_product(total, *pair) for total, pair in zip(totals, pairs, strict=True)]

            found = unit.repeat(whole, unit.lanes, [unit.zero] * (tokens * rows), step)
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
        whole = weight.shape[1] // (VECTOR // out.itemsize) * (VECTOR // out.itemsize)
        for t in range(token, token + tokens):
            for r in range(row, row + rows):
                total = states.dtype.type(0)
                for k in range(whole):
                    total += states[t, k] * weight[r, k]
                out[t, r] = total

    return in_vectors(plain, tile)


_of_one, _of_two, _of_four = _tile_of(1, ROWS), _tile_of(2, ROWS), _tile_of(4, SHORT)


@inner_njit
def along(out: Reals, states: Reals, tokens: Int, weight: Reals, bias: Reals) -> None:
    """out[t, :count] = weight @ states[t, :width] + bias, of the first tokens, as `multiply` has it."""
    count, width = weight.shape
    in_tiles, in_fours = count // ROWS * ROWS, tokens // 4 * 4
    left = tokens - in_fours
    is_again = left == 3 and tokens > 4  # one of four is computed twice, which is less than to read the matrix again
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
