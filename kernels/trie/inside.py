"""Masks of states inside one rule, such as a string of a format: what stays inside is the same whoever called it.

Where all items of a state have one origin, reading on asks that origin for nothing until the rule is at its end. So the
same items with the origin ROOT, the *inner state*, allow the same tokens up to there, and accept where the rule ends.
What its walk found is used for all states of which it is the inner one: only the tokens that pass the rule's end are
walked for each of them.

Kernels answer as kernels/answers.py says.
"""

from __future__ import annotations

import numpy as np

from ..answers import DEAD, EXHAUSTED, EXPAND, spend
from ..chart.interning import HI, LO, intern
from ..chart.layout import (
    ACCEPTING,
    HEADER,
    ITEM,
    ITEM_ORIGIN,
    OWN_RETURN_SET,
    ROOT,
    ROW,
    SELF,
    STATES,
    Chart,
    GraphArrays,
)
from ..chart.rows import PENDING, open_row, step
from ..jit.aliases import Int, Ints, Truth, Words
from ..jit.wide import inner_njit, njit
from .branches import OWN, OWN_END, Branches, allow, refuse
from .loop_slice import BYTE, DEPTH, IS_EXIT, NEXT, NODE, follow_way
from .walk import BATCH, leave

# A state that so many ASCII bytes lead on from takes long to walk.
MANY_BYTES = 30
_EMPTY = 1
# Columns of the stack: of a node on the way the row and the state, the next child and the last, and its row of `way`.
OF_ROW, OF_STATE, OF_NODE, CHILD, END, LISTED, HELD = range(7)


@inner_njit
def is_inside(chart: Chart, state: Int) -> Truth:
    """Tell whether a state lies inside of what one place called, and takes long to walk; its row must be there."""
    words, lo, hi = chart.words, chart.states[state, LO], chart.states[state, HI]
    if hi - lo <= HEADER or words[lo + OWN_RETURN_SET] != _EMPTY or words[lo + ACCEPTING]:
        return False
    origin = words[lo + HEADER + ITEM_ORIGIN]
    if origin in (SELF, ROOT):
        return False
    for at in range(lo + HEADER, hi, ITEM):
        if words[at + ITEM_ORIGIN] != origin:
            return False
    count, row = 0, chart.states[state, ROW]
    for byte in range(0x80):
        count += chart.rows[row, byte] != DEAD
    return count >= MANY_BYTES


@inner_njit
def inner_state(chart: Chart, state: Int) -> Int:
    """The state with the same items whose rule is the whole text, or a code."""
    lo, length = chart.states[state, LO], chart.states[state, HI] - chart.states[state, LO]
    words, buffer = chart.words, chart.buffer
    for at in range(length):
        buffer[at] = words[lo + at]
    for at in range(HEADER, length, ITEM):
        buffer[at + ITEM_ORIGIN] = ROOT
    return intern(words, chart.states, chart.state_index, buffer, length, chart.sizes, STATES)


@inner_njit
def push(stack: Ints, level: Int, row: Int, state: Int, trie: Branches, node: Int) -> None:
    """Write what `walk_inside` holds of a node."""
    stack[level, OF_ROW], stack[level, OF_STATE], stack[level, OF_NODE] = row, state, node
    stack[level, CHILD], stack[level, END], stack[level, LISTED] = trie.first[node], trie.first[node + 1], -1


@njit
def walk_inside(graph: GraphArrays, chart: Chart, trie: Branches, state: Int, way: Ints, out: Words) -> Int:
    """The mask of an inner state, without EOS, and the nodes at which tokens come to the end of its rule.

    Answers with how many rows of `way` there are, DEAD if they do not fit, or a code.
    way: int32 [k, 5], written as `LoopSlice.way`; no exits are listed below another one
    """
    out[:] = 0
    row = open_row(graph, chart, state)
    if row < 0:
        return row
    stack = np.empty((trie.deepest + 2, HELD), np.int32)
    missing = count = level = visited = 0
    below_exit = trie.deepest + 2
    byte, tokens = trie.byte, trie.tokens
    push(stack, 0, row, state, trie, 0)
    while level >= 0:
        child: Int = stack[level, CHILD]
        if child == stack[level, END]:
            if stack[level, LISTED] >= 0:
                way[stack[level, LISTED], NEXT] = count
            if level == below_exit:
                below_exit = trie.deepest + 2
            level -= 1
            continue
        stack[level, CHILD] += 1
        row = stack[level, OF_ROW]
        value: Int = byte[child]
        after: Int = chart.rows[row, value]
        if after == PENDING:
            after = step(graph, chart, stack[level, OF_STATE], row, value)
        row = -1
        if after >= 0 and trie.first[child] < trie.first[child + 1]:
            visited += 1
            row = open_row(graph, chart, after)
        if after == EXPAND:
            missing = EXPAND
        elif min(after, row) < DEAD:
            return min(after, row)
        if visited > BATCH:
            if spend(chart, visited) < 0:
                return EXHAUSTED
            visited = 0
        if after < 0:
            continue
        allow(trie, tokens[child, OWN], tokens[child, OWN_END], out)
        level += 1
        push(stack, level, row, after, trie, child)
        if level < below_exit and chart.words[chart.states[after, LO] + ACCEPTING]:
            below_exit = level
            for depth in range(1, level + 1):
                if stack[depth, LISTED] < 0:
                    if count == len(way):
                        return DEAD
                    stack[depth, LISTED] = count
                    way[count, NODE], way[count, BYTE] = stack[depth, OF_NODE], byte[stack[depth, OF_NODE]]
                    way[count, IS_EXIT], way[count, DEPTH] = depth == level, depth
                    count += 1
    return EXHAUSTED if spend(chart, visited) < 0 else missing if missing < 0 else count


@njit
def walk_outside(graph: GraphArrays, chart: Chart, trie: Branches, state: Int, way: Ints, out: Words) -> Int:
    """Turn the mask of a state's inner state in `out` into its own, by the way of that one; 0 or a code."""
    afters = np.empty(len(way), np.int32)
    missing = follow_way(graph, chart, trie, way, state, afters)
    if missing < 0:
        return missing
    for at in range(len(way)):
        if way[at, IS_EXIT]:
            node, code = way[at, NODE], 0
            refuse(trie, trie.tokens[node, OWN], trie.tokens[node, OWN_END], out)
            if afters[at] >= 0:
                code = leave(graph, chart, trie, node, afters[at], out)
            missing = min(missing, code)
            if missing < DEAD and missing != EXPAND:
                return missing
    return missing
