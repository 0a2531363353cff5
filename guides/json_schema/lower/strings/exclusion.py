"""All JSON strings but a few: the free string's automaton beside the tree of the excluded ones."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from .....kernels.trie.texts import WAY_OUT
from ....automata.dfa import Dfa, byte_runs
from ....chart.automaton import ChartAutomaton
from ....graph.graph import Edge, Graph
from ....graph.lowering import Lowering, fragment_of_table
from ....graph.text_tree import Beside, all_but_texts, beside
from ....syntax import Literal, Repeat, Table
from ....syntax import Sequence as InSequence
from ...automata.spelling import all_spelt, free_character

Runs = list[tuple[int, int, int]]

MAX_AT_ONCE = 16_000
"""Up to how many bytes of excluded texts are added at once; more are added as they are reached."""


class FreeString(NamedTuple):
    """The canonical strings as a table; for each state its runs, and the bytes to the end.

    inside: the state after the opening quote
    """

    table: Table
    runs: list[Runs]
    to_end: list[int]
    inside: int
    automaton: Beside


@lru_cache(maxsize=1)
def _free_string() -> FreeString:
    graph = Graph()
    quote = Literal(b'"')
    rule = Lowering(graph).rule(InSequence((quote, Repeat(free_character("canonical"), 0, None), quote)))
    dfa = Dfa.of(ChartAutomaton(graph, rule)).minimised()
    assert dfa.start == 0, "minimised automata are numbered from the start"
    runs = [byte_runs(row) for row in dfa.transitions]
    to_end = [0 if end else len(dfa) for end in dfa.accepting]
    for _ in runs:
        for state, found in enumerate(runs):
            to_end[state] = min([to_end[state], *(1 + to_end[target] for _, _, target in found)])
    open_ended = [
        [(low, high, WAY_OUT if dfa.accepting[target] else target) for low, high, target in found] for found in runs
    ]
    return FreeString(Table(dfa.transitions, dfa.accepting), runs, to_end, dfa.step(0, 0x22), beside(open_ended))


def all_but(graph: Graph, texts: Iterable[str], target: int) -> int:
    """The entry of the canonical strings that are not among `texts`."""
    listed = sorted(all_spelt(texts))
    if sum(map(len, listed)) > MAX_AT_ONCE:
        return Exclusion(graph, listed, target).entry()
    return graph.instantiate(all_but_texts(listed, _free_string().automaton), target)


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
        self._free = graph.instantiate(fragment_of_table(self._string.table), target)
        self._texts = texts

    def entry(self) -> int:
        """The node before the opening quote."""
        root = self._node(0, len(self._texts), 1, self._string.inside)
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
