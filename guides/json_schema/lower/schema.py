"""A schema as a graph: bodies of rules that formulas have alike are copied from stencils, the others are lowered."""

from __future__ import annotations

from functools import cached_property

from ....kernels.chart.layout import EPSILON, UNBOUNDED
from ...graph.later import HEAVY
from ..algebra.cases import ANY_NUMBER, ANY_STRING, Array, Normal
from ..algebra.formula import EVERYTHING, NOTHING, Formula
from .formulas import FormulaLowering, LazyValue
from .objects.member_names import MemberNames
from .objects.member_set import MemberSet, suits
from .stencil_graph import COUNT, ITEMS, NAMES, NUMBER, SPACE, STRING, Hole
from .stencils import ANYTHING, Shape, Stencil, StencilLowering, is_common, keep, shape_of, stencils, turns, weight_of


class SchemaLowering(FormulaLowering):
    """As its base, with stencils."""

    @cached_property
    def _stencils(self) -> dict[Shape, Stencil]:
        return stencils(self.form)

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

    def define_value(self, start: int, formula: Formula, depth: int) -> None:
        """Give the current rule its body: the alternatives of the formula."""
        if formula is EVERYTHING and not (self.form.spacing.depends_on_depth or self.beside_free):
            self._define_anything(start)
        elif not self._copied(start, formula, depth, is_member=False):
            self.define_body(start, formula, depth, is_member=False)

    def define_member(self, start: int, formula: Formula, depth: int) -> None:
        """Give the current rule its body: colon, and the alternatives of the formula."""
        if formula is EVERYTHING and not self.form.spacing.depends_on_depth:
            value = self.value(formula, depth)
            self.graph.define(start, links=((EPSILON, self.colon(value, self.graph.final()), 0),))
            self.graph.expand_too(value)
        elif not self._copied(start, formula, depth + 1, is_member=True):
            self.define_body(start, formula, depth + 1, is_member=True)

    def _define_anything(self, start: int) -> None:
        """Give the current rule any value as its body, in which nothing is lazy: every schema has it."""
        stencil = self._stencils.get(ANYTHING)
        if stencil is None:
            stencil = self._stencils[ANYTHING] = StencilLowering(self.schema, self.form).anything()
        given: dict[Hole, int] = {(SPACE, at): self.space_rule(space) for at, space in enumerate(stencil.spaces)}
        string = self.string_rule(ANY_STRING)
        assert string is not None
        given.update({(NUMBER, 0): self.number_rule(ANY_NUMBER), (STRING, 0): string, (STRING, 1): string})
        self.graph.insert(stencil.fragment, [given[hole] for hole in stencil.holes], start)

    def _copied(self, start: int, formula: Formula, depth: int, *, is_member: bool) -> bool:
        """Give the current rule its body by a copy of what formulas like this have alike; False if there is no such."""
        normal = self.schema.cases(formula)
        if not is_common(normal) or not all(map(self._is_uniform, normal.arrays)):
            return False
        given = self._given(normal)
        items = normal.arrays[0] if normal.arrays else None
        members = None
        if given is not None and normal.objects:
            names = MemberNames(self, normal.objects[0], depth)
            members = MemberSet(self, names, depth, 0) if suits(normal.objects[0], names) else None
        if given is None or (normal.objects and members is None):
            return False
        if items is not None and items.max_items != 0:
            given[ITEMS, 0] = self.value(items.rest, depth + 1)
            least, most = turns(items)
            if most and (least or most != UNBOUNDED):
                given[COUNT, 0] = self.graph.counter_for(least, most)
        shape = shape_of(normal, items, members, is_member, depth if self.form.spacing.depends_on_depth else 0)
        stencil = self._stencils.get(shape)
        if stencil is None:
            stencil = keep(self._stencils, shape, self._stencil(formula, depth, is_member=is_member))
        for number, space in enumerate(stencil.spaces):
            given[SPACE, number] = self.space_rule(space)
        if members is not None:
            given.update(members.given())
        shift = self.graph.insert(stencil.fragment, [given[hole] for hole in stencil.holes], start)
        if members is not None and stencil.after:
            members.settle(given[NAMES, 0], stencil.after + shift, stencil.final + shift)
            # One token of a mask reads the colon, brackets and the quote of the first name.
            self.graph.expand_too(given[NAMES, 0])
        if is_member and (ITEMS, 0) in given:
            self.graph.expand_too(given[ITEMS, 0])
        if is_member:
            self.graph.promise(stencil.promising + shift, LazyValue(self, formula, depth).promise)
        return True

    def _is_uniform(self, case: Array) -> bool:
        """Tell whether nothing is asked of an array but how many items there are, and of all items the same."""
        asks = case.prefix or case.contains or case.unique is not None or self.beside_free
        return not asks and (case.max_items == 0 or (case.rest is not NOTHING and self.schema.has_instance(case.rest)))

    def _given(self, normal: Normal) -> dict[Hole, int] | None:
        """The rules of the numbers and strings of a normal form; None if some strings have none."""
        given: dict[Hole, int] = {(NUMBER, at): self.number_rule(case) for at, case in enumerate(normal.numbers)}
        for at, case in enumerate(normal.strings):
            rule = self.string_rule(case)
            if rule is None:
                return None
            given[STRING, at] = rule
        return given

    def _stencil(self, formula: Formula, depth: int, *, is_member: bool) -> Stencil:
        """The body of a formula, with holes for what is different in that of others."""
        return StencilLowering(self.schema, self.form).stencil(formula, depth, is_member=is_member)
