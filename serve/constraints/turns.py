"""Whose turn it is: compilation gives way to texts that are being written.

Python runs one thread at a time, and a core's memory is shared: a thread that compiles without a break takes half of
the speed of all texts beside it. Most constraints take some milliseconds, which nobody notices; those that take long
go on slowly as long as texts are being written.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

SHORTEST, LONGEST = 1e-3, 0.02
"""Seconds that a thread sleeps at a time: so soon it notices that it is to stop, or that nobody is held up any more."""


class Turns:
    """A bucket of processor time for all threads that compile, filled at a rate.

    is_busy: whether texts are being written; share: seconds of processor time that threads may take in a second while
    they are, asked again and again; burst: so many seconds of it at once
    """

    def __init__(self, is_busy: Callable[[], bool], share: Callable[[], float], burst: float) -> None:
        self._is_busy = is_busy
        self._share = share
        self._burst = burst
        self._left = burst
        self._since = time.monotonic()
        self._lock = threading.Lock()
        self._local = threading.local()

    def begin(self, is_over: Callable[[], bool]) -> None:
        """Count the work of this thread from now on, when what others have worked too much is made up for.

        is_over: whether nobody waits for that work any more; then neither does this
        """
        self._local.is_over = is_over
        self._local.used = time.thread_time()
        self.breathe()

    def end(self) -> None:
        """Count the rest of this thread's work, without waiting."""
        self._count()

    def breathe(self) -> None:
        """Count what this thread has worked since it was last asked, and wait while that was too much."""
        while (left := self._count()) < 0 and not self._local.is_over():
            if not self._is_busy():
                with self._lock:
                    self._left = max(self._left, 0.0)  # what held up nobody is no debt
                return
            time.sleep(min(LONGEST, max(SHORTEST, -left / self._share())))

    def _count(self) -> float:
        """What is left in the bucket, without what this thread has worked since it last counted."""
        used, share = time.thread_time(), self._share()
        with self._lock:
            now = time.monotonic()
            self._left = min(self._burst, self._left + share * (now - self._since)) - (used - self._local.used)
            self._since = now
            self._local.used = used
            return self._left
