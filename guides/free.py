"""The guide that stands for no constraint."""

from __future__ import annotations

import numpy as np

from ..kernels.calling import call
from ..kernels.walk import allow_span
from ..tokenizers_adapter import Vocabulary
from .mask_table import Cache, MaskTable
from .protocol import DEAD, UNREACHABLE, Mask
from .tables import VocabularyTables


class FreeGuide:
    """Every text: each token that adds to it, and EOS at any time. See `guides.protocol.Guide` for the methods.

    It is what other guides are built around where there is no constraint. Texts need not be UTF-8.
    """

    start = 0

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._tables = VocabularyTables.of(vocabulary)
        self._rows: Cache = {}
        self._mask: Mask = self._tables.pack(True) | self._tables.eos_words

    def __repr__(self) -> str:
        return f"FreeGuide({self._vocabulary!r})"

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary whose token ids the masks speak of."""
        return self._vocabulary

    @property
    def table(self) -> MaskTable:
        """The table that holds the masks; one per vocabulary."""
        return self._tables.masks

    def mask(self, state: int) -> Mask:
        """All tokens with bytes, and EOS: uint32 [ceil(V / 32)]. Read it, never write it."""
        return self._mask

    def row(self, state: int) -> int:
        """The number of the row of `table` that holds the mask."""
        with self._tables.lock:
            row = self._rows.get(0)
            if row is None:
                return self._tables.masks.store(self._rows, 0, self._mask)
            self._tables.masks.touch(row)
            return row

    def advance(self, state: int, token: int) -> int:
        """The only state, DEAD after a token that has no bytes and is not EOS."""
        if not 0 <= token < self._vocabulary.size:
            return DEAD
        return state if self._vocabulary.tokens[token] or token in self._vocabulary.eos_ids else DEAD

    def read(self, state: int, data: bytes) -> int:
        """The only state."""
        return state

    def is_accepting(self, state: int) -> bool:
        """True: any text is complete."""
        return True

    def distance(self, state: int) -> int:
        """0: nothing is needed."""
        return 0

    def fits(self, state: int, left: int) -> bool:
        """Whether nothing fits into `left` tokens."""
        return left >= 0

    def mask_within(self, state: int, left: int) -> Mask:
        """All tokens and EOS where a token is left, else EOS: uint32 [ceil(V / 32)]."""
        return self._mask.copy() if left > 0 else self._tables.eos_words.copy()

    def mask_below(self, state: int, node: int, left: int | None = None) -> Mask:
        """As `guides.crossing.TrieGuide` says."""
        mask = np.zeros(self._tables.words, np.uint32)
        if left is None or left > 0:
            below = self._tables.below(node)
            call(allow_span, self._tables.trie, below.start, below.stop, mask)
        return mask

    def distance_below(self, state: int, node: int) -> int:
        """As `guides.crossing.TrieGuide` says."""
        below = self._tables.below(node)
        return 1 if below.start < below.stop else UNREACHABLE

    def describe(self, state: int) -> str:
        """That anything may follow."""
        return "anything"
