"""Transition rows: the state after every byte, computed on demand, and the loops of states.

Bytes that no edge of a state's items distinguishes are read together. The state after a set of items is cached in a
small table (Chart.memo), because the states of a rule mostly have equal successors.

Kernels return the codes of kernels/answers.py.
"""

from __future__ import annotations

import numpy as np

from ..answers import CROWDED, DEAD, EXHAUSTED, EXPAND, FULL, spend
from ..jit.aliases import Bytes, Int
from ..jit.wide import inner_njit, njit, shared_njit
from .closure import close, push
from .interning import HI, LO
from .layout import (
    ACCEPTING,
    COUNTER,
    EDGE_FIRST,
    EDGE_HI,
    EDGE_LAST,
    EDGE_LO,
    EDGE_TARGET,
    GREATEST,
    HEADER,
    ITEM,
    ITEM_COUNT,
    ITEM_NODE,
    ITEM_ORIGIN,
    KEPT,
    LEAST,
    OWN_RETURN_SET,
    ROW,
    ROWS,
    SELF,
    STATES,
    UNBOUNDED,
    Chart,
    GraphArrays,
    is_set,
)
from .return_sets import new_stamp

# Columns of Chart.loops: the ASCII bytes that loop (two words of 64 bits), flags and room, and the lead bytes of
# UTF-8 all of whose characters loop, a bit for each from FIRST_LEAD on.
ASCII_LOW, ASCII_HIGH, ROOM, LEADS, LOOP = range(5)
FIRST_LEAD = 0xC0
LEADS_KNOWN, LOOP_KNOWN, COMPLETE, STEADY = np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(8)
ROOM_SHIFT = np.uint64(8)
# Columns of Chart.memo: number of items, the state after them, the items; its maximum of items; the answer of
# `recall` for others.
MEMO_COUNT, MEMO_AFTER, MEMO_HEADER = range(3)
MEMO_ITEMS, UNKNOWN = 8, -9
# A transition of a row before it is computed: most states are left by few bytes.
PENDING = -7
# States of more words than this count the work of scanning them.
MANY = 256
# Answers of `is_shift`.
NO_SHIFT, GROWN, SHIFTED = 0, 1, 2


@inner_njit
def is_shift(graph: GraphArrays, chart: Chart, state: Int, other: Int) -> Int:
    """Test whether `other` is `state` with all counts one higher: SHIFTED, or GROWN if it has further items.

    Bytes that lead from `state` to it loop, as far as the counters have room. Items whose counter is then full may be
    absent.
    """
    lo, hi = chart.states[state, LO], chart.states[state, HI]
    at, end = chart.states[other, LO], chart.states[other, HI]
    words = chart.words
    if words[lo + OWN_RETURN_SET] != words[at + OWN_RETURN_SET]:
        return NO_SHIFT
    left = end - at - HEADER
    same = words[lo + ACCEPTING] == words[at + ACCEPTING]
    counted = False
    at += HEADER
    for item in range(lo + HEADER, hi, ITEM):
        node = words[item + ITEM_NODE]
        counter = graph.nodes[node, COUNTER]
        more = 1 if counter and not is_set(graph, counter) else 0
        counted |= more == 1
        if more and words[item + ITEM_COUNT] + 1 >= graph.counters[counter, GREATEST]:
            continue
        while at < end and (
            words[at + ITEM_NODE] != node
            or words[at + ITEM_ORIGIN] != words[item + ITEM_ORIGIN]
            or words[at + ITEM_COUNT] != words[item + ITEM_COUNT] + more
        ):
            at += ITEM
        if at >= end:
            return NO_SHIFT
        at += ITEM
        left -= ITEM
    if not counted:
        return NO_SHIFT
    return SHIFTED if same and left == 0 else GROWN


@inner_njit
def room_of(graph: GraphArrays, chart: Chart, state: Int) -> Int:
    """Return how many more characters the counted loops of `state` have room for."""
    room = UNBOUNDED
    words = chart.words
    for at in range(chart.states[state, LO] + HEADER, chart.states[state, HI], ITEM):
        counter = graph.nodes[words[at + ITEM_NODE], COUNTER]
        if counter and not is_set(graph, counter) and graph.counters[counter, GREATEST] != UNBOUNDED:
            room = min(room, graph.counters[counter, GREATEST] - words[at + ITEM_COUNT])
    return room


@inner_njit
def lacking(graph: GraphArrays, chart: Chart, state: Int) -> Int:
    """Return how many more characters the counted loops of `state` require."""
    most = 0
    words = chart.words
    for at in range(chart.states[state, LO] + HEADER, chart.states[state, HI], ITEM):
        counter = graph.nodes[words[at + ITEM_NODE], COUNTER]
        if counter and not is_set(graph, counter):
            most = max(most, graph.counters[counter, LEAST] - words[at + ITEM_COUNT])
    return most


@inner_njit
def is_counted(graph: GraphArrays, node: Int) -> bool:
    """Test whether a node has a counter that counts."""
    counter = graph.nodes[node, COUNTER]
    return counter > 0 and not is_set(graph, counter)


@inner_njit
def recall(chart: Chart, count: Int) -> tuple[Int, Int]:
    """Return the memo's slot for chart.items[:count], and the state cached there, UNKNOWN if there is none.

    The slot is -1 if there are too many items.
    """
    items = chart.items
    if count > MEMO_ITEMS:
        return -1, UNKNOWN
    value = int(count)
    for at in range(count):
        value = (
            value * 31
            + int(items[at, ITEM_NODE]) * 0x5BD1
            + int(items[at, ITEM_ORIGIN]) * 0x1E35
            + int(items[at, ITEM_COUNT])
        ) & 0x7FFFFFFF
    slot = (value ^ (value >> 11)) & (len(chart.memo) - 1)
    known = chart.memo[slot]
    if known[MEMO_COUNT] != count:
        return slot, UNKNOWN
    for i in range(count):
        for k in range(ITEM):
            if known[MEMO_HEADER + ITEM * i + k] != items[i, k]:
                return slot, UNKNOWN
    return slot, known[MEMO_AFTER]


@inner_njit
def close_items(graph: GraphArrays, chart: Chart, count: Int) -> Int:
    """Return the state of chart.items[:count] and all they imply, DEAD if there are none; or a code."""
    if count == 0:
        return DEAD
    slot, after = recall(chart, count)
    if after != UNKNOWN:
        return after
    items = chart.items
    new_stamp(chart)
    length = 0
    for at in range(count):
        length = push(chart, items[at, ITEM_NODE], items[at, ITEM_ORIGIN], items[at, ITEM_COUNT], length)
        if length < 0:
            return CROWDED
    after = close(graph, chart, length)
    if slot >= 0 and after >= DEAD:
        known = chart.memo[slot]
        known[MEMO_COUNT] = count
        known[MEMO_AFTER] = after
        for i in range(count):
            for k in range(ITEM):
                known[MEMO_HEADER + ITEM * i + k] = items[i, k]
    return after


@inner_njit
def open_row(graph: GraphArrays, chart: Chart, state: Int) -> Int:
    """Return the number of the state's row, allocated if needed: PENDING where some edge has the byte; or a code."""
    known = chart.states[state, ROW]
    if known >= 0:
        return known
    row = chart.sizes[ROWS]
    if row >= len(chart.rows):
        return FULL
    transitions, words = chart.rows[row], chart.words
    transitions[:] = DEAD
    may_loop = False
    low = high = -1
    lo, hi = chart.states[state, LO], chart.states[state, HI]
    if hi - lo > MANY and spend(chart, hi - lo) < 0:
        return EXHAUSTED
    for at in range(lo + HEADER, hi, ITEM):
        for e in range(graph.nodes[words[at + ITEM_NODE], EDGE_LO], graph.nodes[words[at + ITEM_NODE], EDGE_HI]):
            if low == graph.edges[e, EDGE_FIRST] and high == graph.edges[e, EDGE_LAST]:
                continue
            low, high = graph.edges[e, EDGE_FIRST], graph.edges[e, EDGE_LAST]
            may_loop |= low < 0x80 and (low < high or is_counted(graph, words[at + ITEM_NODE]))
            for byte in range(low, high + 1):
                transitions[byte] = PENDING
    chart.loops[row, :] = 0
    chart.loops[row, ROOM] = np.uint64(0) if may_loop else LOOP_KNOWN
    chart.sizes[ROWS] = row + 1
    chart.states[state, ROW] = row
    return row


@shared_njit
def step(graph: GraphArrays, chart: Chart, state: Int, row: Int, byte: Int) -> Int:
    """Compute a PENDING transition, and those of all bytes that no edge distinguishes from it.

    Return the state after the byte, DEAD, or a code. row: where to write them, -1 for a state without a row
    """
    words, nodes, edges, items = chart.words, graph.nodes, graph.edges, chart.items
    lo, hi = chart.states[state, LO], chart.states[state, HI]
    first, last, count = 0, 0xFF, 0
    if hi - lo > MANY and spend(chart, hi - lo) < 0:
        return EXHAUSTED
    for at in range(lo + HEADER, hi, ITEM):
        for e in range(nodes[words[at + ITEM_NODE], EDGE_LO], nodes[words[at + ITEM_NODE], EDGE_HI]):
            low, high = edges[e, EDGE_FIRST], edges[e, EDGE_LAST]
            if high < byte:
                first = max(first, high + 1)
            elif low > byte:
                last = min(last, low - 1)
            else:
                first, last = max(first, low), min(last, high)
                if count == len(items):
                    return CROWDED
                items[count, ITEM_NODE] = edges[e, EDGE_TARGET]
                items[count, ITEM_ORIGIN] = (
                    words[lo + OWN_RETURN_SET] if words[at + ITEM_ORIGIN] == SELF else words[at + ITEM_ORIGIN]
                )
                items[count, ITEM_COUNT] = words[at + ITEM_COUNT]
                count += 1
    after = close_items(graph, chart, count)
    if after >= DEAD and row >= 0:
        chart.rows[row, first : last + 1] = after
    return after


@shared_njit
def fill_range(graph: GraphArrays, chart: Chart, state: Int, row: Int, first: Int, end: Int) -> Int:
    """Compute the transitions of a row for the bytes first ... end - 1. Return 0 or a code."""
    code = 0
    for byte in range(first, end):
        if chart.rows[row, byte] == PENDING:
            after = step(graph, chart, state, row, byte)
            if after == EXPAND:
                # Go on, so that all lazy nodes are reported at once.
                code = EXPAND
            elif after < DEAD:
                return after
    return code


@shared_njit
def loop_row(graph: GraphArrays, chart: Chart, state: Int) -> Int:
    """Return the number of the state's row, with its loop found, or a code."""
    row = open_row(graph, chart, state)
    if row >= 0 and chart.loops[row, ROOM] & LOOP_KNOWN == 0:
        code = find_loop(graph, chart, state, row)
        if code < 0:
            return code
    return row


@shared_njit
def fill_low(graph: GraphArrays, chart: Chart, state: Int) -> Int:
    """Return the number of the state's row, with its loop and all ASCII transitions, or a code."""
    row = loop_row(graph, chart, state)
    if row >= 0:
        code = fill_range(graph, chart, state, row, 0, 0x80)
        if code < 0:
            return code
    return row


@njit
def fill_row(graph: GraphArrays, chart: Chart, state: Int) -> Int:
    """Return the number of the state's row, with its loop and all transitions, or a code."""
    row = loop_row(graph, chart, state)
    if row >= 0 and chart.loops[row, ROOM] & COMPLETE == 0:
        code = fill_range(graph, chart, state, row, 0, 0x100)
        if code < 0:
            return code
        chart.loops[row, ROOM] |= COMPLETE
    return row


@shared_njit
def find_loop(graph: GraphArrays, chart: Chart, state: Int, row: Int) -> Int:
    """Record in chart.loops[row] which ASCII bytes lead from `state` back to it, or to it with counts one higher.

    It tries bytes of edges with several bytes, then single bytes that are counted, as in an indentation. Other loops of
    one byte are not worth the search. Return 0 or a code.
    """
    loops, rows = chart.loops, chart.rows
    lo, hi = chart.states[state, LO], chart.states[state, HI]
    if hi - lo > MANY and spend(chart, hi - lo) < 0:
        return EXHAUSTED
    byte = find_looping(graph, chart, state, row, 0)
    if byte == DEAD:
        byte = find_looping(graph, chart, state, row, 1)
        if byte >= 0:
            loops[row, byte >> 6] |= np.uint64(1) << np.uint64(byte & 63)
    elif byte >= 0:
        code = fill_range(graph, chart, state, row, 0, 0x80)
        if code < 0:
            return code
        for other in range(0x80):
            if rows[row, other] == rows[row, byte]:
                loops[row, other >> 6] |= np.uint64(1) << np.uint64(other & 63)
    if byte < DEAD:
        return byte
    if byte >= 0:
        target = rows[row, byte]
        room = UNBOUNDED if target == state else room_of(graph, chart, state)
        loops[row, ROOM] |= np.uint64(room) << ROOM_SHIFT
        has_enough = target != state and lacking(graph, chart, state) <= 0
        if has_enough and is_shift(graph, chart, state, target) == SHIFTED:
            loops[row, ROOM] |= STEADY
    loops[row, ROOM] |= LOOP_KNOWN
    return 0


@shared_njit
def find_looping(graph: GraphArrays, chart: Chart, state: Int, row: Int, single: Int) -> Int:
    """Return a byte that loops, of edges with several bytes or of single bytes; DEAD, or a code."""
    rows, words = chart.rows, chart.words
    tried, previous = 0, DEAD
    for at in range(chart.states[state, LO] + HEADER, chart.states[state, HI], ITEM):
        node = words[at + ITEM_NODE]
        if single and not is_counted(graph, node):
            continue
        for e in range(graph.nodes[node, EDGE_LO], graph.nodes[node, EDGE_HI]):
            low, byte = graph.edges[e, EDGE_FIRST], min(graph.edges[e, EDGE_LAST], 0x7F)
            if (byte != low if single else byte <= low) or tried == 4:
                continue
            after = rows[row, byte]
            if after == PENDING:
                after = step(graph, chart, state, row, byte)
                if after < DEAD:
                    return after
            if after == state:
                return byte
            if after >= 0 and after != previous:
                tried += 1
                previous = after
                if is_shift(graph, chart, state, after) != NO_SHIFT:
                    return byte
    return DEAD


@njit
def explore(graph: GraphArrays, chart: Chart, limit: Int) -> Int:
    """Fill the rows of all reachable states. Return how many numbers they have (stops above `limit`), or a code.

    Free and evicted numbers are skipped.
    """
    state = 0
    while state < chart.sizes[STATES] and state <= limit:
        if spend(chart, 0x100) < 0:
            return EXHAUSTED
        row = fill_row(graph, chart, state) if chart.states[state, HI] >= 0 else 0
        if row < 0:
            return row
        state += 1
    return state


@shared_njit
def advance(graph: GraphArrays, chart: Chart, state: Int, data: Bytes, first: Int, last: Int, new_rows: Int) -> Int:
    """Return the state after data[first:last], marked as handed out; DEAD, or a code.

    new_rows: whether states on the way get rows, which later texts use; else only those that read a byte again do
    """
    previous = state
    for at in range(first, last):
        row: Int = chart.states[state, ROW]
        if row < 0 and (new_rows or state == previous):
            row = open_row(graph, chart, state)
            if row < 0:
                return row
        previous = state
        after = chart.rows[row, data[at]] if row >= 0 else PENDING
        if after == PENDING:
            after = step(graph, chart, state, row, data[at])
        if after < 0:
            return after
        state = after
    chart.states[state, KEPT] = 1
    return state
