"""Numbers told on demand: a node for each state of `Numerals`, made when it is reached."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from .....kernels.chart.layout import EPSILON
from ....graph.graph import Edge
from ....graph.lowering import Lowering
from ....limits import spend
from ....syntax import Node, Sequence, Table
from ...algebra.cases import Number
from ...algebra.numbers import has_many_remainders
from ..form import Spelling
from .exponents import Exponents, digits_of
from .magnitudes import EXPONENTS_FROM, MOST_WRITTEN_OUT, Magnitude
from .multiples import decimal_places, decimal_step
from .notation import MINUS, OPTIONAL_PLUS, either, is_listed, side
from .numerals import Numerals


def is_told_on_demand(case: Number, spelling: Spelling) -> bool:
    """Whether the states of a set are made as they are reached: they would be many, or nobody knows."""
    if case.values is not None or not _is_decimal(case):
        return False
    if spelling == "plain" and not _is_whole(case):
        return False
    if not has_many_remainders(case):
        return False
    return bool(case.either) or not all(each is None or is_listed(each) for each in _sides(case))


def _is_decimal(case: Number) -> bool:
    """Whether all bounds have an end, as all have that JSON can write."""
    values = (value for value in (case.minimum, case.maximum) if value is not None)
    return all(decimal_places(value) is not None for value in values) and all(
        _is_decimal(one) for group in case.either for one in group
    )


def _is_whole(case: Number) -> bool:
    return case.notation != "real" and case.multiple_of is not None and not decimal_step(case.multiple_of)[1]


def _sides(case: Number) -> Iterator[Magnitude | None]:
    yield side(case, case.minimum, case.exclusive_minimum, case.maximum, case.exclusive_maximum, 1)
    yield side(case, case.maximum, case.exclusive_maximum, case.minimum, case.exclusive_minimum, -1)


def numerals_of(case: Number, spelling: Spelling) -> list[tuple[bytes, Numerals]]:
    """The numerals behind each sign that there are; integers that are plain have no -0."""
    found: list[tuple[bytes, Numerals]] = []
    for sign, text in ((1, b""), (-1, b"-")):
        kept, has_exponents = case, spelling == "any"
        if spelling == "plain":
            kept = replace(case, notation="integer", excluded=case.excluded | {0} if sign < 0 else case.excluded)
        if case.multiple_of is not None and not decimal_step(case.multiple_of)[1] > MOST_WRITTEN_OUT:
            most = case.maximum if sign > 0 else case.minimum
            has_exponents = has_exponents and (most is None or abs(most) >= EXPONENTS_FROM)
        one = Numerals(kept, sign, exponents=has_exponents)
        if one.is_alive(one.start):
            found.append((text, one))
    return found


def fewest_bytes(case: Number, spelling: Spelling) -> int:
    """The length of the shortest text of a set that is told on demand, and not empty."""
    return min(len(sign) + one.needed(one.start) for sign, one in numerals_of(case, spelling))


def numeral_rule(lowering: Lowering, case: Number, spelling: Spelling) -> int:
    """A new rule of a set that is told on demand; its start node."""
    graph = lowering.graph
    with graph.new_rule() as start:
        end = graph.final()
        places = ((sign, NumeralPlaces(lowering, one, end)) for sign, one in numerals_of(case, spelling))
        entries = [graph.literal(sign, each.entry()) for sign, each in places]
        graph.define(start, links=[(EPSILON, entry, 0) for entry in entries])
    return start


class NumeralPlaces:
    """Adds numerals to the current rule of a graph, before the node `end`."""

    def __init__(self, lowering: Lowering, numerals: Numerals, end: int) -> None:
        self._lowering = lowering
        self._graph = lowering.graph
        self._numerals = numerals
        self._end = end
        self._nodes: dict[int, int] = {}
        self._exponents: dict[Exponents, int] = {}

    def entry(self) -> int:
        """The node before the first digit."""
        return self._node(self._numerals.start)

    def _node(self, state: int) -> int:
        node = self._nodes.get(state)
        if node is None:
            node = self._nodes[state] = self._graph.lazy_node(
                lambda node: self._define(node, state), lambda: self._numerals.needed(state), self._end
            )
        return node

    def _define(self, node: int, state: int) -> None:
        spend(2000)
        numerals = self._numerals
        edges: list[Edge] = [(low, high, self._node(after)) for low, high, after in numerals.runs(state)]
        members = numerals.exponents(state)
        if members is not None:
            exponent = self._exponent(members)
            edges += ((ord(letter), ord(letter), exponent) for letter in "Ee")
        links = ((EPSILON, self._end, 0),) if numerals.is_accepting(state) else ()
        self._graph.define(node, edges, links)

    def _exponent(self, members: Exponents) -> int:
        """The node behind an E, before the exponent."""
        known = self._exponents.get(members)
        if known is None:
            entry = self._lowering.lower(either(*_signed(members)), self._end)
            assert entry is not None, "there are exponents"
            known = self._exponents[members] = entry
        return known


def _signed(members: Exponents) -> Iterator[Node]:
    """Exponents without a sign or with a plus, and those with a minus."""
    for sign, natural in ((OPTIONAL_PLUS, members.natural()), (MINUS, members.mirrored().natural())):
        if natural.high - natural.low + 1 > len(natural.holes):
            edges, accepting = digits_of(natural)
            transitions = np.full((len(edges), 256), -1, np.int32)
            transitions[:, 0x30:0x3A] = edges
            yield Sequence((sign, Table(transitions, accepting)))
