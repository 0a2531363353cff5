"""The guide without a constraint."""

from __future__ import annotations

import numpy as np

from ..checks import check_bool
from ..kernels.jit.aliases import Ints
from ..tokenizers_adapter import Vocabulary
from .arguments import check_bytes, check_left, check_state, check_token, states_of
from .explain import NOTHING
from .lift.table_guide import StateTableGuide
from .pictures import MAX_PICTURED, Arrow, Drawable, Picture, PictureNode
from .pictures.automata import tokens_in
from .protocol import DEAD, NEVER, Mask


class FreeGuide(StateTableGuide, Drawable):
    """Every text: any token that has bytes, and EOS at any time. See `guides.protocol.Guide` for the methods.

    Other guides wrap it where they need an unconstrained part. Texts need not be UTF-8.
    """

    start = 0

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary)
        self._made_of = {"vocabulary": vocabulary}
        self._full_mask: Mask = self._tables.pack(True) | self._tables.eos_words

    def __repr__(self) -> str:
        return f"FreeGuide({self._vocabulary!r})"

    def _check(self, state: int) -> int:
        return check_state(state, self.start + 1)

    def _compute_mask(self, state: int) -> Mask:
        return self._full_mask if state == self.start else np.zeros(self._tables.words, np.uint32)

    def advance(self, state: int, token: int) -> int:
        """Return the only state, or DEAD after a token that has no bytes and is not EOS."""
        token = check_token(token, self._vocabulary.size)
        if not _is_alive(state) or token < 0:
            return DEAD
        return self.start if self._vocabulary.tokens[token] or token in self._eos else DEAD

    def read(self, state: int, data: bytes) -> int:
        """Return the only state, or DEAD in DEAD."""
        check_bytes(data)
        return self.start if _is_alive(state) else DEAD

    def is_accepting(self, state: int) -> bool:
        """Return True in the only state: every text is complete."""
        return _is_alive(state)

    def distance(self, state: int) -> int:
        """Return 0, or NEVER in DEAD."""
        return 0 if _is_alive(state) else NEVER

    def fits(self, state: int, left: int) -> bool:
        """Test whether `distance(state) <= left`."""
        return check_left(left) >= self.distance(state)

    def mask_within(self, state: int, left: int) -> Mask:
        """Return all tokens and EOS if a token is left, else EOS: uint32 [ceil(V / 32)]."""
        if not _is_alive(state):
            return np.zeros(self._tables.words, np.uint32)
        return self._full_mask.copy() if check_left(left) > 0 else self._tables.eos_words.copy()

    def mask_below(self, state: int, node: int, left: int | None = None) -> Mask:
        """See `guides.healing.TrieGuide`."""
        return self._tables.pack(_is_alive(state) and (left is None or check_left(left) > 0), node)

    def distance_below(self, state: int, node: int) -> int:
        """See `guides.healing.TrieGuide`."""
        below = self._tables.below(node)
        return 1 if _is_alive(state) and below.start < below.stop else NEVER

    def after_bytes(self, state: int) -> Ints:
        """See `LiftedGuide.after_bytes`."""
        return np.full(256, self.read(state, b""), np.int32)

    def after_tokens(self, state: int, node: int = 0) -> Ints:
        """See `LiftedGuide.after_tokens`."""
        return np.full(len(self._tables.trie.ids[self._tables.below(node)]), self.read(state, b""), np.int32)

    def bytes_needed(self, states: Ints) -> Ints:
        """See `LiftedGuide.bytes_needed`."""
        return np.zeros(len(states), np.int32)

    def picture(self, *, tokens: bool = False, max_states: int = MAX_PICTURED) -> Picture:
        """Draw the only state with its loop over every byte; `tokens` adds all allowed tokens."""
        states_of(max_states)
        note = tokens_in(self._full_mask, self._vocabulary) if check_bool(tokens, "tokens") else ""
        return Picture((PictureNode("0", "final", note),), (Arrow(0, 0, "any byte"),))

    def describe(self, state: int) -> str:
        """Describe the state: anything may follow."""
        return "anything" if _is_alive(state) else NOTHING


def _is_alive(state: int) -> bool:
    """Test whether `state` is the only state and not DEAD. Raises StateError for anything else."""
    return check_state(state, FreeGuide.start + 1) != DEAD
