"""Attention of many new tokens of a sequence over a KV cache in blocks (CPU, float32 and float64).

Queries lie side by side in vectors, including those of all heads that share keys. Keys and values are gathered panel by
panel, once for several tiles of queries, and scores exist for one panel and one tile only. Source: T. Dao,
FlashAttention-2 (2023).

Online softmax: each query keeps its largest score so far and the sum of weights. A larger score rescales the earlier
sums. Source: M. Milakov, N. Gimelshein, Online normalizer calculation for softmax (2018).
"""
# llvmlite has no type stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import factorial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from ..decoder.products import add_products, to_columns, to_rows
from ..jit.aliases import Int, Ints
from ..jit.vectors import INT, VECTOR, Vectors, in_vectors, place_of, repeat
from ..jit.wide import inner_njit, njit
from .paged import LEAST, LN2_HIGH, LN2_LOW, LOG2E, cap_scores, first_seen
from .stored import Stored, load

Reals = NDArray[np.floating[Any]]
_VECTORS = 2
_TERMS = {4: 8, 8: 14}
"""Terms of the series of e^r that a float of 4 or 8 bytes needs."""


def _exponentials(unit: Vectors, x: Any) -> Any:
    """Build `paged.exponential` of each lane, with the number of terms that the type needs."""
    builder, integers, single = (
        unit.builder,
        ir.VectorType(ir.IntType(32), unit.lanes),
        ir.VectorType(ir.FloatType(), unit.lanes),
    )

    def number(value: float) -> Any:
        return ir.Constant(unit.kind, [value] * unit.lanes)

    def integer(value: int) -> Any:
        return ir.Constant(integers, [value] * unit.lanes)

    least = number(LEAST)
    x = builder.select(builder.fcmp_ordered("<", x, least), least, x)  # NaN is kept
    name = f"llvm.floor.v{unit.lanes}f{8 * unit.bytes}"
    floor = cgutils.get_or_insert_function(builder.module, ir.FunctionType(unit.kind, [unit.kind]), name)
    k = builder.call(floor, [unit.add_product(number(0.5), x, number(LOG2E))])
    r = unit.add_product(unit.add_product(x, k, number(-LN2_HIGH)), k, number(-LN2_LOW))
    terms = _TERMS[unit.bytes]
    series = number(1 / factorial(terms - 1))
    for power in range(terms - 2, -1, -1):
        series = unit.add_product(number(1 / factorial(power)), series, r)
    bits = builder.shl(builder.add(builder.fptosi(k, integers), integer(127)), integer(23))
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
        tops = repeat(builder, arguments[1], 1, before, raise_to)
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

        for total, place in zip(repeat(builder, arguments[1], 1, grown, weigh), sums, strict=True):
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


# weigh(scores, count, tops, totals, factors): replace the first `count` rows of scores [n, queries] by
# e^(score - largest score of the query); queries = the lanes of two vectors. `tops` and `totals` [queries] are the
# largest scores and sums of weights, updated; `factors` [queries] rescale earlier sums.
weigh: Callable[[Reals, Int, Reals, Reals, Reals], None] = in_vectors(_plain_weigh, _weigh)


_PANEL = 64
_TILES = 8
_UNSEEN = -1e30
"""Score of a masked position; below any real score."""


@njit(fastmath={"contract", "reassoc", "nsz", "arcp"}, error_model="numpy")
def attend_panels(
    out: Reals,
    queries: Reals,
    keys: Stored,
    values: Stored,
    blocks: Ints,
    start: Int,
    window: Int,
    chunk: Int,
    sinks: Reals,
    settings: Reals,
) -> None:
    """Compute attention of tokens at positions `start` ... of a sequence, each over the tokens up to itself.

    out, queries: [tokens, query heads, size of values] and [tokens, query heads, size of keys]
    keys, values: [blocks, heads, BLOCK, row length]
    blocks: [n], the block table; blocks outside all windows are not read
    window, chunk, sinks, settings: see `attend_blocks`
    """
    lanes = 2 * VECTOR // queries.itemsize
    heads, size, depth, kind = keys.shape[1], queries.shape[2], out.shape[2], queries.dtype
    count = queries.shape[0] * (queries.shape[1] // heads)
    turned, mixed = np.empty((_TILES, size, lanes), kind), np.empty((_TILES, depth, lanes), kind)
    tops, totals = np.empty((_TILES, lanes), kind), np.empty((_TILES, lanes), kind)
    begins, ends = np.empty((_TILES, lanes), np.int64), np.empty((_TILES, lanes), np.int64)
    rows, results = np.empty((lanes, size), kind), np.empty((lanes, depth), kind)
    panel = np.empty((_PANEL, size), kind), np.empty((_PANEL, depth), kind), np.empty((depth, _PANEL), kind)
    scores, factors = np.empty((_PANEL, lanes), kind), np.empty(lanes, kind)
    for head in range(heads):
        for low in range(0, count, _TILES * lanes):
            tiles = (min(count - low, _TILES * lanes) + lanes - 1) // lanes
            for tile in range(tiles):
                first = low + tile * lanes
                begin_tile(turned[tile], rows, queries, heads, head, first, settings[0])
                begin_sums(mixed[tile], tops[tile], totals[tile], sinks, heads, head, first)
                find_reach(begins[tile], ends[tile], start, queries.shape[0], count, first, window, chunk)
            stop = ends[tiles - 1, lanes - 1]
            for at in range(begins[0, 0], stop, _PANEL):
                seen = min(_PANEL, stop - at)
                load_panel(panel, keys, values, blocks, head, at, seen)
                for tile in range(tiles):
                    if at < ends[tile, lanes - 1] and begins[tile, 0] < at + seen:
                        score_panel(scores, panel[0], turned[tile], seen, settings[1])
                        hide(scores, begins[tile], ends[tile], at)
                        weigh(scores, _PANEL, tops[tile], totals[tile], factors)
                        scale_rows(mixed[tile], factors)
                        add_products(mixed[tile], panel[2], scores, True)
            for tile in range(tiles):
                end_tile(out, mixed[tile], totals[tile], results, heads, head, low + tile * lanes)


@inner_njit
def begin_tile(turned: Reals, rows: Reals, queries: Reals, heads: Int, head: Int, first: Int, scale: Any) -> None:
    """Transpose scaled queries: turned[:, lane] = scale * query. Copies of the last query fill the remaining lanes.

    rows: [lanes, size], scratch
    first: number of the query in lane 0, among the queries of this key head, token by token
    """
    group = queries.shape[1] // heads
    last = queries.shape[0] * group - 1
    for lane in range(rows.shape[0]):
        number = min(first + lane, last)
        query = queries[number // group, head * group + number % group]
        for i in range(rows.shape[1]):
            rows[lane, i] = query[i] * scale
    to_columns(turned, rows, rows.shape[0], rows.shape[1])


@inner_njit
def begin_sums(mixed: Reals, tops: Reals, totals: Reals, sinks: Reals, heads: Int, head: Int, first: Int) -> None:
    """Initialise the sums: with zeros, or with the sinks."""
    for i in range(mixed.shape[0]):
        for lane in range(mixed.shape[1]):
            mixed[i, lane] = 0
    group = sinks.size // heads
    for lane in range(tops.size):
        tops[lane] = _UNSEEN if group == 0 else sinks[head * group + (first + lane) % group]
        totals[lane] = 0 if group == 0 else 1


@inner_njit
def find_reach(
    begins: Ints, ends: Ints, start: Int, tokens: Int, count: Int, first: Int, window: Int, chunk: Int
) -> None:
    """Set `begins` and `ends` [lanes]: the range of tokens that the query in each lane attends to."""
    for lane in range(begins.size):
        end = start + min(first + lane, count - 1) // (count // tokens) + 1
        begins[lane], ends[lane] = first_seen(end, window, chunk), end


@inner_njit
def load_panel(
    panel: tuple[Reals, Reals, Reals], keys: Stored, values: Stored, blocks: Ints, head: Int, at: Int, seen: Int
) -> None:
    """Load keys [_PANEL, size] of tokens `at` ..., and values transposed [depth, _PANEL]; values not seen are zeros."""
    first_row, beside, across = panel
    room = keys.shape[2]
    for j in range(seen):
        block, place = blocks[(at + j) // room], (at + j) % room
        load(first_row[j], keys[block, head, place])
        load(beside[j], values[block, head, place])
    for j in range(seen, _PANEL):
        for i in range(beside.shape[1]):
            beside[j, i] = 0
    to_columns(across, beside, _PANEL, beside.shape[1])


@inner_njit
def score_panel(scores: Reals, keys: Reals, turned: Reals, seen: Int, cap: Any) -> None:
    """scores[j] = keys[j] @ turned, soft-capped, for the first `seen` keys; 0 for the others."""
    for j in range(scores.shape[0]):
        for lane in range(scores.shape[1]):
            scores[j, lane] = 0
    add_products(scores[:seen], keys[:seen], turned, True)
    if cap > 0:
        cap_scores(scores[:seen], scores.shape[1], cap)


@inner_njit
def hide(scores: Reals, begins: Ints, ends: Ints, at: Int) -> None:
    """Mask scores outside the range of each lane. Both ends of the ranges are non-decreasing over the lanes."""
    if begins[begins.size - 1] <= at and ends[0] >= at + scores.shape[0]:
        return
    for j in range(scores.shape[0]):
        for lane in range(scores.shape[1]):
            if not begins[lane] <= at + j < ends[lane]:
                scores[j, lane] = _UNSEEN


@inner_njit
def scale_rows(mixed: Reals, factors: Reals) -> None:
    """Rescale earlier sums: mixed[:, lane] *= factors[lane]."""
    for i in range(mixed.shape[0]):
        for lane in range(factors.size):
            mixed[i, lane] *= factors[lane]


@inner_njit
def end_tile(out: Reals, mixed: Reals, totals: Reals, results: Reals, heads: Int, head: Int, first: Int) -> None:
    """Divide the sums of a tile by the totals, and store them in `out`; results: [lanes, depth], scratch."""
    group = out.shape[1] // heads
    to_rows(results, mixed, results.shape[0], results.shape[1])
    for lane in range(min(results.shape[0], out.shape[0] * group - first)):
        number = first + lane
        line = out[number // group, head * group + number % group]
        factor = totals.dtype.type(1) / totals[lane]
        for i in range(line.size):
            line[i] = results[lane, i] * factor
