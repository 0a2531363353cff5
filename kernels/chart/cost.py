"""Least bytes of texts from a state on: its own items, and what their callers need after them.

The cost of a state is the least over its items of what the item's own rule needs (node_cost.py), plus what its callers
need after it. Kernels answer as kernels/answers.py says; what they have found out by then stays right.
"""

from __future__ import annotations

import numpy as np

from ..answers import EXHAUSTED, NEVER, spend
from ..jit.aliases import Int, Ints, Truth
from ..jit.wide import inner_njit, njit, shared_njit
from .interning import HI, LO
from .layout import (
    ACCEPTING,
    COUNTER,
    ENTRY,
    ENTRY_COUNT,
    ENTRY_ORIGIN,
    ENTRY_RULE,
    ENTRY_TARGET,
    GREATEST,
    HEADER,
    ITEM,
    ITEM_COUNT,
    ITEM_NODE,
    ITEM_ORIGIN,
    LEAST,
    OWN_RETURN_SET,
    ROOT,
    RULE,
    SELF,
    Chart,
    GraphArrays,
    is_large,
    is_set,
)
from .node_cost import COST, Costs
from .return_sets import first_entry
from .sets import BITS, bits_of, has_first


@inner_njit
def within_set(graph: GraphArrays, chart: Chart, costs: Costs, node: Int, counter: Int, bits: Int) -> Int:
    """As within_rule, for a node of a set."""
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
    """The weight of the missing bits together."""
    total = np.int64(0)
    for bit in range(BITS):
        if missing >> bit & 1:
            total += weights[bit]
    return total


@inner_njit
def within_rule(graph: GraphArrays, chart: Chart, costs: Costs, node: Int, count: Int) -> Int:
    """The fewest bytes from an item to the end of its rule."""
    counter: Int = graph.nodes[node, COUNTER]
    if counter == 0:
        return np.int64(costs.nodes[node])
    if is_set(graph, counter):
        return within_set(graph, chart, costs, node, counter, count)
    left = max(0, graph.counters[counter, LEAST] - count - 1)
    return np.int64(costs.nodes[node]) + left * np.int64(costs.turns[counter]) + costs.exits[counter]


@inner_njit
def after_call(chart: Chart, costs: Costs, return_set: Int, rule: Int) -> Int:
    """The fewest bytes after a rule that returns to `return_set`, as far as the return set's entries are settled."""
    at = first_entry(chart, return_set, rule)
    known = at < chart.return_sets[return_set, HI] and chart.words[at + ENTRY_RULE] == rule
    return np.int64(costs.entries[at] if known else NEVER)


@inner_njit
def is_settled(chart: Chart, costs: Costs, return_set: Int) -> Truth:
    """Tell whether the costs of a return set's entries are known; what ends the text, and nothing, needs none."""
    lo: Int = chart.return_sets[return_set, LO]
    return lo == chart.return_sets[return_set, HI] or costs.entries[lo] >= 0


@inner_njit
def settle_return_set(graph: GraphArrays, chart: Chart, costs: Costs, return_set: Int) -> Int:
    """Compute the costs of a return set's entries, by rounds; those of their origins must be settled. 0 or a code."""
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
    """Settle a return set, and before it those that its entries come from, however long their chain is; 0 or a code."""
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
            origin = chart.words[at]  # `at` is that of the origins
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
    """The fewest bytes after a rule that returns to `return_set`, or a code."""
    if return_set == ROOT:
        return np.int64(0)
    if not is_settled(chart, costs, return_set):
        code = settle(graph, chart, costs, return_set)
        if code < 0:
            return np.int64(code)
    return after_call(chart, costs, return_set, rule)


@shared_njit
def state_cost(graph: GraphArrays, chart: Chart, costs: Costs, state: Int) -> Int:
    """The fewest bytes from a state to an accepting one, or a code."""
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
    """The costs of the given states (int32 [n]) into out (int32 [n]), 0 for accepting states; returns 0 or a code."""
    for i in range(len(states)):
        cost = state_cost(graph, chart, costs, states[i])
        if cost < 0:
            return cost
        out[i] = cost
    return np.int64(0)
