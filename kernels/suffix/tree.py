"""A suffix tree of the suffixes that begin at chosen positions, on arrays.

Suffixes are sorted by prefix doubling (U. Manber and G. Myers, "Suffix arrays", 1990), first by eight bytes, then the
ties only. Common prefixes are measured in one pass (T. Kasai et al., "Linear-time longest-common-prefix computation",
2001), and a stack makes the nodes from them (M. Abouelhoda et al., "Replacing suffix trees with enhanced suffix
arrays", 2004).

Many keys are sorted by sample sort (W. D. Frazer and A. C. McKellar, "Samplesort", 1970), a bucket at a time, so that
the caller can interrupt it every few milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..jit.aliases import Bytes, Int, Ints
from ..jit.wide import njit

PIECE = 1 << 17
"""Number of keys that are sorted at a time, approximately."""
MAX_BUCKETS, SAMPLES_PER_BUCKET = 255, 64


def argsorted(
    keys: NDArray[Any], look: Callable[[int], None], kind: Literal["quicksort", "stable"] = "quicksort"
) -> NDArray[np.intp]:
    """Return `np.argsort(keys, kind=kind)`, intp [n], interruptibly; equal keys are sorted at once.

    look: is called with 0 every few milliseconds, and may raise
    """
    if len(keys) <= PIECE:
        return np.argsort(keys, kind=kind)
    count = min(MAX_BUCKETS, 2 * len(keys) // PIECE)
    sample = np.sort(keys[:: max(1, len(keys) // (SAMPLES_PER_BUCKET * count))])
    pivots = np.unique(sample[SAMPLES_PER_BUCKET // 2 :: SAMPLES_PER_BUCKET][:count])
    bucket = np.empty(len(keys), np.uint8)
    for first in range(0, len(keys), PIECE):
        look(0)
        bucket[first : first + PIECE] = np.searchsorted(pivots, keys[first : first + PIECE], "right")
    order = np.argsort(bucket, kind="stable")  # NumPy uses a radix sort here
    ends = np.cumsum(np.bincount(bucket))
    for first, end in zip((0, *ends[:-1].tolist()), ends.tolist(), strict=True):
        look(0)
        places = order[first:end]
        order[first:end] = places[np.argsort(keys[places], kind=kind)]
    return order


# Steps of about 10 ns: everything but the sorting, including its first round; and each further round, for each tie.
STEPS_PER_BYTE, STEPS_PER_SUFFIX = 6, 4
# Separator byte, at which no suffix continues. It does not occur in UTF-8.
END = 0xFF


class SuffixTree(NamedTuple):
    """The chosen suffixes in order, and the inner nodes of their tree. Nodes I ... I + m - 1 are the suffixes.

    starts: int32 [m], the beginning of each suffix
    lo, hi: int32 [I], range of suffixes below an inner node; node 0 is the root
    depth: int32 [I], length of their common prefix
    child_begin: int32 [I + 1]; child_byte: uint8, the byte of the edge to each child, ascending; child: int32
    """

    starts: NDArray[np.int32]
    lo: NDArray[np.int32]
    hi: NDArray[np.int32]
    depth: NDArray[np.int32]
    child_begin: NDArray[np.int32]
    child_byte: NDArray[np.uint8]
    child: NDArray[np.int32]


def build(text: NDArray[np.uint8], chosen: NDArray[np.bool_], spend: Callable[[int], None]) -> SuffixTree:
    """Build the tree of suffixes of `text` (uint8 [n], END last) that begin where `chosen` (bool [n], once at least).

    spend: is called with steps of work before they are taken, and may raise
    """
    spend(STEPS_PER_BYTE * len(text))
    order = sort_suffixes(text, spend)
    common = np.empty(len(text), np.int32)
    spend(0)
    measure_common(text, order, common)
    spend(0)
    kept = np.flatnonzero(chosen[order])
    starts = order[kept]
    between = np.zeros(len(starts) + 1, np.int32)
    between[1:-1] = np.minimum.reduceat(common[: kept[-1] + 1], kept[:-1] + 1) if len(kept) > 1 else 0
    del order, common, kept
    room = len(starts) + 1
    inner = np.zeros((4, room), np.int32)
    parents = np.empty(room, np.int32)
    count = find_nodes(between, inner, parents)
    spend(0)
    lo, hi, depth, above = (column[:count].copy() for column in inner)
    child_begin = np.zeros(count + 1, np.int32)
    child = np.empty(count + len(starts), np.int32)
    child_byte = np.empty(len(child), np.uint8)
    by_lo = argsorted(lo, spend, "stable").astype(np.int32)
    spend(0)
    used = list_children(text, starts, lo, depth, above, parents, by_lo, child_begin, child_byte, child)
    return SuffixTree(starts, lo, hi, depth, child_begin, child_byte[:used].copy(), child[:used].copy())


def sort_suffixes(text: NDArray[np.uint8], spend: Callable[[int], None]) -> NDArray[np.int32]:
    """Return the suffix array, int32 [n]; the text is padded with zeros."""
    count = len(text)
    padded = np.zeros(count + 8, np.uint8)
    padded[:count] = text
    key = np.zeros(count, np.uint64)
    for ahead in range(8):
        spend(0)
        key <<= np.uint64(8)
        key |= padded[ahead : ahead + count]
    order = argsorted(key, spend).astype(np.int32)
    spend(0)
    key = key[order]
    place = np.arange(count, dtype=np.int32)
    rank = np.empty(count + 1, np.int32)
    rank[count] = -1
    first = np.ones(count, np.bool_)
    first[1:] = key[1:] != key[:-1]
    del key
    length = 8
    while True:
        spend(0)
        # Suffixes that tie share the rank of the first of them.
        group = np.maximum.accumulate(np.where(first, place, 0))
        rank[order[place]] = group
        alone = first & np.append(first[1:], True)
        place, group = place[~alone], group[~alone]
        if not len(place):
            return order
        spend(STEPS_PER_SUFFIX * len(place))
        suffixes = order[place]
        after = rank[np.minimum(suffixes.astype(np.int64) + length, count)]
        key = (group.astype(np.int64) << 32) + after
        sorting = argsorted(key, spend)
        spend(0)
        order[place] = suffixes[sorting]
        key = key[sorting]
        first = np.ones(len(place), np.bool_)
        first[1:] = key[1:] != key[:-1]
        length *= 2


@njit
def measure_common(text: Bytes, order: Ints, common: Ints) -> None:
    """Write each suffix's common prefix with the one before it in `order`, up to END, to common (int32 [n])."""
    count = len(order)
    before = np.empty(count, np.int32)
    before[order[0]] = -1
    for i in range(1, count):
        before[order[i]] = order[i - 1]
    shared = 0
    for at in range(count):
        other = before[at]
        if other < 0:
            shared = 0
        else:
            while at + shared < count and other + shared < count:
                byte = text[at + shared]
                if byte != text[other + shared] or byte == END:
                    break
                shared += 1
        before[at] = shared
        shared = max(0, shared - 1)
    for i in range(count):
        common[i] = before[order[i]]


@njit
def find_nodes(between: Ints, inner: Ints, parents: Ints) -> Int:
    """Write the inner nodes to inner (int32 [4, m + 1]: lo, hi, depth, parent) and the suffixes' parents; their number.

    between: int32 [m + 1], common prefix of each suffix with the one before it; 0 at both ends
    """
    lo, hi, depth, above = inner[0], inner[1], inner[2], inner[3]
    count = len(between) - 1
    stack = np.empty(count + 1, np.int32)
    stack[0] = 0
    hi[0] = count
    above[0] = -1
    top, nodes = 0, 1
    for i in range(1, count + 1):
        shared = between[i]
        if shared > depth[stack[top]]:
            lo[nodes], depth[nodes] = i - 1, shared
            top += 1
            stack[top] = nodes
            nodes += 1
        parents[i - 1] = stack[top]
        while depth[stack[top]] > shared:
            closed = stack[top]
            hi[closed] = i
            top -= 1
            if depth[stack[top]] < shared:
                lo[nodes], depth[nodes] = lo[closed], shared
                top += 1
                stack[top] = nodes
                nodes += 1
            above[closed] = stack[top]
    return nodes


@njit
def list_children(
    text: Bytes,
    starts: Ints,
    lo: Ints,
    depth: Ints,
    above: Ints,
    parents: Ints,
    by_lo: Ints,
    child_begin: Ints,
    child_byte: Bytes,
    child: Ints,
) -> Int:
    """Fill the lists of children, ascending by byte. Return their number.

    above, parents: int32, the parents of inner nodes and of suffixes; by_lo: int32 [I], inner nodes in order of lo
    """
    nodes, count = len(lo), len(starts)
    for node in range(1, nodes):
        child_begin[above[node] + 1] += 1
    for i in range(count):
        if text[starts[i] + depth[parents[i]]] != END:
            child_begin[parents[i] + 1] += 1
    for node in range(nodes):
        child_begin[node + 1] += child_begin[node]
    fill = child_begin[:nodes].copy()
    at = 0
    for i in range(count):
        while at < nodes and lo[by_lo[at]] == i:
            node = by_lo[at]
            at += 1
            if node:
                parent = above[node]
                child[fill[parent]] = node
                child_byte[fill[parent]] = text[starts[i] + depth[parent]]
                fill[parent] += 1
        parent = parents[i]
        byte = text[starts[i] + depth[parent]]
        if byte != END:
            child[fill[parent]] = nodes + i
            child_byte[fill[parent]] = byte
            fill[parent] += 1
    return child_begin[nodes]
