"""How many bytes a text needs at least: of graph nodes, of what a call returns to, of states.

The cost of a node is the fewest bytes from it to the end of its rule; inside a counted loop, to the end of
the turn. A lazy node costs what its front end promised. The cost of a state is the least over its items of
what the item's own rule needs, plus what its callers need after it. Costs are exact where the promises are.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .chart import (
    BUNDLES,
    CALL,
    COUNTER,
    DEAD,
    EDGE_HI,
    EDGE_LO,
    ENTRY,
    EPSILON,
    FINAL,
    FLAGS,
    HEADER,
    INCREMENT,
    ITEM,
    LINK_HI,
    LINK_LO,
    ROOT,
    RULE,
    SELF,
)
from .compiling import wide_njit as njit
from .interning import HI, LO
from .rows import fill_row

NEVER = 2**30


class Costs(NamedTuple):
    """Costs in bytes, NEVER where there is no end.

    nodes: int32, by node; promised: int32, what a node promised while it was lazy, -1 for others; after: int32,
    the node that the promise leads to, -1 for the end of the rule
    turns, exits: int32, by counter, of one turn and after the loop
    entries: int32, beside Chart.words, of everything after the call entry at that place
    """

    nodes: NDArray[np.int32]
    promised: NDArray[np.int32]
    after: NDArray[np.int32]
    turns: NDArray[np.int32]
    exits: NDArray[np.int32]
    entries: NDArray[np.int32]


@njit(cache=True, nogil=True)
def node_cost(graph, costs, node):
    """The cost of a node given those of the nodes after it; notes what it learns about counters."""
    nodes, edges, links = graph.nodes, graph.edges, graph.links
    promised = costs.promised[node]
    if promised >= 0:
        target = costs.after[node]
        return promised if target < 0 else min(NEVER, np.int64(promised) + costs.nodes[target])
    best = 0 if nodes[node, FLAGS] & FINAL else NEVER
    for e in range(nodes[node, EDGE_LO], nodes[node, EDGE_HI]):
        best = min(best, 1 + costs.nodes[edges[e, 2]])
    turn = NEVER
    for at in range(nodes[node, LINK_LO], nodes[node, LINK_HI]):
        kind, target, argument = links[at, 0], links[at, 1], links[at, 2]
        if kind == EPSILON:
            turn = min(turn, costs.nodes[target])
        elif kind == CALL:
            turn = min(turn, np.int64(costs.nodes[target]) + costs.nodes[argument])
        elif kind == INCREMENT:
            turn = 0
        else:
            costs.turns[argument] = min(turn, NEVER)
            costs.exits[argument] = costs.nodes[target]
            least = graph.counters[argument, 0]
            needed = least * np.int64(turn) if least else 0
            turn = min(NEVER, needed + costs.nodes[target])
    return min(NEVER, min(best, turn))


@njit(cache=True, nogil=True)
def settle_nodes(graph, costs, first, last):
    """Compute the costs of the nodes first ... last - 1, by rounds until nothing changes.

    Rounds alternate in direction, since chains of nodes run either way.
    """
    changed = True
    begin, end, stride = first, last, 1
    while changed:
        changed = False
        for node in range(begin, end, stride):
            cost = node_cost(graph, costs, node)
            if cost != costs.nodes[node]:
                costs.nodes[node] = cost
                changed = True
        begin, end, stride = end - stride, begin - stride, -stride


@njit(cache=True, nogil=True)
def within_rule(graph, costs, node, count):
    """The fewest bytes from an item to the end of its rule."""
    counter = graph.nodes[node, COUNTER]
    if counter == 0:
        return np.int64(costs.nodes[node])
    left = max(0, graph.counters[counter, 0] - count - 1)
    return np.int64(costs.nodes[node]) + left * np.int64(costs.turns[counter]) + costs.exits[counter]


@njit(cache=True, nogil=True)
def after_rule(chart, costs, bundle, rule):
    """The fewest bytes after a rule that returns to `bundle`."""
    if bundle == ROOT:
        return np.int64(0)
    best = np.int64(NEVER)
    for at in range(chart.bundles[bundle, LO], chart.bundles[bundle, HI], ENTRY):
        if chart.words[at] == rule:
            best = min(best, np.int64(costs.entries[at]))
    return best


@njit(cache=True, nogil=True)
def settle_bundles(graph, chart, costs, first):
    """Compute the costs of the entries of all bundles from `first` on; origins come before their users."""
    words = chart.words
    for bundle in range(first, chart.sizes[BUNDLES]):
        lo, hi = chart.bundles[bundle, LO], chart.bundles[bundle, HI]
        for at in range(lo, hi, ENTRY):
            costs.entries[at] = NEVER
        changed = True
        while changed:
            changed = False
            for at in range(lo, hi, ENTRY):
                target, origin = words[at + 1], words[at + 3]
                cost = within_rule(graph, costs, target, words[at + 2])
                cost += after_rule(chart, costs, bundle if origin == SELF else origin, graph.nodes[target, RULE])
                cost = min(cost, NEVER)
                if cost < costs.entries[at]:
                    costs.entries[at] = cost
                    changed = True


@njit(cache=True, nogil=True)
def state_costs(graph, chart, costs, states, out):
    """The costs of the given states (int32 [n]) into out (int32 [n]); 0 for accepting states."""
    words = chart.words
    for i in range(len(states)):
        lo, hi = chart.states[states[i], LO], chart.states[states[i], HI]
        best = np.int64(0 if words[lo + 1] else NEVER)
        for at in range(lo + HEADER, hi, ITEM):
            if best == 0:
                break
            node, origin = words[at], words[at + 1]
            cost = within_rule(graph, costs, node, words[at + 2])
            cost += after_rule(chart, costs, words[lo] if origin == SELF else origin, graph.nodes[node, RULE])
            best = min(best, cost)
        out[i] = best


@njit(cache=True, nogil=True)
def witness(graph, chart, costs, place, data):
    """Write a shortest text from a state to data (uint8 [n]); its length, DEAD if it does not fit, or a code.

    place: int64 [2], the state to go on from and the number of bytes written so far; kept up to date, so that
    another call goes on from there. n is enough if it is the cost of the state and promises are exact. The
    costs of all bundles must be settled.
    """
    settled = chart.sizes[BUNDLES]
    one = np.empty(1, np.int32)
    cost = np.empty(1, np.int32)
    one[0] = place[0]
    state_costs(graph, chart, costs, one, cost)
    left = cost[0]
    while left > 0:
        if place[1] == len(data):
            return DEAD
        row = fill_row(graph, chart, place[0])
        if row < 0:
            return row
        settle_bundles(graph, chart, costs, settled)
        settled = chart.sizes[BUNDLES]
        previous, best, best_byte = DEAD, NEVER, -1
        for byte in range(256):
            after = chart.rows[row, byte]
            if after >= 0 and after != previous:
                previous = after
                one[0] = after
                state_costs(graph, chart, costs, one, cost)
                if cost[0] < best:
                    best, best_byte = cost[0], byte
        data[place[1]] = best_byte
        place[0] = chart.rows[row, best_byte]
        place[1] += 1
        left = best
    return place[1]


@njit(cache=True, nogil=True)
def fewest_tokens(trie, data, length):
    """The least number of tokens that spell data[:length], NEVER if they cannot."""
    fewest = np.full(length + 1, NEVER, np.int32)
    fewest[length] = 0
    for begin in range(length - 1, -1, -1):
        node, at = 0, begin
        while at < length:
            child, end = node + 1, trie.skip[node]
            while child < end and trie.byte[child] != data[at]:
                child = trie.skip[child]
            if child >= end:
                break
            node = child
            at += 1
            if trie.token_start[node + 1] > trie.token_start[node]:
                fewest[begin] = min(fewest[begin], fewest[at] + 1)
    return fewest[0]
