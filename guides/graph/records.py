"""Growing arrays of small records, for what is made a few at a time, from Python."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from ..limits import spend_growth
from .fragment import Ints

# Steps of work that a record counts for where they come a few at a time, and below how many these are
GROWTH, FEW = 40, 64


class Records:
    """A growing int32 array [n, width]; `array` has room to spare, `count` rows are in use."""

    def __init__(self, width: int, capacity: int) -> None:
        self.width = width
        self._take(np.zeros((capacity, width), np.int32))
        self.count = 0

    def _take(self, rows: Ints) -> None:
        self.array: Ints = rows
        self._room = len(rows)
        # Single numbers are written through a memoryview, several times faster than through NumPy.
        self.flat = memoryview(rows.reshape(-1))  # type: ignore[arg-type]

    def used(self) -> Ints:
        """A copy of the rows in use."""
        return self.array[: self.count].copy()

    def extend(self, rows: Ints) -> int:
        """Append rows; the number of the first."""
        first = self.reserve(len(rows))
        self.array[first : self.count] = rows
        return first

    def append(self, values: Sequence[int]) -> int:
        """Append rows given as their numbers, one row after the other; the number of the first row."""
        first = self.reserve(len(values) // self.width)
        self.flat[first * self.width : self.count * self.width] = array("i", values)
        return first

    def reserve(self, amount: int) -> int:
        """Append rows of zeros; the number of the first."""
        first = self.count
        self.count = count = first + amount
        if count > self._room:
            room = max(count, 2 * self._room)
            spend_growth(GROWTH * self.count if amount < FEW else amount, 4 * self.width * room)
            larger = np.zeros((room, self.width), np.int32)
            larger[:first] = self.array[:first]
            self._take(larger)
        return first
