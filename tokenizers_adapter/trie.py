"""The prefix tree of a vocabulary's token bytes, as flat arrays in preorder."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Places = NDArray[np.int64]

# From how many bytes on two tokens are compared by themselves, and above how many levels a trie is seen by its tokens
DEEP, MANY_LEVELS = 256, 2048


class Trie(NamedTuple):
    """Every prefix of every token once, in lexicographic order; node 0 is the empty text.

    The children of node n are n + 1, skip[n + 1], skip[skip[n + 1]] ... as long as they are below skip[n].
    The tokens that end at n are ids[token_start[n]:token_start[n + 1]], those that begin with the text of n
    are ids[token_start[n]:token_start[skip[n]]].
    """

    byte: NDArray[np.uint8]  # [N] the last byte of the node's text; 0 for the root
    skip: Ints  # [N] one past the last node of the node's subtree
    depth: Ints  # [N] the length of the node's text
    token_start: Ints  # [N + 1] where the node's tokens begin in ids
    ids: Ints  # [T] token ids in order of (bytes, id)

    @classmethod
    def build(cls, tokens: Sequence[bytes | None]) -> Trie:
        """The trie of all tokens that have bytes; the id of a token is its index.

        Sorted distinct tokens are laid side by side: each adds, after the prefix it shares with the one
        before, one node for each of its further bytes, and so the nodes come out in preorder.
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
        end = 1 + np.cumsum(added)  # the node one past the last that each distinct token adds
        step = np.arange(1, int(end[-1])) - np.repeat(end - added, added)
        depth = np.zeros(int(end[-1]), np.int64)
        depth[1:] = np.repeat(shared + 1, added) + step
        byte = np.zeros(len(depth), np.uint8)
        byte[1:] = data[np.repeat(begin[new], added) + depth[1:] - 1]
        counts = np.zeros(len(depth) + 1, np.int64)
        counts[end] = np.bincount(np.cumsum(new) - 1)
        return cls(
            byte,
            _subtree_ends(depth, shared, added).astype(np.int32),
            depth.astype(np.int32),
            np.cumsum(counts).astype(np.int32),
            np.array(ids, np.int32)[order],
        )


def _shared_prefixes(data: NDArray[np.uint8], begin: Places, length: Places) -> Places:
    """How many bytes each text shares with the one before it, 0 for the first: int64 like `begin`.

    One comparison per depth over the pairs that still agree, so the work is the number of shared bytes; of few pairs
    that agree for long many bytes are compared at once.
    """
    shared = np.zeros(len(begin), np.int64)
    shorter = np.minimum(length[1:], length[:-1])
    agreeing = np.arange(1, len(begin))
    depth = 0
    while len(agreeing):
        if depth >= DEEP:
            for pair in agreeing.tolist():
                shared[pair] = _shared(data, int(begin[pair]), int(begin[pair - 1]), depth, int(shorter[pair - 1]))
            break
        agreeing = agreeing[shorter[agreeing - 1] > depth]
        agreeing = agreeing[data[begin[agreeing] + depth] == data[begin[agreeing - 1] + depth]]
        depth += 1
        shared[agreeing] = depth
    return shared


def _shared(data: NDArray[np.uint8], first: int, second: int, depth: int, most: int) -> int:
    """How many bytes two texts share that agree in the first `depth`; ever more are compared at once."""
    while depth < most:
        end = min(2 * depth, most)
        differ = data[first + depth : first + end] != data[second + depth : second + end]
        if differ.any():
            return depth + int(differ.argmax())
        depth = end
    return most


def _subtree_ends(depth: Places, shared: Places, added: Places) -> Places:
    """One past the last node below each node of a preorder given by its depths.

    shared, added: how deep each distinct token leaves the one before it, and how many nodes it has of its own.
    Deepest level first, a node takes the end of its last child; among equal indices of an assignment the
    last one wins, and children come in preorder. Where levels are very many, token by token: a node ends where the
    next token begins that leaves the path above it.
    """
    end = np.arange(1, len(depth) + 1)
    if int(depth.max()) > MANY_LEVELS:
        path = np.zeros(int(depth.max()) + 1, np.int64)
        first, deepest = 1, 0
        for leaving, count in zip(shared.tolist(), added.tolist(), strict=True):
            end[path[leaving + 1 : deepest + 1]] = first
            deepest = leaving + count
            path[leaving + 1 : deepest + 1] = np.arange(first, first + count)
            first += count
        end[path[: deepest + 1]] = len(depth)
        return end
    by_depth = np.argsort(depth, kind="stable")
    levels = np.split(by_depth, np.cumsum(np.bincount(depth))[:-1])
    for parents, children in reversed(list(pairwise(levels))):
        end[parents[np.searchsorted(parents, children) - 1]] = end[children]
    return end
