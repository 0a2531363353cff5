"""The process that engines live in: what becomes of them where it forks, and where it ends."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Protocol


class Living(Protocol):
    """An `Engine`, which says what its methods do."""

    @property
    def is_started(self) -> bool:
        """True if a thread of its own takes the steps."""
        ...

    def tell(self) -> None:
        """Let those look who wait."""
        ...

    def after_fork(self) -> None:
        """Begin anew in a process that has none of the threads."""
        ...

    def close(self) -> None:
        """End all that runs."""
        ...


_engines: weakref.WeakSet[Living] = weakref.WeakSet()


def live(engine: Living) -> None:
    """Let an engine know of forks, and of the end, for as long as somebody has it."""
    _engines.add(engine)


def _tell_all() -> None:
    """Let those look again who found the lock of steps taken by the thread that forked, and wait to be told."""
    for engine in list(_engines):
        engine.tell()


def _forget_threads() -> None:
    """In a forked process, whose engines' threads have stayed behind: whoever waits takes the steps."""
    for engine in list(_engines):
        engine.after_fork()


if hasattr(os, "register_at_fork"):
    # These run after those of `guides.locks`, which are registered before, and so find all locks free.
    os.register_at_fork(after_in_parent=_tell_all, after_in_child=_forget_threads)


@atexit.register
def _end_threads() -> None:
    """Python cannot end a thread in the midst of a model's native code; the whole process would be aborted."""
    for engine in list(_engines):
        if engine.is_started:
            engine.close()
