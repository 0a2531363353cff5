"""Multiples read digit by digit: the remainder of a decimal numeral by a step.

A decimal numeral that is a multiple of p/q, in lowest terms, is a multiple of p/q' with q' the part of q
that has no prime factors but 2 and 5: the rest of q would have to divide p. So a step is P / 10^m with whole
P and m. After the whole digits N the remainder N mod P is known; from the point on, the m digits to come
have to bring N * 10^m to a multiple of P, and every later digit has to be zero.
"""

from __future__ import annotations

from fractions import Fraction

from .....kernels.answers import DEAD
from ....kept import kept_growing
from ....limits import spend
from ...algebra.cases import Rational


def decimal_step(step: Rational) -> tuple[int, int]:
    """P and m: a decimal numeral is a multiple of `step` iff it is one of P / 10^m."""
    twos, _ = _power(step.denominator, 2)
    fives, _ = _power(step.denominator, 5)
    places = max(twos, fives)
    return int(step.numerator * (10**places // (2**twos * 5**fives))), places


def decimal_places(value: Rational) -> int | None:
    """How many digits after the point a number needs; None if no count of digits is enough."""
    twos, rest = _power(value.denominator, 2)
    fives, rest = _power(rest, 5)
    return max(twos, fives) if rest == 1 else None


def _power(number: int, prime: int) -> tuple[int, int]:
    """How often a prime divides a number, and what is left of it."""
    count = 0
    while number % prime == 0:
        number //= prime
        count += 1
    return count, number


class Multiple:
    """Tells multiples of a step while a numeral is read. States are integers.

    Before the point a state is a remainder, standing for all remainders with the same future; after the point
    it is the number that the places to come have to spell, and how many they are; DEAD if they cannot.
    """

    def __init__(self, step: Rational) -> None:
        self.step = step
        self.modulus, self.places = decimal_step(step)
        self._most_zeros = max(_power(self.modulus, 2)[0], _power(self.modulus, 5)[0])
        self._scale = 10**self.places
        self._has_classes = self.modulus % 2 == 0 or self.modulus % 5 == 0
        self._class_of: dict[int, int] = {}
        self._first_of: dict[tuple[int, ...], int] = {}

    @property
    def held_bytes(self) -> int:
        """About how much memory the remainders met so far take."""
        digits = len(str(self.modulus * self._scale))
        return 200 * len(self._class_of) + 100 * digits * len(self._first_of)

    def whole_digit(self, remainder: int, digit: int) -> int:
        """The state after one more digit before the point."""
        if self.modulus == 1:
            return 0
        after = (remainder * 10 + digit) % self.modulus
        if not self._has_classes:
            return after
        known = self._class_of.get(after)
        if known is None:
            known = self._class_of[after] = self._first_of.setdefault(self._future(after), after)
        return known

    def _future(self, remainder: int) -> tuple[int, ...]:
        """Which digits make it a multiple, for any number of digits to come."""
        future: list[int] = []
        power, room = self._scale, 10 * self.modulus
        while power <= room * self._scale:
            spend(100)
            missing = -remainder * power % self.modulus
            future.append(missing if missing < power else DEAD)
            power *= 10
        return (*future, remainder * power % self.modulus)

    def point(self, remainder: int) -> int:
        """The state after the point."""
        return self._fraction(-remainder * self._scale % self.modulus, self.places)

    def _fraction(self, missing: int, places: int) -> int:
        return missing * (self.places + 1) + places if missing < 10**places else DEAD

    def fraction_digit(self, state: int, digit: int) -> int:
        """The state after one more digit behind the point."""
        if state == DEAD:
            return DEAD
        missing, places = divmod(state, self.places + 1)
        if places == 0:
            return state if digit == 0 else DEAD
        return self._fraction((missing - digit * 10 ** (places - 1)) % self.modulus, places - 1)

    def is_whole_multiple(self, remainder: int) -> bool:
        """Whether the numeral is a multiple, as it stands before the point."""
        return remainder * self._scale % self.modulus == 0

    def is_fraction_multiple(self, state: int) -> bool:
        """Whether the numeral is a multiple, as it stands behind the point."""
        return 0 <= state <= self.places

    def zeros_missing(self, remainder: int) -> int | None:
        """How many zeros the digits before the point need at least to be a multiple of P; None if no count does."""
        return next((zeros for zeros in range(self._most_zeros + 1) if remainder * 10**zeros % self.modulus == 0), None)


@kept_growing(256, 16 << 20)
def multiple(step: Rational) -> Multiple:
    """The reader of a step, made once: it remembers which remainders are alike."""
    return Multiple(Fraction(step))
