"""All JSON strings but a few: the free string's automaton beside the tree of the excluded ones."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..automaton import ChartAutomaton
from ..dfa import Dfa, byte_runs
from ..graph import Edge, Graph
from ..lower import Lowering, table_template
from ..syntax import Literal, Repeat, Table
from ..syntax import Sequence as InSequence
from ..utf8 import NOWHERE, Template
from .spelling import free_character, spelt

Runs = list[tuple[int, int, int]]

MAX_AT_ONCE = 4000
"""Up to how many bytes of excluded texts are added at once; more are added as they are reached."""


class FreeString(NamedTuple):
    """The canonical strings after the opening quote, as a table; for each state its runs, and the bytes to the end.

    rows: int32 [states + 1, 256], targets as in templates, -1 for the end; in the last row there are none
    changes, offsets: the bytes at which the runs of a row begin, those of row i from offsets[i] to offsets[i + 1]
    """

    table: Table
    runs: list[Runs]
    to_end: list[int]
    rows: NDArray[np.int32]
    changes: NDArray[np.int64]
    offsets: NDArray[np.int64]


@lru_cache(maxsize=1)
def _free_string() -> FreeString:
    graph = Graph()
    free = Repeat(free_character("canonical"), 0, None)
    rule = Lowering(graph).rule(InSequence((free, Literal(b'"'))))
    dfa = Dfa.of(ChartAutomaton(graph, rule)).minimised()
    assert dfa.start == 0, "minimised automata are numbered from the start"
    runs = [byte_runs(row) for row in dfa.transitions]
    to_end = [0 if end else len(dfa) for end in dfa.accepting]
    for _ in runs:
        for state, found in enumerate(runs):
            to_end[state] = min([to_end[state], *(1 + to_end[target] for _, _, target in found)])
    rows = np.full((len(dfa) + 1, 256), NOWHERE, np.int32)
    alive = dfa.transitions >= 0
    rows[:-1][alive] = np.where(dfa.accepting[dfa.transitions[alive]], -1, dfa.transitions[alive])
    change = np.ones(rows.shape, np.bool_)
    change[:, 1:] = rows[:, 1:] != rows[:, :-1]
    offsets = np.concatenate([[0], np.cumsum(change.sum(axis=1))])
    return FreeString(Table(dfa.transitions, dfa.accepting), runs, to_end, rows, change.nonzero()[1], offsets)


def all_but(graph: Graph, texts: Iterable[str], target: int) -> int:
    """The entry of the canonical strings that are not among `texts`."""
    listed = tuple(sorted(spelt(text) for text in texts))
    if sum(map(len, listed)) > MAX_AT_ONCE:
        return Exclusion(graph, listed, target).entry()
    return graph.instantiate(_tree_of(listed), target)


@lru_cache(maxsize=256)
def _tree_of(texts: tuple[bytes, ...]) -> Template:
    """What `Exclusion` adds, all at once: the node before the quote, the tree, the free automaton.

    The row of a node is that of the free automaton, but for the bytes that go on along the tree.
    """
    free = _free_string()
    states, branches, ways = _tree(texts, free)
    inner = len(states)
    state = np.array([*states, *range(len(free.runs))])
    counts = free.offsets[state + 1] - free.offsets[state]
    ends = counts.cumsum()
    changes = free.changes[np.arange(ends[-1]) + (free.offsets[state] + counts - ends).repeat(counts)]
    branch = np.array(branches)
    # Places are node * 256 + byte: a run begins where one of the free automaton does, at a branch and behind it.
    starts = (np.arange(len(state)) << 8).repeat(counts) | changes
    place = np.concatenate([starts, branch, branch + 1])
    place.sort(kind="stable")
    place = place[np.concatenate([[True], place[1:] != place[:-1]])]
    target = free.rows.reshape(-1)[state[place >> 8] << 8 | place & 0xFF]
    target[target >= 0] += inner
    target[place.searchsorted(branch)] = ways
    alive = (target != NOWHERE).nonzero()[0]
    edges = np.empty((len(alive), 3), np.int32)
    edges[:, 0] = place[alive] & 0xFF
    # The last run of a node ends before the first of the next, at 255.
    edges[:, 1] = np.concatenate([place[1:], [0]])[alive] - 1 & 0xFF
    edges[:, 2] = target[alive]
    return Template(np.bincount(place[alive] >> 8, minlength=len(state)).cumsum(dtype=np.int32), edges)


def _tree(texts: tuple[bytes, ...], free: FreeString) -> tuple[list[int], list[int], list[int]]:
    """The tree of sorted texts, node 0 before the quote and node 1 behind it.

    Gives the state of the free automaton at each node, the branches as node * 256 + byte, and where they lead.
    """
    states, branches, ways = [len(free.runs), 0], [0x22], [1]
    path, previous = [0, 1], b'"'
    for text in texts:
        shared = 1
        while shared < len(previous) and text[shared] == previous[shared]:
            shared += 1
        nodes = range(len(states), len(states) + len(text) - 1 - shared)
        path[shared + 1 :] = nodes
        branches += [node << 8 | byte for node, byte in zip(path[shared:], text[shared:], strict=True)]
        ways += [*nodes, NOWHERE]
        if text.isascii() and b"\\" not in text:
            states += [0] * len(nodes)
        else:
            for byte in text[shared:-1]:
                states.append(int(free.table.transitions[states[path[len(states) - nodes[0] + shared]], byte]))
        previous = text
    return states, branches, ways


class Exclusion:
    """Adds to a graph the canonical strings that are not among `texts`, sorted and spelt, as they are reached.

    At a node of the tree, a byte that goes on like an excluded string leads to the next node of the tree,
    any other to the free automaton, of which there is one copy; only the closing quote of an excluded string
    is missing. A place in the tree is a span of the sorted texts, alike up to a depth.
    """

    def __init__(self, graph: Graph, texts: Sequence[bytes], target: int) -> None:
        self._string = _free_string()
        self._graph = graph
        self._target = target
        self._free = graph.instantiate(table_template(self._string.table), target)
        self._texts = texts

    def entry(self) -> int:
        """The node before the opening quote."""
        root = self._node(0, len(self._texts), 1, 0)
        return self._graph.node(((0x22, 0x22, root),))

    def _node(self, first: int, last: int, depth: int, state: int) -> int:
        """The node at a place of the tree, where the free automaton is in `state`; most are never reached."""
        node = self._graph.lazy_node(
            lambda node: self._define(node, first, last, depth, state),
            lambda: self._needed(first, last, depth, state),
            self._target,
        )
        return node

    def _define(self, node: int, first: int, last: int, depth: int, state: int) -> None:
        branches = self._branches(first, last, depth)
        edges: list[Edge] = []
        at = 0
        for low, high, target in self._string.runs[state]:
            free = self._free + target
            begin = low
            while at < len(branches) and branches[at][0] <= high:
                byte, start, end = branches[at]
                at += 1
                if begin < byte:
                    edges.append((begin, byte - 1, free))
                if len(self._texts[start]) > depth + 1:
                    edges.append((byte, byte, self._node(start, end, depth + 1, target)))
                begin = byte + 1
            if begin <= high:
                edges.append((begin, high, free))
        self._graph.define(node, edges)

    def _branches(self, first: int, last: int, depth: int) -> list[tuple[int, int, int]]:
        """The bytes with which the texts of a span go on, each with the span of its texts."""
        found: list[tuple[int, int, int]] = []
        while first < last:
            text = self._texts[first]
            end = bisect_left(self._texts, text[:depth] + bytes((text[depth] + 1,)), first, last)
            found.append((text[depth], first, end))
            first = end
        return found

    def _needed(self, first: int, last: int, depth: int, state: int) -> int:
        """The fewest bytes from a place to the end; along the tree only where no byte leaves it."""
        branches = self._branches(first, last, depth)
        inside = {byte for byte, _, _ in branches}
        outside = [
            1 + self._string.to_end[target]
            for low, high, target in self._string.runs[state]
            if any(byte not in inside for byte in range(low, high + 1))
        ]
        if outside:
            return min(outside)
        target_of = {byte: target for low, high, target in self._string.runs[state] for byte in range(low, high + 1)}
        return 1 + min(
            self._needed(start, end, depth + 1, target_of[byte])
            for byte, start, end in branches
            if len(self._texts[start]) > depth + 1
        )
