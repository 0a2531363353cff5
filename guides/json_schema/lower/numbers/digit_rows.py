"""What the digits of a number are followed by, bounds, multiples and mantissas, as rows of one table for the kernel.

A mantissa is a digit that is not zero and perhaps a fraction. With the digits M, d of them behind the point, and the
exponent e it is M * 10^(e - d). That is a multiple of P / 10^m (see multiples.py) iff e - d + m is at least the number
of zeros that make M a multiple of P, where M does not end in zeros itself. So M is followed by its remainder by P and
its number of digits, up to those of floats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from .....errors import LimitError
from .....kernels.answers import DEAD, NEVER
from .....kernels.numbers import ABOVE, BELOW, DIGITS, FIXED_ROWS, HOPELESS
from ....automata.numbers import Numbers
from ....limits import spend
from .bounds import Bound
from .multiples import Multiple

Step = Callable[[int, int], int]


class DigitRows:
    """Rows, each of which says what its condition's state is after a digit.

    most: how many there may be; refusal: what is raised where there are more
    relation: -1, 0 or 1 as the digits that led to a row of a bound, followed by zeros, are below, equal to or above it
    is_multiple: whether the digits that led to a row of a multiple are one
    zeros: how many zeros make the digits that led to a row of remainders a multiple; NEVER if none do
    """

    def __init__(self, most: int, refusal: Callable[[], LimitError]) -> None:
        self._most = most
        self._refusal = refusal
        self._after = [np.repeat(np.array([[BELOW], [ABOVE], [HOPELESS]], np.int32), DIGITS, axis=1)]
        self._point: list[int] = []
        self.relation: list[int] = []
        self.is_multiple: list[bool] = []
        self.zeros: list[int] = []
        self._fill(FIXED_ROWS, relation=[-1, 1, 0])

    def add_bound(self, limit: Bound) -> int:
        """Follow a bound; the row of its first position."""
        first = len(self.relation)
        self._after.append(limit.rows(first))
        self._fill(limit.positions, relation=[-1 if at != limit.end else 0 for at in range(limit.positions)])
        return first

    def add_multiple(self, reader: Multiple, most_digits: int | None, has_point: bool) -> int:
        """Follow a multiple through up to so many whole digits, and through those behind the point; its first row."""
        wholes = self._reached([0], reader.whole_digit, most_digits)
        first = self._add(wholes)
        self._fill(len(wholes[0]), is_multiple=map(reader.is_whole_multiple, wholes[0]))
        if has_point:
            points = [reader.point(state) for state in wholes[0]]
            fractions = self._reached([state for state in points if state != DEAD], reader.fraction_digit, None)
            behind = self._add(fractions)
            number = {state: behind + at for at, state in enumerate(fractions[0])}
            self._point[first:] = [number.get(state, HOPELESS) for state in points]
            self._fill(len(fractions[0]), is_multiple=map(reader.is_fraction_multiple, fractions[0]))
        return first

    def add_remainders(self, reader: Multiple, most_digits: int) -> int:
        """Follow the remainder of a mantissa's digits; its first row."""
        found = self._reached([0], reader.whole_digit, most_digits)
        first = self._add(found)
        missing = map(reader.zeros_missing, found[0])
        self._fill(len(found[0]), zeros=[NEVER if zeros is None else zeros for zeros in missing])
        return first

    def tables(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The row after each digit, int32 [rows, 10], and that after the point, int32 [rows]."""
        return np.concatenate(self._after), np.array(self._point, np.int32)

    def _reached(self, begin: Iterable[int], step: Step, most: int | None) -> tuple[list[int], list[list[int]]]:
        """The states that up to so many digits lead to, and where each digit leads from them; DEAD after the last."""
        numbers: Numbers[int] = Numbers()
        for state in begin:
            _ = numbers[state]
        edges: list[list[int]] = []
        end_of_level = len(numbers)
        for at, state in enumerate(numbers.states):
            spend(300)
            if len(numbers) > self._most:
                raise self._refusal()
            if at == end_of_level and most is not None:
                most, end_of_level = most - 1, len(numbers)
            if most == 0:
                edges.append([DEAD] * DIGITS)
                continue
            after = [step(state, digit) for digit in range(DIGITS)]
            edges.append([numbers[state] if state != DEAD else DEAD for state in after])
        return numbers.states, edges

    def _add(self, found: tuple[list[int], list[list[int]]]) -> int:
        first = len(self.relation)
        edges = np.array(found[1], np.int32).reshape(-1, DIGITS)
        self._after.append(np.where(edges == DEAD, HOPELESS, edges + first).astype(np.int32))
        return first

    def _fill(
        self,
        count: int,
        relation: Iterable[int] | None = None,
        is_multiple: Iterable[bool] | None = None,
        zeros: Iterable[int] | None = None,
    ) -> None:
        """Say of so many more rows what is told of their kind."""
        self._point += [HOPELESS] * count
        self.relation += [0] * count if relation is None else relation
        self.is_multiple += [False] * count if is_multiple is None else is_multiple
        self.zeros += [NEVER] * count if zeros is None else zeros
