"""A text of one of several guides that need not fit into one graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...checks import items_of, shown
from ...errors import OptionError
from ...tokenizers_adapter.marked import MarkedVocabulary, with_markers, without_markers
from ..arguments import check_bytes, check_left, check_state
from ..explain import NOTHING, expected
from ..lift.table_guide import StateTableGuide
from ..locks import new_lock
from ..protocol import DEAD, NEVER, ByteGuide, Guide, Mask, fits, mask_within, rebuilt, should_rebuild

MAX_STATES = 1 << 18
"""States above which a new guide should serve the next text."""


class EitherGuide(StateTableGuide):
    """Texts of any of several guides. See `guides.protocol.Guide` for the methods.

    guides: one or more, of the same vocabulary except for markers; all that still match are followed
    If all guides read bytes, the result is an `EitherByteGuide`. The guides count work themselves.
    Raises OptionError.
    """

    start = 0

    def __new__(cls, guides: Sequence[Guide]) -> EitherGuide:
        """Create an EitherByteGuide if all guides read bytes."""
        reads = all(isinstance(each, ByteGuide) for each in items_of(guides) or ())
        kind: Any = EitherByteGuide if reads else EitherGuide
        return super().__new__(kind)

    def __init__(self, guides: Sequence[Guide]) -> None:
        items = items_of(guides)
        if not items:
            raise OptionError(f"guides={shown(guides)}: expected at least one guide")
        for each in items:
            if isinstance(each, type) or not isinstance(each, Guide):
                raise OptionError(f"{shown(each)} is no guide")
        self.guides: tuple[Guide, ...] = tuple(items)
        vocabulary = self.guides[0].vocabulary
        for guide in self.guides[1:]:
            if without_markers(guide.vocabulary).fingerprint != without_markers(vocabulary).fingerprint:
                raise OptionError(f"{guide!r} was made for another vocabulary; make it with that of the first one")
            if isinstance(guide.vocabulary, MarkedVocabulary):
                vocabulary = with_markers(vocabulary, guide.vocabulary.markers)
        super().__init__(vocabulary)
        self._all_tokens: Mask = self._tables.pack(True) | self._tables.eos_words
        first = tuple(guide.start for guide in self.guides)
        self._members = [first]
        self._numbers = {first: self.start}
        self._lock = new_lock()
        self._made_of = {"guides": self.guides}

    def __repr__(self) -> str:
        return f"EitherGuide({list(self.guides)!r})"

    def _made_as(self) -> type:
        return EitherGuide

    @property
    def should_rebuild(self) -> bool:
        """True if there are too many states, or one of the guides should be rebuilt."""
        return len(self._members) > MAX_STATES or any(map(should_rebuild, self.guides))

    def rebuild(self) -> EitherGuide:
        """Return a guide of the same guides, those rebuilt that should be."""
        return EitherGuide([rebuilt(each) for each in self.guides])

    def _advanced(self, state: int, token: int) -> int:
        members = zip(self.guides, self._members[state], strict=True)
        return self._number(tuple(DEAD if at == DEAD else guide.advance(at, token) for guide, at in members))

    def is_accepting(self, state: int) -> bool:
        """Test whether the text so far is complete for one of the guides."""
        return any(guide.is_accepting(at) for guide, at in self._open_members(state))

    def distance(self, state: int) -> int:
        """Return the fewest tokens to an accepting state, over all guides."""
        return min((guide.distance(at) for guide, at in self._open_members(state)), default=NEVER)

    def fits(self, state: int, left: int) -> bool:
        """Test whether `distance(state) <= left`."""
        left = check_left(left)
        members = self._open_members(state)
        return any(fits(guide, at, left) for guide, at in members) if members else left >= NEVER

    def mask_within(self, state: int, left: int) -> Mask:
        """Return the allowed tokens after which `left - 1` tokens can complete the text, and EOS iff accepting."""
        mask = np.zeros(self._tables.words, np.uint32)
        for guide, at in self._open_members(state):
            mask |= mask_within(guide, at, left)
        return mask & self._all_tokens

    def describe(self, state: int) -> str:
        """Describe what may follow, for each guide that still matches."""
        return ", or ".join(expected(guide, at) for guide, at in self._open_members(state)) or NOTHING

    def _check(self, state: int) -> int:
        return check_state(state, len(self._members))

    def _compute_mask(self, state: int) -> Mask:
        mask = np.zeros(self._tables.words, np.uint32)
        for guide, at in self._open_members(state):
            mask |= guide.mask(at)
        return mask & self._all_tokens

    def _open_members(self, state: int) -> list[tuple[Guide, int]]:
        """Return the guides that still match, with their states."""
        state = self._check(state)
        if state == DEAD:
            return []
        return [each for each in zip(self.guides, self._members[state], strict=True) if each[1] != DEAD]

    def _number(self, members: tuple[int, ...]) -> int:
        """Return the number of a tuple of states, one for each guide."""
        if not any(at != DEAD for at in members):
            return DEAD
        known = self._numbers.get(members)
        if known is None:
            with self._lock:
                known = self._numbers.get(members)
                if known is None:
                    self._members.append(members)  # before the number is published
                    known = self._numbers[members] = len(self._members) - 1
        return known


class EitherByteGuide(EitherGuide):
    """An EitherGuide whose guides all read bytes."""

    def read(self, state: int, data: bytes) -> int:
        """Return the state after `data`, which may end anywhere; DEAD if no tokens can complete a text from there."""
        state, data = self._check(state), check_bytes(data)
        if state == DEAD:
            return DEAD
        members: Any = zip(self.guides, self._members[state], strict=True)
        return self._number(tuple(DEAD if at == DEAD else guide.read(at, data) for guide, at in members))
