"""Making room in the chart: only the states that somebody was given stay, and what they are made of.

Numbers of what stays are as they were; those given up are used again. States that are asleep keep their numbers, and
have no words.
"""

from __future__ import annotations

import numpy as np

from ..jit.aliases import Bytes, Int, Ints
from ..jit.wide import inner_njit, njit
from .interning import FREE, HI, LO, WORDS
from .layout import (
    ASLEEP,
    CANON,
    COUNTER,
    ENTRY,
    ENTRY_COUNT,
    ENTRY_ORIGIN,
    ENTRY_TARGET,
    HEADER,
    ITEM,
    ITEM_COUNT,
    ITEM_NODE,
    ITEM_ORIGIN,
    KEPT,
    OF_STATE,
    OWN_RETURN_SET,
    RESERVED,
    RETURN_SETS,
    SIGNATURE,
    SIGNATURES,
    STATES,
    Chart,
    GraphArrays,
    is_large,
)
from .sets import SETS


@inner_njit
def is_awake(states: Ints, state: Int) -> bool:
    """Tell whether somebody was given the state's number, and it has its words."""
    return states[state, KEPT] >= 0 and states[state, HI] != ASLEEP


@inner_njit
def mark(return_set: Int, return_sets: Bytes, stack: Ints, depth: Int) -> Int:
    """Note that a return set is needed, if it was not known; the new depth of the stack of those to look into."""
    if return_set < 0 or return_sets[return_set]:
        return depth
    return_sets[return_set] = 1
    stack[depth] = return_set
    return depth + 1


@njit
def find_needed(chart: Chart, return_sets: Bytes, signatures: Bytes) -> Int:
    """Mark the return sets and signatures (uint8, by number) that kept states need; how many words all that has."""
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
    """Copy the words of all that is needed to `target`, and give up the rest; returns nothing of use."""
    words, sizes, states = chart.words, chart.sizes, chart.states
    used, free = 0, -1
    for state in range(sizes[STATES] - 1, -1, -1):
        if is_awake(states, state):
            used = move(words, states, state, target, used)
        elif states[state, HI] != ASLEEP:
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
    """Let a number be used again, before `free`, the next such number; returns the number."""
    spans[number, :] = -1
    spans[number, LO] = free
    return number


@inner_njit
def move(words: Ints, spans: Ints, number: Int, target: Ints, used: Int) -> Int:
    """Copy one span's words to target[used:]; the number of words in use there."""
    lo, hi = spans[number, LO], spans[number, HI]
    for at in range(lo, hi):
        target[used + at - lo] = words[at]
    spans[number, LO] = used
    spans[number, HI] = used + hi - lo
    return used + hi - lo


@njit
def keep_sets(graph: GraphArrays, chart: Chart, target: Ints) -> Int:
    """Copy the words of the large sets that are still spoken of to `target`, after `keep_needed`; give up the rest."""
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
    """Note which large sets the records words[lo:hi] speak of, whose columns `node` and `count` are."""
    for at in range(lo, hi, width):
        if is_large(graph, graph.nodes[words[at + node], COUNTER]):
            needed[words[at + count]] = 1
