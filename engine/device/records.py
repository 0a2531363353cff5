"""What the device knows of constraints: a record for each state that was met, and what follows on tokens seen there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import LimitError
from ...guides.protocol import DEAD, Mask
from ...kernels.lanes.layout import CLASSES, EMPTY, FREE, PROBES, UNKNOWN, home_of
from ..decode.guide_cache import GuideCache
from .characters import loops

RECORDS = 2048
CAPACITY = 1 << 17
"""Places for transitions, of which at most half are used."""
DENSE = 128
"""Records for which it may be known where every token leads."""
OFTEN = 4
"""After so many transitions met one by one, all those out of a record are asked for."""

Key = tuple[GuideCache, int, frozenset[int]]
"""A state of a constraint, and the ids that end a text where that is complete."""


class FullError(Exception):
    """There is no room for another record, until all are forgotten."""


class News(NamedTuple):
    """What is to be written to the device before the next launch.

    masks: of records; loops: int64 [3] of records; transitions: place, key and value
    dense: of rows, the record, its classes uint8 [V] and their targets int32 [CLASSES]; targets: row, class and record,
    to be written after those
    """

    masks: dict[int, Mask]
    loops: dict[int, NDArray[np.int64]]
    transitions: list[tuple[int, int, int]]
    dense: dict[int, tuple[int, NDArray[np.uint8], NDArray[np.int32]]]
    targets: list[tuple[int, int, int]]
    forgotten: bool


class Records:
    """Numbers for states, as many as there is room for. Lanes have one each for masks that hold once only.

    What is added is written to the device by the launch that follows, in the order of launches: nothing is read there
    that was not written.
    """

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.count = 1 + lanes + RECORDS
        self.capacity = CAPACITY
        self._numbers: dict[Key, int] = {}
        self._keys = np.full(CAPACITY, EMPTY, np.int64)
        self._used = 0
        self._states: dict[int, Key] = {}
        self._misses: dict[int, int] = {}
        self._wanted: list[int] = []
        self._classes: dict[int, NDArray[np.uint8]] = {}
        self._awaited: dict[Key, list[tuple[int, int]]] = {}
        self._refused: set[GuideCache] = set()
        self._news = _nothing(forgotten=False)

    @property
    def is_crowded(self) -> bool:
        """Whether little room is left, so that all should be forgotten before the next lanes begin."""
        return 2 * len(self._numbers) > RECORDS or 4 * self._used > self.capacity

    def forget(self) -> None:
        """Forget all records; no lane may go on by what was known."""
        self._numbers.clear()
        self._keys[:] = EMPTY
        self._used = 0
        for each in (self._states, self._misses, self._wanted, self._classes, self._awaited, self._refused):
            each.clear()
        self._news = _nothing(forgotten=True)

    def find(self, key: Key | None) -> int | None:
        """The record of a state, FREE for none, if there is one."""
        return FREE if key is None else self._numbers.get(key)

    def record(self, key: Key | None) -> int:
        """The record of a state, made if there is none. Raises FullError."""
        found = self.find(key)
        if found is not None or key is None:
            return found or FREE
        number = 1 + self.lanes + len(self._numbers)
        if number == self.count:
            raise FullError
        guide_cache, state, stop_ids = key
        mask, back = guide_cache.mask(state, stop_ids), loops(guide_cache.guide, state)
        self._news.masks[number], self._news.loops[number] = mask, back
        self._numbers[key], self._states[number] = number, key
        self._news.targets.extend((row, place, number) for row, place in self._awaited.pop(key, ()))
        return number

    def once(self, lane: int, mask: Mask) -> int:
        """The lane's own record, with a mask, after which nothing is known."""
        number = 1 + lane
        self._news.masks[number] = mask
        return number

    def follow(self, record: int, token: int, after: int) -> None:
        """Let a record follow another after a token; not if there is no room near the key's place."""
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
                if misses == OFTEN:
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
            if key[0] not in self._refused:
                self._divide(record, key)
                return

    def _divide(self, record: int, key: Key) -> None:
        guide_cache, state, stop_ids = key
        try:
            after = guide_cache.after_tokens(state)
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
        classes[list(stop_ids)] = 0
        row = len(self._classes)
        self._classes[record] = classes
        targets = np.full(CLASSES, UNKNOWN, np.int32)
        for place, each in enumerate(states.tolist(), 1):
            target = (guide_cache, each, stop_ids)
            if target in self._numbers:
                targets[place] = self._numbers[target]
            else:
                self._awaited.setdefault(target, []).append((row, place))
        self._news.dense[row] = record, classes, targets

    def news(self) -> News:
        """What was added since the last time."""
        news, self._news = self._news, _nothing(forgotten=False)
        return news


def _nothing(*, forgotten: bool) -> News:
    return News({}, {}, [], {}, [], forgotten)
