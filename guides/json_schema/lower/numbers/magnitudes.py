"""Numbers without sign that meet bounds and are multiples: the automaton of their JSON texts.

Digits are read once, and every condition follows them in its own state (digit_rows.py): bounds and excluded numbers
compare (bounds.py), steps take remainders (multiples.py). Which of these are met together is found by a kernel. After
one whole digit that is not zero an exponent may come; which ones fit depends on the mantissa and on how it compares
with those of the bounds, so it is known when the `e` is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from .....errors import LimitError
from .....kernels.answers import FULL, NEVER
from .....kernels.jit.calling import call
from .....kernels.numbers import (
    BEFORE_POINT,
    DIGITS,
    FRACTION,
    NO_MANTISSA,
    NOT_ZERO,
    PARTS,
    PHASE,
    PLACES,
    POINT,
    SYMBOLS,
    TAIL,
    WHOLE,
    ZERO,
    ZERO_AGAIN,
    NumberConditions,
    explore_numbers,
)
from ....automata.numbers import Numbers
from ....limits import spend
from ....syntax import Table
from ...algebra.cases import NO_NUMBERS, Rational
from .bounds import bound
from .digit_rows import DigitRows
from .exponents import GREATEST_EXPONENT, LEAST_EXPONENT, Exponents, digits_of
from .multiples import multiple
from .products import BYTES, trimmed

MAX_DIGIT_STATES = 20_000
EXPONENTS_FROM = 10**16
"""From where on json.dumps writes a float with an exponent; multiples that are all smaller take none."""
MOST_WRITTEN_OUT = 4
"""Up to how many places after the point it writes none below 1."""
GREATEST = bound(17976931348623157)
"""The digits of the greatest float."""
MOST_PLACES = 16
"""How many digits behind the point json.dumps writes before an exponent."""
MOST_REMAINDERS = 128
"""Up to how many remainders a fraction is followed; beyond, exponents follow whole digits only."""

Signs = tuple[Exponents, Exponents]
"""Which exponents may stand behind a plus or no sign, and which behind a minus."""

_PLUS, _MINUS, _POINT, _FIRST_DIGIT, _E = (BYTES.tolist().index(ord(symbol)) for symbol in "+-.0E")
_DIGIT_BYTES = slice(_FIRST_DIGIT, _FIRST_DIGIT + DIGITS)


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


def magnitude_table(magnitude: Magnitude) -> Table | None:
    """The automaton of a set as a table; None if nothing is in the set.

    Raises LimitError if it has more than MAX_DIGIT_STATES states.
    """
    texts = _Texts(magnitude)
    return texts.table(*texts.explored())


class _Texts:
    """The texts of a `Magnitude`, and the states in which they are read: see kernels/numbers.py for their columns."""

    def __init__(self, magnitude: Magnitude) -> None:
        self._magnitude = magnitude
        has_low = magnitude.low > 0
        self._with_zero = not has_low and not magnitude.low_open
        limits = [magnitude.low] if has_low else []
        if magnitude.high is not None:
            limits.append(magnitude.high)
        self._low = 0 if has_low else -1
        self._high = len(limits) - 1 if magnitude.high is not None else -1
        self._outside = range(len(limits), len(limits) + len(magnitude.excluded))
        self._bounds = [bound(value) for value in (*limits, *magnitude.excluded)]
        steps = () if magnitude.step is None else (magnitude.step,)
        self._required = len(steps)
        self._multiples = [multiple(step) for step in (*steps, *magnitude.not_steps)]
        self._exponents = magnitude.notation != "integer"
        if steps:
            large = magnitude.high is None or magnitude.high >= EXPONENTS_FROM
            self._exponents = self._exponents and (large or self._multiples[0].places > MOST_WRITTEN_OUT)
        self._rows = DigitRows(DIGITS * MAX_DIGIT_STATES, partial(_too_many, magnitude))

    def explored(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """All states, int32 [states, columns], and where digits and the point lead, int32 [states, SYMBOLS]."""
        rows, bounds, multiples = self._rows, self._bounds, self._multiples
        has_point = self._magnitude.notation != "integer"
        most_digits = max(1, bounds[self._high].whole) if self._high >= 0 else None
        parts = [rows.add_bound(limit) for limit in bounds]
        leading = [row + limit.first for row, limit in zip(parts, bounds, strict=True)]
        parts += [rows.add_multiple(reader, most_digits, has_point) for reader in multiples]
        most_places = self._most_places()
        if self._exponents:
            parts.append(rows.add_bound(GREATEST))
            parts += [rows.add_remainders(multiple(reader.modulus), 1 + most_places) for reader in multiples]
        conditions = NumberConditions(
            *rows.tables(),
            np.array(leading, np.int32),
            np.array([limit.whole for limit in bounds], np.int32),
            len(multiples),
            self._low,
            self._high,
            self._required,
            max(2, 1 + max((limit.whole for limit in bounds), default=1)),
            most_places,
            int(has_point),
            int(self._exponents),
        )
        room = MAX_DIGIT_STATES + SYMBOLS
        states = np.empty((room, PARTS + len(parts)), np.int32)
        edges = np.empty((room, SYMBOLS), np.int32)
        index = np.full(1 << (2 * room).bit_length(), -1, np.int32)
        states[0, :PARTS] = 0, 0, NO_MANTISSA, 0
        states[0, PARTS:] = parts
        count = call(explore_numbers, conditions, states, edges, index)
        if count == FULL:
            raise _too_many(self._magnitude)
        spend(500 * count)
        return states[:count], edges[:count]

    def table(self, states: NDArray[np.int32], edges: NDArray[np.int32]) -> Table | None:
        """The table of all states with those of the exponents, as far as they lead to a number."""
        rows = [edges[:, :DIGITS]]
        accepting = [self._accepting(states)]
        before, exponents = self._fitting_exponents(states)
        count = len(states) + len(exponents)
        first: dict[Exponents, int] = {}
        for members in dict.fromkeys(each for signs in exponents for each in signs):
            first[members] = count
            digits, ends = digits_of(members)
            rows.append(np.where(digits < 0, -1, digits + count))
            accepting.append(ends)
            count += len(digits)
        if count > MAX_DIGIT_STATES:
            raise _too_many(self._magnitude)
        table = np.full((count, len(BYTES)), -1, np.int32)
        table[: len(states), _DIGIT_BYTES] = rows[0]
        table[: len(states), _POINT] = edges[:, DIGITS]
        table[: len(states), _E:] = before[:, None]
        if exponents:
            signed = table[len(states) : len(states) + len(exponents)]
            signed[:, [_PLUS, _MINUS]] = [(first[natural], first[mirrored]) for natural, mirrored in exponents]
            table[len(states) + len(exponents) :, _DIGIT_BYTES] = np.concatenate(rows[1:])
            signed[:, _DIGIT_BYTES] = table[signed[:, _PLUS], _DIGIT_BYTES]
        accepting.insert(1, np.zeros(len(exponents), np.bool_))
        return trimmed(table, np.concatenate(accepting))

    def _most_places(self) -> int:
        """How many digits behind the point a mantissa may have where there are multiples."""
        remainders = 1
        for reader in self._multiples:
            modulus = reader.modulus
            while modulus % 10 == 0:
                modulus //= 10
            remainders *= modulus
        return MOST_PLACES if remainders <= MOST_REMAINDERS else 0

    def _accepting(self, states: NDArray[np.int32]) -> NDArray[np.bool_]:
        """In which states the text so far is a number of the set."""
        phase, whole = states[:, PHASE], states[:, WHOLE]
        accepting = phase == FRACTION
        if self._magnitude.notation != "real":
            accepting |= phase == BEFORE_POINT
        if not self._with_zero:
            accepting &= whole != ZERO
        is_multiple = np.array(self._rows.is_multiple)
        for index in range(len(self._multiples)):
            hit = is_multiple[states[:, PARTS + len(self._bounds) + index]]
            accepting &= hit if index < self._required else ~hit
        relations = self._relations(states)
        for relation, limit in zip(relations, self._bounds, strict=True):
            other = (whole > 0) & (whole != limit.whole)
            relation[other] = np.where(whole[other] < limit.whole, -1, 1)
        if self._low >= 0:
            accepting &= self._reaches_low(relations)
        if self._high >= 0:
            accepting &= self._keeps_high(relations)
        for index in self._outside:
            accepting &= relations[index] != 0
        return accepting

    def _relations(self, states: NDArray[np.int32]) -> list[NDArray[np.int64]]:
        """How the digits read so far, followed by zeros, compare with those of each bound."""
        relation = np.array(self._rows.relation)
        return [relation[states[:, PARTS + index]] for index in range(len(self._bounds))]

    def _reaches_low(self, relations: list[NDArray[np.int64]]) -> NDArray[np.bool_]:
        return relations[self._low] >= (1 if self._magnitude.low_open else 0)

    def _keeps_high(self, relations: list[NDArray[np.int64]]) -> NDArray[np.bool_]:
        return relations[self._high] <= (-1 if self._magnitude.high_open else 0)

    def _fitting_exponents(self, states: NDArray[np.int32]) -> tuple[NDArray[np.int64], list[Signs]]:
        """The exponents that may follow: for each state where its `e` leads, or -1, and what to, from the next on."""
        leads = np.full(len(states), -1)
        kinds: Numbers[tuple[int, ...]] = Numbers()
        zeros = (states[:, WHOLE] == ZERO) & (states[:, PHASE] != POINT)
        if self._exponents and self._with_zero and zeros.any():
            none_equal = (0,) * len(self._outside)
            leads[zeros] = kinds[LEAST_EXPONENT, GREATEST_EXPONENT - 1, *none_equal] + len(states)
        ends = (states[:, TAIL] != NO_MANTISSA) & (states[:, TAIL] != ZERO_AGAIN) & (states[:, PHASE] != POINT)
        places = np.flatnonzero(ends)
        if len(places):
            low, high, relations = self._range_of_exponents(states[places])
            equal = [relations[index] == 0 for index in self._outside]
            fits = low <= high
            keys = np.stack([low, high, *equal], axis=1)[fits].tolist()
            leads[places[fits]] = [kinds[tuple(key)] + len(states) for key in keys]
        return leads, [self._exponents_of(*kind) for kind in kinds.states]

    def _exponents_of(self, low: int, high: int, *equal: int) -> Signs:
        holes = {self._bounds[index].exponent for index, is_equal in zip(self._outside, equal, strict=True) if is_equal}
        found = Exponents(low, high, tuple(holes))
        return found.natural(), found.mirrored().natural()

    def _range_of_exponents(
        self, states: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], list[NDArray[np.int64]]]:
        """The least and the greatest exponent that may follow mantissas, and how their digits compare with bounds."""
        rows, column = self._rows, PARTS + len(self._bounds) + len(self._multiples)
        low = np.full(len(states), LEAST_EXPONENT)
        high = GREATEST_EXPONENT - (np.array(rows.relation)[states[:, column]] > 0)
        digits = np.where(states[:, TAIL] == NOT_ZERO, states[:, PLACES], 0)
        zeros_of = np.array(rows.zeros)
        for index, reader in enumerate(self._multiples):
            zeros = zeros_of[states[:, column + 1 + index]]
            least = zeros - reader.places + digits
            if index < self._required:
                low = np.maximum(low, least)
            else:
                high = np.where(zeros == NEVER, high, np.minimum(high, least - 1))
        relations = self._relations(states)
        if self._low >= 0:
            low = np.maximum(low, self._bounds[self._low].exponent + ~self._reaches_low(relations))
        if self._high >= 0:
            high = np.minimum(high, self._bounds[self._high].exponent - ~self._keeps_high(relations))
        return low, high, relations


def _too_many(magnitude: Magnitude) -> LimitError:
    steps = [*(() if magnitude.step is None else (magnitude.step,)), *sorted(magnitude.not_steps)]
    reason = f"multipleOf {', '.join(map(str, steps))}" if steps else "the bounds on a number"
    return LimitError(f"{reason} needs an automaton of more than {MAX_DIGIT_STATES:,} states; simplify the schema")
