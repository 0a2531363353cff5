"""Return of free memory to the system, and cache eviction while the server is idle.

glibc returns memory only at the end of its heaps, and keeps free memory between live allocations. Constraints consist
of thousands of small allocations, and fragment the heap more and more.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
from collections.abc import Callable
from functools import partial

SECONDS = 10.0
"""Interval in seconds between trims after any work. A trim takes some milliseconds, with the GIL released."""
IDLE = 3
"""Number of idle intervals after which caches are reduced."""


def trim_of_system() -> Callable[[], object] | None:
    """Return glibc's function that returns free memory; None for another library."""
    found = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if found is None:
        return None
    found.argtypes, found.restype = [ctypes.c_size_t], ctypes.c_int
    return partial(found, 0)


_TRIM = trim_of_system()


def collect(trim: Callable[[], object] | None = _TRIM) -> None:
    """Collect reference cycles, which Python otherwise does only on further allocations, and trim the heap."""
    gc.collect()
    if trim is not None:
        trim()


class MemoryTrimmer:
    """Trims memory periodically until it is closed. Created on the event loop.

    count: amount of work done so far; is_idle: tests whether the server is idle
    forget: reduces caches; called on the event loop, once in each idle period
    trim: returns free memory to the system; None if that is impossible
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
        """Stop trimming."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self, trim: Callable[[], object]) -> None:
        loop, before, idle = asyncio.get_running_loop(), self._count(), IDLE  # nothing is cached yet
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
