"""Least bytes of texts from a node of a graph on.

The cost of a node is the fewest bytes from it to the end of its rule; inside a counted loop, to the end of
the turn. A lazy node costs what its front end promised. Costs are exact where the promises are.

A node of a set has two costs: with all the bits that must be there, and without some of them. To the second
each missing bit adds its weight, which is what it takes to come by it.

What takes NEVER bytes or more counts as having no end. Kernels answer as kernels/answers.py says; what they
have found out by then stays right.
"""

from __future__ import annotations

import numpy as np

from ..answers import EXHAUSTED, NEVER, spend
from ..jit.aliases import Int, Ints
from ..jit.arrays import Arrays, Table, Vector
from ..jit.wide import inner_njit, njit
from .layout import (
    CALL,
    COUNTER,
    EDGE_HI,
    EDGE_LO,
    EDGE_TARGET,
    EPSILON,
    FINAL,
    FLAGS,
    GUARD,
    INCREMENT,
    LEAST,
    LINK_ARGUMENT,
    LINK_HI,
    LINK_KIND,
    LINK_LO,
    LINK_TARGET,
    Chart,
    GraphArrays,
    is_set,
)
from .sets import ALL

# Columns of Costs.shortest.
BYTE, NEXT, TOKENS, COST = range(4)


class Costs(Arrays):
    """Costs in bytes, NEVER where there is no end. Those of entries and `shortest` are worked out when needed.

    nodes: int32, by node; unmet: int32, of nodes of a set, while bits are missing
    promised: int32, what a node promised while it was lazy, -1 for others; lacking: int32, what it promised for
    the case that bits are missing; after: int32, the node that the promise leads to, -1 for the end of the rule
    turns, exits: int32, by counter, of one turn and after the loop
    weights: int32 [n, 32], by set and bit; of large sets in several rows
    entries: int32, beside Chart.words, where the entries of a return set for one rule begin: of everything after
    that rule, -1 where not known yet
    shortest: int32 [n, 4], by state: the first byte of a shortest text, the state after it, the fewest tokens that
    spell the text, and its bytes; -1 where not known yet
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
    """The cost of a node given those of the nodes after it; notes what it learns about counters."""
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
    """The cost of a node while bits are missing, if it is one of a set."""
    return np.int64(costs.unmet[node] if is_set(graph, graph.nodes[node, COUNTER]) else costs.nodes[node])


@inner_njit
def unmet_cost(graph: GraphArrays, costs: Costs, node: Int) -> Int:
    """As node_cost, for a node of a set while bits are missing, and without what the missing bits weigh."""
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
    """The node of number `place` among those that the cost of a node is made of; -1 behind the last."""
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
    """List the nodes first ... last - 1 so that each comes behind those it depends on, but for circles."""
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
    """Compute the cost of a node from those it depends on; whether it is another than before."""
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
    """Compute the costs of the nodes first ... last - 1, by rounds until nothing changes; 0 or EXHAUSTED.

    The first two rounds run back and forth, which is enough for most graphs: chains of nodes run either way. Then the
    nodes are put in order, after which every further round is due to a circle.
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
