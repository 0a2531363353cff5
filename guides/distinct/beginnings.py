"""Places in a chart where what must differ begins: items of watched arrays, names of watched objects."""

from __future__ import annotations

from ...kernels.answers import DEAD
from ...kernels.chart.interning import HI, LO
from ...kernels.chart.layout import ENTRY, ENTRY_TARGET, OWN_RETURN_SET
from ..chart.automaton import ChartAutomaton
from ..graph.utf8 import EQUAL_ITEM
from ..lift.lifted_guide import MAX_STEPS


class Beginnings:
    """Says where rules are called that return to the nodes that are watched; hold the automaton's lock.

    marks: nodes, also those that are made later
    beside_free: whether something that is not watched may stand at the same place
    """

    def __init__(self, automaton: ChartAutomaton, marks: set[int], *, beside_free: bool = False) -> None:
        self._automaton = automaton
        self._marks = marks
        self.beside_free = beside_free
        self._known: dict[int, bool] = {}

    def may_be(self, state: int) -> bool:
        """Tell whether something that is watched may begin in a state of the chart."""
        known = state != DEAD and self._known.get(state)
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

    def places(self, state: int, data: bytes) -> ChartPlaces:
        """The places within a text that is read in a state of the chart."""
        return ChartPlaces(self._automaton, self, state, data)


class ChartPlaces:
    """The states of a chart within a text, as `trail.ReadPlaces` says.

    Items of arrays may differ, or else need not: the chart reads both. Once two are equal it goes on without the arrays
    in which they must differ: behind items of all others `EQUAL_ITEM` leads on.
    """

    __slots__ = ("_automaton", "_begun", "_data", "_has_left", "_items", "_state")

    def __init__(self, automaton: ChartAutomaton, items: Beginnings, state: int, data: bytes) -> None:
        self._automaton = automaton
        self._items = items
        self._data = data
        # The state that was known last, and where
        self._state = state
        self._begun = 0
        self._has_left = False

    def before(self, at: int) -> int:
        """The state before a place."""
        begun = self._begun
        return self._automaton.read(self._state, self._data[begun:at]) if at > begun else self._state

    def may_differ(self, at: int) -> bool:
        """As `trail.ReadPlaces` says."""
        return self._items.may_be(self.before(at))

    def is_free(self, at: int) -> bool:
        """As `trail.ReadPlaces` says."""
        return self._items.beside_free and not self.may_differ(at)

    def leave(self, at: int) -> bool:
        """As `trail.ReadPlaces` says."""
        after = self._automaton.step(self.before(at), EQUAL_ITEM) if self._items.beside_free else DEAD
        if after != DEAD:
            self._state, self._begun, self._has_left = after, at, True
        return after != DEAD

    def last(self, after: int) -> int:
        """The state behind all of the text, which is `after` if nothing was left; DEAD if the text leads nowhere."""
        return self.before(len(self._data)) if self._has_left else after
