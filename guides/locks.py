"""Locks that a fork leaves free: a child that begins while other threads use guides finds them whole.

Before a fork all locks are taken, so that nobody is in the middle of anything; afterwards parent and child let them go.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

from numba.core.compiler_lock import global_compiler_lock

_locks: dict[int, weakref.ref[Any]] = {}
_taken: dict[int, Any] = {}


def new_lock() -> Any:
    """A lock that one thread may take several times, `threading.RLock`."""
    lock = threading.RLock()
    number = id(lock)
    _locks[number] = weakref.ref(lock, lambda _: _locks.pop(number, None))
    return lock


# Numba's, which is held while a kernel is compiled or loaded
_compiling: Any = getattr(global_compiler_lock, "_lock", None) or new_lock()


def _take_all() -> None:
    """Take every lock there is. Whoever waits for one holds none, so that this cannot end in a circle."""
    while True:
        busy = next((lock for lock in _every_lock() if not _took(lock)), None)
        if busy is None:
            return
        _let_all_go()
        busy.acquire()
        _taken[id(busy)] = busy


def _every_lock() -> list[Any]:
    return [_compiling, *(lock for each in list(_locks.values()) if (lock := each()) is not None)]


def _took(lock: Any) -> bool:
    """Whether the lock is taken, if need be now."""
    if id(lock) in _taken:
        return True
    if not lock.acquire(blocking=False):
        return False
    _taken[id(lock)] = lock
    return True


def _let_all_go() -> None:
    while _taken:
        _taken.popitem()[1].release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_take_all, after_in_parent=_let_all_go, after_in_child=_let_all_go)
