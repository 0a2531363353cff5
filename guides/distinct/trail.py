"""What a text has come to where values may be there once only: the containers it is in, what they have, and a piece.

Texts are read as JSON; the chart beside has seen to it that they are. A trail begins with an array whose items must
differ, and ends with it. All of it is interned or shared, so that equal texts come to equal trails.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Literal, NamedTuple

from ..limits import spend
from .heads import Heads
from .written import ARRAY, NONE, OBJECT, Key, Rivals, Written

FIRST, ITEM, AFTER, NAME, COLON, WORD, TEXT, TEXT_ESCAPE, NAME_TEXT, NAME_ESCAPE = range(10)
"""What comes next: in an array that has just begun; a value; after one; a name; a colon; the rest of a number or word,
of a string, of a name, and of these after a backslash."""
STRINGS = (TEXT, TEXT_ESCAPE, NAME_TEXT, NAME_ESCAPE)
UNKEPT = -1
BLOCK = 64
SPACE = b" \t\n\r"

_STOP = re.compile(rb'["\\]')
_WORD_END = re.compile(rb"[\s,\]}]")
_CERTAIN = re.compile(
    rb"(?:[^\\]|\\[^u]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|\\u(?![dD][89abAB])[0-9a-fA-F]{4})*", re.DOTALL
)


class Frame(NamedTuple):
    """A container that has begun.

    written: the items that there are, of an array whose items must differ; the names, of an object; None where it does
    not matter
    decided: whether it is known yet if items must differ, which shows when the first begins
    parts: the items or members so far as a list's number, UNKEPT if nobody will ask
    length: how many there are; name: of the current member; rivals: what it may not come to in the end
    """

    parent: Frame | None
    kind: Literal["array", "object"]
    written: Written | None
    decided: bool
    parts: int
    length: int
    name: bytes
    rivals: Rivals


class Trail(NamedTuple):
    """Where a text is: the innermost container, what comes next, the number of the piece in progress."""

    frame: Frame
    mode: int
    text: int


class Lists:
    """Lists that share their beginnings, and long texts that do, as numbers; 0 is the empty one."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, Any], int] = {}
        self._nodes: list[tuple[int, Any]] = [(0, None)]

    def __len__(self) -> int:
        return len(self._nodes)

    def adding(self, number: int, item: Any) -> int:
        """The list with one more item."""
        key = (number, item)
        known = self._numbers.get(key)
        if known is None:
            known = self._numbers[key] = len(self._nodes)
            self._nodes.append(key)
        return known

    def items(self, number: int) -> list[Any]:
        """The items of a list."""
        found: list[Any] = []
        while number:
            number, item = self._nodes[number]
            found.append(item)
        return found[::-1]

    def last(self, number: int) -> tuple[int, Any]:
        """The list without its last item, and that."""
        return self._nodes[number]


class Trails:
    """Reads texts into trails.

    canonical: whether every string has one spelling
    """

    def __init__(self, heads: Heads, *, canonical: bool) -> None:
        self.canonical = canonical
        self.nothing = Written(heads)
        # Where `read` came upon the end of strings that have been added since, with the trail at that place then
        self.ended: list[tuple[int, Trail]] = []
        self._lists = Lists()
        self._texts = Lists()

    @property
    def held_bytes(self) -> int:
        """About how much memory the pieces take."""
        return 250 * (len(self._lists) + len(self._texts))

    def begin(self) -> Trail:
        """The trail in an array whose first item is to come, and whose items must differ."""
        return Trail(Frame(None, ARRAY, self.nothing, True, UNKEPT, 0, b"", NONE), FIRST, 0)

    def text_of(self, trail: Trail) -> bytes:
        """The bytes of the piece in progress."""
        return b"".join(self._texts.items(trail.text)) if trail.text > 0 else b""

    def piece(self, trail: Trail) -> bytes:
        """As much of the string in progress as is certain, in its canonical spelling."""
        raw = self.text_of(trail)
        if self.canonical:
            return raw
        certain = _CERTAIN.match(raw)
        return _spelt(certain.group() if certain else b"")

    def _more(self, text: int, data: bytes) -> int:
        """The number of a text with more bytes; texts are cut in blocks, wherever they came from."""
        if text == UNKEPT or not data:
            return text
        texts = self._texts
        if text:
            before, block = texts.last(text)
            if len(block) < BLOCK:
                text, data = before, block + data
        for at in range(0, len(data), BLOCK):
            text = texts.adding(text, data[at : at + BLOCK])
        return text

    def read(self, trail: Trail, data: bytes, at: int, differ: Callable[[int], bool]) -> tuple[Trail | None, int]:
        """The trail after data[at:], and the end of data; None and where its array has ended, or -1 where a value is
        there that must not be.

        differ: whether the items of the array whose first item begins at a place in `data` must differ
        """
        self.ended.clear()
        frame, mode, text = trail
        size = len(data)
        while at < size:
            if mode in STRINGS:
                at, mode, text, frame_after = self._string(frame, mode, text, data, at)
                if frame_after is None:
                    return None, -1
                frame = frame_after
                continue
            if mode == WORD:
                found = _WORD_END.search(data, at)
                end = found.start() if found else size
                text = self._more(text, data[at:end])
                at = end
                if not found:
                    break
                if text != UNKEPT:
                    closed = self._with(frame, _word_key(b"".join(self._texts.items(text))))
                    if closed is None:
                        return None, -1
                    frame = closed
                mode, text = AFTER, 0
                continue
            byte = data[at]
            if byte in SPACE:
                at += 1
            elif mode == COLON:
                mode, at = ITEM, at + 1
            elif mode == NAME and byte == 0x22:
                mode, text, at = NAME_TEXT, 0, at + 1
            elif byte in b"]}":
                at += 1
                if frame.parent is None:
                    return None, at
                closed = self._closed(frame)
                if closed is None:
                    return None, -1
                frame, mode, text = closed, AFTER, 0
            elif mode == AFTER:
                mode, at = (ITEM if frame.kind == ARRAY else NAME), at + 1
            else:
                if not frame.decided:
                    must = differ(at)
                    frame = frame._replace(decided=True, written=self.nothing if must else None)
                kept = frame.parts != UNKEPT or (frame.kind == ARRAY and frame.written is not None)
                if byte == 0x22:
                    mode, text, at = TEXT, 0 if kept else UNKEPT, at + 1
                elif byte in b"[{":
                    frame = self._inner(frame, ARRAY if byte == 0x5B else OBJECT, kept)
                    mode, at = (FIRST if byte == 0x5B else NAME), at + 1
                else:
                    mode, text = WORD, 0 if kept else UNKEPT
        return Trail(frame, mode, text), at

    def _string(self, frame: Frame, mode: int, text: int, data: bytes, at: int) -> tuple[int, int, int, Frame | None]:
        """Read on in a string: where, the mode and piece then, and the frame, None if the string must not be there."""
        if mode in (TEXT_ESCAPE, NAME_ESCAPE):
            return at + 1, mode - 1, self._more(text, data[at : at + 1]), frame
        found = _STOP.search(data, at)
        if not found:
            return len(data), mode, self._more(text, data[at:]), frame
        end = found.start()
        if data[end] == 0x5C:
            return end + 1, mode + 1, self._more(text, data[at : end + 1]), frame
        text = self._more(text, data[at:end])
        if text == UNKEPT:
            return end + 1, AFTER, 0, frame
        raw = b"".join(self._texts.items(text))
        spend(len(raw) // 16)
        key = raw if self.canonical else _spelt(raw)
        if mode == TEXT:
            after = self._with(frame, key)
            if after is not None and after.written is not None:
                self.ended.append((end, Trail(frame._replace(written=after.written), TEXT, text)))
            return end + 1, AFTER, 0, after
        assert frame.written is not None
        if key in frame.written:
            return end + 1, COLON, 0, None
        frame = frame._replace(written=frame.written.adding(key), name=key)
        self.ended.append((end, Trail(frame, NAME_TEXT, text)))
        return end + 1, COLON, 0, frame

    def _inner(self, frame: Frame, kind: Literal["array", "object"], kept: bool) -> Frame:
        """A container that begins within another one."""
        rivals = frame.written.rivals(kind) if frame.kind == ARRAY and frame.written is not None else NONE
        names = self.nothing if kind == OBJECT else None
        return Frame(frame, kind, names, kind == OBJECT, 0 if kept else UNKEPT, 0, b"", rivals)

    def _with(self, frame: Frame, key: Key) -> Frame | None:
        """A container with one more value; None if it must not be there."""
        written, parts, rivals = frame.written, frame.parts, frame.rivals
        if frame.kind == ARRAY:
            if written is not None:
                if key in written:
                    return None
                written = written.adding(key)
            if parts != UNKEPT:
                parts, rivals = self._lists.adding(parts, key), rivals.with_item(frame.length, key)
        elif parts != UNKEPT:
            parts, rivals = self._lists.adding(parts, (frame.name, key)), rivals.with_member(frame.name, key)
        return frame._replace(written=written, parts=parts, rivals=rivals, length=frame.length + 1)

    def _closed(self, frame: Frame) -> Frame | None:
        """The container around one that ends, with it; None if it must not be there."""
        assert frame.parent is not None
        if frame.parts == UNKEPT:
            return frame.parent._replace(length=frame.parent.length + 1)
        items = self._lists.items(frame.parts)
        spend(10 * len(items))
        key = (ARRAY, *items) if frame.kind == ARRAY else (OBJECT, frozenset(items))
        return self._with(frame.parent, key)


def _spelt(raw: bytes) -> bytes:
    """A string's canonical spelling, whatever way it is written; it may end in the middle of a character."""
    whole = raw.decode("utf-8", "surrogateescape")
    try:
        value = json.loads(f'"{whole}"', strict=False)
    except ValueError:
        raise AssertionError("the chart reads only strings") from None
    return json.dumps(value, ensure_ascii=False)[1:-1].encode("utf-8", "surrogateescape")


def _word_key(word: bytes) -> Key:
    """What equal numbers, or literals, have in common: sign, digits and power of ten."""
    if word[:1] in b"tfn":
        return ("literal", word)
    sign, digits, exponent = Decimal(word.decode()).as_tuple()
    assert isinstance(exponent, int), "JSON has no infinite numbers"
    plain = "".join(map(str, digits)).lstrip("0")
    short = plain.rstrip("0")
    return ("number", sign, short, exponent + len(plain) - len(short)) if short else ("number", 0, "", 0)
