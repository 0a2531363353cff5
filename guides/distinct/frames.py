"""The place of a text where values may be there once only: the containers it is in, and the piece in progress.

Items, members and the bytes in progress grow at their end, and share their beginnings.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ..limits import spend
from .values import ARRAY, OBJECT, Container, Kind, Rivals, Value, WordBegin, WrittenValues, having, key_of

FIRST, ITEM, AFTER, NAME, COLON, WORD, TEXT, TEXT_ESCAPE, NAME_TEXT, NAME_ESCAPE = range(10)
"""What comes next: in an array that has just begun; a value; after one; a name; a colon; the rest of a number or word,
of a string, of a name, and of these after a backslash."""
STRINGS = (TEXT, TEXT_ESCAPE, NAME_TEXT, NAME_ESCAPE)
PARTIAL = (*STRINGS, WORD)
"""Where a string, name or word is in progress."""

PIECE = 64
"""Up to how many bytes of a text are copied when it goes on."""


class Chain(NamedTuple):
    """Items, members, or pieces of a text: one behind those before it."""

    before: Chain | None
    last: Any


Text = bytes | Chain
"""The bytes of what is in progress: as they are while they are few, in pieces if they are many."""


def items_of(parts: Chain | None) -> list[Any]:
    """The items, members or pieces in order."""
    found: list[Any] = []
    while parts is not None:
        found.append(parts.last)
        parts = parts.before
    return found[::-1]


def joined(text: Text | None) -> bytes:
    """The bytes of a text."""
    if isinstance(text, bytes):
        return text
    pieces = items_of(text)
    spend(len(pieces) << 2)
    return b"".join(pieces)


def more_of(text: Text | None, data: bytes) -> Text:
    """A text with more bytes."""
    if text is None:
        return data
    if isinstance(text, bytes):
        if len(text) < PIECE:
            return text + data
        text = Chain(None, text)
    elif len(text.last) < PIECE:
        return Chain(text.before, text.last + data)
    return Chain(text, data)


class OpenContainer:
    """A container that has begun.

    written: the items that there are, of an array whose items must differ; the names of an object; None of others
    parts: the items or members; length: how many there are; name: of the member whose value comes, else None
    rivals: those that were written, each of which it may still come to, and must not if the ones around do so too
    shape: a number that frames in containers of the same kinds have in common
    """

    __slots__ = (
        *("_targets", "is_open", "kind", "length", "name", "parent", "parts", "rivals", "serial", "shape", "written"),
    )

    def __init__(
        self,
        parent: OpenContainer | None,
        kind: Kind,
        written: WrittenValues | None,
        shape: int,
        *,
        is_open: bool = False,
        rivals: Rivals = (),
        parts: Chain | None = None,
        length: int = 0,
        name: bytes | None = None,
    ) -> None:
        self.parent = parent
        self.kind: Kind = kind
        self.written = written
        self.shape = shape
        # Whether it is not known yet if the items must differ, which shows when the first begins
        self.is_open = is_open
        self.rivals = rivals
        self.parts = parts
        self.length = length
        self.name = name
        self._targets: Targets | None = None
        # A number that frames have in common from which the same may follow; 0 until somebody asks
        self.serial = 0

    @property
    def targets(self) -> Targets:
        """The values that the next one, or name, may be equal to so that it matters."""
        if self._targets is None:
            self._targets = Targets(self)
        return self._targets

    def has_name(self, name: bytes) -> bool:
        """Tell whether an object has a member of a name."""
        return self.kind is OBJECT and self.written is not None and name in self.written

    def named(self, name: bytes) -> OpenContainer | None:
        """An object whose next member has a name; None if that is there already."""
        assert self.written is not None
        if name in self.written:
            return None
        return OpenContainer(
            self.parent,
            OBJECT,
            self.written.adding(name),
            self.shape,
            rivals=self.rivals,
            parts=self.parts,
            length=self.length,
            name=name,
        )

    def having(self, value: Value) -> OpenContainer | None:
        """The container with one more value; None if it must not be there."""
        written, rivals = self.written, self.rivals
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
        if rivals:
            rivals = having(rivals, at, value)
        parts = None if self.parent is None else Chain(self.parts, part)
        return OpenContainer(
            self.parent, self.kind, written, self.shape, rivals=rivals, parts=parts, length=self.length + 1
        )


class Targets:
    """The values or names that what comes next may be equal to so that it matters.

    written: what it must not be equal to; parts: what keeps rivals; count: how many there are, at most
    """

    __slots__ = ("count", "parts", "written")

    def __init__(self, frame: OpenContainer) -> None:
        is_name, rivals = frame.kind is OBJECT and frame.name is None, frame.rivals
        self.written = frame.written if frame.kind is ARRAY or is_name else None
        self.parts: dict[Value, None] = {}
        if rivals:
            spend(10 * len(rivals))
            at = frame.length if frame.name is None else frame.name
            if is_name:
                self.parts = dict.fromkeys(name for each in rivals for name in each.parts)
            else:
                self.parts = dict.fromkeys(each.parts[at] for each in rivals if each.has(at))
        self.count = len(self.parts) + (0 if self.written is None else self.written.count)

    def __contains__(self, value: Value) -> bool:
        return value in self.parts or (self.written is not None and value in self.written)

    def continues(self, begin: bytes) -> bool:
        """Tell whether some string among them begins so."""
        return next(self.beginning(begin), None) is not None

    def continues_word(self, begin: WordBegin) -> bool:
        """Tell whether some number, true, false or null among them may begin so."""
        if self.written is not None and self.written.continues_word(begin):
            return True
        return any(isinstance(part, tuple) and begin.suits(key_of(part)) for part in self.parts)

    def kept(self, begin: bytes) -> Iterator[bytes]:
        """The strings that begin so and keep rivals."""
        return (part for part in self.parts if isinstance(part, bytes) and part.startswith(begin))

    def beginning(self, begin: bytes) -> Iterator[bytes]:
        """The strings among them that begin so."""
        yield from self.kept(begin)
        if self.written is not None:
            yield from self.written.beginning(begin)

    def rivals(self, kind: Kind) -> Rivals:
        """The arrays, or objects, among them."""
        written = () if self.written is None else self.written.containers(kind)
        parts = [part for part in self.parts if isinstance(part, Container) and part.kind == kind]
        return tuple(dict.fromkeys((*parts, *written))) if parts else written


class JSONTrail:
    """The place of a text: the innermost container, what comes next, the piece in progress.

    is_free: whether that piece can come to no target; None until somebody asks
    """

    __slots__ = ("frame", "is_free", "mode", "text")

    def __init__(self, frame: OpenContainer, mode: int, text: Text | None = None, is_free: bool | None = None) -> None:
        self.frame = frame
        self.mode = mode
        self.text = text
        self.is_free = is_free
