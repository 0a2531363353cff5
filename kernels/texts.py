"""The tree of many texts, beside an automaton that goes on wherever a byte leaves the tree."""

import numpy as np
from numpy.typing import NDArray

from .compiling import inner_njit, njit

NOWHERE, WAY_OUT = -2, -1

Ints = NDArray[np.int32]


@njit
def grow_tree(
    texts: NDArray[np.uint8],
    bounds: NDArray[np.int64],
    behind: int,
    runs: Ints,
    offsets: NDArray[np.int64],
    start: int,
    places: Ints,
    edges: Ints,
    ends: Ints,
) -> int:
    """Write the root of the tree, the states of the automaton, and the other nodes of the tree; how many there are.

    texts: sorted, different, none empty or the beginning of another; text i is texts[bounds[i] : bounds[i + 1]]
    behind: the target behind a text, WAY_OUT or NOWHERE
    runs: [n, 3], byte range and target of what the automaton reads, ascending; those of state s from offsets[s] to
    offsets[s + 1]. A target is a state or WAY_OUT
    start: the state at the root, or NOWHERE; the automaton goes on along the tree as far as it can
    places: [nodes of the tree, 4], scratch: the texts first ... last - 1 that go through a node, depth and state
    edges: [n, 3], byte range and target; ends: [nodes], where the edges of each node end
    """
    states = len(offsets) - 1
    places[0, 0], places[0, 1], places[0, 2], places[0, 3] = 0, len(bounds) - 1, 0, start
    at, known, count = 0, 1, 0
    while at < known:
        first, last, depth, state = places[at, 0], places[at, 1], places[at, 2], places[at, 3]
        run, end_of_runs = (offsets[state], offsets[state + 1]) if state >= 0 else (0, 0)
        low = 0
        while first < last:
            byte = int(texts[bounds[first] + depth])
            while run < end_of_runs and runs[run, 1] < byte:
                count = _write(edges, count, max(low, runs[run, 0]), runs[run, 1], runs[run, 2])
                run += 1
            after = NOWHERE
            if run < end_of_runs and runs[run, 0] <= byte:
                count = _write(edges, count, max(low, runs[run, 0]), byte - 1, runs[run, 2])
                after = runs[run, 2]
            low = byte + 1
            end = first + 1
            while end < last and texts[bounds[end] + depth] == byte:
                end += 1
            if bounds[first] + depth + 1 == bounds[first + 1]:
                if behind != NOWHERE:
                    count = _write(edges, count, byte, byte, behind)
            else:
                places[known, 0], places[known, 1], places[known, 2] = first, end, depth + 1
                places[known, 3] = NOWHERE if after < 0 else after
                edges[count, 0], edges[count, 1], edges[count, 2] = byte, byte, states + known
                count += 1
                known += 1
            first = end
        for rest in range(run, end_of_runs):
            count = _write(edges, count, max(low, runs[rest, 0]), runs[rest, 1], runs[rest, 2])
        ends[at + states if at else 0] = count
        if at == 0:
            for state in range(states):
                for run in range(offsets[state], offsets[state + 1]):
                    count = _write(edges, count, runs[run, 0], runs[run, 1], runs[run, 2])
                ends[1 + state] = count
        at += 1
    return known + states


@inner_njit
def _write(edges: Ints, count: int, low: int, high: int, target: int) -> int:
    """Write an edge to a state of the automaton, unless it is empty; how many edges there are."""
    if low > high:
        return count
    edges[count, 0], edges[count, 1] = low, high
    edges[count, 2] = target + 1 if target >= 0 else target
    return count + 1
