"""A tree of many texts combined with an automaton, which continues wherever a byte leaves the tree."""

import numpy as np
from numpy.typing import NDArray

from ..answers import NOWHERE
from ..chart.layout import EDGE_FIRST, EDGE_LAST, EDGE_TARGET
from ..jit.compiling import inner_njit, njit

WAY_OUT = -1
# Columns of the scratch of `grow_tree`.
PLACE_FIRST, PLACE_LAST, PLACE_DEPTH, PLACE_STATE = range(4)

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
    """Write the root of the tree, the states of the automaton, and the tree's other nodes. Return their number.

    texts: sorted, different, none empty or a prefix of another; text i is texts[bounds[i] : bounds[i + 1]]
    behind: the target after a text, WAY_OUT or NOWHERE
    runs: [n, 3], byte range and target of the automaton's transitions, ascending; those of state s from offsets[s] to
    offsets[s + 1]. A target is a state or WAY_OUT
    start: the state at the root, or NOWHERE; the automaton follows the tree as far as it can
    places: [nodes of the tree, 4], scratch: the texts first ... last - 1 through a node, depth and state
    edges: [n, 3], byte range and target; ends: [nodes], the end of each node's edges
    """
    states = len(offsets) - 1
    _note(places, 0, 0, len(bounds) - 1, 0, start)
    at, known, count = 0, 1, 0
    while at < known:
        first, last = places[at, PLACE_FIRST], places[at, PLACE_LAST]
        depth, state = places[at, PLACE_DEPTH], places[at, PLACE_STATE]
        run = int(offsets[state]) if state >= 0 else 0
        end_of_runs = int(offsets[state + 1]) if state >= 0 else 0
        low = 0
        while first < last:
            byte = int(texts[bounds[first] + depth])
            while run < end_of_runs and runs[run, EDGE_LAST] < byte:
                begin = max(low, runs[run, EDGE_FIRST])
                count = _write(edges, count, begin, runs[run, EDGE_LAST], runs[run, EDGE_TARGET])
                run += 1
            after = NOWHERE
            if run < end_of_runs and runs[run, EDGE_FIRST] <= byte:
                after = runs[run, EDGE_TARGET]
                count = _write(edges, count, max(low, runs[run, EDGE_FIRST]), byte - 1, after)
            low = byte + 1
            end = first + 1
            while end < last and texts[bounds[end] + depth] == byte:
                end += 1
            if bounds[first] + depth + 1 < bounds[first + 1]:
                _note(places, known, first, end, depth + 1, NOWHERE if after < 0 else after)
                count = _write(edges, count, byte, byte, states + known - 1)
                known += 1
            elif behind != NOWHERE:
                count = _write(edges, count, byte, byte, behind)
            first = end
        count = _write_runs(edges, count, runs, run, end_of_runs, low)
        ends[at + states if at else 0] = count
        if at == 0:
            for other in range(states):
                count = _write_runs(edges, count, runs, offsets[other], offsets[other + 1], 0)
                ends[1 + other] = count
        at += 1
    return known + states


@inner_njit
def _note(places: Ints, at: int, first: int, last: int, depth: int, state: int) -> None:
    places[at, PLACE_FIRST], places[at, PLACE_LAST] = first, last
    places[at, PLACE_DEPTH], places[at, PLACE_STATE] = depth, state


@inner_njit
def _write_runs(edges: Ints, count: int, runs: Ints, first: int, last: int, low: int) -> int:
    """Write runs first ... last - 1 as edges, clipped to bytes from `low` on. Return the number of edges."""
    for run in range(first, last):
        begin = max(low, runs[run, EDGE_FIRST])
        count = _write(edges, count, begin, runs[run, EDGE_LAST], runs[run, EDGE_TARGET])
    return count


@inner_njit
def _write(edges: Ints, count: int, low: int, high: int, target: int) -> int:
    """Write an edge, unless its range is empty. Return the number of edges. State s is node 1 + s."""
    if low > high:
        return count
    edges[count, EDGE_FIRST], edges[count, EDGE_LAST] = low, high
    edges[count, EDGE_TARGET] = target + 1 if target >= 0 else target
    return count + 1


@njit
def share_prefixes(
    texts: NDArray[np.uint8],
    bounds: NDArray[np.int64],
    order: NDArray[np.int64],
    first: int,
    last: int,
    shared: Ints,
    stays: NDArray[np.uint8],
) -> int:
    """Write the length of each text's common prefix with the one before it. Return the nodes that `lay_tree` will add.

    texts, bounds: as for `grow_tree`, but texts may be empty, repeated, and prefixes of others
    order: the numbers of the texts, sorted; first, last: range of the order to process, after earlier ranges
    shared: [n], by place in the order, -1 for a repeated text
    stays: [n], 1 for a text that is a prefix of another, or empty; 0 before
    """
    nodes = 0
    before = length = 0
    if first > 0:
        before = bounds[order[first - 1]]
        length = bounds[order[first - 1] + 1] - before
    for i in range(first, last):
        begin, end = bounds[order[i]], bounds[order[i] + 1]
        common = 0
        if i > 0:
            most = min(length, end - begin)
            while common < most and texts[before + common] == texts[begin + common]:
                common += 1
            if common == length == end - begin:
                shared[i] = -1
                stays[i] = stays[i - 1]
                continue
            if common == length and length > 0:
                leader = i - 1
                while shared[leader] < 0:
                    leader -= 1
                stays[leader] = 1
                nodes += 1
        shared[i] = common
        before, length = begin, end - begin
        if length == 0:
            stays[i] = 1
        else:
            nodes += int(length - 1 - common)
    return nodes


@njit
def lay_tree(
    texts: NDArray[np.uint8],
    bounds: NDArray[np.int64],
    order: NDArray[np.int64],
    first: int,
    last: int,
    shared: Ints,
    stays: NDArray[np.uint8],
    known: int,
    path: Ints,
    edges: Ints,
    ends: Ints,
    at_ends: NDArray[np.uint8],
) -> int:
    """Write a part of the tree of many texts in preorder, root first. Return the new number of nodes.

    texts ... stays: arguments and results of `share_prefixes`
    known: number of nodes so far, 1 at first; path: [longest text + 1], the nodes of the previous text, root first
    edges: [n, 3], one for each node but the root, and one to WAY_OUT for each text that is no prefix of another. With
    [0, 3] edges are only counted, in `ends`
    ends: [nodes], index of each node's next edge; in the end, the end of its edges
    at_ends: [nodes], 1 for nodes at which a text that is a prefix of another ends
    """
    for i in range(first, last):
        if shared[i] < 0:
            continue
        begin = bounds[order[i]]
        length = bounds[order[i] + 1] - begin
        for depth in range(shared[i], length):
            parent, target = path[depth], WAY_OUT
            if depth + 1 < length or stays[i]:
                target = path[depth + 1] = known
                known += 1
            if len(edges):
                edge = ends[parent]
                byte = texts[begin + depth]
                edges[edge, EDGE_FIRST], edges[edge, EDGE_LAST], edges[edge, EDGE_TARGET] = byte, byte, target
            ends[parent] += 1
        if stays[i]:
            at_ends[path[length]] = 1
    return known
