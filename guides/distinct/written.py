"""Sets of values that have been written, which grow by one, and values that others are made of."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

from ..limits import spend
from .heads import Heads
from .rivals import ARRAY, OBJECT, Container, Group, Kind, Rivals, Value, rivals_of, texts_beginning
from .words import WordBegin, Words, key_of

EACH_VALUE, EACH_PART = 400, 600
"""About how many bytes a container takes without its parts, and each of these where containers are grouped by them."""
UNSORTED = 4
"""How many of the last values are looked through one by one, so that a set that is only tried is no part of a ledger:
of those, that would take all that was written to be copied for the one that a text goes on with."""
NONE_SO, SOME_SO, ENDING_SO = range(3)
_serials = count()


class Values:
    """The arrays and objects of one guide."""

    def __init__(self) -> None:
        # Most of those that are tried are given up at once
        self._known: WeakValueDictionary[Any, Container] = WeakValueDictionary()

    @property
    def held_bytes(self) -> int:
        """About how much memory they take."""
        return sum(EACH_VALUE + EACH_PART * len(each.parts) for each in self._known.values())

    def array(self, items: list[Value]) -> Container:
        """The array of some items."""
        return self._one((ARRAY, *items), ARRAY, tuple(items))

    def object(self, members: list[tuple[bytes, Value]]) -> Container:
        """The object of some members."""
        return self._one(frozenset(members), OBJECT, dict(members))

    def _one(self, key: Any, kind: Kind, parts: Any) -> Container:
        known = self._known.get(key)
        if known is None:
            spend(20 * len(parts))
            known = self._known[key] = Container(kind, parts)
        return known


class Ledger:
    """Values in the order in which they were written, for all sets that are the first so many of them."""

    def __init__(self, heads: Heads) -> None:
        self.heads = heads
        self.numbers: dict[Value, int] = {}
        self.texts: list[bytes] = []
        self.words = Words()
        self.containers: dict[Kind, Group] = {ARRAY: Group(), OBJECT: Group()}
        # What is left of strings where some tokens spell that and the quote, by how they begin
        self.ends: dict[bytes, list[bytes]] = {}

    def add(self, value: Value) -> None:
        """Write one more value, which is not there."""
        self.numbers[value] = len(self.numbers)
        if isinstance(value, bytes):
            spend(len(value) >> 4)
            insort(self.texts, value)
            for begin, rest in self.heads.ends_of(value):
                self.ends.setdefault(begin, []).append(rest)
        elif isinstance(value, Container):
            self.containers[value.kind].add(value, len(self.numbers) - 1)
        else:
            self.words.add(value, len(self.numbers) - 1)

    def continues(self, begin: bytes, count: int) -> bool:
        """Whether a string that is among the first `count` values begins so."""
        texts, numbers = self.texts, self.numbers
        at = bisect_left(texts, begin)
        while at < len(texts) and texts[at].startswith(begin):
            if numbers[texts[at]] < count:
                return True
            spend(5)
            at += 1
        return False

    def first(self, count: int) -> Ledger:
        """A copy with the first values only."""
        spend(100 * count)
        copied = Ledger(self.heads)
        for value, number in self.numbers.items():
            if number >= count:
                break
            copied.add(value)
        return copied


class Written:
    """A set of values: the first ones of a ledger, and a few that came last.

    count: how many there are; serial: a number that no other set has; hits: those that some tokens have in whole
    next: a value and the set with that one more, the last of which that was asked for; flat: its number in the guide's
    `Flat`, -1 if that is not known
    """

    __slots__ = ("_all", "_heads", "count", "flat", "hits", "next", "serial")

    def __init__(self, heads: Heads) -> None:
        self._heads = heads
        # The ledger, how many of its values count, and the values that came last; it is replaced as a whole
        self._all: tuple[Ledger, int, tuple[Value, ...]] = (Ledger(heads), 0, ())
        self.next: tuple[Value, Written] | None = None
        self.count = 0
        self.flat = -1
        self.serial = next(_serials)
        self.hits: tuple[Value, ...] = ()

    def __contains__(self, value: object) -> bool:
        ledger, first, last = self._all
        return value in last or ledger.numbers.get(value, first) < first  # type: ignore[arg-type]

    def adding(self, value: Value) -> Written:
        """The set with one more value."""
        known = self.next
        if known is not None and known[0] == value:
            return known[1]
        ledger, first, last = self._all
        if len(last) >= UNSORTED:
            ledger, first, last = self._settled()
        more = Written.__new__(Written)
        more._heads, more._all, more.next = self._heads, (ledger, first, (*last, value)), None
        more.flat = -1
        more.count, more.serial = self.count + 1, next(_serials)
        more.hits = (*self.hits, value) if value in self._heads.inner else self.hits
        self.next = (value, more)
        return more

    def _settled(self) -> tuple[Ledger, int, tuple[Value, ...]]:
        """The set as a beginning of a ledger, which is made if there is none."""
        ledger, first, last = self._all
        if len(ledger.numbers) != first:
            ledger = ledger.first(first)
        for value in last:
            ledger.add(value)
        self._all = (ledger, self.count, ())
        return self._all

    def meets(self, begin: bytes) -> int:
        """Whether a string begins so: NONE_SO, SOME_SO, or ENDING_SO where tokens spell the rest and the quote."""
        ledger, first, last = self._all
        met = NONE_SO
        for text in last:
            if type(text) is bytes and text.startswith(begin):
                if text[len(begin) :] in self._heads.closers:
                    return ENDING_SO
                met = SOME_SO
        for rest in ledger.ends.get(begin, ()):
            if ledger.numbers[begin + rest] < first:
                return ENDING_SO
        return met or int(ledger.continues(begin, first))

    def continues(self, begin: bytes) -> bool:
        """Whether some string begins so."""
        ledger, first, last = self._all
        return any(type(text) is bytes and text.startswith(begin) for text in last) or ledger.continues(begin, first)

    def beginning(self, begin: bytes) -> Iterator[bytes]:
        """The strings that begin so."""
        ledger, first, last = self._all
        yield from (text for text in last if isinstance(text, bytes) and text.startswith(begin))
        for text in texts_beginning(ledger.texts, begin):
            if ledger.numbers[text] < first:
                yield text

    def continues_word(self, begin: WordBegin) -> bool:
        """Whether some number, true, false or null may begin so."""
        ledger, first, last = self._all
        if any(isinstance(value, tuple) and begin.suits(key_of(value)) for value in last):
            return True
        return ledger.words.continues(begin, first)

    def ends(self, begin: bytes) -> Iterator[bytes]:
        """What is left of strings that begin so, where tokens spell that and the quote."""
        ledger, first, last = self._all
        for text in last:
            if isinstance(text, bytes) and text.startswith(begin) and text[len(begin) :] in self._heads.closers:
                yield text[len(begin) :]
        for rest in ledger.ends.get(begin, ()):
            if ledger.numbers[begin + rest] < first:
                yield rest

    def containers(self, kind: Kind) -> Rivals:
        """The arrays, or objects."""
        ledger, first, last = self._all
        few = (value for value in last if isinstance(value, Container) and value.kind == kind)
        return rivals_of(((ledger.containers[kind], first),), few)
