"""The guide that stands for no constraint."""

from __future__ import annotations

import numpy as np

from ..kernels.jit.calling import call
from ..kernels.trie.branches import allow_span
from ..tokenizers_adapter import Vocabulary
from .explain.expectation import NOTHING
from .given import bytes_of, left_of, state_of, token_of
from .lift.mask_table import Cache, MaskTable
from .lift.tables import VocabularyTables
from .protocol import DEAD, UNREACHABLE, Mask
from .shared import Shared


class FreeGuide(Shared):
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
        # Over bytes, which nobody can make writeable again.
        self._mask, self._none = (np.frombuffer(mask.tobytes(), np.uint32) for mask in (self._mask, self._none))

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
        state = state_of(state, self.start + 1)
        return self._tables.row_of(self._rows, state, lambda: self.mask(state))

    def advance(self, state: int, token: int) -> int:
        """The only state, DEAD after a token that has no bytes and is not EOS."""
        token = token_of(token, self._vocabulary.size)
        if not _is_alive(state) or token < 0:
            return DEAD
        return self.start if self._vocabulary.tokens[token] or token in self._vocabulary.eos_ids else DEAD

    def read(self, state: int, data: bytes) -> int:
        """The only state."""
        bytes_of(data)
        return self.start if _is_alive(state) else DEAD

    def is_accepting(self, state: int) -> bool:
        """True: any text is complete."""
        return _is_alive(state)

    def distance(self, state: int) -> int:
        """0: nothing is needed."""
        return 0 if _is_alive(state) else UNREACHABLE

    def fits(self, state: int, left: int) -> bool:
        """Whether nothing fits into `left` tokens."""
        return left_of(left) >= self.distance(state)

    def mask_within(self, state: int, left: int) -> Mask:
        """All tokens and EOS where a token is left, else EOS: uint32 [ceil(V / 32)]."""
        if not _is_alive(state):
            return self._none.copy()
        return self._mask.copy() if left_of(left) > 0 else self._tables.eos_words.copy()

    def mask_below(self, state: int, node: int, left: int | None = None) -> Mask:
        """As `guides.healing.crossing.TrieGuide` says."""
        mask = np.zeros(self._tables.words, np.uint32)
        if _is_alive(state) and (left is None or left_of(left) > 0):
            below = self._tables.below(node)
            call(allow_span, self._tables.trie, below.start, below.stop, mask)
        return mask

    def distance_below(self, state: int, node: int) -> int:
        """As `guides.healing.crossing.TrieGuide` says."""
        below = self._tables.below(node)
        return 1 if _is_alive(state) and below.start < below.stop else UNREACHABLE

    def describe(self, state: int) -> str:
        """That anything may follow."""
        return "anything" if _is_alive(state) else NOTHING


def _is_alive(state: int) -> bool:
    """Whether it is the only state, not DEAD. Raises StateError for anything else."""
    return state_of(state, FreeGuide.start + 1) != DEAD
