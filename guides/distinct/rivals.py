"""Arrays and objects that were written, grouped by their parts: which of them one in progress may still come to."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import count
from typing import Any, Literal

from ...kernels.answers import NEVER
from ..limits import spend

Kind = Literal["array", "object"]
ARRAY: Kind = "array"
OBJECT: Kind = "object"

_serials = count(1)


class Container:
    """An array or object that has been written; equal ones of one guide are one object.

    parts: the items of an array, the values by the names of an object
    """

    __slots__ = ("__weakref__", "kind", "parts")

    def __init__(self, kind: Kind, parts: Any) -> None:
        self.kind: Kind = kind
        self.parts = parts


Value = bytes | tuple[Any, ...] | Container
"""What equal JSON values have in common: bytes for strings, tuples for numbers, true, false and null; hashable."""


class Group:
    """Containers in the order in which they were written; more of them may come.

    numbers: how many values were written before each; serial: a number that no other group has
    """

    __slots__ = ("_names", "_shelves", "numbers", "serial", "values")

    def __init__(self) -> None:
        self.values: list[Container] = []
        self.numbers: list[int] = []
        self.serial = next(_serials)
        self._shelves: dict[int | bytes, Shelf] = {}
        self._names: Shelf | None = None

    def add(self, value: Container, number: int) -> None:
        """Add one more."""
        self.values.append(value)
        self.numbers.append(number)

    def shelf(self, at: int | bytes) -> Shelf:
        """What they have at an index, or by a name."""
        shelf = self._shelves.get(at)
        if shelf is None:
            shelf = self._shelves[at] = Shelf()
        for value, number in self._waiting(shelf):
            parts = value.parts
            if (at < len(parts)) if isinstance(at, int) else (at in parts):
                shelf.put(parts[at], value, number)
        return shelf

    def names(self) -> Shelf:
        """The names that objects have."""
        if self._names is None:
            self._names = Shelf()
        for value, number in self._waiting(self._names):
            spend(20 * len(value.parts))
            for name in value.parts:
                self._names.put(name, value, number)
        return self._names

    def _waiting(self, shelf: Shelf) -> Iterator[tuple[Container, int]]:
        """Those that have not been put on a shelf."""
        while shelf.done < len(self.values):
            at = shelf.done
            spend(50)
            shelf.done = at + 1
            yield self.values[at], self.numbers[at]


class Shelf:
    """What containers of a group have at one place, and which of them have it.

    texts: the strings, in order; words_from: how many values were written before one with a number, true, false or null
    inner: the arrays and objects
    """

    __slots__ = ("done", "groups", "inner", "texts", "words_from")

    def __init__(self) -> None:
        self.done = 0
        self.groups: dict[Value, Group] = {}
        self.texts: list[bytes] = []
        self.words_from = NEVER
        self.inner: dict[Kind, Group] = {}

    def put(self, part: Value, value: Container, number: int) -> None:
        """Note that a container has a part."""
        group = self.groups.get(part)
        if group is None:
            group = self.groups[part] = Group()
            if isinstance(part, bytes):
                insort(self.texts, part)
            elif isinstance(part, Container):
                if part.kind not in self.inner:
                    self.inner[part.kind] = Group()
                self.inner[part.kind].add(part, number)
            else:
                self.words_from = min(self.words_from, number)
        group.add(value, number)


class Rivals:
    """Those of a group that were among the first values; what a container in progress may still come to."""

    __slots__ = ("count", "group")

    def __init__(self, group: Group, first: int) -> None:
        self.group = group
        self.count = first

    def __bool__(self) -> bool:
        numbers = self.group.numbers
        return bool(numbers) and numbers[0] < self.count

    def __len__(self) -> int:
        return bisect_left(self.group.numbers, self.count)

    def values(self) -> list[Container]:
        """The containers."""
        return self.group.values[: len(self)]

    def having(self, at: int | bytes, part: Value) -> Rivals:
        """Those that have something at an index, or by a name."""
        if not self:
            return NONE
        group = self.group.shelf(at).groups.get(part)
        if group is None or group.numbers[0] >= self.count:
            return NONE
        return Rivals(group, self.count)


NONE = Rivals(Group(), 0)


def texts_beginning(texts: list[bytes], begin: bytes) -> Iterator[bytes]:
    """Those of some texts in order that begin so."""
    at = bisect_left(texts, begin)
    while at < len(texts) and texts[at].startswith(begin):
        spend(5)
        yield texts[at]
        at += 1
