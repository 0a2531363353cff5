"""Masks of states in one call: the kernel that finds a mask missing usually computes it at once.

A call from Python takes as long as many walks. So one kernel handles the usual cases. `find_mask` looks a state up by
its signature. If no earlier state had that, it computes the mask, and that of its usual state if this is new as well.
Its argument is the slice that was used last, since most texts need only one. If it needs another slice, or the mask of
the usual state may be cached, it returns this, and the caller continues.

States inside one rule, such as a string of a format, share work between callers of the rule. If all items of a state
have one origin, reading on does not depend on the origin until the rule ends. So the same items with the origin ROOT,
the *inner state*, allow the same tokens up to there, and accept where the rule ends. The walk of the inner state serves
all states with these items: only tokens that pass the rule's end are walked for each of them.

Kernels return the codes of kernels/answers.py.
"""

from __future__ import annotations

import numpy as np

from ..answers import DEAD, EXHAUSTED, EXPAND, UNREADY, spend
from ..chart.interning import HI, LO, WORDS, intern
from ..chart.layout import (
    ACCEPTING,
    HEADER,
    ITEM,
    ITEM_ORIGIN,
    KEPT,
    MISSING,
    OWN_RETURN_SET,
    ROOT,
    ROW,
    SELF,
    SIGNATURE,
    STATES,
    Chart,
    GraphArrays,
)
from ..chart.return_sets import signature
from ..chart.rows import PENDING, fill_low, open_row, step
from ..jit.aliases import Bits, Int, Ints, Truth, Words
from ..jit.arrays import Arrays, Vector
from ..jit.wide import inner_njit, njit, shared_njit
from .branches import (
    BEGUN,
    BELOW_HIGH,
    BELOW_LEADS,
    BELOW_LOW,
    OWN,
    OWN_END,
    SUBTREE_END,
    Branches,
    allow,
    refuse,
)
from .loop_slice import (
    BYTE,
    DEPTH,
    ENDLESS,
    IS_EXIT,
    NEXT,
    NODE,
    UNSLICEABLE,
    LoopSlice,
    follow_way,
    settle,
    walk_slice,
    walk_span,
)
from .shortcut import BESIDE, HIGH, KIND, LOOP, LOW, NONE, OF_LEADS, SPANNED, USUAL, find_shortcut
from .walk import BATCH, COVERED, leave, walk, walk_beside

# States with this many ASCII bytes that lead on take long to walk.
MANY_BYTES = 30
# The greatest length of texts for which a walk inside a rule checks at once that all of them can be read.
AHEAD = 64
_EMPTY = 1
# Columns of the stack, for a node on the path: row, state and node; next and last child; its row of `way`.
OF_ROW, OF_STATE, OF_NODE, CHILD, END, LISTED, HELD = range(7)


@inner_njit
def is_inside(chart: Chart, state: Int) -> Truth:
    """Test whether all items of a state have one origin, and it takes long to walk; its row must exist."""
    words, lo, hi = chart.words, chart.states[state, LO], chart.states[state, HI]
    if hi - lo <= HEADER or words[lo + OWN_RETURN_SET] != _EMPTY or words[lo + ACCEPTING]:
        return False
    origin = words[lo + HEADER + ITEM_ORIGIN]
    if origin in (SELF, ROOT):
        return False
    for at in range(lo + HEADER, hi, ITEM):
        if words[at + ITEM_ORIGIN] != origin:
            return False
    count, row = 0, chart.states[state, ROW]
    for byte in range(0x80):
        count += chart.rows[row, byte] != DEAD
    return count >= MANY_BYTES


@inner_njit
def inner_state(chart: Chart, state: Int) -> Int:
    """Return the state with the same items, and the rule as the whole text; or a code."""
    lo, length = chart.states[state, LO], chart.states[state, HI] - chart.states[state, LO]
    words, buffer = chart.words, chart.buffer
    for at in range(length):
        buffer[at] = words[lo + at]
    for at in range(HEADER, length, ITEM):
        buffer[at + ITEM_ORIGIN] = ROOT
    return intern(words, chart.states, chart.state_index, buffer, length, chart.sizes, STATES)


@inner_njit
def push(stack: Ints, level: Int, row: Int, state: Int, trie: Branches, node: Int) -> None:
    """Push a node on the stack of `walk_inside`."""
    stack[level, OF_ROW], stack[level, OF_STATE], stack[level, OF_NODE] = row, state, node
    stack[level, CHILD], stack[level, END], stack[level, LISTED] = trie.first[node], trie.first[node + 1], -1


@inner_njit
def usual_characters(chart: Chart, row: Int) -> tuple[Int, Int]:
    """Return the ASCII bytes that lead to the state to which most ASCII bytes of a row lead, in two words of bits."""
    usual, votes, low, high = DEAD, 0, 0, 0
    for byte in range(0x80):
        after = chart.rows[row, byte]
        if after >= 0:
            if votes == 0:
                usual = after
            votes += 1 if after == usual else -1
    for byte in range(0x80):
        if usual >= 0 and chart.rows[row, byte] == usual:
            low |= (1 << byte) if byte < 64 else 0
            high |= (1 << (byte - 64)) if byte >= 64 else 0
    return low, high


@inner_njit
def common_target(graph: GraphArrays, chart: Chart, state: Int, row: Int, low: Int, high: Int) -> Int:
    """Return the state to which all bytes of a set lead; DEAD if there is none, or a lazy node is met; or a code."""
    target, missing = DEAD, chart.sizes[MISSING]
    for byte in range(0x80):
        if (low if byte < 64 else high) >> (byte & 63) & 1:
            after = chart.rows[row, byte]
            if after == PENDING:
                after = step(graph, chart, state, row, byte)
            if after == EXPAND:
                chart.sizes[MISSING] = missing  # the walk itself may not come there
            elif after < DEAD:
                return after
            if after < 0 or (target >= 0 and after != target):
                return DEAD
            target = after
    return target


@inner_njit
def run_ahead(graph: GraphArrays, chart: Chart, state: Int, low: Int, high: Int, runs: Ints, chain: Ints) -> Int:
    """Return a length, at most AHEAD, up to which all texts of a set of ASCII bytes can be read from a state without
    completing its rule; or a code.

    runs: int32 [rows], cached lengths plus 1, 0 if unknown; chain: int32 [AHEAD], scratch
    """
    count, last = 0, 1
    while count < AHEAD:
        row = open_row(graph, chart, state)
        if row < 0:
            return row
        if runs[row]:
            last = runs[row]
            break
        chain[count] = row
        count += 1
        target = common_target(graph, chart, state, row, low, high)
        if target < DEAD:
            return target
        if target < 0 or chart.words[chart.states[target, LO] + ACCEPTING]:
            last = 0
            break
        if target == state:
            last = AHEAD
            break
        state = target
    for at in range(count - 1, -1, -1):
        last = min(last + 1, AHEAD + 1)
        runs[chain[at]] = last
    return last - 1


@njit
def walk_inside(graph: GraphArrays, chart: Chart, trie: Branches, state: Int, way: Ints, out: Words) -> Int:
    """Compute the mask of an inner state, without EOS, and the nodes at which tokens reach the end of its rule.

    Returns the number of rows of `way`, DEAD if they do not fit, or a code.
    way: int32 [k, 5], output, as `LoopSlice.way`; no exits are listed below another one
    """
    out[:] = 0
    row = fill_low(graph, chart, state)
    if row < 0:
        return row
    usual = usual_characters(chart, row)
    low, high = np.uint64(usual[0]), np.uint64(usual[1])
    runs, chain = np.zeros(len(chart.rows), np.int32), np.empty(AHEAD, np.int32)
    stack = np.empty((trie.deepest + 2, HELD), np.int32)
    missing = count = level = visited = 0
    below_exit = trie.deepest + 2
    byte, tokens = trie.byte, trie.tokens
    push(stack, 0, row, state, trie, 0)
    while level >= 0:
        child: Int = stack[level, CHILD]
        if child == stack[level, END]:
            if stack[level, LISTED] >= 0:
                way[stack[level, LISTED], NEXT] = count
            if level == below_exit:
                below_exit = trie.deepest + 2
            level -= 1
            continue
        stack[level, CHILD] += 1
        row = stack[level, OF_ROW]
        value: Int = byte[child]
        after: Int = chart.rows[row, value]
        if after == PENDING:
            after = step(graph, chart, stack[level, OF_STATE], row, value)
        row = COVERED
        if after >= 0 and trie.first[child] < trie.first[child + 1]:
            visited += 1
            row = open_row(graph, chart, after)
            most = trie.below[child, BEGUN]
            others = trie.below[child, BELOW_LOW] & ~low | trie.below[child, BELOW_HIGH] & ~high
            if row >= 0 and most <= AHEAD and others | trie.below[child, BELOW_LEADS] == 0:
                ahead = run_ahead(graph, chart, after, np.int64(low), np.int64(high), runs, chain)
                row = ahead if ahead < 0 else COVERED if ahead >= np.int64(most) else row
        if after == EXPAND:
            missing = EXPAND
        elif min(after, row) < DEAD:
            return min(after, row)
        if visited > BATCH:
            if spend(chart, visited) < 0:
                return EXHAUSTED
            visited = 0
        if after < 0:
            continue
        allow(trie, tokens[child, OWN], tokens[child, SUBTREE_END if row == COVERED else OWN_END], out)
        level += 1
        push(stack, level, row, after, trie, child)
        if row == COVERED:
            stack[level, CHILD] = stack[level, END]
        if level < below_exit and chart.words[chart.states[after, LO] + ACCEPTING]:
            below_exit = level
            for depth in range(1, level + 1):
                if stack[depth, LISTED] < 0:
                    if count == len(way):
                        return DEAD
                    stack[depth, LISTED] = count
                    way[count, NODE], way[count, BYTE] = stack[depth, OF_NODE], byte[stack[depth, OF_NODE]]
                    way[count, IS_EXIT], way[count, DEPTH] = depth == level, depth
                    count += 1
    return EXHAUSTED if spend(chart, visited) < 0 else missing if missing < 0 else count


@njit
def walk_outside(graph: GraphArrays, chart: Chart, trie: Branches, state: Int, way: Ints, out: Words) -> Int:
    """Turn the mask of a state's inner state in `out` into its own, by the inner state's way. Return 0 or a code."""
    afters = np.empty(len(way), np.int32)
    missing = follow_way(graph, chart, trie, way, state, afters)
    if missing < 0:
        return missing
    for at in range(len(way)):
        if way[at, IS_EXIT]:
            node, code = way[at, NODE], 0
            refuse(trie, trie.tokens[node, OWN], trie.tokens[node, OWN_END], out)
            if afters[at] >= 0:
                code = leave(graph, chart, trie, node, afters[at], out)
            missing = min(missing, code)
            if missing < DEAD and missing != EXPAND:
                return missing
    return missing


# Further kinds of `find_mask`: the mask itself; none, since an earlier state had the signature; the masks of the state
# and of its usual state; an inner state, in USUAL.
MADE, MET, BOTH, INSIDE = 4, 5, 6, 7
# Further entries of `found`: whether the signature is new; the signature of the usual state; whether this is new too
# (HAS_MASK: its mask is written already); the kind by which the state is walked; whether inner states are excluded. The
# number of entries.
IS_NEW, OF_USUAL, USUAL_IS_NEW, WALKED, WITHOUT_INNER, FOUND = 5, 6, 7, 8, 9, 10
HAS_MASK = 2
# More than the ASCII characters of any loop.
NO_LOOP = 129


class MaskParts(Arrays):
    """Parts of a vocabulary that masks of states are made of.

    trie: its tokens; ending: uint32 [words], mask of the tokens that end a text
    loop_slice: any slice; least: loops of fewer ASCII characters are walked like other states
    """

    trie: Branches
    ending: Vector[np.uint32]
    loop_slice: LoopSlice
    least: int


@inner_njit
def end(chart: Chart, state: Int, ending: Words, out: Words) -> None:
    """Allow the tokens that end a text, if the state is accepting."""
    if chart.words[chart.states[state, LO] + ACCEPTING]:
        for word in range(len(ending)):
            out[word] |= ending[word]


@inner_njit
def are_few(low: Int, high: Int, least: Int) -> Truth:
    """Test whether fewer than `least` bits of two words are set."""
    count = 0
    for bit in range(64):
        count += (low >> np.uint64(bit) & np.uint64(1)) + (high >> np.uint64(bit) & np.uint64(1))
    return count < least


@inner_njit
def has_slice(loop_slice: LoopSlice, found: Bits) -> Truth:
    """Test whether a slice belongs to the loop in `found`."""
    loop = loop_slice.loop
    return loop[0] == found[LOW] and loop[1] == found[HIGH] and loop[2] == found[OF_LEADS]


@inner_njit
def find_kind(graph: GraphArrays, chart: Chart, parts: MaskParts, state: Int, found: Bits) -> Int:
    """Find the shortcut to a state's mask for `find_mask`. Return its kind, MADE if the mask can be computed here."""
    kind = find_shortcut(graph, chart, state, found)
    if kind < 0 or kind == BESIDE:
        return kind
    if kind == NONE or are_few(found[LOW], found[HIGH], parts.least):
        found[WALKED] = NONE
        return MADE
    found[WALKED] = kind
    if has_slice(parts.loop_slice, found):
        return MADE
    if kind == LOOP:
        code = settle(graph, chart, state, np.empty(parts.trie.deepest + 1, np.int32))[0]
        if code < 0:
            return code
        if code == UNSLICEABLE:
            found[WALKED], kind = NONE, MADE
    return kind


@shared_njit
def write_mask(graph: GraphArrays, chart: Chart, parts: MaskParts, kind: Int, state: Int, out: Words) -> Int:
    """Write the mask of a state to `out`. Return 0 or a code.

    kind: LOOP or SPANNED, with the slice of these characters, or NONE; loops that are not uniform are walked like other
    states
    """
    trie, code = parts.trie, UNSLICEABLE
    out[:] = 0
    if kind == LOOP:
        code = walk_slice(graph, chart, trie, parts.loop_slice, state, out)
    if kind == SPANNED or code == ENDLESS:
        code = walk_span(graph, chart, trie, parts.loop_slice, state, out)
    if code > 0:
        if kind != NONE:
            out[:] = 0
        code = walk(graph, chart, trie, state, 0, out)
    if code >= 0:
        end(chart, state, parts.ending, out)
    return code


@njit
def find_mask(graph: GraphArrays, chart: Chart, parts: MaskParts, state: Int, found: Bits, out: Words) -> Int:
    """Find the mask of a state: set found[KIND] to the way to it. Return the state's signature, UNREADY, or a code.

    MADE: it is in out[0]; BOTH: the usual state's is in out[1] too; MET: look it up by the signature; BESIDE: look up
    the usual state's; LOOP or SPANNED: call again with the slice of found[LOW], found[HIGH] and found[OF_LEADS];
    INSIDE: compute it from the mask of the inner state found[USUAL], which has the signature found[OF_USUAL], or call
    again with found[WITHOUT_INNER]
    found: uint64 [FOUND]; IS_NEW and USUAL_IS_NEW are 0, or 1 if the mask is known to be missing, as for states from
    this kernel's answers; out: uint32 [2, words]
    """
    states = chart.states
    is_given = found[IS_NEW] == 0
    if state < 0 or state >= chart.sizes[STATES] or states[state, HI] < 0 or (is_given and states[state, KEPT] < 0):
        return UNREADY
    number = states[state, SIGNATURE]
    if number < 0:
        used = chart.sizes[WORDS]
        number = signature(graph, chart, state)
        if number < 0:
            return number
        if chart.sizes[WORDS] > used:
            found[IS_NEW] = 1
    if found[IS_NEW] == 0:
        found[KIND] = MET
        return number
    kind = find_kind(graph, chart, parts, state, found)
    code = min(kind, 0)
    if kind == MADE and found[WALKED] == NONE and not found[WITHOUT_INNER] and is_inside(chart, state):
        kind = code = inner_state(chart, state)
        if code >= 0:
            found[USUAL], kind = code, INSIDE
            code = signature(graph, chart, code)
            found[OF_USUAL] = max(code, 0)
    elif kind == MADE:
        code = write_mask(graph, chart, parts, np.int64(found[WALKED]), state, out[0])
    elif kind == BESIDE:
        usual, used = np.int64(found[USUAL]), chart.sizes[WORDS]
        code = signature(graph, chart, usual)
        found[OF_USUAL] = max(code, 0)
        if chart.sizes[WORDS] > used:
            found[USUAL_IS_NEW] = 1
        if code >= 0 and found[USUAL_IS_NEW]:
            kind = make_both(graph, chart, parts, state, usual, found, out)
            code = kind
    if code < 0:
        return code
    found[KIND] = kind
    return number


@inner_njit
def make_both(
    graph: GraphArrays, chart: Chart, parts: MaskParts, state: Int, usual: Int, found: Bits, out: Words
) -> Int:
    """Write the masks of a state and its usual state to `out`. Return BOTH, the kind of a missing slice, or a code."""
    if found[USUAL_IS_NEW] != HAS_MASK:
        kind = find_kind(graph, chart, parts, usual, found)
        if kind != MADE:
            return kind
        code = write_mask(graph, chart, parts, np.int64(found[WALKED]), usual, out[1])
        if code < 0:
            return code
        found[USUAL_IS_NEW] = HAS_MASK
    code = write_beside(graph, chart, parts, state, usual, out[1], out[0])
    return code if code < 0 else BOTH


@inner_njit
def write_beside(
    graph: GraphArrays, chart: Chart, parts: MaskParts, state: Int, usual: Int, known: Words, out: Words
) -> Int:
    """Write the mask of a state to `out`, given the mask `known` of the state `usual`. Return 0 or a code."""
    ending = parts.ending
    for word in range(len(out)):
        out[word] = known[word] & ~ending[word]
    code = walk_beside(graph, chart, parts.trie, state, usual, out)
    if code >= 0:
        end(chart, state, ending, out)
    return code


@njit
def mask_beside(
    graph: GraphArrays, chart: Chart, parts: MaskParts, state: Int, usual: Int, known: Words, out: Words
) -> Int:
    """Write the mask of a state to out[0], given the mask `known` of the state `usual`. Return 0 or a code."""
    return write_beside(graph, chart, parts, state, usual, known, out[0])
