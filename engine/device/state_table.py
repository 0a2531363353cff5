"""The device's table of states that were met: what each allows, where tokens lead, which characters lead back."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ...errors import LimitError
from ...guides.protocol import DEAD, Guide, Mask
from ...kernels.lanes.layout import CLASSES, EMPTY, FREE, PROBES, UNKNOWN, home_of
from ...kernels.utf8 import FIRST_NEXT, FORMS, LAST_LEAD, LAST_NEXT, LAST_SECOND, LEAD, MORE, SECOND
from ...tokenizers_adapter import Vocabulary
from ..decode.guide_cache import GuideCache

RECORDS = 1 << 14
_MASKS = 1 << 28
"""Bytes for the masks of records, if there are fewer of them then."""
CAPACITY = 1 << 20
"""Places for transitions, of which at most half are used."""
DENSE = 512
"""Entries for which it may be known where every token leads."""
OFTEN = 4
"""After so many transitions met one by one, all those out of a record are asked for."""

FAR = 1 << 30
MOST_LOOKED_AT = 3
"""Texts that may have so many tokens more, or fewer, are looked at after each."""


class StateKey(NamedTuple):
    """A state of a constraint.

    stop_ids: those that end a text where it is complete
    left: how many more tokens it may have, if it has to come to its end with these; None where there are plenty
    """

    guide_cache: GuideCache
    state: int
    stop_ids: frozenset[int]
    left: int | None = None


class FullError(Exception):
    """There is no room for another record, until all are forgotten."""


class News(NamedTuple):
    """Changes to be written to the device before the next launch.

    masks, loops: int64 [3], and forced: the one token that may follow, of records; transitions: place, key and value
    dense: of rows, the record, its classes uint8 [V] and their targets int32 [CLASSES]; targets: row, class and record,
    to be written after those
    """

    masks: dict[int, Mask]
    loops: dict[int, NDArray[np.int64]]
    forced: dict[int, int]
    transitions: list[tuple[int, int, int]]
    dense: dict[int, tuple[int, NDArray[np.uint8], NDArray[np.int32]]]
    targets: list[tuple[int, int, int]]
    forgotten: bool


class DeviceStateTable:
    """Numbers for states, as many as there is room for. Lanes have one each for masks that hold once only.

    What is added is written to the device by the launch that follows, in the order of launches: nothing is read there
    that was not written.

    enough: int32 [count], of each record, with how many more tokens at most a text surely comes to its end; FAR where
        that is not known, or something else is to be looked at
    is_forced, near: bool [count], whether only one token may follow; and whether that was seen to be so after the next
    """

    def __init__(self, lanes: int, size: int) -> None:
        self.lanes = lanes
        self._room = max(1, min(RECORDS, _MASKS // (4 * -(-size // 32))))
        self.count = 1 + lanes + self._room
        self.capacity = CAPACITY
        self.enough = np.full(self.count, FAR, np.int32)
        self.enough[FREE] = 0
        self.near = np.zeros(self.count, np.bool_)
        self.is_forced = np.zeros(self.count, np.bool_)
        self._numbers: dict[StateKey, int] = {}
        self._keys = np.full(CAPACITY, EMPTY, np.int64)
        self._used = 0
        self._states: dict[int, StateKey] = {}
        self._misses: dict[int, int] = {}
        self._wanted: list[int] = []
        self._classes: dict[int, NDArray[np.uint8]] = {}
        self._awaited: dict[StateKey, list[tuple[int, int, int]]] = {}
        self._refused: set[GuideCache] = set()
        self._news = _nothing(forgotten=False)

    @property
    def is_crowded(self) -> bool:
        """True if little room is left, so that all should be forgotten before the next lanes begin."""
        return 2 * len(self._numbers) > self._room or 4 * self._used > self.capacity

    def forget(self) -> None:
        """Forget all records; no lane may go on by what was known."""
        self._numbers.clear()
        self._keys[:] = EMPTY
        self._used = 0
        self.enough[1:] = FAR
        self.near[:] = self.is_forced[:] = False
        for each in (self._states, self._misses, self._wanted, self._classes, self._awaited, self._refused):
            each.clear()
        self._news = _nothing(forgotten=True)

    def find(self, key: StateKey | None) -> int | None:
        """The record of a state, FREE for none, if there is one."""
        return FREE if key is None else self._numbers.get(key)

    def record(self, key: StateKey | None) -> int:
        """The record of a state, made if there is none. Raises FullError."""
        found = self.find(key)
        if found is not None or key is None:
            return found or FREE
        number = 1 + self.lanes + len(self._numbers)
        if number == self.count:
            raise FullError
        self._news.masks[number] = key.guide_cache.mask(*key[1:])
        self._news.loops[number] = loops(key.guide_cache.guide, key.state) if key.left is None else _NO_LOOPS
        forced = key.guide_cache.allowed(key.state).forced
        if forced >= 0:
            self._news.forced[number] = forced
            self.is_forced[number] = self.near[number] = True
        self._numbers[key], self._states[number] = number, key
        for before, row, place in self._awaited.pop(key, ()):
            self._news.targets.append((row, place, number))
            self.near[before] |= forced >= 0
        return number

    def key(self, record: int) -> StateKey:
        """The state that a record, other than FREE, is of."""
        return self._states[record]

    def note(self, record: int) -> None:
        """Note how many tokens are enough after a record in which there is a choice, or one token is forced."""
        if record == FREE:
            return
        key = self._states[record]
        if key.left is None:
            enough = key.guide_cache.enough(key.state)
        else:
            # Behind masks that leave room to finish, as many are left as the record says.
            enough = key.left - 2 if key.left > MOST_LOOKED_AT else None
        if enough is not None:
            self.enough[record] = min(self.enough[record], enough)

    def is_closing(self, record: int) -> bool:
        """True if a record's mask leaves room to finish with what is left."""
        return record != FREE and self._states[record].left is not None

    def once(self, lane: int, mask: Mask) -> int:
        """The lane's own record, with a mask, after which nothing is known."""
        number = 1 + lane
        self._news.masks[number] = mask
        return number

    def lead(self, record: int, token: int, key: StateKey | None, left: int) -> int:
        """The record of the state to which a token leads from another one, made if there is none, as `record` does.

        left: how many tokens the text that was, or may come, there can still have
        """
        after = self.record(key)
        if key is not None and key.guide_cache.fits(key.state, left):
            self.note(after)
        self.follow(record, token, after)
        return after

    def follow(self, record: int, token: int, after: int) -> None:
        """Let a record follow another after a token; not if there is no room near the key's place."""
        self.near[record] |= self.is_forced[after]
        classes = self._classes.get(record)
        if classes is not None and classes[token]:
            return
        key = record << 32 | token
        home = home_of(key, self.capacity)
        if 2 * self._used >= self.capacity:
            return
        for probe in range(PROBES):
            place = (home + probe) & (self.capacity - 1)
            if self._keys[place] == key:
                return
            if self._keys[place] == EMPTY:
                self._keys[place] = key
                self._used += 1
                self._news.transitions.append((place, key, after))
                self._misses[record] = misses = self._misses.get(record, 0) + 1
                if misses == OFTEN and self._states[record].left is None:
                    self._wanted.append(record)
                return

    def widen(self) -> None:
        """Find out where all tokens lead from one record of those whose transitions were often met one by one.

        Takes about as long as a mask of the state, so it is done while the device is busy. Nothing is found for states
        that lead to very many others, and then no more for their guide.
        """
        while self._wanted and len(self._classes) < DENSE:
            record = self._wanted.pop()
            key = self._states[record]
            if key.guide_cache not in self._refused:
                self._divide(record, key)
                return

    def _divide(self, record: int, key: StateKey) -> None:
        guide_cache = key.guide_cache
        try:
            after = guide_cache.after_tokens(key.state)
        except LimitError:  # a text may well do with less than all that could follow
            self._refused.add(guide_cache)
            return
        if after is None:
            return
        states = np.unique(after[after != DEAD])
        if len(states) >= CLASSES:
            self._refused.add(guide_cache)
            return
        classes = np.where(after == DEAD, 0, np.searchsorted(states, after) + 1).astype(np.uint8)
        classes[list(key.stop_ids)] = 0
        row = len(self._classes)
        self._classes[record] = classes
        targets = np.full(CLASSES, UNKNOWN, np.int32)
        for place, each in enumerate(states.tolist(), 1):
            target = key._replace(state=each)
            if target in self._numbers:
                targets[place] = self._numbers[target]
                self.near[record] |= self.is_forced[targets[place]]
            else:
                self._awaited.setdefault(target, []).append((record, row, place))
        self._news.dense[row] = record, classes, targets

    def news(self) -> News:
        """Changes since the last time."""
        news, self._news = self._news, _nothing(forgotten=False)
        return news


_NO_LOOPS = np.zeros(3, np.int64)


def _nothing(*, forgotten: bool) -> News:
    return News({}, {}, {}, [], {}, [], forgotten)


_FIRST_LEAD = int(FORMS[0, LEAD])
_NEVER = 63
"""A bit of the third word that no state has: of tokens that are no whole characters."""

_charsets: WeakKeyDictionary[Vocabulary, NDArray[np.int64]] = WeakKeyDictionary()


def charsets(vocabulary: Vocabulary) -> NDArray[np.int64]:
    """The characters of each token, int64 [V, 3]: ASCII below 64, from 64 on, and lead bytes of others."""
    found = _charsets.get(vocabulary)
    if found is None:
        found = _charsets[vocabulary] = np.array([_charset(token) for token in vocabulary.tokens], np.uint64).view(
            np.int64
        )
    return found


def _charset(token: bytes | None) -> tuple[int, int, int]:
    words = [0, 0, 0]
    try:
        (token or b"\xff").decode()
    except UnicodeDecodeError:
        return 0, 0, 1 << _NEVER
    for byte in set(token or b""):
        if byte < FIRST_NEXT:
            words[byte >> 6] |= 1 << (byte & 63)
        elif byte >= _FIRST_LEAD:
            words[2] |= 1 << (byte - _FIRST_LEAD)
    return words[0], words[1], words[2]


def loops(guide: Guide, state: int) -> NDArray[np.int64]:
    """The characters after any of which a guide is in the same state again, int64 [3].

    None if the guide reads no bytes, or if that takes more than its limits allow: a text may well do with less.
    """
    words = [0, 0, 0]
    ask: Any = getattr(guide, "after_bytes", None)
    if ask is not None:
        with suppress(LimitError):
            after: NDArray[np.int32] = ask(state)
            for byte in np.flatnonzero(after[:FIRST_NEXT] == state).tolist():
                words[byte >> 6] |= 1 << (byte & 63)
            if any(words):
                words[2] = _leads(ask, after, state)
    return np.array(words, np.uint64).view(np.int64)


def _leads(ask: Any, after: NDArray[np.int32], state: int) -> int:
    """The lead bytes all of whose characters lead back, a bit each."""
    known: dict[int, NDArray[np.int32]] = {}

    def returns(place: int, first: int, last: int, more: int) -> bool:
        if place == DEAD:
            return False
        if place not in known:
            known[place] = ask(place)
        targets = set(known[place][first : last + 1].tolist())
        if more == 0:
            return targets == {state}
        return len(targets) == 1 and returns(targets.pop(), FIRST_NEXT, LAST_NEXT, more - 1)

    found = 0
    for form in FORMS:
        several = {int(after[lead]) for lead in range(form[LEAD], form[LAST_LEAD] + 1)}
        if len(several) == 1 and returns(several.pop(), int(form[SECOND]), int(form[LAST_SECOND]), int(form[MORE])):
            for lead in range(form[LEAD], form[LAST_LEAD] + 1):
                found |= 1 << (lead - _FIRST_LEAD)
    return found
