"""A number compared with a fixed one while its digits are read."""

from __future__ import annotations

from fractions import Fraction

from .....errors import LimitError
from ....kept import kept_growing
from ....limits import spend
from ...algebra.cases import Rational

BELOW = -1
ABOVE = -2
MAX_DIGITS = 5000
BREAKS = ((1,), *((digit, digit + 1) for digit in range(1, 9)), (9,))


class Bound:
    """The digits of a positive number, periodic ones too, and how digits read so far compare with them.

    A state is BELOW, ABOVE, or the position in the bound's digits up to which the digits are the same.
    whole: how many digits stand before the point; they have no leading zero, so a number below 1 has none
    first: the position of the first digit that is not zero; exponent: its power of ten
    breaks: for each position the digits, except 0, that lead elsewhere than the digit before them
    """

    def __init__(self, value: Rational) -> None:
        text = str(value // 1) if value >= 1 else ""
        self._digits = [int(digit) for digit in text]
        self.whole = len(text)
        rest, divisor = value.numerator % value.denominator, value.denominator
        met: dict[int, int] = {}
        while rest not in met:
            if len(self._digits) > MAX_DIGITS:
                raise LimitError(f"a bound on numbers has more than {MAX_DIGITS} digits; round it")
            spend(200)
            met[rest] = len(self._digits)
            self._digits.append(rest * 10 // divisor)
            rest = rest * 10 % divisor
        self._next = list(range(1, len(self._digits) + 1))
        self._next[-1] = met[rest]
        self._end = len(self._digits) if rest else self._trim()
        self.first = next(position for position, digit in enumerate(self._digits) if digit)
        self.exponent = self.whole - 1 if self.whole else -1 - self.first
        self.breaks = [BREAKS[digit] for digit in self._digits]

    def _trim(self) -> int:
        """Where only zeros are left; the digits end with the first of them, followed by itself."""
        end = len(self._digits) - 1
        while end and self._digits[end - 1] == 0:
            end -= 1
        del self._digits[end + 1 :], self._next[end + 1 :]
        self._next[end] = end
        return end

    @property
    def held_bytes(self) -> int:
        """About how much memory the digits take."""
        return 500 + 50 * len(self._digits)

    def step(self, state: int, digit: int) -> int:
        """The state after one more digit."""
        if state < 0:
            return state
        expected = self._digits[state]
        if digit == expected:
            return self._next[state]
        return BELOW if digit < expected else ABOVE

    def compare(self, state: int) -> int:
        """-1, 0 or 1 as the digits read, followed by zeros, are below, equal to or above the bound's."""
        if state == ABOVE:
            return 1
        return 0 if state == self._end else -1


@kept_growing(1024, 16 << 20)
def bound(value: Rational) -> Bound:
    """The digits of a positive number, worked out once."""
    return Bound(Fraction(value))
