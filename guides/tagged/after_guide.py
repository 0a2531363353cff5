"""A guide behind free text: free text up to a marker, within a token budget, and then the constraint."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...checks import check_int, check_text, shown
from ...errors import LanguageError, OptionError
from ...tokenizers_adapter.marked import marker_bytes, unmarked_text, with_markers
from ..arguments import MAX_LEFT, check_left, check_state, check_token, state_error, states_of
from ..explain import NOTHING, expected
from ..lift.table_guide import StateTableGuide
from ..limits import Limits, Meter, spend
from ..locks import new_lock
from ..pictures import MAX_PICTURED, Drawable, Picture, PictureBuilder, refuse_tokens
from ..protocol import DEAD, NEVER, ByteGuide, Guide, Mask, fits, mask_within, rebuilt, should_rebuild
from .markers import LONGEST
from .pieces import marker_label

MAX_FREE = 1 << 20


class Thought(NamedTuple):
    """The parts of a text: `free` before the marker, `answer` behind it; is_cut: whether the budget ended `free`."""

    free: str
    answer: str
    is_cut: bool


class MarkerMoves(NamedTuple):
    """Token transitions from an offset in the marker.

    places: offset after each token, int32 [V], DEAD for none
    child_states: the child's state after each token that completes the marker
    """

    places: NDArray[np.int32]
    child_states: dict[int, int]


class AfterGuide(StateTableGuide, Drawable):
    """Free text up to a marker, then a text of a guide. See `guides.protocol.Guide` for the methods.

    child: any guide; marker: a text, in any tokens, or a token id, special or not
    most: token budget of the free text; after it only the marker and the child's text follow
    limits: bounds of each call, see `Limits`

    The first occurrence of the marker counts; the child's text may contain it again. States count tokens, so that
    they depend on the tokenization and there is no `read`.
    Raises OptionError, VocabularyError, and LanguageError where no tokens spell the marker.
    """

    start = 0

    def __init__(self, child: Guide, marker: str | int, *, most: int = 1024, limits: Limits | None = None) -> None:
        if isinstance(child, type) or not isinstance(child, Guide):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(f"{shown(child)} is not a guide that can follow a marker")
        self.marker: str | int
        if isinstance(marker, str):
            self.marker = check_text(marker, "the marker")
            self._text, tokens = marker.encode(), ()
            if not 0 < len(self._text) <= LONGEST:
                raise OptionError(f"the marker must have from 1 to {LONGEST:,} bytes, not {len(self._text):,}")
        else:
            self.marker = token = check_int(marker, "the marker, a token", 0)
            self._text, tokens = marker_bytes(token), (token,)
        super().__init__(with_markers(child.vocabulary, tokens))
        self.child = child
        self.free_tokens = check_int(most, "the budget of the free text", 0, MAX_FREE)
        self._first_of_child = (self.free_tokens + 1) * len(self._text)
        self._moves: dict[int, MarkerMoves] = {}
        self._lock = new_lock()
        self._meter = Meter(limits)
        self._made_of = {"child": child, "marker": self.marker, "most": self.free_tokens, "limits": limits}
        with self._meter:
            self._search = _search_table(self._text)
            self._closing = self._tables.fewest_tokens(self._text)[:-1].astype(np.int64)
        if self._closing[0] >= NEVER:
            raise LanguageError(f"the vocabulary has no tokens that spell the marker {marker!r}")

    def __repr__(self) -> str:
        return f"AfterGuide({self.child!r}, {self.marker!r}, most={self.free_tokens})"

    def picture(self, *, tokens: bool = False, max_states: int = MAX_PICTURED) -> Picture:
        """Draw the free text, and behind the marker the picture of the child."""
        refuse_tokens(tokens, "a guide behind free text")
        drawn = PictureBuilder(states_of(max_states))
        free = drawn.box("free text", f"tokens: at most {self.free_tokens:,}")
        drawn.arrow(free, drawn.guide(self.child)[0], marker_label(self.marker))
        return drawn.picture()

    @property
    def should_rebuild(self) -> bool:
        """True if the child should be rebuilt."""
        return should_rebuild(self.child)

    def rebuild(self) -> AfterGuide:
        """Return a guide of the same marker and budget, with the child rebuilt if it should be."""
        return self._with_arguments(child=rebuilt(self.child))

    def advance(self, state: int, token: int) -> int:
        """Return the state after `token`, or DEAD; EOS leaves an accepting state as it is."""
        state, token = self._check(state), check_token(token, self._vocabulary.size)
        if state == DEAD or token < 0:
            return DEAD
        if state >= self._first_of_child:
            return self._state_of_child(self.child.advance(state - self._first_of_child, token))
        used, place = divmod(state, len(self._text))
        if used == self.free_tokens and not self._spells_marker(place, token):
            return DEAD
        moves = self._moves_from(place)
        if token in moves.child_states:
            return self._state_of_child(moves.child_states[token])
        after = int(moves.places[token])
        return DEAD if after == DEAD else min(used + 1, self.free_tokens) * len(self._text) + after

    def is_accepting(self, state: int) -> bool:
        """Test whether the text so far is complete; False before the marker."""
        state = self._check(state)
        return state >= self._first_of_child and self.child.is_accepting(state - self._first_of_child)

    def distance(self, state: int) -> int:
        """Return the fewest tokens to an accepting state: those of the marker, and those of a text of the child."""
        state = self._check(state)
        if state >= self._first_of_child:
            return self.child.distance(state - self._first_of_child)
        if state == DEAD:
            return NEVER
        return min(NEVER, int(self._closing[state % len(self._text)]) + self.child.distance(self.child.start))

    def fits(self, state: int, left: int) -> bool:
        """Test whether `distance(state) <= left`."""
        state, left = self._check(state), check_left(left)
        if state >= self._first_of_child:
            return fits(self.child, state - self._first_of_child, left)
        return self.distance(state) <= left

    def row(self, state: int) -> int:
        """Return the row of `table` that holds `mask(state)`; most states before the marker share rows."""
        state = self._check(state)
        if 0 <= state < self._first_of_child:
            used, place = divmod(state, len(self._text))
            state = place + (self._first_of_child - len(self._text) if used == self.free_tokens else 0)
        return super().row(state)

    def rows(self, states: list[int]) -> NDArray[np.int32]:
        """Return `row` of several states: int32 [n]."""
        return np.array([self.row(state) for state in states], np.int32)

    def mask_within(self, state: int, left: int) -> Mask:
        """Return the allowed tokens after which `left - 1` tokens can complete the text, and EOS iff accepting."""
        state, left = self._check(state), check_left(left)
        if state == DEAD:
            return np.zeros(self._tables.words, np.uint32)
        if state >= self._first_of_child:
            return mask_within(self.child, state - self._first_of_child, left)
        return self._free_mask(state, left - 1)

    def describe(self, state: int) -> str:
        """Describe what may follow."""
        state = self._check(state)
        if state == DEAD:
            return NOTHING
        if state >= self._first_of_child:
            return expected(self.child, state - self._first_of_child)
        used = state // len(self._text)
        return f"{'free text up to ' if used < self.free_tokens else ''}the marker {self.marker!r}"

    def split(self, tokens: list[int]) -> Thought:
        """Split a text, given by its tokens, at the marker."""
        state = self.start
        is_cut = False
        for token in tokens:
            if state >= self._first_of_child:
                break
            is_cut = state // len(self._text) == self.free_tokens
            state = self.advance(state, token)
        free, _, answer = self._vocabulary.decode(tokens).partition(self._text)
        text = unmarked_text(self._vocabulary, answer).decode(errors="replace")
        return Thought(free.decode(errors="replace"), text, is_cut)

    def behind(self, tokens: list[int]) -> bytes:
        """Return the bytes behind the marker of a text given by its tokens, with the marker bytes of special tokens."""
        return self._vocabulary.decode(tokens).partition(self._text)[2]

    def _check(self, state: int) -> int:
        state = check_state(state, MAX_LEFT)
        if 0 <= state < self._first_of_child and self._closing[state % len(self._text)] >= NEVER:
            raise state_error(state)
        return state

    def _compute_mask(self, state: int) -> Mask:
        if state == DEAD:
            return np.zeros(self._tables.words, np.uint32)
        if state >= self._first_of_child:
            return self.child.mask(state - self._first_of_child)
        return self._free_mask(state, NEVER - 1)

    def _state_of_child(self, state: int) -> int:
        return DEAD if state == DEAD else state + self._first_of_child

    def _spells_marker(self, place: int, token: int) -> bool:
        """Test whether a token spells a prefix of the rest of the marker, or the rest and more."""
        text, rest = self._vocabulary.tokens[token] or b"", self._text[place:]
        return text.startswith(rest) or (bool(text) and rest.startswith(text))

    def _free_mask(self, state: int, left: int) -> Mask:
        """Return the tokens of a state before the marker after which `left` tokens complete the text."""
        used, place = divmod(state, len(self._text))
        moves = self._moves_from(place)
        needed = np.append(np.minimum(self._closing + self.child.distance(self.child.start), NEVER), NEVER)
        flags = np.zeros(32 * self._tables.words, np.bool_)
        flags[: self._vocabulary.size] = needed[moves.places] <= left
        for token, after in moves.child_states.items():
            flags[token] = self.child.distance(after) <= left
        if used == self.free_tokens:
            for token in np.flatnonzero(flags).tolist():
                flags[token] = self._spells_marker(place, token)
        return np.packbits(flags, bitorder="little").view(np.uint32)

    def _moves_from(self, place: int) -> MarkerMoves:
        known = self._moves.get(place)
        if known is None:
            with self._lock, self._meter:
                known = self._moves[place] = self._compute_moves(place)
        return known

    def _compute_moves(self, place: int) -> MarkerMoves:
        """Compute the transitions from an offset."""
        text, tokens, ids = self._text, self._vocabulary.tokens, self._tables.trie.ids
        spend(len(self._tables.trie.byte))
        after = self._tables.follow(self._search, place)
        places = np.full(self._vocabulary.size, DEAD, np.int32)
        places[ids] = np.where(np.append(self._closing, NEVER)[after] < NEVER, after, DEAD)
        child_states: dict[int, int] = {}
        for token in map(int, ids[after == len(text)]):
            read = text[:place] + (tokens[token] or b"")
            state = self._child_after(read[read.index(text) + len(text) :])
            if state != DEAD:
                child_states[token] = state
        return MarkerMoves(places, child_states)

    def _child_after(self, rest: bytes) -> int:
        """Return the child's state after a token's bytes beyond the marker; DEAD if the child cannot read bytes."""
        if not rest:
            return self.child.start
        return self.child.read(self.child.start, rest) if isinstance(self.child, ByteGuide) else DEAD


def _search_table(text: bytes) -> NDArray[np.int32]:
    """Return the automaton that searches for a text, int32 [len(text) + 1, 256]: D. Knuth, J. Morris, V. Pratt (1977).

    A state is the length of the longest prefix of the text that was read last; the whole text is the last state.
    """
    table = np.zeros((len(text) + 1, 256), np.int32)
    back = 0
    for place, byte in enumerate(text):
        table[place] = table[back]
        table[place, byte] = place + 1
        back = table.item(back, byte) if place else 0
    table[-1] = len(text)
    return table
