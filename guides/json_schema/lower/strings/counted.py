"""Strings of an automaton over characters as fragments of a graph, counted where their length is bounded.

Every state is a node at which a character begins. While the length matters only in that a bound comes
nearer, it is a counter of the items; nearer to the bounds, where it decides what may follow, each length has
nodes of its own. A node is never entered from which no text can be completed. Nodes are defined when one of
them is reached, together with those nearest to it; while the greatest length only comes nearer they are the
same for all bounds, and copied from what a process has made once.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from .....kernels.answers import NEVER
from .....kernels.chart.layout import EPSILON, INCREMENT, LEAVE
from ....automata.charsets import intersect
from ....graph.graph import Graph, Link
from ....graph.lowering import STEPS_PER_COPY, Lowering
from ....limits import spend
from ...automata.counting import Counting, Stretched
from ...automata.spelling import PLAIN, Escapes
from .character_edges import CharacterEdges

WORTHWHILE = 2
"""How many lengths a stretch has at least that is counted."""

FEW, MANY = 16, 128
"""How many nodes are defined at a time: few the first time, then twice as many each time, up to many."""


AT_ONCE: dict[Escapes, int] = {"canonical": 500, "any": 50}
MAX_STATES: dict[Escapes, int] = {"canonical": 4000, "any": 1200}
MAX_NODES = 60_000
"""Up to how many states are lowered together the first time, and up to how many, and as how many nodes, at all."""

STEPS_PER_STATE = 1000

# The holes of a stretch that is copied
RULE, CLOSE, COUNTER, FULL, ANYTIME = range(-1, -6, -1)


class Stretch(NamedTuple):
    """Lengths that are counted, from `begin` to `end`, and the counters for: going on, being full, ending any time."""

    begin: int
    end: int
    counter: int
    full: int
    anytime: int


class CountedPlace(NamedTuple):
    """The place of a node: a state before a character at a length; or after one, anywhere in the stretch."""

    state: int
    length: int
    within: Stretch | None


class StretchNode(NamedTuple):
    """The node of a state within a stretch, at which a turn begins or the stretch ends, and the nodes after a turn."""

    node: int
    after: list[int]


def lower_stretch(counting: Counting, escapes: Escapes) -> Stretched | None:
    """All states of a free stretch, with holes for its rule, its counters and the closing quote; None if it is large.

    Nothing in it depends on the bounds: up to its end every state can be completed.
    """
    graph = Graph()
    edges = CharacterEdges(Lowering(graph), counting.alphabet(escapes))
    states = [state for state, steps in enumerate(counting.to_end) if steps < NEVER]
    if len(states) > MAX_STATES[escapes]:
        return None
    numbers = {state: number for number, state in enumerate(states)}
    count = len(numbers)
    graph.rule = RULE
    for _ in range(3 * count):
        graph.reserve()
    after = {state: count + number for state, number in numbers.items()}
    for state, number in numbers.items():
        spend(STEPS_PER_STATE)
        links: list[Link] = [(LEAVE, number, FULL)]
        if counting.automaton.accepting[state]:
            links.append((LEAVE, CLOSE, ANYTIME))
        graph.counter = COUNTER
        first = edges.of(counting.ways(state, escapes), after)
        if first:
            links.append((EPSILON, graph.node(first), COUNTER))
        graph.counter = 0
        graph.define(after[state], links=((INCREMENT, count + after[state], COUNTER),))
        graph.define(count + after[state], links=links)
        if graph.node_count > MAX_NODES:
            return None
    return Stretched(graph.fragment(), numbers, [1 + counting.bytes_needed(state, counting.least) for state in numbers])


class CountedStrings:
    """The strings of a `Counting`, in the current rule, before the node `target`; there is at least one."""

    def __init__(self, lowering: Lowering, escapes: Escapes, counting: Counting, target: int) -> None:
        self._graph = lowering.graph
        self._escapes: Escapes = escapes
        self._edges = CharacterEdges(lowering, counting.alphabet(escapes))
        self._counting = counting
        self._target = target
        self._close = self._graph.node(((0x22, 0x22, target),))
        # By state and length, and by state and where the stretch begins: to hash a place takes longer than all else.
        self._nodes: dict[tuple[int, int], int] = {}
        self._nodes_within: dict[tuple[int, int], int] = {}
        self._heads: dict[tuple[int, int], StretchNode] = {}
        self._undefined: dict[int, CountedPlace] = {}
        self._together = FEW // 2
        self._steady = self._stretch(0, counting.steady)
        self._free = self._stretch(counting.least, counting.free)

    def _stretch(self, begin: int, end: int) -> Stretch | None:
        """A counted stretch, if it is long enough. What its counter costs is told by nodes that nothing leads to."""
        if end - begin < WORTHWHILE:
            return None
        graph, counting = self._graph, self._counting
        full = graph.counter_for(end - begin, end - begin)
        if begin == counting.least:
            counter = graph.counter_for(0, end - begin)
            graph.node(links=((LEAVE, self._target, counter),))
        else:
            counter = graph.counter_for(end - begin, end - begin)
            turn = graph.lazy_node(_never_reached, lambda: counting.turn, -1)
            after = graph.lazy_node(_never_reached, lambda: 1 + counting.steady_end, self._target)
            graph.node(links=((EPSILON, turn, 0), (LEAVE, after, counter)))
        return Stretch(begin, end, counter, full, graph.counter_for(0, end - begin))

    def entry(self) -> int:
        """The node before the opening quote."""
        return self._graph.node(((0x22, 0x22, self._before(self._counting.automaton.start, 0)),))

    def _before(self, state: int, length: int) -> int:
        """The node of a state at a length that is not counted, or at which a stretch begins."""
        counting = self._counting
        if counting.most is None:
            length = min(length, counting.least)
        node = self._nodes.get((state, length))
        if node is None:
            node = self._nodes[state, length] = self._new_node(CountedPlace(state, length, None), self._target)
        return node

    def _after(self, state: int, stretch: Stretch) -> int:
        """The node after a character that is counted."""
        node = self._nodes_within.get((state, stretch.begin))
        if node is None:
            node = self._new_node(CountedPlace(state, stretch.begin, stretch), -1)
            self._nodes_within[state, stretch.begin] = node
        return node

    def _new_node(self, place: CountedPlace, target: int) -> int:
        counter, self._graph.counter = self._graph.counter, 0
        node = self._graph.lazy_node(self._expand, lambda: self._needed(place), target)
        self._graph.counter = counter
        self._undefined[node] = place
        return node

    def _needed(self, place: CountedPlace) -> int:
        """The bytes to the end; what is needed beyond a turn before the least length is the counter's to tell."""
        if place.within is not None and place.within is self._steady:
            return 0
        return 1 + self._counting.bytes_needed(place.state, place.length)

    def _expand(self, node: int) -> None:
        """Define a node and those nearest to it."""
        queue = [node]
        defined = 0
        self._together = min(2 * self._together, MANY)
        for near in queue:
            place = self._undefined.pop(near, None)
            if place is not None:
                queue += self._define(near, place)
                defined += 1
                if defined == self._together:
                    break

    def _define(self, node: int, place: CountedPlace) -> list[int]:
        """Define a node; the nodes after one more character."""
        state, length, stretch = place
        if stretch is None:
            stretch = self._steady if length < self._counting.steady else self._free
            if stretch is None or length != stretch.begin:
                return self._define_uncounted(node, state, length)
            head = self._head(state, stretch)
            self._graph.define(node, links=((EPSILON, head.node, 0),))
        else:
            head = self._head(state, stretch)
            self._graph.define(node, links=((INCREMENT, head.node, stretch.counter),))
        return head.after

    def _define_uncounted(self, node: int, state: int, length: int) -> list[int]:
        counting = self._counting
        targets = {after: self._before(after, length + 1) for after in self._live(state, length + 1)}
        edges = self._edges.of(counting.ways(state, self._escapes), targets)
        if length >= counting.least:
            if counting.automaton.accepting[state]:
                edges.append((0x22, 0x22, self._target))
            if counting.most is None:
                self._graph.promise_span(node, intersect(counting.endless(state), PLAIN))
        self._graph.define(node, edges)
        return list(targets.values())

    def _head(self, state: int, stretch: Stretch) -> StretchNode:
        head = self._heads.get((state, stretch.begin))
        if head is None and stretch is self._free:
            head = self._copied_head(state)
        if head is None:
            graph, counting = self._graph, self._counting
            targets = {after: self._after(after, stretch) for after in self._live(state, stretch.end)}
            links: list[Link] = []
            if self._is_alive(state, stretch.end):
                links.append((LEAVE, self._before(state, stretch.end), stretch.full))
            if stretch is self._free and counting.automaton.accepting[state]:
                links.append((LEAVE, self._close, stretch.anytime))
            graph.counter = stretch.counter
            edges = self._edges.of(counting.ways(state, self._escapes), targets)
            if edges:
                links.append((EPSILON, graph.node(edges), stretch.counter))
            graph.counter = 0
            head = StretchNode(graph.node(links=links), list(targets.values()))
            self._heads[state, stretch.begin] = head
        return head

    def _copied_head(self, state: int) -> StretchNode | None:
        """As `_head`, of a free stretch of which all states are copied; None if they are not."""
        if self._copy is None:
            return None
        stretched, first = self._copy
        return StretchNode(first + 2 * len(stretched.numbers) + stretched.numbers[state], [])

    @cached_property
    def _copy(self) -> tuple[Stretched, int] | None:
        """All states of the free stretch and the first of their nodes; None if they are defined as they are reached."""
        stretch, stretched = self._free, self._stretched()
        if stretch is None or stretched is None:
            return None
        graph, count = self._graph, len(stretched.numbers)
        spend(STEPS_PER_COPY * len(stretched.fragment.piece.nodes))
        counters = stretch.counter, stretch.full, stretch.anytime
        first = graph.insert(stretched.fragment, (graph.rule, self._close, *counters))
        states = list(stretched.numbers)

        def leave(node: int) -> None:
            self._undefined[node] = CountedPlace(states[node - first], stretch.end, None)
            self._expand(node)

        graph.define_all_later(range(first, first + count), leave, stretched.needed, self._target)
        graph.promise_all(range(first + count, first + 2 * count), stretched.needed)
        return stretched, first

    def _stretched(self) -> Stretched | None:
        """The fragment that the free stretch is copied from; None at first for many states, and if it is large."""
        counting, escapes = self._counting, self._escapes
        made = counting.stretched
        if escapes not in made:
            if len(counting.edges) > AT_ONCE[escapes] and escapes not in counting.begun:
                counting.begun.add(escapes)
                return None
            made[escapes] = lower_stretch(counting, escapes)
        return made[escapes]

    def _live(self, state: int, length: int) -> list[int]:
        """The states after one more character that can be completed at `length`."""
        if self._counting.all_alive(length):
            return list(self._counting.edges[state])
        return [after for after in self._counting.edges[state] if self._is_alive(after, length)]

    def _is_alive(self, state: int, length: int) -> bool:
        return self._counting.bytes_needed(state, length) < NEVER


def _never_reached(node: int) -> None:
    raise AssertionError(f"node {node} only has a price")
