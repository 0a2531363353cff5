"""Memory that is free again is given back to the system.

glibc gives back what lies at the end of its heaps, and keeps what lies between things that are still there. Constraints
that come and go, each in thousands of pieces, leave more and more of that behind.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

SECONDS = 10.0
"""So often, where anything was done: it takes some milliseconds, for which others have the interpreter."""


class Trimmer:
    """Gives memory back again and again, until it is closed. Made on the event loop.

    count: how much has been done so far
    """

    def __init__(self, count: Callable[[], int], seconds: float = SECONDS) -> None:
        self._count = count
        self._seconds = seconds
        trim = _trim()
        self._task = None if trim is None else asyncio.get_running_loop().create_task(self._run(trim))

    def close(self) -> None:
        """Give nothing back any more."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self, trim: Callable[[], Any]) -> None:
        loop, before = asyncio.get_running_loop(), self._count()
        while True:
            await asyncio.sleep(self._seconds)
            now = self._count()
            if now != before:
                await loop.run_in_executor(None, trim)
            before = now


@cache
def _trim() -> Callable[[], Any] | None:
    """What glibc has for that; None where there is another library."""
    found = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if found is None:
        return None
    found.argtypes, found.restype = [ctypes.c_size_t], ctypes.c_int
    return lambda: found(0)
