"""Reads texts as JSON, which the chart beside has seen that they are, into what must be remembered of them.

A trail begins with an array whose items must differ, and ends with it. Members of objects within it have different
names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import NamedTuple

from ..limits import spend
from .frames import (
    AFTER,
    COLON,
    FIRST,
    ITEM,
    NAME,
    NAME_ESCAPE,
    NAME_TEXT,
    STRINGS,
    TEXT,
    TEXT_ESCAPE,
    WORD,
    Frame,
    Trail,
)
from .heads import Heads
from .pieces import items_of, joined, more_of
from .rivals import ARRAY, OBJECT, Kind, Value
from .words import WordBegin, word_of
from .written import Values, Written

SPACE = b" \t\n\r"
LEVELS = 6
"""From how many containers on a trail counts as deeper than tokens tell."""

Shape = tuple[tuple[Kind, bool], ...]

_STOP = re.compile(rb'["\\]')
WORD_END = re.compile(rb"[ \t\n\r,\]}]")
_BEGUN = re.compile(rb"\\u[0-9a-fA-F]{0,3}\Z")
_CERTAIN = re.compile(
    rb"(?:[^\\]|\\[^u]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|\\u(?![dD][89abAB])[0-9a-fA-F]{4})*", re.DOTALL
)


class Completed(NamedTuple):
    """A value or name whose end a text had.

    begun: whether its beginning was there too; inside: whether that was in a container that began in the text
    """

    value: Value
    is_name: bool
    begun: bool
    inside: bool


class Simple(NamedTuple):
    """What a token does that stays in one container: it may end a string or name, and begin another one.

    ends: whether it does; more: what that has of it, or what comes behind what is there
    mode: what comes next; begin: what there is of a string or name in progress then that begins in it
    """

    ends: bool
    more: bytes
    mode: int
    begin: bytes | None


class Trails:
    """Reads texts into trails.

    canonical: whether every string has one spelling
    """

    def __init__(self, heads: Heads, *, canonical: bool) -> None:
        self.canonical = canonical
        self.nothing = Written(heads)
        self.values = Values()
        # Kinds of containers from the innermost on, with whether their items may have to differ; the first few, and one
        # more where they are more; and their numbers, by that of those around
        self.shapes: list[Shape] = [()]
        self._shape_numbers: dict[tuple[int, Kind, bool], int] = {}
        # About how much memory the states take that trails are given out with, but for the containers in them
        self.states_bytes = 0

    def begin(self) -> Trail:
        """The trail in an array whose first item is to come, and whose items must differ."""
        return Trail(Frame(None, ARRAY, self.nothing, self.shape(None, ARRAY, is_watched=True)), FIRST)

    def shape(self, around: Frame | None, kind: Kind, *, is_watched: bool) -> int:
        """The number of the kinds of containers of one in another; is_watched: whether items may have to differ."""
        key = (0 if around is None else around.shape, kind, is_watched)
        known = self._shape_numbers.get(key)
        if known is None:
            known = self._shape_numbers[key] = len(self.shapes)
            innermost: Shape = ((kind, is_watched),)
            self.shapes.append((innermost + self.shapes[key[0]])[: LEVELS + 1])
        return known

    def piece(self, trail: Trail) -> bytes:
        """As much of the string in progress as is certain, in its canonical spelling; a word as it is written."""
        raw = joined(trail.text)
        if self.canonical or trail.mode not in STRINGS or b"\\" not in raw:
            return raw
        certain = _CERTAIN.match(raw)
        return _spelt(certain.group() if certain else b"")

    def is_within_escape(self, trail: Trail) -> bool:
        """Whether what comes next is the rest of an escape."""
        if trail.mode in (TEXT_ESCAPE, NAME_ESCAPE):
            return True
        return not self.canonical and _BEGUN.search(joined(trail.text)[-6:]) is not None

    def is_free(self, trail: Trail) -> bool:
        """Whether the string or word in progress can come to nothing that matters."""
        free = trail.is_free
        if free is None:
            frame = trail.frame
            if trail.mode == WORD:
                free = not frame.targets.continues_word(WordBegin(joined(trail.text)))
            elif frame.rivals:
                free = not frame.targets.continues(self.piece(trail))
            else:
                written = frame.written if frame.kind is ARRAY or frame.name is None else None
                free = written is None or not written.count or not written.continues(self.piece(trail))
            trail.is_free = free
        return free

    def read(
        self, trail: Trail, data: bytes, at: int, differ: Callable[[int], bool], log: list[Completed] | None = None
    ) -> tuple[Trail | None, int]:
        """The trail after data[at:], and the end of data; None and where its array has ended, or -1 where a value is
        there that must not be.

        differ: whether the items of the array whose first item begins at a place in `data` must differ
        log: takes what the text has in whole
        """
        frame, mode, text, free = trail.frame, trail.mode, trail.text, trail.is_free or None
        size = len(data)
        opened = 0
        begun = False
        while at < size:
            if mode in STRINGS:
                if mode in (TEXT_ESCAPE, NAME_ESCAPE):
                    text, at, mode = more_of(text, data[at : at + 1]), at + 1, mode - 1
                    continue
                found = _STOP.search(data, at)
                end = found.start() if found else size
                if end > at or text is None:
                    text = more_of(text, data[at:end])
                at = end
                if not found:
                    break
                if data[end] == 0x5C:
                    text, at, mode = more_of(text, b"\\"), at + 1, mode + 1
                    continue
                at += 1
                key = joined(text)
                spend(len(key) >> 4)
                if not self.canonical and b"\\" in key:
                    key = _spelt(key)
                after = frame.having(key) if mode == TEXT else frame.named(key)
                if after is None:
                    return None, -1
                if log is not None:
                    log.append(Completed(key, mode != TEXT, begun, opened > 0))
                frame, mode, text, free = after, AFTER if mode == TEXT else COLON, None, None
                continue
            if mode == WORD:
                found = WORD_END.search(data, at)
                end = found.start() if found else size
                text = more_of(text, data[at:end])
                at = end
                if not found:
                    break
                word = word_of(joined(text))
                after = frame.having(word)
                if after is None:
                    return None, -1
                if log is not None:
                    log.append(Completed(word, False, begun, opened > 0))
                frame, mode, text, free = after, AFTER, None, None
                continue
            byte = data[at]
            if byte in SPACE:
                at += 1
            elif mode == COLON:
                mode, at = ITEM, at + 1
            elif mode == NAME and byte == 0x22:
                mode, text, at, begun = NAME_TEXT, None, at + 1, True
            elif byte in b"]}":
                at += 1
                if frame.parent is None:
                    return None, at
                value = self._whole(frame)
                after = frame.parent.having(value)
                if after is None:
                    return None, -1
                if log is not None:
                    log.append(Completed(value, False, opened > 0, opened > 1))
                opened = max(opened - 1, 0)
                frame, mode = after, AFTER
            elif mode == AFTER:
                mode, at = (ITEM if frame.kind is ARRAY else NAME), at + 1
            else:
                if frame.is_open:
                    frame = self._decided(frame, must=differ(at))
                begun = True
                if byte == 0x22:
                    mode, at = TEXT, at + 1
                elif byte in b"[{":
                    frame, mode = self._inner(frame, byte)
                    at, opened = at + 1, opened + 1
                else:
                    mode = WORD
        return Trail(frame, mode, text, free), at

    def _decided(self, frame: Frame, *, must: bool) -> Frame:
        """An array of which it is known now whether its items must differ."""
        shape = self.shape(frame.parent, ARRAY, is_watched=must)
        return Frame(frame.parent, ARRAY, self.nothing if must else None, shape, rivals=frame.rivals)

    def _inner(self, frame: Frame, byte: int) -> tuple[Frame, int]:
        """A container that begins within another one, and what comes next in it."""
        if byte == 0x5B:
            shape = self.shape(frame, ARRAY, is_watched=True)
            return Frame(frame, ARRAY, None, shape, is_open=True, rivals=frame.targets.rivals(ARRAY)), FIRST
        shape = self.shape(frame, OBJECT, is_watched=False)
        return Frame(frame, OBJECT, self.nothing, shape, rivals=frame.targets.rivals(OBJECT)), NAME

    def _whole(self, frame: Frame) -> Value:
        """The value of a container that ends."""
        spend(10 * frame.length)
        parts = items_of(frame.parts)
        return self.values.array(parts) if frame.kind is ARRAY else self.values.object(parts)


def _spelt(raw: bytes) -> bytes:
    """A string's canonical spelling, whatever way it is written; it may end in the middle of a character."""
    whole = raw.decode("utf-8", "surrogateescape")
    try:
        value = json.loads(f'"{whole}"', strict=False)
    except ValueError:
        raise AssertionError("the chart reads only strings") from None
    return json.dumps(value, ensure_ascii=False)[1:-1].encode("utf-8", "surrogateescape")
