"""The call entries of a state in the making: a list without repetitions, and where in it a rule's entries are.

A few are looked through. From FEW entries on all are in the hash table Chart.seen as well, which the work list of
kernels/chart/closure.py shares, and those of one rule are chained, and so are those that return to the end of one rule.
Whatever is in the table for another state has a lower stamp, and counts as free.
"""

from __future__ import annotations

from ..answers import CROWDED
from ..jit.aliases import Int, Truth
from ..jit.wide import inner_njit
from .layout import (
    ENTRY_COUNT,
    ENTRY_ORIGIN,
    ENTRY_RULE,
    ENTRY_TARGET,
    FLAGS,
    RULE,
    SEEN_AT,
    SEEN_STAMP,
    SELF,
    STAMP,
    TAIL,
    Chart,
    GraphArrays,
)

FEW = 16
# Kinds of records in Chart.seen, by what is added to the stamp: items of the work list; entries; by rule, the last
# entry of it, the last entry that returns to its end, its place in Chart.done.
WORK, ENTRIES, OF_RULE, TO_END, DONE = range(5)
KINDS = 8
# Columns of Chart.entries beyond those of an entry: the entry before of the same rule, and that of the same TO_END.
BEFORE, BEFORE_TO_END = 4, 5
LAST_STAMP = 2**31 - 2 * KINDS


@inner_njit
def new_stamp(chart: Chart) -> None:
    """Forget all that is in Chart.seen."""
    sizes, seen = chart.sizes, chart.seen
    if sizes[STAMP] > LAST_STAMP:
        sizes[STAMP] = 0
        for slot in range(len(seen)):
            seen[slot, SEEN_STAMP] = 0
    sizes[STAMP] += KINDS


@inner_njit
def hash_slot(a: Int, b: Int, c: Int, d: Int) -> Int:
    """The slot at which the search for four numbers begins."""
    value = int(a) * 0x9E3779B1 + int(b + 1) * 0x85EBCA6B + int(c) * 0x27D4EB2F + int(d) * 0x165667B1
    return value ^ (value >> 29)


@inner_njit
def entry_slot(chart: Chart, rule: Int, target: Int, count: Int, origin: Int) -> Int:
    """The slot of Chart.seen that has an entry, or has room for it."""
    seen, entries = chart.seen, chart.entries
    stamp, mask = chart.sizes[STAMP], len(seen) - 1
    slot = hash_slot(target, origin, count, rule) & mask
    while seen[slot, SEEN_STAMP] >= stamp:
        if seen[slot, SEEN_STAMP] == stamp + ENTRIES:
            at = seen[slot, SEEN_AT]
            same = entries[at, ENTRY_RULE] == rule and entries[at, ENTRY_TARGET] == target
            if same and entries[at, ENTRY_COUNT] == count and entries[at, ENTRY_ORIGIN] == origin:
                return slot
        slot = (slot + 1) & mask
    return slot


@inner_njit
def key_slot(graph: GraphArrays, chart: Chart, kind: Int, rule: Int) -> Int:
    """The slot of Chart.seen that has what is known of a rule, or has room for it."""
    seen, entries = chart.seen, chart.entries
    wanted, mask = chart.sizes[STAMP] + kind, len(seen) - 1
    slot = hash_slot(rule, kind, 0, 0) & mask
    while seen[slot, SEEN_STAMP] >= chart.sizes[STAMP]:
        if seen[slot, SEEN_STAMP] == wanted:
            at = seen[slot, SEEN_AT]
            if kind == OF_RULE:
                known = entries[at, ENTRY_RULE]
            elif kind == TO_END:
                known = graph.nodes[entries[at, ENTRY_TARGET], RULE]
            else:
                known = chart.done[at]
            if known == rule:
                return slot
        slot = (slot + 1) & mask
    return slot


@inner_njit
def last_of(graph: GraphArrays, chart: Chart, kind: Int, rule: Int) -> Int:
    """The entry of a rule in Chart.seen, -1 if there is none."""
    slot = key_slot(graph, chart, kind, rule)
    return chart.seen[slot, SEEN_AT] if chart.seen[slot, SEEN_STAMP] >= chart.sizes[STAMP] else -1


@inner_njit
def put(chart: Chart, slot: Int, kind: Int, at: Int) -> None:
    """Take a slot."""
    chart.seen[slot, SEEN_STAMP] = chart.sizes[STAMP] + kind
    chart.seen[slot, SEEN_AT] = at


@inner_njit
def chain(graph: GraphArrays, chart: Chart, at: Int, kind: Int, rule: Int, column: Int) -> None:
    """Put an entry before those that are chained already."""
    slot = key_slot(graph, chart, kind, rule)
    chart.entries[at, column] = chart.seen[slot, SEEN_AT] if chart.seen[slot, SEEN_STAMP] >= chart.sizes[STAMP] else -1
    put(chart, slot, kind, at)


@inner_njit
def index_entries(graph: GraphArrays, chart: Chart, first: Int, last: Int) -> None:
    """Put the entries first ... last - 1 into the table, and chain them."""
    entries = chart.entries
    for at in range(first, last):
        rule, target = entries[at, ENTRY_RULE], entries[at, ENTRY_TARGET]
        count, origin = entries[at, ENTRY_COUNT], entries[at, ENTRY_ORIGIN]
        slot = entry_slot(chart, rule, target, count, origin)
        put(chart, slot, ENTRIES, at)
        chain(graph, chart, at, OF_RULE, rule, BEFORE)
        if origin == SELF and graph.nodes[target, FLAGS] & TAIL:
            chain(graph, chart, at, TO_END, graph.nodes[target, RULE], BEFORE_TO_END)


@inner_njit
def add_entry(graph: GraphArrays, chart: Chart, rule: Int, target: Int, count: Int, origin: Int, length: Int) -> Int:
    """Add a call entry unless it is there; returns the new number of entries, or CROWDED."""
    entries = chart.entries
    if length < FEW:
        for i in range(length):
            if (
                entries[i, ENTRY_RULE] == rule
                and entries[i, ENTRY_TARGET] == target
                and entries[i, ENTRY_COUNT] == count
                and entries[i, ENTRY_ORIGIN] == origin
            ):
                return length
    elif chart.seen[entry_slot(chart, rule, target, count, origin), SEEN_STAMP] >= chart.sizes[STAMP]:
        return length
    if length >= len(entries):
        return CROWDED
    entries[length, ENTRY_RULE] = rule
    entries[length, ENTRY_TARGET] = target
    entries[length, ENTRY_COUNT] = count
    entries[length, ENTRY_ORIGIN] = origin
    if length + 1 >= FEW:
        index_entries(graph, chart, 0 if length + 1 == FEW else length, length + 1)
    return length + 1


@inner_njit
def next_of_rule(graph: GraphArrays, chart: Chart, rule: Int, at: Int, length: Int) -> Int:
    """The entry of a rule that comes after `at`, in some order; -1 before the first and after the last one."""
    entries = chart.entries
    if length >= FEW:
        return last_of(graph, chart, OF_RULE, rule) if at < 0 else entries[at, BEFORE]
    at += 1
    while at < length and entries[at, ENTRY_RULE] != rule:
        at += 1
    return at if at < length else -1


@inner_njit
def next_to_end(graph: GraphArrays, chart: Chart, rule: Int, at: Int, length: Int) -> Int:
    """As next_of_rule, among the entries that return to the end of a rule that was called in this state."""
    entries, nodes = chart.entries, graph.nodes
    if length >= FEW:
        return last_of(graph, chart, TO_END, rule) if at < 0 else entries[at, BEFORE_TO_END]
    at += 1
    while at < length:
        target = entries[at, ENTRY_TARGET]
        if entries[at, ENTRY_ORIGIN] == SELF and nodes[target, FLAGS] & TAIL and nodes[target, RULE] == rule:
            return at
        at += 1
    return -1


@inner_njit
def note_done(graph: GraphArrays, chart: Chart, rule: Int, length: Int) -> Int:
    """Note that a rule called in this state was completed in it; how many there are."""
    if is_done(graph, chart, rule, length):
        return length
    chart.done[length] = rule
    length += 1
    if length >= FEW:
        for at in range(0 if length == FEW else length - 1, length):
            put(chart, key_slot(graph, chart, DONE, chart.done[at]), DONE, at)
    return length


@inner_njit
def is_done(graph: GraphArrays, chart: Chart, rule: Int, length: Int) -> Truth:
    """Tell whether a rule was noted."""
    if length >= FEW:
        return last_of(graph, chart, DONE, rule) >= 0
    for at in range(length):  # noqa: SIM110
        if chart.done[at] == rule:
            return True
    return False
