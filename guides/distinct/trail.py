"""Reads texts, which the chart has accepted as JSON, into trails: the written values that later ones must differ from.

A trail begins with an array of unique items, or with a name of an object whose names must differ, and ends with it.
Objects within it have unique names.

The chart tells where items of watched arrays and names of watched objects begin (`Beginnings`).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import NamedTuple

from ...kernels.answers import DEAD
from ...kernels.chart.interning import HI, LO
from ...kernels.chart.layout import ENTRY, ENTRY_TARGET, OWN_RETURN_SET
from ..chart.automaton import ChartAutomaton
from ..graph.utf8 import EQUAL_ITEM
from ..lift.table_guide import MAX_STEPS
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
    JSONTrail,
    OpenContainer,
    Text,
    items_of,
    joined,
    more_of,
)
from .values import ARRAY, OBJECT, Kind, Ledger, Value, Values, WordBegin, WrittenValues, word_of

SPACE = b" \t\n\r"
LEVELS = 6
"""Maximum nesting for which the effects of tokens are tabulated."""


class Shape(NamedTuple):
    """The kinds of the containers around a place.

    kinds: kind and whether items may have to differ, innermost first; at most LEVELS + 1 entries
    around: number of the shape without the innermost container
    depth: containers within the innermost array of unique items; all of them if there is none
    is_outer: whether exactly one array of unique items is around; is_deep: whether `kinds` has more than LEVELS entries
    """

    kinds: tuple[tuple[Kind, bool], ...]
    around: int
    depth: int
    is_outer: bool
    is_deep: bool


_STOP = re.compile(rb'["\\]')
WORD_END = re.compile(rb"[ \t\n\r,\]}]")
_HALVES = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""Surrogate halves, except those that stand for invalid UTF-8 bytes."""
_PARTIAL_ESCAPE = re.compile(rb"\\u[0-9a-fA-F]{0,3}\Z")
_DECIDED_PREFIX = re.compile(
    rb"(?:[^\\]|\\[^u]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|\\u(?![dD][89abAB])[0-9a-fA-F]{4})*", re.DOTALL
)


class Completed(NamedTuple):
    """A value or name that a text completes.

    has_start: whether the text contains its beginning; inside: whether it lies in a container that began in the text
    """

    value: Value
    is_name: bool
    has_start: bool
    inside: bool


Log = list[Completed] | None


class ReadPlaces:
    """Places in a text read without a chart: no array that begins in it has unique items, and an equal item ends it."""

    def may_differ(self, at: int) -> bool:
        """Test whether the array whose first item begins at a place may require unique items."""
        return False

    def is_free(self, at: int) -> bool:
        """Test whether an array no longer requires unique items at a place."""
        return False

    def leave(self, at: int) -> bool:
        """After an equal item, drop the readings of the chart that forbid it. Return False if none remains."""
        return False


NO_PLACES = ReadPlaces()
_GOES_ON, _ENDED, _REFUSED = range(3)


class JSONTrails:
    """Reads texts into trails.

    canonical: whether every string has one spelling; with_names: whether trails may begin with names
    token_values: values that a single token can contain in whole
    """

    def __init__(
        self, *, canonical: bool, with_names: bool = False, token_values: frozenset[Value] = frozenset()
    ) -> None:
        self.canonical = canonical
        self.with_names = with_names
        # Bytes that may precede the array or name with which a trail begins
        self.openings = re.compile(rb"[\[{,]" if with_names else rb"\[")
        self.no_values = WrittenValues(Ledger(token_values), 0)
        self.values = Values()
        self.shapes = [Shape((), 0, 0, False, False)]
        self._shape_numbers: dict[tuple[int, Kind, bool], int] = {}
        # Approximate memory of the trails of states, without their containers
        self.states_bytes = 0

    def begin(self) -> JSONTrail:
        """Return the trail at the start of an array of unique items."""
        return JSONTrail(OpenContainer(None, ARRAY, self.no_values, self.shape(0, ARRAY, is_watched=True)), FIRST)

    def begin_names(self) -> JSONTrail:
        """Return the trail before a name of an object, whose earlier names do not matter."""
        return JSONTrail(OpenContainer(None, OBJECT, self.no_values, self.shape(0, OBJECT, is_watched=False)), NAME)

    def shape(self, around: int, kind: Kind, *, is_watched: bool) -> int:
        """Return the shape number of a container within another shape; is_watched: whether items may have to differ."""
        key = (around, kind, is_watched)
        known = self._shape_numbers.get(key)
        if known is None:
            innermost: tuple[tuple[Kind, bool], ...] = ((kind, is_watched),)
            kinds = (innermost + self.shapes[around].kinds)[: LEVELS + 1]
            depth = next((at for at, (_, differs) in enumerate(kinds) if differs), len(kinds))
            is_outer = sum(differs for _, differs in kinds) == 1
            known = len(self.shapes)
            self.shapes.append(Shape(kinds, around, depth, is_outer, len(kinds) > LEVELS))  # before its number is known
            self._shape_numbers[key] = known
        return known

    def piece(self, trail: JSONTrail) -> bytes:
        """Return the certain part of the string in progress, canonically spelt; a word as written."""
        raw = joined(trail.text)
        if self.canonical or trail.mode not in STRINGS or b"\\" not in raw:
            return raw
        prefix = _DECIDED_PREFIX.match(raw)
        return _spelt(prefix.group() if prefix else b"")

    def is_within_escape(self, trail: JSONTrail) -> bool:
        """Test whether an escape sequence is in progress."""
        if trail.mode in (TEXT_ESCAPE, NAME_ESCAPE):
            return True
        return not self.canonical and _PARTIAL_ESCAPE.search(joined(trail.text)[-6:]) is not None

    def is_free(self, trail: JSONTrail) -> bool:
        """Test whether the string or word in progress can equal no target. Cached in the trail."""
        free = trail.is_free
        if free is None:
            targets = trail.frame.targets
            if trail.mode == WORD:
                free = not targets.continues_word(WordBegin(joined(trail.text)))
            else:
                free = not targets.count or not targets.continues(self.piece(trail))
            trail.is_free = free
        return free

    def read(
        self, trail: JSONTrail, data: bytes, at: int, places: ReadPlaces, log: list[Completed] | None = None
    ) -> tuple[JSONTrail | None, int]:
        """Return the trail after data[at:], and len(data).

        If the trail ends: None and the position, or None and -1 where a value is refused. log: receives completed
        values
        """
        free = trail.is_free or None
        return _Reading(self, data, at, places, log, trail.frame, trail.mode, trail.text, free).result()

    def longer(self, trail: JSONTrail, data: bytes) -> JSONTrail:
        """Return the trail after more bytes of the string in progress."""
        self.states_bytes += len(data)
        return JSONTrail(trail.frame, trail.mode, more_of(trail.text, data), trail.is_free or None)

    def decided(self, frame: OpenContainer, *, must: bool) -> OpenContainer:
        """Return an open array once it is known whether its items must differ."""
        shape = self.shape(self.shapes[frame.shape].around, ARRAY, is_watched=must)
        return OpenContainer(frame.parent, ARRAY, self.no_values if must else None, shape, duplicates=frame.duplicates)

    def freed(self, frame: OpenContainer) -> OpenContainer:
        """Return an array whose items need not differ any more."""
        shape = self.shape(self.shapes[frame.shape].around, ARRAY, is_watched=False)
        parts, length = frame.parts, frame.length
        return OpenContainer(frame.parent, ARRAY, None, shape, duplicates=frame.duplicates, parts=parts, length=length)

    def inner(self, frame: OpenContainer, byte: int) -> tuple[OpenContainer, int]:
        """Return the container that a bracket opens within another one, and what comes next in it."""
        if byte == 0x5B:
            shape = self.shape(frame.shape, ARRAY, is_watched=True)
            return OpenContainer(
                frame, ARRAY, None, shape, is_open=True, duplicates=frame.targets.duplicates(ARRAY)
            ), FIRST
        shape = self.shape(frame.shape, OBJECT, is_watched=False)
        return OpenContainer(frame, OBJECT, self.no_values, shape, duplicates=frame.targets.duplicates(OBJECT)), NAME

    def value_of(self, frame: OpenContainer) -> Value:
        """Return the value of a container that ends."""
        spend(10 * frame.length)
        parts = items_of(frame.parts)
        return self.values.array(parts) if frame.kind is ARRAY else self.values.object(parts)


@dataclass(slots=True, eq=False)
class _Reading:
    """One call of `JSONTrails.read`: the trail so far, and the position in the text.

    opened: number of containers that began in the text and are open; has_start: whether the value in progress did too
    """

    trails: JSONTrails
    data: bytes
    at: int
    places: ReadPlaces
    log: Log
    frame: OpenContainer
    mode: int
    text: Text | None
    free: bool | None
    opened: int = 0
    has_start: bool = False

    def result(self) -> tuple[JSONTrail | None, int]:
        """Read the text; see `JSONTrails.read`."""
        size = len(self.data)
        while self.at < size:
            if self.mode in STRINGS:
                said = self._string()
            elif self.mode == WORD:
                said = self._word()
            else:
                said = self._between()
            if said:
                return None, self.at if said == _ENDED else -1
        return JSONTrail(self.frame, self.mode, self.text, self.free), self.at

    def _string(self) -> int:
        """Read on in a string or name, up to its end at most."""
        data, at = self.data, self.at
        if self.mode in (TEXT_ESCAPE, NAME_ESCAPE):
            self.text, self.at, self.mode = more_of(self.text, data[at : at + 1]), at + 1, self.mode - 1
            return _GOES_ON
        found = _STOP.search(data, at)
        end = found.start() if found else len(data)
        if end > at or self.text is None:
            self.text = more_of(self.text, data[at:end])
        self.at = end
        if not found:
            return _GOES_ON
        self.at = end + 1
        if data[end] == 0x5C:
            self.text, self.mode = more_of(self.text, b"\\"), self.mode + 1
            return _GOES_ON
        key = joined(self.text)
        spend(len(key) >> 4)
        if not self.trails.canonical and b"\\" in key:
            key = _spelt(key)
        if self.mode == TEXT:
            return self._complete(key, self._having(self.frame, key))
        return self._complete(key, self.frame.named(key), COLON)

    def _word(self) -> int:
        """Read on in a number, or true, false or null, up to its end at most."""
        found = WORD_END.search(self.data, self.at)
        end = found.start() if found else len(self.data)
        self.text = more_of(self.text, self.data[self.at : end])
        self.at = end
        if not found:
            return _GOES_ON
        word = word_of(joined(self.text))
        return self._complete(word, self._having(self.frame, word))

    def _having(self, frame: OpenContainer, value: Value) -> OpenContainer | None:
        """Return a container with one more value; None if the value is refused."""
        after = frame.having(value)
        return self.trails.freed(frame).having(value) if after is None and self.places.leave(self.at) else after

    def _complete(self, value: Value, after: OpenContainer | None, mode: int = AFTER) -> int:
        """Complete a value or name. `after` is the container with it, None if refused."""
        if after is None:
            return _REFUSED
        if self.log is not None:
            self.log.append(Completed(value, mode == COLON, self.has_start, self.opened > 0))
        self.mode, self.text, self.free = mode, None, None
        return self._go_on(after)

    def _go_on(self, frame: OpenContainer) -> int:
        """Continue in a container; end the trail if nothing needs remembering there."""
        self.frame = frame
        return _ENDED if frame.written is None and frame.parent is None else _GOES_ON

    def _between(self) -> int:
        """Read one byte outside strings and words."""
        frame, byte = self.frame, self.data[self.at]
        if byte in SPACE:
            self.at += 1
        elif self.mode == COLON:
            self.mode, self.at = ITEM, self.at + 1
        elif self.mode == NAME and byte == 0x22:
            self.mode, self.text, self.at, self.has_start = NAME_TEXT, None, self.at + 1, True
        elif byte in b"]}":
            return self._leave()
        elif self.mode == AFTER:
            self.mode, self.at = (ITEM if frame.kind is ARRAY else NAME), self.at + 1
        else:
            return self._begin(byte)
        return _GOES_ON

    def _begin(self, byte: int) -> int:
        """Begin a value."""
        frame = self.frame
        if frame.is_open:
            self.frame = self.trails.decided(frame, must=self.places.may_differ(self.at))
        elif self._may_be_free() and self._go_on(self.trails.freed(frame)) == _ENDED:
            return _ENDED
        self.has_start = True
        if byte == 0x22:
            self.mode, self.at = TEXT, self.at + 1
        elif byte in b"[{":
            self.frame, self.mode = self.trails.inner(self.frame, byte)
            self.at, self.opened = self.at + 1, self.opened + 1
        else:
            self.mode = WORD
        return _GOES_ON

    def _may_be_free(self) -> bool:
        """Test whether an item begins in an array whose earlier items had to differ, and whose items no longer do."""
        frame = self.frame
        return frame.kind is ARRAY and frame.written is not None and frame.length > 0 and self.places.is_free(self.at)

    def _leave(self) -> int:
        """End a container."""
        frame = self.frame
        self.at += 1
        if frame.parent is None:
            return _ENDED
        value = self.trails.value_of(frame)
        after = self._having(frame.parent, value)
        if after is None:
            return _REFUSED
        if self.log is not None:
            self.log.append(Completed(value, False, self.opened > 0, self.opened > 1))
        self.opened = max(self.opened - 1, 0)
        self.mode = AFTER
        return self._go_on(after)


def _spelt(raw: bytes) -> bytes:
    """Return a string's canonical spelling. It may end in the middle of a character.

    Unpaired surrogates are written as escapes.
    """
    string = raw.decode("utf-8", "surrogateescape")
    try:
        value = json.loads(f'"{string}"', strict=False)
    except ValueError:
        raise AssertionError("the chart reads only strings") from None
    spelt = json.dumps(value, ensure_ascii=False)[1:-1]
    return _HALVES.sub(lambda half: f"\\u{ord(half.group()):04x}", spelt).encode("utf-8", "surrogateescape")


class Beginnings:
    """Tells in which chart states something watched begins: where a call is open that returns to a watched node.

    Hold the automaton's lock. marks: watched nodes; the set may grow later
    beside_free: whether something unwatched may begin at the same places
    """

    def __init__(self, automaton: ChartAutomaton, marks: set[int], *, beside_free: bool = False) -> None:
        self._automaton = automaton
        self._marks = marks
        self.beside_free = beside_free
        self._known: dict[int, bool] = {}

    def may_be(self, state: int) -> bool:
        """Test whether something watched may begin in a state of the chart."""
        known = state != DEAD and self._known.get(state)
        if known is None:
            if len(self._known) >= MAX_STEPS:
                self._known.clear()
            ready = self._automaton.ready(state)
            chart = self._automaton.chart
            return_set = chart.words.item(chart.states.item(ready, LO) + OWN_RETURN_SET)
            first, last = chart.return_sets.item(return_set, LO), chart.return_sets.item(return_set, HI)
            targets = chart.words[first + ENTRY_TARGET : last : ENTRY].tolist()
            known = self._known[state] = not self._marks.isdisjoint(targets)
        return known

    def places(self, state: int, data: bytes) -> ChartPlaces:
        """Return the places of a text that is read from a state of the chart."""
        return ChartPlaces(self._automaton, self, state, data)


@dataclass(slots=True, eq=False)
class ChartPlaces(ReadPlaces):
    """Places in a text with the chart's states, for `JSONTrails.read`.

    The chart reads both alternatives, arrays of unique items and others. After an equal item it drops those whose items
    must differ: only the others have a transition over `EQUAL_ITEM`.
    """

    _automaton: ChartAutomaton
    _items: Beginnings
    _state: int
    _data: bytes
    # The position of `_state`, the last one computed
    _offset: int = 0
    _has_left: bool = False

    def before(self, at: int) -> int:
        """Return the state before a position."""
        offset = self._offset
        return self._automaton.read(self._state, self._data[offset:at]) if at > offset else self._state

    def may_differ(self, at: int) -> bool:
        """See `ReadPlaces.may_differ`."""
        return self._items.may_be(self.before(at))

    def is_free(self, at: int) -> bool:
        """See `ReadPlaces.is_free`."""
        return self._items.beside_free and not self.may_differ(at)

    def leave(self, at: int) -> bool:
        """See `ReadPlaces.leave`."""
        after = self._automaton.step(self.before(at), EQUAL_ITEM) if self._items.beside_free else DEAD
        if after != DEAD:
            self._state, self._offset, self._has_left = after, at, True
        return after != DEAD

    def last(self, after: int) -> int:
        """Return the state after the whole text: `after` unless `leave` changed the reading; DEAD if there is none."""
        return self.before(len(self._data)) if self._has_left else after
