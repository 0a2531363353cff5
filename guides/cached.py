"""Bounded caches of pure functions in a process. Constraints come from untrusted users, so memory is bounded."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from dataclasses import is_dataclass
from functools import lru_cache, wraps
from itertools import islice
from operator import attrgetter
from typing import Any, Generic, ParamSpec, TypeVar, cast

import numpy as np

from .locks import new_lock

Arguments = ParamSpec("Arguments")
Value = TypeVar("Value")

SHARE = 16
_PLAIN = frozenset((int, bool, float, bytes, type(None)))
# Bytes of an object of a few fields, of a reference, and of a pair of two numbers with its reference
_OBJECT, _REFERENCE, _PAIR = 56, 8, 128


def cached(most: int, most_bytes: int) -> Callable[[Callable[Arguments, Value]], Callable[Arguments, Value]]:
    """Cache the results of a function of hashable arguments, the last `most` ones, as `functools.lru_cache` does.

    most_bytes: if results and arguments added since the last clearing exceed this, the cache is cleared but for the
    newest
    """

    def decorate(make: Callable[Arguments, Value]) -> Callable[Arguments, Value]:
        total = 0
        lock = new_lock()

        @lru_cache(maxsize=most)
        @wraps(make)
        def wrapper(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Value:
            nonlocal total
            value = make(*args, **kwargs)
            weight = held_bytes((args, value), most_bytes)
            with lock:
                total += weight
                if total > most_bytes:
                    total = weight
                    wrapper.cache_clear()
            return value

        return cast("Callable[Arguments, Value]", wrapper)

    return decorate


def cached_growing(
    most: int, most_bytes: int, weigh: Callable[[Any], int] = attrgetter("held_bytes")
) -> Callable[[Callable[Arguments, Value]], Callable[Arguments, Value]]:
    """Cache as `cached` does, for results that grow while they are used.

    weigh: estimates the bytes that a result holds now; called for all results whenever a sixteenth of them is new
    """

    def decorate(make: Callable[Arguments, Value]) -> Callable[Arguments, Value]:
        entries: list[tuple[Value, int]] = []
        lock = new_lock()
        new = 0

        @lru_cache(maxsize=most)
        @wraps(make)
        def wrapper(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Value:
            nonlocal new
            value = make(*args, **kwargs)
            entry = value, held_bytes(args, most_bytes)
            with lock:
                entries.append(entry)
                new += 1
                if SHARE * new < len(entries) <= most:
                    return value
                new = 0
                if len(entries) > most or sum(weigh(each) + size for each, size in entries) > most_bytes:
                    entries[:] = [entry]
                    wrapper.cache_clear()
            return value

        return cast("Callable[Arguments, Value]", wrapper)

    return decorate


WEIGHED_AT_ONCE = 1
"""Values weighed again, besides the new one, whenever a value is added: values may grow while they are used."""


class LRUCache(Generic[Value]):
    """An LRU cache bounded by count and memory; safe between threads and under KeyboardInterrupt.

    weigh: the bytes that a value holds now
    most: the most values kept
    most_bytes: the most bytes kept, by the last known weights; the newest value is always kept

    Values should contain no reference cycles: only the cyclic garbage collector would free them after eviction.
    """

    def __init__(self, weigh: Callable[[Value], int], most: int, most_bytes: int) -> None:
        self._weigh = weigh
        self.most = most
        self.most_bytes = most_bytes
        # Ordered by last use, and by last weighing; the oldest comes first. Comparing keys runs Python code, which
        # KeyboardInterrupt may end: then a value may lack a weight, or a weight its value.
        self._values: dict[Hashable, Value] = {}
        self._weights: dict[Hashable, int] = {}
        self._lock = new_lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable) -> Value | None:
        """Return the value of a key, None if it is not cached."""
        with self._lock:
            value = self._values.pop(key, None)
            if value is not None:
                self._values[key] = value
            return value

    def add(self, key: Hashable, value: Value, instead: Value | None = None) -> Value:
        """Add a value, evict others beyond the bounds, and return the cached value, which may be another thread's.

        instead: a known value of the key, which the new one replaces
        """
        with self._lock:
            found = self._values.pop(key, instead)
            if found is not instead and found is not None:
                value = found
            self._values[key] = value
            for weighed in (key, *islice(self._weights, WEIGHED_AT_ONCE)):
                self._weights.pop(weighed, None)
                if weighed in self._values:
                    self._weights[weighed] = self._weigh(self._values[weighed])
            while len(self._values) > 1 and (len(self._values) > self.most or self._total > self.most_bytes):
                forgotten = next(iter(self._values))
                self._weights.pop(forgotten, None)
                del self._values[forgotten]
            return value

    @property
    def _total(self) -> int:
        return sum(self._weights.values())


def held_bytes(value: object, enough: int) -> int:
    """Estimate the bytes of a nested value; counting stops beyond `enough`. Shared parts count each time."""
    total = 0
    pending: Any = [value]
    take, add = pending.pop, pending.extend
    while pending and total <= enough:
        each = take()
        kind = each.__class__
        inside = _inside.get(kind)
        if kind is str:
            total += _OBJECT + len(each)
        elif kind in _PLAIN:
            total += sys.getsizeof(each)
        elif inside is not None:
            total += _OBJECT
            add(inside(each))
        elif issubclass(kind, (tuple, list, frozenset)):
            total += _OBJECT + _REFERENCE * len(each)
            if kind is tuple and each and type(each[0]) is tuple and len(each[0]) == 2 and type(each[0][0]) is int:
                total += (_PAIR - _REFERENCE) * len(each)  # a set of characters
            else:
                add(each)
        elif kind is np.ndarray:
            total += _OBJECT + each.nbytes
        elif kind is dict:
            total += _OBJECT + 4 * _REFERENCE * len(each)
            add(each)
            add(each.values())
        elif is_dataclass(kind):
            names = list(kind.__dataclass_fields__)
            _inside[each.__class__] = attrgetter(*names, "__module__")  # one name alone would give no tuple
            pending.append(each)
        else:
            total += sys.getsizeof(each)
    return total


# Getter of the fields of each dataclass
_inside: dict[type, Callable[[Any], tuple[Any, ...]]] = {}
