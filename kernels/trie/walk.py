"""Walks of the token trie over the chart's transition rows: which tokens may follow a state.

A walk visits the trie in preorder and drops a subtree as soon as its bytes lead nowhere. Two shortcuts keep
it from visiting what it need not: a subtree all of whose bytes stay in a *loop* of the state (as inside a
JSON string) is allowed whole, and a state that is such a loop is answered from the vocabulary's tables for
that loop (see `LoopSlice`), so that only the tokens that leave it are walked. And in the middle of names and constants
it reads on in bundles, without states (see bundles.py).

Kernels answer as kernels/answers.py says.
"""

from __future__ import annotations

import numpy as np

from ..answers import DEAD, EXHAUSTED, EXPAND, spend
from ..chart.interning import HI, LO
from ..chart.layout import HEADER, ITEM, ROW, Chart, GraphArrays
from ..chart.rows import (
    ASCII_HIGH,
    ASCII_LOW,
    COMPLETE,
    LOOP_KNOWN,
    PENDING,
    ROOM,
    ROOM_SHIFT,
    STEADY,
    fill_row,
    loop_row,
    open_row,
    step,
)
from ..jit.aliases import Int, Ints, Words
from ..jit.wide import inner_njit, njit, shared_njit
from .branches import (
    BEGUN,
    BELOW_HIGH,
    BELOW_LEADS,
    BELOW_LOW,
    OWN,
    OWN_END,
    SUBTREE_END,
    Branches,
    TokenTrie,
    allow,
    refuse,
)
from .bundles import ROOM as BUNDLED
from .bundles import open_bundle, read_on
from .loops import loop_leads, loop_target

# Of how many nodes the work is counted at a time.
BATCH = 1024
# In place of a row that is not wanted: no code.
COVERED = DEAD
# Columns of the stack of a walk, and of one beside another state. HELD_ROW is -1 where there is but a bundle, which
# lies from HELD_LO to HELD_HI, nowhere in a state of which it was not needed.
HELD_ROW, HELD_STATE, HELD_AT, HELD_END, HELD_LO, HELD_HI, HELD_OTHER, HELD_USUAL = range(8)
HELD_STEADY, HELD_TARGET, HELD = HELD_OTHER, HELD_USUAL, 8


@inner_njit
def is_covered(graph: GraphArrays, chart: Chart, trie: Branches, node: Int, state: Int, row: Int) -> Int:
    """1 if all that is below a node of the trie stays in the loop of `state`, else 0; or a code."""
    low, high, leads = trie.below[node, BELOW_LOW], trie.below[node, BELOW_HIGH], trie.below[node, BELOW_LEADS]
    if low & ~chart.loops[row, ASCII_LOW] or high & ~chart.loops[row, ASCII_HIGH]:
        return 0
    if trie.below[node, BEGUN] > chart.loops[row, ROOM] >> ROOM_SHIFT:
        return 0
    if leads == 0:
        return 1
    looping = loop_leads(graph, chart, state, row)
    if looping < 0:
        return looping
    return 1 if leads & ~np.uint64(looping) == 0 else 0


@inner_njit
def uncovered_row(graph: GraphArrays, chart: Chart, trie: Branches, node: Int, state: Int) -> Int:
    """The row of a state that is come to at a node of the trie; COVERED if all below stays in its loop; or a code."""
    row = chart.states[state, ROW]
    if row < 0 or chart.loops[row, ROOM] & LOOP_KNOWN == 0:
        row = loop_row(graph, chart, state)
    if row >= 0 and chart.loops[row, ASCII_LOW] | chart.loops[row, ASCII_HIGH]:
        covered = is_covered(graph, chart, trie, node, state, row)
        if covered:
            return COVERED if covered > 0 else covered
    return row


@inner_njit
def steady_target(chart: Chart, row: Int, most: Int) -> Int:
    """The state that a row loops to, if no text of up to `most` characters tells it from the row's own; or DEAD.

    So it is where only counts differ, and all of them have room for as much.
    """
    room = chart.loops[row, ROOM]
    if room & STEADY == 0 or np.uint64(most) > room >> ROOM_SHIFT:
        return DEAD
    return loop_target(chart, row)


@njit
def walk(graph: GraphArrays, chart: Chart, trie: Branches, state: Int, root: Int, out: Words) -> Int:
    """Allow every token below the node `root` of Branches whose bytes after it can be read from `state`; 0 or a code.

    What is known already is read from the arrays in place: a call per node would cost more than the node.
    Where a lazy node is in the way the walk goes on elsewhere, to ask for all of them at once. In place of the state
    `target` it goes on in the state `steady`, which loops to it: so it makes no states that only counts tell apart.
    """
    at: Int
    end: Int
    row = open_row(graph, chart, state)
    if row < 0:
        return row
    steady: Int = state
    target: Int = steady_target(chart, row, trie.deepest)
    missing = 0
    stack = np.empty((trie.deepest + 1, HELD), np.int32)
    bundle = np.empty((BUNDLED, ITEM), np.int32)
    lo: Int = 0
    hi: Int = 0
    # Up to which byte a bundle leads to the state `known`
    last, known = -1, DEAD
    level = visited = 0
    first, byte, tokens, rows = trie.first, trie.byte, trie.tokens, chart.rows
    at, end = first[root], first[root + 1]
    while True:
        while row >= 0 and at < end and rows[row, byte[at]] == DEAD:
            at += 1
        if at == end:
            if level == 0:
                return EXHAUSTED if spend(chart, visited) < 0 else missing
            level -= 1
            held = stack[level]
            row, state, at, end = held[HELD_ROW], held[HELD_STATE], held[HELD_AT], held[HELD_END]
            lo, hi, last = held[HELD_LO], held[HELD_HI], -1
            steady, target = held[HELD_STEADY], held[HELD_TARGET]
            continue
        child = at
        at += 1
        after = rows[row, byte[child]] if row >= 0 else PENDING
        below, count = -1, 0
        if after == PENDING:
            if lo == hi:
                hi = open_bundle(chart, state, bundle, lo)
            if byte[child] > last:
                visited += hi - lo
                count, known, last = read_on(graph, chart, bundle, lo, hi, state, row, byte[child], 0)
            after = known
        if count <= 0 and after < 0:
            if after == EXPAND:
                missing = EXPAND
            elif after < DEAD:
                return after
            continue
        if first[child] == first[child + 1]:
            allow(trie, tokens[child, OWN], tokens[child, OWN_END], out)
            continue
        if count <= 0:
            if after == target:
                after = steady
            below = uncovered_row(graph, chart, trie, child, after)
            if below == EXPAND:
                missing = EXPAND
                continue
            if below == COVERED:
                allow(trie, tokens[child, OWN], tokens[child, SUBTREE_END], out)
                continue
            if below < 0:
                return below
        allow(trie, tokens[child, OWN], tokens[child, OWN_END], out)
        held = stack[level]
        held[HELD_ROW], held[HELD_STATE], held[HELD_AT], held[HELD_END] = row, state, at, end
        held[HELD_LO], held[HELD_HI] = lo, hi
        held[HELD_STEADY], held[HELD_TARGET] = steady, target
        level += 1
        row, state, at, end = below, after, first[child], first[child + 1]
        if row >= 0 and after != steady and chart.loops[row, ROOM] & STEADY:
            most = min(trie.below[child, BEGUN], np.uint64(trie.deepest - level))
            other = steady_target(chart, row, np.int64(most))
            if other >= 0:
                steady, target = after, other
        lo, hi, last = hi, hi + max(count, 0), -1
        visited += end - at
        if visited > BATCH:
            if spend(chart, visited) < 0:
                return EXHAUSTED
            visited = 0


@inner_njit
def leads_on(chart: Chart, state: Int) -> bool:
    """Tell whether the state has items, so that more bytes may follow."""
    return chart.states[state, HI] - chart.states[state, LO] > HEADER


@inner_njit
def leave(graph: GraphArrays, chart: Chart, trie: Branches, node: Int, after: Int, out: Words) -> Int:
    """Allow the tokens at and below a node whose byte led to `after`; 0 or a code."""
    allow(trie, trie.tokens[node, OWN], trie.tokens[node, OWN_END], out)
    if trie.first[node] < trie.first[node + 1] and leads_on(chart, after):
        return walk(graph, chart, trie, after, node, out)
    return 0


@shared_njit
def walk_beside(graph: GraphArrays, chart: Chart, trie: Branches, state: Int, usual: Int, out: Words) -> Int:
    """Turn the mask of the state `usual` in `out` into that of `state`; 0 or a code.

    Both are read side by side. Where they come to the same state there is nothing to do, and so this is quick for
    states that most bytes lead back to the usual one, as in the names of an object that may have others as well.
    """
    at: Int
    end: Int
    row, other = open_row(graph, chart, state), open_row(graph, chart, usual)
    if row < 0 or other < 0:
        return min(row, other)
    missing = 0
    stack = np.empty((trie.deepest + 1, HELD), np.int32)
    bundle = np.empty((BUNDLED, ITEM), np.int32)
    lo: Int = 0
    hi: Int = 0
    # Up to which byte a bundle leads to the state `known`
    last, known = -1, DEAD
    level = visited = 0
    first, byte, tokens, rows = trie.first, trie.byte, trie.tokens, chart.rows
    at, end = first[0], first[1]
    while True:
        while row >= 0 and at < end and rows[row, byte[at]] == rows[other, byte[at]] != PENDING:
            at += 1
        if at == end:
            if level == 0:
                return EXHAUSTED if spend(chart, visited) < 0 else missing
            level -= 1
            held = stack[level]
            row, state, other, usual = held[HELD_ROW], held[HELD_STATE], held[HELD_OTHER], held[HELD_USUAL]
            at, end, lo, hi, last = held[HELD_AT], held[HELD_END], held[HELD_LO], held[HELD_HI], -1
            continue
        child = at
        at += 1
        after, common = rows[row, byte[child]] if row >= 0 else PENDING, rows[other, byte[child]]
        if common == PENDING:
            common = step(graph, chart, usual, other, byte[child])
        if common < DEAD:
            if common != EXPAND:
                return common
            missing = EXPAND
            continue
        count = 0
        if after == PENDING:
            if lo == hi:
                hi = open_bundle(chart, state, bundle, lo)
            if byte[child] > last:
                visited += hi - lo
                whole = 1 if common < 0 else 0
                count, known, last = read_on(graph, chart, bundle, lo, hi, state, row, byte[child], whole)
            after = known
        code = 0 if count > 0 else after
        if code >= DEAD and (count > 0 or after != common):
            if code < 0:
                refuse(trie, tokens[child, OWN], tokens[child, SUBTREE_END], out)
            elif common < 0:
                code = leave(graph, chart, trie, child, after, out)
            elif first[child] < first[child + 1]:
                below = -1 if count > 0 else open_row(graph, chart, after)
                beside = open_row(graph, chart, common)
                code = beside if count > 0 else min(below, beside)
                if code >= 0:
                    held = stack[level]
                    held[HELD_ROW], held[HELD_STATE], held[HELD_OTHER], held[HELD_USUAL] = row, state, other, usual
                    held[HELD_AT], held[HELD_END], held[HELD_LO], held[HELD_HI] = at, end, lo, hi
                    level += 1
                    row, state, other, usual = below, after, beside, common
                    at, end = first[child], first[child + 1]
                    lo, hi, last = hi, hi + max(count, 0), -1
                    visited += end - at
                    if visited > BATCH:
                        code = min(code, spend(chart, visited))
                        visited = 0
        if code == EXPAND:
            missing = EXPAND
        elif code < DEAD:
            return code


@njit
def successors(graph: GraphArrays, chart: Chart, trie: TokenTrie, state: Int, root: Int, out: Ints) -> Int:
    """Write the state after each token below `root`, read from its bytes after it, to out; 0 or a code.

    out: int32, in the order of trie.ids; DEAD where the token is not allowed
    """
    out[:] = DEAD
    stack = np.empty(trie.deepest + 1, np.int32)
    row = fill_row(graph, chart, state)
    if row < 0:
        return row
    stack[0] = row
    starts, skip, rows, states = trie.token_start, trie.skip, chart.rows, chart.states
    base, first = trie.depth[root], starts[root + 1]
    node: Int = root + 1
    end, visited = skip[root], 0
    while node < end:
        level: Int = trie.depth[node] - base
        visited += 1
        if visited == BATCH:
            if spend(chart, visited) < 0:
                return EXHAUSTED
            visited = 0
        here: Int = stack[level - 1]
        value: Int = trie.byte[node]
        after = rows[here, value]
        if after < 0:
            node = skip[node]
            continue
        for at in range(starts[node], starts[node + 1]):
            out[at - first] = after
        if skip[node] > node + 1:
            row = states[after, ROW]
            if row < 0 or chart.loops[row, ROOM] & COMPLETE == 0:
                row = fill_row(graph, chart, after)
                if row < 0:
                    return row
            stack[level] = row
        node += 1
    return spend(chart, visited)
