"""Masks of states that loop: tokens that stay in the loop from a table, tokens that leave it by short walks.

Inside a JSON string nearly every token is allowed, and which ones stay inside the string depends on the
set of looping characters alone. A `LoopSlice` keeps that part once per vocabulary and set: the tokens that stay,
in order of the characters they add, and the trie nodes at which a token leaves, by the byte it leaves with.
"""

from __future__ import annotations

import numpy as np

from ..answers import DEAD, EXHAUSTED, EXPAND, spend
from ..chart.interning import HI, LO, intern
from ..chart.layout import COUNTER, HEADER, ITEM, ITEM_COUNT, ITEM_NODE, ROW, STATES, Chart, GraphArrays, is_set
from ..chart.rows import (
    ASCII_HIGH,
    ASCII_LOW,
    NO_SHIFT,
    PENDING,
    ROOM,
    ROOM_SHIFT,
    SHIFTED,
    fill_row,
    is_shift,
    lacking,
    open_row,
    step,
)
from ..jit.aliases import Int, Ints, Words
from ..jit.arrays import Arrays, Table, Vector
from ..jit.wide import inner_njit
from .branches import OWN, SUBTREE_END, Branches, refuse
from .loops import loop_leads, loop_target
from .walk import leave

UNSLICEABLE = 1
# Columns of LoopSlice.way.
NODE, NEXT, IS_EXIT, BYTE, DEPTH = range(5)


class LoopSlice(Arrays):
    """Division of the tokens of a vocabulary at one set of looping characters.

    loop: uint64 [3], the ASCII characters in two words, and the lead bytes, as in Chart.loops
    row: uint32 [words], the tokens that stay; ids, chars: int32 [n], the same in order of the characters begun
    exit_node, exit_chars: int32 [m], where a token leaves (a node of Branches) and after how many characters, by byte
    and then characters; exit_reach: int32 [m], the length of the longest token there; exit_start: int32 [257], where
    the exits of each byte begin
    way: int32 [k, 5], the nodes on the way to an exit, in preorder: the node of Branches, the place in `way` after its
    subtree, whether it is an exit, its byte and its depth (here as well, since the trie does not fit the caches).
    None are listed where there are too many exits
    tails: the trie of what tokens have from the byte on with which they leave; tail_root: int32 [256], its node
    after each byte, -1 if there is none, or if too many tokens leave by it for that
    """

    loop: Vector[np.uint64]
    row: Vector[np.uint32]
    ids: Vector[np.int32]
    chars: Vector[np.int32]
    exit_node: Vector[np.int32]
    exit_chars: Vector[np.int32]
    exit_reach: Vector[np.int32]
    exit_start: Vector[np.int32]
    way: Table[np.int32]
    tails: Branches
    tail_root: Vector[np.int32]


@inner_njit
def stay(loop_slice: LoopSlice, room: Int, out: Words) -> None:
    """Allow the tokens that stay in the loop and begin at most `room` characters."""
    count = len(loop_slice.chars)
    if count == 0:
        return
    fitting = count
    if loop_slice.chars[count - 1] > room:
        fitting = np.searchsorted(loop_slice.chars, room, side="right")
    if 2 * fitting < count:
        for at in range(fitting):
            token = loop_slice.ids[at]
            out[token >> 5] |= np.uint32(1) << np.uint32(token & 31)
        return
    out |= loop_slice.row
    for at in range(fitting, count):
        token = loop_slice.ids[at]
        out[token >> 5] &= ~(np.uint32(1) << np.uint32(token & 31))


@inner_njit
def next_in_loop(graph: GraphArrays, chart: Chart, row: Int, state: Int) -> Int:
    """The state after one more looping character, if all looping characters lead there; -1 if not, or a code."""
    target = loop_target(chart, row)
    if target < 0 or target == state:
        return target
    after = fill_row(graph, chart, target)
    if after < 0:
        return after
    shift = is_shift(graph, chart, state, target)
    if shift == SHIFTED or chart.loops[after, ASCII_LOW] | chart.loops[after, ASCII_HIGH] == 0:
        return target
    same = (
        chart.loops[after, ASCII_LOW] == chart.loops[row, ASCII_LOW]
        and chart.loops[after, ASCII_HIGH] == chart.loops[row, ASCII_HIGH]
    )
    if shift == NO_SHIFT or not same:
        return -1
    before, now = loop_leads(graph, chart, state, row), loop_leads(graph, chart, target, after)
    if before < 0 or now < 0:
        return min(before, now)
    return target if before == now else -1


@inner_njit
def goes_on(chart: Chart, row: Int, full: Int) -> bool:
    """Tell whether characters that loop in `row` lead somewhere from the row in which the loop has no more room."""
    for byte in range(256):
        low = chart.loops[row, byte >> 6] >> np.uint64(byte & 63) & np.uint64(1) if byte < 128 else np.uint64(1)
        if low and chart.rows[full, byte] >= 0:
            return True
    return False


@inner_njit
def shifted(graph: GraphArrays, chart: Chart, state: Int, more: Int) -> Int:
    """The state that is `state` with every counter so much higher, or a code."""
    lo, length = chart.states[state, LO], chart.states[state, HI] - chart.states[state, LO]
    words, buffer = chart.words, chart.buffer
    for at in range(length):
        buffer[at] = words[lo + at]
    for at in range(HEADER, length, ITEM):
        counter = graph.nodes[buffer[at + ITEM_NODE], COUNTER]
        if counter and not is_set(graph, counter):
            buffer[at + ITEM_COUNT] += more
    return intern(words, chart.states, chart.state_index, buffer, length, chart.sizes, STATES)


@inner_njit
def row_shifted(graph: GraphArrays, chart: Chart, state: Int, more: Int) -> Int:
    """The complete row of the state that is `state` with every counter so much higher, or a code."""
    other = shifted(graph, chart, state, more)
    return fill_row(graph, chart, other) if other >= 0 else other


@inner_njit
def row_at(graph: GraphArrays, chart: Chart, rows: Ints, state: Int, place: Int, room: Int, settled: Int) -> Int:
    """The row after so many looping characters, settled <= place <= room, from the state after `settled`; or a code.

    Until the loop is full all that changes is the counters. `rows` keeps what was found.
    """
    if rows[place] < 0:
        if place == room:
            last = row_shifted(graph, chart, state, place - 1 - settled)
            state = loop_target(chart, last) if last >= 0 else last
            rows[place] = fill_row(graph, chart, state) if state >= 0 else state
        else:
            rows[place] = row_shifted(graph, chart, state, place - settled)
    return rows[place]


@inner_njit
def count_on(graph: GraphArrays, chart: Chart, rows: Ints, known: Int, wanted: Int, state: Int) -> Int:
    """Extend rows[: known + 1], after so many looping characters each, to `wanted`; the last state or -1; or a code."""
    while known < wanted:
        state = next_in_loop(graph, chart, rows[known], state)
        if state < 0:
            return state
        known += 1
        rows[known] = fill_row(graph, chart, state)
        if rows[known] < 0:
            return rows[known]
    return state


@inner_njit
def walk_slice(graph: GraphArrays, chart: Chart, trie: Branches, loop_slice: LoopSlice, state: Int, out: Words) -> Int:
    """The mask of a looping state; 0, UNSLICEABLE if its loop turns out not to be uniform, or a code.

    Once the loop has as many characters as it must have, it does not matter to tokens how many more it has, as long
    as they are too short to fill it: what leaves then is walked together. Other exits are walked for themselves.
    """
    row = fill_row(graph, chart, state)
    if row < 0:
        return row
    room = np.int64(chart.loops[row, ROOM] >> ROOM_SHIFT)
    rows = np.full(trie.deepest + 1, -1, np.int32)
    rows[0] = row
    settled = min(lacking(graph, chart, state), room, trie.deepest)
    state = count_on(graph, chart, rows, 0, settled, state)
    if state < 0:
        return UNSLICEABLE if state == -1 else state
    target = loop_target(chart, rows[settled])
    if target >= 0 and target != state and is_shift(graph, chart, state, target) != SHIFTED:
        return UNSLICEABLE
    full = DEAD
    if room < trie.deepest:
        full = row_at(graph, chart, rows, state, room, room, settled)
        if full < DEAD:
            return full
        if full == DEAD or goes_on(chart, row, full):
            return UNSLICEABLE
    for byte in range(256):
        common = chart.rows[rows[settled], byte]
        if common < 0 and not leaves_elsewhere(chart, rows, settled, full, byte):
            continue
        code = walk_exits(graph, chart, trie, loop_slice, rows, state, byte, room, settled, out)
        if code < 0:
            return UNSLICEABLE if code == DEAD else code
    stay(loop_slice, room, out)
    return 0


@inner_njit
def leaves_elsewhere(chart: Chart, rows: Ints, settled: Int, full: Int, byte: Int) -> bool:
    """Tell whether a byte leads on from a row before rows[settled], or from that of a full loop, if there is one."""
    if full >= 0 and chart.rows[full, byte] >= 0:
        return True
    for place in range(settled):  # noqa: SIM110
        if chart.rows[rows[place], byte] >= 0:
            return True
    return False


@inner_njit
def walk_exits(
    graph: GraphArrays,
    chart: Chart,
    trie: Branches,
    loop_slice: LoopSlice,
    rows: Ints,
    state: Int,
    byte: Int,
    room: Int,
    settled: Int,
    out: Words,
) -> Int:
    """Allow what leaves a loop by a byte, as `walk_slice` says; 0, DEAD where the loop is not uniform, or a code."""
    first, end = loop_slice.exit_start[byte], loop_slice.exit_start[byte + 1]
    root, common = loop_slice.tail_root[byte], chart.rows[rows[settled], byte]
    if first == end:
        return 0
    if spend(chart, end - first) < 0:
        return EXHAUSTED
    together = common >= 0 and root >= 0
    if together:
        code = leave(graph, chart, loop_slice.tails, root, common, out)
        if code < 0 or (settled == 0 and room >= trie.deepest):
            return min(code, 0)
    for at in range(first, end):
        node, place, after = loop_slice.exit_node[at], loop_slice.exit_chars[at], common
        if place < settled or loop_slice.exit_reach[at] > room:
            if together:
                refuse(trie, trie.tokens[node, OWN], trie.tokens[node, SUBTREE_END], out)
            if place > room:
                continue
            there = rows[place]
            if place > settled:
                there = row_at(graph, chart, rows, state, place, room, settled)
                if there < 0:
                    return there
            after = chart.rows[there, byte]
        elif together:
            continue
        if after >= 0:
            code = leave(graph, chart, trie, node, after, out)
            if code < 0:
                return code
    return 0


@inner_njit
def follow_way(graph: GraphArrays, chart: Chart, trie: Branches, way: Ints, state: Int, afters: Ints) -> Int:
    """Write the state after each exit on the way from `state` (DEAD where none) to afters (int32 [k]); 0 or a code."""
    if spend(chart, len(way)) < 0:
        return EXHAUSTED
    afters[:] = DEAD
    row = open_row(graph, chart, state)
    if row < 0:
        return row
    stack, passed = np.empty(trie.deepest + 1, np.int32), np.empty(trie.deepest + 1, np.int32)
    stack[0], passed[0] = row, state
    missing = 0
    at: Int = 0
    while at < len(way):
        level: Int = way[at, DEPTH]
        here: Int = stack[level - 1]
        byte: Int = way[at, BYTE]
        after = chart.rows[here, byte]
        if after == PENDING:
            after = step(graph, chart, passed[level - 1], here, byte)
        row = DEAD
        if after >= 0 and not way[at, IS_EXIT]:
            row = chart.states[after, ROW]
            if row < 0:
                row = open_row(graph, chart, after)
        if after == EXPAND or row == EXPAND:
            missing = EXPAND
            after = row = DEAD
        elif after < DEAD or row < DEAD:
            return min(after, row)
        afters[at] = after
        if row < 0:
            at = way[at, NEXT]
            continue
        stack[level], passed[level] = row, after
        at += 1
    return missing


@inner_njit
def majorities(way: Ints, afters: Ints) -> Ints:
    """For each byte the state after it that most exits have, if one has the majority: int32 [256] (Boyer and Moore)."""
    found = np.full(256, DEAD, np.int32)
    votes = np.zeros(256, np.int32)
    for at in range(len(way)):
        if way[at, IS_EXIT]:
            byte = way[at, BYTE]
            if votes[byte] == 0:
                found[byte] = afters[at]
            votes[byte] += 1 if found[byte] == afters[at] else -1
    return found


@inner_njit
def walk_span(graph: GraphArrays, chart: Chart, trie: Branches, loop_slice: LoopSlice, state: Int, out: Words) -> Int:
    """The mask of a state from which every text of the slice's characters can be read; 0, UNSLICEABLE, or a code.

    The tails of all exits with one byte are walked together, for the state that most of them lead to; then those
    of the others by themselves.
    """
    way = loop_slice.way
    if len(way) == 0 and len(loop_slice.exit_node) > 0:
        return UNSLICEABLE
    afters = np.empty(len(way), np.int32)
    missing = follow_way(graph, chart, trie, way, state, afters)
    if missing < 0:
        return missing
    common = majorities(way, afters)
    for byte in range(256):
        if loop_slice.tail_root[byte] < 0:
            common[byte] = DEAD
        if common[byte] >= 0:
            code = leave(graph, chart, loop_slice.tails, loop_slice.tail_root[byte], common[byte], out)
            missing = min(missing, code)
            if missing < DEAD and missing != EXPAND:
                return missing
    for at in range(len(way)):
        byte = way[at, BYTE]
        if way[at, IS_EXIT] and afters[at] != common[byte]:
            if common[byte] >= 0:
                refuse(trie, trie.tokens[way[at, NODE], OWN], trie.tokens[way[at, NODE], SUBTREE_END], out)
            if afters[at] >= 0:
                code = leave(graph, chart, trie, way[at, NODE], afters[at], out)
                missing = min(missing, code)
                if missing < DEAD and missing != EXPAND:
                    return missing
    out |= loop_slice.row
    return missing
