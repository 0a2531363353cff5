"""The guide that stands for no constraint."""

from __future__ import annotations

import numpy as np

from ..kernels.jit.calling import call
from ..kernels.trie.branches import allow_span
from ..tokenizers_adapter import Vocabulary
from .automaton import is_within, no_state
from .expectation import NOTHING
from .mask_table import Cache, MaskTable
from .protocol import DEAD, UNREACHABLE, Mask, as_bytes, is_token, whole
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
        self._none: Mask = np.zeros_like(self._mask)
        self._mask.flags.writeable = self._none.flags.writeable = False

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
        """All tokens with bytes, and EOS: uint32 [ceil(V / 32)], which nobody can write to; none in DEAD."""
        return self._mask if _is_alive(state) else self._none

    def row(self, state: int) -> int:
        """The number of the row of `table` that holds the mask."""
        mask = self.mask(state)
        with self._tables.lock:
            row = self._rows.get(state)
            if row is None:
                return self._tables.masks.store(self._rows, state, mask)
            self._tables.masks.touch(row)
            return row

    def advance(self, state: int, token: int) -> int:
        """The only state, DEAD after a token that has no bytes and is not EOS."""
        if not _is_alive(state) or not is_token(token, self._vocabulary.size):
            return DEAD
        return state if self._vocabulary.tokens[token] or token in self._vocabulary.eos_ids else DEAD

    def read(self, state: int, data: bytes) -> int:
        """The only state."""
        as_bytes(data)
        return state if _is_alive(state) else DEAD

    def is_accepting(self, state: int) -> bool:
        """True: any text is complete."""
        return _is_alive(state)

    def distance(self, state: int) -> int:
        """0: nothing is needed."""
        return 0 if _is_alive(state) else UNREACHABLE

    def fits(self, state: int, left: int) -> bool:
        """Whether nothing fits into `left` tokens."""
        return whole(left) >= self.distance(state)

    def mask_within(self, state: int, left: int) -> Mask:
        """All tokens and EOS where a token is left, else EOS: uint32 [ceil(V / 32)]."""
        if not _is_alive(state):
            return self._none.copy()
        return self._mask.copy() if whole(left) > 0 else self._tables.eos_words.copy()

    def mask_below(self, state: int, node: int, left: int | None = None) -> Mask:
        """As `guides.crossing.TrieGuide` says."""
        mask = np.zeros(self._tables.words, np.uint32)
        if _is_alive(state) and (left is None or left > 0):
            below = self._tables.below(node)
            call(allow_span, self._tables.trie, below.start, below.stop, mask)
        return mask

    def distance_below(self, state: int, node: int) -> int:
        """As `guides.crossing.TrieGuide` says."""
        below = self._tables.below(node)
        return 1 if _is_alive(state) and below.start < below.stop else UNREACHABLE

    def describe(self, state: int) -> str:
        """That anything may follow."""
        return "anything" if _is_alive(state) else NOTHING


def _is_alive(state: int) -> bool:
    """Whether it is the only state, not DEAD. Raises StateError for anything else."""
    if not is_within(state, FreeGuide.start + 1):
        raise no_state(state)
    return state != DEAD
