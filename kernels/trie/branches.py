"""The token trie by levels, with the tokens and the characters below each node; and the lead bytes that loop.

Kernels return the codes of kernels/answers.py.
"""

from __future__ import annotations

import numpy as np

from ..answers import DEAD
from ..chart.layout import Chart, GraphArrays
from ..chart.rows import FIRST_LEAD, LEADS, LEADS_KNOWN, ROOM, fill_range, fill_row
from ..jit.aliases import Bits, Bytes, Int, Ints, Words
from ..jit.arrays import Arrays, Table, Vector
from ..jit.wide import inner_njit, njit, shared_njit
from ..utf8 import FIRST_NEXT, FORMS, LAST_LEAD, LAST_NEXT, LAST_SECOND, LEAD, MORE, PLACES, SECOND, begins, utf8_step

# Columns of Branches.tokens and of Branches.below. A node with ill-formed UTF-8 below it counts more characters begun
# than any loop has room for.
OWN, OWN_END, SUBTREE_END = range(3)
BELOW_LOW, BELOW_HIGH, BEGUN, BELOW_LEADS, BELOW = range(5)
ILL_FORMED = np.uint64(2**63)


class TokenTrie(Arrays):
    """The trie of a vocabulary in preorder; see `tokenizers_adapter.Trie`.

    byte: uint8 [n]; skip, depth: int32 [n]; token_start: int32 [n + 1]; ids: int32 [tokens] (node 0 = root)
    deepest: length of the longest token
    """

    byte: Vector[np.uint8]
    skip: Vector[np.int32]
    depth: Vector[np.int32]
    token_start: Vector[np.int32]
    ids: Vector[np.int32]
    deepest: int


class Branches(Arrays):
    """The same trie by levels, for walks: the children of a node are adjacent, in the order of their bytes.

    A walk reads all children of the nodes that it visits, and little else. The trie exceeds the caches, so the columns
    of a node lie together.

    first: int32 [n + 1], the first child of each node; its children end where those of the next node begin
    byte: uint8 [n]; ids: int32 [tokens], as in `TokenTrie`
    tokens: int32 [n, 3], begin and end in ids of the node's tokens, and end of its subtree's tokens
    below: uint64 [n, 4], the ASCII bytes below the node in two words; the most characters begun below the node on a
    path, or ILL_FORMED; the lead bytes below the node, as in Chart.loops
    deepest: length of the longest token
    """

    first: Vector[np.int32]
    byte: Vector[np.uint8]
    ids: Vector[np.int32]
    tokens: Table[np.int32]
    below: Table[np.uint64]
    deepest: int


@njit
def annotate(byte: Bytes, skip: Ints, below: Bits) -> None:
    """Compute `Branches.below` for the nodes of a trie in preorder, bottom up."""
    count = len(byte)
    formed = np.full(count, (1 << PLACES) - 1, np.int32)
    chars_begun = np.zeros(count, np.int32)
    for node in range(count - 1, -1, -1):
        child = node + 1
        most = 0
        while child < skip[node]:
            value = np.int32(byte[child])
            below[node, BELOW_LOW] |= below[child, BELOW_LOW]
            below[node, BELOW_HIGH] |= below[child, BELOW_HIGH]
            if value < FIRST_NEXT:
                below[node, value >> 6] |= np.uint64(1) << np.uint64(value & 63)
            below[node, BELOW_LEADS] |= below[child, BELOW_LEADS]
            if value >= FIRST_LEAD:
                below[node, BELOW_LEADS] |= np.uint64(1) << np.uint64(value - FIRST_LEAD)
            most = max(most, chars_begun[child] + (1 if begins(value) else 0))
            for state in range(PLACES):
                after = utf8_step(state, value)
                if after < 0 or formed[child] >> after & 1 == 0:
                    formed[node] &= ~(1 << state)
            child = skip[child]
        chars_begun[node] = most
        below[node, BEGUN] = np.uint64(most) if formed[node] & 1 else ILL_FORMED


@inner_njit
def allow(trie: Branches, first: Int, last: Int, out: Words) -> None:
    """Set the bits of the tokens ids[first:last]."""
    for at in range(first, last):
        token = trie.ids[at]
        out[token >> 5] |= np.uint32(1) << np.uint32(token & 31)


@inner_njit
def refuse(trie: Branches, first: Int, last: Int, out: Words) -> None:
    """Clear the bits of the tokens ids[first:last]."""
    for at in range(first, last):
        token = trie.ids[at]
        out[token >> 5] &= ~(np.uint32(1) << np.uint32(token & 31))


@njit
def find_parents(depth: Ints, parents: Ints) -> None:
    """Write the parent of each node of a trie in preorder (int32 [n]); the root, node 0, is its own parent."""
    deepest = 0
    for node in range(len(depth)):
        deepest = max(deepest, depth[node])
    last = np.zeros(deepest + 1, np.int32)  # the last node visited at each depth
    parents[0] = 0
    for node in range(1, len(depth)):
        parents[node] = last[depth[node] - 1]
        last[depth[node]] = node


@njit
def find_reach(parents: Ints, reach: Ints) -> None:
    """Raise the depth of each node to that of the deepest node in its subtree, in place (int32 [n])."""
    for node in range(len(parents) - 1, 0, -1):
        above = parents[node]
        reach[above] = max(reach[above], reach[node])


@njit
def follow_table(parents: Ints, byte: Bytes, table: Ints, first: Int, end: Int, after: Ints) -> None:
    """Fill after[first:end], the states after the nodes' bytes, from the states of their parents.

    table: int32 [states, 256], complete; after: int32 [n]
    """
    for node in range(first, end):
        after[node] = table[after[parents[node]], byte[node]]


# After this many lead bytes that do not loop, as in a set of letters, testing the others does not pay.
MANY_OTHERS = 8


@inner_njit
def only_lead(chart: Chart, row: Int, first: Int, last: Int, target: Int) -> bool:
    """Test whether the bytes first ... last lead to `target` and all others to DEAD."""
    for byte in range(256):  # noqa: SIM110
        if chart.rows[row, byte] != (target if first <= byte <= last else DEAD):
            return False
    return True


@inner_njit
def form_loops(graph: GraphArrays, chart: Chart, state: Int, form: Int, target: Int) -> Int:
    """Return 1 if all characters of one form of UTF-8, after their lead byte, lead to `target`, else 0; or a code."""
    last = FORMS[form, MORE]
    first, final = FORMS[form, SECOND], FORMS[form, LAST_SECOND]
    while True:
        row = fill_row(graph, chart, state)
        if row < 0:
            return row
        after = target if last == 0 else chart.rows[row, first]
        if after < 0 or not only_lead(chart, row, first, final, after):
            return 0
        if last == 0:
            return 1
        state, first, final, last = after, FIRST_NEXT, LAST_NEXT, last - 1


@inner_njit
def loop_target(chart: Chart, row: Int) -> Int:
    """Return the state that the loop bytes of a row lead to, or DEAD without a loop."""
    for half in range(2):
        bits = chart.loops[row, half]
        if bits:
            byte = 0
            while bits >> np.uint64(byte) & np.uint64(1) == 0:
                byte += 1
            return chart.rows[row, 64 * half + byte]
    return DEAD


@shared_njit
def loop_leads(graph: GraphArrays, chart: Chart, state: Int, row: Int) -> Int:
    """Return the lead bytes all of whose characters loop like the row's ASCII loop, as in Chart.loops; or a code.

    After MANY_OTHERS others the remaining ones count as others. The result is cached in the row.
    """
    if chart.loops[row, ROOM] & LEADS_KNOWN:
        return np.int64(chart.loops[row, LEADS])
    code = fill_range(graph, chart, state, row, FIRST_NEXT, 256)
    if code < 0:
        return code
    target = loop_target(chart, row)
    leads = 0
    answer = others = 0
    previous, previous_form = DEAD, -1
    for form in range(len(FORMS)):
        for lead in range(FORMS[form, LEAD], FORMS[form, LAST_LEAD] + 1):
            after = chart.rows[row, lead]
            if after < 0 or others == MANY_OTHERS:
                continue
            if after != previous or form != previous_form:
                answer = form_loops(graph, chart, after, form, target)
                if answer < 0:
                    return answer
                previous, previous_form = after, form
            leads |= answer << (lead - FIRST_LEAD)
            others += 1 - answer
    chart.loops[row, LEADS] = np.uint64(leads)
    chart.loops[row, ROOM] |= LEADS_KNOWN
    return leads
