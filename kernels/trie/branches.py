"""The trie of a vocabulary as walks take it, the well-formed characters in it, and the tokens at its nodes."""

from __future__ import annotations

import numpy as np

from ..jit.aliases import Bits, Bytes, Int, Ints, Words
from ..jit.arrays import Arrays, Table, Vector
from ..jit.wide import inner_njit, njit
from ..utf8 import FIRST_NEXT, PLACES, begins, utf8_step

# Columns of Branches.tokens and of Branches.below. In the last one the most characters begun are above two bits, which
# say whether there is no byte above ASCII below the node, only well-formed UTF-8, or something else.
OWN, OWN_END, SUBTREE_END = range(3)
BELOW_LOW, BELOW_HIGH, BEYOND = range(3)
NO_HIGH, WELL_FORMED, ILL_FORMED = 0, 1, 2
BEGUN_SHIFT, KIND_MASK = np.uint64(2), np.uint64(3)


class TokenTrie(Arrays):
    """The trie of a vocabulary in preorder; see `tokenizers_adapter.Trie`.

    byte: uint8 [n]; skip, depth: int32 [n]; token_start: int32 [n + 1]; ids: int32 [tokens] (node 0 = root)
    deepest: the length of the longest token
    """

    byte: Vector[np.uint8]
    skip: Vector[np.int32]
    depth: Vector[np.int32]
    token_start: Vector[np.int32]
    ids: Vector[np.int32]
    deepest: int


class Branches(Arrays):
    """The same trie by levels, for walks: the children of a node lie side by side, in the order of their bytes.

    A walk looks at all children of the nodes that it comes to, and at little else; so what it needs of a node lies
    together, since the trie does not fit the caches.

    first: int32 [n + 1], the first child of each node; they end where those of the next node begin
    byte: uint8 [n]; ids: int32 [tokens], as those of `TokenTrie`
    tokens: int32 [n, 3], where in ids the tokens of a node begin and end, and where those of its whole subtree end
    below: uint64 [n, 3], the ASCII bytes below the node in two words; the most characters begun below the node along
    one path, with what there is beyond ASCII: NO_HIGH, WELL_FORMED or ILL_FORMED
    deepest: the length of the longest token
    """

    first: Vector[np.int32]
    byte: Vector[np.uint8]
    ids: Vector[np.int32]
    tokens: Table[np.int32]
    below: Table[np.uint64]
    deepest: int


@njit
def annotate(byte: Bytes, skip: Ints, below: Bits) -> None:
    """Fill `Branches.below` for the nodes of a trie in preorder, bottom up."""
    count = len(byte)
    formed = np.full(count, (1 << PLACES) - 1, np.int32)
    for node in range(count - 1, -1, -1):
        child = node + 1
        has_high = False
        most = 0
        while child < skip[node]:
            value = np.int32(byte[child])
            below[node, BELOW_LOW] |= below[child, BELOW_LOW]
            below[node, BELOW_HIGH] |= below[child, BELOW_HIGH]
            if value < FIRST_NEXT:
                below[node, value >> 6] |= np.uint64(1) << np.uint64(value & 63)
            has_high |= value >= FIRST_NEXT or below[child, BEYOND] & KIND_MASK != NO_HIGH
            begun = np.int64(below[child, BEYOND] >> BEGUN_SHIFT) + (1 if begins(value) else 0)
            most = max(most, begun)
            for state in range(PLACES):
                after = utf8_step(state, value)
                if after < 0 or formed[child] >> after & 1 == 0:
                    formed[node] &= ~(1 << state)
            child = skip[child]
        kind = NO_HIGH
        if has_high:
            kind = WELL_FORMED if formed[node] & 1 else ILL_FORMED
        below[node, BEYOND] = np.uint64(most << 2 | kind)


@inner_njit
def allow(trie: Branches, first: Int, last: Int, out: Words) -> None:
    """Set the bits of the tokens ids[first:last]."""
    for at in range(first, last):
        token = trie.ids[at]
        out[token >> 5] |= np.uint32(1) << np.uint32(token & 31)


@njit
def allow_span(trie: Branches, first: Int, last: Int, out: Words) -> None:
    """`allow`, to be called from Python."""
    allow(trie, first, last, out)


@inner_njit
def refuse(trie: Branches, first: Int, last: Int, out: Words) -> None:
    """Clear the bits of the tokens ids[first:last]."""
    for at in range(first, last):
        token = trie.ids[at]
        out[token >> 5] &= ~(np.uint32(1) << np.uint32(token & 31))
