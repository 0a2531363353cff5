"""JSON values as what equal ones have in common: strings, numbers, true, false and null, arrays and objects."""

from __future__ import annotations

import re
from bisect import bisect_left, insort
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
