"""Automaton of numbers without an exponent, with states made on demand.

A state is a class of prefixes that compare alike with all bounds and need the same digits to become a multiple of each
factor; so their continuations are equal. The numbers with a prefix are an interval, in units of the last place that
matters. Arithmetic tells whether it has a member. So dead states are recognised before they are entered, and sets may
be of any size.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import islice, pairwise
from math import gcd, lcm
from typing import NamedTuple

from .....kernels.answers import DEAD, NEVER
from ....automata.dfa import StateNumbering
from ....limits import spend
from ...algebra import numbers
from ...algebra.cases import Number
from .literals import Units, compared, factors, greatest, in_units, member_within, places_of

START, WHOLE, POINT, FRACTION = range(4)
POINT_BYTE, ZERO_BYTE = 0x2E, 0x30

MAX_LEAVES, MAX_PARTS = 32, 3
"""Maximum number of parts of a set with groups that are examined, and of those used, for distances."""
SIGNIFICANT, MAX_WHOLE, MAX_ZEROS, MAX_PADDED = 17, 16, 3, 6
"""Limits of floats as json.dumps writes them: significant digits; digits before the point; zeros between the point and
the first significant digit; and places of a fraction that may end in 0."""
LONGEST_FLOAT = MAX_ZEROS + SIGNIFICANT


class DigitPrefix(NamedTuple):
    """The digits read so far as a number, and how many stand before and after the point, as far as they matter.

    most: maximum number of digits after the point
    """

    phase: int
    digits: int
    integer_digits: int
    places: int
    most: int


class DecimalGrid(NamedTuple):
    """Numbers from `first` to `last`, in units, with at most `places` places after the point."""

    first: int
    last: int
    places: int


class Decimals:
    """The texts without exponent of the members of a set from 0 up.

    plain: as json.dumps writes floats, plus optional final zeros
    """

    def __init__(self, case: Number, *, plain: bool = False) -> None:
        self._case = case
        self._plain = plain
        self._places = max(places_of(case), LONGEST_FLOAT if plain else 0)
        self._unit = 10**self._places
        self._set = in_units(case, self._places)
        self._bounds = sorted({0, *(int(value * self._unit) for value in compared(case) if value > 0)})
        self._factors = sorted(factors(case, self._places) - {1})
        self._bound_digits = [(bound // self._unit, len(str(bound // self._unit))) for bound in self._bounds]
        self._max_integer_digits = 1 + max((count for _, count in self._bound_digits), default=0)
        self._counted = max(self._max_integer_digits, MAX_WHOLE + 1 if plain else 0)
        self._above_bounds = 10**self._max_integer_digits
        factor = lcm(*self._factors)
        # With powers of ten as factors only the digit 0 is special.
        self._are_digits_alike = all(each == 10 ** (len(str(each)) - 1) for each in self._factors)
        self._turn = factor // gcd(factor, self._unit)
        self._greatest = greatest(self._set)
        # With so many more digits every possible remainder has a member, if there is no upper bound.
        self._enough = self._max_integer_digits + len(f"{factor:x}") * 5 // 4 + 2
        self._numbers: StateNumbering[tuple[object, ...]] = StateNumbering()
        self._beginnings: dict[int, DigitPrefix] = {}
        self._leads: dict[int, list[int]] = {}
        self._remainders: dict[int, int] = {}
        self._classes: StateNumbering[tuple[int, ...]] = StateNumbering()
        self._far: dict[int, int] = {}
        self._needed: dict[int, int] = {}
        self.start = self._numbered((), DigitPrefix(START, 0, 0, 0, 0))

    def moves(self, state: int) -> dict[int, int]:
        """Return the live transitions of a state."""
        prefix = self._beginnings[state]
        found: dict[int, int] = {}
        if prefix.phase == WHOLE and self._case.notation != "integer":
            after = self._behind(
                DigitPrefix(POINT, prefix.digits, prefix.integer_digits, 0, self._most_places(prefix.integer_digits))
            )
            if self.needed(after) < NEVER:
                found[POINT_BYTE] = after
        if prefix.phase == WHOLE and prefix.digits >= self._above_bounds and not self._plain:
            return found | self._beyond_bounds(prefix.digits)
        for first, end in pairwise(self._alike(prefix)):
            after = self._after(prefix, first)
            if after != DEAD and self.needed(after) < NEVER:
                found.update(dict.fromkeys(range(ZERO_BYTE + first, ZERO_BYTE + end), after))
        return found

    def _beyond_bounds(self, digits: int) -> dict[int, int]:
        """Return `moves` for digits beyond all bounds, where only their remainder matters."""
        rest = (10 * digits - self._above_bounds) % self._turn
        found: dict[int, int] = {}
        for digit in range(10):
            key = (rest + digit) % self._turn
            after = self._far.get(key)
            if after is None:
                after = self._far[key] = self._before(self._above_bounds + key, self._max_integer_digits + 1)
            if self.needed(after) < NEVER:
                found[ZERO_BYTE + digit] = after
        return found

    def _alike(self, prefix: DigitPrefix) -> list[int]:
        """Return the starts of ranges of digits with the same successor, and 10 at the end."""
        phase, digits, integer_digits, places, _ = prefix
        if not self._are_digits_alike:
            return list(range(11))
        if phase in (START, WHOLE):
            equal = (
                bound // 10 ** (has - integer_digits - 1) % 10
                for bound, has in self._bound_digits
                if has > integer_digits and bound // 10 ** (has - integer_digits) == digits
            )
        else:
            power = 10 ** (self._places - places)
            equal = (bound * 10 // power % 10 for bound in self._bounds if bound // power == digits)
        return sorted({0, 1, 10, *(cut for digit in equal for cut in (digit, digit + 1))})

    def _after(self, prefix: DigitPrefix, digit: int) -> int:
        """Return the state after one more digit, DEAD if it is refused."""
        phase, digits, integer_digits, places, most = prefix
        if phase == WHOLE and not integer_digits:
            return DEAD
        if phase in (START, WHOLE):
            return self._before(10 * digits + digit, integer_digits + 1 if digits or digit else 0)
        if self._plain:
            if not integer_digits and not digits:
                most = MAX_PADDED if places > MAX_ZEROS else places + SIGNIFICANT if digit else LONGEST_FLOAT
            if places == most:
                return DEAD
            return self._behind(DigitPrefix(FRACTION, 10 * digits + digit, integer_digits, places + 1, most))
        if places < self._places:
            return self._behind(DigitPrefix(FRACTION, 10 * digits + digit, integer_digits, places + 1, most))
        # Digits after the last place that matters do not change the interval.
        return self._behind(
            DigitPrefix(FRACTION, digits + (digit > 0 and digits % 10 == 0), integer_digits, places, most)
        )

    def _most_places(self, integer_digits: int) -> int:
        """Return the maximum number of fraction digits after `integer_digits` digits before the point."""
        if not self._plain:
            return self._places
        return SIGNIFICANT - integer_digits if integer_digits else LONGEST_FLOAT

    def _before(self, digits: int, integer_digits: int) -> int:
        """Return the state of a prefix without a point."""
        if integer_digits > self._max_integer_digits:
            # Beyond all bounds only the remainder matters.
            digits = self._above_bounds + (digits - self._above_bounds) % self._turn
        integer_digits = min(integer_digits, self._counted)
        leading = self._leading(min(integer_digits, self._max_integer_digits) or 1)
        relations = (-1 if digits < bound else digits > bound for bound in leading)
        key = (WHOLE, integer_digits, self._class(digits * self._unit) if self._factors else 0, *relations)
        return self._numbered(key, DigitPrefix(WHOLE, digits, integer_digits, 0, 0))

    def _behind(self, prefix: DigitPrefix) -> int:
        """Return the state of a prefix with a point."""
        phase, digits, integer_digits, places, most = prefix
        power = 10 ** (self._places - places)
        relations = [-1 if digits < bound // power else digits > bound // power for bound in self._bounds]
        missing = [rest if rest < power else DEAD for rest in (-digits * power % each for each in self._factors)]
        key: list[object] = [phase, *relations, *missing]
        if 0 in relations or any(rest >= 0 for rest in missing):
            key.append(places)
        if self._plain:
            is_zero = not integer_digits and not digits
            is_done = places <= MAX_PADDED or digits % 10 > 0
            key += ("0", places) if is_zero else ("", most - places, max(MAX_PADDED - places, 0), is_done)
        return self._numbered(tuple(key), prefix)

    def _numbered(self, key: tuple[object, ...], prefix: DigitPrefix) -> int:
        state = self._numbers[key]
        self._beginnings.setdefault(state, prefix)
        return state

    def _leading(self, count: int) -> list[int]:
        """Return the first `count` digits of all bounds; -1 for bounds with fewer digits."""
        known = self._leads.get(count)
        if known is None:
            known = [bound // 10 ** (has - count) if has >= count else -1 for bound, has in self._bound_digits]
            self._leads[count] = known
        return known

    def _class(self, value: int) -> int:
        """Return a number for all remainders that the same further digits make multiples of each factor."""
        value %= self._turn * self._unit
        known = self._remainders.get(value)
        if known is None:
            future: list[int] = []
            for factor in self._factors:
                power = self._unit
                while power < factor:
                    rest = -value * (power // self._unit) % factor
                    future.append(rest if rest < power else DEAD)
                    power *= 10
                future.append(value * (power // self._unit) % factor)
            spend(20 * len(future))
            known = self._remainders[value] = self._classes[tuple(future)]
        return known

    def _integer_grids(self, prefix: DigitPrefix, more: int) -> list[DecimalGrid]:
        """Return the numbers with `more` further digits before the point, and any fraction."""
        power, integer_digits = 10**more, prefix.integer_digits + more
        if self._plain:
            if more:
                first, last = prefix.digits * power * self._unit, (prefix.digits + 1) * power * self._unit - 1
                return [DecimalGrid(first, last, SIGNIFICANT - integer_digits)]
            return self._grids(prefix.digits, integer_digits, 0, self._most_places(integer_digits))
        return [
            DecimalGrid(prefix.digits * power * self._unit, (prefix.digits + 1) * power * self._unit - 1, self._places)
        ]

    def _grids(self, digits: int, integer_digits: int, places: int, most: int) -> list[DecimalGrid]:
        """Return the numbers that at least one further fraction digit can make of a prefix.

        If the prefix is itself a member, further zeros are told apart only where they matter.
        """
        power = 10 ** (self._places - places)
        first, last = digits * power, (digits + 1) * power - 1
        if not self._plain:
            # Digits after the last place that matters act like the next number.
            return [DecimalGrid(first, last + (places == self._places and digits % 10 == 0), self._places)]
        if integer_digits or digits:
            return [DecimalGrid(first + (places >= MAX_PADDED), last, most)] if places < most else []
        grids = [DecimalGrid(0, last, MAX_PADDED)] if places < MAX_PADDED else []
        for zeros in range(places, MAX_ZEROS + 1):
            power = 10 ** (self._places - zeros - 1)
            grids.append(DecimalGrid(power, 10 * power - 1, zeros + SIGNIFICANT))
        return grids

    def _most_more(self, prefix: DigitPrefix) -> int:
        """Return an exclusive limit on further whole digits that make a difference."""
        if not prefix.digits:
            return 1
        most = MAX_WHOLE + 1 - prefix.integer_digits if self._plain else self._enough
        if self._greatest is None:
            return most
        return next((more for more in range(most) if prefix.digits * 10**more * self._unit > self._greatest), most)

    def is_accepting(self, state: int) -> bool:
        """Test whether a text may end in a state."""
        return self._ends(self._set, self._beginnings[state])

    def _ends(self, one: Units, prefix: DigitPrefix) -> bool:
        phase, digits, _, places, _ = prefix
        if phase == WHOLE:
            return not self._plain and self._has(one, digits * self._unit, real=False)
        if phase != FRACTION or (self._plain and places > MAX_PADDED and digits % 10 == 0):
            return False
        return self._has(one, digits * 10 ** (self._places - places), real=True)

    def _has(self, one: Units, value: int, *, real: bool) -> bool:
        return member_within(one, value, value, 1, real=real) is not None

    def needed(self, state: int) -> int:
        """Return the bytes from a state to the end of a short text; NEVER if there is none.

        They are the fewest to a member of one of the examined parts, so each byte of the path lowers them by one.
        """
        known = self._needed.get(state)
        if known is None:
            prefix = self._beginnings[state]
            if prefix.phase == START:
                known = min(1 + min(map(self.needed, self.moves(state).values()), default=NEVER), NEVER)
            else:
                known = min((self._fewest(one, prefix) for one in self._parts), default=NEVER)
                if known == NEVER and self._set.groups:
                    known = self._fewest(self._set, prefix)
            self._needed[state] = known
        return known

    @cached_property
    def _parts(self) -> list[Units]:
        """A few parts of the set without groups; one of them is unbounded if the set is."""
        if not self._set.groups:
            return [self._set]
        found = [in_units(leaf, self._places) for leaf in islice(numbers.leaves(self._case), MAX_LEAVES)]
        found.sort(key=lambda one: one.step)
        case = numbers.intersect(self._case, Number(minimum=self._above_bounds))
        endless = () if case is None or self._greatest is not None else islice(numbers.leaves(case), 1)
        return [*(in_units(leaf, self._places) for leaf in endless), *found[: MAX_PARTS - 1]]

    def _fewest(self, one: Units, prefix: DigitPrefix) -> int:
        """Return the fewest bytes from a prefix with a digit to the end of a member of a set."""
        phase, digits, integer_digits, places, most = prefix
        if phase != WHOLE:
            if self._ends(one, prefix):
                return 0
            return self._fewest_places(one, self._grids(digits, integer_digits, places, most), places)
        fewest, unit = NEVER, self._unit
        is_whole = not self._plain and one.step % unit == 0 and one.notation != "real"
        for more in range(self._most_more(prefix)):
            if more >= fewest:
                break
            spend(200)
            first, last = digits * 10**more * unit, (digits + 1) * 10**more * unit - 1
            if not self._plain and member_within(one, first, last, unit, real=False) is not None:
                return min(fewest, more)
            if not is_whole:
                fewest = min(fewest, more + 1 + self._fewest_places(one, self._integer_grids(prefix, more), 0))
        return fewest

    def _fewest_places(self, one: Units, grids: list[DecimalGrid], places: int) -> int:
        """Return the fewest further digits after `places` that make a member on a grid; NEVER if none do."""
        return min((count - places for grid in grids for count in self._counts(one, grid, places)), default=NEVER)

    def _counts(self, one: Units, grid: DecimalGrid, places: int) -> Iterator[int]:
        """Yield the least number of places with which a member is on a grid, if any."""
        for count in range(places + 1, max(grid.places, places + 1) + 1):
            spend(200)
            step = 10 ** max(self._places - count, 0)
            if member_within(one, grid.first, grid.last, step, real=True) is not None:
                yield count
                return
