"""Tokens that begin with a literal text and go on into a guide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from ...checks import conforms
from ...kernels.jit.calling import call
from ...kernels.trie.align import end_nodes
from ..lift.tables import VocabularyTables
from ..locks import new_lock
from ..protocol import DEAD, NEVER, ByteGuide, Mask


@runtime_checkable
class TrieGuide(ByteGuide, Protocol):
    """A guide that knows at once what the tokens below a node of its vocabulary's trie lead to.

    A token is *below* a node if it begins with the node's text and is longer; what it has beyond that text is read.
    """

    def mask_below(self, state: int, node: int, left: int | None = None) -> Mask:
        """The tokens below `node` that can be read: uint32 [ceil(V / 32)], without EOS; the caller's own.

        left: only those after which `left - 1` tokens complete the text.
        """
        ...

    def distance_below(self, state: int, node: int) -> int:
        """Fewest tokens to an accepting state, the first of them below `node`; NEVER if none can be read."""
        ...


MOST_CUTS = 4096
"""Ends of prompts, each of as many bytes as the longest token has, that are remembered."""


class Crossings:
    """The tokens that lead from a literal text to a guide's start and beyond, by the trie node of the text.

    Any ByteGuide will do; for one that is no TrieGuide every token below a node is read by itself. What was
    found is kept, the masks as rows of the vocabulary's table. Hold `lock` when asking.
    """

    def __init__(self, guide: ByteGuide) -> None:
        self.guide = guide
        self.tables = VocabularyTables.of(guide.vocabulary)
        self.lock = new_lock()
        self._below = guide if conforms(guide, TrieGuide) else None
        self._rows: dict[int, int] = {}
        self._some: dict[int, bool] = {}
        self._distances: dict[int, int] = {}
        self._cuts: dict[tuple[bytes, ...], int] = {}

    def some(self, node: int) -> bool:
        """Tell whether any token below the node can be read."""
        known = self._some.get(node)
        if known is None:
            known = self._some[node] = bool(self.mask(node).any())
        return known

    def mask(self, node: int) -> Mask:
        """The tokens below the node that can be read: uint32 [ceil(V / 32)], the caller's own."""
        row = self.tables.row_of(self._rows, node, lambda: self.mask_within(node, None))
        return self.tables.masks.rows[row].copy()

    def mask_within(self, node: int, left: int | None) -> Mask:
        """As `TrieGuide.mask_below` from the guide's start."""
        if self._below is not None:
            return self._below.mask_below(self.guide.start, node, left)
        flags = np.zeros(32 * self.tables.words, np.bool_)
        for token, state in self._read(node):
            flags[token] = left is None or self.guide.distance(state) < left
        return np.packbits(flags, bitorder="little").view(np.uint32)

    def distance(self, node: int) -> int:
        """As `TrieGuide.distance_below` from the guide's start."""
        known = self._distances.get(node)
        if known is None:
            if self._below is not None:
                known = self._below.distance_below(self.guide.start, node)
            else:
                ways = (1 + self.guide.distance(state) for state in {state for _, state in self._read(node)})
                known = min(ways, default=NEVER)
            self._distances[node] = known
        return known

    def cut(self, ids: Sequence[int]) -> int:
        """The number of tokens of a prompt before the last boundary that no token can cross into a text of the guide.

        A token crosses a boundary if it begins before it, wherever that is, spells the rest of the prompt, and goes
        on as the guide allows. Tokens without bytes, which special tokens are, are never cut.
        """
        pieces = self._last_pieces(ids)
        left = self._cuts.get(pieces)
        if left is None:
            left = self._left(pieces)
            if len(self._cuts) >= MOST_CUTS:
                self._cuts.clear()
            self._cuts[pieces] = left
        return len(ids) - left

    def known_cut(self, ids: Sequence[int]) -> int | None:
        """As `cut`, where that asks nothing of the guide: with the lock held by others too. None where it may."""
        left = self._cuts.get(self._last_pieces(ids))
        return None if left is None else len(ids) - left

    def _left(self, pieces: tuple[bytes, ...]) -> int:
        """The number of these last tokens that are behind that boundary."""
        data = np.frombuffer(b"".join(pieces), np.uint8)
        ends = np.empty(len(data), np.int32)
        call(end_nodes, self.tables.trie, data, ends)
        with self.lock:
            for place in np.flatnonzero(ends >= 0).tolist():
                if self.some(int(ends[place])):
                    starts = np.cumsum([0, *map(len, pieces)])
                    return len(pieces) + 1 - int(np.searchsorted(starts, place, side="right"))
        return 0

    def _last_pieces(self, ids: Sequence[int]) -> tuple[bytes, ...]:
        """The bytes of the last tokens, as many as one token may spell, up to one that has none."""
        pieces: list[bytes] = []
        room = self.tables.trie.deepest
        for token in reversed(ids):
            piece = self.guide.vocabulary.tokens[token]
            if piece is None or room <= 0:
                break
            pieces.append(piece)
            room -= len(piece)
        return tuple(pieces[::-1])

    def _read(self, node: int) -> Iterator[tuple[int, int]]:
        """The tokens below a node that can be read, and the states they lead to."""
        texts = self.guide.vocabulary.tokens
        depth = int(self.tables.trie.depth[node])
        for token in map(int, self.tables.trie.ids[self.tables.below(node)]):
            state = self.guide.read(self.guide.start, (texts[token] or b"")[depth:])
            if state != DEAD:
                yield token, state
