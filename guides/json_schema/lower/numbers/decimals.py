"""Numbers without an exponent, read digit by digit: an automaton whose states are made when they are reached.

A state is a beginning of texts. Beginnings are one state where they compare alike with all bounds, and need the same
digits to become a multiple of each factor: then the same may follow. What may follow is an interval of numbers, in
units of the last place that matters, and arithmetic tells whether a member is in it; so a state is found to lead
nowhere before a text comes there, and sets of any size can be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import islice, pairwise
from math import gcd, lcm
from typing import NamedTuple

from .....kernels.answers import DEAD, NEVER
from ....automata.dfa import Numbers
from ....limits import spend
from ...algebra import numbers
from ...algebra.cases import Number
from .literals import Units, compared, factors, greatest, in_units, member_within, places_of

START, WHOLE, POINT, FRACTION = range(4)
POINT_BYTE, ZERO_BYTE = 0x2E, 0x30

MOST_LEAVES, MOST_PARTS = 32, 3
"""Of how many parts of a set with groups ways to the end are looked for among how many, before it is of all."""
SIGNIFICANT, MOST_WHOLE, MOST_ZEROS, MOST_PADDED = 17, 16, 3, 6
"""Of a float as json.dumps writes it: digits that count, those before the point, zeros between the point and the first
digit that counts; and places of a fraction that may end in 0."""
LONGEST_FLOAT = MOST_ZEROS + SIGNIFICANT


class Beginning(NamedTuple):
    """The digits read so far as a number, how many stand before and behind the point, as far as it matters.

    most: how many may stand behind the point at most
    """

    phase: int
    digits: int
    whole: int
    places: int
    most: int


class Grid(NamedTuple):
    """Numbers from `first` to `last`, in units, that have up to so many places behind the point."""

    first: int
    last: int
    places: int


class Decimals:
    """The texts without exponent of the members of a set that are 0 or more.

    plain: as json.dumps writes floats, with a few more zeros at the end
    """

    def __init__(self, case: Number, *, plain: bool = False) -> None:
        self._case = case
        self._plain = plain
        self._places = max(places_of(case), LONGEST_FLOAT if plain else 0)
        self._unit = 10**self._places
        self._set = in_units(case, self._places)
        self._bounds = sorted({0, *(int(value * self._unit) for value in compared(case) if value > 0)})
        self._factors = sorted(factors(case, self._places) - {1})
        self._whole = [(bound // self._unit, len(str(bound // self._unit))) for bound in self._bounds]
        self._most_whole = 1 + max((count for _, count in self._whole), default=0)
        self._counted = max(self._most_whole, MOST_WHOLE + 1 if plain else 0)
        self._beyond = 10**self._most_whole
        factor = lcm(*self._factors)
        # Of powers of ten only zeros make a multiple, so that no digit but 0 differs from the others.
        self._are_digits_alike = all(each == 10 ** (len(str(each)) - 1) for each in self._factors)
        self._turn = factor // gcd(factor, self._unit)
        self._greatest = greatest(self._set)
        # After so many digits more there is a member of every remainder, if there is any without a bound.
        self._enough = self._most_whole + len(f"{factor:x}") * 5 // 4 + 2
        self._numbers: Numbers[tuple[object, ...]] = Numbers()
        self._beginnings: dict[int, Beginning] = {}
        self._leads: dict[int, list[int]] = {}
        self._remainders: dict[int, int] = {}
        self._classes: Numbers[tuple[int, ...]] = Numbers()
        self._far: dict[int, int] = {}
        self._needed: dict[int, int] = {}
        self.start = self._numbered((), Beginning(START, 0, 0, 0, 0))

    def moves(self, state: int) -> dict[int, int]:
        """The state after each byte that a member goes on with."""
        begun = self._beginnings[state]
        found: dict[int, int] = {}
        if begun.phase == WHOLE and self._case.notation != "integer":
            after = self._behind(Beginning(POINT, begun.digits, begun.whole, 0, self._most_places(begun.whole)))
            if self.needed(after) < NEVER:
                found[POINT_BYTE] = after
        if begun.phase == WHOLE and begun.digits >= self._beyond and not self._plain:
            return found | self._beyond_bounds(begun.digits)
        for first, end in pairwise(self._alike(begun)):
            after = self._after(begun, first)
            if after != DEAD and self.needed(after) < NEVER:
                found.update(dict.fromkeys(range(ZERO_BYTE + first, ZERO_BYTE + end), after))
        return found

    def _beyond_bounds(self, digits: int) -> dict[int, int]:
        """As `moves`, for digits beyond all bounds: only their remainder matters."""
        rest = (10 * digits - self._beyond) % self._turn
        found: dict[int, int] = {}
        for digit in range(10):
            key = (rest + digit) % self._turn
            after = self._far.get(key)
            if after is None:
                after = self._far[key] = self._before(self._beyond + key, self._most_whole + 1)
            if self.needed(after) < NEVER:
                found[ZERO_BYTE + digit] = after
        return found

    def _alike(self, begun: Beginning) -> list[int]:
        """Digits from each of which on up to the next one all lead to the same state; the last is 10."""
        phase, digits, whole, places, _ = begun
        if not self._are_digits_alike:
            return list(range(11))
        if phase in (START, WHOLE):
            equal = (
                bound // 10 ** (has - whole - 1) % 10
                for bound, has in self._whole
                if has > whole and bound // 10 ** (has - whole) == digits
            )
        else:
            power = 10 ** (self._places - places)
            equal = (bound * 10 // power % 10 for bound in self._bounds if bound // power == digits)
        return sorted({0, 1, 10, *(cut for digit in equal for cut in (digit, digit + 1))})

    def _after(self, begun: Beginning, digit: int) -> int:
        """The state after one more digit, DEAD if none may come."""
        phase, digits, whole, places, most = begun
        if phase == WHOLE and not whole:
            return DEAD
        if phase in (START, WHOLE):
            return self._before(10 * digits + digit, whole + 1 if digits or digit else 0)
        if self._plain:
            if not whole and not digits:
                most = MOST_PADDED if places > MOST_ZEROS else places + SIGNIFICANT if digit else LONGEST_FLOAT
            if places == most:
                return DEAD
            return self._behind(Beginning(FRACTION, 10 * digits + digit, whole, places + 1, most))
        if places < self._places:
            return self._behind(Beginning(FRACTION, 10 * digits + digit, whole, places + 1, most))
        # Whatever follows the last place that matters lies between the same numbers.
        return self._behind(Beginning(FRACTION, digits + (digit > 0 and digits % 10 == 0), whole, places, most))

    def _most_places(self, whole: int) -> int:
        """The places that may follow so many digits before the point; none of 0."""
        if not self._plain:
            return self._places
        return SIGNIFICANT - whole if whole else LONGEST_FLOAT

    def _before(self, digits: int, whole: int) -> int:
        """The state of a beginning without a point."""
        if whole > self._most_whole:
            # Beyond all bounds only the remainder matters.
            digits = self._beyond + (digits - self._beyond) % self._turn
        whole = min(whole, self._counted)
        told = self._leading(min(whole, self._most_whole) or 1)
        relations = (-1 if digits < bound else digits > bound for bound in told)
        key = (WHOLE, whole, self._class(digits * self._unit) if self._factors else 0, *relations)
        return self._numbered(key, Beginning(WHOLE, digits, whole, 0, 0))

    def _behind(self, begun: Beginning) -> int:
        """The state of a beginning with a point."""
        phase, digits, whole, places, most = begun
        power = 10 ** (self._places - places)
        relations = [-1 if digits < bound // power else digits > bound // power for bound in self._bounds]
        missing = [rest if rest < power else DEAD for rest in (-digits * power % each for each in self._factors)]
        key: list[object] = [phase, *relations, *missing]
        if 0 in relations or any(rest >= 0 for rest in missing):
            key.append(places)
        if self._plain:
            is_zero = not whole and not digits
            is_done = places <= MOST_PADDED or digits % 10 > 0
            key += ("0", places) if is_zero else ("", most - places, max(MOST_PADDED - places, 0), is_done)
        return self._numbered(tuple(key), begun)

    def _numbered(self, key: tuple[object, ...], begun: Beginning) -> int:
        state = self._numbers[key]
        self._beginnings.setdefault(state, begun)
        return state

    def _leading(self, count: int) -> list[int]:
        """The first digits of all bounds, as many as there are; of those with fewer something that is less."""
        known = self._leads.get(count)
        if known is None:
            known = [whole // 10 ** (has - count) if has >= count else -1 for whole, has in self._whole]
            self._leads[count] = known
        return known

    def _class(self, value: int) -> int:
        """A number for all remainders that the same digits behind them make multiples of each factor."""
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

    def _wholes(self, begun: Beginning, more: int) -> list[Grid]:
        """The numbers that have so many digits more before the point, and some behind it."""
        power, whole = 10**more, begun.whole + more
        if self._plain:
            if more:
                first, last = begun.digits * power * self._unit, (begun.digits + 1) * power * self._unit - 1
                return [Grid(first, last, SIGNIFICANT - whole)]
            return self._grids(begun.digits, whole, 0, self._most_places(whole))
        return [Grid(begun.digits * power * self._unit, (begun.digits + 1) * power * self._unit - 1, self._places)]

    def _grids(self, digits: int, whole: int, places: int, most: int) -> list[Grid]:
        """The numbers that may become of digits, some of them behind the point, by one more or several.

        Of one that is written already there may be only zeros more, which are told apart where they matter.
        """
        power = 10 ** (self._places - places)
        first, last = digits * power, (digits + 1) * power - 1
        if not self._plain:
            # What follows the last place that matters is like the next number.
            return [Grid(first, last + (places == self._places and digits % 10 == 0), self._places)]
        if whole or digits:
            return [Grid(first + (places >= MOST_PADDED), last, most)] if places < most else []
        grids = [Grid(0, last, MOST_PADDED)] if places < MOST_PADDED else []
        for zeros in range(places, MOST_ZEROS + 1):
            power = 10 ** (self._places - zeros - 1)
            grids.append(Grid(power, 10 * power - 1, zeros + SIGNIFICANT))
        return grids

    def _most_more(self, begun: Beginning) -> int:
        """One more than how many whole digits may follow some, as far as it makes a difference."""
        if not begun.digits:
            return 1
        most = MOST_WHOLE + 1 - begun.whole if self._plain else self._enough
        if self._greatest is None:
            return most
        return next((more for more in range(most) if begun.digits * 10**more * self._unit > self._greatest), most)

    def is_accepting(self, state: int) -> bool:
        """Tell whether a text may end in a state."""
        return self._ends(self._set, self._beginnings[state])

    def _ends(self, one: Units, begun: Beginning) -> bool:
        phase, digits, _, places, _ = begun
        if phase == WHOLE:
            return not self._plain and self._has(one, digits * self._unit, real=False)
        if phase != FRACTION or (self._plain and places > MOST_PADDED and digits % 10 == 0):
            return False
        return self._has(one, digits * 10 ** (self._places - places), real=True)

    def _has(self, one: Units, value: int, *, real: bool) -> bool:
        return member_within(one, value, value, 1, real=real) is not None

    def needed(self, state: int) -> int:
        """The bytes from a state to the end of a short text; NEVER if there is none.

        They are the fewest to a member of a part of the set, where it has any; so every step of a way counts one less.
        """
        known = self._needed.get(state)
        if known is None:
            begun = self._beginnings[state]
            if begun.phase == START:
                known = min(1 + min(map(self.needed, self.moves(state).values()), default=NEVER), NEVER)
            else:
                known = min((self._fewest(one, begun) for one in self._parts), default=NEVER)
                if known == NEVER and self._set.groups:
                    known = self._fewest(self._set, begun)
            self._needed[state] = known
        return known

    @cached_property
    def _parts(self) -> list[Units]:
        """A few parts of the set without groups; one of them is endless if the set is."""
        if not self._set.groups:
            return [self._set]
        found = [in_units(leaf, self._places) for leaf in islice(numbers.leaves(self._case), MOST_LEAVES)]
        found.sort(key=lambda one: one.step)
        case = numbers.intersect(self._case, Number(minimum=self._beyond))
        endless = () if case is None or self._greatest is not None else islice(numbers.leaves(case), 1)
        return [*(in_units(leaf, self._places) for leaf in endless), *found[: MOST_PARTS - 1]]

    def _fewest(self, one: Units, begun: Beginning) -> int:
        """The fewest bytes from a beginning, which has a digit, to the end of a member of a set."""
        phase, digits, whole, places, most = begun
        if phase != WHOLE:
            if self._ends(one, begun):
                return 0
            return self._fewest_places(one, self._grids(digits, whole, places, most), places)
        fewest, unit = NEVER, self._unit
        is_whole = not self._plain and one.step % unit == 0 and one.notation != "real"
        for more in range(self._most_more(begun)):
            if more >= fewest:
                break
            spend(200)
            first, last = digits * 10**more * unit, (digits + 1) * 10**more * unit - 1
            if not self._plain and member_within(one, first, last, unit, real=False) is not None:
                return min(fewest, more)
            if not is_whole:
                fewest = min(fewest, more + 1 + self._fewest_places(one, self._wholes(begun, more), 0))
        return fewest

    def _fewest_places(self, one: Units, grids: list[Grid], places: int) -> int:
        """The fewest further digits that make a member on one of the grids, behind so many; NEVER if none do."""
        return min((count - places for grid in grids for count in self._counts(one, grid, places)), default=NEVER)

    def _counts(self, one: Units, grid: Grid, places: int) -> Iterator[int]:
        """With how many places a member is on a grid, first."""
        for count in range(places + 1, max(grid.places, places + 1) + 1):
            spend(200)
            step = 10 ** max(self._places - count, 0)
            if member_within(one, grid.first, grid.last, step, real=True) is not None:
                yield count
                return
