"""Making room in a chart: what is left of it when the states that nobody was given are given up."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels.chart import layout as kernel
from ...kernels.chart.compaction import find_needed, keep_needed, keep_sets
from ...kernels.chart.interning import HI
from ...kernels.chart.layout import Chart, GraphArrays
from ...kernels.chart.rows import LOOP
from ...kernels.chart.ways import grow_old, put_to_sleep
from .arrays import reindexed, to_be_compacted

# Of the states that are put to sleep, one in so many stays awake, so that none is far from one.
STRIDE = 64
# How many rows there is room for at first
ROWS_LEFT = 128


class Compacted(NamedTuple):
    """A chart without what was given up; for each number of a state or a signature, whether it still means the same."""

    chart: Chart
    states: NDArray[np.bool_]
    signatures: NDArray[np.bool_]


def compacted(graph: GraphArrays, old: Chart, most: int, max_words: int) -> Compacted:
    """The chart without the states whose numbers nobody was given; the one it is given stays as it is.

    most: of more words than these, some are put to sleep that nobody was given since the last time
    max_words: how much room there may be beyond what is needed, unless that is much itself
    """
    chart = to_be_compacted(old)
    count = int(chart.sizes[kernel.STATES])
    return_sets, signatures = np.zeros(len(chart.return_sets), np.uint8), np.zeros(len(chart.signatures), np.uint8)
    needed = int(find_needed(chart, return_sets, signatures))
    if needed > most and put_to_sleep(chart.states, count, STRIDE):
        return_sets[:] = signatures[:] = 0
        needed = int(find_needed(chart, return_sets, signatures))
    # With room in proportion to what was given out since the last time, that would be ever more each time.
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
    states = (chart.states[:count, kernel.KEPT] >= 0) & (chart.states[:count, HI] != kernel.ASLEEP)
    return Compacted(chart, states, signatures == 1)
