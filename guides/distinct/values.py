"""JSON values as what equal ones have in common: strings, numbers, true, false and null, arrays and objects.

Sets of values that have been written grow by one, and containers among them are grouped by their parts.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator
from itertools import count
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


class WordIndex:
    """Keys of words, in order, each with how many values were written before the first one that has it."""

    __slots__ = ("_keys", "_numbers")

    def __init__(self) -> None:
        self._keys: list[bytes] = []
        self._numbers: dict[bytes, int] = {}

    def add(self, value: tuple[Any, ...], number: int) -> None:
        """Note a word."""
        key = key_of(value)
        known = self._numbers.get(key)
        if known is None:
            insort(self._keys, key)
        if known is None or number < known:
            self._numbers[key] = number

    def continues(self, begin: WordBegin, count: int) -> bool:
        """Tell whether a word that was among the first `count` values may begin so."""
        keys, numbers = self._keys, self._numbers
        if numbers.get(begin.exact, count) < count:
            return True
        if begin.is_exact:
            return False
        at = bisect_left(keys, begin.prefix)
        while at < len(keys) and keys[at].startswith(begin.prefix):
            if numbers[keys[at]] < count:
                return True
            spend(5)
            at += 1
        return False


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


UNSORTED = 4
"""How many of the last values are looked through one by one, so that a set that is only tried is no part of a ledger:
of those, that would take all that was written to be copied for the one that a text goes on with."""
FEW = 4
"""Up to how many containers are looked through one by one, for which buckets would take longer."""
_serials = count(1)


class EqualityGroup:
    """Containers in the order in which they were written; more of them may come.

    numbers: how many values were written before each; serial: a number that no other group has
    """

    __slots__ = ("_buckets", "_names", "numbers", "serial", "values")

    def __init__(self) -> None:
        self.values: list[Container] = []
        self.numbers: list[int] = []
        self.serial = next(_serials)
        self._buckets: dict[int | bytes, Bucket] = {}
        self._names: Bucket | None = None

    def add(self, value: Container, number: int) -> None:
        """Add one more."""
        self.values.append(value)
        self.numbers.append(number)

    def bucket(self, at: int | bytes) -> Bucket:
        """The bucket of an index, or of a name."""
        bucket = self._buckets.get(at)
        if bucket is None:
            bucket = self._buckets[at] = Bucket()
        for value, number in self._waiting(bucket):
            if value.has(at):
                bucket.put(value.parts[at], value, number)
        return bucket

    def names(self) -> Bucket:
        """The names that objects have."""
        if self._names is None:
            self._names = Bucket()
        for value, number in self._waiting(self._names):
            spend(20 * len(value.parts))
            for name in value.parts:
                self._names.put(name, value, number)
        return self._names

    def _waiting(self, bucket: Bucket) -> Iterator[tuple[Container, int]]:
        """Those that have not been put on a bucket."""
        while bucket.done < len(self.values):
            at = bucket.done
            spend(50)
            bucket.done = at + 1
            yield self.values[at], self.numbers[at]


class Bucket:
    """The parts that containers of a group have at one place, and which of them have it.

    texts: the strings, in order; words: the numbers, true, false and null; inner: the arrays and objects
    """

    __slots__ = ("done", "groups", "inner", "texts", "words")

    def __init__(self) -> None:
        self.done = 0
        self.groups: dict[Value, EqualityGroup] = {}
        self.texts: list[bytes] = []
        self.words = WordIndex()
        self.inner: dict[Kind, EqualityGroup] = {}

    def put(self, part: Value, value: Container, number: int) -> None:
        """Note that a container has a part."""
        group = self.groups.get(part)
        if group is None:
            group = self.groups[part] = EqualityGroup()
            if isinstance(part, bytes):
                insort(self.texts, part)
            elif isinstance(part, Container):
                if part.kind not in self.inner:
                    self.inner[part.kind] = EqualityGroup()
                self.inner[part.kind].add(part, number)
            else:
                self.words.add(part, number)
        group.add(value, number)


class Rivals:
    """The containers that one in progress may still come to: those of groups among the first values, and a few more.

    sources: groups, each with how many values count; few: containers that are in none of them
    """

    __slots__ = ("few", "sources")

    def __init__(self, sources: tuple[tuple[EqualityGroup, int], ...], few: tuple[Container, ...]) -> None:
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
        sources: list[tuple[EqualityGroup, int]] = []
        for group, first in self.sources:
            found = group.bucket(at).groups.get(part)
            if found is None:
                continue
            known = bisect_left(found.numbers, first)
            if known > FEW:
                sources.append((found, first))
            else:
                few += found.values[:known]
        return Rivals(tuple(sources), tuple(few)) if sources or few else NONE


NONE = Rivals((), ())


def rivals_of(sources: Iterable[tuple[EqualityGroup | None, int]], few: Iterable[Container]) -> Rivals:
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


class Ledger:
    """Values in the order in which they were written, for all sets that are the first so many of them.

    spelt: the strings that tokens have in whole
    """

    def __init__(self, spelt: Collection[bytes] = ()) -> None:
        self.spelt = spelt
        self.numbers: dict[Value, int] = {}
        self.texts: list[bytes] = []
        self.words = WordIndex()
        self.containers: dict[Kind, EqualityGroup] = {ARRAY: EqualityGroup(), OBJECT: EqualityGroup()}

    def add(self, value: Value) -> None:
        """Write one more value, which is not there."""
        number = self.numbers[value] = len(self.numbers)
        if isinstance(value, bytes):
            spend(len(value) >> 4)
            insort(self.texts, value)
        elif isinstance(value, Container):
            self.containers[value.kind].add(value, number)
        else:
            self.words.add(value, number)

    def first(self, count: int) -> Ledger:
        """A copy with the first values only."""
        spend(100 * count)
        copied = Ledger(self.spelt)
        for value, number in self.numbers.items():
            if number >= count:
                break
            copied.add(value)
        return copied


class WrittenValues:
    """A set of values: the first ones of a ledger, and a few that came last.

    count: how many there are; serial: a number that no other set has; has_spelt: whether tokens have one in whole
    """

    __slots__ = ("_first", "_last", "_ledger", "_next", "count", "has_spelt", "serial")

    def __init__(self, ledger: Ledger, first: int, last: tuple[Value, ...] = (), *, has_spelt: bool = False) -> None:
        # How many values of the ledger count, and those that came last
        self._ledger = ledger
        self._first = first
        self._last = last
        # A value and the set with that one more, the last of which that was asked for
        self._next: tuple[Value, WrittenValues] | None = None
        self.count = first + len(last)
        self.has_spelt = has_spelt
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
        has_spelt = self.has_spelt or value in self._ledger.spelt
        more = WrittenValues(self._ledger, self._first, (*self._last, value), has_spelt=has_spelt)
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
        for text in texts_beginning(self._ledger.texts, begin):
            if self._ledger.numbers[text] < self._first:
                yield text

    def continues(self, begin: bytes) -> bool:
        """Tell whether some string begins so."""
        return next(self.beginning(begin), None) is not None

    def continues_word(self, begin: WordBegin) -> bool:
        """Tell whether some number, true, false or null may begin so."""
        if any(isinstance(value, tuple) and begin.suits(key_of(value)) for value in self._last):
            return True
        return self._ledger.words.continues(begin, self._first)

    def ends(self, begin: bytes, rests: Collection[bytes]) -> list[bytes]:
        """Those of some rests that complete a string which begins so."""
        if self.count > len(rests):
            return [rest for rest in rests if begin + rest in self]
        size = len(begin)
        return [text[size:] for text in self.beginning(begin) if text[size:] in rests]

    def containers(self, kind: Kind) -> Rivals:
        """The arrays, or objects."""
        few = (value for value in self._last if isinstance(value, Container) and value.kind == kind)
        return rivals_of(((self._ledger.containers[kind], self._first),), few)
