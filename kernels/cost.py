"""How many bytes a text needs at least: of graph nodes, of what a call returns to, of states.

The cost of a node is the fewest bytes from it to the end of its rule; inside a counted loop, to the end of
the turn. A lazy node costs what its front end promised. The cost of a state is the least over its items of
what the item's own rule needs, plus what its callers need after it. Costs are exact where the promises are.

A node of a set has two costs: with all the bits that must be there, and without some of them. To the second
each missing bit adds its weight, which is what it takes to come by it.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .chart import (
    ALL,
    CALL,
    COUNTER,
    DEAD,
    EDGE_HI,
    EDGE_LO,
    ENTRY,
    EPSILON,
    FINAL,
    FLAGS,
    GUARD,
    HEADER,
    INCREMENT,
    ITEM,
    LINK_HI,
    LINK_LO,
    ROOT,
    ROW,
    RULE,
    SELF,
    first_entry,
    is_large,
    is_set,
)
from .interning import HI, LO
from .rows import PENDING, fill_row, open_row, step
from .sets import BITS, bits_of, has_first
from .wide import inner_njit, njit, shared_njit

NEVER = 2**30
# How many nodes `nearest` may look at in search of any token, and what says that they were not enough.
PATIENCE, TOO_MANY = 512, -20
# Columns of Costs.onward.
BYTE, NEXT, TOKENS, COST = range(4)


class Costs(NamedTuple):
    """Costs in bytes, NEVER where there is no end. Those of entries and `onward` are worked out when needed.

    nodes: int32, by node; unmet: int32, of nodes of a set, while bits are missing
    promised: int32, what a node promised while it was lazy, -1 for others; lacking: int32, what it promised for
    the case that bits are missing; after: int32, the node that the promise leads to, -1 for the end of the rule
    turns, exits: int32, by counter, of one turn and after the loop
    weights: int32 [n, 32], by set and bit; of large sets in several rows
    entries: int32, beside Chart.words, of everything after the call entry at that place, -1 where not known yet
    onward: int32 [n, 4], by state: the first byte of a shortest text, the state after it, the fewest tokens that
    spell the text, and its bytes; -1 where not known yet
    """

    nodes: NDArray[np.int32]
    unmet: NDArray[np.int32]
    promised: NDArray[np.int32]
    lacking: NDArray[np.int32]
    after: NDArray[np.int32]
    turns: NDArray[np.int32]
    exits: NDArray[np.int32]
    weights: NDArray[np.int32]
    entries: NDArray[np.int32]
    onward: NDArray[np.int32]


@inner_njit
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
        if kind in (EPSILON, GUARD):
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


@inner_njit
def lacking_from(graph, costs, node):
    """The cost of a node while bits are missing, if it is one of a set."""
    return np.int64(costs.unmet[node] if is_set(graph, graph.nodes[node, COUNTER]) else costs.nodes[node])


@inner_njit
def unmet_cost(graph, costs, node):
    """As node_cost, for a node of a set while bits are missing, and without what the missing bits weigh."""
    nodes, edges, links = graph.nodes, graph.edges, graph.links
    if costs.promised[node] >= 0:
        target = costs.after[node]
        return min(NEVER, np.int64(costs.lacking[node]) + (lacking_from(graph, costs, target) if target >= 0 else 0))
    best = np.int64(NEVER)
    for e in range(nodes[node, EDGE_LO], nodes[node, EDGE_HI]):
        best = min(best, 1 + lacking_from(graph, costs, edges[e, 2]))
    for at in range(nodes[node, LINK_LO], nodes[node, LINK_HI]):
        kind, target, argument = links[at, 0], links[at, 1], links[at, 2]
        if kind == EPSILON or (kind == GUARD and graph.guards[argument, ALL] == 0):
            best = min(best, lacking_from(graph, costs, target))
        elif kind == CALL:
            best = min(best, np.int64(costs.nodes[target]) + lacking_from(graph, costs, argument))
    return min(NEVER, best)


@njit
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
            if is_set(graph, graph.nodes[node, COUNTER]):
                cost = unmet_cost(graph, costs, node)
                if cost != costs.unmet[node]:
                    costs.unmet[node] = cost
                    changed = True
        begin, end, stride = end - stride, begin - stride, -stride


@inner_njit
def within_set(graph, chart, costs, node, counter, bits):
    """As within_rule, for a node of a set."""
    weights = -1 - graph.counters[counter, 1]
    if is_large(graph, counter):
        needed = -1 - graph.counters[counter, 0]
        if has_first(chart, bits, needed):
            return np.int64(costs.nodes[node])
        total = np.int64(costs.unmet[node])
        for word in range((needed + BITS - 1) // BITS):
            wanted = (1 << min(BITS, needed - word * BITS)) - 1
            total += weight_of(costs.weights[weights + word], wanted & ~bits_of(chart, bits, word))
        return total
    missing = graph.counters[counter, 0] & ~bits
    if missing == 0:
        return np.int64(costs.nodes[node])
    return np.int64(costs.unmet[node]) + weight_of(costs.weights[weights], missing)


@inner_njit
def weight_of(weights, missing):
    """What the missing bits weigh together."""
    total = np.int64(0)
    for bit in range(BITS):
        if missing >> bit & 1:
            total += weights[bit]
    return total


@inner_njit
def within_rule(graph, chart, costs, node, count):
    """The fewest bytes from an item to the end of its rule."""
    counter = graph.nodes[node, COUNTER]
    if counter == 0:
        return np.int64(costs.nodes[node])
    if is_set(graph, counter):
        return within_set(graph, chart, costs, node, counter, count)
    left = max(0, graph.counters[counter, 0] - count - 1)
    return np.int64(costs.nodes[node]) + left * np.int64(costs.turns[counter]) + costs.exits[counter]


@inner_njit
def after_call(chart, costs, bundle, rule):
    """The fewest bytes after a rule that returns to `bundle`, as far as the bundle's entries are settled."""
    best = np.int64(NEVER)
    words = chart.words
    at, end = first_entry(chart, bundle, rule), chart.bundles[bundle, HI]
    while at < end and words[at] == rule:
        best = min(best, np.int64(costs.entries[at]))
        at += ENTRY
    return best


@inner_njit
def is_settled(chart, costs, bundle):
    """Whether the costs of a bundle's entries are known; what ends the text, and nothing, needs none."""
    lo = chart.bundles[bundle, LO]
    return lo == chart.bundles[bundle, HI] or costs.entries[lo] >= 0


@inner_njit
def settle_bundle(graph, chart, costs, bundle):
    """Compute the costs of a bundle's entries, by rounds; the bundles of their origins must be settled."""
    words = chart.words
    lo, hi = chart.bundles[bundle, LO], chart.bundles[bundle, HI]
    for at in range(lo, hi, ENTRY):
        costs.entries[at] = NEVER
    changed = True
    while changed:
        changed = False
        for at in range(lo, hi, ENTRY):
            target, origin = words[at + 1], words[at + 3]
            cost = within_rule(graph, chart, costs, target, words[at + 2])
            if origin != ROOT:
                cost += after_call(chart, costs, bundle if origin == SELF else origin, graph.nodes[target, RULE])
            cost = min(cost, NEVER)
            if cost < costs.entries[at]:
                costs.entries[at] = cost
                changed = True


@inner_njit
def settle(graph, chart, costs, bundle):
    """Settle a bundle, and before it those that its entries come from, however long their chain is."""
    stack = np.empty(64, np.int32)
    stack[0] = bundle
    depth = 1
    while depth:
        bundle = stack[depth - 1]
        waiting = False
        for at in range(chart.bundles[bundle, LO] + 3, chart.bundles[bundle, HI], ENTRY):
            origin = chart.words[at]
            if origin != SELF and not is_settled(chart, costs, origin):
                if depth == len(stack):
                    larger = np.empty(2 * depth, np.int32)
                    for i in range(depth):
                        larger[i] = stack[i]
                    stack = larger
                stack[depth] = origin
                depth += 1
                waiting = True
                break
        if not waiting:
            settle_bundle(graph, chart, costs, bundle)
            depth -= 1


@inner_njit
def after_rule(graph, chart, costs, bundle, rule):
    """The fewest bytes after a rule that returns to `bundle`."""
    if bundle == ROOT:
        return np.int64(0)
    if not is_settled(chart, costs, bundle):
        settle(graph, chart, costs, bundle)
    return after_call(chart, costs, bundle, rule)


@shared_njit
def state_cost(graph, chart, costs, state):
    """The fewest bytes from a state to an accepting one."""
    known = costs.onward[state, COST]
    if known >= 0:
        return np.int64(known)
    words = chart.words
    lo, hi = chart.states[state, LO], chart.states[state, HI]
    best = np.int64(0 if words[lo + 1] else NEVER)
    for at in range(lo + HEADER, hi, ITEM):
        if best == 0:
            break
        node, origin = words[at], words[at + 1]
        cost = within_rule(graph, chart, costs, node, words[at + 2])
        cost += after_rule(graph, chart, costs, words[lo] if origin == SELF else origin, graph.nodes[node, RULE])
        best = min(best, cost)
    costs.onward[state, COST] = best
    return best


@njit
def state_costs(graph, chart, costs, states, out):
    """The costs of the given states (int32 [n]) into out (int32 [n]); 0 for accepting states."""
    for i in range(len(states)):
        out[i] = state_cost(graph, chart, costs, states[i])
    return 0


@inner_njit
def find_onward(graph, chart, costs, state):
    """Note in Costs.onward a byte that a shortest text from `state` goes on with; DEAD, or a code.

    Where a promise was too low, all bytes lead farther from the end than they should: then white space that leads back
    to where the text was looks as short as what goes on, and a text must not go round in it.
    """
    row = fill_row(graph, chart, state)
    if row < 0:
        return row
    onward = costs.onward
    previous, best, way_on = DEAD, np.int64(4 * NEVER), DEAD
    for byte in range(256):
        after = chart.rows[row, byte]
        if after >= 0 and after != previous:
            previous = after
            cost = np.int64(state_cost(graph, chart, costs, after))
            if after == state or (onward[after, NEXT] >= 0 and onward[after, TOKENS] < 0):
                cost += 2 * NEVER
            if cost < best:
                best, way_on = cost, after
                onward[state, BYTE] = byte
    onward[state, NEXT] = way_on
    return DEAD


@njit
def spell(graph, chart, costs, trie, state, needed):
    """The least number of tokens that spell a shortest text from `state`; DEAD if it has more than `needed` bytes.

    Or a code. What is found out about the states on the way is noted in Costs.onward, so that texts that come to
    the same state share the rest.
    """
    onward = costs.onward
    way = np.empty(needed, np.int32)
    length = 0
    while onward[state, TOKENS] < 0:
        if chart.words[chart.states[state, LO] + 1]:
            onward[state, TOKENS] = 0
            break
        if length == needed:
            return DEAD
        if onward[state, NEXT] < 0:
            code = find_onward(graph, chart, costs, state)
            if code != DEAD:
                return code
        way[length] = state
        length += 1
        state = onward[state, NEXT]
    for at in range(length - 1, -1, -1):
        onward[way[at], TOKENS] = fewest_tokens(trie, onward, way[at])
    return onward[way[0] if length else state, TOKENS]


@inner_njit
def fewest_tokens(trie, onward, state):
    """The least number of tokens that spell the text that `onward` leads along, NEVER if they cannot."""
    fewest = NEVER
    node = 0
    while onward[state, TOKENS] != 0:
        byte = onward[state, BYTE]
        child, end = node + 1, trie.skip[node]
        while child < end and trie.byte[child] != byte:
            child = trie.skip[child]
        if child >= end:
            break
        node = child
        state = onward[state, NEXT]
        if trie.token_start[node + 1] > trie.token_start[node]:
            fewest = min(fewest, onward[state, TOKENS] + 1)
    return fewest


@inner_njit
def nearest_within(graph, chart, costs, trie, state, detour, patience):
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
    most = best + detour
    starts, skip, rows, states, onward = trie.token_start, trie.skip, chart.rows, chart.states, costs.onward
    node, end = 1, len(trie.byte)
    while node < end and best > 0:
        level = trie.depth[node]
        after = rows[stack[level - 1], trie.byte[node]]
        if after == PENDING:
            after = step(graph, chart, passed[level - 1], stack[level - 1], trie.byte[node])
        if after < 0:
            if after < DEAD:
                return after
            node = skip[node]
            continue
        patience -= 1
        if patience < 0:
            return TOO_MANY
        cost = np.int64(onward[after, COST])
        if cost < 0:
            cost = state_cost(graph, chart, costs, after)
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
def nearest(graph, chart, costs, trie, state, detour):
    """The state nearest to the end that one token leads to, nearer than `state`; DEAD if there is none, or a code.

    The first in the order of the trie. Where very many tokens may follow, only those that begin a text at most
    `detour` bytes longer than a shortest.
    """
    found = nearest_within(graph, chart, costs, trie, state, NEVER, PATIENCE)
    if found == TOO_MANY:
        found = nearest_within(graph, chart, costs, trie, state, detour, NEVER)
    return found
