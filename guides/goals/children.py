"""The guide that goals are joined to, as their search asks it: steps by bytes and by tokens, and bounds."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ...kernels.jit.aliases import Ints
from ..free_guide import FreeGuide
from ..lift.lifted_guide import LiftedGuide
from ..lift.tables import VocabularyTables
from ..protocol import DEAD, ByteGuide, tokens_of


class Child(Protocol):
    """The part of a guide's states that the search asks."""

    def by_bytes(self, state: int) -> Ints:
        """The state after each byte: int32 [256], DEAD where there is none."""
        ...

    def by_tokens(self, state: int, node: int = 0) -> Ints:
        """The state after what each token below a node of the trie has beyond it, in the order of the trie.

        int32 [tokens], DEAD where it is not allowed
        """
        ...

    def bytes_needed(self, states: Ints) -> Ints:
        """No more than the fewest bytes that complete a text from each state: int32 [states]."""
        ...


class FreeChild:
    """No constraint."""

    def __init__(self, tables: VocabularyTables) -> None:
        self._bytes = np.zeros(256, np.int32)
        self._tokens = np.zeros(len(tables.trie.ids), np.int32)
        self._below = tables.below

    def by_bytes(self, state: int) -> Ints:
        """Always the one state."""
        return self._bytes

    def by_tokens(self, state: int, node: int = 0) -> Ints:
        """Always the one state."""
        return self._tokens[self._below(node)]

    def bytes_needed(self, states: Ints) -> Ints:
        """None."""
        return np.zeros(len(states), np.int32)


class LiftedChild:
    """A guide over a chart, which answers for all bytes or tokens at once."""

    def __init__(self, guide: LiftedGuide) -> None:
        self.by_bytes = guide.after_bytes
        self.by_tokens = guide.after_tokens
        self.bytes_needed = guide.bytes_needed


class OtherChild:
    """Any other guide, asked about one byte or token at a time."""

    def __init__(self, guide: ByteGuide, tables: VocabularyTables) -> None:
        self._guide = guide
        self._tables = tables
        self._place = np.full(guide.vocabulary.size, -1, np.int32)
        self._place[tables.trie.ids] = np.arange(len(tables.trie.ids))

    def by_bytes(self, state: int) -> Ints:
        """By `read`."""
        return np.array([self._guide.read(state, bytes([byte])) for byte in range(256)], np.int32)

    def by_tokens(self, state: int, node: int = 0) -> Ints:
        """By `advance`, for the tokens of the mask; below a node by `read`."""
        if node:
            texts, depth = self._guide.vocabulary.tokens, int(self._tables.trie.depth[node])
            rests = (
                (texts[token] or b"")[depth:] for token in map(int, self._tables.trie.ids[self._tables.below(node)])
            )
            return np.array([self._guide.read(state, rest) for rest in rests], np.int32)
        after = np.full(np.count_nonzero(self._place >= 0), DEAD, np.int32)
        for token in tokens_of(self._guide.mask(state)):
            if self._place[token] >= 0:
                after[self._place[token]] = self._guide.advance(state, token)
        return after

    def bytes_needed(self, states: Ints) -> Ints:
        """Nothing is known of it."""
        return np.zeros(len(states), np.int32)


def child_of(guide: ByteGuide, tables: VocabularyTables) -> Child:
    """The guide as the search asks it."""
    if isinstance(guide, FreeGuide):
        return FreeChild(tables)
    return LiftedChild(guide) if isinstance(guide, LiftedGuide) else OtherChild(guide, tables)
