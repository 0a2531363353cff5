"""Numbers that are read digit by digit beside what they are compared with: which of the texts must be told apart."""

from __future__ import annotations

import numpy as np

from .answers import DEAD, FULL
from .equal_rows import enter_first, number_of
from .jit.aliases import Bytes, Int, Ints
from .jit.arrays import Arrays, Table, Vector
from .jit.wide import inner_njit, njit

# Rows that every digit leads back to: below a bound, above it, no multiple whatever follows.
BELOW, ABOVE, HOPELESS = range(3)
FIXED_ROWS = 3
# Columns of a state; from PARTS on there is a row for each bound, for each multiple, for the greatest float, and again
# for each multiple.
PHASE, WHOLE, TAIL, PLACES, PARTS = range(5)
START, BEFORE_POINT, POINT, FRACTION = range(4)
# How many whole digits were read: all were zero, or it makes no difference any more.
ZERO, DECIDED = -1, 0
# What the fraction of a mantissa ends in.
NO_MANTISSA, ONLY_ZEROS, NOT_ZERO, ZERO_AGAIN = -1, 0, 1, 2
DIGITS, SYMBOLS = 10, 11


class NumberConditions(Arrays):
    """What digits are compared with.

    after: int32 [rows, 10], the row after each digit; point: int32 [rows], the row of a multiple after the point
    leading: int32 [bounds], the row before the first digit of a number that has a whole part
    whole: int32 [bounds], how many whole digits the bound has
    low, high: which bounds are that, or -1; required: how many of the multiples numbers must be, the first or none
    most_whole: from how many whole digits on more make no difference
    most_places: how many digits a mantissa may have behind the point where there are multiples
    has_point, has_mantissa: whether a fraction may follow, and an exponent
    """

    after: Table[np.int32]
    point: Vector[np.int32]
    leading: Vector[np.int32]
    whole: Vector[np.int32]
    multiples: int
    low: int
    high: int
    required: int
    most_whole: int
    most_places: int
    has_point: int
    has_mantissa: int


@njit
def explore_numbers(read: NumberConditions, states: Ints, edges: Ints, index: Ints) -> Int:
    """Find all states that differ, from states[0] on: how many they are, or FULL where there is no room.

    states: int32 [room, PARTS + parts]; index: int32 [2**k], more than twice the room, all -1
    edges: int32 [room, SYMBOLS], filled in with the state after each digit and after the point, or DEAD
    """
    count = 1
    enter_first(states, index)
    at = 0
    while at < count:
        if count + SYMBOLS >= len(states):
            return FULL
        for symbol in range(SYMBOLS):
            edges[at, symbol] = DEAD
            if read_symbol(read, states, at, count, symbol):
                edges[at, symbol] = number_of(states, count, index)
                count = max(count, edges[at, symbol] + 1)
        at += 1
    return count


@njit
def find_alive(edges: Ints, alive: Bytes) -> None:
    """Set alive (uint8 [states]) of states that lead to one where it is set.

    edges: int32 [states, symbols], the state after each symbol, below 0 where there is none
    """
    grows = True
    while grows:
        grows = False
        for state in range(len(edges) - 1, -1, -1):  # a state is mostly numbered before those that it leads to
            for symbol in range(edges.shape[1]):
                if not alive[state] and edges[state, symbol] >= 0 and alive[edges[state, symbol]]:
                    alive[state] = 1
                    grows = True


@inner_njit
def read_symbol(read: NumberConditions, states: Ints, at: Int, to: Int, symbol: Int) -> bool:
    """Write down the state after a digit or the point; False if there is none."""
    for column in range(states.shape[1]):
        states[to, column] = states[at, column]
    phase = states[at, PHASE]
    if symbol == DIGITS:
        return bool(read.has_point) and phase == BEFORE_POINT and read_point(read, states, to)
    if phase == START:
        read_first(read, states, to, symbol)
        return True
    if phase == BEFORE_POINT:
        return states[at, WHOLE] != ZERO and read_whole(read, states, to, symbol)
    return read_fraction(read, states, to, symbol)


@inner_njit
def read_first(read: NumberConditions, states: Ints, to: Int, digit: Int) -> None:
    bounds = len(read.whole)
    states[to, PHASE] = BEFORE_POINT
    states[to, WHOLE] = 1 if digit else ZERO
    for part in range(bounds):
        if digit:
            states[to, PARTS + part] = read.after[read.leading[part], digit]
        elif read.whole[part]:
            states[to, PARTS + part] = BELOW
    follow_digit(read, states, to, bounds, bounds + read.multiples, digit)
    if digit and read.has_mantissa:
        states[to, TAIL] = ONLY_ZEROS
        follow_digit(read, states, to, bounds + read.multiples, states.shape[1] - PARTS, digit)
    else:
        drop_mantissa(read, states, to)


@inner_njit
def follow_digit(read: NumberConditions, states: Ints, to: Int, first: Int, end: Int, digit: Int) -> None:
    for part in range(first, end):
        states[to, PARTS + part] = read.after[states[to, PARTS + part], digit]


@inner_njit
def drop_mantissa(read: NumberConditions, states: Ints, to: Int) -> None:
    states[to, TAIL] = NO_MANTISSA
    states[to, PLACES] = 0
    for column in range(PARTS + len(read.whole) + read.multiples, states.shape[1]):
        states[to, column] = 0


@inner_njit
def read_whole(read: NumberConditions, states: Ints, to: Int, digit: Int) -> bool:
    """As `read_symbol`, for a digit before the point that is not the first."""
    bounds = len(read.whole)
    count = min(states[to, WHOLE] + 1, read.most_whole)
    states[to, WHOLE] = count
    for part in range(bounds):
        if count > read.whole[part]:
            states[to, PARTS + part] = ABOVE
        else:
            states[to, PARTS + part] = read.after[states[to, PARTS + part], digit]
    if read.high >= 0 and count >= read.whole[read.high] and states[to, PARTS + read.high] == ABOVE:
        return False
    follow_digit(read, states, to, bounds, bounds + read.multiples, digit)
    drop_mantissa(read, states, to)
    return True


@inner_njit
def read_point(read: NumberConditions, states: Ints, to: Int) -> bool:
    first = PARTS + len(read.whole)
    for column in range(first, first + read.multiples):
        states[to, column] = read.point[states[to, column]]
    states[to, PHASE] = POINT
    if states[to, TAIL] != NO_MANTISSA:
        return True
    if read.required and states[to, first] == HOPELESS:
        return False
    return states[to, WHOLE] == ZERO or decide(read, states, to)


@inner_njit
def decide(read: NumberConditions, states: Ints, to: Int) -> bool:
    """Forget how many whole digits there were, behind the point; False if no fraction brings it into the bounds."""
    count = states[to, WHOLE]
    if count > 0:
        for part in range(len(read.whole)):
            if count != read.whole[part]:
                states[to, PARTS + part] = BELOW if count < read.whole[part] else ABOVE
    states[to, WHOLE] = DECIDED
    if read.low >= 0 and states[to, PARTS + read.low] == BELOW:
        return False
    return read.high < 0 or states[to, PARTS + read.high] != ABOVE


@inner_njit
def read_fraction(read: NumberConditions, states: Ints, to: Int, digit: Int) -> bool:
    """As `read_symbol`, for a digit behind the point."""
    first = len(read.whole)
    states[to, PHASE] = FRACTION
    follow_digit(read, states, to, 0, first + read.multiples, digit)
    if states[to, TAIL] != NO_MANTISSA and follow_mantissa(read, states, to, digit):
        return True
    drop_mantissa(read, states, to)
    if read.required and states[to, PARTS + first] == HOPELESS:
        return False
    return (states[to, WHOLE] == ZERO and digit == 0) or decide(read, states, to)


@inner_njit
def follow_mantissa(read: NumberConditions, states: Ints, to: Int, digit: Int) -> bool:
    """Read a digit behind the point as part of a mantissa; False if no exponent may follow any more.

    As long as the fraction is all zeros, what is left of the mantissa is that of its first digit.
    """
    greatest = len(read.whole) + read.multiples
    follow_digit(read, states, to, greatest, greatest + 1, digit)
    if not read.multiples:
        return True
    places = states[to, PLACES]
    only_zeros = states[to, TAIL] == ONLY_ZEROS
    if only_zeros and digit == 0:
        states[to, PLACES] = min(places + 1, read.most_places)
        return True
    if places >= read.most_places:
        return False
    for _ in range(places if only_zeros else 0):
        follow_digit(read, states, to, greatest + 1, states.shape[1] - PARTS, 0)
    follow_digit(read, states, to, greatest + 1, states.shape[1] - PARTS, digit)
    states[to, TAIL] = NOT_ZERO if digit else ZERO_AGAIN
    states[to, PLACES] = places + 1
    return True
