"""The tree of many texts, beside an automaton that goes on wherever a byte leaves the tree."""

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
    """Write runs first ... last - 1 as edges, as far as they are not below `low`; how many edges there are."""
    for run in range(first, last):
        begin = max(low, runs[run, EDGE_FIRST])
        count = _write(edges, count, begin, runs[run, EDGE_LAST], runs[run, EDGE_TARGET])
    return count


@inner_njit
def _write(edges: Ints, count: int, low: int, high: int, target: int) -> int:
    """Write an edge, unless no byte is in its range; how many edges there are. Node 1 + s is that of state s."""
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
    """Write how many bytes each text has in common with the one before it; how many nodes `lay_tree` will add.

    texts, bounds: as for `grow_tree`, but the texts may be empty, repeated, and the beginnings of others
    order: the numbers of the texts, sorted; first, last: which of them, those before are done
    shared: [n], by place in the order, -1 for a text that is repeated
    stays: [n], 1 for a text that is the beginning of another, or empty; 0 before
    """
    nodes = 0
    before = own = 0
    if first > 0:
        before = bounds[order[first - 1]]
        own = bounds[order[first - 1] + 1] - before
    for i in range(first, last):
        begin, end = bounds[order[i]], bounds[order[i] + 1]
        common = 0
        if i > 0:
            most = min(own, end - begin)
            while common < most and texts[before + common] == texts[begin + common]:
                common += 1
            if common == own == end - begin:
                shared[i] = -1
                stays[i] = stays[i - 1]
                continue
            if common == own and own > 0:
                leader = i - 1
                while shared[leader] < 0:
                    leader -= 1
                stays[leader] = 1
                nodes += 1
        shared[i] = common
        before, own = begin, end - begin
        if own == 0:
            stays[i] = 1
        else:
            nodes += int(own - 1 - common)
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
    """Write a part of the tree of many texts in preorder, the root first; how many nodes there are then.

    texts ... stays: as `share_prefixes` has and writes them
    known: how many nodes there are, at first 1; path: [longest text + 1], the nodes of the text before, the root first
    edges: [n, 3], one for each node but the root and one for each text that is no beginning of another, which leads
    to WAY_OUT. Where there are none, [0, 3], the edges of each node are counted in ends alone
    ends: [nodes], where the next edge of each node goes, and where its edges end when all is written
    at_ends: [nodes], 1 for those behind the other texts
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
