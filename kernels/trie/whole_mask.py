"""Masks of states in one call: the kernel that finds out that a state's mask is not known yet mostly walks at once.

A call of a kernel from Python takes as long as many walks. So there is one for what is usual: `find_mask` looks a state
up by its signature, and walks at once where no state had that before and there is no shortcut. Where there is one, the
caller has what it takes, and one more call makes the mask: `mask_beside` or `mask_at_loop`.

Kernels answer as kernels/answers.py says.
"""

from __future__ import annotations

import numpy as np

from ..answers import UNREADY
from ..chart.interning import HI, LO, WORDS
from ..chart.layout import ACCEPTING, KEPT, SIGNATURE, STATES, Chart, Graph
from ..chart.return_sets import signature
from ..jit.aliases import Bits, Int, Truth, Words
from ..jit.wide import inner_njit, njit
from .branches import Branches
from .loop_slice import LoopSlice, walk_slice, walk_span
from .shortcut import BESIDE, HIGH, KIND, LOOP, LOW, NONE, USUAL, find_shortcut
from .walk import walk, walk_beside

# Further kinds of what `find_mask` found: the mask itself; nothing, since another state had the signature before.
MADE, MET = 4, 5
# Where it says that the signature is new and what that of the usual state is, after the fields of a `Shortcut`; how
# many numbers that makes.
IS_NEW, OF_USUAL, FOUND = 5, 6, 7
# No loop has so many ASCII characters.
NO_LOOP = 129


@inner_njit
def end(chart: Chart, state: Int, ending: Words, out: Words) -> None:
    """Allow the tokens that end a text, if the state is accepting."""
    if chart.words[chart.states[state, LO] + ACCEPTING]:
        for word in range(len(ending)):
            out[word] |= ending[word]


@inner_njit
def are_few(low: Int, high: Int, least: Int) -> Truth:
    """Whether fewer than so many bits of two words are set."""
    count = 0
    for bit in range(64):
        count += (low >> np.uint64(bit) & np.uint64(1)) + (high >> np.uint64(bit) & np.uint64(1))
    return count < least


@njit
def find_mask(
    graph: Graph, chart: Chart, trie: Branches, state: Int, least: Int, ending: Words, found: Bits, out: Words
) -> Int:
    """The signature of a state, or a code; UNREADY for what is none. What is known of its mask, in found[KIND].

    MADE: it is in `out`; MET: look it up by the signature; else what shortcut there is, as `probe` has it
    least: loops of fewer ASCII characters are walked as any other state; ending: uint32 [words], the tokens that end a
    text; found: uint64 [FOUND], in which IS_NEW is 0, unless the mask is known not to be there, as of a state that this
    kernel named
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
    kind = find_shortcut(graph, chart, state, found)
    if kind < 0:
        return kind
    if kind != NONE and kind != BESIDE and are_few(found[LOW], found[HIGH], least):
        kind = NONE
    if kind == BESIDE:
        usual = signature(graph, chart, found[USUAL])
        if usual < 0:
            return usual
        found[OF_USUAL] = usual
    if kind == NONE:
        out[:] = 0
        code = walk(graph, chart, trie, state, 0, out)
        if code < 0:
            return code
        end(chart, state, ending, out)
        kind = MADE
    found[KIND] = kind
    return number


@njit
def mask_beside(
    graph: Graph, chart: Chart, trie: Branches, state: Int, usual: Int, known: Words, ending: Words, out: Words
) -> Int:
    """Write the mask of a state to `out`, from the mask `known` of the state `usual`; 0 or a code."""
    for word in range(len(out)):
        out[word] = known[word] & ~ending[word]
    code = walk_beside(graph, chart, trie, state, usual, out)
    if code >= 0:
        end(chart, state, ending, out)
    return code


@njit
def mask_at_loop(
    graph: Graph, chart: Chart, trie: Branches, loop_slice: LoopSlice, kind: Int, state: Int, ending: Words, out: Words
) -> Int:
    """Write the mask of a state that loops or spans to `out`; 0 or a code.

    kind: LOOP or SPANNED; a loop that turns out not to be uniform is walked as any other state
    """
    out[:] = 0
    if kind == LOOP:
        code = walk_slice(graph, chart, trie, loop_slice, state, out)
    else:
        code = walk_span(graph, chart, trie, loop_slice, state, out)
    if code > 0:
        out[:] = 0
        code = walk(graph, chart, trie, state, 0, out)
    if code >= 0:
        end(chart, state, ending, out)
    return code
