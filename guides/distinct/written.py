"""Sets of values that have been written, which grow by one, and values that others are made of."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

from ..limits import spend
from .heads import Heads
from .rivals import ARRAY, NONE, OBJECT, Container, Group, Kind, Rivals, Value, rivals_of, texts_beginning
from .words import WordBegin, Words, key_of

EACH_VALUE, EACH_PART = 400, 600
"""About how many bytes a container takes without its parts, and each of these where containers are grouped by them."""
UNSORTED = 4
"""How many of the last values are looked through one by one, so that a set that is only tried is no part of a ledger:
of those, that would take all that was written to be copied for the one that a text goes on with."""
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
    """A set of values that is the first `count` of a ledger, or of the set before and one more value.

    serial: a number that no other set has; hits: those of the values that some tokens have in whole
    has_words, has_containers: whether numbers, true, false or null are among them; arrays or objects
    """

    __slots__ = (
        *("_before", "_heads", "_last", "_ledger", "_next", "_waiting"),
        *("count", "has_containers", "has_words", "hits", "serial"),
    )

    def __init__(self, heads: Heads) -> None:
        self._heads = heads
        self._before: Written | None = None
        self._last: Value = b""
        self._ledger: Ledger | None = Ledger(heads)
        self._waiting = 0
        self._next: Written | None = None
        self.count = 0
        self.serial = next(_serials)
        self.hits: tuple[Value, ...] = ()
        self.has_words = self.has_containers = False

    def __contains__(self, value: object) -> bool:
        at = self
        while at._ledger is None:
            if at._last == value:
                return True
            assert at._before is not None
            at = at._before
        return at._ledger.numbers.get(value, at.count) < at.count  # type: ignore[arg-type]

    def adding(self, value: Value) -> Written:
        """The set with one more value."""
        known = self._next
        if known is None or known._last != value:
            if self._waiting >= UNSORTED:
                self._settled()
            known = self._next = self._with(value)
        return known

    def _with(self, value: Value) -> Written:
        more = Written.__new__(Written)
        more._heads, more._before, more._last, more._ledger, more._next = self._heads, self, value, None, None
        more._waiting, more.count, more.serial = self._waiting + 1, self.count + 1, next(_serials)
        more.hits = (*self.hits, value) if value in self._heads.inner else self.hits
        more.has_words, more.has_containers = self.has_words, self.has_containers
        if not isinstance(value, bytes):
            if isinstance(value, Container):
                more.has_containers = True
            else:
                more.has_words = True
        return more

    def _settled(self) -> Ledger:
        """The ledger that the set is the beginning of, made if there is none yet."""
        waiting: list[Written] = []
        at = self
        while at._ledger is None:
            waiting.append(at)
            assert at._before is not None
            at = at._before
        ledger = at._ledger
        for each in reversed(waiting):
            if len(ledger.numbers) != each.count - 1:
                ledger = ledger.first(each.count - 1)
            ledger.add(each._last)
            each._ledger, each._waiting, each._before = ledger, 0, None
        return ledger

    def _texts(self) -> tuple[list[bytes], Written]:
        """The strings that came last, and the set before them, which has a ledger."""
        at, found = self, list[bytes]()
        while at._ledger is None:
            if isinstance(at._last, bytes):
                found.append(at._last)
            assert at._before is not None
            at = at._before
        return found, at

    def beginning(self, begin: bytes) -> Iterator[bytes]:
        """The strings that begin so."""
        found, base = self._texts()
        yield from (text for text in found if text.startswith(begin))
        ledger = base._ledger
        assert ledger is not None
        for text in texts_beginning(ledger.texts, begin):
            if ledger.numbers[text] < base.count:
                yield text

    def continues(self, begin: bytes) -> bool:
        """Whether some string begins so."""
        at = self
        while at._ledger is None:
            if isinstance(at._last, bytes) and at._last.startswith(begin):
                return True
            assert at._before is not None
            at = at._before
        texts, numbers = at._ledger.texts, at._ledger.numbers
        place = bisect_left(texts, begin)
        while place < len(texts) and texts[place].startswith(begin):
            if numbers[texts[place]] < at.count:
                return True
            spend(5)
            place += 1
        return False

    def continues_word(self, begin: WordBegin) -> bool:
        """Whether some number, true, false or null may begin so."""
        if not self.has_words:
            return False
        at = self
        while at._ledger is None:
            if isinstance(at._last, tuple) and begin.suits(key_of(at._last)):
                return True
            assert at._before is not None
            at = at._before
        return at._ledger.words.continues(begin, at.count)

    def ends(self, begin: bytes) -> Iterator[bytes]:
        """What is left of strings that begin so, where tokens spell that and the quote."""
        found, base = self._texts()
        for text in found:
            if text.startswith(begin) and text[len(begin) :] in self._heads.closers:
                yield text[len(begin) :]
        ledger = base._ledger
        assert ledger is not None
        for rest in ledger.ends.get(begin, ()):
            if ledger.numbers[begin + rest] < base.count:
                yield rest

    def containers(self, kind: Kind) -> Rivals:
        """The arrays, or objects."""
        if not self.has_containers:
            return NONE
        found: list[Container] = []
        at = self
        while at._ledger is None:
            if isinstance(at._last, Container) and at._last.kind == kind:
                found.append(at._last)
            assert at._before is not None
            at = at._before
        return rivals_of(((at._ledger.containers[kind], at.count),), found)
