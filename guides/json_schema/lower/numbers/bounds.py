"""A number compared with a fixed one while its digits are read."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from .....errors import LimitError
from .....kernels.numbers import ABOVE, BELOW
from ....kept import kept_growing
from ....limits import spend
from ...algebra.cases import Rational

MAX_DIGITS = 5000


class Bound:
    """The digits of a positive number, periodic ones too, and how digits read so far compare with them.

    A state is the position in the bound's digits up to which they are the same, or BELOW or ABOVE.
    whole: how many digits stand before the point; they have no leading zero, so a number below 1 has none
    first: the position of the first digit that is not zero; exponent: its power of ten
    end: the position from which on only zeros follow; there is none in a periodic number
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
        self.end = None if rest else self._trim()
        self.first = next(position for position, digit in enumerate(self._digits) if digit)
        self.exponent = self.whole - 1 if self.whole else -1 - self.first

    def _trim(self) -> int:
        """Where only zeros are left; the digits end with the first of them, followed by itself."""
        end = len(self._digits) - 1
        while end and self._digits[end - 1] == 0:
            end -= 1
        del self._digits[end + 1 :], self._next[end + 1 :]
        self._next[end] = end
        return end

    @property
    def positions(self) -> int:
        """How many positions there are."""
        return len(self._digits)

    @property
    def held_bytes(self) -> int:
        """About how much memory the digits take."""
        return 500 + 50 * len(self._digits)

    def rows(self, first: int) -> NDArray[np.int32]:
        """The state after each digit, int32 [positions, 10], where the state at position p is numbered first + p."""
        digits = np.array(self._digits)[:, None]
        rows = np.where(np.arange(10) < digits, BELOW, ABOVE).astype(np.int32)
        rows[np.arange(len(rows)), self._digits] = np.array(self._next) + first
        return rows


@kept_growing(1024, 16 << 20)
def bound(value: Rational) -> Bound:
    """The digits of a positive number, worked out once."""
    return Bound(Fraction(value))
