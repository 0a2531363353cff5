"""What is known of the texts of one prompt: the model's distributions, and bounds of what is left of the constraint.

A node's bound is no less than the probability that the model, having come so far, ends in a text of the constraint. It
is 1 before the model was asked there, then the mass of the mask, and falls as bounds behind it do.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ..decode.guide_cache import GuideCache
from .path import Path
from .resampling import places_of

MOST_WEIGHTS = 1 << 21
"""So much a trie keeps, in probabilities of 20 bytes; what does not fit is asked of the model again."""
A_NODE = 50
"""What a node takes besides, about a kilobyte, and its text a probability for each token."""
MOST_TRIES = 8


class Node:
    """A text so far.

    bound: of what is behind it
    ids: int32 [k], the tokens that may follow; None before the model was asked, and where there was no room to keep it
    chances, weights: float64 [k], their probabilities, and these times the bounds behind them
    """

    __slots__ = ("bound", "chances", "children", "ids", "parent", "path", "slot", "weights")

    def __init__(self, path: Path, parent: Node | None = None, slot: int = 0) -> None:
        self.path = path
        self.parent = parent
        self.slot = slot
        self.bound = 1.0
        self.ids: NDArray[np.int32] | None = None
        self.chances = self.weights = np.zeros(0)
        self.children: dict[int, Node] = {}

    def learn(self, ids: NDArray[np.int32], chances: NDArray[np.float64]) -> None:
        """Have what the model says of the tokens that may follow."""
        self.ids, self.chances, self.weights = ids, chances, chances.copy()
        self.tighten()

    def tighten(self) -> None:
        """Take over what is known behind this node, here and in all before it."""
        node: Node | None = self
        while node is not None:
            node.bound = min(node.bound, float(node.weights.sum()))
            if node.parent is not None:
                node.parent.weights[node.slot] = node.parent.chances[node.slot] * node.bound
            node = node.parent

    def choose(self, uniform: float) -> int:
        """The place of a token, as likely as its weight; some weight must be above 0."""
        return places_of(self.weights, np.array([uniform]))[0]

    def forget(self) -> None:
        """Keep nothing but the bound, which is that of the mask's mass; what is behind is known to nobody then."""
        for child in self.children.values():
            child.parent = None
        self.ids = None
        self.chances = self.weights = np.zeros(0)
        self.children = {}


class Trie:
    """All nodes that were met; `size` counts what they keep, in probabilities."""

    def __init__(self, first: Path) -> None:
        self.root = Node(first)
        self.size = 0

    def child(self, node: Node, token: int, slot: int, path: Path) -> Node:
        """A new node behind a token; apart from the trie where there is no room for it."""
        size = A_NODE + len(path.tokens)
        if self.size + size > MOST_WEIGHTS:
            return Node(path)
        self.size += size
        found = node.children[token] = Node(path, node, slot)
        return found

    def has_room(self, node: Node) -> bool:
        """Whether what a node has learnt may stay, and is counted; the root's always may."""
        is_apart = node.parent is None or self.size + len(node.chances) > MOST_WEIGHTS
        if is_apart and node is not self.root:
            return False
        self.size += len(node.chances)
        return True


def trie_of(guide_cache: GuideCache, key: Hashable, first: Path) -> Trie:
    """What earlier calls learnt of a prompt under a constraint, and further ones will; of the last few prompts."""
    known = _TRIES.setdefault(guide_cache, OrderedDict())
    found = known.pop(key, None) or Trie(first)
    known[key] = found
    while len(known) > MOST_TRIES:
        known.popitem(last=False)
    return found


_TRIES: WeakKeyDictionary[GuideCache, OrderedDict[Hashable, Trie]] = WeakKeyDictionary()
