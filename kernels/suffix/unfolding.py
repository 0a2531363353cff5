"""A suffix tree unfolded into places of one byte each: what may be quoted, as a graph for a larger automaton."""

from __future__ import annotations

import numpy as np

from ..chart.layout import EDGE_FIRST, EDGE_LAST, EDGE_TARGET
from ..jit.aliases import Bytes, Int, Ints, Longs
from ..jit.wide import inner_njit, njit
from .quoting import Quotable, accepts, has_room
from .tree import END

# Rows of what `unfolded_size` says of inner nodes.
NUMBER, DEPTH = range(2)


@njit
def unfolded_size(quotable: Quotable, inner: Longs, later: Longs) -> Int:
    """Number the places, in inner (int64 [2, I]) and later (int64 [m] or [n], filled with -1); how many there are.

    inner: the number of the first place of each inner node, beyond its parent, and that place's depth
    later: without limits, the number of each position of the text that comes after a suffix has become the only one;
    with them, that of each suffix's first place as the only one
    """
    nodes, limited = len(quotable.lo), len(quotable.reach) > 0
    count = np.int64(1)
    for node in range(nodes):
        for at in range(quotable.child_begin[node], quotable.child_begin[node + 1]):
            child: Int = quotable.child[at]
            first = np.int64(quotable.depth[node] + 1)
            if child < nodes:
                inner[NUMBER, child], inner[DEPTH, child] = count, first
                count += quotable.depth[child] - first + 1
            elif limited:
                later[child - nodes] = count
                count += max(0, quotable.reach[child - nodes] - first + 1)
            else:
                later[quotable.starts[child - nodes] + first] = 0
    if not limited:
        for place in range(len(later)):
            if place and later[place - 1] >= 0 and quotable.text[place - 1] != END:
                later[place] = 0
            if later[place] >= 0:
                later[place] = count
                count += 1
    return count


@njit
def unfold(quotable: Quotable, inner: Longs, later: Longs, ends: Ints, edges: Ints, exits: Bytes) -> Int:
    """Write the places as numbered by `unfolded_size`, each with its edges, in order; how many edges there are.

    ends: int32, where each place's edges end; edges: int32 [n, 3]; exits: uint8, whether a quotation may end there
    """
    nodes, limited = len(quotable.lo), len(quotable.reach) > 0
    used = unfold_node(quotable, inner, later, 0, ends, edges, exits, np.int64(0))
    for node in range(nodes):
        for at in range(quotable.child_begin[node], quotable.child_begin[node + 1]):
            child = quotable.child[at]
            if child < nodes:
                used = unfold_node(quotable, inner, later, child, ends, edges, exits, used)
            elif limited:
                number, start = later[child - nodes], quotable.starts[child - nodes]
                for depth in range(quotable.depth[node] + 1, quotable.reach[child - nodes] + 1):
                    exits[number] = accepts(quotable, child, depth)
                    if depth < quotable.reach[child - nodes]:
                        edges[used, EDGE_FIRST] = edges[used, EDGE_LAST] = quotable.text[start + depth]
                        edges[used, EDGE_TARGET] = number + 1
                        used += 1
                    ends[number] = used
                    number += 1
    if not limited:
        for place in range(len(later)):
            number = later[place]
            if number >= 0:
                exits[number] = quotable.ends[place]
                if quotable.text[place] != END:
                    edges[used, EDGE_FIRST] = edges[used, EDGE_LAST] = quotable.text[place]
                    edges[used, EDGE_TARGET] = number + 1
                    used += 1
                ends[number] = used
    return used


@inner_njit
def unfold_node(
    quotable: Quotable, inner: Longs, later: Longs, node: Int, ends: Ints, edges: Ints, exits: Bytes, used: Int
) -> Int:
    """The places of one inner node, for `unfold`."""
    nodes, limited = len(quotable.lo), len(quotable.reach) > 0
    number, depth = inner[NUMBER, node], inner[DEPTH, node]
    start, last = quotable.starts[quotable.lo[node]], quotable.depth[node]
    while depth < last:
        exits[number] = accepts(quotable, node, depth)
        if quotable.text[start + depth] != END and has_room(quotable, node, depth):
            edges[used, EDGE_FIRST] = edges[used, EDGE_LAST] = quotable.text[start + depth]
            edges[used, EDGE_TARGET] = number + 1
            used += 1
        ends[number] = used
        number += 1
        depth += 1
    exits[number] = accepts(quotable, node, depth)
    for at in range(quotable.child_begin[node], quotable.child_begin[node + 1]):
        child = np.int64(quotable.child[at])
        if not has_room(quotable, child, depth):
            continue
        edges[used, EDGE_FIRST] = edges[used, EDGE_LAST] = quotable.child_byte[at]
        if child < nodes:
            edges[used, EDGE_TARGET] = inner[NUMBER, child]
        elif limited:
            edges[used, EDGE_TARGET] = later[child - nodes]
        else:
            edges[used, EDGE_TARGET] = later[quotable.starts[child - nodes] + depth + 1]
        used += 1
    ends[number] = used
    return used
