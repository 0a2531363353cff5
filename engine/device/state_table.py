"""The state table on the device: masks, transitions, and characters that lead back to the same state."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ...errors import LimitError
from ...guides.protocol import DEAD, Guide, Mask
from ...kernels.device_batch.layout import CLASSES, EMPTY, FREE, PROBES, UNKNOWN, home_of
from ...kernels.utf8 import FIRST_NEXT, FORMS, LAST_LEAD, LAST_NEXT, LAST_SECOND, LEAD, MORE, SECOND
from ...tokenizers_adapter import Vocabulary
from ..decode.guide_cache import GuideCache

RECORDS = 1 << 14
_MASKS = 1 << 28
"""Bound of the masks' memory in bytes; it may reduce the number of records."""
CAPACITY = 1 << 20
"""Slots of the transition hash table, of which at most half are used."""
DENSE = 512
"""Number of records that may have a dense row of transitions for all tokens."""
OFTEN = 4
"""Number of single transitions of a record after which its dense row is requested."""

FAR = 1 << 30
MAX_LOOKED_AT = 3
"""Greatest number of tokens left for which a closing record is checked after each token."""


class StateKey(NamedTuple):
    """A state of a constraint.

    stop_ids: tokens that end a complete text
    left: tokens left, if the mask has to leave room to finish; None otherwise
    """

    guide_cache: GuideCache
    state: int
    stop_ids: frozenset[int]
    left: int | None = None


class FullError(Exception):
    """The table has no room for another record until it is cleared."""


class TableUpdates(NamedTuple):
    """Changes to write to the device before the next launch.

    masks, loops: by record; loops are int64 [3]; forced: the only allowed token, by record
    transitions: index, key and value; dense: by row, the record, its classes uint8 [V] and their targets int32
        [CLASSES]
    targets: row, class and record, written after `dense`; forgotten: clear the table first
    """

    masks: dict[int, Mask]
    loops: dict[int, NDArray[np.int64]]
    forced: dict[int, int]
    transitions: list[tuple[int, int, int]]
    dense: dict[int, tuple[int, NDArray[np.uint8], NDArray[np.int32]]]
    targets: list[tuple[int, int, int]]
    forgotten: bool


class DeviceStateTable:
    """Numbers of states, called records. Each slot also has one record for masks of one use.

    Changes reach the device with the following launch, in order. The device reads nothing that was not written.
    known_bound: int32 [count], for each record a number of tokens that completes a text; FAR if unknown or if the host
        has to check each token
    is_forced, near_forced: bool [count], True if one token is forced; and True if one was seen to be forced after the
        next token
    """

    def __init__(self, slots: int, size: int) -> None:
        self.slots = slots
        self._room = max(1, min(RECORDS, _MASKS // (4 * -(-size // 32))))
        self.count = 1 + slots + self._room
        self.capacity = CAPACITY
        self.known_bound = np.full(self.count, FAR, np.int32)
        self.known_bound[FREE] = 0
        self.near_forced = np.zeros(self.count, np.bool_)
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
        self._news = _no_updates(forgotten=False)

    @property
    def is_crowded(self) -> bool:
        """True if little room is left, and the table should be cleared before the next run."""
        return 2 * len(self._numbers) > self._room or 4 * self._used > self.capacity

    def forget(self) -> None:
        """Clear the table. No slot may continue by old records."""
        self._numbers.clear()
        self._keys[:] = EMPTY
        self._used = 0
        self.known_bound[1:] = FAR
        self.near_forced[:] = self.is_forced[:] = False
        for each in (self._states, self._misses, self._wanted, self._classes, self._awaited, self._refused):
            each.clear()
        self._news = _no_updates(forgotten=True)

    def find(self, key: StateKey | None) -> int | None:
        """Return the record of a state, FREE for no constraint; None if there is none."""
        return FREE if key is None else self._numbers.get(key)

    def record(self, key: StateKey | None) -> int:
        """Return the record of a state, created if missing. Raises FullError."""
        found = self.find(key)
        if found is not None or key is None:
            return found or FREE
        number = 1 + self.slots + len(self._numbers)
        if number == self.count:
            raise FullError
        self._news.masks[number] = key.guide_cache.mask(*key[1:])
        self._news.loops[number] = loops(key.guide_cache.guide, key.state) if key.left is None else _NO_LOOPS
        forced = key.guide_cache.allowed(key.state).forced
        if forced >= 0:
            self._news.forced[number] = forced
            self.is_forced[number] = self.near_forced[number] = True
        self._numbers[key], self._states[number] = number, key
        for before, row, place in self._awaited.pop(key, ()):
            self._news.targets.append((row, place, number))
            self.near_forced[before] |= forced >= 0
        return number

    def key(self, record: int) -> StateKey:
        """Return the state of a record other than FREE."""
        return self._states[record]

    def note(self, record: int) -> None:
        """Update `known_bound` of a record."""
        if record == FREE:
            return
        key = self._states[record]
        if key.left is None:
            bound = key.guide_cache.known_bound(key.state)
        else:
            # A closing mask guarantees that the rest fits into the tokens left.
            bound = key.left - 2 if key.left > MAX_LOOKED_AT else None
        if bound is not None:
            self.known_bound[record] = min(self.known_bound[record], bound)

    def is_closing(self, record: int) -> bool:
        """Test whether a record's mask is a closing mask."""
        return record != FREE and self._states[record].left is not None

    def record_once(self, slot: int, mask: Mask) -> int:
        """Return the slot's own record with a mask. Nothing is known after it."""
        number = 1 + slot
        self._news.masks[number] = mask
        return number

    def lead(self, record: int, token: int, key: StateKey | None, left: int) -> int:
        """Return the record that a token leads to, created as by `record`, and add the transition.

        left: tokens left there for the text that came, or may come, this way
        """
        after = self.record(key)
        if key is not None and key.guide_cache.fits(key.state, left):
            self.note(after)
        self.follow(record, token, after)
        return after

    def follow(self, record: int, token: int, after: int) -> None:
        """Add a transition, unless the probe sequence of its key is full."""
        self.near_forced[record] |= self.is_forced[after]
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
        """Compute the dense row of one record with frequent single transitions.

        This takes about as long as a mask, so it runs while the device is busy. States with too many successors have no
        dense row, and neither have other states of their guide.
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
        except LimitError:  # a text may need less than the bounded computation
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
                self.near_forced[record] |= self.is_forced[targets[place]]
            else:
                self._awaited.setdefault(target, []).append((record, row, place))
        self._news.dense[row] = record, classes, targets

    def news(self) -> TableUpdates:
        """Return the changes since the last call."""
        news, self._news = self._news, _no_updates(forgotten=False)
        return news


_NO_LOOPS = np.zeros(3, np.int64)


def _no_updates(*, forgotten: bool) -> TableUpdates:
    return TableUpdates({}, {}, {}, [], {}, [], forgotten)


_FIRST_LEAD = int(FORMS[0, LEAD])
_NEVER = 63
"""A bit of the third word that no state has. It marks tokens that are not whole characters."""

_charsets: WeakKeyDictionary[Vocabulary, NDArray[np.int64]] = WeakKeyDictionary()


def charsets(vocabulary: Vocabulary) -> NDArray[np.int64]:
    """Return the characters of each token as bit sets, int64 [V, 3]: ASCII below 64, ASCII from 64 on, other lead
    bytes."""
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
    """Return the characters that lead from a state back to it, int64 [3].

    The set is empty if the guide reads no bytes, or if its limits do not allow the computation.
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
    """Return the lead bytes all of whose characters lead back, as a bit set."""
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
