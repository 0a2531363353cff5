"""Annotations worked out along a trie in preorder, whose nodes may lie as deep as the longest token has bytes."""

from __future__ import annotations

import numpy as np

from ..jit.aliases import Bytes, Int, Ints
from ..jit.wide import njit


@njit
def find_parents(depth: Ints, parents: Ints) -> None:
    """Fill in the parent of each node of a trie in preorder (int32 [n]); the root, node 0, is its own."""
    deepest = 0
    for node in range(len(depth)):
        deepest = max(deepest, depth[node])
    last = np.zeros(deepest + 1, np.int32)  # the last node met at each depth
    parents[0] = 0
    for node in range(1, len(depth)):
        parents[node] = last[depth[node] - 1]
        last[depth[node]] = node


@njit
def find_reach(parents: Ints, reach: Ints) -> None:
    """Raise the depth of each node to that of the deepest node at or below it, in place (int32 [n])."""
    for node in range(len(parents) - 1, 0, -1):
        above = parents[node]
        reach[above] = max(reach[above], reach[node])


@njit
def follow_table(parents: Ints, byte: Bytes, table: Ints, first: Int, end: Int, after: Ints) -> None:
    """Fill in after[first:end], the states after the bytes of these nodes, from that of the node before them.

    table: int32 [states, 256], complete; after: int32 [n]
    """
    for node in range(first, end):
        after[node] = table[after[parents[node]], byte[node]]
