"""Locks that a fork leaves free: a child that begins while other threads use guides finds them whole.

Before a fork all locks are taken, so that nobody is in the middle of anything; afterwards parent and child let them go.
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
    """The number of locks that there may be before those that are gone are forgotten."""

    most = FEW


_locks: dict[int, weakref.ref[Any]] = {}
_taken: dict[int, Any] = {}


def new_lock() -> Any:
    """A lock that one thread may take several times, `threading.RLock`."""
    lock = threading.RLock()
    if len(_locks) >= _State.most:
        # Here, not when a lock goes: what is done then cannot be broken off by Ctrl-C, which would be lost.
        # A copy is made in one go; a list of pairs is not, between which the collector may let other threads add some.
        for number, each in _locks.copy().items():
            if each() is None and _locks.get(number) is each:
                _locks.pop(number, None)
        _State.most = max(FEW, 2 * len(_locks))
    _locks[id(lock)] = weakref.ref(lock)
    return lock


def is_held(lock: Any) -> bool:
    """True if this thread has a lock of `new_lock`. The lock itself knows, whatever an interrupt breaks off."""
    return lock._is_owned()


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
    ours = [lock for each in list(_locks.values()) if (lock := each()) is not None]
    return [_compiling, *ours, *_locks_of_properties()]


def _locks_of_properties() -> list[Any]:
    """The locks that Python 3.11 has in every `functools.cached_property`, one for all instances of a class."""
    package = __name__.partition(".")[0]
    modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == package]
    classes = {each for module in modules for each in list(vars(module).values()) if isinstance(each, type)}
    members: list[Any] = [member for each in classes for member in list(vars(each).values())]
    kind: Any = cached_property
    locks = (getattr(member, "lock", None) for member in members if isinstance(member, kind))
    return [lock for lock in locks if lock is not None]


def _took(lock: Any) -> bool:
    """Tell whether the lock is taken, if need be now."""
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
