"""Masks of states in one call: the kernel that finds out that a state's mask is not known yet mostly makes it at once.

A call of a kernel from Python takes as long as many walks. So there is one for what is usual: `find_mask` looks a state
up by its signature, and where no state had that before makes its mask, and that of its usual state if that is not known
either. It is handed the slice that was used last, since most texts need but one; where another is wanted, or the mask
of the usual state may be in the table, it says so, and the caller has it.

Kernels answer as kernels/answers.py says.
"""

from __future__ import annotations

import numpy as np

from ..answers import UNREADY
from ..chart.interning import HI, LO, WORDS
from ..chart.layout import ACCEPTING, KEPT, SIGNATURE, STATES, Chart, GraphArrays
from ..chart.return_sets import signature
from ..jit.aliases import Bits, Int, Truth, Words
from ..jit.arrays import Arrays, Vector
from ..jit.wide import inner_njit, njit, shared_njit
from .branches import Branches
from .inside import inner_state, is_inside
from .loop_slice import UNSLICEABLE, LoopSlice, walk_slice, walk_span
from .shortcut import BESIDE, HIGH, KIND, LOOP, LOW, NONE, OF_LEADS, SPANNED, USUAL, find_shortcut
from .walk import walk, walk_beside

# Further kinds of what `find_mask` found: the mask itself; nothing, since another state had the signature before; the
# masks of the state and of its usual one; that there is an inner state (see inside.py), in place of the usual one.
MADE, MET, BOTH, INSIDE = 4, 5, 6, 7
# Where it says that the signature is new and what that of the usual state is, behind what `probe` finds; and whether
# that is new, too (HAS_MASK: the usual state's mask is written already); as what a state is walked; and whether
# that is to be without an inner state. How many numbers that makes.
IS_NEW, OF_USUAL, USUAL_IS_NEW, WALKED, WITHOUT_INNER, FOUND = 5, 6, 7, 8, 9, 10
HAS_MASK = 2
# No loop has so many ASCII characters.
NO_LOOP = 129


class MaskParts(Arrays):
    """Parts of a vocabulary that the masks of states are made of.

    trie: its tokens; ending: uint32 [words], those that end a text
    loop_slice: any of it; least: loops of fewer ASCII characters are walked as any other state
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
    """Tell whether fewer than so many bits of two words are set."""
    count = 0
    for bit in range(64):
        count += (low >> np.uint64(bit) & np.uint64(1)) + (high >> np.uint64(bit) & np.uint64(1))
    return count < least


@inner_njit
def has_slice(loop_slice: LoopSlice, found: Bits) -> Truth:
    """Tell whether a slice is that of the loop that was found."""
    loop = loop_slice.loop
    return loop[0] == found[LOW] and loop[1] == found[HIGH] and loop[2] == found[OF_LEADS]


@inner_njit
def find_kind(graph: GraphArrays, chart: Chart, parts: MaskParts, state: Int, found: Bits) -> Int:
    """Find the shortcut to the mask of a state, as found[KIND] of `find_mask` says; MADE if it can be made."""
    kind = find_shortcut(graph, chart, state, found)
    if kind < 0 or kind == BESIDE:
        return kind
    if kind == NONE or are_few(found[LOW], found[HIGH], parts.least):
        found[WALKED] = NONE
        return MADE
    found[WALKED] = kind
    return MADE if has_slice(parts.loop_slice, found) else kind


@shared_njit
def write_mask(graph: GraphArrays, chart: Chart, parts: MaskParts, kind: Int, state: Int, out: Words) -> Int:
    """Write the mask of a state to `out`; 0 or a code.

    kind: LOOP or SPANNED, of the slice's characters, or NONE; a loop that turns out not to be uniform is walked as any
    other state
    """
    trie, code = parts.trie, UNSLICEABLE
    out[:] = 0
    if kind == LOOP:
        code = walk_slice(graph, chart, trie, parts.loop_slice, state, out)
    elif kind == SPANNED:
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
    """The signature of a state, or a code; UNREADY for what is none. What is known of its mask, in found[KIND].

    MADE: it is in out[0]; BOTH: and that of the usual state in out[1]; MET: look it up by the signature; BESIDE: look
    that of the usual state up; LOOP or SPANNED: call again with the slice of found[LOW], found[HIGH] and
    found[OF_LEADS]; INSIDE: make it from that of the inner state found[USUAL], whose signature is found[OF_USUAL], or
    call again with found[WITHOUT_INNER]
    found: uint64 [FOUND], in which IS_NEW and USUAL_IS_NEW are 0, unless the mask is known not to be there, as of
    states that this kernel named; out: uint32 [2, words]
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
    """Write the masks of a state and of its usual one to `out`: BOTH; or the kind of the slice wanted, or a code."""
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
    """Write the mask of a state to `out`, from the mask `known` of the state `usual`; 0 or a code."""
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
    """Write the mask of a state to out[0], from the mask `known` of the state `usual`; 0 or a code."""
    return write_beside(graph, chart, parts, state, usual, known, out[0])
