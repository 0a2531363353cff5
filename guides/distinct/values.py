"""Canonical keys of JSON values, equal for equal values, and persistent sets of written values.

Such a set grows by one value at a time. Containers of a set are found by their parts.
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
"""Approximate bytes of a container without its parts, and of each part."""
_AFTER = b"\xff"
"""Sorts after all bytes of texts."""
_NUMBER = re.compile(rb"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([-+]?[0-9]+))?\Z")


def word_of(word: bytes) -> tuple[Any, ...]:
    """Return a key of a number or word, equal for equal numbers: sign, digits and exponent; else the text."""
    spend(len(word))
    number = _NUMBER.match(word)
    if not number:
        return ("literal", word)
    sign, integer, fraction, power = number.groups(b"")
    digits = (integer + fraction).lstrip(b"0")
    short = digits.rstrip(b"0")
    if not short:
        return ("number", b"", b"", 0)
    return ("number", sign, short, _whole_number(power) - len(fraction) + len(digits) - len(short))


def key_of(value: tuple[Any, ...]) -> bytes:
    """Return the sort key of a word: of numbers, sign and digits without exponent; of others, the text."""
    return b"".join(value[1:3])


class WordBegin:
    """The beginning of a word, for tests against `key_of` keys.

    prefix: keys of words with this beginning start with it, or equal `exact` if only zeros and an exponent follow
    is_exact: whether only `exact` is possible
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
        """Test whether a word with that key may begin so."""
        return key == self.exact or (not self.is_exact and key.startswith(self.prefix))


class KeyIndex:
    """Sorted keys, each with the number of the first value that has it."""

    __slots__ = ("_keys", "_numbers")

    def __init__(self) -> None:
        self._keys: list[bytes] = []
        self._numbers: dict[bytes, int] = {}

    def add(self, key: bytes, number: int) -> None:
        """Add the key of the latest value."""
        if key not in self._numbers:
            spend(len(key) >> 4)
            self._numbers[key] = number  # first: each of the keys has a number, even after an interrupt
            insort(self._keys, key)

    def beginning(self, begin: bytes, count: int) -> Iterator[bytes]:
        """Return the keys with a prefix, among the first `count` values."""
        keys, numbers = self._keys, self._numbers
        first = bisect_left(keys, begin)
        found = keys[first : bisect_left(keys, begin + _AFTER, first)]
        spend(len(found) >> 2)
        return (key for key in found if numbers[key] < count)

    def most(self, begin: bytes) -> int:
        """Return an upper bound on the number of keys with a prefix, whatever the number of values."""
        first = bisect_left(self._keys, begin)
        return bisect_left(self._keys, begin + _AFTER, first) - first

    def is_among(self, key: bytes, count: int) -> bool:
        """Test whether one of the first `count` values has a key."""
        return self._numbers.get(key, count) < count


def _whole_number(digits: bytes) -> int:
    """Convert digits like int(), without its limit on their number."""
    sign = -1 if digits[:1] == b"-" else 1
    plain = digits.lstrip(b"+-").lstrip(b"0")
    spend(len(plain) * len(plain) >> 8)
    total = 0
    for at in range(0, len(plain), 4000):
        part = plain[at : at + 4000]
        total = total * 10 ** len(part) + int(part)
    return sign * total


class Container:
    """A complete array or object, interned per guide.

    parts: tuple of items, or dict of values by name
    """

    __slots__ = ("__weakref__", "kind", "parts")

    def __init__(self, kind: Kind, parts: Any) -> None:
        self.kind: Kind = kind
        self.parts = parts

    def has(self, at: int | bytes) -> bool:
        """Test whether there is a part at an index or name."""
        return at < len(self.parts) if isinstance(at, int) else at in self.parts


Value = bytes | tuple[Any, ...] | Container
"""Key of a JSON value: bytes for strings, tuples for numbers, true, false and null; hashable."""


EMPTY: dict[Kind, Container] = {ARRAY: Container(ARRAY, ()), OBJECT: Container(OBJECT, dict[bytes, Any]())}
"""The empty array and the empty object, shared by all guides."""


class Values:
    """Interning table for the arrays and objects of one guide."""

    def __init__(self) -> None:
        # Most containers that are tried are dropped at once
        self._known: WeakValueDictionary[Any, Container] = WeakValueDictionary()

    @property
    def held_bytes(self) -> int:
        """Approximate memory of the containers."""
        return sum(EACH_VALUE + EACH_PART * len(each.parts) for each in self._known.values())

    def array(self, items: list[Value]) -> Container:
        """Return the array with some items."""
        return self._one((ARRAY, *items), ARRAY, tuple(items))

    def object(self, members: list[tuple[bytes, Value]]) -> Container:
        """Return the object with some members."""
        return self._one(frozenset(members), OBJECT, dict(members))

    def _one(self, key: Any, kind: Kind, parts: Any) -> Container:
        known = self._known.get(key) if parts else EMPTY[kind]
        if known is None:
            spend(20 * len(parts))
            known = self._known[key] = Container(kind, parts)
        return known


Duplicates = tuple[Container, ...]
"""Written containers that a container in progress may still equal."""


def having(duplicates: Duplicates, at: int | bytes, part: Value) -> Duplicates:
    """Return those containers that have `part` at an index or name."""
    spend(len(duplicates))
    return tuple(each for each in duplicates if each.has(at) and each.parts[at] == part)


UNSORTED = 4
"""Number of recent values that a set searches linearly. Sets that are only tried stay out of the ledger, which would
otherwise be copied for the set that the text continues with."""
_serials = count(1)


class Ledger:
    """Written values in order, shared by all sets that are a prefix of it.

    token_values: values that a single token can contain; texts: strings; words: keys of numbers, true, false and null
    """

    def __init__(self, token_values: Collection[Value] = ()) -> None:
        self.token_values = token_values
        self.numbers: dict[Value, int] = {}
        self.texts = KeyIndex()
        self.words = KeyIndex()

    def add(self, value: Value) -> None:
        """Append a value that is not in the ledger."""
        number = self.numbers[value] = len(self.numbers)
        if isinstance(value, bytes):
            self.texts.add(value, number)
        elif not isinstance(value, Container):
            self.words.add(key_of(value), number)

    def first(self, count: int) -> Ledger:
        """Return a copy of the first `count` values."""
        spend(100 * count)
        copied = Ledger(self.token_values)
        for value in islice(self.numbers, count):
            copied.add(value)
        return copied


class WrittenValues:
    """A persistent set of values: a prefix of a ledger, and a few recent ones.

    count: its size; serial: unique number of the set; has_token_value: whether a single token can contain one of them
    """

    __slots__ = ("_containers", "_first", "_last", "_ledger", "_next", "count", "has_token_value", "serial")

    def __init__(
        self, ledger: Ledger, first: int, last: tuple[Value, ...] = (), *, has_token_value: bool = False
    ) -> None:
        # Length of the ledger's prefix, and the recent values
        self._ledger = ledger
        self._first = first
        self._last = last
        # The last extension: a value, and the set with it
        self._next: tuple[Value, WrittenValues] | None = None
        self._containers: dict[Kind, Duplicates] = {}
        self.count = first + len(last)
        self.has_token_value = has_token_value
        self.serial = next(_serials)

    def __contains__(self, value: object) -> bool:
        return value in self._last or self._ledger.numbers.get(value, self._first) < self._first  # type: ignore[arg-type]

    def among(self, values: Collection[Value]) -> list[Value]:
        """Return those of some values that are in the set."""
        found = [value for value in self._last if value in values]
        numbers, first = self._ledger.numbers, self._first
        if first and len(numbers) < len(values):
            return found + [value for value, number in numbers.items() if number < first and value in values]
        return found + [value for value in values if numbers.get(value, first) < first] if first else found

    def adding(self, value: Value) -> WrittenValues:
        """Return the set with one more value."""
        known = self._next
        if known is not None and known[0] == value:
            return known[1]
        if len(self._last) >= UNSORTED:
            self._sort()
        has_token_value = self.has_token_value or value in self._ledger.token_values
        more = WrittenValues(self._ledger, self._first, (*self._last, value), has_token_value=has_token_value)
        self._next = (value, more)
        return more

    def _sort(self) -> None:
        """Move the recent values into the ledger, or into a copy if another set has extended it."""
        ledger = self._ledger
        if len(ledger.numbers) != self._first:
            ledger = ledger.first(self._first)
        for value in self._last:
            ledger.add(value)
        self._ledger, self._first, self._last = ledger, self.count, ()

    def beginning(self, begin: bytes) -> Iterator[bytes]:
        """Yield the strings with a prefix."""
        yield from (text for text in self._last if isinstance(text, bytes) and text.startswith(begin))
        yield from self._ledger.texts.beginning(begin, self._first)

    def continues(self, begin: bytes) -> bool:
        """Test whether a string has a prefix."""
        for text in self._last:
            if isinstance(text, bytes) and text.startswith(begin):
                return True
        return bool(self._first) and next(self._ledger.texts.beginning(begin, self._first), None) is not None

    def continues_word(self, begin: WordBegin) -> bool:
        """Test whether a number, true, false or null may begin so."""
        if any(isinstance(value, tuple) and begin.suits(key_of(value)) for value in self._last):
            return True
        words, first = self._ledger.words, self._first
        if words.is_among(begin.exact, first):
            return True
        return not begin.is_exact and next(words.beginning(begin.prefix, first), None) is not None

    def most(self, begin: bytes) -> int:
        """Return an upper bound on the number of strings with a prefix."""
        return len(self._last) + (self._ledger.texts.most(begin) if self._first else 0)

    def most_words(self, begin: WordBegin) -> int:
        """Return an upper bound on the number of keys of words that may begin so."""
        words = self._ledger.words
        return len(self._last) + (1 + words.most(begin.prefix) if self._first else 0)

    def is_within(self, other: WrittenValues) -> bool:
        """Test whether another set is known to contain this one; False where that takes a comparison."""
        is_prefix = self._ledger is other._ledger and self._first <= other._first
        return is_prefix and all(value in other for value in self._last)

    def ends(self, begin: bytes, rests: Collection[bytes]) -> list[bytes]:
        """Return those of some endings that complete `begin` to a string in the set."""
        if self.count > len(rests):
            return [rest for rest in rests if begin + rest in self]
        size = len(begin)
        return [rest for text in self.beginning(begin) if (rest := text[size:]) in rests]

    def containers(self, kind: Kind) -> Duplicates:
        """Return the arrays or the objects of the set, cached."""
        known = self._containers.get(kind)
        if known is None:
            spend(5 * self.count)
            values = chain(islice(self._ledger.numbers, self._first), self._last)
            known = tuple(each for each in values if isinstance(each, Container) and each.kind == kind)
            self._containers[kind] = known
        return known
