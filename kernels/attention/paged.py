"""Attention of few new tokens of many sequences over a KV cache in blocks (CPU, float32 and float64).

Kernels read keys and values in place, once for all query heads that share them. Scores go to a scratch row, so that
exponentials are vectorised. With float32 states, keys and values may be stored in fewer bits, see stored.py. Source of
the blocks: W. Kwon et al., Efficient Memory Management for Large Language Model Serving with PagedAttention (2023).
"""
# llvmlite has no type stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from ..jit.aliases import Int, Ints
from ..jit.arrays import Arrays, Vector
from ..jit.vectors import INT, LINE, VECTOR, Vectors, in_vectors, place_of, prefetch, repeat
from ..jit.wide import inner_njit, njit
from .stored import Stored, keep, near_block

Reals = NDArray[np.floating[Any]]
_SUMS = 4
"""Independent partial sums of values, since an addition must wait for the one before it."""


def _score_keys(context: Any, line: Any, at: Any, query: Any, keys: Any, first: Any, scale: Any) -> Any:
    def build(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = signature.args
        unit = Vectors(target, builder, kinds[0].dtype)
        start, size = place_of(target, builder, kinds[3], arguments[3], arguments[4], INT(0))
        numbers, _ = place_of(target, builder, kinds[2], arguments[2], INT(0))
        lines = [builder.gep(start, [builder.mul(size, INT(i))]) for i in range(unit.lanes)]

        def step(at: Any, totals: Sequence[Any]) -> Sequence[Any]:
            part = unit.load(builder.gep(numbers, [at]))
            loaded = [unit.load(builder.gep(line, [at])) for line in lines]
            return [unit.add_product(total, part, those) for total, those in zip(totals, loaded, strict=True)]

        sums = repeat(builder, size, unit.lanes, [unit.zero] * unit.lanes, step)
        # Add up the lanes of `lanes` vectors pairwise, until lane i of one vector has the sum of vector i.
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

        repeat(builder, size, unit.lanes, [], step)
        return target.get_dummy_value()

    return types.void(result, line, at, values, first), build


def _plain_mix_values(result: Reals, line: Reals, at: Int, values: Reals, first: Int) -> None:
    for k in range(result.size):
        total = result[k]
        for i in range(VECTOR // values.itemsize):
            total += line[at + i] * values[first + i, k]
        result[k] = total


# For keys and values whose size is a multiple of a vector's lanes, and i below the number of lanes:
# score_keys(line, at, query, keys, first, scale): line[at + i] = scale * query . keys[first + i]
score_keys: Callable[[Reals, Int, Reals, Reals, Int, Any], None] = in_vectors(_plain_score_keys, _score_keys)
# mix_values(result, line, at, values, first): result += the sum of line[at + i] * values[first + i]
mix_values: Callable[[Reals, Reals, Int, Reals, Int], None] = in_vectors(_plain_mix_values, _mix_values)


LOG2E = 1.4426950408889634
# ln 2 in two parts. The first one ends in zero bits, so that its products with small integers are exact.
LN2_HIGH = 0.693359375
LN2_LOW = -2.1219444005469058e-4
# Weights below e^-80 of the largest one do not change a sum, not even in float64.
LEAST = -80.0


class AttentionRows(Arrays):
    """Rows of a step: row r reads widths[r] tokens of the step from firsts[r] on, at positions from starts[r] on.

    blocks: block numbers of all rows, one block table after the other
    tables: [rows], index in `blocks` at which the row's block table begins
    firsts, widths, starts: [rows]
    """

    blocks: Vector[np.int32]
    tables: Vector[np.int32]
    firsts: Vector[np.int32]
    widths: Vector[np.int32]
    starts: Vector[np.int32]


@njit
def write_blocks(stored: Stored, new: Reals, slots: Ints) -> None:
    """Store new[t] [heads, size] in stored [blocks, heads, BLOCK, row length]; slots[t] = block * BLOCK + place."""
    room = stored.shape[2]
    for token in range(slots.size):
        block, place = slots[token] // room, slots[token] % room
        for head in range(stored.shape[1]):
            keep(stored[block, head, place], new[token, head])


@njit(fastmath={"contract", "reassoc", "nsz", "arcp"}, error_model="numpy")
def attend_blocks(
    out: Reals,
    queries: Reals,
    keys: Stored,
    values: Stored,
    rows: AttentionRows,
    lo: Int,
    hi: Int,
    window: Int,
    chunk: Int,
    sinks: Reals,
    settings: Reals,
    scratch: Reals,
    near: Stored,
) -> None:
    """Compute attention of the new tokens of some rows, each over the tokens of its sequence up to itself.

    lo, hi: range of (row, key head) pairs, numbered row * heads + head

    out, queries: [tokens, query heads, size of values] and [tokens, query heads, size of keys]
    keys, values: [blocks, heads, BLOCK, row length], rows in a format of stored.py
    window, chunk: number of tokens a token attends to, including itself, and size of the chunks that it stays in; 0 for
        no limit
    sinks: [query heads], or empty: an extra score in the softmax, with a value of zero
    settings: scale of scores, and their soft cap or 0
    scratch: [query heads, tokens of the longest row]
    near: this thread's buffer from `room_near`
    """
    heads = keys.shape[1]
    group = queries.shape[1] // heads
    for row in range(lo // heads, (hi + heads - 1) // heads):
        head = max(lo - row * heads, 0)
        above, below = head * group, min(hi - row * heads, heads) * group
        scores, head_sinks = scratch[above:below], sinks[above:below] if sinks.size > 0 else sinks
        for step in range(rows.widths[row]):
            end = rows.starts[row] + step + 1
            begin = first_seen(end, window, chunk)
            token = rows.firsts[row] + step
            blocks = rows.blocks[rows.tables[row] :]
            score(scores, queries[token, above:below], keys, head, group, blocks, begin, end, settings[0], near)
            if settings[1] > 0:
                cap_scores(scores, end - begin, settings[1])
            softmax(scores, end - begin, head_sinks)
            mix(out[token, above:below], scores, values, head, group, blocks, begin, end, near)


@inner_njit
def first_seen(end: Int, window: Int, chunk: Int) -> Int:
    """Return the first token that the token at end - 1 attends to. window, chunk: see `attend_blocks`"""
    begin = 0
    if window > 0:
        begin = max(begin, end - window)
    if chunk > 0:
        begin = max(begin, (end - 1) // chunk * chunk)
    return begin


@inner_njit
def expect(table: Stored) -> None:
    """Prefetch one head's part of a block. Hardware prefetchers cannot follow the block table."""
    for j in range(table.shape[0]):
        for i in range(0, table.shape[1], LINE // table.itemsize):
            prefetch(table, j, i)


@inner_njit
def score(
    scores: Reals,
    queries: Reals,
    keys: Stored,
    first: Int,
    group: Int,
    blocks: Ints,
    begin: Int,
    end: Int,
    scale: Any,
    near: Stored,
) -> None:
    """scores[h, t - begin] = scale * queries[h] . key of token t, in one pass over the blocks for all heads.

    first: key head of the first query; group: number of query heads that share a key head
    """
    room, size, lanes = keys.shape[2], queries.shape[1], VECTOR // scores.itemsize
    for index in range(begin // room, (end - 1) // room + 1):
        low, high = max(begin - index * room, 0), min(end - index * room, room)
        at = index * room - begin
        fours = low + (high - low) // 4 * 4
        for head in range(queries.shape[0] // group):
            those = near_block(keys[blocks[index], first + head], low, high, near)
            expect(keys[blocks[min(index + 1, (end - 1) // room)], first + head])
            for number in range(head * group, (head + 1) * group):
                query = queries[number]
                line = scores[number]
                done = low
                if size % lanes == 0:
                    done = low + (high - low) // lanes * lanes
                    for j in range(low, done, lanes):
                        score_keys(line, at + j, query, those, j, scale)
                for j in range(done, fours, 4):
                    a = scores.dtype.type(0)
                    b = scores.dtype.type(0)
                    c = scores.dtype.type(0)
                    d = scores.dtype.type(0)
                    for i in range(size):
                        q = query[i]
                        a += q * those[j, i]
                        b += q * those[j + 1, i]
                        c += q * those[j + 2, i]
                        d += q * those[j + 3, i]
                    line[at + j] = a * scale
                    line[at + j + 1] = b * scale
                    line[at + j + 2] = c * scale
                    line[at + j + 3] = d * scale
                for j in range(fours, high):
                    a = scores.dtype.type(0)
                    for i in range(size):
                        a += query[i] * those[j, i]
                    line[at + j] = a * scale


@inner_njit
def exponential(x: Any, like: Reals) -> Any:
    """Return e^x for x <= 0 in the dtype of `like`, without branches and calls, so that LLVM can vectorise it.

    e^x = 2^k e^r with |r| <= ln 2 / 2, and e^r by the first 14 terms of its series.
    """
    kind = like.dtype.type
    x = kind(LEAST) if x < kind(LEAST) else x  # NaN is kept
    k = np.floor(x * kind(LOG2E) + kind(0.5))
    r = (x - k * kind(LN2_HIGH)) - k * kind(LN2_LOW)
    series = kind(1 / 6227020800) * r + kind(1 / 479001600)
    series = series * r + kind(1 / 39916800)
    series = series * r + kind(1 / 3628800)
    series = series * r + kind(1 / 362880)
    series = series * r + kind(1 / 40320)
    series = series * r + kind(1 / 5040)
    series = series * r + kind(1 / 720)
    series = series * r + kind(1 / 120)
    series = series * r + kind(1 / 24)
    series = series * r + kind(1 / 6)
    series = series * r + kind(0.5)
    series = series * r + kind(1)
    series = series * r + kind(1)
    return series * kind(np.int32((np.int32(k) + np.int32(127)) << np.int32(23)).view(np.float32))


@inner_njit
def cap_scores(scores: Reals, count: Int, cap: Any) -> None:
    """Replace each score by cap * tanh(score / cap)."""
    one = scores.dtype.type(1)
    for number in range(scores.shape[0]):
        line = scores[number]
        for j in range(count):
            x = line[j] / cap
            e = exponential(-(abs(x) + abs(x)), scores)
            capped = cap * ((one - e) / (one + e))
            line[j] = capped if x >= 0 else -capped


@inner_njit
def softmax(scores: Reals, count: Int, sinks: Reals) -> None:
    """Replace each row of scores by its softmax, with the row's sink in the denominator if there is one."""
    for number in range(scores.shape[0]):
        line = scores[number]
        top = line[0] if sinks.size == 0 else sinks[number]
        for j in range(count):
            top = line[j] if line[j] > top else top
        total = scores.dtype.type(0)
        for j in range(count):
            weight = exponential(line[j] - top, scores)
            line[j] = weight
            total += weight
        if sinks.size > 0:
            total += exponential(sinks[number] - top, scores)
        factor = scores.dtype.type(1) / total
        for j in range(count):
            line[j] *= factor


@inner_njit
def mix(
    results: Reals,
    weights: Reals,
    values: Stored,
    first: Int,
    group: Int,
    blocks: Ints,
    begin: Int,
    end: Int,
    near: Stored,
) -> None:
    """results[h] = the sum of weights[h, t - begin] * value of token t. first, group: see `score`"""
    room, size, lanes = values.shape[2], results.shape[1], VECTOR // weights.itemsize
    for number in range(results.shape[0]):
        for i in range(size):
            results[number, i] = 0
    for index in range(begin // room, (end - 1) // room + 1):
        low, high = max(begin - index * room, 0), min(end - index * room, room)
        at = index * room - begin
        fours = low + (high - low) // 4 * 4
        for head in range(results.shape[0] // group):
            those = near_block(values[blocks[index], first + head], low, high, near)
            expect(values[blocks[min(index + 1, (end - 1) // room)], first + head])
            for number in range(head * group, (head + 1) * group):
                line = weights[number]
                result = results[number]
                done = low
                if size % lanes == 0:
                    done = low + (high - low) // lanes * lanes
                    for j in range(low, done, lanes):
                        mix_values(result, line, at + j, those, j)
                for j in range(done, fours, 4):
                    a, b = line[at + j], line[at + j + 1]
                    c, d = line[at + j + 2], line[at + j + 3]
                    for i in range(size):
                        result[i] += a * those[j, i] + b * those[j + 1, i] + c * those[j + 2, i] + d * those[j + 3, i]
                for j in range(fours, high):
                    a = line[at + j]
                    for i in range(size):
                        result[i] += a * those[j, i]
