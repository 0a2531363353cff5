"""Mantissas, a digit that is not zero and perhaps a fraction, and the exponents that may follow them.

A mantissa with the digits M, d of them behind the point, and the exponent e is M * 10^(e - d). It is a multiple of
P / 10^m (see multiples.py) iff e - d + m is at least the number of zeros that make M a multiple of P, where M does
not end in zeros itself. So M is followed by its remainder by P and its number of digits, up to those of floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...algebra.cases import Rational
from .bounds import bound
from .multiples import decimal_step, multiple

LEAST_EXPONENT, GREATEST_EXPONENT = -324, 308
"""Those of finite floats."""
GREATEST = bound(17976931348623157)
"""The digits of the greatest float."""
MOST_DIGITS = 16
"""How many digits behind the point json.dumps writes before an exponent."""
MOST_REMAINDERS = 128
"""Up to how many remainders a fraction is followed; beyond, exponents follow whole digits only."""

ONLY_ZEROS, NOT_ZERO, ZERO_AGAIN = range(3)


class Mantissa(NamedTuple):
    """What was read.

    compared: its state beside the digits of the greatest float
    tail: what the fraction ends in, if there is one; digits: how many it has
    left: the remainder of all digits by each P; as long as the fraction is all zeros, of the first one
    """

    compared: int
    tail: int
    digits: int
    left: tuple[int, ...]


class Mantissas:
    """Reads mantissas, for multiples of the first `required` of some steps that are no multiples of the others."""

    def __init__(self, steps: Sequence[Rational], required: int) -> None:
        scaled = [decimal_step(step) for step in steps]
        self._readers = [multiple(whole) for whole, _ in scaled]
        self._places = [places for _, places in scaled]
        self._required = required
        remainders = 1
        for whole, _ in scaled:
            while whole % 10 == 0:
                whole //= 10
            remainders *= whole
        self._most_digits = MOST_DIGITS if remainders <= MOST_REMAINDERS else 0

    def first(self, digit: int) -> Mantissa:
        """The mantissa of one digit, which is not 0."""
        left = tuple([reader.whole_digit(0, digit) for reader in self._readers])
        return Mantissa(GREATEST.step(0, digit), ONLY_ZEROS, 0, left)

    def after(self, mantissa: Mantissa, digit: int) -> Mantissa | None:
        """With one more digit behind the point; None if no exponent may follow any more."""
        compared, tail, digits, left = mantissa
        compared = GREATEST.step(compared, digit)
        if not self._readers:
            return Mantissa(compared, tail, digits, left)
        if not digit and tail == ONLY_ZEROS:
            return Mantissa(compared, tail, min(digits + 1, self._most_digits), left)
        if digits >= self._most_digits:
            return None
        zeros = digits if tail == ONLY_ZEROS else 0
        states: list[int] = []
        for reader, state in zip(self._readers, left, strict=True):
            for _ in range(zeros):
                state = reader.whole_digit(state, 0)
            states.append(reader.whole_digit(state, digit))
        return Mantissa(compared, NOT_ZERO if digit else ZERO_AGAIN, digits + 1, tuple(states))

    def breaks(self, mantissa: Mantissa | None) -> set[int]:
        """The digits that may lead elsewhere than the digit before them; None: at the beginning."""
        starts = {1} if self._readers else set[int]()
        position = 0 if mantissa is None else mantissa.compared
        if position >= 0:
            starts.update(GREATEST.breaks[position])
        for reader in self._readers:
            starts.update(reader.whole_breaks())
        return starts

    def exponents(self, mantissa: Mantissa) -> tuple[int, int] | None:
        """The least and the greatest exponent that may follow; None if none may."""
        compared, tail, digits, left = mantissa
        low, high = LEAST_EXPONENT, GREATEST_EXPONENT - (GREATEST.compare(compared) > 0)
        if tail == ZERO_AGAIN:
            return None
        for index, (reader, places) in enumerate(zip(self._readers, self._places, strict=True)):
            zeros = reader.zeros_missing(left[index])
            if zeros is None:
                if index < self._required:
                    return None
                continue
            least = zeros - places + (digits if tail == NOT_ZERO else 0)
            if index < self._required:
                low = max(low, least)
            else:
                high = min(high, least - 1)
        return low, high
