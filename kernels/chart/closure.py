"""The closure of an item set under links, calls and completions; its state.

Kernels return the codes of kernels/answers.py. Sources: see layout.py.
"""

from __future__ import annotations

from ..answers import CROWDED, DEAD, EXHAUSTED, EXPAND, spend
from ..jit.aliases import Int
from ..jit.wide import inner_njit, njit, shared_njit
from .interning import ADDED, ALL, HI, KEPT_BITS, REFUSED, pass_guard
from .layout import (
    CALL,
    COUNTER,
    EDGE_HI,
    EDGE_LO,
    ENTRY,
    ENTRY_COUNT,
    ENTRY_ORIGIN,
    ENTRY_RULE,
    ENTRY_TARGET,
    EPSILON,
    FINAL,
    FLAGS,
    GREATEST,
    GUARD,
    INCREMENT,
    ITEM_COUNT,
    ITEM_NODE,
    ITEM_ORIGIN,
    KEPT,
    LAZY,
    LEAST,
    LINK_ARGUMENT,
    LINK_HI,
    LINK_KIND,
    LINK_LO,
    LINK_TARGET,
    MISSING,
    ROOT,
    RULE,
    SEEN_AT,
    SEEN_STAMP,
    SELF,
    STAMP,
    UNBOUNDED,
    Chart,
    GraphArrays,
    is_large,
)
from .return_sets import (
    FEW,
    add_entry,
    first_entry,
    hash_slot,
    intern_return_set,
    intern_state,
    is_done,
    new_stamp,
    next_of_rule,
    note_done,
)

# Items per update of the meter.
BATCH = 1024
# Beyond this many items the arrays exceed the cache; steps of work that each further item counts, with its sorting.
IN_CACHE, BEYOND_CACHE = 32_768, 32


@inner_njit
def push(chart: Chart, node: Int, origin: Int, count: Int, length: Int) -> Int:
    """Add an item to the work list unless it is there. Return the list's new length, or CROWDED."""
    stamp = chart.sizes[STAMP]
    seen = chart.seen
    mask = len(seen) - 1
    slot = hash_slot(node, origin, count, 0) & mask
    work = chart.work
    while seen[slot, SEEN_STAMP] >= stamp:
        other = seen[slot, SEEN_AT]
        same = seen[slot, SEEN_STAMP] == stamp and work[other, ITEM_NODE] == node
        if same and work[other, ITEM_ORIGIN] == origin and work[other, ITEM_COUNT] == count:
            return length
        slot = (slot + 1) & mask
    if length >= len(work):
        return CROWDED
    seen[slot, SEEN_STAMP] = stamp
    seen[slot, SEEN_AT] = length
    work[length, ITEM_NODE] = node
    work[length, ITEM_ORIGIN] = origin
    work[length, ITEM_COUNT] = count
    return length + 1


@inner_njit
def complete(graph: GraphArrays, chart: Chart, node: Int, origin: Int, length: Int, entry_count: Int) -> Int:
    """Return from the rule that ends at `node` to all its callers. Return the work list's new length, or a code."""
    rule = graph.nodes[node, RULE]
    tried = 0
    if origin == SELF:
        entries = chart.entries
        i = next_of_rule(graph, chart, rule, -1, entry_count)
        while i >= 0 and length >= 0:
            length = push(chart, entries[i, ENTRY_TARGET], entries[i, ENTRY_ORIGIN], entries[i, ENTRY_COUNT], length)
            i = next_of_rule(graph, chart, rule, i, entry_count)
            tried += 1
    else:
        words = chart.words
        at, end = first_entry(chart, origin, rule), chart.return_sets[origin, HI]
        while at < end and words[at + ENTRY_RULE] == rule and length >= 0:
            back = words[at + ENTRY_ORIGIN]
            back = origin if back == SELF else back
            length = push(chart, words[at + ENTRY_TARGET], back, words[at + ENTRY_COUNT], length)
            at += ENTRY
            tried += 1
    return EXHAUSTED if tried > FEW and spend(chart, tried) < 0 else length


@inner_njit
def behind_guard(graph: GraphArrays, chart: Chart, counter: Int, argument: Int, count: Int) -> Int:
    """Return the count after a guard; DEAD if the guard refuses it, or a code."""
    guard = graph.guards[argument]
    if is_large(graph, counter):
        return pass_guard(chart, guard, counter, count)
    refused = guard[REFUSED]
    if count & guard[ALL] != guard[ALL] or (refused and count & refused == refused):
        return DEAD
    return count & guard[KEPT_BITS] | guard[ADDED]


@inner_njit
def follow_links(
    graph: GraphArrays, chart: Chart, node: Int, origin: Int, count: Int, length: Int, entry_count: Int, done_count: Int
) -> tuple[Int, Int]:
    """Push the nodes that `node` reaches without reading a byte. Return (work length or a code, entry count)."""
    links = graph.links
    for at in range(graph.nodes[node, LINK_LO], graph.nodes[node, LINK_HI]):
        kind, target, argument = links[at, LINK_KIND], links[at, LINK_TARGET], links[at, LINK_ARGUMENT]
        if kind == EPSILON:
            if argument == 0 or count < graph.counters[argument, GREATEST]:
                length = push(chart, target, origin, count, length)
        elif kind == CALL:
            entry_count = add_entry(graph, chart, target, argument, count, origin, entry_count)
            if entry_count < 0:
                return CROWDED, entry_count
            length = push(chart, target, SELF, 0, length)
            if length >= 0 and done_count and is_done(graph, chart, target, done_count):
                length = push(chart, argument, origin, count, length)
        elif kind == INCREMENT:
            least, most = graph.counters[argument, LEAST], graph.counters[argument, GREATEST]
            more = count + 1 if most != UNBOUNDED or count < least else count
            length = push(chart, target, origin, more, length)
        elif kind == GUARD:
            after = behind_guard(graph, chart, graph.nodes[node, COUNTER], argument, count)
            if after >= 0:
                length = push(chart, target, origin, after, length)
            elif after != DEAD:
                return after, entry_count
        elif count >= graph.counters[argument, LEAST]:
            length = push(chart, target, origin, 0, length)
        if length < 0:
            return length, entry_count
    return length, entry_count


@inner_njit
def note_missing(chart: Chart, node: Int) -> None:
    """Add a node to the list of lazy nodes that were reached, if there is room."""
    count = chart.sizes[MISSING]
    if count < len(chart.missing):
        chart.missing[count] = node
        chart.sizes[MISSING] = count + 1


@shared_njit
def close(graph: GraphArrays, chart: Chart, length: Int) -> Int:
    """Return the state of the items in work[:length] and all they imply, DEAD, or a code.

    At a lazy node the closure continues elsewhere, to report all of them with one EXPAND.
    """
    entry_count = 0
    leaf_count = 0
    done_count = 0
    accepting = 0
    nodes = graph.nodes
    missing = False
    at = 0
    while at < length:
        node, origin, count = chart.work[at, ITEM_NODE], chart.work[at, ITEM_ORIGIN], chart.work[at, ITEM_COUNT]
        at += 1
        if at % BATCH == 0 and spend(chart, BATCH if at < IN_CACHE else BEYOND_CACHE * BATCH) < 0:
            return EXHAUSTED
        if nodes[node, FLAGS] & LAZY:
            note_missing(chart, node)
            missing = True
            continue
        if nodes[node, EDGE_HI] > nodes[node, EDGE_LO]:
            chart.leaves[leaf_count, ITEM_NODE] = node
            chart.leaves[leaf_count, ITEM_ORIGIN] = origin
            chart.leaves[leaf_count, ITEM_COUNT] = count
            leaf_count += 1
        if nodes[node, LINK_HI] > nodes[node, LINK_LO]:
            length, entry_count = follow_links(graph, chart, node, origin, count, length, entry_count, done_count)
            if length < 0:
                return length
        if nodes[node, FLAGS] & FINAL:
            if origin == ROOT:
                accepting = 1
            else:
                if origin == SELF:
                    done_count = note_done(graph, chart, nodes[node, RULE], done_count)
                length = complete(graph, chart, node, origin, length, entry_count)
                if length < 0:
                    return length
    if spend(chart, length % BATCH + entry_count) < 0:
        return EXHAUSTED
    if missing:
        return EXPAND
    if leaf_count == 0 and accepting == 0:
        return DEAD
    return_set = 1
    if entry_count:
        return_set = intern_return_set(graph, chart, leaf_count, entry_count)
        if return_set < 0:
            return return_set
    return intern_state(chart, return_set, accepting, leaf_count)


@njit
def begin(graph: GraphArrays, chart: Chart, node: Int) -> Int:
    """Return the start state of the rule that starts at `node`, as the whole text."""
    new_stamp(chart)
    state = close(graph, chart, push(chart, node, ROOT, 0, 0))
    if state >= 0:
        chart.states[state, KEPT] = 1
    return state
