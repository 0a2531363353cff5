"""The ways by which states were come to: what lets a state be given up and be worked out again when it is wanted.

A state that a token led to remembers the state before it and where that token's bytes are. Its words may then be
dropped, so that it is *asleep*; its number stays, and means the same. When it is asked for, the tokens are read again
from the nearest state on the way that is awake.

Kernels answer as kernels/answers.py says.
"""

from __future__ import annotations

import numpy as np

from ..answers import DEAD, FULL, NEVER, UNREADY
from ..jit.aliases import Bytes, Int, Ints
from ..jit.arrays import Arrays, Vector
from ..jit.wide import njit
from .interning import HI, LO, WORDS
from .layout import ASLEEP, FIRST, KEPT, LAST, PARENT, PINNED, ROW, SIGNATURE, STATES, UNSET, Chart, GraphArrays
from .rows import advance, fill_row


class TokenBytes(Arrays):
    """The bytes of all tokens: token t is data[start[t]:start[t + 1]], empty if it has none."""

    data: Vector[np.uint8]
    start: Vector[np.int32]


@njit
def follow(graph: GraphArrays, chart: Chart, tokens: TokenBytes, state: Int, token: Int) -> Int:
    """The state after a token's bytes, which are remembered as the way to it if it is new; or a code.

    DEAD for a token without bytes. Any number may be given as the state.
    """
    states = chart.states
    if state < 0 or state >= chart.sizes[STATES] or states[state, KEPT] < 0 or states[state, HI] == ASLEEP:
        return UNREADY
    first, last = tokens.start[token], tokens.start[token + 1]
    if first == last:
        return DEAD
    after = advance(graph, chart, state, tokens.data, first, last)
    if after >= 0 and chart.states[after, PARENT] == UNSET:
        chart.states[after, PARENT] = state
        chart.states[after, FIRST] = first
        chart.states[after, LAST] = last
    return after


@njit
def follow_each(graph: GraphArrays, chart: Chart, tokens: TokenBytes, state: Int, ids: Ints, after: Ints) -> Int:
    """As `follow`, of several tokens: 0, or a code, after which all is as before but for what is in `after`.

    ids: int32 [n]; after: int32 [n], the states that they lead to, NEVER where that is not known yet
    """
    for at in range(len(ids)):
        if after[at] == NEVER:
            found = follow(graph, chart, tokens, state, np.int64(ids[at]))
            if found < DEAD:
                return found
            after[at] = found
    return 0


@njit
def pin(graph: GraphArrays, chart: Chart, state: Int, data: Bytes, first: Int, last: Int) -> Int:
    """The state after the bytes data[first:last], which nothing else remembers: it never sleeps; or a code."""
    after = advance(graph, chart, state, data, first, last)
    if after >= 0 and chart.states[after, PARENT] == UNSET:
        chart.states[after, PARENT] = PINNED
    return after


@njit
def kept_row(graph: GraphArrays, chart: Chart, state: Int) -> Int:
    """The number of the state's row, all of whose states somebody is given; or a code."""
    row = fill_row(graph, chart, state)
    if row >= 0:
        states = chart.states
        for byte in range(0x100):
            after = chart.rows[row, byte]
            if after >= 0:
                states[after, KEPT] = 1
                if states[after, PARENT] == UNSET:
                    states[after, PARENT] = PINNED
    return row


@njit
def least_texts(graph: GraphArrays, chart: Chart, state: Int, wanted: Bytes, steps: Int, most: Int) -> Int:
    """A number of texts of wanted bytes that lead on from a state, at least, up to `most`; or a code.

    Of each state the bytes are counted that lead to the one to which most of them do, for so many steps; `most` where
    one leads back to the state. wanted: uint8 [256]
    """
    found = np.int64(1)
    targets, counts = np.empty(0x100, np.int32), np.empty(0x100, np.int32)
    for _ in range(steps):
        row = fill_row(graph, chart, state)
        if row < 0:
            return row
        size, best = 0, -1
        for byte in range(0x100):
            after = chart.rows[row, byte]
            if wanted[byte] and after >= 0:
                if after == state:
                    return most
                at = 0
                while at < size and targets[at] != after:
                    at += 1
                if at == size:
                    targets[at], counts[at] = after, 0
                    size += 1
                counts[at] += 1
                if best < 0 or counts[at] > counts[best]:
                    best = at
        if best < 0:
            break
        found *= np.int64(counts[best])
        if found >= most:
            return most
        state = np.int64(targets[best])
    return found


@njit
def put_to_sleep(states: Ints, count: Int, stride: Int) -> Int:
    """Put states that nobody was given since the last time to sleep, but for every so many; returns how many."""
    asleep = 0
    for state in range(count):
        is_idle = states[state, KEPT] == 0 and states[state, PARENT] >= 0 and states[state, HI] >= 0
        if is_idle and state % stride:
            states[state, LO], states[state, HI] = 0, ASLEEP
            states[state, ROW], states[state, SIGNATURE] = -1, -1
            asleep += 1
    return asleep


@njit
def grow_old(states: Ints, count: Int) -> Int:
    """Note that nobody was given any of the states from now on."""
    for state in range(count):
        if states[state, KEPT] > 0:
            states[state, KEPT] = 0
    return 0


@njit
def rouse(graph: GraphArrays, chart: Chart, state: Int, asleep: Int, data: Bytes, first: Int, last: Int) -> Int:
    """Give the state `asleep` the words of the state after data[first:last], which it is; 0 or a code."""
    states = chart.states
    same = advance(graph, chart, state, data, first, last)
    if same < 0:
        return same
    if states[same, PARENT] == UNSET:
        states[same, KEPT] = -1  # a number of our own, which nobody was given
    used, lo, hi = chart.sizes[WORDS], states[same, LO], states[same, HI]
    if used + hi - lo > len(chart.words):
        return FULL
    for at in range(lo, hi):
        chart.words[used + at - lo] = chart.words[at]
    chart.sizes[WORDS] = used + hi - lo
    states[asleep, LO], states[asleep, HI], states[asleep, KEPT] = used, used + hi - lo, 1
    return 0
