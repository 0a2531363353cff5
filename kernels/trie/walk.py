"""Walks of the token trie over the chart's transition rows: which tokens may follow a state.

A walk visits the trie in preorder and leaves a subtree when its bytes lead nowhere. Two shortcuts reduce the visits. A
subtree all of whose bytes stay in a *loop* of the state (as inside a JSON string) is allowed whole. A state that is
such a loop takes its mask from the vocabulary's tables for that loop (`LoopSlice`), and only tokens that leave it are
walked.

A *bundle* is a list of items that a walk advances without making a state (`follow_bundle`). At nodes with edges and
nothing else, the items after a byte need no closure: each item moves along its edges. In the middle of names and
constants a walk meets hundreds of item sets that no text will reach; interning them would waste states. A bundle is a
range of a table of items; its origins are never SELF.

Kernels return the codes of kernels/answers.py.
"""

from __future__ import annotations

import numpy as np

from ..answers import CROWDED, DEAD, EXHAUSTED, EXPAND, spend
from ..chart.interning import HI, LO
from ..chart.layout import (
    EDGE_FIRST,
    EDGE_HI,
    EDGE_LAST,
    EDGE_LO,
    EDGE_TARGET,
    FINAL,
    FLAGS,
    HEADER,
    ITEM,
    ITEM_COUNT,
    ITEM_NODE,
    ITEM_ORIGIN,
    LAZY,
    LINK_HI,
    LINK_LO,
    OWN_RETURN_SET,
    ROW,
    SELF,
    Chart,
    GraphArrays,
)
from ..chart.rows import (
    ASCII_HIGH,
    ASCII_LOW,
    COMPLETE,
    LOOP_KNOWN,
    PENDING,
    ROOM,
    ROOM_SHIFT,
    STEADY,
    close_items,
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
    loop_leads,
    loop_target,
    refuse,
)

# Capacity of the table of bundles, in items, and of one bundle.
BUNDLED, MAX_BUNDLE = 2048, 64
# Answer of `follow_bundle` if a closure is needed.
CLOSURE = -1


@inner_njit
def is_plain(graph: GraphArrays, node: Int) -> bool:
    """Test whether a node has edges and nothing else."""
    nodes = graph.nodes
    if nodes[node, LINK_LO] < nodes[node, LINK_HI] or nodes[node, FLAGS] & (FINAL | LAZY):
        return False
    return nodes[node, EDGE_LO] < nodes[node, EDGE_HI]


@inner_njit
def is_fixed(graph: GraphArrays, node: Int) -> bool:
    """Test whether each edge of a node reads a single byte, as in the middle of a name."""
    for at in range(graph.nodes[node, EDGE_LO], graph.nodes[node, EDGE_HI]):
        if graph.edges[at, EDGE_FIRST] != graph.edges[at, EDGE_LAST]:
            return False
    return True


@inner_njit
def open_bundle(chart: Chart, state: Int, bundle: Ints, lo: Int) -> Int:
    """Write the items of a state to bundle[lo:]. Return their end, which is `lo` if they do not fit."""
    words = chart.words
    first, last = chart.states[state, LO], chart.states[state, HI]
    count = (last - first - HEADER) // ITEM
    if lo + count > len(bundle):
        return lo
    return_set = words[first + OWN_RETURN_SET]
    for at in range(count):
        word = first + HEADER + ITEM * at
        origin = words[word + ITEM_ORIGIN]
        bundle[lo + at, ITEM_NODE] = words[word + ITEM_NODE]
        bundle[lo + at, ITEM_ORIGIN] = return_set if origin == SELF else origin
        bundle[lo + at, ITEM_COUNT] = words[word + ITEM_COUNT]
    return lo + count


@inner_njit
def add_item(bundle: Ints, lo: Int, end: Int, node: Int, like: Int) -> Int:
    """Add the item `like` at another node to bundle[lo:end], unless it is there. Return the new end."""
    origin, count = bundle[like, ITEM_ORIGIN], bundle[like, ITEM_COUNT]
    for at in range(lo, end):
        if bundle[at, ITEM_NODE] == node and bundle[at, ITEM_ORIGIN] == origin and bundle[at, ITEM_COUNT] == count:
            return end
    bundle[end, ITEM_NODE] = node
    bundle[end, ITEM_ORIGIN] = origin
    bundle[end, ITEM_COUNT] = count
    return end + 1


@shared_njit
def follow_bundle(graph: GraphArrays, bundle: Ints, lo: Int, hi: Int, byte: Int) -> tuple[Int, Int]:
    """Write the items after a byte from bundle[lo:hi] behind them. Return their number, and the last equivalent byte.

    The number is CLOSURE if a closure is needed, if there are too many items, and if none is in the middle of a fixed
    text:
    other items may loop, which only states can show.
    """
    edges, nodes = graph.edges, graph.nodes
    end, last = hi, 0xFF
    most = min(hi + MAX_BUNDLE, len(bundle))
    alone, suits = True, False
    for at in range(lo, hi):
        node = bundle[at, ITEM_NODE]
        for e in range(nodes[node, EDGE_LO], nodes[node, EDGE_HI]):
            first, final = edges[e, EDGE_FIRST], edges[e, EDGE_LAST]
            if first > byte:
                last = min(last, first - 1)
            elif final >= byte:
                last = min(last, final)
                target = edges[e, EDGE_TARGET]
                if alone and end < most and is_plain(graph, target):
                    end = add_item(bundle, hi, end, target, at)
                    suits = suits or is_fixed(graph, target)
                else:
                    alone = False
        if not alone and at - lo >= MAX_BUNDLE:
            return CLOSURE, byte
    return end - hi if alone and (suits or end == hi) else CLOSURE, last


@shared_njit
def close_bundle(graph: GraphArrays, chart: Chart, bundle: Ints, lo: Int, hi: Int, byte: Int) -> Int:
    """Return the state after a byte from bundle[lo:hi], DEAD, or a code."""
    items, count = chart.items, 0
    for at in range(lo, hi):
        node = bundle[at, ITEM_NODE]
        for e in range(graph.nodes[node, EDGE_LO], graph.nodes[node, EDGE_HI]):
            if graph.edges[e, EDGE_FIRST] <= byte <= graph.edges[e, EDGE_LAST]:
                if count == len(items):
                    return CROWDED
                items[count, ITEM_NODE] = graph.edges[e, EDGE_TARGET]
                items[count, ITEM_ORIGIN] = bundle[at, ITEM_ORIGIN]
                items[count, ITEM_COUNT] = bundle[at, ITEM_COUNT]
                count += 1
    return close_items(graph, chart, count)


@inner_njit
def read_on(
    graph: GraphArrays, chart: Chart, bundle: Ints, lo: Int, hi: Int, state: Int, row: Int, byte: Int, needs_state: Int
) -> tuple[Int, Int, Int]:
    """Advance bundle[lo:hi], or its state, by a byte whose transition is PENDING in the row, or without a row (-1).

    Returns the number of items of the next bundle, if there is one; or 0, the next state, DEAD or a code, and the last
    byte with this result, -1 if it does not matter. needs_state: whether a state is required
    """
    count, last = (CLOSURE, -1) if needs_state else follow_bundle(graph, bundle, lo, hi, byte)
    if count > 0:
        return count, DEAD, -1
    if row >= 0:
        return 0, step(graph, chart, state, row, byte), -1
    return 0, close_bundle(graph, chart, bundle, lo, hi, byte) if count else DEAD, last


# Nodes per update of the meter.
BATCH = 1024
# Answer of `uncovered_row` in place of a row.
COVERED = DEAD
# Columns of the stack of `walk` and of `walk_beside`. HELD_ROW is -1 at a bundle without a state. The bundle lies from
# HELD_LO to HELD_HI; the range is empty at a state whose bundle was not needed.
HELD_ROW, HELD_STATE, HELD_AT, HELD_END, HELD_LO, HELD_HI, HELD_OTHER, HELD_USUAL = range(8)
HELD_STEADY, HELD_TARGET, HELD = HELD_OTHER, HELD_USUAL, 8


@inner_njit
def is_covered(graph: GraphArrays, chart: Chart, trie: Branches, node: Int, state: Int, row: Int) -> Int:
    """Return 1 if all bytes below a trie node stay in the loop of `state`, else 0; or a code."""
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
    """Return the row of the state at a trie node; COVERED if all bytes below stay in its loop; or a code."""
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
    """Return the state that a row loops to, if no text of up to `most` characters distinguishes the two; or DEAD.

    They differ in counts only, and all counts have room for that many more.
    """
    room = chart.loops[row, ROOM]
    if room & STEADY == 0 or np.uint64(most) > room >> ROOM_SHIFT:
        return DEAD
    return loop_target(chart, row)


@njit
def walk(graph: GraphArrays, chart: Chart, trie: Branches, state: Int, root: Int, out: Words) -> Int:
    """Allow every token below the node `root` of Branches whose bytes after it can be read from `state`; 0 or a code.

    Known transitions are read from the arrays inline: a call per node would cost more than the node. At a lazy node the
    walk continues elsewhere, to report all of them at once. In place of the state `target` it continues in the state
    `steady`, which loops to it. So it makes no states that differ in counts only.
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
    # the last byte for which a bundle leads to the state `known`
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
    """Test whether the state has items, so that further bytes may follow."""
    return chart.states[state, HI] - chart.states[state, LO] > HEADER


@inner_njit
def leave(graph: GraphArrays, chart: Chart, trie: Branches, node: Int, after: Int, out: Words) -> Int:
    """Allow the tokens at and below a node whose byte led to `after`. Return 0 or a code."""
    allow(trie, trie.tokens[node, OWN], trie.tokens[node, OWN_END], out)
    if trie.first[node] < trie.first[node + 1] and leads_on(chart, after):
        return walk(graph, chart, trie, after, node, out)
    return 0


@shared_njit
def walk_beside(graph: GraphArrays, chart: Chart, trie: Branches, state: Int, usual: Int, out: Words) -> Int:
    """Turn the mask of the state `usual` in `out` into that of `state`. Return 0 or a code.

    The walk advances both states, and stops where they meet. It is fast for states that most bytes lead back to the
    usual one, as in the names of an object that allows other names as well.
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
    # the last byte for which a bundle leads to the state `known`
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
                needs_state = 1 if common < 0 else 0
                count, known, last = read_on(graph, chart, bundle, lo, hi, state, row, byte[child], needs_state)
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
    """Write the state after each token below `root`, read from its bytes after `root`, to out. Return 0 or a code.

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
