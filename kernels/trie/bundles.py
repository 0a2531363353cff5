"""Bundles: items that a walk reads on with by itself, without making states of them.

Where nodes have edges and nothing else, what follows a byte is known without a closure: each item goes to where its
edges lead. So it is in the middle of names and constants, of which a walk comes to hundreds that no text will have, and
whose states nobody would ask for again. A bundle is a run of items in a table; their origins are never SELF.

Kernels answer as kernels/answers.py says.
"""

from __future__ import annotations

from ..answers import CROWDED, DEAD
from ..chart.interning import HI, LO
from ..chart.layout import (
    EDGE_FIRST,
    EDGE_HI,
    EDGE_LAST,
    EDGE_LO,
    EDGE_TARGET,
    FINAL,
    FLAGS,
    HEADER,
    ITEM,
    ITEM_COUNT,
    ITEM_NODE,
    ITEM_ORIGIN,
    LAZY,
    LINK_HI,
    LINK_LO,
    OWN_RETURN_SET,
    SELF,
    Chart,
    GraphArrays,
)
from ..chart.rows import close_items, step
from ..jit.aliases import Int, Ints
from ..jit.wide import inner_njit, shared_njit

# How many items all bundles of a walk have together, and one that is made.
ROOM, MOST = 2048, 64
# What `follow_bundle` answers where only a closure says what follows.
CLOSURE = -1


@inner_njit
def is_plain(graph: GraphArrays, node: Int) -> bool:
    """Tell whether all that there is to a node is its edges."""
    nodes = graph.nodes
    if nodes[node, LINK_LO] < nodes[node, LINK_HI] or nodes[node, FLAGS] & (FINAL | LAZY):
        return False
    return nodes[node, EDGE_LO] < nodes[node, EDGE_HI]


@inner_njit
def is_fixed(graph: GraphArrays, node: Int) -> bool:
    """Tell whether each edge of a node reads one byte only, as in the middle of a name."""
    for at in range(graph.nodes[node, EDGE_LO], graph.nodes[node, EDGE_HI]):
        if graph.edges[at, EDGE_FIRST] != graph.edges[at, EDGE_LAST]:
            return False
    return True


@inner_njit
def open_bundle(chart: Chart, state: Int, bundle: Ints, lo: Int) -> Int:
    """Write the items of a state to bundle[lo:]; where they end, which is `lo` if there is no room for them."""
    words = chart.words
    first, last = chart.states[state, LO], chart.states[state, HI]
    count = (last - first - HEADER) // ITEM
    if lo + count > len(bundle):
        return lo
    own = words[first + OWN_RETURN_SET]
    for at in range(count):
        word = first + HEADER + ITEM * at
        origin = words[word + ITEM_ORIGIN]
        bundle[lo + at, ITEM_NODE] = words[word + ITEM_NODE]
        bundle[lo + at, ITEM_ORIGIN] = own if origin == SELF else origin
        bundle[lo + at, ITEM_COUNT] = words[word + ITEM_COUNT]
    return lo + count


@inner_njit
def add_item(bundle: Ints, lo: Int, end: Int, node: Int, like: Int) -> Int:
    """Add the item `like` at another node to bundle[lo:end], unless it is there; where they end then."""
    origin, count = bundle[like, ITEM_ORIGIN], bundle[like, ITEM_COUNT]
    for at in range(lo, end):
        if bundle[at, ITEM_NODE] == node and bundle[at, ITEM_ORIGIN] == origin and bundle[at, ITEM_COUNT] == count:
            return end
    bundle[end, ITEM_NODE] = node
    bundle[end, ITEM_ORIGIN] = origin
    bundle[end, ITEM_COUNT] = count
    return end + 1


@shared_njit
def follow_bundle(graph: GraphArrays, bundle: Ints, lo: Int, hi: Int, byte: Int) -> tuple[Int, Int]:
    """Write what bundle[lo:hi] leads to by a byte behind it; how many items that is, and the last byte that does so.

    CLOSURE in place of the number where a closure is needed, where there are too many, and where none is in the middle
    of a fixed text: others may loop, which is seen of states.
    """
    edges, nodes = graph.edges, graph.nodes
    end, last = hi, 0xFF
    most = min(hi + MOST, len(bundle))
    alone, suits = True, False
    for at in range(lo, hi):
        node = bundle[at, ITEM_NODE]
        for e in range(nodes[node, EDGE_LO], nodes[node, EDGE_HI]):
            first, final = edges[e, EDGE_FIRST], edges[e, EDGE_LAST]
            if first > byte:
                last = min(last, first - 1)
            elif final >= byte:
                last = min(last, final)
                target = edges[e, EDGE_TARGET]
                if alone and end < most and is_plain(graph, target):
                    end = add_item(bundle, hi, end, target, at)
                    suits = suits or is_fixed(graph, target)
                else:
                    alone = False
        if not alone and at - lo >= MOST:
            return CLOSURE, byte
    return end - hi if alone and (suits or end == hi) else CLOSURE, last


@shared_njit
def close_bundle(graph: GraphArrays, chart: Chart, bundle: Ints, lo: Int, hi: Int, byte: Int) -> Int:
    """The state after a byte from bundle[lo:hi], DEAD, or a code."""
    items, count = chart.items, 0
    for at in range(lo, hi):
        node = bundle[at, ITEM_NODE]
        for e in range(graph.nodes[node, EDGE_LO], graph.nodes[node, EDGE_HI]):
            if graph.edges[e, EDGE_FIRST] <= byte <= graph.edges[e, EDGE_LAST]:
                if count == len(items):
                    return CROWDED
                items[count, ITEM_NODE] = graph.edges[e, EDGE_TARGET]
                items[count, ITEM_ORIGIN] = bundle[at, ITEM_ORIGIN]
                items[count, ITEM_COUNT] = bundle[at, ITEM_COUNT]
                count += 1
    return close_items(graph, chart, count)


@inner_njit
def read_on(
    graph: GraphArrays, chart: Chart, bundle: Ints, lo: Int, hi: Int, state: Int, row: Int, byte: Int, whole: Int
) -> tuple[Int, Int, Int]:
    """The bundle behind bundle[lo:hi], or the state it is of, by a byte that its row, if not -1, has no state for yet.

    How many items there are behind it in a bundle, from 1 on; or a state, DEAD or a code, and up to which byte it is
    the same, -1 if that does not matter. whole: whether it must be a state
    """
    count, last = (CLOSURE, -1) if whole else follow_bundle(graph, bundle, lo, hi, byte)
    if count > 0:
        return count, DEAD, -1
    if row >= 0:
        return 0, step(graph, chart, state, row, byte), -1
    return 0, close_bundle(graph, chart, bundle, lo, hi, byte) if count else DEAD, last
