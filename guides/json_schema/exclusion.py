"""All JSON strings but a few: the free string's automaton beside the tree of the excluded ones."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..automaton import ChartAutomaton
from ..dfa import Dfa, byte_runs
from ..graph import Edge, Graph
from ..lower import Lowering, table_template
from ..syntax import Literal, Repeat, Table
from ..syntax import Sequence as InSequence
from ..utf8 import NOWHERE, Template, template_of_rows
from .spelling import PLAIN, free_character, spelt

Runs = list[tuple[int, int, int]]

MAX_AT_ONCE = 4000
"""Up to how many bytes of excluded texts are added at once; more are added as they are reached."""


class FreeString(NamedTuple):
    """The canonical strings after the opening quote, as a table; for each state its runs, and the bytes to the end."""

    table: Table
    runs: list[Runs]
    to_end: list[int]


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
    return FreeString(Table(dfa.transitions, dfa.accepting), runs, to_end)


def all_but(graph: Graph, texts: Iterable[str], target: int) -> int:
    """The entry of the canonical strings that are not among `texts`."""
    listed = tuple(sorted(spelt(text) for text in texts))
    if sum(map(len, listed)) > MAX_AT_ONCE:
        return Exclusion(graph, listed, target).entry()
    tree = _tree_of(listed)
    entry = graph.instantiate(tree.template, target)
    for node in tree.plain:
        graph.promise_span(entry + node, PLAIN)
    return entry


class ExclusionTree(NamedTuple):
    """A template, and its nodes from which every text of plain characters can be read."""

    template: Template
    plain: list[int]


@lru_cache(maxsize=256)
def _tree_of(texts: tuple[bytes, ...]) -> ExclusionTree:
    """What `Exclusion` adds, all at once: node 0 before the quote, the tree, the free automaton."""
    free = _free_string().table
    states, parents, values, ends = [0], [0], [0x22], [False]
    children: dict[tuple[int, int], int] = {}
    for text in texts:
        node = 0
        for byte in text[1:]:
            known = children.get((node, byte))
            if known is None:
                known = children[node, byte] = len(states)
                states.append(int(free.transitions[states[node], byte]))
                parents.append(node)
                values.append(byte)
                ends.append(False)
            node = known
        ends[node] = True
    # One row each: before the quote, the nodes of the tree, the free automaton.
    inner, final = len(states), int(np.flatnonzero(free.accepting)[0])
    outer = np.where(free.transitions >= 0, free.transitions + 1 + inner, NOWHERE)
    outer[free.transitions == final] = -1
    rows = np.full((1 + inner + len(outer), 256), NOWHERE, np.int32)
    rows[0, 0x22] = 1
    rows[1 : 1 + inner] = outer[states]
    rows[1 + inner :] = outer
    after = np.where(ends, NOWHERE, np.arange(1, 1 + inner))
    rows[1 + np.array(parents[1:], np.int32), np.array(values[1:], np.int32)] = after[1:]
    return ExclusionTree(
        template_of_rows(rows), [node for node, state in enumerate([-1, *states, *range(len(outer))]) if state == 0]
    )


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
        graph.promise_span(self._free, PLAIN)

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
        if state == 0:
            self._graph.promise_span(node, PLAIN)
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
