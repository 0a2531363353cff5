"""A guide before a closing mark, which ends a text where otherwise only EOS would."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...checks import check_text, implements, shown
from ...errors import LanguageError, LimitError, OptionError
from ...tokenizers_adapter import Vocabulary
from ..arguments import MAX_LEFT, check_bytes, check_left, check_state, state_error
from ..explain import NOTHING, expected
from ..lift.table_guide import StateTableGuide
from ..lift.tables import VocabularyTables
from ..limits import Limits, Meter, spend
from ..locks import new_lock
from ..protocol import DEAD, NEVER, ByteGuide, Mask, Quoting, fits, mask_of, mask_within, rebuilt, should_rebuild

MAX_BYTES = 64
STEPS_PER_TOKEN = 20
BYTES_OF_AN_ENTRY = 128
OFFSET = 1 << 16
"""States below OFFSET are those inside a mark: the capacity per guide. A guide with half as many should be rebuilt."""


_NO_PLACES = frozenset[int]()


class Crossing(NamedTuple):
    """Tokens that end a child's text and begin the mark.

    text: their part of the child's text; token: the token that spells exactly this part, -1 if there is none
    ways: the tokens, each with the offset in the mark after it
    """

    text: bytes
    token: int
    ways: list[tuple[int, int]]


class MarkTokens:
    """The tokens of a vocabulary that spell a closing mark, or parts of it; cached by `MarkTokens.of`.

    closing: fewest tokens that spell the rest of the mark from each offset, NEVER where none do
    within: for each offset the tokens that spell more of the mark, each with the offset after it
    crossings: the tokens that end with a prefix of the mark, grouped by their bytes before it
    held_bytes: estimated bytes of all lists
    """

    def __init__(self, vocabulary: Vocabulary, mark: bytes) -> None:
        spend(len(vocabulary.tokens))
        texts = [(token, text) for token, text in enumerate(vocabulary.tokens) if text]
        tables, data = VocabularyTables.of(vocabulary), np.frombuffer(mark, np.uint8)
        self.closing: list[int] = tables.fewest_tokens(mark).tolist()
        self.within = [
            [(token, end) for end, ids in tables.along(data, place) if self.closing[end] < NEVER for token in ids]
            for place in range(len(mark) + 1)
        ]
        found: dict[bytes, list[tuple[int, int]]] = {}
        for token, text in texts:
            for begin in range(max(0, len(text) - len(mark)), len(text)) if text[-1] in mark else ():
                place = len(text) - begin
                if mark.startswith(text[begin:]) and self.closing[place] < NEVER:
                    spend(STEPS_PER_TOKEN)
                    found.setdefault(text[:begin], []).append((token, place))
        spelt = {text: token for token, text in texts if text in found}
        self.crossings = [Crossing(text, spelt.get(text, -1), ways) for text, ways in found.items()]
        entries = sum(map(len, self.within)) + sum(2 + len(each.ways) for each in self.crossings)
        self.held_bytes = BYTES_OF_AN_ENTRY * entries

    @classmethod
    def of(cls, vocabulary: Vocabulary, mark: bytes) -> MarkTokens:
        """Return the tokens of a mark, from the vocabulary's bounded cache."""
        return VocabularyTables.of(vocabulary).cached((cls, mark), lambda: cls(vocabulary, mark))


class ClosedGuide(StateTableGuide):
    """A text of a guide, then a mark, in any tokens. See `guides.protocol.Guide` for the methods.

    child: a guide that reads bytes; mark: the closing text, of at most 64 bytes
    limits: bounds of each call, see `Limits`

    Where a text of the child contains the mark after another text of the child, both readings are followed; EOS ends
    the shorter one. A state is the child's state (DEAD if the child's text must have ended) with a set of offsets in
    the mark, for each prefix of the mark that the text may end with. Without offsets it is the child's state plus
    `OFFSET`; others are numbered in order of occurrence.
    Raises OptionError for an unsuitable guide or mark, LanguageError where no tokens spell the mark.
    """

    def __init__(self, child: ByteGuide, mark: str, *, limits: Limits | None = None) -> None:
        if isinstance(child, type) or not implements(child, ByteGuide):
            raise OptionError(
                f"{shown(child)} is not a guide that a closing mark can follow: it must read bytes, see ByteGuide"
            )
        super().__init__(child.vocabulary)
        self.child, self.mark = child, check_text(mark, "the closing mark")
        self._text = text = mark.encode()
        if not 0 < len(text) <= MAX_BYTES:
            raise OptionError(f"the closing mark must have from 1 to {MAX_BYTES} bytes, not {len(text):,}")
        self._meter = Meter(limits)
        self._made_of = {"child": child, "mark": mark, "limits": limits}
        self._quoting = child if implements(child, Quoting) else None
        with self._meter:
            self._marks = MarkTokens.of(child.vocabulary, text)
        self._closing = self._marks.closing
        self._states: list[tuple[int, frozenset[int]]] = []
        self._numbers: dict[tuple[int, frozenset[int]], int] = {}
        self._lock = new_lock()
        if self._closing[0] >= NEVER:
            raise LanguageError(f"the vocabulary has no tokens that spell the closing mark {mark!r}")

    def __repr__(self) -> str:
        return f"ClosedGuide({self.child!r}, {self.mark!r})"

    @property
    def start(self) -> int:
        """The state before the first token."""
        return self.child.start + OFFSET

    @property
    def should_rebuild(self) -> bool:
        """True if too many states inside marks were met, or the child should be rebuilt."""
        return len(self._states) > OFFSET // 2 or should_rebuild(self.child)

    def rebuild(self) -> ClosedGuide:
        """Return a guide of the same mark, with the child rebuilt if it should be."""
        return self._with_arguments(child=rebuilt(self.child))

    def _advanced(self, state: int, token: int) -> int:
        data = self._vocabulary.tokens[token] or b""
        child, places = self._parts(state)
        return self._state_after(child, places, data, DEAD if child == DEAD else self.child.advance(child, token))

    def read(self, state: int, data: bytes) -> int:
        """Return the state after `data`, which may end anywhere; DEAD if no tokens can complete a text from there."""
        state, data = self._check(state), check_bytes(data)
        if state == DEAD or not data:
            return state
        child, places = self._parts(state)
        return self._state_after(child, places, data, DEAD if child == DEAD else self.child.read(child, data))

    def is_accepting(self, state: int) -> bool:
        """Test whether the text so far ends with a text of the child and the mark."""
        state = self._check(state)
        return state != DEAD and len(self._text) in self._parts(state)[1]

    def distance(self, state: int) -> int:
        """Return the fewest tokens to an accepting state: those of the mark behind those of the child's text."""
        state = self._check(state)
        if state == DEAD:
            return NEVER
        child, places = self._parts(state)
        fewest = min((self._closing[place] for place in places), default=NEVER)
        return fewest if child == DEAD else min(fewest, self._closing[0] + self.child.distance(child), NEVER)

    def fits(self, state: int, left: int) -> bool:
        """Test whether `distance(state) <= left`."""
        state, left = self._check(state), check_left(left)
        if state == DEAD:
            return left >= NEVER
        child, places = self._parts(state)
        if any(self._closing[place] <= left for place in places):
            return True
        if child == DEAD:
            return False
        return left >= NEVER or (left >= self._closing[0] and fits(self.child, child, left - self._closing[0]))

    def mask_within(self, state: int, left: int) -> Mask:
        """Return the allowed tokens after which `left - 1` tokens can complete the text, and EOS iff accepting."""
        return self._mask(self._check(state), check_left(left))

    def describe(self, state: int) -> str:
        """Describe what may follow."""
        state = self._check(state)
        if state == DEAD:
            return NOTHING
        child, places = self._parts(state)
        rest = [self.mark.encode()[place:].decode(errors="backslashreplace") for place in sorted(places)]
        alternatives = [] if child == DEAD else [expected(self.child, child)]
        alternatives += [f"the rest of the closing mark, {each!r}" for each in rest if each]
        if child != DEAD and self.child.is_accepting(child):
            alternatives.append(f"the closing mark {self.mark!r}")
        return ", or ".join(alternatives) or "the end of the text"

    def ahead(self, state: int) -> bytes:
        """Return the bytes that follow in the document that the child quotes, if it knows them; else no bytes."""
        state = self._check(state)
        if state == DEAD or self._quoting is None:
            return b""
        child, places = self._parts(state)
        return b"" if places or child == DEAD else self._quoting.ahead(child)

    def _check(self, state: int) -> int:
        state = check_state(state, MAX_LEFT)
        if state >= OFFSET:
            self.child.is_accepting(state - OFFSET)  # raises StateError for an unknown state
        elif state >= len(self._states):
            raise state_error(state)
        return state

    def _parts(self, state: int) -> tuple[int, frozenset[int]]:
        """Return the child's state, and the offsets in the mark."""
        return (state - OFFSET, _NO_PLACES) if state >= OFFSET else self._states[state]

    def _state(self, child: int, places: frozenset[int]) -> int:
        """Return the number of a child's state with offsets in the mark. Raises LimitError."""
        if not places:
            return DEAD if child == DEAD else child + OFFSET
        state = self._numbers.get((child, places))
        if state is None:
            with self._lock:
                state = self._numbers.get((child, places), len(self._states))
                if state == OFFSET:
                    raise LimitError(f"a text of the guide has too many beginnings of the closing mark {self.mark!r}")
                if state == len(self._states):
                    self._states.append((child, places))  # before the number is published
                    self._numbers[child, places] = state
        return state

    def _state_after(self, child: int, places: frozenset[int], data: bytes, after: int) -> int:
        """Return the state after some bytes. after: the child's state after them"""
        mark = self._text
        found = {place + len(data) for place in places if mark.startswith(data, place)}
        if child != DEAD:
            for begin in range(max(0, len(data) - len(mark)), len(data)):
                if mark.startswith(data[begin:]):
                    end_state = self.child.read(child, data[:begin]) if begin else child
                    if end_state != DEAD and self.child.is_accepting(end_state):
                        found.add(len(data) - begin)
        return self._state(after, frozenset(place for place in found if self._closing[place] < NEVER))

    def _compute_mask(self, state: int) -> Mask:
        return self._mask(state, None)

    def _mask(self, state: int, left: int | None) -> Mask:
        """Return the tokens that may follow; with `left`, those after which `left - 1` tokens complete the text."""
        if state == DEAD:
            return np.zeros(self._tables.words, np.uint32)
        child, places = self._parts(state)
        least = NEVER if left is None else left
        ways = (way for place in places for way in self._marks.within[place])
        mask = mask_of((token for token, after in ways if self._closing[after] < least), self._vocabulary.size)
        if child != DEAD:
            mask |= self._crossing_mask(child, least)
            child_mask = self.child.mask(child) if left is None else self._child_mask(child, left)
            mask |= child_mask & ~self._tables.eos_words
        if len(self._text) in places:
            mask |= self._tables.eos_words
        return mask

    def _child_mask(self, child: int, left: int) -> Mask:
        """Return the child's tokens after which `left - 1` tokens complete its text and the mark."""
        remaining = left - self._closing[0]
        return mask_within(self.child, child, remaining) if remaining > 0 else np.zeros(self._tables.words, np.uint32)

    def _crossing_mask(self, child: int, least: int) -> Mask:
        """Return the tokens from a child's state into the mark, after which less than `least` tokens complete it."""
        found: list[int] = []
        allowed = self.child.mask(child).copy()
        for text, spelt, ways in self._marks.crossings:
            if spelt >= 0 and not allowed[spelt >> 5] >> np.uint32(spelt & 31) & 1:
                continue  # not allowed, so it ends no text
            end_state = self.child.read(child, text) if text else child
            if end_state != DEAD and self.child.is_accepting(end_state):
                found += [token for token, place in ways if self._closing[place] < least]
        return mask_of(found, self._vocabulary.size)
