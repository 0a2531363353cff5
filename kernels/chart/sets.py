"""Sets of any size as numbers: what the counts of items stand for where there are too many bits for one of them.

A set is interned as its counter followed by its bits, BITS in a word, without empty words at the end; the empty set
is number 0 and has no words. A guard of such a set says how many of the first bits must be there (ALL), which bit must
be missing (REFUSED - 1) or of how many of the first bits some must be missing (-REFUSED), and which bit is added
(ADDED - 1); KEPT_BITS is 0 where the set is forgotten, and -n where of n bits from REFUSED - 1 on some must be missing.
"""

from __future__ import annotations

from ..answers import CROWDED, DEAD
from ..jit.aliases import Int, Ints
from ..jit.wide import inner_njit
from .interning import HI, LO, intern
from .layout import Chart

BITS = 31
# Entry of Chart.set_sizes: how many sets there are, with the empty one. The others are those of interning.py.
SETS = 1
# Columns of Graph.guards.
ALL, REFUSED, KEPT_BITS, ADDED = range(4)


@inner_njit
def bits_of(chart: Chart, number: Int, word: Int) -> Int:
    """The bits of one word of a set."""
    at = chart.sets[number, LO] + 1 + word
    return int(chart.set_words[at]) if at < chart.sets[number, HI] else 0


@inner_njit
def has_first(chart: Chart, number: Int, count: Int) -> bool:
    """Tell whether the first `count` bits are all there."""
    for word in range(count // BITS):
        if bits_of(chart, number, word) != (1 << BITS) - 1:
            return False
    rest = (1 << (count % BITS)) - 1
    return rest == 0 or bits_of(chart, number, count // BITS) & rest == rest


@inner_njit
def has_all(chart: Chart, number: Int, first: Int, count: Int) -> bool:
    """Tell whether `count` bits from `first` on are all there."""
    at, end = first, first + count
    while at < end:
        here = at % BITS
        some = min(BITS - here, end - at)
        wanted = ((1 << some) - 1) << here
        if bits_of(chart, number, at // BITS) & wanted != wanted:
            return False
        at += some
    return True


@inner_njit
def with_bit(chart: Chart, counter: Int, number: Int, bit: Int) -> Int:
    """The number of a set with one more bit; FULL or CROWDED where there is no room."""
    word = bit // BITS
    known = max(chart.sets[number, HI] - chart.sets[number, LO] - 1, 0)
    length = max(known, word + 1) + 1
    buffer = chart.buffer
    if length > len(buffer):
        return CROWDED
    buffer[0] = counter
    for at in range(length - 1):
        buffer[1 + at] = bits_of(chart, number, at)
    buffer[1 + word] |= 1 << (bit % BITS)
    return intern(chart.set_words, chart.sets, chart.set_index, buffer, length, chart.set_sizes, SETS)


@inner_njit
def pass_guard(chart: Chart, guard: Ints, counter: Int, number: Int) -> Int:
    """The number of the set behind a guard; DEAD if it lets nothing through, or a code."""
    refused = guard[REFUSED]
    if refused > 0 and has_all(chart, number, refused - 1, max(1, -guard[KEPT_BITS])):
        return DEAD
    if refused < 0 and has_first(chart, number, -refused):
        return DEAD
    if not has_first(chart, number, guard[ALL]):
        return DEAD
    if guard[KEPT_BITS] == 0:
        return 0
    return with_bit(chart, counter, number, guard[ADDED] - 1) if guard[ADDED] else number
