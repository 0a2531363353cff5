"""What the device knows of constraints: a record for each state that was met, and what follows on tokens seen there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...guides.protocol import Mask
from ...kernels.lanes.layout import EMPTY, FREE, PROBES, home_of
from ..decode.guide_cache import GuideCache
from .characters import loops

RECORDS = 2048
CAPACITY = 1 << 17
"""Places for transitions, of which at most half are used."""

Key = tuple[GuideCache, int, frozenset[int]]
"""A state of a constraint, and the ids that end a text where that is complete."""


class FullError(Exception):
    """There is no room for another record, until all are forgotten."""


class News(NamedTuple):
    """What is to be written to the device before the next launch.

    masks: of records; loops: int64 [3] of records; transitions: place, key and value
    """

    masks: dict[int, Mask]
    loops: dict[int, NDArray[np.int64]]
    transitions: list[tuple[int, int, int]]
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
        self._news = News({}, {}, [], forgotten=False)

    @property
    def is_crowded(self) -> bool:
        """Whether little room is left, so that all should be forgotten before the next lanes begin."""
        return 2 * len(self._numbers) > RECORDS or 4 * self._used > self.capacity

    def forget(self) -> None:
        """Forget all records; no lane may go on by what was known."""
        self._numbers.clear()
        self._keys[:] = EMPTY
        self._used = 0
        self._news = News({}, {}, [], forgotten=True)

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
        self._numbers[key] = number
        return number

    def once(self, lane: int, mask: Mask) -> int:
        """The lane's own record, with a mask, after which nothing is known."""
        number = 1 + lane
        self._news.masks[number] = mask
        return number

    def follow(self, record: int, token: int, after: int) -> None:
        """Let a record follow another after a token; not if there is no room near the key's place."""
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
                return

    def news(self) -> News:
        """What was added since the last time."""
        news, self._news = self._news, News({}, {}, [], forgotten=False)
        return news
