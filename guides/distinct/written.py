"""Sets of values that have been written, which grow by one and share what they have in common."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ..limits import spend
from .heads import Heads

Key = Any
"""What equal JSON values have in common: bytes for strings, tuples for all others; hashable."""

ARRAY, OBJECT = "array", "object"


class Level(NamedTuple):
    """Some of the values: all of them, the strings among them in order, and which ends of tokens complete one.

    ends: by the beginning of a string, what is left of it where some tokens spell that and the quote
    """

    keys: frozenset[Key]
    texts: list[bytes]
    ends: dict[bytes, tuple[bytes, ...]]

    def joined(self, other: Level) -> Level:
        """Both together."""
        ends = dict(self.ends)
        for begin, found in other.ends.items():
            ends[begin] = ends.get(begin, ()) + found
        return Level(self.keys | other.keys, sorted(self.texts + other.texts), ends)


class Rivals:
    """The arrays, or objects, among written values that one in progress may still come to."""

    def __init__(self, keys: tuple[Key, ...]) -> None:
        self.keys = keys
        self._texts: list[bytes] | None = None
        self._narrower: dict[Any, Rivals] = {}

    def with_item(self, index: int, key: Key) -> Rivals:
        """Those whose item at `index` is this one."""
        known = self._narrower.get((index, key))
        if known is None:
            # The first of a key's parts says that it is an array.
            found = tuple(one for one in self.keys if len(one) > index + 1 and one[index + 1] == key)
            known = self._narrower[index, key] = Rivals(found) if found else NONE
        return known

    def with_member(self, name: bytes, key: Key) -> Rivals:
        """Those with this member."""
        known = self._narrower.get((name, key))
        if known is None:
            found = tuple(one for one in self.keys if (name, key) in one[1])
            known = self._narrower[name, key] = Rivals(found) if found else NONE
        return known

    def begin_with(self, at: int | bytes, begin: bytes) -> bool:
        """Whether one of them has at an index, or by a name, a string that begins so."""
        found: list[Key] = []
        for one in self.keys:
            if not isinstance(at, int):
                found += [key for name, key in one[1] if name == at]
            elif len(one) > at + 1:
                found.append(one[at + 1])
        return any(isinstance(key, bytes) and key.startswith(begin) for key in found)

    def beginning(self, begin: bytes) -> Iterator[bytes]:
        """The strings anywhere in them that begin so, names among them."""
        if self._texts is None:
            spend(100 * len(self.keys))
            self._texts = sorted(set(_texts_in(self.keys)))
        yield from _beginning(self._texts, begin)


def _texts_in(keys: Iterable[Key]) -> Iterator[bytes]:
    """The strings anywhere in values."""
    waiting = list(keys)
    while waiting:
        key = waiting.pop()
        if isinstance(key, bytes):
            yield key
        elif key[0] == ARRAY:
            waiting += key[1:]
        elif key[0] == OBJECT:
            waiting += [part for member in key[1] for part in member]


def _beginning(texts: list[bytes], begin: bytes) -> Iterator[bytes]:
    """Those of some texts in order that begin so."""
    at = bisect_left(texts, begin)
    while at < len(texts) and texts[at].startswith(begin):
        yield texts[at]
        at += 1


NONE = Rivals(())


class Written:
    """A set of values, in levels of falling sizes, equal ones joined: adding one takes logarithmic time and room.

    count: how many they are; only_strings: whether they are all strings; longest: the bytes of the longest string
    whole: the strings that some tokens spell with both quotes
    """

    def __init__(self, heads: Heads) -> None:
        self._heads = heads
        self._levels: tuple[Level, ...] = ()
        self.count = 0
        self.only_strings = True
        self.longest = 0
        self.whole: tuple[bytes, ...] = ()
        self._after: dict[Key, Written] = {}
        self._rivals: dict[str, Rivals] = {}

    def __contains__(self, key: Key) -> bool:
        return any(key in level.keys for level in self._levels)

    def adding(self, key: Key) -> Written:
        """The set with one more value."""
        known = self._after.get(key)
        if known is None:
            is_text = isinstance(key, bytes)
            level = Level(frozenset((key,)), [key] if is_text else [], self._heads.ends_of(key) if is_text else {})
            levels = list(self._levels)
            while levels and len(levels[-1].keys) <= len(level.keys):
                level = levels.pop().joined(level)
            known = self._after[key] = Written(self._heads)
            known._levels = (*levels, level)
            known.count = self.count + 1
            known.only_strings = self.only_strings and is_text
            known.longest = max(self.longest, len(key)) if is_text else self.longest
            known.whole = (*self.whole, key) if key in self._heads.openers else self.whole
        return known

    def ends(self, begin: bytes) -> Iterator[bytes]:
        """What is left of strings that begin so, where tokens spell that and the quote."""
        for level in self._levels:
            yield from level.ends.get(begin, ())

    def continues(self, begin: bytes) -> bool:
        """Whether some string begins so."""
        for level in self._levels:
            at = bisect_left(level.texts, begin)
            if at < len(level.texts) and level.texts[at].startswith(begin):
                return True
        return False

    def beginning(self, begin: bytes) -> Iterator[bytes]:
        """The strings that begin so."""
        for level in self._levels:
            yield from _beginning(level.texts, begin)

    def rivals(self, kind: str) -> Rivals:
        """The arrays or objects of the set."""
        known = self._rivals.get(kind)
        if known is None:
            keys = (key for level in self._levels for key in level.keys)
            found: tuple[Key, ...] = tuple(key for key in keys if not isinstance(key, bytes) and key[0] == kind)
            known = self._rivals[kind] = Rivals(found) if found else NONE
        return known
