"""Walks of the token trie over the chart's transition rows: which tokens may follow a state.

A walk visits the trie in preorder and drops a subtree as soon as its bytes lead nowhere. Two shortcuts keep
it from visiting what it need not: a subtree all of whose bytes stay in a *loop* of the state (as inside a
JSON string) is allowed whole, and a state that is such a loop is answered from the vocabulary's tables for
that loop (see `Split`), so that only the tokens that leave it are walked.

All return codes are those of kernels/chart.py.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .chart import DEAD, EXPAND, ROW
from .rows import (
    ASCII_HIGH,
    ASCII_LOW,
    HIGH_KNOWN,
    HIGH_LOOPS,
    PENDING,
    ROOM,
    ROOM_SHIFT,
    fill_low,
    fill_row,
    step_high,
)
from .wide import inner_njit, njit, shared_njit

# Values of Trie.high: no byte above ASCII below the node; only well-formed UTF-8; something else.
NO_HIGH, WELL_FORMED, ILL_FORMED = 0, 1, 2
# What every well-formed character of more than one byte looks like: lead bytes, second bytes, bytes after that.
FORMS = np.array(
    [
        (0xC2, 0xDF, 0x80, 0xBF, 0),
        (0xE0, 0xE0, 0xA0, 0xBF, 1),
        (0xE1, 0xEC, 0x80, 0xBF, 1),
        (0xED, 0xED, 0x80, 0x9F, 1),
        (0xEE, 0xEF, 0x80, 0xBF, 1),
        (0xF0, 0xF0, 0x90, 0xBF, 2),
        (0xF1, 0xF3, 0x80, 0xBF, 2),
        (0xF4, 0xF4, 0x80, 0x8F, 2),
    ],
    dtype=np.int32,
)


class TokenTrie(NamedTuple):
    """The trie of a vocabulary and what lies below each of its nodes, for the walks.

    byte: uint8 [n]; skip, depth: int32 [n]; token_start: int32 [n + 1]; ids: int32 [tokens] (preorder, node 0 = root)
    ascii: uint64 [n, 2], the ASCII bytes below the node; high: uint8 [n]; chars: int32 [n], the most characters
    begun below the node along one path; deepest: the length of the longest token
    """

    byte: NDArray[np.uint8]
    skip: NDArray[np.int32]
    depth: NDArray[np.int32]
    token_start: NDArray[np.int32]
    ids: NDArray[np.int32]
    ascii: NDArray[np.uint64]
    high: NDArray[np.uint8]
    chars: NDArray[np.int32]
    deepest: int


@inner_njit
def utf8_step(state, byte):
    """A small automaton of well-formed UTF-8: 0 is a character boundary, -1 is ill-formed."""
    if state == 0:
        if byte < 0x80:
            return 0
        for i in range(len(FORMS)):
            if FORMS[i, 0] <= byte <= FORMS[i, 1]:
                return i + 1
        return -1
    if state <= 8:
        form = state - 1
        if FORMS[form, 2] <= byte <= FORMS[form, 3]:
            return 0 if FORMS[form, 4] == 0 else 8 + FORMS[form, 4]
        return -1
    if 0x80 <= byte <= 0xBF:
        return 0 if state == 9 else 9
    return -1


@njit
def annotate(byte, skip, ascii, high, chars):
    """Fill TokenTrie.ascii, .high and .chars, bottom up."""
    count = len(byte)
    formed = np.full(count, (1 << 11) - 1, np.int32)
    for node in range(count - 1, -1, -1):
        child = node + 1
        has_high = False
        while child < skip[node]:
            value = np.int32(byte[child])
            ascii[node, 0] |= ascii[child, 0]
            ascii[node, 1] |= ascii[child, 1]
            if value < 0x80:
                ascii[node, value >> 6] |= np.uint64(1) << np.uint64(value & 63)
            has_high |= value >= 0x80 or high[child] != NO_HIGH
            begun = chars[child] + (1 if value & 0xC0 != 0x80 else 0)
            chars[node] = max(chars[node], begun)
            for state in range(11):
                after = utf8_step(state, value)
                if after < 0 or formed[child] >> after & 1 == 0:
                    formed[node] &= ~(1 << state)
            child = skip[child]
        if has_high:
            high[node] = WELL_FORMED if formed[node] & 1 else ILL_FORMED


@inner_njit
def only_lead(chart, row, first, last, target):
    """Whether the bytes first ... last lead to `target` and all others nowhere."""
    for byte in range(256):  # noqa: SIM110
        if chart.rows[row, byte] != (target if first <= byte <= last else DEAD):
            return False
    return True


@inner_njit
def form_loops(graph, chart, state, form, target):
    """1 if what follows a lead byte of one form of UTF-8, from `state`, leads just to `target`, else 0; or a code."""
    last = FORMS[form, 4]
    first, final = FORMS[form, 2], FORMS[form, 3]
    while True:
        row = fill_row(graph, chart, state)
        if row < 0:
            return row
        after = target if last == 0 else chart.rows[row, first]
        if after < 0 or not only_lead(chart, row, first, final, after):
            return 0
        if last == 0:
            return 1
        state, first, final, last = after, 0x80, 0xBF, last - 1


@inner_njit
def loop_target(chart, row):
    """The state that the loop bytes of a row lead to, or DEAD without a loop."""
    for half in range(2):
        bits = chart.loops[row, half]
        if bits:
            byte = 0
            while bits >> np.uint64(byte) & np.uint64(1) == 0:
                byte += 1
            return chart.rows[row, 64 * half + byte]
    return DEAD


@shared_njit
def high_loops(graph, chart, state, row):
    """1 if every character above ASCII loops as the row's ASCII loop does, else 0; or a code. Remembers the answer."""
    info = chart.loops[row, ROOM]
    if info & HIGH_KNOWN:
        return 1 if info & HIGH_LOOPS else 0
    code = fill_row(graph, chart, state)
    if code < 0:
        return code
    target = loop_target(chart, row)
    answer = 1
    previous, previous_form = DEAD, -1
    for form in range(len(FORMS)):
        for lead in range(FORMS[form, 0], FORMS[form, 1] + 1):
            after = chart.rows[row, lead]
            if after < 0:
                answer = 0
            elif answer == 1 and (after != previous or form != previous_form):
                answer = form_loops(graph, chart, after, form, target)
                if answer < 0:
                    return answer
                previous, previous_form = after, form
    chart.loops[row, ROOM] |= HIGH_KNOWN | (HIGH_LOOPS if answer == 1 else np.uint64(0))
    return answer


@inner_njit
def allow(trie, first, last, out):
    """Set the bits of the tokens ids[first:last]."""
    for at in range(first, last):
        token = trie.ids[at]
        out[token >> 5] |= np.uint32(1) << np.uint32(token & 31)


@njit
def allow_span(trie, first, last, out):
    """`allow`, to be called from Python."""
    allow(trie, first, last, out)


@inner_njit
def refuse(trie, first, last, out):
    """Clear the bits of the tokens ids[first:last]."""
    for at in range(first, last):
        token = trie.ids[at]
        out[token >> 5] &= ~(np.uint32(1) << np.uint32(token & 31))


@njit
def walk(graph, chart, trie, state, root, out):
    """Allow every token below the trie node `root` whose bytes after it can be read from `state`; 0 or a code.

    What is known already is read from the arrays in place: a call per node would cost more than the node.
    Where a lazy node is in the way the walk goes on elsewhere, to ask for all of them at once.
    """
    row = fill_low(graph, chart, state)
    if row < 0:
        return row
    missing = 0
    base = trie.depth[root]
    stack = np.empty(trie.deepest + 1, np.int32)
    passed = np.empty(trie.deepest + 1, np.int32)
    stack[0], passed[0] = row, state
    node, end = root + 1, trie.skip[root]
    starts, skip, rows, states, loops = trie.token_start, trie.skip, chart.rows, chart.states, chart.loops
    while node < end:
        level = trie.depth[node] - base
        after = rows[stack[level - 1], trie.byte[node]]
        if after == PENDING:
            after = step_high(graph, chart, passed[level - 1], stack[level - 1], trie.byte[node])
        if after < 0:
            if after == EXPAND:
                missing = EXPAND
            elif after < DEAD:
                return after
            node = skip[node]
            continue
        if skip[node] == node + 1:
            allow(trie, starts[node], starts[node + 1], out)
            node += 1
            continue
        row = states[after, ROW]
        if row < 0:
            row = fill_low(graph, chart, after)
            if row == EXPAND:
                missing = EXPAND
                node = skip[node]
                continue
            if row < 0:
                return row
        low, high = loops[row, ASCII_LOW], loops[row, ASCII_HIGH]
        covered = 0
        if (
            low | high
            and trie.ascii[node, 0] & ~low == 0
            and trie.ascii[node, 1] & ~high == 0
            and trie.high[node] != ILL_FORMED
            and np.uint64(trie.chars[node]) <= loops[row, ROOM] >> ROOM_SHIFT
        ):
            covered = high_loops(graph, chart, after, row) if trie.high[node] == WELL_FORMED else 1
            if covered == EXPAND:
                missing = EXPAND
                node = skip[node]
                continue
            if covered < 0:
                return covered
        if covered:
            allow(trie, starts[node], starts[skip[node]], out)
            node = skip[node]
        else:
            allow(trie, starts[node], starts[node + 1], out)
            stack[level], passed[level] = row, after
            node += 1
    return missing


@njit
def successors(graph, chart, trie, state, root, out):
    """Write the state after each token below `root`, read from its bytes after it, to out; 0 or a code.

    out: int32, in the order of trie.ids; DEAD where the token is not allowed
    """
    out[:] = DEAD
    stack = np.empty(trie.deepest + 1, np.int32)
    row = fill_row(graph, chart, state)
    if row < 0:
        return row
    stack[0] = row
    starts, skip, rows, states = trie.token_start, trie.skip, chart.rows, chart.states
    base, first = trie.depth[root], starts[root + 1]
    node, end = root + 1, skip[root]
    while node < end:
        level = trie.depth[node] - base
        after = rows[stack[level - 1], trie.byte[node]]
        if after < 0:
            node = skip[node]
            continue
        for at in range(starts[node], starts[node + 1]):
            out[at - first] = after
        if skip[node] > node + 1:
            row = states[after, ROW]
            if row < 0 or rows[row, 0xFF] == PENDING:
                row = fill_row(graph, chart, after)
                if row < 0:
                    return row
            stack[level] = row
        node += 1
    return 0
