"""A schema as a graph: its formulas are rules, lowered when the automaton first reaches them.

The values of a schema may be a part of other text (`EmbeddedSchema`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from ....errors import SchemaError
from ....kernels.chart.layout import CALL, EPSILON
from ...graph.graph import HEAVY, Graph, Link
from ..algebra.cases import ANY_STRING, NO_NAMES, Array, Normal, Number, Object, Rule, String
from ..algebra.formula import EVERYTHING, NOTHING, Formula
from ..algebra.normalise import as_case
from ..compiled import CompiledSchema
from ..read.documents import SchemaOptions
from .arrays import ItemLowering
from .check import check
from .constants import FEW, ConstantPlaces, container_kinds
from .form import Form
from .objects.choices import GroupLowering
from .objects.member_set import MemberSet, suits
from .objects.members import Members
from .objects.names import MemberNames, uncounted
from .rules import LazyValue, RuleLowering
from .unique import has_twins

SHORT = 32
"""Maximum number of constants or members that are few, and their maximum average length."""
FEW_RULES = 4
"""Maximum number of rules on names that are few; their sets of names are then listed."""
USUAL = 1 << 64
"""Exclusive bound on the numerators and denominators of usual bounds."""


def weight_of(normal: Normal) -> int:
    """Return the cost of lowering a normal form, in units of a string; HEAVY if it is unusual."""
    if normal.constants or len(normal.arrays) > 1 or len(normal.objects) > 1:
        return HEAVY
    if not (all(map(_is_light, normal.strings)) and all(map(_is_round, normal.numbers))):
        return HEAVY
    weight = 1 + len(normal.arrays)
    for case in normal.objects:
        if case.either or case.some or not uncounted(case):
            return HEAVY
        if not _are_short(case.properties) or not _are_few(case.rules):
            return HEAVY
        weight += 2 + len(case.properties) // 4
    return weight


def _are_few(rules: tuple[Rule, ...]) -> bool:
    """Test whether rules are few, each with few names or all but few."""
    names = (rule.names for rule in rules)
    others = (replace(each, excluded=NO_NAMES) if _are_short(each.excluded) else each for each in names)
    return len(rules) <= FEW_RULES and all(map(_is_light, others))


def _is_light(case: String) -> bool:
    """Test whether strings are unconstrained, or few."""
    return case == ANY_STRING or (case.values is not None and _are_short(case.values))


def _are_short(texts: Collection[str]) -> bool:
    return len(texts) <= SHORT and sum(map(len, texts)) <= SHORT * SHORT


def _is_round(case: Number) -> bool:
    """Test whether numbers are all or integers, with usual bounds or none."""
    if case.multiple_of not in (None, 1) or case.not_multiple_of or case.excluded or case.values or case.either:
        return False
    bounds = (bound for bound in (case.minimum, case.maximum) if bound is not None)
    return all(abs(bound.numerator) < USUAL and bound.denominator < USUAL for bound in bounds)


class SchemaLowering(RuleLowering):
    """Defines the bodies of formulas' rules."""

    def weight_of(self, formula: Formula) -> int:
        """Return `NamedRule.weight` of the rule of a member with a formula's values. Raises LimitError."""
        return self._weight(formula, is_member=True)

    def _weight(self, formula: Formula, *, is_member: bool) -> int:
        """Return the weight of everything defined with the rule of a formula's values."""
        if formula is EVERYTHING:
            return 1
        normal = self.schema.cases(formula)
        weight = weight_of(normal)
        if weight == HEAVY or not all(map(self._is_uniform, normal.arrays)):
            return HEAVY
        for case in normal.objects:
            # The formula of a member may be complex; if it is too large, this is noticed here.
            for member in (*case.properties.values(), *(rule.formula for rule in case.rules)):
                self.schema.has_instance(member)
        if is_member:
            weight += sum(self._weight(case.rest, is_member=False) for case in normal.arrays if case.max_items != 0)
        return min(weight, HEAVY)

    def _is_uniform(self, case: Array) -> bool:
        """Test whether an array has only length bounds and one formula for all items."""
        asks = case.prefix or case.contains or case.unique is not None or self.beside_free
        return not asks and (case.max_items == 0 or (case.rest is not NOTHING and self.schema.has_instance(case.rest)))

    def define_value(self, start: int, formula: Formula, depth: int) -> None:
        """Define the body of the current rule: the alternatives of the formula."""
        self.graph.define(start, links=self._alternatives(formula, depth))

    def define_member(self, start: int, formula: Formula, depth: int) -> None:
        """Define the body of the current rule: colon, and the alternatives of the formula."""
        promise = LazyValue(self, formula, depth + 1).promise
        value = self.graph.promised(self._alternatives(formula, depth + 1), promise)
        self.graph.define(start, links=(self.colon(value),))

    def _alternatives(self, formula: Formula, depth: int) -> list[Link]:
        """Return the links to the values of a formula; they lead to the end of the current rule."""
        normal = self.schema.cases(formula)
        final = self.graph.final()
        words = [b"null"] if normal.null else []
        words += [b"true" if value else b"false" for value in sorted(normal.booleans)]
        entries: list[int | None] = [self.graph.literal(word, final) for word in words]
        # Parts shared by many places are rules of their own, lowered once.
        links: list[Link] = [(CALL, self.number_rule(case), final) for case in normal.numbers]
        for case in normal.strings:
            if case.values is None:
                rule = self.string_rule(case)
                if rule is not None:
                    links.append((CALL, rule, final))
            else:
                entries.append(self.strings.entry(case, final))
        alone: list[Any] = []
        together: list[Any] = []
        for constant in normal.constants:
            is_alone = len(normal.constants) <= FEW or (self.beside_free and has_twins(constant))
            (alone if is_alone else together).append(constant)
        for kind in container_kinds(together):
            places = ConstantPlaces(self, kind, depth, final, [final] * len(kind), lambda _: 0)
            entries.append(places.entry())
        constants = [as_case(constant, self.schema.formulas) for constant in alone]
        for case in (*normal.arrays, *normal.objects, *constants):
            entries.append(self._container(case, formula, depth, final))
        links += [(EPSILON, entry, 0) for entry in entries if entry is not None]
        return links

    def _container(self, case: Array | Object, formula: Formula, depth: int, target: int) -> int | None:
        """Return the node before an array or object of a formula, continuing at `target`; None if there is none."""
        if isinstance(case, Array):
            return ItemLowering(self, case, formula, depth, target).entry()
        if case.either:
            return GroupLowering(self, case, depth, target).entry()
        names = MemberNames(self, case, depth)
        kind = (
            MemberSet(self, names, depth, target) if suits(case, names) else Members(self, case, names, depth, target)
        )
        return kind.entry()


REMEMBERS = (
    "it remembers what has been written, items that must differ (uniqueItems) or names of members that are "
    "counted, which is no part of a grammar"
)
# The options of generate.json by default
_FORM, _OPTIONS = Form("schema", spelling="plain"), SchemaOptions(max_cases=4096)


@dataclass(frozen=True, slots=True)
class EmbeddedSchema:
    """The values of a schema in the form of `generate.json` with default options.

    text: the schema, as JSON text; fewest: the bytes of a short value
    """

    text: str
    fewest: int

    @classmethod
    def of(cls, text: str) -> EmbeddedSchema:
        """Compile a schema.

        Raises SchemaError if it is malformed, has no instance or cannot be enforced exactly, LimitError.
        """
        schema = _compiled(text)
        schema.check_has_instance()
        if check(schema, _FORM).any:
            raise SchemaError(f"this schema cannot be a part of other text: {REMEMBERS}", "#")
        return cls(text, SchemaLowering(schema, _FORM).shortest(schema.root))

    def lower_into(self, graph: Graph) -> int:
        """Add the values to a graph; return the start node of their rule."""
        return SchemaLowering(_compiled(self.text), _FORM, graph=graph).root()


def _compiled(text: str) -> CompiledSchema:
    return CompiledSchema(text, options=_OPTIONS)
