"""Who is compiled next: what is short does not wait behind what takes long.

How long a constraint takes is seen from its text roughly, and for sure when it is tried. So each is tried for a moment,
short texts first; what takes longer goes on where there is room for one that does, and gives way where others have not
been tried yet, to begin again when there is room. One thread at least is kept for those that have not been tried.
"""

from __future__ import annotations

import math
import threading
from typing import Protocol

MOMENT = 0.1
"""Seconds of a thread's work after which a constraint is long. What gives way has lost no more than these."""
DOUBLED = 4.0
"""So many seconds later is a text put in line that is twice as long: however short the others are, its turn comes."""
LONGER = 8.0
"""So many seconds later is what is known to be long put in line."""


class Waiting(Protocol):
    """What is put in line. since: when it came; size: of its text in bytes; is_over: whether nobody waits for it"""

    since: float
    size: int

    @property
    def is_over(self) -> bool:
        """Asked each time that somebody is taken."""
        ...


class Line:
    """Of some threads that compile; usable from any thread."""

    def __init__(self, threads: int) -> None:
        self._room = max(1, threads - 1)
        self._waiting: list[Waiting] = []
        self._long: set[Waiting] = set()
        self._running: set[Waiting] = set()
        self._lock = threading.Lock()

    def add(self, work: Waiting) -> None:
        """Let it wait for its turn."""
        with self._lock:
            self._waiting.append(work)

    def take(self) -> Waiting | None:
        """Whose turn it is; None where nobody waits, or only what is long, for which there is no room."""
        with self._lock:
            has_room = len(self._long & self._running) < self._room
            able = [each for each in self._waiting if has_room or each.is_over or each not in self._long]
            if not able:
                return None
            found = min(able, key=self._place)
            self._waiting.remove(found)
            self._running.add(found)
            return found

    def goes_on(self, work: Waiting) -> bool:
        """Whether one that has had its moment may go on; then or later it is asked again."""
        with self._lock:
            if work in self._long:
                return True
            if len(self._long & self._running) < self._room:
                self._long.add(work)
                return True
            return all(each in self._long for each in self._waiting)

    def leave(self, work: Waiting, *, is_done: bool) -> None:
        """It runs no more; what is not done turned out to be long, and waits again."""
        with self._lock:
            self._running.discard(work)
            if is_done:
                self._long.discard(work)
            else:
                self._long.add(work)
                self._waiting.append(work)

    def _place(self, work: Waiting) -> float:
        if work.is_over:
            return 0.0
        return work.since + DOUBLED * math.log2(1 + work.size) + LONGER * (work in self._long)
