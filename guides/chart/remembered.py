"""Values that were made last, so that making one again costs nothing, as far as there is room for them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import islice
from typing import Generic, TypeVar

from ..locks import new_lock

Value = TypeVar("Value")

WEIGHED_AT_ONCE = 1
"""How many values, which grow while they are used, are weighed again whenever one is added."""


class Remembered(Generic[Value]):
    """A cache of the values used last; safe between threads, and whatever interrupts it.

    weigh: the bytes that a value takes now; most: how many values are kept; most_bytes: and how much they weigh
    together, as far as known, but the last is always kept. Values should not refer to themselves: what is forgotten
    would be there until Python comes to look for such circles.
    """

    def __init__(self, weigh: Callable[[Value], int], most: int, most_bytes: int) -> None:
        self._weigh = weigh
        self.most = most
        self.most_bytes = most_bytes
        # The value used longest ago comes first, and the one weighed longest ago. Keys are compared by Python code,
        # which Ctrl-C may end: what is left then is a value without a weight, or the other way round.
        self._values: dict[Hashable, Value] = {}
        self._weights: dict[Hashable, int] = {}
        self._lock = new_lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable) -> Value | None:
        """The value of a key, if it is still known."""
        with self._lock:
            value = self._values.pop(key, None)
            if value is not None:
                self._values[key] = value
            return value

    def add(self, key: Hashable, value: Value, instead: Value | None = None) -> Value:
        """Keep a value, and forget others if that is too much; the value that is kept, which may be another thread's.

        instead: a value known of the key, which the new one replaces
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
