"""Freeing memory of the chart: states are removed, or evicted and computed again on demand.

A state that a token led to records its predecessor and the token's bytes. Its words may then be dropped: the state is
evicted, but keeps its number and meaning. On demand the tokens are read again, from the nearest predecessor with words.

Compaction keeps the states that were handed out to callers, and what they refer to. Their numbers do not change; other
numbers are used again. Kernels return the codes of kernels/answers.py.
"""

from __future__ import annotations

import numpy as np

from ..answers import DEAD, FULL, NEVER, UNREADY
from ..jit.aliases import Bytes, Int, Ints
from ..jit.arrays import Arrays, Vector
from ..jit.wide import inner_njit, njit
from .interning import FREE, HI, LO, SETS, WORDS
from .layout import (
    CANON,
    COUNTER,
    ENTRY,
    ENTRY_COUNT,
    ENTRY_ORIGIN,
    ENTRY_TARGET,
    EVICTED,
    FIRST,
    HEADER,
    ITEM,
    ITEM_COUNT,
    ITEM_NODE,
    ITEM_ORIGIN,
    KEPT,
    LAST,
    OF_STATE,
    OWN_RETURN_SET,
    PARENT,
    PINNED,
    RESERVED,
    RETURN_SETS,
    ROW,
    SIGNATURE,
    SIGNATURES,
    STATES,
    UNSET,
    Chart,
    GraphArrays,
    is_large,
)
from .rows import advance, fill_row


class TokenBytes(Arrays):
    """The bytes of all tokens: token t is data[start[t]:start[t + 1]], empty if it has none."""

    data: Vector[np.uint8]
    start: Vector[np.int32]


@njit
def follow(graph: GraphArrays, chart: Chart, tokens: TokenBytes, state: Int, token: Int) -> Int:
    """Return the state after a token's bytes, recording the way to it if it is new; or a code.

    DEAD for a token without bytes; UNREADY for a number that is not a usable state.
    """
    states = chart.states
    if state < 0 or state >= chart.sizes[STATES] or states[state, KEPT] < 0 or states[state, HI] == EVICTED:
        return UNREADY
    first, last = tokens.start[token], tokens.start[token + 1]
    if first == last:
        return DEAD
    after = advance(graph, chart, state, tokens.data, first, last, 0)
    if after >= 0 and chart.states[after, PARENT] == UNSET:
        chart.states[after, PARENT] = state
        chart.states[after, FIRST] = first
        chart.states[after, LAST] = last
    return after


@njit
def follow_each(graph: GraphArrays, chart: Chart, tokens: TokenBytes, state: Int, ids: Ints, after: Ints) -> Int:
    """Like `follow` for several tokens. Return 0, or a code, after which only `after` has changed.

    ids: int32 [n]; after: int32 [n], the states after them, NEVER where not computed yet
    """
    for at in range(len(ids)):
        if after[at] == NEVER:
            found = follow(graph, chart, tokens, state, np.int64(ids[at]))
            if found < DEAD:
                return found
            after[at] = found
    return 0


@njit
def pin(graph: GraphArrays, chart: Chart, state: Int, data: Bytes, first: Int, last: Int) -> Int:
    """Return the state after data[first:last], or a code. Without another recorded way it is never evicted."""
    after = advance(graph, chart, state, data, first, last, 1)
    if after >= 0 and chart.states[after, PARENT] == UNSET:
        chart.states[after, PARENT] = PINNED
    return after


@njit
def kept_row(graph: GraphArrays, chart: Chart, state: Int) -> Int:
    """Return the state's complete row, or a code. All its targets count as handed out."""
    row = fill_row(graph, chart, state)
    if row >= 0:
        states = chart.states
        for byte in range(0x100):
            after = chart.rows[row, byte]
            if after >= 0:
                states[after, KEPT] = 1
                if states[after, PARENT] == UNSET:
                    states[after, PARENT] = PINNED
    return row


@njit
def least_texts(graph: GraphArrays, chart: Chart, state: Int, wanted: Bytes, steps: Int, most: Int) -> Int:
    """Return a lower bound, up to `most`, of the number of texts of wanted bytes from a state on; or a code.

    Each step counts the bytes that lead to the most frequent target, and continues there; it returns `most` at a loop.
    wanted: uint8 [256]
    """
    found = np.int64(1)
    targets, counts = np.empty(0x100, np.int32), np.empty(0x100, np.int32)
    for _ in range(steps):
        row = fill_row(graph, chart, state)
        if row < 0:
            return row
        size, best = 0, -1
        for byte in range(0x100):
            after = chart.rows[row, byte]
            if wanted[byte] and after >= 0:
                if after == state:
                    return most
                at = 0
                while at < size and targets[at] != after:
                    at += 1
                if at == size:
                    targets[at], counts[at] = after, 0
                    size += 1
                counts[at] += 1
                if best < 0 or counts[at] > counts[best]:
                    best = at
        if best < 0:
            break
        found *= np.int64(counts[best])
        if found >= most:
            return most
        state = np.int64(targets[best])
    return found


@njit
def evict(states: Ints, count: Int, stride: Int) -> Int:
    """Evict states not handed out since the last call, except every stride-th. Return how many."""
    evicted = 0
    for state in range(count):
        is_idle = states[state, KEPT] == 0 and states[state, PARENT] >= 0 and states[state, HI] >= 0
        if is_idle and state % stride:
            states[state, LO], states[state, HI] = 0, EVICTED
            states[state, ROW], states[state, SIGNATURE] = -1, -1
            evicted += 1
    return evicted


@njit
def grow_old(states: Ints, count: Int) -> Int:
    """Mark all states as not handed out from now on."""
    for state in range(count):
        if states[state, KEPT] > 0:
            states[state, KEPT] = 0
    return 0


@njit
def restore(graph: GraphArrays, chart: Chart, state: Int, evicted: Int, data: Bytes, first: Int, last: Int) -> Int:
    """Restore the words of an evicted state, which equals the state after data[first:last]. Return 0 or a code."""
    states = chart.states
    same = advance(graph, chart, state, data, first, last, 1)
    if same < 0:
        return same
    if states[same, PARENT] == UNSET:
        states[same, KEPT] = -1  # a new number, which was not handed out
    used, lo, hi = chart.sizes[WORDS], states[same, LO], states[same, HI]
    if used + hi - lo > len(chart.words):
        return FULL
    for at in range(lo, hi):
        chart.words[used + at - lo] = chart.words[at]
    chart.sizes[WORDS] = used + hi - lo
    states[evicted, LO], states[evicted, HI], states[evicted, KEPT] = used, used + hi - lo, 1
    return 0


@inner_njit
def is_awake(states: Ints, state: Int) -> bool:
    """Test whether a state was handed out, and has its words."""
    return states[state, KEPT] >= 0 and states[state, HI] != EVICTED


@inner_njit
def mark(return_set: Int, return_sets: Bytes, stack: Ints, depth: Int) -> Int:
    """Mark a return set as needed, and push it if it was not marked. Return the new depth of the stack."""
    if return_set < 0 or return_sets[return_set]:
        return depth
    return_sets[return_set] = 1
    stack[depth] = return_set
    return depth + 1


@njit
def find_needed(chart: Chart, return_sets: Bytes, signatures: Bytes) -> Int:
    """Mark the return sets and signatures (uint8, by number) that kept states need. Return the total of words."""
    words, sizes = chart.words, chart.sizes
    total = 0
    stack = np.empty(len(return_sets), np.int32)
    depth = 0
    for state in range(sizes[STATES]):
        if is_awake(chart.states, state):
            lo: Int = chart.states[state, LO]
            hi: Int = chart.states[state, HI]
            total += hi - lo
            depth = mark(words[lo + OWN_RETURN_SET], return_sets, stack, depth)
            for at in range(lo + HEADER, hi, ITEM):
                depth = mark(words[at + ITEM_ORIGIN], return_sets, stack, depth)
            if chart.states[state, SIGNATURE] >= 0:
                signatures[chart.states[state, SIGNATURE]] = 1
    while depth:
        depth -= 1
        return_set = stack[depth]
        lo, hi = chart.return_sets[return_set, LO], chart.return_sets[return_set, HI]
        total += hi - lo
        for at in range(lo, hi, ENTRY):
            depth = mark(words[at + ENTRY_ORIGIN], return_sets, stack, depth)
        if chart.return_sets[return_set, CANON] >= 0:
            signatures[chart.return_sets[return_set, CANON]] = 1
    for number in range(sizes[SIGNATURES]):
        if signatures[number]:
            total += chart.signatures[number, HI] - chart.signatures[number, LO]
    return total


@njit
def keep_needed(chart: Chart, return_sets: Bytes, signatures: Bytes, target: Ints) -> Int:
    """Copy the words of needed contents to `target`, and free the other numbers. Returns 0."""
    words, sizes, states = chart.words, chart.sizes, chart.states
    used, free = 0, -1
    for state in range(sizes[STATES] - 1, -1, -1):
        if is_awake(states, state):
            used = move(words, states, state, target, used)
        elif states[state, HI] != EVICTED:
            free = give_up(states, state, free)
    sizes[FREE + STATES], free = free, -1
    for return_set in range(sizes[RETURN_SETS] - 1, RESERVED - 1, -1):
        if return_sets[return_set]:
            used = move(words, chart.return_sets, return_set, target, used)
        else:
            free = give_up(chart.return_sets, return_set, free)
    sizes[FREE + RETURN_SETS], free = free, -1
    for number in range(sizes[SIGNATURES] - 1, RESERVED - 1, -1):
        if signatures[number]:
            used = move(words, chart.signatures, number, target, used)
        else:
            free = give_up(chart.signatures, number, free)
    sizes[FREE + SIGNATURES] = free
    sizes[WORDS] = used
    return 0


@inner_njit
def give_up(spans: Ints, number: Int, free: Int) -> Int:
    """Free a number by chaining it before `free`. Return the number."""
    spans[number, :] = -1
    spans[number, LO] = free
    return number


@inner_njit
def move(words: Ints, spans: Ints, number: Int, target: Ints, used: Int) -> Int:
    """Copy one span's words to target[used:]. Return the number of words in use there."""
    lo, hi = spans[number, LO], spans[number, HI]
    for at in range(lo, hi):
        target[used + at - lo] = words[at]
    spans[number, LO] = used
    spans[number, HI] = used + hi - lo
    return used + hi - lo


@njit
def keep_sets(graph: GraphArrays, chart: Chart, target: Ints) -> Int:
    """Copy the words of referenced large sets to `target`, after `keep_needed`; free the others."""
    needed = np.zeros(len(chart.sets), np.uint8)
    words, sizes = chart.words, chart.set_sizes
    for state in range(chart.sizes[STATES]):
        lo, hi = chart.states[state, LO] + HEADER, chart.states[state, HI]
        mark_sets(graph, words, lo, hi, ITEM, ITEM_NODE, ITEM_COUNT, needed)
    for return_set in range(chart.sizes[RETURN_SETS]):
        lo, hi = chart.return_sets[return_set, LO], chart.return_sets[return_set, HI]
        mark_sets(graph, words, lo, hi, ENTRY, ENTRY_TARGET, ENTRY_COUNT, needed)
    for number in range(chart.sizes[SIGNATURES]):
        lo, last = chart.signatures[number, LO], chart.signatures[number, HI] - 1
        if last > lo and words[last] == OF_STATE:
            mark_sets(graph, words, lo + HEADER, last, ITEM, ITEM_NODE, ITEM_COUNT, needed)
        elif last > lo:
            mark_sets(graph, words, lo, last, ENTRY, ENTRY_TARGET, ENTRY_COUNT, needed)
    used, free = 0, -1
    for number in range(sizes[SETS] - 1, 0, -1):
        if needed[number]:
            used = move(chart.set_words, chart.sets, number, target, used)
        else:
            free = give_up(chart.sets, number, free)
    sizes[FREE + SETS] = free
    sizes[WORDS] = used
    return 0


@inner_njit
def mark_sets(
    graph: GraphArrays, words: Ints, lo: Int, hi: Int, width: Int, node: Int, count: Int, needed: Bytes
) -> None:
    """Mark the large sets in the records words[lo:hi]; `node` and `count` are their columns."""
    for at in range(lo, hi, width):
        if is_large(graph, graph.nodes[words[at + node], COUNTER]):
            needed[words[at + count]] = 1
