"""How a text can go on without a value that is there already: whether it can, and in how few bytes.

A state is one of the chart with a trail. It is *settled* where nothing that is in progress can come to such a value:
from there the chart knows all. Other states are searched from, by bytes, nearest to the end first (A*; Hart, Nilsson
and Raphael 1968), up to settled ones. That ends: what is unsettled is the beginning of one of finitely many values.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np

from ...kernels.answers import NEVER
from ..chart.automaton import ChartAutomaton
from ..lift.closing import FAR, Closing
from ..limits import spend
from .trail import ITEM, NAME, NAME_ESCAPE, NAME_TEXT, STRINGS, TEXT, TEXT_ESCAPE, WORD, Frame, Trail, Trails
from .written import ARRAY, NONE

EACH = 3000
"""Steps of work, as `guides.limits` counts them, that a state of a search takes."""


class Ways:
    """Searches from states of one guide; hold the automaton's lock.

    differ: whether the items of the array that begins in a state of the chart must differ
    closing: the distances of the chart's states, as far as it knows
    """

    def __init__(
        self,
        automaton: ChartAutomaton,
        trails: Trails,
        differ: Callable[[int], bool],
        closing: Closing,
    ) -> None:
        self._automaton = automaton
        self._trails = trails
        self._differ = differ
        self._closing = closing
        self._costs: dict[tuple[int, Trail], int] = {}
        self._alive: dict[tuple[int, Trail], bool] = {}
        self._clean: dict[tuple[int, Trail], bool] = {}
        self._endless: dict[tuple[int, bool], bool] = {}
        # States of the chart from which a string may be any of infinitely many, with what comes next in them
        self._roomy: set[tuple[int, int]] = set()

    def is_settled(self, trail: Trail) -> bool:
        """Whether nothing in progress can come to a value that is there already."""
        frame, mode, _ = trail
        if self._has_rivals(frame) and not (self._is_other(trail) and not self._has_rivals(frame.parent)):
            return False
        written = frame.written
        if written is None or not written.count:
            return True
        if mode == WORD:
            return frame.kind != ARRAY or written.only_strings
        if mode in (NAME_TEXT, NAME_ESCAPE) or (mode in (TEXT, TEXT_ESCAPE) and frame.kind == ARRAY):
            return not written.continues(self._trails.piece(trail))
        return not (mode == NAME or (mode == ITEM and frame.kind == ARRAY))

    def is_alive(self, state: int, trail: Trail) -> bool:
        """Whether the text can be completed."""
        if (state, trail.mode) in self._roomy or self.is_settled(trail):
            return True
        known = self._alive.get((state, trail))
        if known is None:
            if len(self._alive) >= 1 << 16:
                self._alive.clear()
            known = self._alive[state, trail] = self._search(state, trail, any_way=True) < NEVER
        return known

    def cost(self, state: int, trail: Trail) -> int:
        """The bytes that complete the text."""
        if self.is_settled(trail):
            return self.needed(state)
        known = self._costs.get((state, trail))
        if known is None:
            if len(self._costs) >= 1 << 16:
                self._costs.clear()
            known = self._costs[state, trail] = self._search(state, trail, any_way=False)
        return known

    def is_clean(self, state: int, trail: Trail) -> bool:
        """Whether the chart's shortest text repeats nothing, up to where nothing is in progress."""
        known = self._clean.get((state, trail))
        if known is None:
            if len(self._clean) >= 1 << 16:
                self._clean.clear()
            known = self._clean[state, trail] = self._follow_shortest(state, trail)
        return known

    def _follow_shortest(self, state: int, trail: Trail) -> bool:
        if self.needed(state) > FAR:
            return False
        place: Trail | None = trail
        while place is not None and not self.is_settled(place):
            spend(EACH)
            byte, after = self._closing.shortest_step(state)
            place, end = self._trails.read(place, bytes((byte,)), 0, lambda _, state=state: self._differ(state))
            if end < 0:
                return False
            self._automaton.keep(np.array([after], np.int32))
            state = after
        return True

    def needed(self, state: int) -> int:
        """The bytes from a state of the chart to the end, as far as it knows."""
        return self._all_needed([state])[0]

    def _all_needed(self, states: list[int]) -> list[int]:
        ready = [self._automaton.ready(state) for state in states]
        return self._closing.bytes_needed(np.array(ready, np.int32)).tolist()

    def _search(self, state: int, trail: Trail, *, any_way: bool) -> int:
        """The bytes of a shortest way to the end, NEVER if there is none; 0 for `any_way` as soon as there is one."""
        numbers = iter(range(1 << 60))
        # Of equal ones those nearest to the end first
        queue: list[tuple[int, int, int, int, Trail | None]] = [(self.needed(state), 0, next(numbers), state, trail)]
        visits: dict[object, int] = {}
        while queue:
            total, negated, _, place, at = heapq.heappop(queue)
            done = -negated
            if at is None or self.is_settled(at) or (at.frame != trail.frame and self._begins(at)):
                return total
            if any_way and self._is_endless(place, at):
                if at.frame == trail.frame and trail.mode != WORD and at.mode != WORD:
                    self._roomy.add((state, trail.mode))
                return 0
            if any_way and self._parts(place, at):
                return 0
            key, most = self._same(place, at)
            visits[key] = visits.get(key, 0) + 1
            if visits[key] > most:
                continue
            spend(EACH)
            after = self._automaton.transitions(place)
            data = np.flatnonzero(after >= 0)
            states = after[data].tolist()
            for byte, target, left in zip(data.tolist(), states, self._all_needed(states), strict=True):
                found, end = self._trails.read(at, bytes((byte,)), 0, lambda _, place=place: self._differ(place))
                if end < 0 or left >= NEVER:
                    continue
                if at.mode == WORD and found is not None and found.mode == ITEM:
                    # Before the comma the chart has the price of an item that no other is equal to.
                    left = max(left, self.needed(place) - 1)
                heapq.heappush(queue, (done + 1 + left, -done - 1, next(numbers), target, found))
        return NEVER

    def _begins(self, trail: Trail) -> bool:
        """Whether an item or member is to come, and nothing else is in progress: one is left, at the price it has."""
        return trail.mode in (ITEM, NAME) and not self._has_rivals(trail.frame)

    def _is_other(self, trail: Trail) -> bool:
        """Whether the string in progress begins as that of no rival of its container does."""
        frame = trail.frame
        if trail.mode not in (TEXT, TEXT_ESCAPE) or frame.rivals is NONE:
            return False
        return not frame.rivals.begin_with(
            frame.length if frame.kind == ARRAY else frame.name, self._trails.piece(trail)
        )

    @staticmethod
    def _has_rivals(frame: Frame | None) -> bool:
        """Whether a container in progress may come to one that is there already."""
        while frame is not None:
            if frame.rivals is not NONE:
                return True
            frame = frame.parent
        return False

    def _same(self, state: int, trail: Trail) -> tuple[object, int]:
        """What states have in common that need not all be looked at, and how many of them must be.

        Zeros may be read in numbers without end. Where another digit may follow them, each of them makes another
        number, and so more such numbers than there are values; else one would do.
        """
        if trail.mode != WORD:
            return (state, trail), 1
        word = self._trails.text_of(trail)
        mantissa, exponent, power = word.lower().partition(b"e")
        whole, point, fraction = mantissa.partition(b".")
        if exponent:
            # No further digit makes another number of the same one's exponent but by its value; of zero there is one.
            sign = power[:1] if power[:1] in (b"+", b"-") else b""
            value = (mantissa, sign, power[len(sign) :].lstrip(b"0")) if mantissa.strip(b"-0.") else ()
            return (state, trail._replace(text=0), value), 1
        key = (state, trail._replace(text=0), whole.rstrip(b"0") if not point else whole, point, fraction.rstrip(b"0"))
        around, most = trail.frame, 2
        while around is not None:
            most += len(around.rivals.keys) + (around.written.count if around.written is not None else 0)
            around = around.parent
        return key, most

    def _is_endless(self, state: int, trail: Trail) -> bool:
        """Whether there are infinitely many values that the piece in progress may come to, as a loop tells."""
        if trail.mode not in STRINGS and trail.mode != WORD:
            return False
        is_word = trail.mode == WORD
        if is_word and not any(
            digit in self._trails.text_of(trail).lower().partition(b"e")[0] for digit in b"123456789"
        ):
            return False
        known = self._endless.get((state, is_word))
        if known is None:
            after = self._automaton.transitions(state)
            loops = after[0x31:0x3A] if is_word else after
            known = self._endless[state, is_word] = bool((loops == state).any())
        return known

    def _parts(self, state: int, trail: Trail) -> bool:
        """Whether the string in progress can go on as none that is there does, and nothing else is in progress."""
        written = trail.frame.written
        if trail.mode not in (TEXT, NAME_TEXT) or written is None or not self._trails.canonical:
            return False
        if self._has_rivals(trail.frame):
            return False
        piece = self._trails.text_of(trail)
        data = np.flatnonzero(self._automaton.transitions(state) >= 0)
        return any(byte != 0x22 and not written.continues(piece + bytes((byte,))) for byte in data.tolist())
