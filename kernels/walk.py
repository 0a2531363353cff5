"""Walks of the token trie over the chart's transition rows: which tokens may follow a state.

A walk visits the trie in preorder and drops a subtree as soon as its bytes lead nowhere. Two shortcuts keep
it from visiting what it need not: a subtree all of whose bytes stay in a *loop* of the state (as inside a
JSON string) is allowed whole, and a state that is such a loop is answered from the vocabulary's tables for
that loop (see `Split`), so that only the tokens that leave it are walked.

All return codes are those of kernels/chart.py.
"""

import numpy as np

from .arrays import Arrays, Table, Vector
from .chart import DEAD, EXPAND, HEADER, ROW
from .interning import HI, LO
from .rows import (
    ASCII_HIGH,
    ASCII_LOW,
    COMPLETE,
    HIGH_KNOWN,
    HIGH_LOOPS,
    LOOP_KNOWN,
    PENDING,
    ROOM,
    ROOM_SHIFT,
    fill_range,
    fill_row,
    loop_row,
    open_row,
    step,
)
from .wide import inner_njit, njit, shared_njit

# Columns of Branches.tokens and of Branches.below. In the last one the most characters begun are above two bits, which
# say whether there is no byte above ASCII below the node, only well-formed UTF-8, or something else.
OWN, OWN_END, SUBTREE_END = range(3)
BELOW_LOW, BELOW_HIGH, BEYOND = range(3)
NO_HIGH, WELL_FORMED, ILL_FORMED = 0, 1, 2
BEGUN_SHIFT, KIND_MASK = np.uint64(2), np.uint64(3)
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


class TokenTrie(Arrays):
    """The trie of a vocabulary in preorder; see `tokenizers_adapter.Trie`.

    byte: uint8 [n]; skip, depth: int32 [n]; token_start: int32 [n + 1]; ids: int32 [tokens] (node 0 = root)
    deepest: the length of the longest token
    """

    byte: Vector[np.uint8]
    skip: Vector[np.int32]
    depth: Vector[np.int32]
    token_start: Vector[np.int32]
    ids: Vector[np.int32]
    deepest: int


class Branches(Arrays):
    """The same trie by levels, for walks: the children of a node lie side by side, in the order of their bytes.

    A walk looks at all children of the nodes that it comes to, and at little else; so what it needs of a node lies
    together, since the trie does not fit the caches.

    first: int32 [n + 1], the first child of each node; they end where those of the next node begin
    byte: uint8 [n]; ids: int32 [tokens], as those of `TokenTrie`
    tokens: int32 [n, 3], where in ids the tokens of a node begin and end, and where those of its whole subtree end
    below: uint64 [n, 3], the ASCII bytes below the node in two words; the most characters begun below the node along
    one path, with what there is beyond ASCII: NO_HIGH, WELL_FORMED or ILL_FORMED
    deepest: the length of the longest token
    """

    first: Vector[np.int32]
    byte: Vector[np.uint8]
    ids: Vector[np.int32]
    tokens: Table[np.int32]
    below: Table[np.uint64]
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
def annotate(byte, skip, below):
    """Fill `Branches.below` for the nodes of a trie in preorder, bottom up."""
    count = len(byte)
    formed = np.full(count, (1 << 11) - 1, np.int32)
    for node in range(count - 1, -1, -1):
        child = node + 1
        has_high = False
        most = 0
        while child < skip[node]:
            value = np.int32(byte[child])
            below[node, BELOW_LOW] |= below[child, BELOW_LOW]
            below[node, BELOW_HIGH] |= below[child, BELOW_HIGH]
            if value < 0x80:
                below[node, value >> 6] |= np.uint64(1) << np.uint64(value & 63)
            has_high |= value >= 0x80 or below[child, BEYOND] & KIND_MASK != NO_HIGH
            begun = np.int64(below[child, BEYOND] >> BEGUN_SHIFT) + (1 if value & 0xC0 != 0x80 else 0)
            most = max(most, begun)
            for state in range(11):
                after = utf8_step(state, value)
                if after < 0 or formed[child] >> after & 1 == 0:
                    formed[node] &= ~(1 << state)
            child = skip[child]
        kind = NO_HIGH
        if has_high:
            kind = WELL_FORMED if formed[node] & 1 else ILL_FORMED
        below[node, BEYOND] = np.uint64(most << 2 | kind)


@njit
def raise_parents(parents, values):
    """Raise the value of each node of a trie in preorder to the greatest below it."""
    for node in range(len(parents) - 1, 0, -1):
        values[parents[node]] = max(values[parents[node]], values[node])


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
    code = fill_range(graph, chart, state, row, 0x80, 0x100)
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


@inner_njit
def is_covered(graph, chart, trie, node, state, row):
    """1 if all that is below a node of the trie stays in the loop of `state`, else 0; or a code."""
    low, high, beyond = trie.below[node, BELOW_LOW], trie.below[node, BELOW_HIGH], trie.below[node, BEYOND]
    if low & ~chart.loops[row, ASCII_LOW] or high & ~chart.loops[row, ASCII_HIGH]:
        return 0
    if beyond & KIND_MASK == ILL_FORMED or beyond >> BEGUN_SHIFT > chart.loops[row, ROOM] >> ROOM_SHIFT:
        return 0
    return high_loops(graph, chart, state, row) if beyond & KIND_MASK == WELL_FORMED else 1


@njit
def walk(graph, chart, trie, state, root, out):
    """Allow every token below the node `root` of Branches whose bytes after it can be read from `state`; 0 or a code.

    What is known already is read from the arrays in place: a call per node would cost more than the node.
    Where a lazy node is in the way the walk goes on elsewhere, to ask for all of them at once.
    """
    row = open_row(graph, chart, state)
    if row < 0:
        return row
    missing = 0
    stack = np.empty((trie.deepest + 1, 4), np.int32)
    level = 0
    first, byte, tokens, rows, states, loops = trie.first, trie.byte, trie.tokens, chart.rows, chart.states, chart.loops
    at, end = first[root], first[root + 1]
    while True:
        while at < end and rows[row, byte[at]] == DEAD:
            at += 1
        if at == end:
            if level == 0:
                return missing
            level -= 1
            row, state, at, end = stack[level, 0], stack[level, 1], stack[level, 2], stack[level, 3]
            continue
        child = at
        at += 1
        after = rows[row, byte[child]]
        if after == PENDING:
            after = step(graph, chart, state, row, byte[child])
        if after < 0:
            if after == EXPAND:
                missing = EXPAND
            elif after < DEAD:
                return after
            continue
        if first[child] == first[child + 1]:
            allow(trie, tokens[child, OWN], tokens[child, OWN_END], out)
            continue
        below = states[after, ROW]
        if below < 0 or loops[below, ROOM] & LOOP_KNOWN == 0:
            below = loop_row(graph, chart, after)
        covered = 0
        if below >= 0 and loops[below, ASCII_LOW] | loops[below, ASCII_HIGH]:
            covered = is_covered(graph, chart, trie, child, after, below)
        if below == EXPAND or covered == EXPAND:
            missing = EXPAND
            continue
        if below < 0 or covered < 0:
            return min(below, covered)
        if covered:
            allow(trie, tokens[child, OWN], tokens[child, SUBTREE_END], out)
            continue
        allow(trie, tokens[child, OWN], tokens[child, OWN_END], out)
        stack[level, 0], stack[level, 1], stack[level, 2], stack[level, 3] = row, state, at, end
        level += 1
        row, state, at, end = below, after, first[child], first[child + 1]


@inner_njit
def leads_on(chart, state):
    """Whether the state has items, so that more bytes may follow."""
    return chart.states[state, HI] - chart.states[state, LO] > HEADER


@inner_njit
def leave(graph, chart, trie, node, after, out):
    """Allow the tokens at and below a node whose byte led to `after`; 0 or a code."""
    allow(trie, trie.tokens[node, OWN], trie.tokens[node, OWN_END], out)
    if trie.first[node] < trie.first[node + 1] and leads_on(chart, after):
        return walk(graph, chart, trie, after, node, out)
    return 0


@njit
def walk_beside(graph, chart, trie, state, usual, out):
    """Turn the mask of the state `usual` in `out` into that of `state`; 0 or a code.

    Both are read side by side. Where they come to the same state there is nothing to do, and so this is quick for
    states that most bytes lead back to the usual one, as in the names of an object that may have others as well.
    """
    row, other = open_row(graph, chart, state), open_row(graph, chart, usual)
    if row < 0 or other < 0:
        return min(row, other)
    missing = 0
    stack = np.empty((trie.deepest + 1, 6), np.int32)
    level = 0
    first, byte, tokens, rows = trie.first, trie.byte, trie.tokens, chart.rows
    at, end = first[0], first[1]
    while True:
        while at < end and rows[row, byte[at]] == rows[other, byte[at]] and rows[row, byte[at]] != PENDING:
            at += 1
        if at == end:
            if level == 0:
                return missing
            level -= 1
            row, state, other, usual = stack[level, 0], stack[level, 1], stack[level, 2], stack[level, 3]
            at, end = stack[level, 4], stack[level, 5]
            continue
        child = at
        at += 1
        after, common = rows[row, byte[child]], rows[other, byte[child]]
        if after == PENDING:
            after = step(graph, chart, state, row, byte[child])
        if common == PENDING:
            common = step(graph, chart, usual, other, byte[child])
        code = min(after, common)
        if code >= DEAD and after != common:
            if after < 0:
                refuse(trie, tokens[child, OWN], tokens[child, SUBTREE_END], out)
            elif common < 0:
                code = leave(graph, chart, trie, child, after, out)
            elif first[child] < first[child + 1]:
                below, beside = open_row(graph, chart, after), open_row(graph, chart, common)
                code = min(below, beside)
                if code >= 0:
                    stack[level, 0], stack[level, 1], stack[level, 2], stack[level, 3] = row, state, other, usual
                    stack[level, 4], stack[level, 5] = at, end
                    level += 1
                    row, state, other, usual = below, after, beside, common
                    at, end = first[child], first[child + 1]
        if code == EXPAND:
            missing = EXPAND
        elif code < DEAD:
            return code


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
            if row < 0 or chart.loops[row, ROOM] & COMPLETE == 0:
                row = fill_row(graph, chart, after)
                if row < 0:
                    return row
            stack[level] = row
        node += 1
    return 0
