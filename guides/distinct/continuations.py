"""Completions of texts that repeat no value: whether one exists, and the fewest bytes it takes.

A place is a state of the chart with a trail. It is *settled* if nothing in progress can equal a written value; from
there the chart's answers hold. At other places a completion exists if a piece can become more values than there are to
avoid. Otherwise a search over bytes looks for a settled place (A*; Hart, Nilsson and Raphael 1968). It terminates: a
piece that is not settled is the beginning of one of finitely many values.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels.answers import DEAD, NEVER
from ...kernels.chart.compaction import TokenBytes, follow, follow_each
from ..chart.automaton import ChartAutomaton
from ..lift.closing import FAR, Closing
from ..limits import spend
from .cardinality import EACH, MAX_KNOWN, CardinalityBounds, note
from .frames import (
    AFTER,
    FIRST,
    ITEM,
    NAME,
    NAME_TEXT,
    PARTIAL,
    STRINGS,
    TEXT,
    WORD,
    JSONTrail,
    OpenContainer,
    Text,
    joined,
)
from .trail import SPACE, Beginnings, JSONTrails
from .values import ARRAY, WrittenValues

At = tuple[int, JSONTrail | None]
"""A state of the chart and its trail; None where nothing is remembered."""
EACH_FOLLOWED = 50


class ChartSteps:
    """Token transitions between the states of one guide's chart; hold the automaton's lock.

    prepare: makes a state ready for kernels; outside: bool [tokens], those with a byte that no text has
    """

    def __init__(
        self, automaton: ChartAutomaton, tokens: TokenBytes, prepare: Callable[[int], int], outside: NDArray[np.bool_]
    ) -> None:
        self._automaton = automaton
        self._tokens = tokens
        self._prepare = prepare
        self._outside = outside
        self._known: dict[int, int] = {}

    def after(self, state: int, token: int) -> int:
        """Return the state after a token, or DEAD."""
        key = state << 32 | token
        known = self._known.get(key)
        if known is None:
            is_outside = self._outside.item(token)
            known = DEAD if is_outside else self._automaton.run(follow, self._tokens, self._prepare(state), token)
            note(self._known, [key], known)
        return known

    def after_at_once(self, state: int, token: int) -> int:
        """Return `after` by one kernel call; a code of `kernels.answers` if that does not suffice."""
        return DEAD if self._outside.item(token) else self._automaton.attempt(follow, self._tokens, state, token)

    def after_each(self, state: int, tokens: Sequence[int] | NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the states after several tokens: int32 [len(tokens)]."""
        spend(EACH_FOLLOWED * len(tokens))
        after = np.full(len(tokens), NEVER, np.int32)
        ids = np.asarray(tokens, np.int32)
        self._automaton.run(follow_each, self._tokens, self._prepare(state), ids, after)
        after[self._outside[ids]] = DEAD
        return after


class Continuations:
    """Searches from the states of one guide; hold the automaton's lock.

    items: where items of arrays of unique items begin
    closing: distances of the chart's states
    """

    def __init__(self, automaton: ChartAutomaton, trails: JSONTrails, items: Beginnings, closing: Closing) -> None:
        self.automaton = automaton
        self.trails = trails
        self._closing = closing
        self.bounds = CardinalityBounds(automaton, trails, items)
        self._serials: dict[Any, int] = {}
        self._counter = count(1)
        self._costs: dict[Any, int] = {}
        self._alive: dict[Any, bool] = {}
        # By place without its written values: those with which it had no completion, and a settled place after it
        self._earlier: dict[Any, tuple[WrittenValues | None, tuple[int, int, Text | None] | None]] = {}
        self._clean: dict[Any, bool] = {}

    def is_settled(self, trail: JSONTrail) -> bool:
        """Test whether nothing in progress can equal a written value."""
        mode, frame = trail.mode, trail.frame
        if mode in PARTIAL:
            return self.trails.is_free(trail)
        if frame.duplicates:
            return False
        if mode == NAME or (mode in (ITEM, FIRST) and frame.kind is ARRAY):
            return frame.written is None or not frame.written.count
        return True

    def is_alive(self, state: int, trail: JSONTrail) -> bool:
        """Test whether the text can be completed."""
        if self._is_decided(state, trail):
            return True
        key = self._key(state, trail)
        known = self._alive.get(key)
        return self._searched(state, trail) if known is None else known

    def _searched(self, state: int, trail: JSONTrail) -> bool:
        """Return the answer of `_search`; search only if what was found with fewer written values does not tell.

        Where a piece is in progress, or comes next, in a container without duplicates, only what may follow in the
        chart and the written values matter. So a text that leads to a settled place does so until a value is written
        that matters there, and a place without completion has none with more values.
        """
        frame, written = trail.frame, trail.frame.targets.written
        if written is None or frame.duplicates or trail.mode not in (ITEM, NAME, *PARTIAL):
            return self._search(state, trail) is not None
        key = (state, trail.mode, joined(trail.text), frame.kind)
        dead, way = self._earlier.get(key, (None, None))
        if way is not None and self._is_decided(way[0], JSONTrail(frame, way[1], way[2])):
            return True
        if dead is not None and dead.is_within(written):
            return False
        found = self._search(state, trail)
        if found is None:
            dead = written
        elif found[1] is not None and found[1].frame is frame:
            way = found[0], found[1].mode, found[1].text
        note(self._earlier, [key], (dead, way))
        return found is not None

    def _is_decided(self, state: int, trail: JSONTrail) -> bool:
        """Test whether the text can surely be completed, without a search."""
        return (
            self.is_settled(trail)
            or self.bounds.is_varied(state, trail)
            or self.bounds.ends_well(state, trail)
            or self.bounds.has_room(state, trail)
        )

    def cost(self, state: int, trail: JSONTrail) -> int:
        """Return the fewest bytes that complete the text."""
        if self.is_settled(trail):
            return self.needed(state)
        known = self._costs.get(self._key(state, trail))
        return self._search_shortest(state, trail) if known is None else known

    def is_clean(self, state: int, trail: JSONTrail) -> bool:
        """Test whether the chart's shortest completion repeats nothing up to a settled place."""
        key = self._key(state, trail)
        known = self._clean.get(key)
        if known is None:
            known = self._follow_shortest(state, trail)
            note(self._clean, [key], known)
        return known

    def _follow_shortest(self, state: int, trail: JSONTrail) -> bool:
        if self.needed(state) > FAR:
            return False
        place: JSONTrail | None = trail
        while place is not None and not self.is_settled(place):
            spend(EACH)
            byte, after = self._closing.shortest_step(state)
            place, behind = self.bounds.read(state, place, byte, after)
            if behind != after and (behind == DEAD or self.needed(behind) > self.needed(after)):
                return False
            after = behind
            self.automaton.keep(np.array([after], np.int32))
            state = after
        return True

    def needed(self, state: int) -> int:
        """Return the chart's distance from a state to the end, in bytes."""
        return self._all_needed([state])[0]

    def _all_needed(self, states: list[int]) -> list[int]:
        ready = [self.automaton.ready(state) for state in states]
        return self._closing.bytes_needed(np.array(ready, np.int32)).tolist()

    # Searches

    def _key(self, state: int, trail: JSONTrail) -> Any:
        """Return a key that places share if they have equal continuations."""
        return state, trail.mode, self._serial(trail.frame), joined(trail.text)

    def _serial(self, frame: OpenContainer) -> int:
        """Return a number that frames share if they have equal continuations."""
        todo: list[OpenContainer] = []
        at: OpenContainer | None = frame
        while at is not None and not at.serial:
            todo.append(at)
            at = at.parent
        for each in reversed(todo):
            around = 0 if each.parent is None else each.parent.serial
            duplicates = each.duplicates
            spend(50 + len(duplicates))
            written = -1 if each.written is None else each.written.serial
            key = (around, each.kind, each.is_open, written, duplicates, each.length if duplicates else 0, each.name)
            known = self._serials.get(key)
            if known is None:
                if len(self._serials) >= MAX_KNOWN:
                    self._serials.clear()
                known = self._serials[key] = next(self._counter)
            each.serial = known
        return frame.serial

    def _search(self, state: int, trail: JSONTrail) -> At | None:
        """Return a place on the way to a completion from which one surely exists; None if there is no completion.

        Best-first by the number of values to avoid. The place has no trail where this ends, or where an earlier search
        has found one.
        """
        numbers = count()
        queue: list[tuple[int, int, int, JSONTrail, Any, bool]] = [(0, next(numbers), state, trail, None, False)]
        visits: dict[Any, int] = {}
        looked: list[Any] = []
        while queue:
            _, _, place, at, way, is_spaced = heapq.heappop(queue)
            visit_key, most = self._visit_key(place, at)
            if visits.get(visit_key, 0) >= most:
                continue
            visits[visit_key] = visits.get(visit_key, 0) + 1
            key = self._key(place, at)
            known = self._alive.get(key)
            if known is False:
                continue
            way = (way, key)
            looked.append(key)
            if known:
                note(self._alive, _keys(way), True)
                return place, None
            is_outside = at.mode not in STRINGS
            data, states = self.bounds.after(place)
            # Where white space may end, more of it changes nothing.
            is_enough = is_outside and is_spaced and any(byte not in SPACE for byte in data)
            for byte, target in zip(data, states, strict=True):
                if is_enough and byte in SPACE:
                    continue
                found, target = self.bounds.read(place, at, byte, target)
                if target == DEAD:
                    continue
                if found is None or self._is_decided(target, found):
                    note(self._alive, _keys(way), True)
                    return target, found
                spend(100)
                is_space = is_outside and byte in SPACE
                heapq.heappush(queue, (_stakes(found), next(numbers), target, found, way, is_space))
        note(self._alive, looked, False)
        return None

    def _search_shortest(self, state: int, trail: JSONTrail) -> int:
        """Return the bytes of a shortest completion; NEVER if there is none."""
        numbers = count()
        # Among equal totals, the longest prefix first
        queue: list[tuple[int, int, int, int, JSONTrail | None, Any]]
        queue = [(self.needed(state), 0, next(numbers), state, trail, None)]
        visits: dict[Any, int] = {}
        while queue:
            total, negated, _, place, at, way = heapq.heappop(queue)
            done = -negated
            if at is None or self.is_settled(at):
                for passed, key in enumerate(_keys(way)):
                    note(self._costs, [key], total - passed)
                return total
            key, most = self._visit_key(place, at)
            if visits.get(key, 0) >= most:
                continue
            visits[key] = visits.get(key, 0) + 1
            way = (way, self._key(place, at))
            data, states = self.bounds.after(place)
            for byte, after, left in zip(data, states, self._all_needed(states), strict=True):
                found, target = self.bounds.read(place, at, byte, after)
                if target == DEAD or left >= NEVER:
                    continue
                left = left if target == after else self.needed(target)
                spend(100)
                heapq.heappush(queue, (done + 1 + left, -done - 1, next(numbers), target, found, way))
        return NEVER

    def _visit_key(self, state: int, trail: JSONTrail) -> tuple[Any, int]:
        """Return a key of interchangeable places, and how many of them must be visited.

        A number may go on with zeros without end. If the chart stays in one state, the number can become infinitely
        many values (`_is_endless`), or the same ones for any number of zeros. Otherwise visit more of them than there
        are values to avoid, since another digit may follow.
        """
        if trail.mode != WORD:
            return self._key(state, trail), 1
        word = joined(trail.text)
        mantissa, exponent, power = word.lower().partition(b"e")
        integer, point, fraction = mantissa.partition(b".")
        frame = self._serial(trail.frame)
        if exponent:
            # Further digits change only the value of the exponent. Zero is one number, with any exponent.
            sign = power[:1] if power[:1] in (b"+", b"-") else b""
            value = (mantissa, sign, power[len(sign) :].lstrip(b"0")) if mantissa.strip(b"-0.") else ()
            return (state, frame, value), 1
        key = (state, frame, integer.rstrip(b"0") if not point else integer, point, fraction.rstrip(b"0"))
        return key, 1 if self.bounds.loops_on_zeros(state) else 2 + trail.frame.targets.count


def _stakes(trail: JSONTrail) -> int:
    """Estimate how many values are still to avoid."""
    if trail.mode == AFTER:
        return len(trail.frame.duplicates)
    if trail.mode in (TEXT, NAME_TEXT):
        return sum(1 for _ in trail.frame.targets.beginning(joined(trail.text)))
    return trail.frame.targets.count


def _keys(way: Any) -> list[Any]:
    """Return the keys along a path, first to last."""
    found: list[Any] = []
    while way is not None:
        way, key = way
        found.append(key)
    return found[::-1]
