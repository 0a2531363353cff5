"""A schema as a graph: its formulas are rules, each worked out when the automaton first reaches it.

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
from .arrays import Items
from .check import check
from .constants import FEW, ConstantPlaces, container_kinds
from .form import Form
from .objects.choices import Choices
from .objects.member_set import MemberSet, suits
from .objects.members import Members
from .objects.names import MemberNames
from .rules import LazyValue, RuleLowering
from .unique import has_twins

SHORT = 32
"""Up to how many constants, or members, are few; and how long they are on average."""
FEW_RULES = 4
"""Up to how many rules about names are few, which may be told apart by all that they have in common."""
USUAL = 1 << 64
"""Above the numerators and denominators of usual bounds."""


def weight_of(normal: Normal) -> int:
    """The cost of lowering a normal form, in strings; HEAVY for what is not so common that this is known."""
    if not _is_single(normal):
        return HEAVY
    if not (all(map(_is_light, normal.strings)) and all(map(_is_round, normal.numbers))):
        return HEAVY
    weight = 1 + len(normal.arrays)
    for case in normal.objects:
        if not _is_plain(case) or not _are_short(case.properties) or not _are_few(case.rules):
            return HEAVY
        weight += 2 + len(case.properties) // 4
    return weight


def _is_single(normal: Normal) -> bool:
    """Tell whether there is one kind of arrays and of objects at most, and none by value."""
    return not normal.constants and len(normal.arrays) <= 1 and len(normal.objects) <= 1


def _are_few(rules: tuple[Rule, ...]) -> bool:
    """Tell whether rules are few, about names that are all but few, or few."""
    return len(rules) <= FEW_RULES and all(_is_light(_without_excluded(rule.names)) for rule in rules)


def _without_excluded(names: String) -> String:
    return replace(names, excluded=NO_NAMES) if _are_short(names.excluded) else names


def _is_light(case: String) -> bool:
    """Tell whether strings are all, or few."""
    return case == ANY_STRING or (case.values is not None and _are_short(case.values))


def _are_short(texts: Collection[str]) -> bool:
    return len(texts) <= SHORT and sum(map(len, texts)) <= SHORT * SHORT


def _is_round(case: Number) -> bool:
    """Tell whether numbers are all, or integers, within usual bounds or not."""
    if case.multiple_of not in (None, 1) or case.not_multiple_of or case.excluded or case.values or case.either:
        return False
    bounds = (bound for bound in (case.minimum, case.maximum) if bound is not None)
    return all(abs(bound.numerator) < USUAL and bound.denominator < USUAL for bound in bounds)


def _is_plain(case: Object) -> bool:
    """Tell whether an object may be told by a set."""
    counted = case.max_properties is not None or case.min_properties > len(case.required)
    return not counted and not case.either and not case.some


class SchemaLowering(RuleLowering):
    """Gives the rules of formulas their bodies."""

    def weight_of(self, formula: Formula) -> int:
        """As `NamedRule.weight`, of the rule of a member with a formula's values. Raises LimitError."""
        return self._weight(formula, is_member=True)

    def _weight(self, formula: Formula, *, is_member: bool) -> int:
        """The weight of all that is defined with the rule of a formula's values."""
        if formula is EVERYTHING:
            return 1
        normal = self.schema.cases(formula)
        weight = weight_of(normal)
        if weight == HEAVY or not all(map(self._is_uniform, normal.arrays)):
            return HEAVY
        for case in normal.objects:
            # What is asked of a member may be anything: that is found out here, where it may be too much.
            for member in (*case.properties.values(), *(rule.formula for rule in case.rules)):
                self.schema.has_instance(member)
        if is_member:
            weight += sum(self._weight(case.rest, is_member=False) for case in normal.arrays if case.max_items != 0)
        return min(weight, HEAVY)

    def _is_uniform(self, case: Array) -> bool:
        """Tell whether nothing is asked of an array but how many items there are, and of all items the same."""
        asks = case.prefix or case.contains or case.unique is not None or self.beside_free
        return not asks and (case.max_items == 0 or (case.rest is not NOTHING and self.schema.has_instance(case.rest)))

    def define_value(self, start: int, formula: Formula, depth: int) -> None:
        """Give the current rule its body: the alternatives of the formula."""
        self.graph.define(start, links=self._alternatives(formula, depth))

    def define_member(self, start: int, formula: Formula, depth: int) -> None:
        """Give the current rule its body: colon, and the alternatives of the formula."""
        spacing, promise = self.form.spacing, LazyValue(self, formula, depth + 1).promise
        value = self.graph.promised(self._alternatives(formula, depth + 1), promise)
        colon = self.text(b":", self.gap(spacing.after_colon(), value))
        self.graph.define(start, links=((EPSILON, self.gap(spacing.before_colon(), colon), 0),))

    def _alternatives(self, formula: Formula, depth: int) -> list[Link]:
        """The links to the values of a formula, at the end of which is the end of the current rule."""
        normal = self.schema.cases(formula)
        final = self.graph.final()
        words = [b"null"] if normal.null else []
        words += [b"true" if value else b"false" for value in sorted(normal.booleans)]
        entries: list[int | None] = [self.graph.literal(word, final) for word in words]
        # What many places have in common is a rule of its own: there it is worked out once.
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
        """The node before an array or object of a formula that goes on at `target`; None if there is none."""
        if isinstance(case, Array):
            return Items(self, case, formula, depth, target).entry()
        if case.either:
            return Choices(self, case, depth, target).entry()
        names = MemberNames(self, case, depth)
        kind = (
            MemberSet(self, names, depth, target) if suits(case, names) else Members(self, case, names, depth, target)
        )
        return kind.entry()


REMEMBERS = (
    "it remembers what has been written, items that must differ (uniqueItems) or names of members that are "
    "counted, which is no part of a grammar"
)
# Those of generate.json without options
_FORM, _OPTIONS = Form("schema", spelling="plain"), SchemaOptions(max_cases=4096)


@dataclass(frozen=True, slots=True)
class EmbeddedSchema:
    """The values of a schema, written as `generate.json` without options has them.

    text: the schema, as JSON text; fewest: the bytes of a short value
    """

    text: str
    fewest: int

    @classmethod
    def of(cls, text: str) -> EmbeddedSchema:
        """The values of a schema.

        Raises SchemaError for what is no schema, has no instance or cannot be enforced exactly, LimitError.
        """
        schema = _compiled(text)
        schema.check_has_instance()
        if check(schema, _FORM).any:
            raise SchemaError(f"this schema cannot be a part of other text: {REMEMBERS}", "#")
        return cls(text, SchemaLowering(schema, _FORM).shortest(schema.root))

    def lower_into(self, graph: Graph) -> int:
        """Add the values to a graph; the start node of their rule."""
        return SchemaLowering(_compiled(self.text), _FORM, graph=graph).root()


def _compiled(text: str) -> CompiledSchema:
    return CompiledSchema(text, options=_OPTIONS)
