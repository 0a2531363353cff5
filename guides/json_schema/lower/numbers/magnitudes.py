"""Numbers without sign that meet bounds and are multiples: the automaton of their JSON texts.

Digits are read once, and every condition follows them in its own state: bounds and excluded numbers compare
(bounds.py), steps take remainders (multiples.py). After one whole digit that is not zero an exponent may
come; which ones fit depends on how the mantissa compares with the mantissas of the bounds, so it is known
when the `e` is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .....errors import LimitError
from ....limits import spend
from ....syntax import Table
from ...algebra.cases import NO_NUMBERS, Rational
from .bounds import ABOVE, BELOW, bound
from .exponents import Digits, Exponents, digit_edges, is_member
from .multiples import multiple

MAX_DIGIT_STATES = 20_000
EXPONENTS_FROM = 10**21
# Those of floats, but for the greatest, up to which only some mantissas are finite.
LEAST_EXPONENT, GREATEST_EXPONENT = -324, 307

START, WHOLE, POINT, FRACTION = range(4)
ZERO = -1
DECIDED = 0


@dataclass(frozen=True, slots=True)
class Magnitude:
    """Numbers from `low` (at least 0) to `high`, as in cases.Number but without sign and without values."""

    low: Rational = 0
    low_open: bool = False
    high: Rational | None = None
    high_open: bool = False
    step: Rational | None = None
    not_steps: frozenset[Rational] = NO_NUMBERS
    excluded: frozenset[Rational] = NO_NUMBERS
    notation: str | None = None


class Reading(NamedTuple):
    """A state between digits.

    whole: how many whole digits were read, up to where more make no difference; ZERO: all digits were zero;
        DECIDED: it makes no difference any more
    compared: the state of each bound; left: the state of each step
    """

    phase: int
    whole: int
    compared: tuple[int, ...]
    left: tuple[int, ...]


State = Reading | Exponents | Digits
Edge = tuple[int, int, State]


class MagnitudeAutomaton:
    """Reads the texts of a `Magnitude`."""

    def __init__(self, magnitude: Magnitude) -> None:
        self._magnitude = magnitude
        self._has_low = magnitude.low > 0
        self._with_zero = not self._has_low and not magnitude.low_open
        limits = [magnitude.low] if self._has_low else []
        if magnitude.high is not None:
            limits.append(magnitude.high)
        self._high = len(limits) - 1 if magnitude.high is not None else None
        self._outside = range(len(limits), len(limits) + len(magnitude.excluded))
        self._bounds = [bound(value) for value in (*limits, *magnitude.excluded)]
        self._most = max(2, 1 + max((limit.whole for limit in self._bounds), default=1))
        steps = () if magnitude.step is None else (magnitude.step,)
        self._required = len(steps)
        self._multiples = [multiple(step) for step in (*steps, *magnitude.not_steps)]
        self._least = self._multiples[0].least_exponent if steps else None
        self._exponents = not magnitude.not_steps and magnitude.notation != "integer"
        if steps:
            reach = magnitude.high is None or magnitude.high >= EXPONENTS_FROM
            self._exponents = self._exponents and reach and self._least is not None

    def start(self) -> Reading:
        """The state before the first digit."""
        return Reading(START, DECIDED, (0,) * len(self._bounds), (0,) * len(self._multiples))

    def edges(self, state: State) -> list[Edge]:
        """What may follow: first and last byte, and the state after them."""
        if isinstance(state, Reading):
            return self._reading_edges(state)
        if isinstance(state, Digits):
            return [(0x30 + first, 0x30 + last, after) for first, last, after in digit_edges(state)]
        natural = Digits(state.natural())
        edges: list[Edge] = [(0x2B, 0x2B, natural), (0x2D, 0x2D, Digits(state.mirrored().natural()))]
        return edges + self.edges(natural)

    def is_accepting(self, state: State) -> bool:
        """Whether the text read so far is a number of the set."""
        if isinstance(state, Exponents):
            return False
        if isinstance(state, Digits):
            return is_member(state)
        return self._is_complete(state) and self._is_written(state)

    def _is_written(self, state: Reading) -> bool:
        return state.phase == FRACTION if self._magnitude.notation == "real" else True

    def _is_complete(self, state: Reading) -> bool:
        """Whether the value read so far is in the set."""
        if state.phase not in (WHOLE, FRACTION) or (state.whole == ZERO and not self._with_zero):
            return False
        for index, after in enumerate(state.left):
            reader = self._multiples[index]
            before_point = state.phase == WHOLE
            hit = reader.is_whole_multiple(after) if before_point else reader.is_fraction_multiple(after)
            if hit != (index < self._required):
                return False
        return self._fits([self._relation(index, state) for index in range(len(self._bounds))])

    def _fits(self, relations: list[int]) -> bool:
        magnitude = self._magnitude
        if self._has_low and (relations[0] < 0 or (relations[0] == 0 and magnitude.low_open)):
            return False
        if self._high is not None:
            relation = relations[self._high]
            if relation > 0 or (relation == 0 and magnitude.high_open):
                return False
        return all(relations[index] for index in self._outside)

    def _relation(self, index: int, state: Reading) -> int:
        """-1, 0 or 1 as the value read so far is below, equal to or above a bound."""
        limit = self._bounds[index]
        if state.whole > 0 and state.whole != limit.whole:
            return -1 if state.whole < limit.whole else 1
        return limit.compare(state.compared[index])

    def _reading_edges(self, state: Reading) -> list[Edge]:
        phase = state.phase
        if phase == START:
            zero = Reading(WHOLE, ZERO, tuple([BELOW if limit.whole else 0 for limit in self._bounds]), state.left)
            leading = Reading(START, DECIDED, tuple([limit.first for limit in self._bounds]), state.left)
            return [(0x30, 0x30, zero), *self._digits(leading, 1)]
        edges: list[Edge] = []
        if phase == WHOLE and self._magnitude.notation != "integer":
            after = self._after_point(state)
            if after is not None:
                edges.append((0x2E, 0x2E, after))
        if phase != WHOLE or state.whole != ZERO:
            edges += self._digits(state, 0)
        if phase != POINT and self._exponents:
            exponents = self._fitting_exponents(state)
            if exponents is not None:
                edges += [(0x45, 0x45, exponents), (0x65, 0x65, exponents)]
        return edges

    def _digits(self, state: Reading, least: int) -> list[Edge]:
        """The edges of digits from `least` up, those that lead to the same state together."""
        starts = {least}
        for limit, position in zip(self._bounds, state.compared, strict=True):
            if position >= 0:
                starts.update(limit.breaks[position])
        whole = state.phase <= WHOLE
        for reader, after in zip(self._multiples, state.left, strict=True):
            starts.update(reader.whole_breaks() if whole else reader.fraction_breaks(after))
        if not whole and (state.whole == ZERO or (state.whole > 0 and self._required)):
            starts.add(1)
        edges: list[Edge] = []
        last = 9
        for first in sorted(starts, reverse=True):
            after = self._after_whole(state, first) if whole else self._after_fraction(state, first)
            if after is not None:
                edges.append((0x30 + first, 0x30 + last, after))
            last = first - 1
        return edges

    def _compared(self, state: Reading, digit: int) -> list[int]:
        return [limit.step(at, digit) for limit, at in zip(self._bounds, state.compared, strict=True)]

    def _after_whole(self, state: Reading, digit: int) -> Reading | None:
        count = min(state.whole + 1, self._most)
        compared = self._compared(state, digit)
        if count > 1:
            for index, limit in enumerate(self._bounds):
                if count > limit.whole:
                    compared[index] = ABOVE
            if self._high is not None and compared[self._high] == ABOVE and count >= self._bounds[self._high].whole:
                return None
        left = state.left
        if left:
            left = tuple([reader.whole_digit(at, digit) for reader, at in zip(self._multiples, left, strict=True)])
        return Reading(WHOLE, count, tuple(compared), left)

    def _after_point(self, state: Reading) -> Reading | None:
        left = tuple([reader.point(at) for reader, at in zip(self._multiples, state.left, strict=True)])
        if self._required and left[0] < 0:
            return None
        if state.whole == ZERO or (state.whole == 1 and self._exponents):
            return Reading(POINT, state.whole, state.compared, left)
        return self._decided(POINT, state.whole, list(state.compared), left)

    def _decided(self, phase: int, whole: int, compared: list[int], left: tuple[int, ...]) -> Reading | None:
        """A state without the number of whole digits; None if no fraction brings it into the bounds."""
        if whole > 0:
            for index, limit in enumerate(self._bounds):
                if whole != limit.whole:
                    compared[index] = BELOW if whole < limit.whole else ABOVE
        if self._has_low and compared[0] == BELOW:
            return None
        if self._high is not None and compared[self._high] == ABOVE:
            return None
        return Reading(phase, DECIDED, tuple(compared), left)

    def _after_fraction(self, state: Reading, digit: int) -> Reading | None:
        compared = self._compared(state, digit)
        left = state.left
        if left:
            left = tuple([reader.fraction_digit(at, digit) for reader, at in zip(self._multiples, left, strict=True)])
            if self._required and left[0] < 0:
                return None
        whole = state.whole
        if whole == DECIDED or (digit and (whole == ZERO or self._required)):
            return self._decided(FRACTION, whole, compared, left)
        return Reading(FRACTION, whole, tuple(compared), left)

    def _fitting_exponents(self, state: Reading) -> Exponents | None:
        """The exponents that may follow a mantissa; None if none may."""
        if state.whole == ZERO:
            return Exponents(LEAST_EXPONENT, GREATEST_EXPONENT) if self._with_zero else None
        if state.whole != 1:
            return None
        magnitude = self._magnitude
        relations = [limit.compare(at) for limit, at in zip(self._bounds, state.compared, strict=True)]
        low, high = LEAST_EXPONENT if self._least is None else self._least, GREATEST_EXPONENT
        if self._has_low:
            reached = relations[0] > 0 or (relations[0] == 0 and not magnitude.low_open)
            least = self._bounds[0].exponent + (not reached)
            low = max(low, least)
        if self._high is not None:
            fits = relations[self._high] < 0 or (relations[self._high] == 0 and not magnitude.high_open)
            high = min(high, self._bounds[self._high].exponent - (not fits))
        holes = tuple(sorted(self._bounds[index].exponent for index in self._outside if relations[index] == 0))
        return None if low > high else Exponents(low, high, holes)


def magnitude_table(magnitude: Magnitude) -> Table | None:
    """The automaton of a set as a table; None if nothing is in the set.

    Raises LimitError if it has more than MAX_DIGIT_STATES states.
    """
    automaton = MagnitudeAutomaton(magnitude)
    states: list[State] = [automaton.start()]
    numbers: dict[State, int] = {states[0]: 0}
    found: list[tuple[int, int, int, int]] = []
    for source, state in enumerate(states):
        spend(2000)
        for first, last, after in automaton.edges(state):
            spend(300)
            target = numbers.get(after)
            if target is None:
                target = numbers[after] = len(states)
                states.append(after)
            found.append((source, first, last, target))
        if len(states) > MAX_DIGIT_STATES:
            raise _too_many(magnitude)
    return _trimmed(found, [automaton.is_accepting(state) for state in states])


def _trimmed(edges: list[tuple[int, int, int, int]], accepting: list[bool]) -> Table | None:
    """The table of the states that reach an accepting one."""
    before: list[list[int]] = [[] for _ in accepting]
    for source, _, _, target in edges:
        before[target].append(source)
    pending = [state for state, is_final in enumerate(accepting) if is_final]
    alive = set(pending)
    while pending:
        for source in before[pending.pop()]:
            if source not in alive:
                alive.add(source)
                pending.append(source)
    if 0 not in alive:
        return None
    kept = sorted(alive)
    numbers = {old: new for new, old in enumerate(kept)}
    table = np.full((len(kept), 256), -1, np.int32)
    for source, first, last, target in edges:
        if target in alive:
            table[numbers[source], first : last + 1] = numbers[target]
    return Table(table, np.array([accepting[state] for state in kept], np.bool_))


def _too_many(magnitude: Magnitude) -> LimitError:
    steps = [*(() if magnitude.step is None else (magnitude.step,)), *sorted(magnitude.not_steps)]
    reason = f"multipleOf {', '.join(map(str, steps))}" if steps else "the bounds on a number"
    return LimitError(f"{reason} needs an automaton of more than {MAX_DIGIT_STATES:,} states; simplify the schema")
