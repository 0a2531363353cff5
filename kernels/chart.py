"""The chart: hash-consed Earley item sets over a graph of byte edges and calls, as integers on arrays.

A state is a set of items (graph node, origin, count). The origin says what to do when the item's rule is
complete: it is the number of a *bundle*, the set of call entries (rule, return node, count, origin) that
were open when the rule was predicted, and it is interned by content. Two prefixes with the same open calls
therefore share their origins, and with the same items they are the same state. An item predicted inside
its own state has the origin SELF, which stands for the state's own bundle; that keeps left recursion
finite. Tail calls are flattened: an entry that would return to the end of a rule is replaced by the entries
that rule itself returns to, so right recursion does not grow the chart.

Sources: J. Earley, "An efficient context-free parsing algorithm" (1970); J. Leo, "A general context-free
parsing algorithm running in linear time on every LR(k) grammar" (1991) for the tail calls.

Kernels grow nothing. They return a state number, or DEAD, or one of the codes FULL (an array is more than
half used), EXPAND (lazy graph nodes were reached; they are in missing[:sizes[MISSING]]) and CROWDED (the scratch
arrays are too small). After the caller has dealt with a code it calls again: what was interned stays.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .interning import HI, LO, contains, intern, sort_records
from .sets import ADDED, ALL, KEPT_BITS, REFUSED, pass_guard
from .wide import inner_njit, njit, shared_njit

DEAD, EXPAND, CROWDED = -1, -3, -4

# Columns of Graph.nodes, and its flags.
EDGE_LO, EDGE_HI, LINK_LO, LINK_HI, FLAGS, RULE, COUNTER, SPAN = range(8)
FINAL, LAZY, TAIL = 1, 2, 4
# Kinds of links: (kind, target, argument).
EPSILON, CALL, INCREMENT, LEAVE, GUARD = range(5)
# Columns of Chart.states and Chart.bundles (bundles: the first two and CANON). KEPT: 1 once somebody was given
# the state's number.
ROW, SIGNATURE, KEPT = 2, 3, 4
CANON = 2
# Entries of Chart.sizes.
STATES, BUNDLES, SIGNATURES, ROWS, MISSING, STAMP, HORIZON = range(1, 8)
# Origins. The first bundles are ROOT, which ends the text, and the empty one; they stay.
SELF, ROOT, RESERVED = -1, 0, 2
# A state's words are (bundle, accepting) followed by three words for every item; a bundle's are four per entry.
HEADER, ITEM, ENTRY = 2, 3, 4
# The last word of a signature.
OF_BUNDLE, OF_STATE = -2, -3
UNBOUNDED = 2**31 - 1


class Graph(NamedTuple):
    """What can be read where: a graph of byte edges and links.

    nodes: int32 [n, 8], columns EDGE_LO ... SPAN
    edges: int32 [n, 3], inclusive byte range and target
    links: int32 [n, 3], kind, target, argument (CALL: the return node; INCREMENT and LEAVE: the counter;
    EPSILON: a counter that must be below its greatest count, or 0; GUARD: a row of guards)
    counters: int32 [n, 2], least and greatest count; counter 0 means none. A *set* is a counter whose count is a
    set of bits: the bits that must be there at the end, and a number below 0 that tells sets apart. The count of a
    *large set* is the number of a set of bits: -1 - how many of the first bits must be there, and as above
    guards: int32 [n, 4], for links between nodes of a set: the bits that must be there, those of which one must be
    missing (0 if none need be), those that are kept, and those that are added; of a large set see kernels/sets.py
    spans: uint64 [n, 3], sets of characters (ASCII in two words, then whether all others): from a node with span
    k > 0 every text of these characters can be read and continued; span 0 means nothing is promised
    """

    nodes: NDArray[np.int32]
    edges: NDArray[np.int32]
    links: NDArray[np.int32]
    counters: NDArray[np.int32]
    guards: NDArray[np.int32]
    spans: NDArray[np.uint64]


class Chart(NamedTuple):
    """All states met so far; see the module for what they are.

    words: int32, the contents of states, bundles and signatures
    states, bundles, signatures: int32 [n, 5 | 3 | 2], spans of words and what belongs to them
    state_index, bundle_index, signature_index: int32, open-addressing hash tables of numbers, -1 free
    rows: int32 [n, 256], transition rows; loops: uint64 [n, 3], see kernels/rows.py
    sets: int32 [n, 2], spans of set_words, the contents of large sets; set_index, set_sizes: as for the others
    sizes: int64 [12], see above and kernels/interning.py; missing: int32 [n], lazy nodes that were reached
    scratch: items, work, leaves: int32 [n, 3]; entries: int32 [n, 4]; done: int32 [n]; seen: int32 [2n, 2]; buffer
    """

    words: NDArray[np.int32]
    states: NDArray[np.int32]
    bundles: NDArray[np.int32]
    signatures: NDArray[np.int32]
    state_index: NDArray[np.int32]
    bundle_index: NDArray[np.int32]
    signature_index: NDArray[np.int32]
    rows: NDArray[np.int32]
    loops: NDArray[np.uint64]
    memo: NDArray[np.int32]
    set_words: NDArray[np.int32]
    sets: NDArray[np.int32]
    set_index: NDArray[np.int32]
    set_sizes: NDArray[np.int64]
    sizes: NDArray[np.int64]
    missing: NDArray[np.int32]
    items: NDArray[np.int32]
    work: NDArray[np.int32]
    leaves: NDArray[np.int32]
    entries: NDArray[np.int32]
    done: NDArray[np.int32]
    seen: NDArray[np.int32]
    buffer: NDArray[np.int32]


@inner_njit
def is_set(graph, counter):
    """Whether the counter counts nothing, but holds a set of bits."""
    return graph.counters[counter, 1] < 0


@inner_njit
def is_large(graph, counter):
    """Whether the counter holds the number of a set of bits."""
    return graph.counters[counter, 1] < 0 and graph.counters[counter, 0] < 0


@inner_njit
def push(chart, node, origin, count, length):
    """Add an item to the work list unless it is there; returns the list's new length, or CROWDED."""
    stamp = np.int32(chart.sizes[STAMP])
    seen = chart.seen
    mask = len(seen) - 1
    slot = int(node) * 0x9E3779B1 + int(origin + 1) * 0x85EBCA6B + int(count) * 0x27D4EB2F
    slot = (slot ^ (slot >> 29)) & mask
    work = chart.work
    while seen[slot, 0] == stamp:
        other = seen[slot, 1]
        if work[other, 0] == node and work[other, 1] == origin and work[other, 2] == count:
            return length
        slot = (slot + 1) & mask
    if length >= len(work):
        return CROWDED
    seen[slot, 0] = stamp
    seen[slot, 1] = length
    work[length, 0] = node
    work[length, 1] = origin
    work[length, 2] = count
    return length + 1


@inner_njit
def add_entry(chart, rule, target, count, origin, length):
    """Add a call entry unless it is there; returns the new number of entries, or CROWDED."""
    entries = chart.entries
    for i in range(length):
        if entries[i, 0] == rule and entries[i, 1] == target and entries[i, 2] == count and entries[i, 3] == origin:
            return length
    if length >= len(entries):
        return CROWDED
    entries[length, 0] = rule
    entries[length, 1] = target
    entries[length, 2] = count
    entries[length, 3] = origin
    return length + 1


@inner_njit
def first_entry(chart, bundle, rule):
    """Where the entries of `rule` begin among the words of a bundle, which are in order of their rules."""
    words = chart.words
    lo = chart.bundles[bundle, LO]
    low, high = 0, (chart.bundles[bundle, HI] - lo) // ENTRY
    while low < high:
        middle = (low + high) // 2
        if words[lo + ENTRY * middle] < rule:
            low = middle + 1
        else:
            high = middle
    return lo + ENTRY * low


@inner_njit
def complete(graph, chart, node, origin, length, entry_count):
    """Return from the rule that ends at `node` to everything that called it; the work list's new length."""
    rule = graph.nodes[node, RULE]
    if origin == SELF:
        entries = chart.entries
        for i in range(entry_count):
            if entries[i, 0] == rule and length >= 0:
                length = push(chart, entries[i, 1], entries[i, 3], entries[i, 2], length)
        return length
    words = chart.words
    at, end = first_entry(chart, origin, rule), chart.bundles[origin, HI]
    while at < end and words[at] == rule and length >= 0:
        back = words[at + 3]
        length = push(chart, words[at + 1], origin if back == SELF else back, words[at + 2], length)
        at += ENTRY
    return length


@inner_njit
def behind_guard(graph, chart, counter, argument, count):
    """The count behind a guard; DEAD if it does not let through, or a code."""
    guard = graph.guards[argument]
    if is_large(graph, counter):
        return pass_guard(chart, guard, counter, count)
    refused = guard[REFUSED]
    if count & guard[ALL] != guard[ALL] or (refused and count & refused == refused):
        return DEAD
    return count & guard[KEPT_BITS] | guard[ADDED]


@inner_njit
def follow_links(graph, chart, node, origin, count, length, entry_count, done_count):
    """Push what `node` reaches without reading a byte; returns (work length or a code, entry count)."""
    for at in range(graph.nodes[node, LINK_LO], graph.nodes[node, LINK_HI]):
        kind, target, argument = graph.links[at, 0], graph.links[at, 1], graph.links[at, 2]
        if kind == EPSILON:
            if argument == 0 or count < graph.counters[argument, 1]:
                length = push(chart, target, origin, count, length)
        elif kind == CALL:
            entry_count = add_entry(chart, target, argument, count, origin, entry_count)
            if entry_count < 0:
                return CROWDED, entry_count
            length = push(chart, target, SELF, 0, length)
            for i in range(done_count):
                if chart.done[i] == target and length >= 0:
                    length = push(chart, argument, origin, count, length)
        elif kind == INCREMENT:
            least, most = graph.counters[argument, 0], graph.counters[argument, 1]
            more = count + 1 if most != UNBOUNDED or count < least else count
            length = push(chart, target, origin, more, length)
        elif kind == GUARD:
            after = behind_guard(graph, chart, graph.nodes[node, COUNTER], argument, count)
            if after >= 0:
                length = push(chart, target, origin, after, length)
            elif after != DEAD:
                return after, entry_count
        elif count >= graph.counters[argument, 0]:
            length = push(chart, target, origin, 0, length)
        if length < 0:
            return length, entry_count
    return length, entry_count


@shared_njit
def close(graph, chart, length):
    """The state of the items in work[:length] and all they imply; see the module for the codes."""
    entry_count = 0
    leaf_count = 0
    done_count = 0
    accepting = 0
    nodes = graph.nodes
    at = 0
    while at < length:
        node, origin, count = chart.work[at, 0], chart.work[at, 1], chart.work[at, 2]
        at += 1
        if nodes[node, FLAGS] & LAZY:
            count = chart.sizes[MISSING]
            if count < len(chart.missing):
                chart.missing[count] = node
                chart.sizes[MISSING] = count + 1
            return EXPAND
        if nodes[node, EDGE_HI] > nodes[node, EDGE_LO]:
            chart.leaves[leaf_count, 0] = node
            chart.leaves[leaf_count, 1] = origin
            chart.leaves[leaf_count, 2] = count
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
                    chart.done[done_count] = nodes[node, RULE]
                    done_count += 1
                length = complete(graph, chart, node, origin, length, entry_count)
                if length < 0:
                    return CROWDED
    if leaf_count == 0 and accepting == 0:
        return DEAD
    bundle = 1
    if entry_count:
        bundle = intern_bundle(graph, chart, leaf_count, entry_count)
        if bundle < 0:
            return bundle
    return intern_state(chart, bundle, accepting, leaf_count)


@inner_njit
def flatten_tails(graph, chart, entry_count):
    """Replace entries that return to the end of a rule by what that rule returns to; the new number of entries."""
    entries = chart.entries
    at = 0
    while at < entry_count:
        target, origin = entries[at, 1], entries[at, 3]
        if graph.nodes[target, FLAGS] & TAIL and origin != ROOT:
            rule, caller = graph.nodes[target, RULE], entries[at, 0]
            if origin == SELF:
                for i in range(entry_count):
                    if entries[i, 0] == rule and entry_count >= 0:
                        entry_count = add_entry(chart, caller, entries[i, 1], entries[i, 2], entries[i, 3], entry_count)
                # Entries of this rule that come later are found from their side.
            else:
                words = chart.words
                w, end = first_entry(chart, origin, rule), chart.bundles[origin, HI]
                while w < end and words[w] == rule and entry_count >= 0:
                    back = origin if words[w + 3] == SELF else words[w + 3]
                    entry_count = add_entry(chart, caller, words[w + 1], words[w + 2], back, entry_count)
                    w += ENTRY
            if entry_count < 0:
                return CROWDED
        rule = entries[at, 0]
        for i in range(at):
            tail = entries[i, 1]
            if entries[i, 3] == SELF and graph.nodes[tail, FLAGS] & TAIL and graph.nodes[tail, RULE] == rule:
                entry_count = add_entry(chart, entries[i, 0], target, entries[at, 2], origin, entry_count)
                if entry_count < 0:
                    return CROWDED
        at += 1
    kept = 0
    for i in range(entry_count):
        if graph.nodes[entries[i, 1], FLAGS] & TAIL == 0 or entries[i, 3] == ROOT:
            for k in range(ENTRY):
                entries[kept, k] = entries[i, k]
            kept += 1
    return kept


@inner_njit
def prune_entries(graph, chart, leaf_count, entry_count):
    """Keep the entries of rules that can still be completed from this state's bundle; their number."""
    entries, done = chart.entries, chart.done
    needed = 0
    for i in range(leaf_count):
        if chart.leaves[i, 1] == SELF:
            rule = graph.nodes[chart.leaves[i, 0], RULE]
            if not contains(done, needed, rule):
                done[needed] = rule
                needed += 1
    at = 0
    while at < needed:
        for i in range(entry_count):
            if entries[i, 0] == done[at] and entries[i, 3] == SELF:
                rule = graph.nodes[entries[i, 1], RULE]
                if not contains(done, needed, rule):
                    if needed >= len(done):
                        return CROWDED
                    done[needed] = rule
                    needed += 1
        at += 1
    kept = 0
    for i in range(entry_count):
        if contains(done, needed, entries[i, 0]):
            for k in range(ENTRY):
                entries[kept, k] = entries[i, k]
            kept += 1
    return kept


@inner_njit
def clamp(graph, horizon, node, count):
    """What a text of `horizon` bytes can tell of the count at `node`: how near its bounds it is."""
    counter = graph.nodes[node, COUNTER]
    if counter == 0:
        return 0
    if is_set(graph, counter):
        return count
    below = min(max(graph.counters[counter, 0] - count, 0), horizon + 1)
    above = min(graph.counters[counter, 1] - count, horizon + 1)
    return below * (horizon + 2) + above


@inner_njit
def intern_bundle(graph, chart, leaf_count, entry_count):
    """The number of the bundle in entries[:entry_count], after flattening and pruning."""
    entry_count = flatten_tails(graph, chart, entry_count)
    if entry_count < 0:
        return CROWDED
    entry_count = prune_entries(graph, chart, leaf_count, entry_count)
    if entry_count <= 0:
        return 1 if entry_count == 0 else CROWDED
    sort_records(chart.entries, entry_count, ENTRY)
    buffer, entries = chart.buffer, chart.entries
    length = ENTRY * entry_count
    if length + 1 > len(buffer):
        return CROWDED
    for i in range(entry_count):
        for k in range(ENTRY):
            buffer[ENTRY * i + k] = entries[i, k]
    bundle = intern(chart.words, chart.bundles, chart.bundle_index, buffer, length, chart.sizes, BUNDLES)
    if bundle < 0 or chart.bundles[bundle, CANON] >= 0:
        return bundle
    horizon = chart.sizes[HORIZON]
    for i in range(entry_count):
        buffer[ENTRY * i + 2] = clamp(graph, horizon, entries[i, 1], entries[i, 2])
        if entries[i, 3] != SELF:
            buffer[ENTRY * i + 3] = chart.bundles[entries[i, 3], CANON]
    buffer[length] = OF_BUNDLE
    canon = intern(chart.words, chart.signatures, chart.signature_index, buffer, length + 1, chart.sizes, SIGNATURES)
    if canon < 0:
        return canon
    chart.bundles[bundle, CANON] = canon
    return bundle


@inner_njit
def intern_state(chart, bundle, accepting, leaf_count):
    """The number of the state with this bundle and the items in leaves[:leaf_count]."""
    sort_records(chart.leaves, leaf_count, ITEM)
    length = HEADER + ITEM * leaf_count
    buffer = chart.buffer
    if length + 1 > len(buffer):
        return CROWDED
    buffer[0] = bundle
    buffer[1] = accepting
    for i in range(leaf_count):
        for k in range(ITEM):
            buffer[HEADER + ITEM * i + k] = chart.leaves[i, k]
    return intern(chart.words, chart.states, chart.state_index, buffer, length, chart.sizes, STATES)


@njit
def signature(graph, chart, state):
    """A number that states share when no text of up to `horizon` bytes tells them apart; FULL without room."""
    known = chart.states[state, SIGNATURE]
    if known >= 0:
        return known
    lo, hi = chart.states[state, LO], chart.states[state, HI]
    buffer, words = chart.buffer, chart.words
    length = hi - lo
    buffer[0] = chart.bundles[words[lo], CANON]
    buffer[1] = words[lo + 1]
    horizon = chart.sizes[HORIZON]
    for at in range(HEADER, length, ITEM):
        node, origin = words[lo + at], words[lo + at + 1]
        buffer[at] = node
        buffer[at + 1] = SELF if origin == SELF else chart.bundles[origin, CANON]
        buffer[at + 2] = clamp(graph, horizon, node, words[lo + at + 2])
    buffer[length] = OF_STATE
    number = intern(words, chart.signatures, chart.signature_index, buffer, length + 1, chart.sizes, SIGNATURES)
    if number >= 0:
        chart.states[state, SIGNATURE] = number
    return number


@njit
def begin(graph, chart, node):
    """The state in which the rule that starts at `node` is the whole text."""
    chart.sizes[STAMP] += 1
    state = close(graph, chart, push(chart, node, ROOT, 0, 0))
    if state >= 0:
        chart.states[state, KEPT] = 1
    return state
