"""Locks that are free after a fork: a child forked while other threads use guides finds consistent data.

All locks are taken before a fork, so that no thread is in a critical section, and released afterwards in both
processes.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from functools import cached_property
from typing import Any

from numba.core.compiler_lock import global_compiler_lock

FEW = 1024


class _State:
    """The number of registered locks at which dead ones are removed."""

    most = FEW


_locks: dict[int, weakref.ref[Any]] = {}
_held: dict[int, Any] = {}


def new_lock() -> Any:
    """Make a registered reentrant lock, `threading.RLock`."""
    lock = threading.RLock()
    if len(_locks) >= _State.most:
        # Dead locks are removed here: in a weakref callback, KeyboardInterrupt would be swallowed. The copy is atomic;
        # during a loop over pairs, other threads might register locks.
        for number, each in _locks.copy().items():
            if each() is None and _locks.get(number) is each:
                _locks.pop(number, None)
        _State.most = max(FEW, 2 * len(_locks))
    _locks[id(lock)] = weakref.ref(lock)
    return lock


def is_held(lock: Any) -> bool:
    """Test whether this thread holds a lock of `new_lock`. The lock's own owner field stays right under interrupts."""
    return lock._is_owned()


# Numba's lock, held while a kernel is compiled or loaded
_compiling: Any = getattr(global_compiler_lock, "_lock", None) or new_lock()


def _acquire_all() -> None:
    """Take every lock. On a busy lock, release all others before waiting for it, so that no deadlock can occur."""
    while True:
        busy = next((lock for lock in _every_lock() if not _try_lock(lock)), None)
        if busy is None:
            return
        _release_all()
        busy.acquire()
        _held[id(busy)] = busy


def _every_lock() -> list[Any]:
    ours = [lock for each in list(_locks.values()) if (lock := each()) is not None]
    return [_compiling, *ours, *_locks_of_properties()]


def _locks_of_properties() -> list[Any]:
    """Return the locks that Python 3.11 has in every `functools.cached_property`, one for all instances of a class."""
    package = __name__.partition(".")[0]
    modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == package]
    classes = {each for module in modules for each in list(vars(module).values()) if isinstance(each, type)}
    members: list[Any] = [member for each in classes for member in list(vars(each).values())]
    kind: Any = cached_property
    locks = (getattr(member, "lock", None) for member in members if isinstance(member, kind))
    return [lock for lock in locks if lock is not None]


def _try_lock(lock: Any) -> bool:
    """Take the lock without blocking, unless it is taken already; return False if it is busy."""
    if id(lock) in _held:
        return True
    if not lock.acquire(blocking=False):
        return False
    _held[id(lock)] = lock
    return True


def _release_all() -> None:
    while _held:
        _held.popitem()[1].release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_acquire_all, after_in_parent=_release_all, after_in_child=_release_all)
