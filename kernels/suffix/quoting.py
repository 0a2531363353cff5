"""Walks of the token trie along a suffix tree: which tokens continue a quotation, and the fewest tokens that end it.

A place in the tree is (node, depth): the suffixes below `node`, `depth` bytes of which have been read. At node
ANY = inner nodes + suffixes, used without limits of length, depth is a position in the context: after a suffix has
become the only candidate, its future depends on the position alone.
"""

from __future__ import annotations

import numpy as np

from ..answers import DEAD, EXHAUSTED, NEVER, SPENT, spend
from ..chart.layout import EDGE_FIRST, EDGE_LAST, EDGE_TARGET
from ..jit.aliases import Bytes, Int, Ints, Longs, Truth, Words
from ..jit.arrays import Arrays, Vector
from ..jit.wide import inner_njit, njit
from ..trie.branches import OWN, OWN_END, Branches, allow
from .tree import END

# Entries of a place, and columns of the stack of a walk.
NODE, DEPTH = range(2)
HELD_BELOW, HELD_NODE, HELD_DEPTH = range(3)


class Quotable(Arrays):
    """A context, the positions where quotations begin, as a suffix tree, and the positions where they may end.

    text: uint8 [n], END where no quotation continues; ends: uint8 [n], 1 if one may end before this byte
    starts ... child: see `tree.SuffixTree`
    least, reach: int32 [m], fewest and most bytes of a quotation that begins there (it may end at the most), reach -1
    where none begins; furthest: int32 [I], the greatest reach below a node. All three are empty if lengths have no
    limits: quotations may continue to the next END, and end wherever `ends` allows.
    """

    text: Vector[np.uint8]
    ends: Vector[np.uint8]
    starts: Vector[np.int32]
    lo: Vector[np.int32]
    hi: Vector[np.int32]
    depth: Vector[np.int32]
    child_begin: Vector[np.int32]
    child_byte: Vector[np.uint8]
    child: Vector[np.int32]
    least: Vector[np.int32]
    reach: Vector[np.int32]
    furthest: Vector[np.int32]


class QuotingMeter(Arrays):
    """The meter of a call: int64 [3], see kernels/answers.py. Kernels return EXHAUSTED beyond its limit."""

    meter: Vector[np.int64]


@njit
def spread_reach(lo: Ints, hi: Ints, child_begin: Ints, child: Ints, reach: Ints, furthest: Ints) -> None:
    """Write the greatest reach below each inner node to furthest (int32 [I]).

    Suffixes that end at a node are not its children. They come after its children, because END is above all bytes.
    """
    nodes = len(lo)
    parent = np.full(nodes, -1, np.int32)
    furthest[:] = -1
    waiting = np.zeros(nodes, np.int32)
    for node in range(nodes):
        ended = lo[node]
        for at in range(child_begin[node], child_begin[node + 1]):
            if child[at] < nodes:
                parent[child[at]] = node
                waiting[node] += 1
                ended = hi[child[at]]
            else:
                ended = child[at] - nodes + 1
                furthest[node] = max(furthest[node], reach[ended - 1])
        for i in range(ended, hi[node]):
            furthest[node] = max(furthest[node], reach[i])
    for first in range(nodes):
        node = first
        while node >= 0 and waiting[node] == 0:
            waiting[node] = -1
            above = parent[node]
            if above >= 0:
                furthest[above] = max(furthest[above], furthest[node])
                waiting[above] -= 1
            node = above


@inner_njit
def suffixes_below(quotable: Quotable, node: Int) -> tuple[Int, Int]:
    """Return the range of suffixes below a node other than ANY."""
    nodes = len(quotable.lo)
    if node < nodes:
        return np.int64(quotable.lo[node]), np.int64(quotable.hi[node])
    return np.int64(node - nodes), np.int64(node - nodes + 1)


@inner_njit
def next_place(quotable: Quotable, node: Int, depth: Int) -> Int:
    """Return the position in the context of the next byte, for the first suffix below the node."""
    nodes = len(quotable.lo)
    if node < nodes:
        return np.int64(quotable.starts[quotable.lo[node]] + depth)
    if node < nodes + len(quotable.starts):
        return np.int64(quotable.starts[node - nodes] + depth)
    return np.int64(depth)


@inner_njit
def has_room(quotable: Quotable, node: Int, depth: Int) -> bool:
    """Test whether some quotation below the node may be longer than `depth` bytes."""
    if len(quotable.reach) == 0:
        return True
    nodes = len(quotable.lo)
    return depth < (quotable.furthest[node] if node < nodes else quotable.reach[node - nodes])


@inner_njit
def step(quotable: Quotable, node: Int, depth: Int, byte: Int) -> tuple[Int, Int]:
    """Return the place after a byte; node DEAD if no quotation continues with it."""
    nodes = len(quotable.lo)
    if byte == END:
        return DEAD, 0
    if node < nodes and depth == quotable.depth[node]:
        for at in range(quotable.child_begin[node], quotable.child_begin[node + 1]):
            if quotable.child_byte[at] == byte:
                after = np.int64(quotable.child[at])
                return (after, depth + 1) if has_room(quotable, after, depth) else (DEAD, 0)
        return DEAD, 0
    if quotable.text[next_place(quotable, node, depth)] != byte or not has_room(quotable, node, depth):
        return DEAD, 0
    return node, depth + 1


@njit
def follow(quotable: Quotable, place: Longs, data: Bytes, first: Int, last: Int) -> bool:
    """Move place (int64 [2]: node, depth) on by data[first:last]. Return False if no quotation continues with it."""
    node, depth = place[NODE], place[DEPTH]
    for at in range(first, last):
        node, depth = step(quotable, node, depth, data[at])
        if node < 0:
            return False
    place[NODE], place[DEPTH] = node, depth
    return True


@njit
def read(quotable: Quotable, place: Longs, data: Bytes, first: Int, last: Int) -> bool:
    """Like `follow`; then map places with equal futures to one where this is cheap to see (ANY)."""
    if not follow(quotable, place, data, first, last):
        return False
    nodes = len(quotable.lo)
    if nodes <= place[NODE] < nodes + len(quotable.starts) and len(quotable.reach) == 0:
        place[DEPTH] = next_place(quotable, place[NODE], place[DEPTH])
        place[NODE] = nodes + len(quotable.starts)
    return True


@njit
def accepts(quotable: Quotable, node: Int, depth: Int) -> bool:
    """Test whether a quotation may end at a place."""
    nodes = len(quotable.lo)
    if node == nodes + len(quotable.starts):
        return quotable.ends[depth] == 1
    if depth == 0:
        return False
    limited = len(quotable.reach) > 0
    first, last = suffixes_below(quotable, node)
    for i in range(first, last):
        if quotable.ends[quotable.starts[i] + depth] and (
            not limited or quotable.least[i] <= depth <= quotable.reach[i]
        ):
            return True
    return False


@inner_njit
def child_by(trie: Branches, node: Int, byte: Int) -> Int:
    """Return the child of a trie node by a byte, or -1."""
    low, end = np.int64(trie.first[node]), np.int64(trie.first[node + 1])
    last = end
    while low < end:
        middle = (low + end) >> 1
        if trie.byte[middle] < byte:
            low = middle + 1
        else:
            end = middle
    return low if low < last and trie.byte[low] == byte else np.int64(-1)


@njit
def count_tokens(text: Bytes, ends: Bytes, trie: Branches, needed: Ints, work: QuotingMeter) -> Int:
    """Write the fewest tokens from each position to one where a quotation may end to needed (int32 [n]).

    Returns 0, or EXHAUSTED.
    """
    for begin in range(len(text) - 1, -1, -1):
        if ends[begin]:
            needed[begin] = 0
            continue
        best = np.int32(NEVER)
        at, byte = begin, text[begin]
        node = child_by(trie, 0, byte) if byte != END else np.int64(-1)
        while node >= 0:
            at += 1
            if trie.tokens[node, OWN_END] > trie.tokens[node, OWN]:
                best = min(best, needed[at] + 1)
                if best == 1:
                    break
            byte = text[at]
            node = child_by(trie, node, byte) if byte != END else np.int64(-1)
        needed[begin] = min(best, NEVER)
        if spend(work, at - begin + 2):
            return EXHAUSTED
    return 0


@inner_njit
def one_more(text: Bytes, trie: Branches, needed: Ints, begin: Int) -> Int:
    """Return the fewest tokens from a position to an end other than itself."""
    best = NEVER
    node, at = np.int64(0), begin
    while best > 1 and text[at] != END:
        node = child_by(trie, node, text[at])
        if node < 0:
            break
        at += 1
        if trie.tokens[node, OWN_END] > trie.tokens[node, OWN]:
            best = min(best, needed[at] + 1)
    return best


@inner_njit
def stays_within(text: Bytes, trie: Branches, needed: Ints, begin: Int, last: Int, work: QuotingMeter) -> Truth:
    """Test whether one shortest spelling from `begin` to an end stays at or before `last`."""
    first = begin
    while needed[begin] and begin <= last:
        node, at = np.int64(0), begin
        while True:
            node = child_by(trie, node, text[at])
            at += 1
            if trie.tokens[node, OWN_END] > trie.tokens[node, OWN] and needed[at] == needed[begin] - 1:
                break
        begin = at
    work.meter[SPENT] += (begin - first) >> 2
    return begin <= last


@inner_njit
def spell(
    quotable: Quotable, trie: Branches, needed: Ints, begin: Int, least: Int, last: Int, work: QuotingMeter
) -> Int:
    """Return the fewest tokens from a position to an end from `least` to `last`, or EXHAUSTED."""
    text = quotable.text
    if begin >= least and (needed[begin] >= NEVER or stays_within(text, trie, needed, begin, last, work)):
        return np.int64(needed[begin])
    for limit in (min(last, max(least, begin) + trie.deepest), last):
        is_whole = True
        fewest = np.full(limit - begin + 1, NEVER, np.int32)
        for at in range(limit, begin - 1, -1):
            if at >= least and (needed[at] >= NEVER or stays_within(text, trie, needed, at, last, work)):
                fewest[at - begin] = needed[at]
                continue
            is_whole = is_whole and at < least
            if spend(work, 1):
                return np.int64(EXHAUSTED)
            node, to = np.int64(0), at
            while to < limit:
                node = child_by(trie, node, text[to])
                if node < 0:
                    break
                to += 1
                if trie.tokens[node, OWN_END] > trie.tokens[node, OWN]:
                    fewest[at - begin] = min(fewest[at - begin], fewest[to - begin] + 1)
            work.meter[SPENT] += (to - at) >> 1
        if is_whole or limit == last:
            break
    return np.int64(fewest[0])


@inner_njit
def fewest_tokens_of(quotable: Quotable, trie: Branches, needed: Ints, i: Int, depth: Int, work: QuotingMeter) -> Int:
    """Return the fewest tokens that complete the quotation of suffix i after `depth` bytes; NEVER, or EXHAUSTED."""
    begin = quotable.starts[i] + depth
    if len(quotable.reach) == 0:
        if depth == 0 and needed[begin] == 0:
            return np.int64(one_more(quotable.text, trie, needed, begin))
        return np.int64(needed[begin])
    if depth > quotable.reach[i]:
        return np.int64(NEVER)
    start = quotable.starts[i]
    return spell(quotable, trie, needed, begin, start + quotable.least[i], start + quotable.reach[i], work)


@njit
def fewest_tokens(
    quotable: Quotable,
    trie: Branches,
    needed: Ints,
    stride: Int,
    node: Int,
    depth: Int,
    enough: Int,
    work: QuotingMeter,
) -> Int:
    """Return the fewest tokens from a place to an end; any upper bound of it if this is at most `enough`; or EXHAUSTED.

    stride: with limits of length, only every stride-th suffix is examined from this many suffixes on. The result is an
    upper bound then, and it decreases along the spelling that it counts, since that leads to the same suffix.
    """
    if node == len(quotable.lo) + len(quotable.starts):
        return np.int64(needed[depth])
    first, last = suffixes_below(quotable, node)
    by = 1
    if len(quotable.reach) > 0:
        if accepts(quotable, node, depth):
            return np.int64(0)
        if last - first >= stride:
            by = stride
            first = (first + stride - 1) // stride * stride
    best = np.int64(NEVER)
    for i in range(first, last, by):
        if spend(work, 2):
            return np.int64(EXHAUSTED)
        best = min(best, fewest_tokens_of(quotable, trie, needed, i, depth, work))
        if best <= enough:
            break
    return best


@njit
def walk_quotable(
    quotable: Quotable,
    trie: Branches,
    needed: Ints,
    stride: Int,
    node: Int,
    depth: Int,
    root: Int,
    most: Int,
    stack: Ints,
    out: Words,
    work: QuotingMeter,
) -> Int:
    """Allow every token that continues a quotation, and after which at most `most` tokens complete it.

    Returns 0, or EXHAUSTED.

    root: trie node whose text has been read already; only the rest of the tokens below it is read
    most: NEVER for no limit; stack: int32 [256 * (deepest + 1), 3], scratch; out: uint32 [words]
    """
    nodes = len(quotable.lo)
    below, node, depth = np.int64(root), np.int64(node), np.int64(depth)
    top = 0
    while True:
        child, end = np.int64(trie.first[below]), np.int64(trie.first[below + 1])
        if node < nodes and depth == quotable.depth[node]:
            at: Int = quotable.child_begin[node]
            last: Int = quotable.child_begin[node + 1]
            while at < last and child < end:
                byte, wanted = quotable.child_byte[at], trie.byte[child]
                if byte == wanted and has_room(quotable, quotable.child[at], depth):
                    stack[top, HELD_BELOW], stack[top, HELD_NODE], stack[top, HELD_DEPTH] = (
                        child,
                        quotable.child[at],
                        depth + 1,
                    )
                    top += 1
                at += byte <= wanted
                child += wanted <= byte
        elif child < end and has_room(quotable, node, depth):
            byte = quotable.text[next_place(quotable, node, depth)]
            if byte != END:
                child = child_by(trie, below, byte)
                if child >= 0:
                    stack[top, HELD_BELOW], stack[top, HELD_NODE], stack[top, HELD_DEPTH] = child, node, depth + 1
                    top += 1
        if top == 0:
            return 0
        if spend(work, 10):
            return EXHAUSTED
        top -= 1
        below, node, depth = (
            np.int64(stack[top, HELD_BELOW]),
            np.int64(stack[top, HELD_NODE]),
            np.int64(stack[top, HELD_DEPTH]),
        )
        first, end = trie.tokens[below, OWN], trie.tokens[below, OWN_END]
        if end > first:
            fewest = np.int64(0)
            if most < NEVER:
                fewest = fewest_tokens(quotable, trie, needed, stride, node, depth, most, work)
                if fewest == EXHAUSTED:
                    return EXHAUSTED
            if fewest <= most:
                allow(trie, first, end, out)


# Rows of `inner` in `unfolded_size`.
NUMBER, LEVEL = range(2)


@njit
def unfolded_size(quotable: Quotable, inner: Longs, later: Longs) -> Int:
    """Number the places, in inner (int64 [2, I]) and later (int64 [m] or [n], filled with -1). Return their count.

    inner: for each inner node the number and the depth of its first place, which lies beyond its parent
    later: without limits, the number of each position of the context that is reached with one suffix left; with limits,
    the number of the first place of each suffix as the only one
    """
    nodes, limited = len(quotable.lo), len(quotable.reach) > 0
    count = np.int64(1)
    for node in range(nodes):
        for at in range(quotable.child_begin[node], quotable.child_begin[node + 1]):
            child: Int = quotable.child[at]
            first = np.int64(quotable.depth[node] + 1)
            if child < nodes:
                inner[NUMBER, child], inner[LEVEL, child] = count, first
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
    """Write the places in the order of `unfolded_size`, with their edges. Return the number of edges.

    ends: int32, the end of each place's edges; edges: int32 [n, 3]; exits: uint8, whether a quotation may end there
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
    """Write the places of one inner node for `unfold`. Return the number of edges so far."""
    nodes, limited = len(quotable.lo), len(quotable.reach) > 0
    number, depth = inner[NUMBER, node], inner[LEVEL, node]
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
