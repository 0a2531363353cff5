"""Values that were made last, so that making one again costs nothing, as far as there is room for them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from itertools import islice
from typing import Generic, TypeVar

Value = TypeVar("Value")

WEIGHED_AT_ONCE = 1
"""How many values, which grow while they are used, are weighed again whenever one is added."""


class Remembered(Generic[Value]):
    """A cache of the values used last; safe between threads.

    weigh: the bytes that a value takes now; most: how many values are kept; most_bytes: and how much they weigh
    together, as far as known, but the last is always kept
    """

    def __init__(self, weigh: Callable[[Value], int], most: int, most_bytes: int) -> None:
        self._weigh = weigh
        self.most = most
        self.most_bytes = most_bytes
        self._values: OrderedDict[Hashable, Value] = OrderedDict()
        # The value weighed longest ago comes first.
        self._weights: OrderedDict[Hashable, int] = OrderedDict()
        self._total = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable) -> Value | None:
        """The value of a key, if it is still known."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def add(self, key: Hashable, value: Value) -> None:
        """Keep a value, and forget others if that is too much."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            self._take_weight(key)
            for weighed_first in list(islice(self._weights, WEIGHED_AT_ONCE)):
                self._take_weight(weighed_first)
            while len(self._values) > 1 and (len(self._values) > self.most or self._total > self.most_bytes):
                forgotten, _ = self._values.popitem(last=False)
                self._total -= self._weights.pop(forgotten)

    def _take_weight(self, key: Hashable) -> None:
        weight = self._weigh(self._values[key])
        self._total += weight - self._weights.pop(key, 0)
        self._weights[key] = weight
