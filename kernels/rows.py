"""Transition rows: the states after every byte, computed when a state is first left, and where a state loops.

All items of a state are read at once, byte class by byte class. What sets of items have led to is remembered
in a small table (Chart.memo), because the states of a rule mostly go on alike.

All return codes are those of kernels/chart.py.
"""

import numpy as np

from .chart import (
    COUNTER,
    CROWDED,
    DEAD,
    EDGE_HI,
    EDGE_LO,
    EXPAND,
    HEADER,
    ITEM,
    KEPT,
    ROW,
    ROWS,
    SELF,
    STAMP,
    STATES,
    UNBOUNDED,
    close,
    is_set,
    push,
)
from .interning import FULL, HI, LO
from .wide import inner_njit, njit, shared_njit

# Columns of Chart.loops: the ASCII bytes that loop (two words of 64 bits), then the flags and the room.
ASCII_LOW, ASCII_HIGH, ROOM = 0, 1, 2
HIGH_KNOWN, HIGH_LOOPS = np.uint64(1), np.uint64(2)
ROOM_SHIFT = np.uint64(8)
# How many items an entry of Chart.memo has room for; what `recall` says of others.
MEMO_ITEMS, UNKNOWN = 8, -9
# What a row has for bytes beyond ASCII until somebody asks: most states are never left by them.
PENDING = -7
# What `is_shift` answers.
NO_SHIFT, GROWN, SHIFTED = 0, 1, 2


@inner_njit
def is_shift(graph, chart, state, other):
    """Whether `other` is `state` with every counter one higher (SHIFTED), perhaps with more items besides (GROWN).

    Bytes that lead from `state` there loop, as far as the counters have room. Items whose counter is then full
    need not be there any more.
    """
    lo, hi = chart.states[state, LO], chart.states[state, HI]
    at, end = chart.states[other, LO], chart.states[other, HI]
    words = chart.words
    if end - at < hi - lo or words[lo] != words[at]:
        return NO_SHIFT
    answer = SHIFTED if end - at == hi - lo and words[lo + 1] == words[at + 1] else GROWN
    counted = False
    at += HEADER
    for item in range(lo + HEADER, hi, ITEM):
        node = words[item]
        counter = graph.nodes[node, COUNTER]
        more = 1 if counter and not is_set(graph, counter) else 0
        counted |= more == 1
        if more and words[item + 2] + 1 >= graph.counters[counter, 1]:
            continue
        while at < end and (
            words[at] != node or words[at + 1] != words[item + 1] or words[at + 2] != words[item + 2] + more
        ):
            at += ITEM
        if at >= end:
            return NO_SHIFT
        at += ITEM
    return answer if counted else NO_SHIFT


@inner_njit
def room_of(graph, chart, state):
    """How many more characters the counted loops of `state` have room for."""
    room = UNBOUNDED
    words = chart.words
    for at in range(chart.states[state, LO] + HEADER, chart.states[state, HI], ITEM):
        counter = graph.nodes[words[at], COUNTER]
        if counter and not is_set(graph, counter) and graph.counters[counter, 1] != UNBOUNDED:
            room = min(room, graph.counters[counter, 1] - words[at + 2])
    return room


@inner_njit
def find_loop(graph, chart, state, row):
    """Note in chart.loops[row] which ASCII bytes lead from `state` back to it, or to it with one more counted."""
    loops, rows = chart.loops, chart.rows
    loops[row, :] = 0
    target, tried, previous = DEAD, 0, DEAD
    room = UNBOUNDED
    for byte in range(126, 31, -1):
        after = rows[row, byte]
        if after == state:
            target = state
            break
        if after >= 0 and after != previous and tried < 4:
            tried += 1
            previous = after
            if is_shift(graph, chart, state, after) != NO_SHIFT:
                target = after
                room = room_of(graph, chart, state)
                break
    if target < 0:
        return
    for byte in range(128):
        if rows[row, byte] == target:
            loops[row, byte >> 6] |= np.uint64(1) << np.uint64(byte & 63)
    loops[row, ROOM] = np.uint64(room) << ROOM_SHIFT


@inner_njit
def number_classes(graph, chart, state, first, last):
    """Which of the bytes first ... last no edge of the state's items tells apart, numbered in order: int32 [257], and
    their number."""
    classes = np.zeros(257, np.int32)
    words, nodes, edges = chart.words, graph.nodes, graph.edges
    for at in range(chart.states[state, LO] + HEADER, chart.states[state, HI], ITEM):
        node = words[at]
        for e in range(nodes[node, EDGE_LO], nodes[node, EDGE_HI]):
            if edges[e, 0] > first:
                classes[edges[e, 0]] = 1
            if edges[e, 1] >= first:
                classes[edges[e, 1] + 1] = 1
    classes[first] = 0
    for byte in range(first, last):
        classes[byte + 1] += classes[byte]
    return classes, classes[last] + 1


@inner_njit
def read_all(graph, chart, state, classes, count, first, last):
    """The items behind each class of bytes: int32 [n, 3], and where those of each class begin, int32 [count + 1]."""
    words, nodes, edges = chart.words, graph.nodes, graph.edges
    begins = np.zeros(count + 2, np.int32)
    lo, hi = chart.states[state, LO] + HEADER, chart.states[state, HI]
    for at in range(lo, hi, ITEM):
        node = words[at]
        for e in range(nodes[node, EDGE_LO], nodes[node, EDGE_HI]):
            if edges[e, 0] <= last and edges[e, 1] >= first:
                begins[classes[max(edges[e, 0], first)] + 1] += 1
                begins[classes[min(edges[e, 1], last)] + 2] -= 1
    for i in range(count):
        begins[i + 1] += begins[i]
    for i in range(count):
        begins[i + 1] += begins[i]
    items = np.empty((begins[count], ITEM), np.int32)
    ends = begins.copy()
    bundle = words[chart.states[state, LO]]
    for at in range(lo, hi, ITEM):
        node, origin = words[at], words[at + 1]
        if origin == SELF:
            origin = bundle
        for e in range(nodes[node, EDGE_LO], nodes[node, EDGE_HI]):
            if edges[e, 0] > last or edges[e, 1] < first:
                continue
            for i in range(classes[max(edges[e, 0], first)], classes[min(edges[e, 1], last)] + 1):
                end = ends[i]
                items[end, 0] = edges[e, 2]
                items[end, 1] = origin
                items[end, 2] = words[at + 2]
                ends[i] = end + 1
    return items, begins


@inner_njit
def recall(chart, items, begin, end):
    """The slot of the memo for items[begin:end], and the state that they have led to, UNKNOWN if that is not there.

    The slot is -1 if there are too many items for one.
    """
    count = end - begin
    if count > MEMO_ITEMS:
        return -1, UNKNOWN
    value = int(count)
    for at in range(begin, end):
        value = (value * 31 + int(items[at, 0]) * 0x5BD1 + int(items[at, 1]) * 0x1E35 + int(items[at, 2])) & 0x7FFFFFFF
    slot = (value ^ (value >> 11)) & (len(chart.memo) - 1)
    known = chart.memo[slot]
    if known[0] != count:
        return slot, UNKNOWN
    for i in range(count):
        for k in range(ITEM):
            if known[2 + ITEM * i + k] != items[begin + i, k]:
                return slot, UNKNOWN
    return slot, known[1]


@inner_njit
def close_items(graph, chart, items, begin, end):
    """The state of items[begin:end] and all they imply, DEAD if there are none; or a code."""
    if begin == end:
        return DEAD
    slot, after = recall(chart, items, begin, end)
    if after != UNKNOWN:
        return after
    chart.sizes[STAMP] += 1
    length = 0
    for at in range(begin, end):
        length = push(chart, items[at, 0], items[at, 1], items[at, 2], length)
        if length < 0:
            return CROWDED
    after = close(graph, chart, length)
    if slot >= 0 and after >= DEAD:
        known = chart.memo[slot]
        known[0] = end - begin
        known[1] = after
        for i in range(end - begin):
            for k in range(ITEM):
                known[2 + ITEM * i + k] = items[begin + i, k]
    return after


@shared_njit
def fill_part(graph, chart, state, row, first, last):
    """Compute the transitions of a state by the bytes first ... last; 0 or a code."""
    classes, count = number_classes(graph, chart, state, first, last)
    items, begins = read_all(graph, chart, state, classes, count, first, last)
    after = np.empty(count, np.int32)
    code = 0
    for i in range(count):
        after[i] = close_items(graph, chart, items, begins[i], begins[i + 1])
        if after[i] < DEAD:
            if after[i] != EXPAND:
                return after[i]
            # Go on, so that all that is missing is asked for at once.
            code = EXPAND
    if code:
        return code
    transitions = chart.rows[row]
    for byte in range(first, last + 1):
        transitions[byte] = after[classes[byte]]
    return 0


@shared_njit
def fill_low(graph, chart, state):
    """The number of the state's transition row, computed if need be; beyond ASCII it may still be PENDING."""
    known = chart.states[state, ROW]
    if known >= 0:
        return known
    row = chart.sizes[ROWS]
    if row >= len(chart.rows):
        return FULL
    code = fill_part(graph, chart, state, row, 0, 0x7F)
    if code < 0:
        return code
    chart.rows[row, 0x80:] = PENDING
    chart.sizes[ROWS] = row + 1
    chart.states[state, ROW] = row
    find_loop(graph, chart, state, row)
    return row


@njit
def fill_row(graph, chart, state):
    """The number of the state's complete transition row, computed if need be."""
    row = fill_low(graph, chart, state)
    if row >= 0 and chart.rows[row, 0xFF] == PENDING:
        code = fill_part(graph, chart, state, row, 0x80, 0xFF)
        if code < 0:
            return code
    return row


@inner_njit
def step_high(graph, chart, state, row, byte):
    """The state after a byte of a row that was PENDING; DEAD or a code."""
    code = fill_part(graph, chart, state, row, 0x80, 0xFF)
    return code if code < 0 else chart.rows[row, byte]


@njit
def explore(graph, chart, limit):
    """Fill the rows of all states that can be reached; how many there are (stops above `limit`), or a code."""
    state = 0
    while state < chart.sizes[STATES] and state <= limit:
        row = fill_row(graph, chart, state)
        if row < 0:
            return row
        state += 1
    return state


@njit
def advance(graph, chart, state, data, first, last):
    """The state after the bytes data[first:last], kept from now on; DEAD, or a code."""
    for at in range(first, last):
        row = fill_low(graph, chart, state)
        if row < 0:
            return row
        after = chart.rows[row, data[at]]
        if after == PENDING:
            after = step_high(graph, chart, state, row, data[at])
        if after < 0:
            return after
        state = after
    chart.states[state, KEPT] = 1
    return state
