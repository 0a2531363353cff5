"""Fewest bytes and tokens from a state to the end of a text.

The cost of a state is the least over its items of the cost within the item's rule (`within_rule`), plus the cost of its
callers after it.

The cost of a node is the fewest bytes from it to the end of its rule; in a counted loop, to the end of the turn. The
cost of a lazy node is the front end's promise. Costs are exact if promises are.

A node of a set has two costs: with all required bits set, and with some missing. Each missing bit adds its weight, the
cost of setting it, to the second.

Costs of NEVER or more mean that there is no end. From costs follow ways from a state to the end of a text: by fewest
bytes; the fewest tokens along one of these; by tokens that come nearest. Kernels return the codes of
kernels/answers.py;
results until then stay valid.
"""

from __future__ import annotations

import numpy as np

from ..answers import DEAD, EXHAUSTED, NEVER, spend
from ..jit.aliases import Int, Ints, Truth
from ..jit.arrays import Arrays, Table, Vector
from ..jit.wide import inner_njit, njit, shared_njit
from ..trie.branches import TokenTrie
from .interning import ALL, BITS, HI, LO, bits_of, has_first
from .layout import (
    ACCEPTING,
    CALL,
    COUNTER,
    EDGE_HI,
    EDGE_LO,
    EDGE_TARGET,
    ENTRY,
    ENTRY_COUNT,
    ENTRY_ORIGIN,
    ENTRY_RULE,
    ENTRY_TARGET,
    EPSILON,
    FINAL,
    FLAGS,
    GREATEST,
    GUARD,
    HEADER,
    INCREMENT,
    ITEM,
    ITEM_COUNT,
    ITEM_NODE,
    ITEM_ORIGIN,
    LEAST,
    LINK_ARGUMENT,
    LINK_HI,
    LINK_KIND,
    LINK_LO,
    LINK_TARGET,
    OWN_RETURN_SET,
    ROOT,
    ROW,
    RULE,
    SELF,
    Chart,
    GraphArrays,
    is_large,
    is_set,
)
from .return_sets import first_entry
from .rows import PENDING, open_row, step

# Columns of Costs.shortest.
BYTE, NEXT, TOKENS, COST = range(4)


class Costs(Arrays):
    """Costs in bytes, NEVER where there is no end. Costs of entries and `shortest` are computed on demand.

    nodes: int32, by node; unmet: int32, of nodes of a set while bits are missing
    promised: int32, a lazy node's promise, -1 for other nodes; lacking: int32, its promise while bits are missing;
    after: int32, the node after the promised part, -1 for the end of the rule
    turns, exits: int32, by counter, cost of one turn, and after the loop
    weights: int32 [n, 32], by set and bit; large sets take several rows
    entries: int32, beside Chart.words, at the first entry of a return set for a rule: the cost of everything after
    that rule, -1 where not computed yet
    shortest: int32 [n, 4], by state: the first byte of a shortest text, the state after it, the fewest tokens that
    spell the text, and its bytes; -1 where not computed yet
    """

    nodes: Vector[np.int32]
    unmet: Vector[np.int32]
    promised: Vector[np.int32]
    lacking: Vector[np.int32]
    after: Vector[np.int32]
    turns: Vector[np.int32]
    exits: Vector[np.int32]
    weights: Table[np.int32]
    entries: Vector[np.int32]
    shortest: Table[np.int32]


@inner_njit
def node_cost(graph: GraphArrays, costs: Costs, node: Int) -> Int:
    """Return the cost of a node, given the costs of its successors. Updates the costs of counters."""
    target: Int
    nodes, edges, links = graph.nodes, graph.edges, graph.links
    promised = costs.promised[node]
    if promised >= 0:
        target = costs.after[node]
        return promised if target < 0 else min(NEVER, np.int64(promised) + costs.nodes[target])
    best = 0 if nodes[node, FLAGS] & FINAL else NEVER
    for e in range(nodes[node, EDGE_LO], nodes[node, EDGE_HI]):
        target = edges[e, EDGE_TARGET]
        best = min(best, 1 + costs.nodes[target])
    turn = NEVER
    for at in range(nodes[node, LINK_LO], nodes[node, LINK_HI]):
        kind, target, argument = links[at, LINK_KIND], links[at, LINK_TARGET], links[at, LINK_ARGUMENT]
        if kind in (EPSILON, GUARD):
            turn = min(turn, costs.nodes[target])
        elif kind == CALL:
            turn = min(turn, np.int64(costs.nodes[target]) + costs.nodes[argument])
        elif kind == INCREMENT:
            turn = 0
        else:
            costs.turns[argument] = min(turn, NEVER)
            costs.exits[argument] = costs.nodes[target]
            least = graph.counters[argument, LEAST]
            needed = least * np.int64(turn) if least else 0
            turn = min(NEVER, needed + costs.nodes[target])
    return np.int64(min(NEVER, min(best, turn)))


@inner_njit
def lacking_from(graph: GraphArrays, costs: Costs, node: Int) -> Int:
    """Return the cost of a node while bits are missing, if it is one of a set."""
    return np.int64(costs.unmet[node] if is_set(graph, graph.nodes[node, COUNTER]) else costs.nodes[node])


@inner_njit
def unmet_cost(graph: GraphArrays, costs: Costs, node: Int) -> Int:
    """Return the cost of a node of a set while bits are missing, without the weights of these bits."""
    target: Int
    nodes, edges, links = graph.nodes, graph.edges, graph.links
    if costs.promised[node] >= 0:
        target = costs.after[node]
        return min(NEVER, np.int64(costs.lacking[node]) + (lacking_from(graph, costs, target) if target >= 0 else 0))
    best = np.int64(NEVER)
    for e in range(nodes[node, EDGE_LO], nodes[node, EDGE_HI]):
        best = min(best, 1 + lacking_from(graph, costs, edges[e, EDGE_TARGET]))
    for at in range(nodes[node, LINK_LO], nodes[node, LINK_HI]):
        kind, target, argument = links[at, LINK_KIND], links[at, LINK_TARGET], links[at, LINK_ARGUMENT]
        if kind == EPSILON or (kind == GUARD and graph.guards[argument, ALL] == 0):
            best = min(best, lacking_from(graph, costs, target))
        elif kind == CALL:
            best = min(best, np.int64(costs.nodes[target]) + lacking_from(graph, costs, argument))
    return min(NEVER, best)


@inner_njit
def depends_on(graph: GraphArrays, costs: Costs, node: Int, place: Int) -> Int:
    """Return the `place`-th node on which the cost of a node depends; -1 behind the last."""
    if costs.promised[node] >= 0:
        return costs.after[node] if place == 0 else -1
    edge = graph.nodes[node, EDGE_LO] + place
    if edge < graph.nodes[node, EDGE_HI]:
        return graph.edges[edge, EDGE_TARGET]
    half = edge - graph.nodes[node, EDGE_HI]
    at = graph.nodes[node, LINK_LO] + half // 2
    if at >= graph.nodes[node, LINK_HI]:
        return -1
    return (
        graph.links[at, LINK_ARGUMENT]
        if half % 2 and graph.links[at, LINK_KIND] == CALL
        else graph.links[at, LINK_TARGET]
    )


@inner_njit
def put_in_order(graph: GraphArrays, costs: Costs, first: Int, last: Int, order: Ints) -> None:
    """List the nodes first ... last - 1 in post-order: each after those that it depends on, except in cycles."""
    seen = np.full(last - first, -1, np.int32)
    stack = np.empty(last - first, np.int32)
    done = 0
    for root in range(first, last):
        if seen[root - first] >= 0:
            continue
        seen[root - first], stack[0], depth = 0, root, 1
        while depth:
            node: Int = stack[depth - 1]
            after = depends_on(graph, costs, node, seen[node - first])
            if after < 0:
                order[done] = node
                done += 1
                depth -= 1
                continue
            seen[node - first] += 1
            if first <= after < last and seen[after - first] < 0:
                seen[after - first], stack[depth] = 0, after
                depth += 1


@inner_njit
def settle_node(graph: GraphArrays, costs: Costs, node: Int) -> Int:
    """Compute the cost of a node from those it depends on. Return whether it has changed."""
    changed = False
    cost = node_cost(graph, costs, node)
    if cost != costs.nodes[node]:
        costs.nodes[node] = cost
        changed = True
    if is_set(graph, graph.nodes[node, COUNTER]):
        cost = unmet_cost(graph, costs, node)
        if cost != costs.unmet[node]:
            costs.unmet[node] = cost
            changed = True
    return changed


@njit
def settle_nodes(graph: GraphArrays, chart: Chart, costs: Costs, first: Int, last: Int) -> Int:
    """Compute the costs of the nodes first ... last - 1 to a fixed point. Return 0 or EXHAUSTED.

    The first two rounds run forwards and backwards, which is enough for most graphs: chains of nodes run either way.
    Later rounds use post-order, so that only cycles need more than one.
    """
    changed = True
    begin, end, stride = first, last, 1
    for _ in range(2):
        if changed:
            changed = False
            if spend(chart, last - first) < 0:
                return EXHAUSTED
            for node in range(begin, end, stride):
                changed |= settle_node(graph, costs, node)
            begin, end, stride = end - stride, begin - stride, -stride
    if not changed:
        return 0
    order = np.empty(last - first, np.int32)
    put_in_order(graph, costs, first, last, order)
    while changed:
        changed = False
        if spend(chart, 2 * (last - first)) < 0:
            return EXHAUSTED
        for at in range(last - first):
            changed |= settle_node(graph, costs, order[at])
    return 0


@inner_njit
def within_set(graph: GraphArrays, chart: Chart, costs: Costs, node: Int, counter: Int, bits: Int) -> Int:
    """`within_rule` for a node of a set."""
    weights = -1 - graph.counters[counter, GREATEST]
    if is_large(graph, counter):
        needed = -1 - graph.counters[counter, LEAST]
        if has_first(chart, bits, needed):
            return np.int64(costs.nodes[node])
        total = np.int64(costs.unmet[node])
        for word in range((needed + BITS - 1) // BITS):
            wanted = (1 << min(BITS, needed - word * BITS)) - 1
            total += weight_of(costs.weights[weights + word], wanted & ~bits_of(chart, bits, word))
        return total
    missing = graph.counters[counter, LEAST] & ~bits
    if missing == 0:
        return np.int64(costs.nodes[node])
    return np.int64(costs.unmet[node]) + weight_of(costs.weights[weights], missing)


@inner_njit
def weight_of(weights: Ints, missing: Int) -> Int:
    """Return the sum of the weights of missing bits."""
    total = np.int64(0)
    for bit in range(BITS):
        if missing >> bit & 1:
            total += weights[bit]
    return total


@inner_njit
def within_rule(graph: GraphArrays, chart: Chart, costs: Costs, node: Int, count: Int) -> Int:
    """Return the fewest bytes from an item to the end of its rule."""
    counter: Int = graph.nodes[node, COUNTER]
    if counter == 0:
        return np.int64(costs.nodes[node])
    if is_set(graph, counter):
        return within_set(graph, chart, costs, node, counter, count)
    left = max(0, graph.counters[counter, LEAST] - count - 1)
    return np.int64(costs.nodes[node]) + left * np.int64(costs.turns[counter]) + costs.exits[counter]


@inner_njit
def after_call(chart: Chart, costs: Costs, return_set: Int, rule: Int) -> Int:
    """Return the fewest bytes after a rule that returns to `return_set`, as far as its entries are computed."""
    at = first_entry(chart, return_set, rule)
    known = at < chart.return_sets[return_set, HI] and chart.words[at + ENTRY_RULE] == rule
    return np.int64(costs.entries[at] if known else NEVER)


@inner_njit
def is_settled(chart: Chart, costs: Costs, return_set: Int) -> Truth:
    """Test whether the costs of a return set's entries are known; ROOT and the empty return set have none."""
    lo: Int = chart.return_sets[return_set, LO]
    return lo == chart.return_sets[return_set, HI] or costs.entries[lo] >= 0


@inner_njit
def settle_return_set(graph: GraphArrays, chart: Chart, costs: Costs, return_set: Int) -> Int:
    """Compute the costs of a return set's entries to a fixed point; their origins must be settled. 0 or a code."""
    words = chart.words
    lo, hi = chart.return_sets[return_set, LO], chart.return_sets[return_set, HI]
    for at in range(lo, hi, ENTRY):
        costs.entries[at] = NEVER
    changed = True
    while changed:
        changed = False
        first = lo
        for at in range(lo, hi, ENTRY):
            if words[at + ENTRY_RULE] != words[first + ENTRY_RULE]:
                first = at
            target, origin = words[at + ENTRY_TARGET], words[at + ENTRY_ORIGIN]
            cost = within_rule(graph, chart, costs, target, words[at + ENTRY_COUNT])
            if origin != ROOT:
                cost += after_call(chart, costs, return_set if origin == SELF else origin, graph.nodes[target, RULE])
            cost = min(cost, NEVER)
            if cost < costs.entries[first]:
                costs.entries[first] = cost
                changed = True
        if spend(chart, hi - lo) < 0:
            costs.entries[lo] = -1
            return EXHAUSTED
    return 0


@inner_njit
def settle(graph: GraphArrays, chart: Chart, costs: Costs, return_set: Int) -> Int:
    """Settle a return set, after the origins of its entries, without recursion. Return 0 or a code."""
    stack = np.empty(64, np.int32)
    stack[0] = return_set
    depth = 1
    while depth:
        return_set = stack[depth - 1]
        if is_settled(chart, costs, return_set):
            depth -= 1
            continue
        lo, hi = chart.return_sets[return_set, LO], chart.return_sets[return_set, HI]
        before, last = depth, SELF
        for at in range(lo + ENTRY_ORIGIN, hi, ENTRY):
            origin = chart.words[at]  # the loop runs over the origins' places
            if origin in (last, SELF) or is_settled(chart, costs, origin):
                continue
            if depth == len(stack):
                larger = np.empty(2 * depth, np.int32)
                for i in range(depth):
                    larger[i] = stack[i]
                stack = larger
            stack[depth] = last = origin
            depth += 1
        if spend(chart, hi - lo) < 0:
            return EXHAUSTED
        if depth == before:
            code = settle_return_set(graph, chart, costs, return_set)
            if code < 0:
                return code
    return 0


@inner_njit
def after_rule(graph: GraphArrays, chart: Chart, costs: Costs, return_set: Int, rule: Int) -> Int:
    """Return the fewest bytes after a rule that returns to `return_set`, or a code."""
    if return_set == ROOT:
        return np.int64(0)
    if not is_settled(chart, costs, return_set):
        code = settle(graph, chart, costs, return_set)
        if code < 0:
            return np.int64(code)
    return after_call(chart, costs, return_set, rule)


@shared_njit
def state_cost(graph: GraphArrays, chart: Chart, costs: Costs, state: Int) -> Int:
    """Return the fewest bytes from a state to an accepting one, or a code."""
    known = costs.shortest[state, COST]
    if known >= 0:
        return np.int64(known)
    words = chart.words
    lo: Int = chart.states[state, LO]
    hi: Int = chart.states[state, HI]
    best = np.int64(0 if words[lo + ACCEPTING] else NEVER)
    for at in range(lo + HEADER, hi, ITEM):
        if best == 0:
            break
        node, origin = words[at + ITEM_NODE], words[at + ITEM_ORIGIN]
        return_set = words[lo + OWN_RETURN_SET] if origin == SELF else origin
        after = after_rule(graph, chart, costs, return_set, graph.nodes[node, RULE])
        if after < 0:
            return after
        best = min(best, after + within_rule(graph, chart, costs, node, words[at + ITEM_COUNT]))
    if spend(chart, hi - lo) < 0:
        return np.int64(EXHAUSTED)
    costs.shortest[state, COST] = best
    return best


@njit
def state_costs(graph: GraphArrays, chart: Chart, costs: Costs, states: Ints, out: Ints) -> Int:
    """Write the costs of states (int32 [n]) to out (int32 [n]), 0 for accepting states. Return 0 or a code."""
    for i in range(len(states)):
        cost = state_cost(graph, chart, costs, states[i])
        if cost < 0:
            return cost
        out[i] = cost
    return np.int64(0)


# Trie nodes that `nearest` examines in a search over all tokens, and the answer if they do not suffice.
PATIENCE, TOO_MANY = 512, -20
# Steps of work for each state on a way, and trie nodes per update of the meter (minus 1, as a bit mask).
STEPS_EACH, BATCH = 128, 1023


@inner_njit
def find_onward(graph: GraphArrays, chart: Chart, costs: Costs, state: Int) -> Int:
    """Record the first byte of a shortest text from `state` in Costs.shortest. Return DEAD, or a code.

    Most states have many bytes that lead elsewhere, so the search stops at a byte with the least possible cost.

    If a promise was too low, all bytes lead farther from the end than expected. White space that leads back to a state
    of the text then looks as short as progress, so loops get a penalty.
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
    """Return the fewest tokens that spell a shortest text from `state`, or a code.

    Returns DEAD if way (int32 [n]) fills up with states before one whose number is known. The caller then calls for the
    state after the last of them, and again for this one. Results for the states on the way go to Costs.shortest, so
    texts through the same state share the rest.
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
    """Return the fewest tokens that spell the text along `shortest`, NEVER if no tokens do."""
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
    """`nearest` over the tokens that begin a text at most `detour` bytes longer than a shortest one.

    TOO_MANY if that takes more than `patience` nodes of the trie. Known transitions are read from the arrays inline, as
    in `walk`.
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
    """Return the state nearest to the end after one token, nearer than `state`; DEAD if there is none, or a code.

    Of several, the first in the order of the trie. If very many tokens are allowed, only those count that begin a text
    at most `detour` bytes longer than a shortest one.
    """
    found = nearest_within(graph, chart, costs, trie, state, NEVER, PATIENCE)
    if found == TOO_MANY:
        found = nearest_within(graph, chart, costs, trie, state, detour, NEVER)
    return found
