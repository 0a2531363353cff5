"""Softmax of scores that come a panel at a time, many rows side by side in vectors.

The largest score so far and the sum of weights are kept for each row; where a larger one comes, what was summed before
is made less. Source: M. Milakov, N. Gimelshein, Online normalizer calculation for softmax (2018).
"""

# llvmlite says nothing of the types of what is inside it.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import factorial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from ..jit.aliases import Int
from ..jit.vectors import INT, VECTOR, Vectors, in_vectors, place_of
from .paged import LEAST, LN2_HIGH, LN2_LOW, LOG2E

Reals = NDArray[np.floating[Any]]
_VECTORS = 2
_TERMS = {4: 8, 8: 14}
"""How much of the series of e^r is seen in numbers of so many bytes."""


def _exponentials(unit: Vectors, x: Any) -> Any:
    """`paged.exponential` of each lane, by as many terms as its type shows."""
    builder, whole, single = (
        unit.builder,
        ir.VectorType(ir.IntType(32), unit.lanes),
        ir.VectorType(ir.FloatType(), unit.lanes),
    )

    def number(value: float) -> Any:
        return ir.Constant(unit.kind, [value] * unit.lanes)

    def integer(value: int) -> Any:
        return ir.Constant(whole, [value] * unit.lanes)

    least = number(LEAST)
    x = builder.select(builder.fcmp_ordered("<", x, least), least, x)  # NaN stays what it is
    name = f"llvm.floor.v{unit.lanes}f{8 * unit.bytes}"
    floor = cgutils.get_or_insert_function(builder.module, ir.FunctionType(unit.kind, [unit.kind]), name)
    k = builder.call(floor, [unit.add_product(number(0.5), x, number(LOG2E))])
    r = unit.add_product(unit.add_product(x, k, number(-LN2_HIGH)), k, number(-LN2_LOW))
    terms = _TERMS[unit.bytes]
    series = number(1 / factorial(terms - 1))
    for power in range(terms - 2, -1, -1):
        series = unit.add_product(number(1 / factorial(power)), series, r)
    bits = builder.shl(builder.add(builder.fptosi(k, whole), integer(127)), integer(23))
    scale = builder.bitcast(bits, single)
    return builder.fmul(series, scale if unit.bytes == 4 else builder.fpext(scale, unit.kind))


def _weigh(context: Any, scores: Any, count: Any, tops: Any, totals: Any, factors: Any) -> Any:
    def build(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = signature.args
        unit = Vectors(target, builder, kinds[0].dtype)
        offsets = [INT(i * unit.lanes) for i in range(_VECTORS)]
        start, lanes = place_of(target, builder, kinds[0], arguments[0], INT(0), INT(0))
        peaks, sums, less = (
            [place_of(target, builder, kinds[i], arguments[i], offset)[0] for offset in offsets] for i in (2, 3, 4)
        )

        def line(at: Any) -> list[Any]:
            first = builder.mul(at, lanes)
            return [builder.gep(start, [builder.add(first, offset)]) for offset in offsets]

        def raise_to(at: Any, tops: Sequence[Any]) -> Sequence[Any]:
            found = [unit.load(place) for place in line(at)]
            pairs = zip(found, tops, strict=True)
            return [builder.select(builder.fcmp_ordered(">", new, top), new, top) for new, top in pairs]

        before = [unit.load(place) for place in peaks]
        tops = unit.repeat(arguments[1], 1, before, raise_to)
        grown: list[Any] = []
        for old, top, peak, total, factor in zip(before, tops, peaks, sums, less, strict=True):
            scale = _exponentials(unit, builder.fsub(old, top))
            unit.store(top, peak)
            unit.store(scale, factor)
            grown.append(builder.fmul(unit.load(total), scale))

        def weigh(at: Any, totals: Sequence[Any]) -> Sequence[Any]:
            found: list[Any] = []
            for place, top, total in zip(line(at), tops, totals, strict=True):
                weight = _exponentials(unit, builder.fsub(unit.load(place), top))
                unit.store(weight, place)
                found.append(unit.add(total, weight))
            return found

        for total, place in zip(unit.repeat(arguments[1], 1, grown, weigh), sums, strict=True):
            unit.store(total, place)
        return target.get_dummy_value()

    return types.void(scores, count, tops, totals, factors), build


def _plain_weigh(scores: Reals, count: Int, tops: Reals, totals: Reals, factors: Reals) -> None:
    for lane in range(_VECTORS * VECTOR // scores.itemsize):
        top = tops[lane]
        for j in range(count):
            top = scores[j, lane] if scores[j, lane] > top else top
        factors[lane] = np.exp(tops[lane] - top)
        total = totals[lane] * factors[lane]
        for j in range(count):
            scores[j, lane] = np.exp(scores[j, lane] - top)
            total += scores[j, lane]
        tops[lane], totals[lane] = top, total


# weigh(scores, count, tops, totals, factors): the first `count` of scores [n, rows], of as many rows as two vectors
# have numbers, become e^(score - top of the row), with `tops` and `totals` [rows] of what came before and of these;
# `factors` [rows] is how much less sums of before count now.
weigh: Callable[[Reals, Int, Reals, Reals, Reals], None] = in_vectors(_plain_weigh, _weigh)
