"""The place of a state in a grammar or schema: the names that were given to pieces of the graph."""

from __future__ import annotations

from collections.abc import Iterator

from ...kernels.chart.interning import HI, LO
from ...kernels.chart.layout import (
    CALL,
    ENTRY,
    ENTRY_ORIGIN,
    ENTRY_RULE,
    ENTRY_TARGET,
    HEADER,
    ITEM,
    ITEM_NODE,
    ITEM_ORIGIN,
    LINK_ARGUMENT,
    LINK_KIND,
    LINK_TARGET,
    OWN_RETURN_SET,
    ROOT,
    RULE,
    SELF,
)
from .automaton import ChartAutomaton

Site = tuple[int, int]


def places(automaton: ChartAutomaton, state: int) -> list[str]:
    """The innermost named rules that read on in a state, each with the named terminals that it is in or before."""
    return _Reader(automaton).places(state) if automaton.graph.names else []


class _Reader:
    """Follows the calls in which a chart's items are up to the rules that have names.

    A rule whose last piece is another rule is not there in the chart while that one is read, only whoever called
    it; it is found again as what that caller calls.
    """

    def __init__(self, automaton: ChartAutomaton) -> None:
        self._graph = automaton.graph
        self._chart = automaton.chart
        arrays = automaton.graph_arrays
        self._nodes, self._links = arrays.nodes, arrays.links

    def places(self, state: int) -> list[str]:
        terminals: dict[str, dict[str, None]] = {}
        for node, return_set in self._open_nodes(state):
            terminal = self._graph.terminal_at(node)
            for name in self._named(int(self._nodes[node, RULE]), return_set):
                terminals.setdefault(name, {}).update({terminal: None} if terminal not in (None, name) else {})
        return [f"{name} ({', '.join(found)})" if found else name for name, found in terminals.items()]

    def _named(self, rule: int, origin: int) -> list[str]:
        """The names of the innermost named rules around an item: of its own rule, or of what called it."""
        found: dict[str, None] = {}
        todo: list[Site] = [(rule, origin)]
        for rule, origin in todo:
            if rule in self._graph.names:
                found[self._graph.names[rule].name()] = None
            elif origin != ROOT:
                for target, outer in self._returns(origin, rule):
                    named = [callee for callee in self._called_before(target) if callee in self._graph.names]
                    for callee in named:
                        found[self._graph.names[callee].name()] = None
                    site = (int(self._nodes[target, RULE]), outer)
                    if not named and site not in todo:
                        todo.append(site)
        return list(found)

    def _open_nodes(self, state: int) -> Iterator[Site]:
        """The nodes that a state reads on from, each with the return set of its rule."""
        words, lo, hi = self._chart.words, self._chart.states.item(state, LO), self._chart.states.item(state, HI)
        own = words.item(lo + OWN_RETURN_SET)
        for at in range(lo + HEADER, hi, ITEM):
            origin = words.item(at + ITEM_ORIGIN)
            yield words.item(at + ITEM_NODE), own if origin == SELF else origin

    def _returns(self, return_set: int, rule: int) -> Iterator[Site]:
        """The nodes that a rule returns to, each with the return set of that node's own rule."""
        words, sets = self._chart.words, self._chart.return_sets
        for at in range(sets.item(return_set, LO), sets.item(return_set, HI), ENTRY):
            if words.item(at + ENTRY_RULE) == rule:
                origin = words.item(at + ENTRY_ORIGIN)
                yield words.item(at + ENTRY_TARGET), return_set if origin == SELF else origin

    def _called_before(self, target: int) -> list[int]:
        """The rules whose calls return to this node."""
        links = self._links
        return [
            int(rule)
            for rule in links[(links[:, LINK_KIND] == CALL) & (links[:, LINK_ARGUMENT] == target), LINK_TARGET]
        ]
