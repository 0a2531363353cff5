"""Shortcuts to the mask of a state. Kernels return the codes of kernels/answers.py."""

from __future__ import annotations

import numpy as np

from ..answers import DEAD
from ..chart.interning import HI, LO
from ..chart.layout import (
    EDGE_FIRST,
    EDGE_HI,
    EDGE_LAST,
    EDGE_LO,
    HEADER,
    ITEM,
    ITEM_NODE,
    SPAN,
    SPAN_HIGH,
    SPAN_LEADS,
    SPAN_LOW,
    Chart,
    GraphArrays,
)
from ..chart.return_sets import signature
from ..chart.rows import ASCII_HIGH, ASCII_LOW, PENDING, fill_low, loop_row, step
from ..jit.aliases import Bits, Int
from ..jit.wide import inner_njit, njit
from .branches import loop_leads, loop_target

# Kinds of shortcuts.
NONE, LOOP, BESIDE, SPANNED = range(4)
# Entries of `found` in `probe`: the characters of the loop or span (ASCII in two words of bits, then lead bytes as in
# Chart.loops); the state for `walk_beside`; the kind. Entries that the kind does not use are undefined.
LOW, HIGH, OF_LEADS, USUAL, KIND = range(5)
# Least number of the 95 printable characters that must lead to the usual state.
MANY = 60


@inner_njit
def usual_state(graph: GraphArrays, chart: Chart, state: Int, row: Int) -> Int:
    """Return the looping state that most printable ASCII characters lead to from another one; DEAD, or a code.

    Characters that begin names and other fixed texts are skipped: they lead elsewhere, and need no states here. The
    majority of the others is found by the vote of Boyer and Moore.
    """
    nodes, edges, words = graph.nodes, graph.edges, chart.words
    fixed = np.zeros(0x80, np.uint8)
    for at in range(chart.states[state, LO] + HEADER, chart.states[state, HI], ITEM):
        first = nodes[words[at + ITEM_NODE], EDGE_LO]
        low, high = edges[first, EDGE_FIRST], edges[first, EDGE_LAST]
        if nodes[words[at + ITEM_NODE], EDGE_HI] == first + 1 and low == high < 0x80:
            fixed[low] = 1
    open_ones = 0
    for byte in range(0x20, 0x7F):
        open_ones += not fixed[byte] and chart.rows[row, byte] != DEAD
    if open_ones < MANY:
        return DEAD
    usual, votes, count = DEAD, 0, 0
    for byte in range(0x20, 0x7F):
        if fixed[byte]:
            continue
        after = chart.rows[row, byte]
        if after == PENDING:
            after = step(graph, chart, state, row, byte)
            if after < DEAD:
                return after
        if votes == 0:
            usual = after
        votes += 1 if after == usual else -1
    for byte in range(0x20, 0x7F):
        count += not fixed[byte] and chart.rows[row, byte] == usual
    return usual if usual >= 0 and usual != state and count >= MANY else DEAD


@njit
def probe(graph: GraphArrays, chart: Chart, state: Int, found: Bits) -> Int:
    """Find the shortcut to the mask of a state. Return the state's signature, or a code.

    found: uint64 [5], by `LOW` to `KIND`
    """
    code = find_shortcut(graph, chart, state, found)
    if code < 0:
        return code
    found[KIND] = code
    return signature(graph, chart, state)


@inner_njit
def find_shortcut(graph: GraphArrays, chart: Chart, state: Int, found: Bits) -> Int:
    """Find the shortcut to the mask of a state for `probe`. Return its kind, or a code."""
    row = loop_row(graph, chart, state)
    if row < 0:
        return row
    usual = usual_state(graph, chart, state, row)
    if usual < DEAD:
        return usual
    if usual >= 0:
        beside = fill_low(graph, chart, usual)
        if beside < 0:
            return beside
        # Not if the usual state has another usual state: in a counted repetition this would go on from count to count.
        another = usual_state(graph, chart, usual, beside)
        if another < DEAD:
            return another
        if another == DEAD and loop_target(chart, beside) == usual:
            found[USUAL] = usual
            return BESIDE
    loop = NONE
    low, high = chart.loops[row, ASCII_LOW], chart.loops[row, ASCII_HIGH]
    if low | high:
        leads = loop_leads(graph, chart, state, row)
        if leads < 0:
            return leads
        found[LOW], found[HIGH], found[OF_LEADS] = low, high, leads
        loop = LOOP
    words = chart.words
    for at in range(chart.states[state, LO] + HEADER, chart.states[state, HI], ITEM):
        span = graph.nodes[words[at + ITEM_NODE], SPAN]
        if span and (loop == NONE or low != graph.spans[span, SPAN_LOW] or high != graph.spans[span, SPAN_HIGH]):
            found[LOW], found[HIGH] = graph.spans[span, SPAN_LOW], graph.spans[span, SPAN_HIGH]
            found[OF_LEADS] = graph.spans[span, SPAN_LEADS]
            return SPANNED
    return loop
