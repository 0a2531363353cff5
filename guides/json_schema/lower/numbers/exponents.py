"""Sets of exponents as digits: `+05` and `5` and `005` are the same exponent."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....automata.numbers import Numbers
from ....kept import kept
from ....limits import spend

LEAST_EXPONENT, GREATEST_EXPONENT = -324, 308
"""Those of finite floats."""
_LONGEST = 1000
"""No exponent has more than three digits."""
_NONE = (-1,) * 10

Automaton = tuple[NDArray[np.int32], NDArray[np.bool_]]


class Exponents(NamedTuple):
    """The whole numbers from `low` to `high`, of up to three digits, but for `holes`."""

    low: int
    high: int
    holes: tuple[int, ...] = ()

    def natural(self) -> Exponents:
        """The members from 0 up."""
        low, high = max(self.low, 0), max(self.high, -1)
        return Exponents(low, high, tuple(sorted(hole for hole in self.holes if low <= hole <= high)))

    def mirrored(self) -> Exponents:
        """The same numbers with their signs changed."""
        return Exponents(-self.high, -self.low, tuple(-hole for hole in self.holes))


@kept(1024, 4 << 20)
def digits_of(members: Exponents) -> Automaton:
    """The texts of numbers from 0 up, with any zeros in front: an automaton over digits, which begins at state 0.

    int32 [states, 10], the state after each digit, -1 where there is none; bool [states], where a number may end
    """
    spend(20 * _LONGEST)
    is_member = np.zeros(_LONGEST, np.bool_)
    is_member[members.low : members.high + 1] = True
    is_member[list(members.holes)] = False
    flags: list[bool] = is_member.tolist()
    # Numbers after which the same digits may follow are one state, so the longest come first.
    states: Numbers[tuple[bool, tuple[int, ...]]] = Numbers()
    last = states[True, _NONE]
    state_of = [last if flag else -1 for flag in flags]
    for number in range(99, 0, -1):
        state = flags[number], tuple(state_of[10 * number : 10 * number + 10])
        state_of[number] = states[state] if state != (False, _NONE) else -1
    # Before these, no digit yet, and zeros only.
    edges = np.array([_NONE, _NONE, *(after for _, after in states.states)], np.int32)
    edges[:2, 1:] = state_of[1:10]
    edges[edges >= 0] += 2
    edges[:2, 0] = 1
    return edges, np.array([False, flags[0], *(accepts for accepts, _ in states.states)])
