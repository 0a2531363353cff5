"""The token trie of a vocabulary, as flat arrays in preorder."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import LimitError

Ints = NDArray[np.int32]
Places = NDArray[np.int64]

# With more nodes, a guide's first mask takes over a second and half a gigabyte.
MAX_NODES = 1 << 22
_FEW = 100


class Trie(NamedTuple):
    """A trie with a node for each distinct prefix of tokens, in lexicographic order; node 0 is the empty prefix.

    The children of node n are n + 1, skip[n + 1], skip[skip[n + 1]] ... below skip[n]. Tokens that end at n are
    ids[token_start[n]:token_start[n + 1]]; tokens that begin with the prefix of n are
    ids[token_start[n]:token_start[skip[n]]]. Kernels use the form `kernels.trie.branches.TokenTrie`.
    """

    byte: NDArray[np.uint8]  # [N] the last byte of the node's prefix; 0 for the root
    skip: Ints  # [N] one past the last node of the node's subtree
    depth: Ints  # [N] the length of the node's prefix in bytes
    token_start: Ints  # [N + 1] index in ids of the node's first token
    ids: Ints  # [T] token ids in order of (bytes, id)

    @classmethod
    def build(cls, tokens: Sequence[bytes | None]) -> Trie:
        """Build the trie of all tokens that have bytes; the id of a token is its index.

        Distinct tokens are sorted. Each adds a node for each byte after the prefix that it shares with the previous
        token, so the nodes are in preorder. Raises LimitError for more than MAX_NODES nodes.
        """
        ids = [token for token, text in enumerate(tokens) if text]
        texts = [text for text in tokens if text]
        order = sorted(range(len(texts)), key=texts.__getitem__)
        if not order:
            empty = np.zeros(1, np.int32)
            return cls(np.zeros(1, np.uint8), empty + 1, empty, np.zeros(2, np.int32), empty[:0])
        ordered = [texts[place] for place in order]
        data = np.frombuffer(b"".join(ordered), np.uint8)
        length = np.fromiter(map(len, ordered), np.int64, len(ordered))
        begin = np.cumsum(length) - length
        new = np.fromiter((left != right for left, right in pairwise([b"", *ordered])), bool, len(ordered))
        shared = _shared_prefixes(data, begin[new], length[new])

        added = length[new] - shared
        end = 1 + np.cumsum(added)  # one past the last node that each distinct token adds
        if end[-1] > MAX_NODES:
            raise LimitError(
                f"the vocabulary's tokens have {end[-1]:,} different prefixes, more than the fixed limit of "
                f"{MAX_NODES:,}; leave out the longest tokens"
            )
        step = np.arange(1, int(end[-1])) - np.repeat(end - added, added)
        depth = np.zeros(int(end[-1]), np.int64)
        depth[1:] = np.repeat(shared + 1, added) + step
        byte = np.zeros(len(depth), np.uint8)
        byte[1:] = data[np.repeat(begin[new], added) + depth[1:] - 1]
        counts = np.zeros(len(depth) + 1, np.int64)
        counts[end] = np.bincount(np.cumsum(new) - 1)
        return cls(
            byte,
            _subtree_ends(depth, shared, end).astype(np.int32),
            depth.astype(np.int32),
            np.cumsum(counts).astype(np.int32),
            np.array(ids, np.int32)[order],
        )


def _shared_prefixes(data: NDArray[np.uint8], begin: Places, length: Places) -> Places:
    """Return the length of the prefix that each text shares with the previous one, int64 [texts]; 0 for the first.

    Each depth is one vectorised comparison of the pairs that agree so far, so the work is the number of shared bytes.
    The last _FEW pairs are compared one by one.
    """
    shared = np.zeros(len(begin), np.int64)
    shorter = np.minimum(length[1:], length[:-1])
    agreeing = np.arange(1, len(begin))
    depth = 0
    while len(agreeing) > _FEW:
        agreeing = agreeing[shorter[agreeing - 1] > depth]
        agreeing = agreeing[data[begin[agreeing] + depth] == data[begin[agreeing - 1] + depth]]
        depth += 1
        shared[agreeing] = depth
    for pair in agreeing.tolist():
        most = int(shorter[pair - 1])
        left, right = (data[begin[text] : begin[text] + most] for text in (pair - 1, pair))
        differing = left != right
        shared[pair] = int(differing.argmax()) if differing.any() else most
    return shared


def _subtree_ends(depth: Places, shared: Places, ends: Places) -> Places:
    """Return one past the last node of each node's subtree. depth: of the nodes in preorder

    shared: length of the prefix that each distinct text shares with the previous one
    ends: one past the last node that each distinct text adds
    """
    return _by_levels(depth) if depth.max() < len(shared) else _by_texts(depth, shared, ends)


def _by_levels(depth: Places) -> Places:
    """Compute subtree ends from the deepest level up. The end of a node is that of its last child.

    Children are in preorder, and NumPy's assignment keeps the last of several values for one index.
    """
    by_depth = np.argsort(depth, kind="stable")
    levels = np.split(by_depth, np.cumsum(np.bincount(depth))[:-1])
    end = np.arange(1, len(depth) + 1)
    for parents, children in reversed(list(pairwise(levels))):
        end[parents[np.searchsorted(parents, children) - 1]] = end[children]
    return end


def _by_texts(depth: Places, shared: Places, ends: Places) -> Places:
    """Compute subtree ends text by text: a text's first new node ends those nodes of the previous one not shared."""
    end = np.full(len(depth), len(depth))
    path = np.zeros(int(depth.max()) + 1, np.int64)
    first = 1
    length = 0
    for common, last in zip(shared.tolist(), ends.tolist(), strict=True):
        end[path[common + 1 : length + 1]] = first
        length = common + last - first
        path[common + 1 : length + 1] = np.arange(first, last)
        first = last
    return end
