"""Arrays of a chart: creation, growth, reindexing, compaction and memory accounting. The given chart stays unchanged.

Compaction drops the states that no caller was given, and keeps what the others need.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels.chart import layout as kernel
from ...kernels.chart.compaction import evict, find_needed, grow_old, keep_needed, keep_sets
from ...kernels.chart.interning import FREE, HI, SETS, WORDS, reindex
from ...kernels.chart.layout import Chart, GraphArrays
from ...kernels.chart.rows import LOOP, MEMO_HEADER, MEMO_ITEMS
from ...kernels.jit.compiling import call
from ..limits import Meter, spend

MEMO_SLOTS = 1024
# Elements copied or indexed at once, some milliseconds; a call can be cancelled in between
NUMBERS_AT_A_TIME, SPANS_AT_A_TIME = 1 << 20, 1 << 14
SPANS = {"states": kernel.STATES, "return_sets": kernel.RETURN_SETS, "signatures": kernel.SIGNATURES}
_GROWING = {*SPANS, "words", "rows", "loops", "set_words", "sets"}
_NAMES = [each.name for each in fields(Chart)]
# Arrays of a chart that are fully written
_WRITTEN = [name for name in _NAMES if name not in _GROWING]


def new_chart(horizon: int, max_rows: int, meter: Meter) -> Chart:
    """Create an empty chart with the return set ROOT, which ends the text, and the empty return set.

    The initial sizes suffice for half of all schemas: larger ones waste memory in every cached guide, smaller ones
    are copied and reindexed too often.
    """
    rows = min(512, max_rows)
    sizes = np.zeros(12, np.int64)
    sizes[FREE:] = -1
    sizes[kernel.HORIZON] = horizon
    set_sizes = np.zeros(FREE + SETS + 1, np.int64)
    set_sizes[FREE:] = -1
    set_sizes[SETS] = 1
    chart = Chart(
        words=np.empty(1 << 16, np.int32),
        states=np.empty((4096, kernel.STATE), np.int32),
        return_sets=np.empty((512, 3), np.int32),
        signatures=np.empty((1024, 2), np.int32),
        state_index=np.full(1 << 14, -1, np.int32),
        return_set_index=np.full(1 << 11, -1, np.int32),
        signature_index=np.full(1 << 12, -1, np.int32),
        rows=np.empty((rows, 256), np.int32),
        loops=np.empty((rows, LOOP), np.uint64),
        memo=np.zeros((MEMO_SLOTS, MEMO_HEADER + kernel.ITEM * MEMO_ITEMS), np.int32),
        set_words=np.empty(4096, np.int32),
        sets=np.zeros((256, 2), np.int32),
        set_index=np.full(1024, -1, np.int32),
        set_sizes=set_sizes,
        sizes=sizes,
        missing=np.zeros(256, np.int32),
        meter=meter.counts,
        **scratch(64),
    )
    chart.return_sets[:2] = ((0, 0, 0), (0, 0, 1))
    sizes[kernel.RETURN_SETS] = 2
    chart.signatures[:2] = 0
    sizes[kernel.SIGNATURES] = 2
    return chart


def scratch(size: int) -> dict[str, Any]:
    """Allocate scratch arrays for the closure of up to `size` items."""
    return {
        "items": np.empty((size, kernel.ITEM), np.int32),
        "work": np.empty((size, kernel.ITEM), np.int32),
        "leaves": np.empty((size, kernel.ITEM), np.int32),
        "entries": np.empty((size, kernel.ENTRY + 2), np.int32),
        "done": np.empty(size, np.int32),
        "seen": np.zeros((8 * size, 2), np.int32),
        "buffer": np.empty(kernel.ENTRY * size + 8, np.int32),
    }


def scratch_bytes(size: int) -> int:
    """Return the bytes of `scratch` arrays."""
    return 4 * size * (3 * kernel.ITEM + 2 * kernel.ENTRY + 2 + 1 + 16)


def reindexed(chart: Chart) -> Chart:
    """Return the chart with new indices of its spans and of its large sets."""
    indices = {
        f"{name[:-1]}_index": index_of(chart.words, getattr(chart, name), int(chart.sizes[kind]))
        for name, kind in SPANS.items()
    }
    sets = index_of(chart.set_words, chart.sets, int(chart.set_sizes[SETS]))
    return replace(chart, **indices, set_index=sets)


def index_of(words: Any, spans: Any, count: int) -> Any:
    """Index the first `count` spans in batches, with room for all. Raises Cancelled in between."""
    index = filled(4 * len(spans))
    for first in range(0, count, SPANS_AT_A_TIME):
        spend(0)
        call(reindex, words, spans, index, first, min(first + SPANS_AT_A_TIME, count))
    return index


def filled(length: int) -> Any:
    """Allocate an empty index, int32 [length]. Raises Cancelled."""
    index = np.empty(length, np.int32)
    for first in range(0, length, NUMBERS_AT_A_TIME):
        spend(0)
        index[first : first + NUMBERS_AT_A_TIME] = -1
    return index


def larger(array: Any, count: int = 0) -> Any:
    """Copy an array to one with `count` rows, or twice as many. Raises Cancelled."""
    grown = np.empty((count or 2 * len(array), *array.shape[1:]), array.dtype)
    rows = max(1, NUMBERS_AT_A_TIME * len(array) // max(1, array.size))
    for first in range(0, len(array), rows):
        spend(0)
        grown[first : min(first + rows, len(array))] = array[first : first + rows]
    return grown


def to_be_compacted(chart: Chart) -> Chart:
    """Return the chart with copies of the arrays that compaction writes to, so that the given one stays unchanged."""
    names = ("states", "return_sets", "signatures", "sets", "sizes", "set_sizes")
    return replace(chart, **{name: getattr(chart, name).copy() for name in names})


def held_bytes(chart: Chart, rows: int) -> int:
    """Return the bytes of a chart that were written to, with `rows` rows; unused capacity does not count."""
    sizes: list[int] = chart.sizes.tolist()
    counts = [(chart.words, sizes[WORDS]), (chart.rows, rows), (chart.loops, rows)]
    counts += [(chart.set_words, int(chart.set_sizes[WORDS])), (chart.sets, int(chart.set_sizes[SETS]))]
    counts += [(getattr(chart, name), sizes[kind]) for name, kind in SPANS.items()]
    growing = sum(count * array.strides[0] for array, count in counts)
    return growing + sum(getattr(chart, name).nbytes for name in _WRITTEN)


def reserved_bytes(chart: Chart) -> int:
    """Return the bytes of a chart's arrays, with unused capacity: recycled memory is not returned to the system."""
    arrays = vars(chart)
    return sum(arrays[name].nbytes for name in _NAMES)


# Of the states to evict, one in STRIDE stays, so that none is far from one.
STRIDE = 64
# Initial capacity of rows after compaction
ROWS_LEFT = 128


class Compacted(NamedTuple):
    """A compacted chart; states, signatures: whether each old number is still valid, bool [old count]"""

    chart: Chart
    states: NDArray[np.bool_]
    signatures: NDArray[np.bool_]


def compacted(graph: GraphArrays, old: Chart, most: int, max_words: int) -> Compacted:
    """Return the chart without the states that no caller was given; the given chart stays unchanged.

    most: words above which states that no caller was given since the last compaction are evicted
    max_words: bound of the free capacity, unless half of what is needed is more
    """
    chart = to_be_compacted(old)
    count = int(chart.sizes[kernel.STATES])
    return_sets, signatures = np.zeros(len(chart.return_sets), np.uint8), np.zeros(len(chart.signatures), np.uint8)
    needed = int(find_needed(chart, return_sets, signatures))
    if needed > most and evict(chart.states, count, STRIDE):
        return_sets[:] = signatures[:] = 0
        needed = int(find_needed(chart, return_sets, signatures))
    # Capacity in proportion to the words given out since the last compaction would grow each time.
    room = min(3 * needed, max(max_words, needed // 2))
    words = np.zeros(max(4096, 4 * len(chart.buffer), needed + room), np.int32)
    keep_needed(chart, return_sets, signatures, words)
    grow_old(chart.states, count)
    chart.states[:, kernel.ROW] = -1
    chart.sizes[kernel.ROWS] = 0
    chart = replace(
        chart,
        words=words,
        rows=np.zeros((ROWS_LEFT, 256), np.int32),
        loops=np.zeros((ROWS_LEFT, LOOP), np.uint64),
        memo=np.zeros_like(chart.memo),
        set_words=np.zeros_like(chart.set_words),
    )
    keep_sets(graph, replace(chart, set_words=old.set_words), chart.set_words)
    chart = reindexed(chart)
    states = (chart.states[:count, kernel.KEPT] >= 0) & (chart.states[:count, HI] != kernel.EVICTED)
    return Compacted(chart, states, signatures == 1)
