"""Names of members that many rules tell apart: what a member's value satisfies is known when its name ends.

Rules with n patterns may tell 2^n sets of names apart, each with another formula. They are not listed: one automaton
reads the names under all patterns at once, and its states are made when they are reached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .....kernels.answers import NEVER
from ....automata.charsets import ALL
from ....syntax import Chars, Node, Repeat
from ...algebra.cases import Object, String
from ...algebra.formula import Formula
from ...automata.conjunction import Conjunction, any_of, conditions_of
from ...automata.demand import Met
from ..protocol import MemberLowering
from ..strings.conjunction import ConjunctionPlaces

MANY_RULES = 6
"""From how many rules on names their regions are not listed."""


def suits(case: Object) -> bool:
    """Tell whether an object has many rules on names, and only values depend on which of them a member meets."""
    return sum(bool(rule.names.patterns) for rule in case.rules) >= MANY_RULES and not case.some


class NameChoice:
    """The names that an object does not name itself, and what the values of their members satisfy."""

    def __init__(self, owner: MemberLowering, case: Object, depth: int) -> None:
        self._owner = owner
        self._rules = case.rules
        self._depth = depth
        self._formulas: dict[Met, Formula] = {}
        conditions: dict[object, tuple[int, Node]] = {}
        self._asked = [_numbered(rule.names, conditions) for rule in case.rules]
        self._named = len(conditions)
        nodes = [node for _, node in conditions.values()]
        if case.properties:
            nodes.append(any_of(case.properties))
        self.names = Conjunction(nodes, verdict=self._cost)

    def formula(self, met: Met) -> Formula:
        """The formula of a member whose name meets these conditions."""
        known = self._formulas.get(met)
        if known is None:
            formulas = self._owner.schema.formulas
            known = self._formulas[met] = formulas.all_of(
                rule.formula
                for rule, asked in zip(self._rules, self._asked, strict=True)
                if all(met[number] == wanted for number, wanted in asked)
            )
        return known

    def _cost(self, met: Met) -> int:
        """The bytes of colon and value, NEVER if there is no value or the object names the member itself."""
        if any(met[self._named :]):
            return NEVER
        formula = self.formula(met)
        if not self._owner.schema.has_instance(formula):
            return NEVER
        return self._owner.length_after_name(formula, self._depth)

    @property
    def shortest(self) -> int:
        """The bytes of a short member, NEVER if there is none."""
        needed = self.names.needed(self.names.start)
        return needed if needed >= NEVER else 2 + needed

    def entry(self, tail: Callable[[Formula], int], end: int, after: int) -> int:
        """The node before a name, each of which leads on to the tail of its formula.

        after: the bytes from there to the node `end`
        """
        names, owner = self.names, self._owner
        places = ConjunctionPlaces(
            owner.lowering, owner.form.escapes, names, lambda state: tail(self.formula(names.met(state))), end, after
        )
        return places.entry()


def _numbered(names: String, conditions: dict[object, tuple[int, Node]]) -> Sequence[tuple[int, bool]]:
    """The conditions on names, each as its number and whether it must be met; new ones are added."""
    wanted: list[tuple[object, Node, bool]] = [(("syntax", node), node, holds) for node, holds in conditions_of(names)]
    if names.values is not None:
        wanted.append((("texts", names.values), any_of(names.values), True))
    if names.excluded:
        wanted.append((("texts", names.excluded), any_of(names.excluded), False))
    if names.min_length or names.max_length is not None:
        node = Repeat(Chars(ALL), names.min_length, names.max_length)
        wanted.append((("syntax", node), node, True))
    return [(conditions.setdefault(key, (len(conditions), node))[0], holds) for key, node, holds in wanted]
