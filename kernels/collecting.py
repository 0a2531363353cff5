"""Making room in the chart: only the states that somebody was given stay, and what they are made of.

Numbers of states stay as they are; the ones given up are used again. Bundles and signatures keep theirs for
good, emptied where nothing needs them: a bundle's origins must have smaller numbers than the bundle.
"""

from .chart import BUNDLES, CANON, ENTRY, HEADER, ITEM, KEPT, SIGNATURE, SIGNATURES, STATES
from .compiling import wide_njit as njit
from .interning import FREE, HI, LO, WORDS


@njit(cache=True, nogil=True)
def find_needed(chart, bundles, signatures):
    """Mark the bundles and signatures (uint8, by number) that kept states need; how many words all that has."""
    words, sizes = chart.words, chart.sizes
    total = 0
    for state in range(sizes[STATES]):
        if chart.states[state, KEPT] == 1:
            lo, hi = chart.states[state, LO], chart.states[state, HI]
            total += hi - lo
            bundles[words[lo]] = 1
            for at in range(lo + HEADER, hi, ITEM):
                if words[at + 1] >= 0:
                    bundles[words[at + 1]] = 1
            if chart.states[state, SIGNATURE] >= 0:
                signatures[chart.states[state, SIGNATURE]] = 1
    for bundle in range(sizes[BUNDLES] - 1, 1, -1):
        if bundles[bundle]:
            lo, hi = chart.bundles[bundle, LO], chart.bundles[bundle, HI]
            total += hi - lo
            for at in range(lo, hi, ENTRY):
                if words[at + 3] >= 0:
                    bundles[words[at + 3]] = 1
            if chart.bundles[bundle, CANON] >= 0:
                signatures[chart.bundles[bundle, CANON]] = 1
    for number in range(sizes[SIGNATURES]):
        if signatures[number]:
            total += chart.signatures[number, HI] - chart.signatures[number, LO]
    return total


@njit(cache=True, nogil=True)
def keep_needed(chart, bundles, signatures, target):
    """Copy the words of all that is needed to `target`, and give up the rest; returns nothing of use."""
    words, sizes, states = chart.words, chart.sizes, chart.states
    used, free = 0, -1
    for state in range(sizes[STATES] - 1, -1, -1):
        if states[state, KEPT] == 1:
            used = move(words, states, state, target, used)
        else:
            states[state, :] = -1
            states[state, LO] = free
            free = state
    for bundle in range(sizes[BUNDLES]):
        if bundles[bundle]:
            used = move(words, chart.bundles, bundle, target, used)
        else:
            chart.bundles[bundle, LO] = chart.bundles[bundle, HI]
    for number in range(sizes[SIGNATURES]):
        if signatures[number]:
            used = move(words, chart.signatures, number, target, used)
        else:
            chart.signatures[number, LO] = chart.signatures[number, HI]
    sizes[WORDS] = used
    sizes[FREE + STATES] = free
    return 0


@njit(cache=True, nogil=True)
def move(words, spans, number, target, used):
    """Copy one span's words to target[used:]; the number of words in use there."""
    lo, hi = spans[number, LO], spans[number, HI]
    target[used : used + hi - lo] = words[lo:hi]
    spans[number, LO] = used
    spans[number, HI] = used + hi - lo
    return used + hi - lo
