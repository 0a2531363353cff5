"""Bounds on how many values what is in progress may come to: where they are more than there are to be avoided, no
search is needed for a way on.
"""

from __future__ import annotations

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
from .values import ARRAY, OBJECT, Kind, word_of

EACH, EACH_BYTE = 1500, 150
"""Steps of work, as `guides.limits` counts them, that a state takes to look at, and each byte that may follow."""
MANY = 1 << 40
"""More values than anybody writes."""
MAX_KNOWN = 1 << 16
MAX_ROBUST = 400
MAX_LOOKED = 40
"""Among how many states it is looked for how a word may end, and over how many bytes choices are counted."""
MAX_READS = 2000
"""After how many bytes a piece that may come to very many values is looked for no longer."""
UNNAMED = b"\0"
"""Stands for the name of a member that is not known; no string has it."""
_Place = tuple[int, int, Kind, bytes | None]  # a state, what comes next, in what, and what there is of a name

# Bytes that make a string another one, whatever stands before and behind them
_PLAIN = np.array([byte for byte in range(0x20, 0x100) if byte not in b'"\\'], np.int64)
_DIGITS = np.arange(0x31, 0x3A)
_WORD_BYTES = b"1023456789.-+eE"
_WORD_ENDS = np.array([*b" \t\n\r,]}"], np.int64)


class NextBytes(NamedTuple):
    """The bytes that may come next: a quote; a zero that leads to the same state; other digits."""

    may_end: bool
    loops_on_zeros: bool
    has_digits: bool


class CardinalityBounds:
    """Bounds of the states of one guide's chart; hold the automaton's lock.

    items: where items of arrays begin that must differ
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
        """The trail after a byte, which leads to `after` in the chart, and the state there; DEAD if it must not be."""
        data = bytes((byte,))
        places = self._items.places(state, data)
        found, end = self._trails.read(trail, data, 0, places)
        return found, DEAD if end < 0 else places.last(after)

    def after(self, state: int) -> tuple[list[int], list[int]]:
        """The bytes that may follow a state, and the states after them, which stay."""
        after = self._automaton.transitions(state)
        after[EQUAL_ITEM] = DEAD
        data = np.flatnonzero(after >= 0)
        spend(EACH + EACH_BYTE * len(data))
        return data.tolist(), after[data].tolist()

    def ends_well(self, state: int, trail: JSONTrail) -> bool:
        """Tell whether the string in progress may end here, or the word soon, and is none that is to be avoided."""
        if trail.mode == WORD:
            rest = self.ending(state)
            return rest is not None and word_of(joined(trail.text) + rest) not in trail.frame.targets
        if trail.mode not in (TEXT, NAME_TEXT) or self._trails.is_within_escape(trail):
            return False
        return self._next(state).may_end and self._trails.piece(trail) not in trail.frame.targets

    def may_have(self, state: int, byte: int) -> bool:
        """Tell whether a byte may follow a state of the chart."""
        return bool(self._automaton.transitions(state)[byte] >= 0)

    def ending(self, state: int) -> bytes | None:
        """Some bytes after which a word may end, the fewest; None if none are found among the next few."""
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
        """Tell whether a string may end in a state of the chart; and what may come instead, with the next states.

        A backslash comes with what it escapes, since a quote behind it is no end.
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
        """Tell whether the string or word in progress, in a chart's state, may come to more than anybody writes."""
        return self._values_from(state, trail) >= MANY

    def is_wide(self, state: int) -> bool:
        """Tell whether a word may come to more values than anybody writes, unless it is zero times a power of ten."""
        return self._bound_from(state, is_word=True) >= MANY

    def _bound_from(self, state: int, *, is_word: bool) -> int:
        known = self._bounds.get((state, is_word))
        if known is None:
            known = self._bound_of(state, _DIGITS if is_word else _PLAIN)
            note(self._bounds, [(state, is_word)], known)
        return known

    def is_varied(self, state: int, trail: JSONTrail) -> bool:
        """Tell whether the piece in progress may come to more values than there are to be avoided."""
        found = self._values_from(state, trail)
        return found >= MANY or (found > 0 and found > trail.frame.targets.count)

    def _values_from(self, state: int, trail: JSONTrail) -> int:
        """The number of values that the piece in progress may come to, at least."""
        is_word = trail.mode == WORD
        if is_word:
            mantissa, power, _ = joined(trail.text).lower().partition(b"e")
            if power and not mantissa.strip(b"-0."):
                return 0  # whatever the power of ten of zero is
            if not power and self._is_endless(state, mantissa):
                return MANY
        elif trail.mode not in STRINGS:
            return 0
        known = self._bound_from(state, is_word=is_word)
        if not is_word and known < MANY and self._trails.is_within_escape(trail):
            return 0  # the next bytes may make few characters, each of which is written in several ways
        return known

    def _is_endless(self, state: int, mantissa: bytes) -> bool:
        """Tell whether a number without a power of ten may go on with zeros without end, each making another one."""
        onward = self._next(state)
        return onward.loops_on_zeros and (onward.has_digits or (b"." not in mantissa and bool(mantissa.strip(b"-0"))))

    def loops_on_zeros(self, state: int) -> bool:
        """Tell whether a zero leads from a state of the chart to itself."""
        return self._next(state).loops_on_zeros

    def _next(self, state: int) -> NextBytes:
        known = self._nexts.get(state)
        if known is None:
            after = self._automaton.transitions(state)
            known = NextBytes(bool(after[0x22] >= 0), bool(after[0x30] == state), bool((after[_DIGITS] >= 0).any()))
            note(self._nexts, [state], known)
        return known

    def _bound_of(self, state: int, choices: Any) -> int:
        """The number of texts of some bytes, each another value, that may come next, at least."""
        spend(1000)
        wanted = np.zeros(0x100, np.uint8)
        wanted[choices] = 1
        return self._automaton.run(least_texts, self._automaton.ready(state), wanted, MAX_LOOKED, MANY)

    def is_robust(self, state: int) -> bool:
        """Tell whether a string may go on to very many values after whatever it may have next but its end."""
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
        # All states from which one of these can be come to
        reached = set(wide)
        while wide:
            more = before[wide.pop()] - reached
            reached |= more
            wide += more
        return len(reached) == len(before)

    def some_name(self, state: int, mode: int, text: Text | None) -> bytes | None:
        """Some name that may come next, or that the one in progress may come to; None if none is found at once."""
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
                after = self._automaton.transitions(int(after[0x0A]))  # the end of a line has another byte
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
        """The names that are to be written before a piece that may come to very many values; None if none is found.

        Nothing is completed before that but members of an object, and what is in containers that begin on the way: so
        it does not matter what has been written, but for the names. text: what there is of a name in progress
        """
        key = _place_of(state, mode, kind, text)
        return self._roomy[key] if key in self._roomy else self._look_for_room(key)

    def _look_for_room(self, key: _Place) -> frozenset[bytes] | None:
        """As `room`, which is noted of the places on the way, too; nothing found, of all that were looked at."""
        state, mode, kind, text = key
        name = UNNAMED if kind is OBJECT and mode in (ITEM, COLON, TEXT) else None
        begin = b"" if mode == TEXT else text
        # Places to be looked at, the last one first; the names on the way there, and the places
        start = JSONTrail(OpenContainer(None, kind, self._trails.nothing, 0, name=name), mode, begin)
        todo: list[tuple[int, JSONTrail, bool, tuple[bytes, ...], Any]] = [(state, start, True, (), None)]
        seen, reads = {(state, mode)}, 0
        while todo and reads < MAX_READS:
            place, trail, is_begun, names, way = todo.pop()
            told: frozenset[bytes] | None = None
            if trail.frame.parent is None:
                here = _place_of(place, trail.mode, kind, trail.text)
                told = self._roomy.get(here)
                if told is None and here in self._roomy:
                    continue
                way = (way, here, names)
            if told is not None or (is_begun and self._values_from(place, trail) >= MANY):
                names = (*names, *(told or ()))
                while way is not None:
                    way, known, before = way
                    note(self._roomy, [known], frozenset(names[len(before) :]))
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
                # A string may come to no more values later on.
                todo.append((target, found, found.mode == WORD or found.mode != trail.mode, more, way))
        looked = [key] if todo else [(place, met, kind, None) for place, met in seen if met != NAME_TEXT]
        note(self._roomy, [key, *looked], None)
        return None

    def has_room(self, state: int, trail: JSONTrail) -> bool:
        """Tell whether a piece that may come to very many values is to come, whatever has been written."""
        frame, mode = trail.frame, trail.mode
        if mode in (WORD, TEXT_ESCAPE, NAME_ESCAPE) or (mode == TEXT and frame.kind is ARRAY):
            return False
        if frame.kind is OBJECT and frame.name is None and not frame.rivals:
            name = self.some_name(state, mode, trail.text)
            if name is not None and (frame.written is None or name not in frame.written):
                return True
        names = self.room(state, mode, frame.kind, trail.text)
        if names is None:
            return False
        return frame.kind is ARRAY or frame.written is None or not any(name in frame.written for name in names)


def _place_of(state: int, mode: int, kind: Kind, text: Text | None) -> _Place:
    """The place of a state; what there is of a string matters of names only."""
    return state, mode, kind, joined(text) if mode == NAME_TEXT else None


def _last_first(way: tuple[int, int]) -> int:
    """The order in which bytes are tried that lead to a piece that may come to much: quotes, digits and brackets."""
    byte = way[0]
    return b'{[0123456789"'.find(byte) if byte not in SPACE else -2


def _outermost(frame: OpenContainer) -> OpenContainer:
    while frame.parent is not None:
        frame = frame.parent
    return frame


def note(known: dict[Any, Any], keys: list[Any], value: Any, most: int = MAX_KNOWN) -> None:
    """Note something of some keys, of so many in all."""
    if len(known) >= most:
        known.clear()
    for key in keys:
        known[key] = value
