"""Tell whether any text of a graph meets goals: a context-free language and regular ones, intersected as far as needed.

A rule that is entered with the goals in some places is left with them in others. Which these are is worked out for
all rules together until nothing is new, as in the tabulation of Reps, Horwitz and Sagiv (1995): that ends also where
rules call themselves, and the states of the chart are without number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...kernels.chart.layout import (
    CALL,
    COUNTER,
    EDGE_HI,
    EDGE_LO,
    EPSILON,
    FINAL,
    FLAGS,
    GUARD,
    INCREMENT,
    LAZY,
    LINK_HI,
    LINK_LO,
    UNBOUNDED,
)
from ..automata.numbers import Numbers
from ..chart.automaton import ChartAutomaton
from ..limits import spend
from .automaton import GoalAutomaton

MOST_PLACES = 60_000
STEPS_PER_PLACE = 200


class Entered(NamedTuple):
    """A rule, by its start node, and where the goals are when it is entered."""

    rule: int
    goals: int


class ProductState(NamedTuple):
    """A node within an entered rule, what is counted there, and where the goals are."""

    within: Entered
    node: int
    counted: int
    goals: int


class ProductNode(NamedTuple):
    """The parts of a node: edges (first, last byte, target), links (kind, target, argument), whether its rule ends."""

    edges: list[list[int]]
    links: list[list[int]]
    is_final: bool


def may_meet(automaton: ChartAutomaton, goals: Sequence[GoalAutomaton], most: int = MOST_PLACES) -> bool:
    """False if no text of a constraint meets all goals; True if one may.

    Counters and sets of members are left aside at first, and then counted, but for large sets. True, too, where more
    than `most` places would have to be looked at.
    """
    first = _Product(automaton, goals, counts=False)
    if not first.may_end(most):
        return False
    return not first.has_counters or first.is_cut(most) or _Product(automaton, goals, counts=True).may_end(most)


class _Product:
    """The places that are reached. counts: whether counters are counted."""

    def __init__(self, automaton: ChartAutomaton, goals: Sequence[GoalAutomaton], *, counts: bool) -> None:
        self._automaton, self._goals, self._counts = automaton, goals, counts
        self.has_counters = False
        self._nodes: dict[int, ProductNode] = {}
        self._joint: Numbers[tuple[int, ...]] = Numbers()
        self._rows: dict[int, list[int]] = {}
        self._seen: set[ProductState] = set()
        self._pending: list[ProductState] = []
        self._callers: dict[Entered, set[tuple[Entered, int, int]]] = {}
        self._ends: dict[Entered, set[int]] = {}

    def is_cut(self, most: int) -> bool:
        """Tell whether there are more places than may be looked at."""
        return len(self._seen) > most

    def may_end(self, most: int) -> bool:
        """Tell whether the whole text may end with all goals met; True if that takes more than `most` places."""
        root = Entered(self._automaton.rule, self._joint[tuple(0 for _ in self._goals)])
        self._enter(root)
        while self._pending:
            spend(STEPS_PER_PLACE)
            self._visit(self._pending.pop())
            if self.is_cut(most) or any(map(self._is_met, self._ends[root])):
                return True
        return False

    def _is_met(self, goals: int) -> bool:
        places = self._joint.states[goals]
        return all(goal.met[place] for goal, place in zip(self._goals, places, strict=True))

    def _enter(self, rule: Entered) -> None:
        self._callers[rule], self._ends[rule] = set(), set()
        self._push(ProductState(rule, rule.rule, 0, rule.goals))

    def _push(self, place: ProductState) -> None:
        if place not in self._seen:
            self._seen.add(place)
            self._pending.append(place)

    def _visit(self, place: ProductState) -> None:
        """Go on from a place by all bytes and links."""
        node = self._node(place.node)
        for first, last, target in node.edges:
            for goals in set(self._row(place.goals)[first : last + 1]):
                self._push(place._replace(node=target, goals=goals))
        for kind, target, argument in node.links:
            if kind == CALL:
                self._call(place, Entered(target, place.goals), argument)
            elif (count := self._behind(place.node, kind, argument, place.counted)) is not None:
                self._push(place._replace(node=target, counted=count))
        if node.is_final and place.goals not in self._ends[place.within]:
            self._ends[place.within].add(place.goals)
            for outer, after, count in self._callers[place.within]:
                self._push(ProductState(outer, after, count, place.goals))

    def _call(self, place: ProductState, rule: Entered, after: int) -> None:
        """Enter a rule, to go on at a node."""
        if rule not in self._callers:
            self._enter(rule)
        self._callers[rule].add((place.within, after, place.counted))
        for goals in self._ends[rule]:
            self._push(place._replace(node=after, goals=goals))

    def _behind(self, node: int, kind: int, argument: int, count: int) -> int | None:
        """The count behind a link; None if it does not let through."""
        if kind == EPSILON and not argument:
            return count
        graph = self._automaton.graph_arrays
        counter = int(graph.nodes[node, COUNTER]) if kind == GUARD else argument
        least, most = graph.counters[counter].tolist()
        if most < 0 and least < 0:  # a large set
            return count
        self.has_counters = True
        if not self._counts:
            return 0
        if kind == GUARD:
            needed, refused, kept, added = graph.guards[argument].tolist()
            lets_through = count & needed == needed and not (refused and count & refused == refused)
            return count & kept | added if lets_through else None
        if kind == INCREMENT:
            return count + 1 if most != UNBOUNDED or count < least else count
        if kind == EPSILON:
            return count if count < most else None
        return 0 if count >= least else None

    def _node(self, number: int) -> ProductNode:
        node = self._nodes.get(number)
        if node is None:
            graph = self._automaton.graph_arrays
            if graph.nodes[number, FLAGS] & LAZY:
                self._automaton.define(number)
                graph = self._automaton.graph_arrays
            row = graph.nodes[number].tolist()
            edges, links = graph.edges[row[EDGE_LO] : row[EDGE_HI]], graph.links[row[LINK_LO] : row[LINK_HI]]
            node = self._nodes[number] = ProductNode(edges.tolist(), links.tolist(), bool(row[FLAGS] & FINAL))
        return node

    def _row(self, goals: int) -> list[int]:
        """The states of the goals after each byte."""
        row = self._rows.get(goals)
        if row is None:
            places = self._joint.states[goals]
            after = (goal.after[place].tolist() for goal, place in zip(self._goals, places, strict=True))
            row = self._rows[goals] = [self._joint[each] for each in zip(*after, strict=True)]
        return row
