"""The call entries of a state in the making: a list without repetitions, and where in it a rule's entries are.

A few are looked through. From FEW entries on all are in the hash table Chart.seen as well, which the work list of
kernels/closure.py shares, and those of one rule are chained, and so are those that return to the end of one rule.
Whatever is in the table for another state has a lower stamp, and counts as free.
"""

from .chart import CROWDED, FLAGS, RULE, SELF, STAMP, TAIL
from .wide import inner_njit

FEW = 16
# Kinds of records in Chart.seen, by what is added to the stamp: items of the work list; entries; by rule, the last
# entry of it, the last entry that returns to its end, its place in Chart.done.
WORK, ENTRIES, OF_RULE, TO_END, DONE = range(5)
KINDS = 8
# Columns of Chart.entries beyond those of an entry: the entry before of the same rule, and that of the same TO_END.
BEFORE, BEFORE_TO_END = 4, 5
LAST_STAMP = 2**31 - 2 * KINDS


@inner_njit
def new_stamp(chart):
    """Forget all that is in Chart.seen."""
    sizes, seen = chart.sizes, chart.seen
    if sizes[STAMP] > LAST_STAMP:
        sizes[STAMP] = 0
        for slot in range(len(seen)):
            seen[slot, 0] = 0
    sizes[STAMP] += KINDS


@inner_njit
def hash_slot(a, b, c, d):
    """Where to begin to look for four numbers."""
    value = int(a) * 0x9E3779B1 + int(b + 1) * 0x85EBCA6B + int(c) * 0x27D4EB2F + int(d) * 0x165667B1
    return value ^ (value >> 29)


@inner_njit
def entry_slot(chart, rule, target, count, origin):
    """The slot of Chart.seen that has an entry, or has room for it."""
    seen, entries = chart.seen, chart.entries
    stamp, mask = chart.sizes[STAMP], len(seen) - 1
    slot = hash_slot(target, origin, count, rule) & mask
    while seen[slot, 0] >= stamp:
        if seen[slot, 0] == stamp + ENTRIES:
            at = seen[slot, 1]
            same = entries[at, 0] == rule and entries[at, 1] == target
            if same and entries[at, 2] == count and entries[at, 3] == origin:
                return slot
        slot = (slot + 1) & mask
    return slot


@inner_njit
def key_slot(graph, chart, kind, rule):
    """The slot of Chart.seen that has what is known of a rule, or has room for it."""
    seen, entries = chart.seen, chart.entries
    wanted, mask = chart.sizes[STAMP] + kind, len(seen) - 1
    slot = hash_slot(rule, kind, 0, 0) & mask
    while seen[slot, 0] >= chart.sizes[STAMP]:
        if seen[slot, 0] == wanted:
            at = seen[slot, 1]
            if kind == OF_RULE:
                known = entries[at, 0]
            elif kind == TO_END:
                known = graph.nodes[entries[at, 1], RULE]
            else:
                known = chart.done[at]
            if known == rule:
                return slot
        slot = (slot + 1) & mask
    return slot


@inner_njit
def last_of(graph, chart, kind, rule):
    """What Chart.seen has of a rule, -1 if nothing."""
    slot = key_slot(graph, chart, kind, rule)
    return chart.seen[slot, 1] if chart.seen[slot, 0] >= chart.sizes[STAMP] else -1


@inner_njit
def put(chart, slot, kind, at):
    """Take a slot."""
    chart.seen[slot, 0] = chart.sizes[STAMP] + kind
    chart.seen[slot, 1] = at


@inner_njit
def chain(graph, chart, at, kind, rule, column):
    """Put an entry before those that are chained already."""
    slot = key_slot(graph, chart, kind, rule)
    chart.entries[at, column] = chart.seen[slot, 1] if chart.seen[slot, 0] >= chart.sizes[STAMP] else -1
    put(chart, slot, kind, at)


@inner_njit
def index_entries(graph, chart, first, last):
    """Put the entries first ... last - 1 into the table, and chain them."""
    entries = chart.entries
    for at in range(first, last):
        slot = entry_slot(chart, entries[at, 0], entries[at, 1], entries[at, 2], entries[at, 3])
        put(chart, slot, ENTRIES, at)
        chain(graph, chart, at, OF_RULE, entries[at, 0], BEFORE)
        target = entries[at, 1]
        if entries[at, 3] == SELF and graph.nodes[target, FLAGS] & TAIL:
            chain(graph, chart, at, TO_END, graph.nodes[target, RULE], BEFORE_TO_END)


@inner_njit
def add_entry(graph, chart, rule, target, count, origin, length):
    """Add a call entry unless it is there; returns the new number of entries, or CROWDED."""
    entries = chart.entries
    if length < FEW:
        for i in range(length):
            if entries[i, 0] == rule and entries[i, 1] == target and entries[i, 2] == count and entries[i, 3] == origin:
                return length
    elif chart.seen[entry_slot(chart, rule, target, count, origin), 0] >= chart.sizes[STAMP]:
        return length
    if length >= len(entries):
        return CROWDED
    entries[length, 0] = rule
    entries[length, 1] = target
    entries[length, 2] = count
    entries[length, 3] = origin
    if length + 1 >= FEW:
        index_entries(graph, chart, 0 if length + 1 == FEW else length, length + 1)
    return length + 1


@inner_njit
def next_of_rule(graph, chart, rule, at, length):
    """The entry of a rule that comes after `at`, in some order; -1 before the first and after the last one."""
    entries = chart.entries
    if length >= FEW:
        return last_of(graph, chart, OF_RULE, rule) if at < 0 else entries[at, BEFORE]
    at += 1
    while at < length and entries[at, 0] != rule:
        at += 1
    return at if at < length else -1


@inner_njit
def next_to_end(graph, chart, rule, at, length):
    """As next_of_rule, among the entries that return to the end of a rule that was called in this state."""
    entries, nodes = chart.entries, graph.nodes
    if length >= FEW:
        return last_of(graph, chart, TO_END, rule) if at < 0 else entries[at, BEFORE_TO_END]
    at += 1
    while at < length:
        target = entries[at, 1]
        if entries[at, 3] == SELF and nodes[target, FLAGS] & TAIL and nodes[target, RULE] == rule:
            return at
        at += 1
    return -1


@inner_njit
def note_done(graph, chart, rule, length):
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
def is_done(graph, chart, rule, length):
    """Whether a rule was noted."""
    if length >= FEW:
        return last_of(graph, chart, DONE, rule) >= 0
    for at in range(length):  # noqa: SIM110
        if chart.done[at] == rule:
            return True
    return False
