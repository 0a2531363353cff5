"""The innermost loops of attention on a CPU: as many keys or values of a block at once as a vector has numbers."""

# llvmlite says nothing of the types of what is inside it.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportMissingTypeStubs=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from ..jit.aliases import Int
from ..jit.vectors import INT, VECTOR, Vectors, in_vectors, place_of

Reals = NDArray[np.floating[Any]]
_SUMS = 4
"""Sums of values that grow side by side, since each addition waits for the one before it."""


def _score_keys(context: Any, line: Any, at: Any, query: Any, keys: Any, first: Any, scale: Any) -> Any:
    def build(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = signature.args
        unit = Vectors(target, builder, kinds[0].dtype)
        start, size = place_of(target, builder, kinds[3], arguments[3], arguments[4], INT(0))
        own, _ = place_of(target, builder, kinds[2], arguments[2], INT(0))
        lines = [builder.gep(start, [builder.mul(size, INT(i))]) for i in range(unit.lanes)]

        def step(at: Any, totals: Sequence[Any]) -> Sequence[Any]:
            part = unit.load(builder.gep(own, [at]))
            loaded = [unit.load(builder.gep(line, [at])) for line in lines]
            return [unit.add_product(total, part, those) for total, those in zip(totals, loaded, strict=True)]

        sums = unit.repeat(size, unit.lanes, [unit.zero] * unit.lanes, step)
        # Two vectors at a time become one, until in one vector each lane has the sum of one of them.
        distance = 1
        while distance < unit.lanes:
            for i in range(0, unit.lanes, 2 * distance):
                sums[i] = unit.add(*unit.exchanged(sums[i], sums[i + distance], distance))
            distance *= 2
        out, _ = place_of(target, builder, kinds[0], arguments[0], arguments[1])
        unit.store(builder.fmul(sums[0], unit.spread(arguments[5])), out)
        return target.get_dummy_value()

    return types.void(line, at, query, keys, first, keys.dtype), build


def _plain_score_keys(line: Reals, at: Int, query: Reals, keys: Reals, first: Int, scale: Any) -> None:
    for i in range(VECTOR // keys.itemsize):
        total = keys.dtype.type(0)
        for k in range(query.size):
            total += query[k] * keys[first + i, k]
        line[at + i] = total * scale


def _mix_values(context: Any, result: Any, line: Any, at: Any, values: Any, first: Any) -> Any:
    def build(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = signature.args
        unit = Vectors(target, builder, kinds[0].dtype)
        start, size = place_of(target, builder, kinds[3], arguments[3], arguments[4], INT(0))
        weights, _ = place_of(target, builder, kinds[1], arguments[1], arguments[2])
        out, _ = place_of(target, builder, kinds[0], arguments[0], INT(0))
        lines = [builder.gep(start, [builder.mul(size, INT(i))]) for i in range(unit.lanes)]

        def step(at: Any, totals: Sequence[Any]) -> Sequence[Any]:
            place = builder.gep(out, [at])
            sums = [unit.load(place), *[unit.zero] * (_SUMS - 1)]
            for i, line in enumerate(lines):
                weight = unit.spread(builder.load(builder.gep(weights, [INT(i)])))
                sums[i % _SUMS] = unit.add_product(sums[i % _SUMS], weight, unit.load(builder.gep(line, [at])))
            unit.store(unit.add(unit.add(sums[0], sums[1]), unit.add(sums[2], sums[3])), place)
            return []

        unit.repeat(size, unit.lanes, [], step)
        return target.get_dummy_value()

    return types.void(result, line, at, values, first), build


def _plain_mix_values(result: Reals, line: Reals, at: Int, values: Reals, first: Int) -> None:
    for k in range(result.size):
        total = result[k]
        for i in range(VECTOR // values.itemsize):
            total += line[at + i] * values[first + i, k]
        result[k] = total


# For keys and values of a size that is a multiple of a vector's lanes, and i from 0 to these:
# score_keys(line, at, query, keys, first, scale): line[at + i] = scale * query . keys[first + i]
score_keys: Callable[[Reals, Int, Reals, Reals, Int, Any], None] = in_vectors(_plain_score_keys, _score_keys)
# mix_values(result, line, at, values, first): result += the sum of line[at + i] * values[first + i]
mix_values: Callable[[Reals, Reals, Int, Reals, Int], None] = in_vectors(_plain_mix_values, _mix_values)
