"""Strings under many conditions: a node for each common state of their automata, made when it is reached."""

from __future__ import annotations

from collections.abc import Callable

from .....kernels.answers import NEVER
from ....graph.lowering import Lowering
from ....limits import spend
from ...automata.conjunction import Conjunction
from ...automata.spelling import PLAIN, Alphabet, Escapes
from .character_edges import CharacterEdges


class ConjunctionPlaces:
    """Adds the strings of a `Conjunction` to the current rule of a graph, each state a node, defined when reached.

    after: gives the node behind the closing quote, for a state in which a string may end
    end, beyond: a node, and how many bytes further than the verdict counts it lies
    """

    def __init__(
        self,
        lowering: Lowering,
        escapes: Escapes,
        strings: Conjunction,
        after: Callable[[int], int],
        end: int,
        beyond: int = 0,
    ) -> None:
        self._graph = lowering.graph
        self._escapes: Escapes = escapes
        self._strings = strings
        self._alphabet = Alphabet(strings.atoms, escapes)
        self._edges = CharacterEdges(lowering, self._alphabet)
        self._after = after
        self._end = end
        self._beyond = beyond + 1
        self._nodes: dict[int, int] = {}

    def entry(self) -> int:
        """The node before the opening quote."""
        return self._graph.node(((0x22, 0x22, self._node(self._strings.start)),))

    def _node(self, state: int) -> int:
        node = self._nodes.get(state)
        if node is None:
            node = self._nodes[state] = self._graph.lazy_node(
                lambda node: self._define(node, state), lambda: self._beyond + self._strings.promised(state), self._end
            )
        return node

    def _define(self, node: int, state: int) -> None:
        strings = self._strings
        row = strings.row(state)
        spend(2000)
        targets = {after: self._node(after) for after in set(row) if after >= 0 and strings.promised(after) < NEVER}
        edges = self._edges.of(self._alphabet.ways(row), targets)
        if strings.cost_at_end(state) < NEVER:
            edges.append((0x22, 0x22, self._after(state)))
        if strings.is_endless:
            self._graph.promise_span(node, PLAIN)
        self._graph.define(node, edges)
