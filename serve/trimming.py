"""Memory that is free again is given back to the system, and what is kept for later where there is nothing to do.

glibc gives back what lies at the end of its heaps, and keeps what lies between things that are still there. Constraints
that come and go, each in thousands of pieces, leave more and more of that behind.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
from collections.abc import Callable
from functools import partial

SECONDS = 10.0
"""So often, where anything was done: it takes some milliseconds, for which others have the interpreter."""
IDLE = 3
"""After so many times in which nothing was done what is kept is looked through."""


def trim_of_system() -> Callable[[], object] | None:
    """The function of glibc that gives free memory back; None where there is another library."""
    found = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if found is None:
        return None
    found.argtypes, found.restype = [ctypes.c_size_t], ctypes.c_int
    return partial(found, 0)


_TRIM = trim_of_system()


def collect(trim: Callable[[], object] | None = _TRIM) -> None:
    """Give back what nobody holds any more; what refers to itself Python looks for only as more is made."""
    gc.collect()
    if trim is not None:
        trim()


class Trimmer:
    """Gives memory back again and again, until it is closed. Made on the event loop.

    count: how much has been done so far; is_idle: whether nothing is being done
    forget: drops what is kept for nobody in particular; called on the event loop, once each time that all is idle
    trim: gives free memory back; None where nothing can
    """

    def __init__(
        self,
        count: Callable[[], int],
        is_idle: Callable[[], bool],
        forget: Callable[[], object],
        seconds: float = SECONDS,
        trim: Callable[[], object] | None = _TRIM,
    ) -> None:
        self._count = count
        self._is_idle = is_idle
        self._forget = forget
        self._seconds = seconds
        self._task = None if trim is None else asyncio.get_running_loop().create_task(self._run(trim))

    async def close(self) -> None:
        """Give nothing back any more, and hold nothing."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self, trim: Callable[[], object]) -> None:
        loop, before, idle = asyncio.get_running_loop(), self._count(), IDLE  # nothing is kept yet
        while True:
            await asyncio.sleep(self._seconds)
            now = self._count()
            idle = idle + 1 if now == before and self._is_idle() else 0
            if now != before:
                await loop.run_in_executor(None, trim)
            elif idle == IDLE:
                self._forget()
                await loop.run_in_executor(None, collect, trim)
            before = now
