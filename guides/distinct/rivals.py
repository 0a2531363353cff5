"""Arrays and objects that were written, grouped by their parts: which of them one in progress may still come to."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any, Literal

from ..limits import spend
from .words import Words

Kind = Literal["array", "object"]
ARRAY: Kind = "array"
OBJECT: Kind = "object"

FEW = 4
"""Up to how many containers are looked through one by one, for which shelves would take longer."""
_serials = count(1)


class Container:
    """An array or object that has been written; equal ones of one guide are one object.

    parts: the items of an array, the values by the names of an object
    """

    __slots__ = ("__weakref__", "kind", "parts")

    def __init__(self, kind: Kind, parts: Any) -> None:
        self.kind: Kind = kind
        self.parts = parts

    def has(self, at: int | bytes) -> bool:
        """Whether there is something at an index, or by a name."""
        return at < len(self.parts) if isinstance(at, int) else at in self.parts


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
            if value.has(at):
                shelf.put(value.parts[at], value, number)
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

    texts: the strings, in order; words: the numbers, true, false and null; inner: the arrays and objects
    """

    __slots__ = ("done", "groups", "inner", "texts", "words")

    def __init__(self) -> None:
        self.done = 0
        self.groups: dict[Value, Group] = {}
        self.texts: list[bytes] = []
        self.words = Words()
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
                self.words.add(part, number)
        group.add(value, number)


class Rivals:
    """What a container in progress may still come to: those of groups that were among the first values, and a few more.

    sources: groups, each with how many values count; few: containers that are in none of them
    """

    __slots__ = ("few", "sources")

    def __init__(self, sources: tuple[tuple[Group, int], ...], few: tuple[Container, ...]) -> None:
        self.sources = sources
        self.few = few

    def __bool__(self) -> bool:
        return bool(self.few or self.sources)

    def __len__(self) -> int:
        return len(self.few) + sum(bisect_left(group.numbers, first) for group, first in self.sources)

    def having(self, at: int | bytes, part: Value) -> Rivals:
        """Those that have something at an index, or by a name."""
        if not self:
            return NONE
        few = [value for value in self.few if value.has(at) and value.parts[at] == part]
        sources: list[tuple[Group, int]] = []
        for group, first in self.sources:
            found = group.shelf(at).groups.get(part)
            if found is None:
                continue
            known = bisect_left(found.numbers, first)
            if known > FEW:
                sources.append((found, first))
            else:
                few += found.values[:known]
        return Rivals(tuple(sources), tuple(few)) if sources or few else NONE


NONE = Rivals((), ())


def rivals_of(sources: Iterable[tuple[Group | None, int]], few: Iterable[Container]) -> Rivals:
    """Those of some groups, as far as they are among the first values, and a few more."""
    found = tuple((group, count) for group, count in sources if group and group.numbers and group.numbers[0] < count)
    more = tuple(few)
    return Rivals(found, more) if found or more else NONE


def texts_beginning(texts: list[bytes], begin: bytes) -> Iterator[bytes]:
    """Those of some texts in order that begin so."""
    at = bisect_left(texts, begin)
    while at < len(texts) and texts[at].startswith(begin):
        spend(5)
        yield texts[at]
        at += 1
