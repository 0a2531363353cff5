"""Lower bounds on the number of values that a piece in progress can still become.

If the bound exceeds the number of values to avoid, a completion exists and no search is needed.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Any, NamedTuple

import numpy as np

from ...kernels.answers import DEAD
from ...kernels.chart.compaction import least_texts
from ..chart.automaton import ChartAutomaton
from ..graph.utf8 import EQUAL_ITEM
from ..limits import spend
from .frames import (
    COLON,
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
    joined,
)
from .trail import SPACE, Beginnings, JSONTrails
from .values import ARRAY, OBJECT, Kind, WordBegin, word_of

EACH, EACH_BYTE = 1500, 150
"""Work of looking at a state, and at each byte that may follow (in the units of `guides.limits`)."""
MANY = 1 << 40
"""More values than any text contains."""
MAX_KNOWN = 1 << 16
MAX_ROBUST = 400
MAX_LOOKED = 40
"""Maximum number of states searched for the end of a word, and of bytes over which choices are counted."""
MAX_READS = 2000
"""Maximum number of bytes read in the search for a piece with very many possible values."""
UNNAMED = b"\0"
"""Stands for an unknown member name; no string contains NUL."""
_Place = tuple[int, int, Kind, bytes | None]  # (chart state, mode, kind of container, beginning of a name)

# Bytes that each make a different string, in any context
_PLAIN = np.array([byte for byte in range(0x20, 0x100) if byte not in b'"\\'], np.int64)
_DIGITS = np.arange(0x31, 0x3A)
_WORD_BYTES = b"1023456789.-+eE"
_PLAIN_NUMBER = re.compile(rb"-?[0-9]+(?:\.[0-9]*)?\Z")
_WORD_ENDS = np.array([*b" \t\n\r,]}"], np.int64)


class NextBytes(NamedTuple):
    """Next bytes: may a quote come; does a zero lead to the same state; may another digit come."""

    may_end: bool
    loops_on_zeros: bool
    has_digits: bool


class CardinalityBounds:
    """Bounds for the states of one guide's chart; hold the automaton's lock.

    items: where items of arrays of unique items begin
    """

    def __init__(self, automaton: ChartAutomaton, trails: JSONTrails, items: Beginnings) -> None:
        self._automaton = automaton
        self._trails = trails
        self._items = items
        self._bounds: dict[tuple[int, bool], int] = {}
        self._robust: dict[int, bool] = {}
        self._nexts: dict[int, NextBytes] = {}
        self._ways_on: dict[int, tuple[bool, list[tuple[bytes, int]]]] = {}
        self._suffixes: dict[int, bytes | None] = {}
        self._names: dict[tuple[int, bytes | None], bytes | None] = {}
        self._roomy: dict[_Place, frozenset[bytes] | None] = {}

    def read(self, state: int, trail: JSONTrail, byte: int, after: int) -> tuple[JSONTrail | None, int]:
        """Return the trail after a byte and the chart state there (`after` by default); DEAD if the byte is refused."""
        data = bytes((byte,))
        places = self._items.places(state, data)
        found, end = self._trails.read(trail, data, 0, places)
        return found, DEAD if end < 0 else places.last(after)

    def after(self, state: int) -> tuple[list[int], list[int]]:
        """Return the bytes that may follow a state, and the states after them, which are kept."""
        after = self._automaton.transitions(state)
        after[EQUAL_ITEM] = DEAD
        data = np.flatnonzero(after >= 0)
        spend(EACH + EACH_BYTE * len(data))
        return data.tolist(), after[data].tolist()

    def ends_well(self, state: int, trail: JSONTrail) -> bool:
        """Test whether the string in progress may end here, or the word soon, as a value that need not be avoided."""
        if trail.mode == WORD:
            rest = self.ending(state)
            return rest is not None and word_of(joined(trail.text) + rest) not in trail.frame.targets
        if trail.mode not in (TEXT, NAME_TEXT) or self._trails.is_within_escape(trail):
            return False
        return self._next(state).may_end and self._trails.piece(trail) not in trail.frame.targets

    def may_have(self, state: int, byte: int) -> bool:
        """Test whether a byte may follow a state of the chart."""
        return bool(self._automaton.transitions(state)[byte] >= 0)

    def ending(self, state: int) -> bytes | None:
        """Return a shortest ending of a word; None if none is found within MAX_LOOKED states."""
        if state not in self._suffixes:
            note(self._suffixes, [state], self._look_for_ending(state))
        return self._suffixes[state]

    def _look_for_ending(self, state: int) -> bytes | None:
        queue, seen = deque([(state, b"")]), {state}
        while queue and len(seen) <= MAX_LOOKED:
            place, found = queue.popleft()
            spend(1000)
            after = self._automaton.transitions(place)
            if (after[_WORD_ENDS] >= 0).any():
                return found
            for byte in _WORD_BYTES:
                target = int(after[byte])
                if target >= 0 and target not in seen:
                    seen.add(target)
                    queue.append((target, found + bytes((byte,))))
        return None

    def _onward(self, state: int) -> tuple[bool, list[tuple[bytes, int]]]:
        """Return whether a string may end in a chart state, and its other continuations as (bytes, next state).

        A backslash includes the escaped byte, since an escaped quote is no end.
        """
        known = self._ways_on.get(state)
        if known is None:
            others: list[tuple[bytes, int]] = []
            for byte, target in zip(*self.after(state), strict=True):
                if byte == 0x5C:
                    others += [(bytes((byte, each)), end) for each, end in zip(*self.after(target), strict=True)]
                elif byte != 0x22:
                    others.append((bytes((byte,)), target))
            known = self.may_have(state, 0x22), others
            note(self._ways_on, [state], known)
        return known

    def is_various(self, state: int, trail: JSONTrail) -> bool:
        """Test whether the string or word in progress can become at least MANY values."""
        return self._values_from(state, trail) >= MANY

    def is_wide(self, state: int) -> bool:
        """Test whether a word can become at least MANY values, unless it is zero with an exponent."""
        return self._bound_from(state, is_word=True) >= MANY

    def _bound_from(self, state: int, *, is_word: bool) -> int:
        known = self._bounds.get((state, is_word))
        if known is None:
            known = self._bound_of(state, _DIGITS if is_word else _PLAIN)
            note(self._bounds, [(state, is_word)], known)
        return known

    def is_varied(self, state: int, trail: JSONTrail) -> bool:
        """Test whether the piece in progress can become more values than there are to avoid that begin like it.

        Different texts of equally many further digits, none a zero, begin numbers whose keys (`key_of`) differ, except
        in an exponent.
        """
        found, targets = self._values_from(state, trail), trail.frame.targets
        if not 0 < found < MANY or found > targets.count:
            return found > 0
        return found > targets.most(WordBegin(joined(trail.text)) if trail.mode == WORD else self._trails.piece(trail))

    def goes_on_varied(self, state: int, trail: JSONTrail, data: bytes) -> bool:
        """Test whether data only begins or continues a piece, and leaves it more values than there are to avoid.

        False also where that takes a trail. state: of the chart, after data
        """
        mode, targets = trail.mode, trail.frame.targets
        if mode in (TEXT, NAME_TEXT):
            if b'"' in data or b"\\" in data or not self._trails.canonical:
                return False
            return self._bound_from(state, is_word=False) > targets.most(joined(trail.text) + data)
        is_begin = mode == ITEM and trail.frame.kind is ARRAY and not trail.frame.duplicates
        data = data.lstrip(SPACE) if is_begin else joined(trail.text) + data if mode == WORD else b""
        if not _PLAIN_NUMBER.match(data) or not data.strip(b"-0."):
            return False
        return self._bound_from(state, is_word=True) > targets.most(WordBegin(data))

    def least_items(self, state: int, trail: JSONTrail) -> int:
        """Return a lower bound on the number of values that the piece in progress, or else the next one, can become."""
        if trail.mode != ITEM:
            return self._values_from(state, trail)
        after = self._automaton.transitions(state)
        quote = after.item(0x22)
        texts = self._bound_from(quote, is_word=False) if quote >= 0 else 0
        return max(texts, self._bound_from(state, is_word=True) if (after[_DIGITS] >= 0).any() else 0)

    def _values_from(self, state: int, trail: JSONTrail) -> int:
        """Return a lower bound on the number of values that the piece in progress can become."""
        is_word = trail.mode == WORD
        if is_word:
            mantissa, power, _ = joined(trail.text).lower().partition(b"e")
            if power and not mantissa.strip(b"-0."):
                return 0  # zero is one value, with any exponent
            if not power and self._is_endless(state, mantissa):
                return MANY
        elif trail.mode not in STRINGS:
            return 0
        known = self._bound_from(state, is_word=is_word)
        if not is_word and known < MANY and self._trails.is_within_escape(trail):
            return 0  # the next bytes may spell few characters, each in several ways
        return known

    def _is_endless(self, state: int, mantissa: bytes) -> bool:
        """Test whether a number without exponent can continue with any number of zeros, each a different value."""
        onward = self._next(state)
        return onward.loops_on_zeros and (onward.has_digits or (b"." not in mantissa and bool(mantissa.strip(b"-0"))))

    def loops_on_zeros(self, state: int) -> bool:
        """Test whether a zero leads from a chart state to itself."""
        return self._next(state).loops_on_zeros

    def _next(self, state: int) -> NextBytes:
        known = self._nexts.get(state)
        if known is None:
            after = self._automaton.transitions(state)
            known = NextBytes(bool(after[0x22] >= 0), bool(after[0x30] == state), bool((after[_DIGITS] >= 0).any()))
            note(self._nexts, [state], known)
        return known

    def _bound_of(self, state: int, choices: Any) -> int:
        """Return a lower bound on the number of next texts over the bytes `choices`, which are all different values."""
        spend(1000)
        wanted = np.zeros(0x100, np.uint8)
        wanted[choices] = 1
        return self._automaton.run(least_texts, self._automaton.ready(state), wanted, MAX_LOOKED, MANY)

    def is_robust(self, state: int) -> bool:
        """Test whether a string keeps at least MANY possible values after every continuation except its end."""
        known = self._robust.get(state)
        if known is None:
            known = self._look_robust(state)
            note(self._robust, [state], known)
        return known

    def _look_robust(self, state: int) -> bool:
        todo, before = [(state, False)], {(state, False): set[tuple[int, bool]]()}
        while todo:
            place = todo.pop()
            if len(before) > MAX_ROBUST:
                return False
            after = self._automaton.transitions(place[0])
            if not place[1]:
                after[0x22] = -1
            behind, after[0x5C] = int(after[0x5C]), -1
            found = {(target, False) for target in set(after[after >= 0].tolist())}
            if behind >= 0:
                found.add((behind, not place[1]))
            if not found:
                return False  # the string can only end
            todo += found - before.keys()
            for each in found:
                before.setdefault(each, set()).add(place)
        wide = [place for place in before if self._bound_from(place[0], is_word=False) >= MANY]
        # All states from which a wide state can be reached
        reached = set(wide)
        while wide:
            more = before[wide.pop()] - reached
            reached |= more
            wide += more
        return len(reached) == len(before)

    def some_name(self, state: int, mode: int, text: Text | None) -> bytes | None:
        """Return a name that may come next, or complete the one in progress; None if none is found at once."""
        if mode not in (NAME, NAME_TEXT) or not self._trails.canonical:
            return None
        key = (state, joined(text) if mode == NAME_TEXT else None)
        if key not in self._names:
            note(self._names, [key], self._look_for_name(*key))
        return self._names[key]

    def _look_for_name(self, state: int, begin: bytes | None) -> bytes | None:
        if begin is None:
            after = self._automaton.transitions(state)
            if after[0x22] < 0:
                after = self._automaton.transitions(int(after[0x0A]))  # if the grammar puts a line break first
            state, begin = int(after[0x22]), b""
        for _ in range(MAX_LOOKED):
            spend(200)
            ends, onward = self._onward(state)
            if ends:
                return begin
            way = next((way for way in onward if way[0][:1] != b"\\"), None)
            if way is None:
                return None
            begin, state = begin + way[0], way[1]
        return None

    def room(self, state: int, mode: int, kind: Kind, text: Text | None = None) -> frozenset[bytes] | None:
        """Return names to write before a piece with very many possible values; None if none is found.

        On the way only members of the object, and parts of containers that begin there, are completed. So written
        values do not matter, only names. text: beginning of a name in progress
        """
        key = _place_of(state, mode, kind, text)
        return self._roomy[key] if key in self._roomy else self._look_for_room(key)

    def _look_for_room(self, key: _Place) -> frozenset[bytes] | None:
        """Search for `room`, and cache it for all places on the way; after a failure, for all places visited."""
        state, mode, kind, _ = key
        start = self._beginning(key)
        # Stack of places to visit, with the names written on the way and the path
        todo: list[tuple[int, JSONTrail, bool, tuple[bytes, ...], Any]] = [(state, start, True, (), None)]
        seen, reads = {(state, mode)}, 0
        while todo and reads < MAX_READS:
            place, trail, is_begun, names, way = todo.pop()
            cached: frozenset[bytes] | None = None
            if trail.frame.parent is None:
                location = _place_of(place, trail.mode, kind, trail.text)
                cached = self._roomy.get(location)
                if cached is None and location in self._roomy:
                    continue
                way = (way, location, names)
            if cached is not None or (is_begun and self._values_from(place, trail) >= MANY):
                self._note_way(way, (*names, *(cached or ())))
                return self._roomy[key]
            is_text = trail.mode in (TEXT, NAME_TEXT)
            for byte, target in sorted(zip(*self.after(place), strict=True), key=_last_first):
                if is_text and byte not in b'"\\' and (target, trail.mode) in seen:
                    continue
                reads += 1
                found, behind = self.read(place, trail, byte, target)
                if found is None or behind != target or (target, found.mode) in seen:
                    continue
                outermost = _outermost(found.frame)
                if outermost.length and kind is ARRAY:
                    continue
                seen.add((target, found.mode))
                is_new = outermost.name not in (None, UNNAMED, *names[-1:])
                more = (*names, outermost.name or b"") if is_new else names
                # A string cannot become more values later.
                todo.append((target, found, found.mode == WORD or found.mode != trail.mode, more, way))
        looked = (
            [key] if todo else [(place, seen_mode, kind, None) for place, seen_mode in seen if seen_mode != NAME_TEXT]
        )
        note(self._roomy, [key, *looked], None)
        return None

    def _beginning(self, place: _Place) -> JSONTrail:
        """Return a trail at a place, with nothing written before."""
        _, mode, kind, text = place
        name = UNNAMED if kind is OBJECT and mode in (ITEM, COLON, TEXT) else None
        frame = OpenContainer(None, kind, self._trails.no_values, 0, name=name)
        return JSONTrail(frame, mode, b"" if mode == TEXT else text)

    def _note_way(self, way: Any, names: tuple[bytes, ...]) -> None:
        """Cache the names to write from each place of a path. way: the path's end; names: written on the whole path"""
        while way is not None:
            way, known, before = way
            note(self._roomy, [known], frozenset(names[len(before) :]))

    def has_room(self, state: int, trail: JSONTrail) -> bool:
        """Test whether a piece with very many possible values can follow, given the written names."""
        frame, mode = trail.frame, trail.mode
        if mode in (WORD, TEXT_ESCAPE, NAME_ESCAPE) or (mode == TEXT and frame.kind is ARRAY):
            return False
        if frame.kind is OBJECT and frame.name is None and not frame.duplicates:
            name = self.some_name(state, mode, trail.text)
            if name is not None and (frame.written is None or name not in frame.written):
                return True
        names = self.room(state, mode, frame.kind, trail.text)
        if names is None:
            return False
        return frame.kind is ARRAY or frame.written is None or not any(name in frame.written for name in names)


def _place_of(state: int, mode: int, kind: Kind, text: Text | None) -> _Place:
    """Return the place of a state; only the beginning of a name matters, not of other strings."""
    return state, mode, kind, joined(text) if mode == NAME_TEXT else None


def _last_first(way: tuple[int, int]) -> int:
    """Sort key of next bytes: quotes, digits and brackets are popped first, as they lead to values."""
    byte = way[0]
    return b'{[0123456789"'.find(byte) if byte not in SPACE else -2


def _outermost(frame: OpenContainer) -> OpenContainer:
    while frame.parent is not None:
        frame = frame.parent
    return frame


def note(known: dict[Any, Any], keys: list[Any], value: Any, most: int = MAX_KNOWN) -> None:
    """Cache a value for some keys; clear the cache at `most` entries."""
    if len(known) >= most:
        known.clear()
    for key in keys:
        known[key] = value
