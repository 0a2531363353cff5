"""Where in a chart that begins of which no two may be equal: items of watched arrays, names of watched objects."""

from __future__ import annotations

from ...kernels.answers import DEAD
from ...kernels.chart.interning import HI, LO
from ...kernels.chart.layout import ENTRY, ENTRY_TARGET, OWN_RETURN_SET, ROOT, RULE
from ..chart.automaton import ChartAutomaton
from ..chart.sites import open_nodes, returns
from ..lift.lifted_guide import MAX_STEPS
from ..limits import spend

EACH_LOOK = 2000
"""Steps of work that it takes to find out what a byte has begun."""


class Beginnings:
    """Says where rules are called that return to the nodes that are watched; hold the automaton's lock.

    marks: nodes, also those that are made later
    by_byte: whether that takes the byte behind, as other values may begin there that are not watched
    """

    def __init__(self, automaton: ChartAutomaton, marks: set[int], *, by_byte: bool = False) -> None:
        self._automaton = automaton
        self._marks = marks
        self._by_byte = by_byte
        self._known: dict[int, bool] = {}
        self._known_by_byte: dict[tuple[int, int], bool] = {}

    def may_be(self, state: int) -> bool:
        """Whether something that is watched may begin in a state of the chart."""
        known = self._known.get(state)
        if known is None:
            if len(self._known) >= MAX_STEPS:
                self._known.clear()
            ready = self._automaton.ready(state)
            chart = self._automaton.chart
            return_set = chart.words.item(chart.states.item(ready, LO) + OWN_RETURN_SET)
            first, last = chart.return_sets.item(return_set, LO), chart.return_sets.item(return_set, HI)
            targets = chart.words[first + ENTRY_TARGET : last : ENTRY].tolist()
            known = self._known[state] = not self._marks.isdisjoint(targets)
        return known

    def begins(self, state: int, byte: int) -> bool:
        """Whether what is watched begins in a state of the chart with a byte, with which nothing else begins."""
        if not self._by_byte or not self.may_be(state):
            return self.may_be(state)
        known = self._known_by_byte.get((state, byte))
        if known is None:
            if len(self._known_by_byte) >= MAX_STEPS:
                self._known_by_byte.clear()
            known = self._known_by_byte[state, byte] = self._is_open(state, self._automaton.step(state, byte))
        return known

    def _is_open(self, state: int, after: int) -> bool:
        """Whether rules that were called in a state, and return to watched nodes, are open in the one after it."""
        spend(EACH_LOOK)
        state, after = self._automaton.ready(state), self._automaton.ready(after)
        if after == DEAD:
            return False
        chart, nodes = self._automaton.chart, self._automaton.graph_arrays.nodes
        called = chart.words.item(chart.states.item(state, LO) + OWN_RETURN_SET)
        returning = {each for each in returns(chart, called) if each.target in self._marks}
        ends, rules = {each[1:] for each in returning}, {each.rule for each in returning}
        todo = [(nodes.item(node, RULE), return_set) for node, return_set in open_nodes(chart, after)]
        seen = set(todo)
        while todo:
            rule, return_set = todo.pop()
            if return_set == called:
                if rule in rules:
                    return True
                continue
            for callee, target, count, outer in returns(chart, return_set) if return_set != ROOT else ():
                # What ends with the rule itself returns at once to whoever called that.
                if callee == rule and (target, count, outer) in ends:
                    return True
                site = nodes.item(target, RULE), outer
                if callee == rule and site not in seen:
                    seen.add(site)
                    todo.append(site)
        return False
