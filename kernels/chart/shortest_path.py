"""Ways from a state to the end of a text: by fewest bytes, by fewest tokens along one, by tokens that come nearest.

Kernels answer as kernels/answers.py says.
"""

from __future__ import annotations

import numpy as np

from ..answers import DEAD, EXHAUSTED, NEVER, spend
from ..jit.aliases import Int, Ints
from ..jit.wide import inner_njit, njit
from ..trie.branches import TokenTrie
from .cost import state_cost
from .interning import LO
from .layout import ACCEPTING, ROW, Chart, GraphArrays
from .node_cost import BYTE, COST, NEXT, TOKENS, Costs
from .rows import PENDING, open_row, step

# How many nodes `nearest` may look at in search of any token, and what says that they were not enough.
PATIENCE, TOO_MANY = 512, -20
# Steps of work that a state on a way takes at least, and of how many nodes of the trie work is counted at a time.
STEPS_EACH, BATCH = 128, 1023


@inner_njit
def find_onward(graph: GraphArrays, chart: Chart, costs: Costs, state: Int) -> Int:
    """Note in Costs.shortest the first byte that a shortest text from `state` goes on with; DEAD, or a code.

    Most states have many bytes that lead elsewhere: so none is looked at beyond one that is as good as can be.

    Where a promise was too low, all bytes lead farther from the end than they should: then white space that leads back
    to where the text was looks as short as what goes on, and a text must not go round in it.
    """
    row = open_row(graph, chart, state)
    if row < 0:
        return row
    expected = state_cost(graph, chart, costs, state) - 1
    if expected < DEAD:
        return expected + 1
    shortest = costs.shortest
    previous, best, way_on, way_byte = DEAD, np.int64(4 * NEVER), DEAD, 0
    for byte in range(256):
        after = chart.rows[row, byte]
        if after == PENDING:
            after = step(graph, chart, state, row, byte)
            if after < DEAD:
                return after
        if after >= 0 and after != previous:
            previous = after
            cost = np.int64(state_cost(graph, chart, costs, after))
            if cost < 0:
                return cost
            if after == state or (shortest[after, NEXT] >= 0 and shortest[after, TOKENS] < 0):
                cost += 2 * NEVER
            if cost < best:
                best, way_on, way_byte = cost, after, byte
            if cost == expected:
                break
    shortest[state, BYTE] = way_byte
    shortest[state, NEXT] = way_on
    return DEAD


@njit
def spell(graph: GraphArrays, chart: Chart, costs: Costs, trie: TokenTrie, state: Int, way: Ints) -> Int:
    """The least number of tokens that spell a shortest text from `state`, or a code.

    DEAD if way (int32 [n]) is full of the states along the text before one is met from which the number is known. It
    is then to be called for the state after the last of them, and again for this one. What is found out about the
    states on the way is noted in Costs.shortest, so that texts that come to the same state share the rest.
    """
    shortest = costs.shortest
    length = 0
    while shortest[state, TOKENS] < 0:
        if chart.words[chart.states[state, LO] + ACCEPTING]:
            shortest[state, TOKENS] = 0
            break
        if length == len(way):
            return DEAD
        if spend(chart, STEPS_EACH) < 0:
            return EXHAUSTED
        if shortest[state, NEXT] < 0:
            code = find_onward(graph, chart, costs, state)
            if code != DEAD:
                return code
        way[length] = state
        length += 1
        state = shortest[state, NEXT]
    for at in range(length - 1, -1, -1):
        shortest[way[at], TOKENS] = fewest_tokens(trie, shortest, way[at])
    return shortest[way[0] if length else state, TOKENS]


@inner_njit
def fewest_tokens(trie: TokenTrie, shortest: Ints, state: Int) -> Int:
    """The least number of tokens that spell the text that `shortest` leads along, NEVER if they cannot."""
    fewest = NEVER
    node = 0
    while shortest[state, TOKENS] != 0:
        byte = shortest[state, BYTE]
        child, end = node + 1, trie.skip[node]
        while child < end and trie.byte[child] != byte:
            child = trie.skip[child]
        if child >= end:
            break
        node = child
        state = shortest[state, NEXT]
        if trie.token_start[node + 1] > trie.token_start[node]:
            fewest = min(fewest, shortest[state, TOKENS] + 1)
    return fewest


@inner_njit
def nearest_within(
    graph: GraphArrays, chart: Chart, costs: Costs, trie: TokenTrie, state: Int, detour: Int, patience: Int
) -> Int:
    """As `nearest`, among the tokens that begin a text at most `detour` bytes longer than a shortest.

    TOO_MANY if that takes a look at more than `patience` nodes of the trie. What is known already is read from the
    arrays in place, as in `walk`.
    """
    row = open_row(graph, chart, state)
    if row < 0:
        return row
    stack = np.empty(trie.deepest + 1, np.int32)
    passed = np.empty(trie.deepest + 1, np.int32)
    stack[0], passed[0] = row, state
    best, found = state_cost(graph, chart, costs, state), DEAD
    if best < 0:
        return best
    most = best + detour
    starts, skip, depth, byte = trie.token_start, trie.skip, trie.depth, trie.byte
    rows, states, shortest = chart.rows, chart.states, costs.shortest
    node: Int = 1
    end = len(byte)
    while node < end and best > 0:
        level: Int = depth[node]
        here: Int = stack[level - 1]
        value: Int = byte[node]
        after = rows[here, value]
        if after == PENDING:
            after = step(graph, chart, passed[level - 1], here, value)
        if after < 0:
            if after < DEAD:
                return after
            node = skip[node]
            continue
        patience -= 1
        if patience < 0:
            return TOO_MANY
        if patience & BATCH == 0 and spend(chart, BATCH) < 0:
            return EXHAUSTED
        cost = np.int64(shortest[after, COST])
        if cost < 0:
            cost = state_cost(graph, chart, costs, after)
            if cost < 0:
                return cost
        if level + cost > most:
            node = skip[node]
            continue
        if cost < best and starts[node + 1] > starts[node]:
            best, found = cost, after
        if skip[node] > node + 1:
            row = states[after, ROW]
            if row < 0:
                row = open_row(graph, chart, after)
                if row < 0:
                    return row
            stack[level], passed[level] = row, after
        node += 1
    return found


@njit
def nearest(graph: GraphArrays, chart: Chart, costs: Costs, trie: TokenTrie, state: Int, detour: Int) -> Int:
    """The state nearest to the end that one token leads to, nearer than `state`; DEAD if there is none, or a code.

    The first in the order of the trie. Where very many tokens may follow, only those that begin a text at most
    `detour` bytes longer than a shortest.
    """
    found = nearest_within(graph, chart, costs, trie, state, NEVER, PATIENCE)
    if found == TOO_MANY:
        found = nearest_within(graph, chart, costs, trie, state, detour, NEVER)
    return found
