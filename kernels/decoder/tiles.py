"""The innermost loops of products on a CPU, written for vector registers: nothing else keeps all sums in these.

A vectoriser keeps sums of a product in memory, and reads and writes them with every step. Here a tile of the result,
some rows of a matrix by one or two vectors of tokens, stays in registers for as long as its sums grow; a step reads a
vector of the states, and a number of each row, which processors spread over a vector as they read it. So the matrix is
read as it lies, with no copy in another order.
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

Reals = NDArray[np.floating[Any]]

HEIGHT = 12 if WIDE else 6
"""Rows of the tallest tile: with two vectors each they fill the registers but for what is read."""


def _tile_of(height: int, vectors: int) -> Callable[[Reals, Reals, Reals, Int], None]:
    """tile(sums, weight, states, row): sums[row + i, :] += weight[row + i] @ states.

    For `height` rows, and so many vectors of tokens; sums [rows, tokens], weight [rows, width], states [width, tokens].
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
                    own = totals[i * vectors : (i + 1) * vectors]
                    grown += [unit.add_product(total, number, part) for total, part in zip(own, parts, strict=True)]
                return grown

            found = unit.repeat(lines[0][1], 1, [unit.load(out) for out in outs], step)
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


# Tall tiles, those of four rows, and of one; by one vector of tokens and by two.
tall_narrow, tall_wide = _tile_of(HEIGHT, 1), _tile_of(HEIGHT, 2)
low_narrow, low_wide = _tile_of(4, 1), _tile_of(4, 2)
line_narrow, line_wide = _tile_of(1, 1), _tile_of(1, 2)
# turn(turned, row, column, table, from_row, from_column): turned[row + i, column + j] = table[from_row + j,
# from_column + i], for a square of as many rows as a vector has numbers.
turn: Callable[[Reals, Int, Int, Reals, Int, Int], None] = in_vectors(_plain_turn, _turn)
