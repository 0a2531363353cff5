"""Products of weights that are floats: eight rows times some tokens' states, which stay float32.

16-bit weights are widened in registers, so results equal those of the same weights in float32. Each number is summed
in one order, in eight lanes, independent of other tokens and of the processor:

    a[0] ... a[7] = 0
    for each eight numbers of the row:
        a[i] = a[i] + weight[i] * state[i], rounded once
    b = ((a[0] + a[1]) + (a[2] + a[3])) + ((a[4] + a[5]) + (a[6] + a[7]))
    for each remaining number:
        b = b + weight * state, rounded once
"""

# llvmlite has no type stubs.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportMissingTypeStubs=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from ..jit.vectors import repeat
from .formats import BYTE, LONG, REAL, REALS, ROWS, WORD, FloatFormat, Registers

_LANES = REALS.count
_HEIGHT = 4
"""Rows of a tile with several tokens."""
_SEVERAL = 2
"""Tokens of a tile with 16 registers; twice as many with 32."""


class FloatProduct:
    """Builder of the products of eight rows in one format. width: numbers of a row; the rest as in `product_of`"""

    def __init__(
        self, registers: Registers, form: FloatFormat, width: Any, stride: Any, states: tuple[Any, Any], tokens: Any
    ) -> None:
        self._registers = registers
        self._form = form
        self._width = width
        self._stride = stride
        self._states, self._pitch = states
        self._tokens = tokens
        self._vectors = registers.builder.lshr(width, LONG(_LANES.bit_length() - 1))

    def multiply_one(self, rows: Sequence[Any], columns: Sequence[Any]) -> None:
        """Build the results of eight rows for one token."""
        self._multiply(rows, columns, [LONG(0)])

    def multiply_several(self, rows: Sequence[Any], columns: Sequence[Any]) -> None:
        """Build the results of eight rows for all tokens."""
        builder = self._registers.builder
        several = 2 * _SEVERAL if self._registers.has.get("avx512vl") else _SEVERAL
        tiled = builder.and_(self._tokens, LONG(-several))
        for size, low, high, height in ((several, LONG(0), tiled, _HEIGHT), (1, tiled, self._tokens, ROWS)):
            with cgutils.for_range_slice(builder, low, high, LONG(size), LONG) as (token, _):
                tokens = [builder.add(token, LONG(i)) for i in range(size)]
                for first in range(0, ROWS, height):
                    span = slice(first, first + height)
                    self._multiply(rows[span], columns[span], tokens)

    def _multiply(self, rows: Sequence[Any], columns: Sequence[Any], tokens: Sequence[Any]) -> None:
        registers, builder = self._registers, self._registers.builder
        places = [registers.real_at(self._states, builder.mul(token, self._pitch)) for token in tokens]
        states = [builder.bitcast(place, BYTE.as_pointer()) for place in places]

        def step(number: Any, sums: Sequence[Any]) -> list[Any]:
            at = builder.mul(number, LONG(_LANES))
            if len(rows) == ROWS:
                self._bring_next(rows[0], at)
            return self._add(sums, rows, states, at, _LANES)

        def last(number: Any, sums: Sequence[Any]) -> list[Any]:
            return self._add(sums, rows, states, builder.add(builder.and_(self._width, LONG(-_LANES)), number), 1)

        zero = ir.Constant(REALS, [0.0] * _LANES)
        sums = repeat(builder, self._vectors, 1, [zero] * (len(rows) * len(tokens)), step)
        totals = [self._totals(sums[first : first + _LANES]) for first in range(0, len(sums), _LANES)]
        each = [registers.chosen(total, [lane]) for total in totals for lane in range(_LANES)]
        found = repeat(builder, builder.and_(self._width, LONG(_LANES - 1)), 1, each, last)
        for number, value in enumerate(found):
            row, token = divmod(number, len(tokens))
            place = registers.real_at(columns[row], builder.mul(tokens[token], self._stride))
            builder.store(builder.extract_element(value, WORD(0)), place)

    def _bring_next(self, row: Any, at: Any) -> None:
        """Prefetch from the next eight rows as much as is read of these."""
        builder, size = self._registers.builder, ROWS * self._form.size
        behind = builder.mul(builder.add(self._width, at), LONG(size))
        self._registers.bring(row, behind, _LANES * size)

    def _add(self, sums: Sequence[Any], rows: Sequence[Any], states: Sequence[Any], at: Any, count: int) -> list[Any]:
        """Add the products of `count` numbers from number `at` on to the sums of each row and token."""
        registers, builder, kind = self._registers, self._registers.builder, ir.VectorType(REAL, count)
        loaded = [registers.load(each, kind, builder.mul(at, LONG(4))) for each in states]
        found: list[Any] = []
        for row in rows:
            bits = registers.load(row, ir.VectorType(self._form.kind, count), builder.mul(at, LONG(self._form.size)))
            weights = self._form.widen(registers, bits)
            for state in loaded:
                total = sums[len(found)]
                found.append(registers.call(f"llvm.fma.v{count}f32", kind, weights, state, total))
        return found

    def _totals(self, sums: Sequence[Any]) -> Any:
        """Return a vector whose lane i is the sum of the lanes of sums[i], for eight vectors."""
        builder, left, size = self._registers.builder, list(sums), 1
        while len(left) > 1:
            upper = [lane if not lane & size else _LANES + lane - size for lane in range(_LANES)]
            lower = [lane + size if not lane & size else _LANES + lane for lane in range(_LANES)]
            left = [
                builder.fadd(*(self._registers.chosen(one, lanes, other) for lanes in (upper, lower)))
                for one, other in zip(left[::2], left[1::2], strict=True)
            ]
            size *= 2
        return left[0]
