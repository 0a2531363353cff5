"""JSON values as what equal ones have in common: strings, numbers, true, false and null, arrays and objects.

Sets of values that have been written grow by one, and containers among them are grouped by their parts.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Collection, Iterator
from itertools import chain, count, islice
from typing import Any, Literal
from weakref import WeakValueDictionary

from ..limits import spend

Kind = Literal["array", "object"]
ARRAY: Kind = "array"
OBJECT: Kind = "object"
EACH_VALUE, EACH_PART = 400, 600
"""About how many bytes a container takes without its parts, and each of these where containers are grouped by them."""
_NUMBER = re.compile(rb"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([-+]?[0-9]+))?\Z")


def word_of(word: bytes) -> tuple[Any, ...]:
    """The key that equal numbers have in common: sign, digits and power of ten; of anything else, itself."""
    spend(len(word))
    number = _NUMBER.match(word)
    if not number:
        return ("literal", word)
    sign, whole, fraction, power = number.groups(b"")
    digits = (whole + fraction).lstrip(b"0")
    short = digits.rstrip(b"0")
    if not short:
        return ("number", b"", b"", 0)
    return ("number", sign, short, _whole_number(power) - len(fraction) + len(digits) - len(short))


def key_of(value: tuple[Any, ...]) -> bytes:
    """The key of numbers that differ in the power of ten only: sign and digits; of others, their text."""
    return b"".join(value[1:3])


class WordBegin:
    """The beginning of a word, and of which keys a word has one that begins so.

    prefix: what such a key begins with; or it is `exact`, what it is if nothing but zeros and a power of ten follows
    is_exact: whether nothing else can follow
    """

    __slots__ = ("exact", "is_exact", "prefix")

    def __init__(self, begin: bytes) -> None:
        spend(len(begin))
        mantissa, power, _ = begin.lower().partition(b"e") if begin[:1] in b"-0123456789" else (begin, b"", b"")
        sign = mantissa[:1] if mantissa[:1] == b"-" else b""
        digits = mantissa[len(sign) :].replace(b".", b"").lstrip(b"0")
        short = digits.rstrip(b"0") if begin[:1] in b"-0123456789" else digits
        self.prefix = sign + digits
        self.exact = sign + short if short else b""
        self.is_exact = bool(power)

    def suits(self, key: bytes) -> bool:
        """Tell whether a word of that key may begin so."""
        return key == self.exact or (not self.is_exact and key.startswith(self.prefix))


class KeyIndex:
    """Keys in order, each with how many values were written before the first one that has it."""

    __slots__ = ("_keys", "_numbers")

    def __init__(self) -> None:
        self._keys: list[bytes] = []
        self._numbers: dict[bytes, int] = {}

    def add(self, key: bytes, number: int) -> None:
        """Note the key of a value that is written after all others."""
        if key not in self._numbers:
            spend(len(key) >> 4)
            insort(self._keys, key)
            self._numbers[key] = number

    def beginning(self, begin: bytes, count: int) -> Iterator[bytes]:
        """The keys of the first `count` values that begin so."""
        keys = self._keys
        at = bisect_left(keys, begin)
        while at < len(keys) and keys[at].startswith(begin):
            spend(5)
            if self._numbers[keys[at]] < count:
                yield keys[at]
            at += 1

    def is_among(self, key: bytes, count: int) -> bool:
        """Tell whether one of the first `count` values has a key."""
        return self._numbers.get(key, count) < count


def _whole_number(digits: bytes) -> int:
    """The result of int(), of more digits than it reads at a time, too."""
    sign = -1 if digits[:1] == b"-" else 1
    plain = digits.lstrip(b"+-").lstrip(b"0")
    spend(len(plain) * len(plain) >> 8)
    total = 0
    for at in range(0, len(plain), 4000):
        part = plain[at : at + 4000]
        total = total * 10 ** len(part) + int(part)
    return sign * total


class Container:
    """An array or object that has been written; equal ones of one guide are one object.

    parts: the items of an array, the values by the names of an object
    """

    __slots__ = ("__weakref__", "kind", "parts")

    def __init__(self, kind: Kind, parts: Any) -> None:
        self.kind: Kind = kind
        self.parts = parts

    def has(self, at: int | bytes) -> bool:
        """Tell whether there is something at an index, or by a name."""
        return at < len(self.parts) if isinstance(at, int) else at in self.parts


Value = bytes | tuple[Any, ...] | Container
"""What equal JSON values have in common: bytes for strings, tuples for numbers, true, false and null; hashable."""


EMPTY: dict[Kind, Container] = {ARRAY: Container(ARRAY, ()), OBJECT: Container(OBJECT, dict[bytes, Any]())}
"""The array without items and the object without members, of all guides."""


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
        known = self._known.get(key) if parts else EMPTY[kind]
        if known is None:
            spend(20 * len(parts))
            known = self._known[key] = Container(kind, parts)
        return known


Rivals = tuple[Container, ...]
"""The containers that one in progress may still come to."""


def having(rivals: Rivals, at: int | bytes, part: Value) -> Rivals:
    """Those of some containers that have something at an index, or by a name."""
    spend(len(rivals))
    return tuple(each for each in rivals if each.has(at) and each.parts[at] == part)


UNSORTED = 4
"""How many of the last values are looked through one by one, so that a set that is only tried is no part of a ledger:
of those, that would take all that was written to be copied for the one that a text goes on with."""
_serials = count(1)


class Ledger:
    """Values in the order in which they were written, for all sets that are the first so many of them.

    whole: those that tokens have in whole; texts: the strings; words: keys of numbers, true, false and null
    """

    def __init__(self, whole: Collection[Value] = ()) -> None:
        self.whole = whole
        self.numbers: dict[Value, int] = {}
        self.texts = KeyIndex()
        self.words = KeyIndex()

    def add(self, value: Value) -> None:
        """Write one more value, which is not there."""
        number = self.numbers[value] = len(self.numbers)
        if isinstance(value, bytes):
            self.texts.add(value, number)
        elif not isinstance(value, Container):
            self.words.add(key_of(value), number)

    def first(self, count: int) -> Ledger:
        """A copy with the first values only."""
        spend(100 * count)
        copied = Ledger(self.whole)
        for value in islice(self.numbers, count):
            copied.add(value)
        return copied


class WrittenValues:
    """A set of values: the first ones of a ledger, and a few that came last.

    count: how many there are; serial: a number that no other set has; has_whole: whether tokens have one in whole
    """

    __slots__ = ("_containers", "_first", "_last", "_ledger", "_next", "count", "has_whole", "serial")

    def __init__(self, ledger: Ledger, first: int, last: tuple[Value, ...] = (), *, has_whole: bool = False) -> None:
        # How many values of the ledger count, and those that came last
        self._ledger = ledger
        self._first = first
        self._last = last
        # A value and the set with that one more, the last of which that was asked for
        self._next: tuple[Value, WrittenValues] | None = None
        self._containers: dict[Kind, Rivals] = {}
        self.count = first + len(last)
        self.has_whole = has_whole
        self.serial = next(_serials)

    def __contains__(self, value: object) -> bool:
        return value in self._last or self._ledger.numbers.get(value, self._first) < self._first  # type: ignore[arg-type]

    def among(self, values: Collection[Value]) -> list[Value]:
        """Those of some values that are there."""
        found = [value for value in self._last if value in values]
        numbers, first = self._ledger.numbers, self._first
        if first and len(numbers) < len(values):
            return found + [value for value, number in numbers.items() if number < first and value in values]
        return found + [value for value in values if numbers.get(value, first) < first] if first else found

    def adding(self, value: Value) -> WrittenValues:
        """The set with one more value."""
        known = self._next
        if known is not None and known[0] == value:
            return known[1]
        if len(self._last) >= UNSORTED:
            self._sort()
        has_whole = self.has_whole or value in self._ledger.whole
        more = WrittenValues(self._ledger, self._first, (*self._last, value), has_whole=has_whole)
        self._next = (value, more)
        return more

    def _sort(self) -> None:
        """Make the set a beginning of a ledger."""
        ledger = self._ledger
        if len(ledger.numbers) != self._first:
            ledger = ledger.first(self._first)
        for value in self._last:
            ledger.add(value)
        self._ledger, self._first, self._last = ledger, self.count, ()

    def beginning(self, begin: bytes) -> Iterator[bytes]:
        """The strings that begin so."""
        yield from (text for text in self._last if isinstance(text, bytes) and text.startswith(begin))
        yield from self._ledger.texts.beginning(begin, self._first)

    def continues(self, begin: bytes) -> bool:
        """Tell whether some string begins so."""
        return next(self.beginning(begin), None) is not None

    def continues_word(self, begin: WordBegin) -> bool:
        """Tell whether some number, true, false or null may begin so."""
        if any(isinstance(value, tuple) and begin.suits(key_of(value)) for value in self._last):
            return True
        words, first = self._ledger.words, self._first
        if words.is_among(begin.exact, first):
            return True
        return not begin.is_exact and next(words.beginning(begin.prefix, first), None) is not None

    def ends(self, begin: bytes, rests: Collection[bytes]) -> list[bytes]:
        """Those of some rests that complete a string which begins so."""
        if self.count > len(rests):
            return [rest for rest in rests if begin + rest in self]
        size = len(begin)
        return [text[size:] for text in self.beginning(begin) if text[size:] in rests]

    def containers(self, kind: Kind) -> Rivals:
        """The arrays, or objects."""
        known = self._containers.get(kind)
        if known is None:
            spend(5 * self.count)
            values = chain(islice(self._ledger.numbers, self._first), self._last)
            known = tuple(each for each in values if isinstance(each, Container) and each.kind == kind)
            self._containers[kind] = known
        return known
