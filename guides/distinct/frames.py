"""The place of a text within values that must differ: its open containers, and the piece in progress.

Items, members and bytes in progress are persistent lists with shared prefixes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..limits import spend
from .values import ARRAY, OBJECT, Container, Duplicates, Kind, Value, WordBegin, WrittenValues, having, key_of

FIRST, ITEM, AFTER, NAME, COLON, WORD, TEXT, TEXT_ESCAPE, NAME_TEXT, NAME_ESCAPE = range(10)
"""Modes, by what comes next: the first item of an array or its end; a value; the rest after a value; a name; a colon;
the rest of a number or word, of a string (also after a backslash), of a name (also after a backslash)."""
STRINGS = (TEXT, TEXT_ESCAPE, NAME_TEXT, NAME_ESCAPE)
PARTIAL = (*STRINGS, WORD)
"""Modes with a string, name or word in progress."""

PIECE = 64
"""Maximum length of a text that is copied when it grows."""


class Chain(NamedTuple):
    """A persistent list of items, members, or pieces of a text, last one first."""

    before: Chain | None
    last: Any


Text = bytes | Chain
"""Bytes in progress: plain while short, else a list of pieces."""


def items_of(parts: Chain | None) -> list[Any]:
    """Return the items, members or pieces in order."""
    found: list[Any] = []
    while parts is not None:
        found.append(parts.last)
        parts = parts.before
    return found[::-1]


def joined(text: Text | None) -> bytes:
    """Return the bytes of a text."""
    if isinstance(text, bytes):
        return text
    pieces = items_of(text)
    spend(len(pieces) << 2)
    return b"".join(pieces)


def more_of(text: Text | None, data: bytes) -> Text:
    """Return a text with more bytes."""
    if text is None:
        return data
    if isinstance(text, bytes):
        if len(text) < PIECE:
            return text + data
        text = Chain(None, text)
    elif len(text.last) < PIECE:
        return Chain(text.before, text.last + data)
    return Chain(text, data)


@dataclass(slots=True, eq=False)
class OpenContainer:
    """An open container.

    written: items of an array of unique items; names of an object; None for other arrays
    is_open: whether it is still unknown if items must differ; the first item decides
    parts: the items or members; length: their number; name: of the member whose value comes, else None
    duplicates: written containers that this one may still equal; it must not, if the containers around equal theirs too
    shape: number shared by frames in containers of the same kinds
    serial: number shared by frames with equal continuations; 0 until computed
    """

    parent: OpenContainer | None
    kind: Kind
    written: WrittenValues | None
    shape: int
    is_open: bool = field(default=False, kw_only=True)
    duplicates: Duplicates = field(default=(), kw_only=True)
    parts: Chain | None = field(default=None, kw_only=True)
    length: int = field(default=0, kw_only=True)
    name: bytes | None = field(default=None, kw_only=True)
    serial: int = field(default=0, init=False)
    _targets: Targets | None = field(default=None, init=False)

    @property
    def targets(self) -> Targets:
        """The values, or names, that matter if the next one equals them, cached."""
        if self._targets is None:
            self._targets = Targets(self)
        return self._targets

    def has_name(self, name: bytes) -> bool:
        """Test whether an object has a member of a name."""
        return self.kind is OBJECT and self.written is not None and name in self.written

    def named(self, name: bytes) -> OpenContainer | None:
        """Return an object whose next member has a name; None if the name is used."""
        assert self.written is not None
        if name in self.written:
            return None
        written, parts, length = self.written.adding(name), self.parts, self.length
        return OpenContainer(
            self.parent, OBJECT, written, self.shape, duplicates=self.duplicates, parts=parts, length=length, name=name
        )

    def having(self, value: Value) -> OpenContainer | None:
        """Return the container with one more value; None if the value is refused."""
        written, duplicates = self.written, self.duplicates
        if self.kind is ARRAY:
            if written is not None:
                if value in written:
                    return None
                written = written.adding(value)
            part: Any = value
            at: int | bytes = self.length
        else:
            assert self.name is not None
            part, at = (self.name, value), self.name
        if duplicates:
            duplicates = having(duplicates, at, value)
        parts = None if self.parent is None else Chain(self.parts, part)
        return OpenContainer(
            self.parent, self.kind, written, self.shape, duplicates=duplicates, parts=parts, length=self.length + 1
        )


class Targets:
    """The values or names that matter if the next value or name equals them.

    written: values that are refused; parts: values that keep duplicates; count: an upper bound on their number
    """

    __slots__ = ("count", "parts", "written")

    def __init__(self, frame: OpenContainer) -> None:
        is_name, duplicates = frame.kind is OBJECT and frame.name is None, frame.duplicates
        self.written = frame.written if frame.kind is ARRAY or is_name else None
        self.parts: dict[Value, None] = {}
        if duplicates:
            spend(10 * len(duplicates))
            at = frame.length if frame.name is None else frame.name
            if is_name:
                self.parts = dict.fromkeys(name for each in duplicates for name in each.parts)
            else:
                self.parts = dict.fromkeys(each.parts[at] for each in duplicates if each.has(at))
        self.count = len(self.parts) + (0 if self.written is None else self.written.count)

    def __contains__(self, value: Value) -> bool:
        return value in self.parts or (self.written is not None and value in self.written)

    def among(self, values: Collection[Value]) -> list[Value]:
        """Return those of some values that are among these, perhaps twice."""
        found = [value for value in self.parts if value in values]
        return found if self.written is None else found + self.written.among(values)

    def continues(self, begin: bytes) -> bool:
        """Test whether one of the strings has a prefix."""
        if self.written is not None and self.written.continues(begin):
            return True
        return bool(self.parts) and next(self.part_strings(begin), None) is not None

    def continues_word(self, begin: WordBegin) -> bool:
        """Test whether one of the numbers or words may begin so."""
        if self.written is not None and self.written.continues_word(begin):
            return True
        return any(isinstance(part, tuple) and begin.suits(key_of(part)) for part in self.parts)

    def most(self, begin: bytes | WordBegin) -> int:
        """Return an upper bound on the number of strings with a prefix, or of keys of words that may begin so.

        Words with an exponent are counted all.
        """
        if self.written is None:
            return len(self.parts)
        if not isinstance(begin, WordBegin):
            return len(self.parts) + self.written.most(begin)
        return self.count if begin.is_exact else len(self.parts) + self.written.most_words(begin)

    def part_strings(self, begin: bytes) -> Iterator[bytes]:
        """Return the strings with a prefix that keep duplicates."""
        return (part for part in self.parts if isinstance(part, bytes) and part.startswith(begin))

    def beginning(self, begin: bytes) -> Iterator[bytes]:
        """Yield the strings with a prefix."""
        yield from self.part_strings(begin)
        if self.written is not None:
            yield from self.written.beginning(begin)

    def duplicates(self, kind: Kind) -> Duplicates:
        """Return the arrays or the objects."""
        written = () if self.written is None else self.written.containers(kind)
        parts = [part for part in self.parts if isinstance(part, Container) and part.kind == kind]
        return tuple(dict.fromkeys((*parts, *written))) if parts else written


@dataclass(slots=True, eq=False)
class JSONTrail:
    """The place of a text: innermost container, mode, and piece in progress.

    is_free: whether the piece can equal no target; None until computed
    """

    frame: OpenContainer
    mode: int
    text: Text | None = None
    is_free: bool | None = None
