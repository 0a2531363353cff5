"""Which shortcut there is to the mask of a state.

Return codes are those of kernels/chart.py.
"""

from .bundles import signature
from .chart import DEAD, HEADER, ITEM, SPAN
from .interning import HI, LO
from .rows import ASCII_HIGH, ASCII_LOW, fill_low
from .walk import high_loops, loop_target
from .wide import inner_njit, njit

# What `probe` answers, and where it puts what.
LOOP, BESIDE, SPANNED = 1, 2, 3
USUAL, KIND = 3, 4
# So many of the 95 printable characters must lead to the usual state.
MANY = 60


@inner_njit
def usual_state(chart, state, row):
    """The looping state that most printable ASCII characters lead to from another one; DEAD if there is none.

    The majority is found as by Boyer and Moore.
    """
    usual, lead, count = DEAD, 0, 0
    for byte in range(0x20, 0x7F):
        after = chart.rows[row, byte]
        if lead == 0:
            usual = after
        lead += 1 if after == usual else -1
    for byte in range(0x20, 0x7F):
        count += chart.rows[row, byte] == usual
    return usual if usual >= 0 and usual != state and count >= MANY else DEAD


@njit
def probe(graph, chart, state, found):
    """The signature of a state, or a code; what shortcut there is to its mask.

    found: uint64 [5], the characters of the loop or the span (ASCII in two words, then whether all others); USUAL, the
    state beside which `walk_beside` may walk; KIND: 0 (no shortcut), LOOP, BESIDE or SPANNED
    """
    code = find_shortcut(graph, chart, state, found)
    if code < 0:
        return code
    found[KIND] = code
    return signature(graph, chart, state)


@inner_njit
def find_shortcut(graph, chart, state, found):
    """What shortcut there is to the mask of a state, as `probe`; 0, LOOP, BESIDE, SPANNED, or a code."""
    row = fill_low(graph, chart, state)
    if row < 0:
        return row
    usual = usual_state(chart, state, row)
    if usual >= 0:
        beside = fill_low(graph, chart, usual)
        if beside < 0:
            return beside
        if loop_target(chart, beside) == usual:
            found[USUAL] = usual
            return BESIDE
    loop = 0
    low, high = chart.loops[row, ASCII_LOW], chart.loops[row, ASCII_HIGH]
    if low | high:
        wide = high_loops(graph, chart, state, row)
        if wide < 0:
            return wide
        found[0], found[1], found[2] = low, high, wide
        loop = LOOP
    words = chart.words
    for at in range(chart.states[state, LO] + HEADER, chart.states[state, HI], ITEM):
        span = graph.nodes[words[at], SPAN]
        if span and (loop == 0 or low != graph.spans[span, 0] or high != graph.spans[span, 1]):
            for k in range(3):
                found[k] = graph.spans[span, k]
            return SPANNED
    return loop
