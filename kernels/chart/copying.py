"""Fast parts of graph construction: copying fragments, laying out many texts, and searching for lazy nodes.

A fragment may have *holes*, numbers below 0 that each copy fills: -1 - k stands for holes[k]. This is copy-and-patch
(H. Xu and F. Kjolstad, "Copy-and-Patch Compilation", 2021) for graphs in place of machine code.
"""

from __future__ import annotations

import numpy as np

from ..jit.aliases import Bytes, Int, Ints
from ..jit.arrays import Arrays, Table
from ..jit.wide import inner_njit, njit
from .interning import ADDED, ALL, KEPT_BITS, REFUSED
from .layout import (
    CALL,
    COUNTER,
    EDGE_FIRST,
    EDGE_HI,
    EDGE_LAST,
    EDGE_LO,
    EDGE_TARGET,
    EPSILON,
    FLAGS,
    GUARD,
    INCREMENT,
    LAZY,
    LINK_ARGUMENT,
    LINK_HI,
    LINK_KIND,
    LINK_LO,
    LINK_TARGET,
    LOOKED,
    RULE,
    SPAN,
)


class FragmentArrays(Arrays):
    """A fragment: nodes, edges and links as in `Graph`, numbered from 0, with holes.

    Holes may be targets of edges and links, arguments of links, and counters.
    """

    nodes: Table[np.int32]
    edges: Table[np.int32]
    links: Table[np.int32]


@inner_njit
def copy_of_node(holes: Ints, shift: Int, node: Int) -> Int:
    """Return the graph's number for a node of the fragment."""
    return holes[-1 - node] if node < 0 else node + shift


@inner_njit
def copy_of_counter(holes: Ints, counters: Int, counter: Int) -> Int:
    """Return the graph's number for a counter of the fragment; 0 for none."""
    if counter < 0:
        return holes[-1 - counter]
    return counter + counters if counter else 0


@njit
def copy_piece(
    nodes: Ints,
    edges: Ints,
    links: Ints,
    piece: FragmentArrays,
    holes: Ints,
    shift: Int,
    edge: Int,
    link: Int,
    counters: Int,
) -> None:
    """Copy a fragment into the arrays of a graph, which have room.

    holes: int32, the numbers that fill them; shift, counters: offsets of node and counter numbers
    edge, link: first free edge and link
    """
    for node in range(len(piece.nodes)):
        there = node + shift
        nodes[there, EDGE_LO] = piece.nodes[node, EDGE_LO] + edge
        nodes[there, EDGE_HI] = piece.nodes[node, EDGE_HI] + edge
        nodes[there, LINK_LO] = piece.nodes[node, LINK_LO] + link
        nodes[there, LINK_HI] = piece.nodes[node, LINK_HI] + link
        nodes[there, FLAGS] = piece.nodes[node, FLAGS]
        nodes[there, RULE] = copy_of_node(holes, shift, piece.nodes[node, RULE])
        nodes[there, COUNTER] = copy_of_counter(holes, counters, piece.nodes[node, COUNTER])
        nodes[there, SPAN] = 0
    for at in range(len(piece.edges)):
        edges[edge + at, EDGE_FIRST] = piece.edges[at, EDGE_FIRST]
        edges[edge + at, EDGE_LAST] = piece.edges[at, EDGE_LAST]
        edges[edge + at, EDGE_TARGET] = copy_of_node(holes, shift, piece.edges[at, EDGE_TARGET])
    for at in range(len(piece.links)):
        kind, argument = piece.links[at, LINK_KIND], piece.links[at, LINK_ARGUMENT]
        links[link + at, LINK_KIND] = kind
        links[link + at, LINK_TARGET] = copy_of_node(holes, shift, piece.links[at, LINK_TARGET])
        if kind == CALL:
            links[link + at, LINK_ARGUMENT] = copy_of_node(holes, shift, argument)
        else:
            links[link + at, LINK_ARGUMENT] = copy_of_counter(holes, counters, argument)


@njit
def copy_bytes(
    nodes: Ints,
    edges: Ints,
    links: Ints,
    ends: Ints,
    written: Ints,
    exits: Ints,
    begin: Int,
    end: Int,
    first: Int,
    target: Int,
    rule: Int,
    counter: Int,
    edge: Int,
    link: Int,
) -> None:
    """Copy nodes begin ... end - 1 of a fragment of bytes into the arrays of a graph, which have room.

    ends: int32 [nodes], the end of each node's edges; written: int32 [n, 3], the edges, a target below 0 is the exit;
    exits: int32, the nodes of this range with an epsilon link to the exit
    first: number of the fragment's node 0 in the graph; target: the exit; rule, counter: of the new nodes; edge: place
    of the fragment's first edge; link: place of the links of `exits`
    """
    at = ends[begin - 1] if begin else 0
    for node in range(begin, end):
        there, last = first + node, ends[node]
        nodes[there, EDGE_LO], nodes[there, EDGE_HI] = edge + at, edge + last
        nodes[there, RULE], nodes[there, COUNTER] = rule, counter
        while at < last:
            after = written[at, EDGE_TARGET]
            edges[edge + at, EDGE_FIRST] = written[at, EDGE_FIRST]
            edges[edge + at, EDGE_LAST] = written[at, EDGE_LAST]
            edges[edge + at, EDGE_TARGET] = target if after < 0 else first + after
            at += 1
    for number in range(len(exits)):
        there = first + exits[number]
        nodes[there, LINK_LO], nodes[there, LINK_HI] = link + number, link + number + 1
        links[link + number, LINK_KIND], links[link + number, LINK_TARGET] = EPSILON, target
        links[link + number, LINK_ARGUMENT] = 0


@njit
def lay_names(
    nodes: Ints,
    edges: Ints,
    links: Ints,
    begin: Int,
    data: Bytes,
    ends: Ints,
    rules: Ints,
    node: Int,
    after: Int,
    first: Int,
    edge: Int,
    link: Int,
    guard: Int,
    more: Int,
) -> None:
    """Lay out many texts after a node, each with a guard before it and a call after it that returns to `after`.

    All texts begin with the byte `begin`, which is read before the guards. So preceding white space leads to one node,
    not to one for each text. data, ends: further bytes of all texts, and the end of each text; rules: the rule called
    after each text; guard: the first text's guard
    first, edge, link: free places, for a node and an edge for each byte and one more, two more nodes and three links
    for each text, and `more` links after the guards' links, which the caller writes. The links of `node` come last, and
    are empty so far. All nodes take the rule and counter of `node`.
    """
    count = len(ends)
    guarded = link + 2 * count
    nodes[node, EDGE_LO], nodes[node, EDGE_HI], nodes[node, FLAGS] = edge, edge + 1, 0
    nodes[node, LINK_LO] = nodes[node, LINK_HI] = guarded + count + more
    edges[edge, EDGE_FIRST] = edges[edge, EDGE_LAST] = begin
    edges[edge, EDGE_TARGET] = first
    nodes[first, RULE], nodes[first, COUNTER] = nodes[node, RULE], nodes[node, COUNTER]
    nodes[first, LINK_LO], nodes[first, LINK_HI] = guarded, guarded + count + more
    at, place, edge = 0, first + 1, edge + 1
    for number in range(count):
        links[guarded + number, LINK_KIND] = GUARD
        links[guarded + number, LINK_TARGET] = place
        links[guarded + number, LINK_ARGUMENT] = guard + number
        length = ends[number] - at
        for i in range(length + 2):
            nodes[place + i, RULE] = nodes[node, RULE]
            nodes[place + i, COUNTER] = nodes[node, COUNTER]
        for i in range(length):
            nodes[place, EDGE_LO], nodes[place, EDGE_HI] = edge, edge + 1
            edges[edge, EDGE_FIRST] = edges[edge, EDGE_LAST] = data[at + i]
            edges[edge, EDGE_TARGET] = place + 1
            edge += 1
            place += 1
        at += length
        nodes[place, LINK_LO], nodes[place, LINK_HI] = link, link + 1
        links[link, LINK_KIND], links[link, LINK_TARGET], links[link, LINK_ARGUMENT] = CALL, rules[number], place + 1
        nodes[place + 1, LINK_LO], nodes[place + 1, LINK_HI] = link + 1, link + 2
        links[link + 1, LINK_KIND], links[link + 1, LINK_TARGET], links[link + 1, LINK_ARGUMENT] = EPSILON, after, 0
        link += 2
        place += 2


@njit
def measure_trie(texts: Bytes, sizes: Ints) -> Int:
    """Measure a trie of sorted texts: write its bytes to sizes[0], and its branches to sizes[1]. Returns 0.

    texts: uint8 [n, length], all different
    """
    count, length = texts.shape
    depths = np.empty(count, np.int64)
    known = 0
    total, ways = length, count - 1
    for number in range(1, count):
        depth = 0
        while texts[number, depth] == texts[number - 1, depth]:
            depth += 1
        total += length - depth
        while known and depths[known - 1] > depth:
            known -= 1
        if not known or depths[known - 1] != depth:
            depths[known] = depth
            known += 1
            ways += 1
    sizes[0], sizes[1] = total, ways
    return 0


@njit
def lay_trie(
    nodes: Ints,
    edges: Ints,
    links: Ints,
    guards: Ints,
    texts: Bytes,
    rule: Int,
    node: Int,
    after: Int,
    bit: Int,
    first: Int,
    edge: Int,
    link: Int,
    guard: Int,
) -> Int:
    """Lay out a trie of texts of one length; after each text a rule is called, which returns to `after`. Returns 0.

    A guard before each branch requires that some text below it has its bit, in a large set, missing. A guard after each
    text adds its bit. texts: uint8 [n, length], sorted; bit: the first text's bit, followed by the others'
    first, edge, link, guard: free places, as `measure_trie` counts, for a node (the root), and a node and an edge for
    each byte; a node, a link and a guard for each branch; two more nodes, three links and a guard for each text.
    All nodes take the rule and counter of `node`.
    """
    count, length = texts.shape
    todo = np.empty((256 * (length + 1), 4), np.int64)
    todo[0, 0], todo[0, 1], todo[0, 2], todo[0, 3] = 0, count, 0, first
    waiting, fresh = 1, first + 1
    nodes[first, RULE], nodes[first, COUNTER] = nodes[node, RULE], nodes[node, COUNTER]
    while waiting:
        waiting -= 1
        lo, hi, depth, place = todo[waiting, 0], todo[waiting, 1], todo[waiting, 2], todo[waiting, 3]
        if depth == length:
            links[link, LINK_KIND], links[link, LINK_TARGET], links[link, LINK_ARGUMENT] = GUARD, fresh, guard
            guards[guard, ALL], guards[guard, REFUSED] = 0, 0
            guards[guard, KEPT_BITS], guards[guard, ADDED] = -1, bit + lo + 1
            links[link + 1, LINK_KIND], links[link + 1, LINK_TARGET] = CALL, rule
            links[link + 1, LINK_ARGUMENT] = fresh + 1
            links[link + 2, LINK_KIND], links[link + 2, LINK_TARGET] = EPSILON, after
            links[link + 2, LINK_ARGUMENT] = 0
            for number, at in enumerate((place, fresh, fresh + 1)):
                nodes[at, RULE], nodes[at, COUNTER] = nodes[node, RULE], nodes[node, COUNTER]
                nodes[at, LINK_LO], nodes[at, LINK_HI] = link + number, link + number + 1
            fresh, link, guard = fresh + 2, link + 3, guard + 1
            continue
        ways = 1
        for number in range(lo + 1, hi):
            ways += texts[number, depth] != texts[number - 1, depth]
        if ways > 1:
            nodes[place, LINK_LO], nodes[place, LINK_HI] = link, link + ways
        begin = lo
        while begin < hi:
            end = begin + 1
            while end < hi and texts[end, depth] == texts[begin, depth]:
                end += 1
            source = place
            if ways > 1:
                source, fresh = fresh, fresh + 1
                links[link, LINK_KIND], links[link, LINK_TARGET], links[link, LINK_ARGUMENT] = GUARD, source, guard
                guards[guard, ALL], guards[guard, REFUSED] = 0, bit + begin + 1
                guards[guard, KEPT_BITS], guards[guard, ADDED] = begin - end, 0
                link, guard = link + 1, guard + 1
            nodes[source, RULE], nodes[source, COUNTER] = nodes[node, RULE], nodes[node, COUNTER]
            nodes[source, EDGE_LO], nodes[source, EDGE_HI] = edge, edge + 1
            edges[edge, EDGE_FIRST] = edges[edge, EDGE_LAST] = texts[begin, depth]
            edges[edge, EDGE_TARGET] = fresh
            nodes[fresh, RULE], nodes[fresh, COUNTER] = nodes[node, RULE], nodes[node, COUNTER]
            todo[waiting, 0], todo[waiting, 1], todo[waiting, 2], todo[waiting, 3] = begin, end, depth + 1, fresh
            waiting, fresh, edge = waiting + 1, fresh + 1, edge + 1
            begin = end
    return 0


@njit
def look_ahead(nodes: Ints, links: Ints, begin: Ints, found: Ints) -> Int:
    """Write the lazy nodes that unconditional links reach from the nodes `begin` to `found`. Return their number.

    Each node is examined once, and is marked LOOKED.
    """
    todo = np.empty(len(begin) + len(nodes), np.int32)
    count = waiting = 0
    for at in range(len(begin)):
        todo[waiting] = begin[at]
        waiting += 1
    while waiting:
        waiting -= 1
        node = todo[waiting]
        for at in range(nodes[node, LINK_LO], nodes[node, LINK_HI]):
            kind, target = links[at, LINK_KIND], links[at, LINK_TARGET]
            if kind in (CALL, INCREMENT) or (kind == EPSILON and links[at, LINK_ARGUMENT] == 0):
                flags = nodes[target, FLAGS]
                if flags & LOOKED:
                    continue
                nodes[target, FLAGS] = flags | LOOKED
                if flags & LAZY:
                    found[count] = target
                    count += 1
                else:
                    todo[waiting] = target
                    waiting += 1
    return count
