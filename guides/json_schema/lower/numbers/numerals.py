"""Numbers read digit by digit as far as texts come, where a table of all that may come would be too large.

A state is a beginning of numerals. Beginnings are one state where they compare alike with all bounds, and have the same
remainder by all factors together: then the same may follow. What may follow is an interval of numbers, in units of the
last place that matters, and arithmetic tells whether a member is in it; so no state is worked out before a text comes
there. An exponent follows one whole digit, with a fraction of zeros or without.
"""

from __future__ import annotations

from functools import cached_property
from itertools import islice
from math import gcd, lcm

from .....kernels.answers import DEAD, NEVER
from ....automata.numbers import Numbers
from ....limits import spend
from ...algebra import numbers
from ...algebra.cases import Number
from .exponents import GREATEST_EXPONENT, LEAST_EXPONENT, Exponents
from .units import Units, bounds_of, factors_of, greatest, in_units, member_within, places_of

START, WHOLE, POINT, FRACTION = range(4)
NO_LEAD = -1
POINT_BYTE, ZERO_BYTE = 0x2E, 0x30

MOST_LEAVES, MOST_PARTS = 32, 3
"""Of how many parts of a set with groups ways to the end are looked for among how many, before it is of all."""

Key = tuple[int, ...]
Beginning = tuple[int, int, int, int]
"""A phase, the digits as a number, how many there are as far as it matters (behind the point, there), and the first of
them where no other follows but zeros behind the point."""
Run = tuple[int, int, int]
"""The first and the last byte that lead to a state, and the state."""


class Numerals:
    """The texts of the members of a set that have one sign, or are 0, without the sign.

    sign: 1 or -1; exponents: whether they may have an exponent
    """

    def __init__(self, case: Number, sign: int, *, exponents: bool) -> None:
        self._case, self._sign = case, sign
        self._has_exponents = exponents and case.notation != "integer"
        self._places = places_of(case)
        self._unit = 10**self._places
        self._set = in_units(case, self._places, sign)
        self._bounds = [bound for bound in sorted(set(bounds_of(self._set))) if bound >= 0]
        self._factor = lcm(*factors_of(self._set))
        self._whole = [(bound // self._unit, len(str(bound // self._unit))) for bound in self._bounds]
        self._most_whole = 1 + max((count for _, count in self._whole), default=0)
        self._beyond = 10**self._most_whole
        self._turn = self._factor // gcd(self._factor, self._unit)
        self._greatest = greatest(self._set)
        # After so many digits more there is a member of every remainder, if there is any without a bound.
        self._enough = self._most_whole + len(f"{self._factor:x}") * 5 // 4 + 2
        self._numbers: Numbers[Key] = Numbers()
        self._beginnings: list[Beginning] = []
        self._leads: dict[int, list[int]] = {}
        self._alive: dict[int, bool] = {}
        self._needed: dict[int, int] = {}
        self._exponents: dict[int, Exponents | None] = {}
        self.start = self._state(START, 0, 0, NO_LEAD)

    def _state(self, phase: int, digits: int, count: int, lead: int) -> int:
        """The state of a beginning."""
        if phase == WHOLE:
            if count >= self._most_whole and lead == NO_LEAD:
                # Beyond all bounds only the remainder matters.
                count, digits = self._most_whole, self._beyond + (digits - self._beyond) % self._turn
                return self._numbered((digits,), (WHOLE, digits, count, lead))
            count = min(count, self._most_whole)
            told, rest = self._leading(count), digits * self._unit
        else:
            power = 10 ** (self._places - count)
            told, rest = [bound // power for bound in self._bounds], digits * power
        relations = (-1 if digits < bound else digits > bound for bound in told)
        return self._numbered((phase, count, lead, rest % self._factor, *relations), (phase, digits, count, lead))

    def _numbered(self, key: Key, beginning: Beginning) -> int:
        state = self._numbers[key]
        if state == len(self._beginnings):
            self._beginnings.append(beginning)
        return state

    def _leading(self, count: int) -> list[int]:
        """The first digits of all bounds, as many as there are; of those with fewer something that is less."""
        known = self._leads.get(count)
        if known is None:
            known = [whole // 10 ** (has - count) if has >= count else -1 for whole, has in self._whole]
            self._leads[count] = known
        return known

    def after(self, state: int, digit: int) -> int:
        """The state after one more digit, DEAD if none may follow."""
        phase, digits, count, lead = self._beginnings[state]
        if phase == START:
            return self._state(WHOLE, digit, 1, digit)
        if phase == WHOLE:
            return DEAD if digits == 0 else self._state(WHOLE, 10 * digits + digit, count + 1, NO_LEAD)
        lead = NO_LEAD if digit else lead
        if count < self._places:
            return self._state(FRACTION, 10 * digits + digit, count + 1, lead)
        # Whatever follows the last place that matters lies between the same numbers.
        return self._state(FRACTION, digits + (digit > 0 and digits % 10 == 0), count, lead)

    def runs(self, state: int) -> list[Run]:
        """Where digits and the point lead to, as far as a member is there."""
        phase, digits, _, lead = self._beginnings[state]
        spend(3000 + 200 * len(self._bounds))
        runs: list[Run] = []
        for digit in range(10):
            after = self.after(state, digit)
            if after == DEAD or not self.is_alive(after):
                continue
            byte = ZERO_BYTE + digit
            if runs and runs[-1][1:] == (byte - 1, after):
                runs[-1] = (runs[-1][0], byte, after)
            else:
                runs.append((byte, byte, after))
        if phase == WHOLE and self._case.notation != "integer":
            after = self._state(POINT, digits, 0, lead)
            if self.is_alive(after):
                runs.append((POINT_BYTE, POINT_BYTE, after))
        return runs

    def is_alive(self, state: int) -> bool:
        """Whether any text goes on from a state to a member."""
        known = self._alive.get(state)
        if known is None:
            known = self._alive[state] = self._goes_on(*self._beginnings[state])
        return known

    def _goes_on(self, phase: int, digits: int, count: int, lead: int) -> bool:
        if phase == START:
            return any(self.is_alive(self.after(self.start, digit)) for digit in range(10))
        if phase != WHOLE:
            power = 10 ** (self._places - count)
            first, last = digits * power, (digits + 1) * power - 1
            # What follows the last place that matters is like the next number.
            last += count == self._places and digits % 10 == 0
            return member_within(self._set, first, last, 1, real=True) is not None
        if digits and self._is_endless:
            return True
        # Most is left to come where many digits are.
        for more in reversed(range(self._most_more(digits))):
            power = 10**more * self._unit
            first, last = digits * power, (digits + 1) * power - 1
            if (
                self._case.notation != "real"
                and member_within(self._set, first, last, self._unit, real=False) is not None
            ):
                return True
            if self._case.notation != "integer" and member_within(self._set, first, last, 1, real=True) is not None:
                return True
        return False

    def _most_more(self, digits: int) -> int:
        """One more than how many whole digits may follow some, as far as it makes a difference."""
        if not digits:
            return 1
        if self._greatest is None:
            return self._enough
        most = 0
        while most < self._enough and digits * 10**most * self._unit <= self._greatest:
            most += 1
        return most

    @cached_property
    def _is_endless(self) -> bool:
        """Whether it is known that any digits can be continued to a member."""
        return any(one.high is None and one.values is None for one in self._parts)

    def is_accepting(self, state: int) -> bool:
        """Whether a text may end in a state."""
        phase, digits, count, _ = self._beginnings[state]
        if phase == WHOLE:
            return self._has(digits * self._unit, real=False)
        return phase == FRACTION and self._has(digits * 10 ** (self._places - count), real=True)

    def _has(self, value: int, *, real: bool) -> bool:
        return member_within(self._set, value, value, 1, real=real) is not None

    def needed(self, state: int) -> int:
        """The bytes from a state to the end of a short text without an exponent; NEVER if there is none.

        They are the fewest to a member of a part of the set, where it has any; so every step of a way counts one less.
        """
        known = self._needed.get(state)
        if known is None:
            known = min(self._fewest(one, *self._beginnings[state]) for one in self._parts)
            if known == NEVER and self._set.groups:
                known = self._fewest(self._set, *self._beginnings[state])
            self._needed[state] = known
        return known

    @cached_property
    def _parts(self) -> list[Units]:
        """A few parts of the set without groups; one of them is endless if the set is."""
        if not self._set.groups:
            return [self._set]
        found = [in_units(leaf, self._places, self._sign) for leaf in islice(numbers.leaves(self._case), MOST_LEAVES)]
        found.sort(key=lambda one: one.step)
        far = Number(minimum=self._beyond) if self._sign > 0 else Number(maximum=-self._beyond)
        case = numbers.intersect(self._case, far)
        endless = () if case is None or self._greatest is not None else islice(numbers.leaves(case), 1)
        return [*(in_units(leaf, self._places, self._sign) for leaf in endless), *found[: MOST_PARTS - 1]]

    def _fewest(self, one: Units, phase: int, digits: int, count: int, lead: int) -> int:
        """The fewest bytes from a beginning to the end of a member of a set."""
        if phase == START:
            return min(1 + min(self.needed(self.after(self.start, digit)) for digit in range(10)), NEVER)
        if phase != WHOLE:
            return self._fewest_places(one, digits, 10 ** (self._places - count), count)
        fewest, unit = NEVER, self._unit
        is_whole = one.step % unit == 0 and one.notation != "real"
        for more in range(self._most_more(digits)):
            power = 10**more * unit
            first, last = digits * power, (digits + 1) * power - 1
            if more >= fewest:
                break
            spend(200)
            if member_within(one, first, last, unit, real=False) is not None:
                return min(fewest, more)
            if not is_whole:
                fewest = min(fewest, more + 1 + self._fewest_places(one, digits, power, 0))
        return fewest

    def _fewest_places(self, one: Units, digits: int, power: int, count: int) -> int:
        """How many places more, behind the point, make a member of digits times a power of ten, or of some after it."""
        first, last = digits * power, (digits + 1) * power - 1
        for places in range(max(count, 1), self._places + 1):
            spend(200)
            if member_within(one, first, last, 10 ** (self._places - places), real=True) is not None:
                return places - count
        if count == self._places and digits % 10 == 0:
            return 1 if member_within(one, digits + 1, digits + 1, 1, real=True) is not None else NEVER
        return NEVER

    def exponents(self, state: int) -> Exponents | None:
        """The exponents that may follow a state; None if there are none."""
        phase, _, _, lead = self._beginnings[state]
        if not self._has_exponents or lead == NO_LEAD or phase not in (WHOLE, FRACTION):
            return None
        if lead not in self._exponents:
            self._exponents[lead] = self._exponents_of(lead)
        return self._exponents[lead]

    def _exponents_of(self, lead: int) -> Exponents | None:
        """The exponents that make a member of a digit."""
        most = GREATEST_EXPONENT - (lead != 1)
        spend(200 * (most - LEAST_EXPONENT))
        # Numbers that are too small to be told apart lie all between 0 and what is next.
        small = self._has(1 if lead else 0, real=True)
        least = -self._places
        found = [exponent for exponent in range(LEAST_EXPONENT, least) if small]
        found += [
            exponent for exponent in range(least, most + 1) if self._has(lead * 10 ** (exponent - least), real=True)
        ]
        if not found:
            return None
        holes = set(range(found[0], found[-1] + 1)) - set(found)
        return Exponents(found[0], found[-1], tuple(sorted(holes)))
