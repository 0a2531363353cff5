"""Return sets, the call entries that are open when a rule is predicted; interning of them and of states.

Kernels return the codes of kernels/answers.py. Sources: see layout.py.

The call entries of a state under construction form a list without duplicates. Up to FEW entries are searched linearly.
From FEW on all are also in the hash table Chart.seen, which the work list of kernels/chart/closure.py shares, with
chains of the entries of one rule, and of those that return to the end of one rule. Records of earlier states have lower
stamps, and count as free slots.
"""

from __future__ import annotations

from ..answers import CROWDED, EXHAUSTED, spend
from ..jit.aliases import Int, Ints, Truth
from ..jit.wide import inner_njit, njit
from .interning import HI, LO, intern, sort_records
from .layout import (
    ACCEPTING,
    CANON,
    COUNTER,
    ENTRY,
    ENTRY_COUNT,
    ENTRY_ORIGIN,
    ENTRY_RULE,
    ENTRY_TARGET,
    FLAGS,
    GREATEST,
    HEADER,
    HORIZON,
    ITEM,
    ITEM_COUNT,
    ITEM_NODE,
    ITEM_ORIGIN,
    LEAST,
    OF_RETURN_SET,
    OF_STATE,
    OWN_RETURN_SET,
    RETURN_SETS,
    ROOT,
    RULE,
    SEEN_AT,
    SEEN_STAMP,
    SELF,
    SIGNATURE,
    SIGNATURES,
    STAMP,
    STATES,
    TAIL,
    Chart,
    GraphArrays,
    is_set,
)

FEW = 16
# Kinds of records in Chart.seen, added to the stamp: items of the work list; entries; by rule: its last entry, the
# last entry that returns to its end, its place in Chart.done.
WORK, ENTRIES, OF_RULE, TO_END, DONE = range(5)
KINDS = 8
# Columns of Chart.entries beyond those of an entry: the previous entry of the same rule, and that of the same TO_END.
BEFORE, BEFORE_TO_END = 4, 5
LAST_STAMP = 2**31 - 2 * KINDS


@inner_njit
def new_stamp(chart: Chart) -> None:
    """Invalidate all records in Chart.seen."""
    sizes, seen = chart.sizes, chart.seen
    if sizes[STAMP] > LAST_STAMP:
        sizes[STAMP] = 0
        for slot in range(len(seen)):
            seen[slot, SEEN_STAMP] = 0
    sizes[STAMP] += KINDS


@inner_njit
def hash_slot(a: Int, b: Int, c: Int, d: Int) -> Int:
    """Hash four numbers to the first slot of their search."""
    value = int(a) * 0x9E3779B1 + int(b + 1) * 0x85EBCA6B + int(c) * 0x27D4EB2F + int(d) * 0x165667B1
    return value ^ (value >> 29)


@inner_njit
def entry_slot(chart: Chart, rule: Int, target: Int, count: Int, origin: Int) -> Int:
    """Return the slot of Chart.seen with an entry, or a free slot for it."""
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
    """Return the slot of Chart.seen with a rule's record of a kind, or a free slot for it."""
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
    """Return the record of a rule in Chart.seen, -1 if there is none."""
    slot = key_slot(graph, chart, kind, rule)
    return chart.seen[slot, SEEN_AT] if chart.seen[slot, SEEN_STAMP] >= chart.sizes[STAMP] else -1


@inner_njit
def put(chart: Chart, slot: Int, kind: Int, at: Int) -> None:
    """Fill a slot."""
    chart.seen[slot, SEEN_STAMP] = chart.sizes[STAMP] + kind
    chart.seen[slot, SEEN_AT] = at


@inner_njit
def chain(graph: GraphArrays, chart: Chart, at: Int, kind: Int, rule: Int, column: Int) -> None:
    """Put an entry at the head of a rule's chain."""
    slot = key_slot(graph, chart, kind, rule)
    chart.entries[at, column] = chart.seen[slot, SEEN_AT] if chart.seen[slot, SEEN_STAMP] >= chart.sizes[STAMP] else -1
    put(chart, slot, kind, at)


@inner_njit
def index_entries(graph: GraphArrays, chart: Chart, first: Int, last: Int) -> None:
    """Enter the entries first ... last - 1 into the table and the chains."""
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
    """Add a call entry unless it is there. Return the new number of entries, or CROWDED."""
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
    """Return the entry of a rule that follows `at` in some order; begins with `at` -1, and ends with -1."""
    entries = chart.entries
    if length >= FEW:
        return last_of(graph, chart, OF_RULE, rule) if at < 0 else entries[at, BEFORE]
    at += 1
    while at < length and entries[at, ENTRY_RULE] != rule:
        at += 1
    return at if at < length else -1


@inner_njit
def next_to_end(graph: GraphArrays, chart: Chart, rule: Int, at: Int, length: Int) -> Int:
    """`next_of_rule` for the entries that return to the end of a rule that was called in this state."""
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
    """Note that a rule called in this state was completed in it. Return the number of such rules."""
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
    """Test whether a rule was noted."""
    if length >= FEW:
        return last_of(graph, chart, DONE, rule) >= 0
    for at in range(length):  # noqa: SIM110
        if chart.done[at] == rule:
            return True
    return False


# Steps of work for sorting, finding and writing an entry of a long list.
STEPS_EACH = 12


@inner_njit
def first_entry(chart: Chart, return_set: Int, rule: Int) -> Int:
    """Return the place of the first entry of `rule` in a return set, whose entries are sorted by rule."""
    words = chart.words
    lo = chart.return_sets[return_set, LO]
    low, high = 0, (chart.return_sets[return_set, HI] - lo) // ENTRY
    while low < high:
        middle = (low + high) // 2
        if words[lo + ENTRY * middle + ENTRY_RULE] < rule:
            low = middle + 1
        else:
            high = middle
    return lo + ENTRY * low


@inner_njit
def flatten_tails(graph: GraphArrays, chart: Chart, entry_count: Int) -> Int:
    """Replace entries that return to the end of a rule by the entries that rule returns to. Return their new number.

    Or a code. Entries of rules called in this state define which rule hands on to which, and stay unchanged meanwhile;
    every entry that does not return to the end of a rule is copied along them.
    """
    entries = chart.entries
    called = entry_count  # all entries that return to the end of a rule called in this state are among these
    at = 0
    while at < entry_count:
        tried = 1
        if returns_to_end(graph, chart, at):
            if entries[at, ENTRY_ORIGIN] != SELF:
                entry_count = flatten_entry(graph, chart, at, entry_count)
        else:
            rule, target, count, origin = (
                entries[at, ENTRY_RULE],
                entries[at, ENTRY_TARGET],
                entries[at, ENTRY_COUNT],
                entries[at, ENTRY_ORIGIN],
            )
            i = next_to_end(graph, chart, rule, -1, called)
            while i >= 0 and entry_count >= 0:
                entry_count = add_entry(graph, chart, entries[i, ENTRY_RULE], target, count, origin, entry_count)
                i = next_to_end(graph, chart, rule, i, called)
                tried += 1
        if entry_count < 0:
            return entry_count
        if spend(chart, tried) < 0:
            return EXHAUSTED
        at += 1
    kept = 0
    for i in range(entry_count):
        if not returns_to_end(graph, chart, i):
            for k in range(ENTRY):
                entries[kept, k] = entries[i, k]
            kept += 1
    return kept


@inner_njit
def returns_to_end(graph: GraphArrays, chart: Chart, at: Int) -> bool:
    """Test whether an entry returns to the end of a rule, other than the rule of the text."""
    entries = chart.entries
    return graph.nodes[entries[at, ENTRY_TARGET], FLAGS] & TAIL != 0 and entries[at, ENTRY_ORIGIN] != ROOT


@inner_njit
def flatten_entry(graph: GraphArrays, chart: Chart, at: Int, entry_count: Int) -> Int:
    """Add the entries that a rule of an earlier state returns to, for an entry that returns to its end.

    Return the new number of entries, or a code. The earlier return set has been flattened already.
    """
    entries, words = chart.entries, chart.words
    caller, rule, origin = (
        entries[at, ENTRY_RULE],
        graph.nodes[entries[at, ENTRY_TARGET], RULE],
        entries[at, ENTRY_ORIGIN],
    )
    tried = 0
    w, end = first_entry(chart, origin, rule), chart.return_sets[origin, HI]
    while w < end and words[w + ENTRY_RULE] == rule and entry_count >= 0:
        back = origin if words[w + ENTRY_ORIGIN] == SELF else words[w + ENTRY_ORIGIN]
        target, count = words[w + ENTRY_TARGET], words[w + ENTRY_COUNT]
        entry_count = add_entry(graph, chart, caller, target, count, back, entry_count)
        w += ENTRY
        tried += 1
    return EXHAUSTED if tried > FEW and spend(chart, tried) < 0 else entry_count


@inner_njit
def first_record(entries: Ints, count: Int, rule: Int) -> Int:
    """Return the place of the first entry of `rule` among entries sorted by rule."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if entries[middle, ENTRY_RULE] < rule:
            low = middle + 1
        else:
            high = middle
    return low


@inner_njit
def need(chart: Chart, rule: Int, needed: Int, count: Int) -> Int:
    """Mark the entries of a rule as needed. Return the new number of needed entries."""
    entries, done = chart.entries, chart.done
    is_sorted = count >= FEW
    at = first_record(entries, count, rule) if is_sorted else 0
    while at < count:
        if entries[at, ENTRY_RULE] == rule:
            if done[at]:
                return needed
            done[at] = 1
            entries[needed, BEFORE] = at
            needed += 1
        elif is_sorted:
            return needed
        at += 1
    return needed


@inner_njit
def prune_entries(graph: GraphArrays, chart: Chart, leaf_count: Int, entry_count: Int) -> Int:
    """Keep the entries of rules that can still be completed from this state, in order. Return their number."""
    entries, done = chart.entries, chart.done
    if entry_count >= FEW:
        sort_records(entries, entry_count, ENTRY, chart.buffer)
    for i in range(entry_count):
        done[i] = 0
    needed, last = 0, -1
    for i in range(leaf_count):
        if chart.leaves[i, ITEM_ORIGIN] == SELF:
            rule = graph.nodes[chart.leaves[i, ITEM_NODE], RULE]
            if rule != last:
                needed = need(chart, rule, needed, entry_count)
                last = rule
    k = 0
    while k < needed:
        i = entries[k, BEFORE]
        if entries[i, ENTRY_ORIGIN] == SELF:
            needed = need(chart, graph.nodes[entries[i, ENTRY_TARGET], RULE], needed, entry_count)
        k += 1
    kept = 0
    for i in range(entry_count):
        if done[i]:
            for k in range(ENTRY):
                entries[kept, k] = entries[i, k]
            kept += 1
    if entry_count < FEW:
        sort_records(entries, kept, ENTRY, chart.buffer)
    return kept


@inner_njit
def clamp(graph: GraphArrays, horizon: Int, node: Int, count: Int) -> Int:
    """Map the count at `node` to an equivalent one for texts of up to `horizon` bytes: its distance from the bounds."""
    counter = graph.nodes[node, COUNTER]
    if counter == 0:
        return 0
    if is_set(graph, counter):
        return count
    below = min(max(graph.counters[counter, LEAST] - count, 0), horizon + 1)
    above = min(graph.counters[counter, GREATEST] - count, horizon + 1)
    return below * (horizon + 2) + above


@inner_njit
def intern_return_set(graph: GraphArrays, chart: Chart, leaf_count: Int, entry_count: Int) -> Int:
    """Return the number of the return set in entries[:entry_count], after flattening and pruning; or a code."""
    entry_count = flatten_tails(graph, chart, entry_count)
    if entry_count < 0:
        return entry_count
    if entry_count >= FEW and spend(chart, STEPS_EACH * entry_count) < 0:
        return EXHAUSTED
    entry_count = prune_entries(graph, chart, leaf_count, entry_count)
    if entry_count == 0:
        return 1
    buffer, entries = chart.buffer, chart.entries
    length = ENTRY * entry_count
    if length + 1 > len(buffer):
        return CROWDED
    for i in range(entry_count):
        for k in range(ENTRY):
            buffer[ENTRY * i + k] = entries[i, k]
    return_set = intern(
        chart.words, chart.return_sets, chart.return_set_index, buffer, length, chart.sizes, RETURN_SETS
    )
    if return_set < 0 or chart.return_sets[return_set, CANON] >= 0:
        return return_set
    horizon = chart.sizes[HORIZON]
    for i in range(entry_count):
        buffer[ENTRY * i + ENTRY_COUNT] = clamp(graph, horizon, entries[i, ENTRY_TARGET], entries[i, ENTRY_COUNT])
        if entries[i, ENTRY_ORIGIN] != SELF:
            buffer[ENTRY * i + ENTRY_ORIGIN] = chart.return_sets[entries[i, ENTRY_ORIGIN], CANON]
    buffer[length] = OF_RETURN_SET
    canon = intern(chart.words, chart.signatures, chart.signature_index, buffer, length + 1, chart.sizes, SIGNATURES)
    if canon < 0:
        return canon
    chart.return_sets[return_set, CANON] = canon
    return return_set


@inner_njit
def intern_state(chart: Chart, return_set: Int, accepting: Int, leaf_count: Int) -> Int:
    """Return the number of the state with this return set and the items in leaves[:leaf_count], or a code."""
    sort_records(chart.leaves, leaf_count, ITEM, chart.buffer)
    length = HEADER + ITEM * leaf_count
    buffer = chart.buffer
    if length + 1 > len(buffer):
        return CROWDED
    buffer[OWN_RETURN_SET] = return_set
    buffer[ACCEPTING] = accepting
    for i in range(leaf_count):
        for k in range(ITEM):
            buffer[HEADER + ITEM * i + k] = chart.leaves[i, k]
    return intern(chart.words, chart.states, chart.state_index, buffer, length, chart.sizes, STATES)


@njit
def signature(graph: GraphArrays, chart: Chart, state: Int) -> Int:
    """Return a number that states share if no text of up to `horizon` bytes distinguishes them; FULL without room."""
    known = chart.states[state, SIGNATURE]
    if known >= 0:
        return known
    lo: Int = chart.states[state, LO]
    length: Int = chart.states[state, HI] - lo
    buffer, words = chart.buffer, chart.words
    buffer[OWN_RETURN_SET] = chart.return_sets[words[lo + OWN_RETURN_SET], CANON]
    buffer[ACCEPTING] = words[lo + ACCEPTING]
    horizon = chart.sizes[HORIZON]
    for at in range(HEADER, length, ITEM):
        node, origin = words[lo + at + ITEM_NODE], words[lo + at + ITEM_ORIGIN]
        buffer[at + ITEM_NODE] = node
        buffer[at + ITEM_ORIGIN] = SELF if origin == SELF else chart.return_sets[origin, CANON]
        buffer[at + ITEM_COUNT] = clamp(graph, horizon, node, words[lo + at + ITEM_COUNT])
    buffer[length] = OF_STATE
    number = intern(words, chart.signatures, chart.signature_index, buffer, length + 1, chart.sizes, SIGNATURES)
    if number >= 0:
        chart.states[state, SIGNATURE] = number
    return number
