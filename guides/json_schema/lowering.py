"""A schema as a graph: each formula is a rule, worked out when the automaton first reaches it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from ...errors import OptionError, SchemaError
from ...kernels.chart.layout import CALL, EPSILON
from ..graph import Graph, Link
from ..lower import Lowering
from ..syntax import Literal as Text
from ..syntax import Node, Repeat
from . import strings
from .cases import Array, Normal, Number, Object, String
from .compiled import CompiledSchema
from .constant_places import FEW, ConstantPlaces, container_kinds
from .decimals import number_node
from .formula import NOTHING, Formula
from .lists import Items
from .measures import MOST, Measure, Measures
from .member_names import MemberNames
from .member_set import MemberSet, suits
from .members import Members
from .name_choice import suits as many_rules
from .normalise import as_case
from .pieces import number_piece, string_piece
from .spelling import Escapes
from .text import StringLowering
from .whitespace import Spacing

Order = Literal["schema", "any"]
Rules = dict[tuple[Formula, int], int]
Define = Callable[[int, Formula, int], None]
Promise = Callable[[Formula, int], int]

MAX_CHECKED = 20_000
# What a schema mentions that may have sets which cannot be enforced, or are too large
RISKY = frozenset(
    (
        *("uniqueItems", "contains", "unevaluatedItems", "not", "oneOf", "if", "dependencies", "dependentSchemas"),
        *("patternProperties", "propertyNames", "unevaluatedProperties", "minProperties", "maxProperties", "x-quote"),
    )
)


@dataclass(frozen=True, slots=True)
class Form:
    """How JSON may be written.

    order: "schema" writes members in the order of the schema, others after them; "any" in any order
    spacing: the white space; escapes: "canonical" as json.dumps(ensure_ascii=False) escapes, or "any"
    """

    order: Order = "schema"
    spacing: Spacing = field(default_factory=Spacing)
    escapes: Escapes = "canonical"

    def __post_init__(self) -> None:
        if self.order not in ("schema", "any"):
            raise OptionError(f'order must be "schema" or "any", not {self.order!r}')
        if self.escapes not in ("canonical", "any"):
            raise OptionError(f'escapes must be "canonical" or "any", not {self.escapes!r}')


class SchemaLowering:
    """Adds the values of a schema's formulas to a graph."""

    def __init__(self, schema: CompiledSchema, form: Form) -> None:
        self.schema = schema
        self.form = form
        self.graph = Graph()
        self.lowering = Lowering(self.graph)
        self.strings = StringLowering(self.lowering, form.escapes)
        self._values: Rules = {}
        self._members: Rules = {}
        self._shortest: dict[Formula, Measure] = {}
        self._measures = Measures(form.spacing.indent if form.spacing.depends_on_depth else None)
        self._gaps: dict[int, tuple[Node, int]] = {}
        self._strings: dict[String, int | None] = {}
        self._numbers: dict[Number, int] = {}

    def root(self) -> int:
        """The rule of the whole text."""
        around = self.form.spacing.around()
        value = self.value(self.schema.root, 0)
        if around == Text(b""):
            return value
        with self.graph.new_rule() as start:
            end = self.gap(around, self.graph.final())
            call = self.graph.node(links=((CALL, value, end),))
            self.graph.define(start, links=((EPSILON, self.gap(around, call), 0),))
        return start

    def check(self) -> None:
        """Raise now what generation would come upon: sets that cannot be enforced, or are too large.

        Follows the formulas from the root, up to MAX_CHECKED of them. Only a schema that mentions RISKY keywords
        may bring this about.
        """
        todo = [self.schema.root]
        seen = set(todo)
        while todo and len(seen) < MAX_CHECKED:
            formula = todo.pop()
            normal = self.schema.cases(formula)
            for case in normal.strings:
                self.strings.shortest(case)
            for array in normal.arrays:
                self._check_unique(array, formula)
            for part in self._parts(normal):
                if part not in seen:
                    seen.add(part)
                    todo.append(part)

    def _parts(self, normal: Normal) -> Iterator[Formula]:
        """The formulas of items and members."""
        for array in normal.arrays:
            yield from array.prefix
            yield array.rest
            # Not what comes of negated items: those are many, and each takes an automaton.
            written = [part for part in array.contains if part.formula.kind != "not"]
            yield from (self.schema.formulas.all_of((array.rest, part.formula)) for part in written)
            for part in written:
                if part.max is not None:
                    yield self.schema.formulas.all_of((array.rest, self.schema.formulas.negation(part.formula)))
        for object_ in normal.objects:
            for name in object_.properties:
                yield self.schema.member(object_, name)
            if many_rules(object_):
                yield from (rule.formula for rule in object_.rules)
                continue
            for names, formula in self.schema.regions(object_):
                self.strings.shortest(names)
                yield formula

    def _check_unique(self, array: Array, formula: Formula) -> None:
        most = array.max_items
        if array.unique is None or (array.unique and most is not None and most <= 1):
            return
        finite = all(part is NOTHING or self.constants(part) is not None for part in (*array.prefix[:most], array.rest))
        if not array.unique or not finite:
            raise SchemaError(
                "uniqueItems can be enforced only for items out of finitely many values (enum, const, boolean)",
                repr(formula) if formula.kind == "schema" else "#",
            )

    def value(self, formula: Formula, depth: int) -> int:
        """The rule of the values of a formula, in a container at `depth`."""
        return self._rule(self._values, self._define, self.shortest, formula, depth)

    def member(self, formula: Formula, depth: int) -> int:
        """The rule of colon and value, after the name of a member of an object at `depth`."""
        return self._rule(self._members, self._define_member, self.length_after_name, formula, depth)

    def _rule(self, known: Rules, define: Define, promise: Promise, formula: Formula, depth: int) -> int:
        """The rule of a formula at a depth; its body is defined when it is reached."""
        key = (formula, depth if self.form.spacing.depends_on_depth else 0)
        rule = known.get(key)
        if rule is None:
            rule = known[key] = self.graph.lazy(lambda: define(known[key], *key), lambda: promise(*key))
            self.graph.names[rule] = lambda: self.schema.formulas.place_of(formula)
        return rule

    def shortest(self, formula: Formula, depth: int = 0) -> int:
        """The bytes of a short text of a formula's values, in a container at `depth`."""
        known = self._shortest.get(formula)
        if known is None:
            known = self._shortest[formula] = self._measures.of(self.schema.minimal_instance(formula))
        return min(known.length + known.lines * self.form.spacing.indent * depth, MOST)

    def length_of(self, value: Any, depth: int) -> int:
        """The bytes of a short text of one value, in a container at `depth`."""
        length, lines = self._measures.of(value)
        return min(length + lines * self.form.spacing.indent * depth, MOST)

    def line(self, depth: int) -> int:
        """The bytes of white space that must stand before an item or member, in a container at `depth`.

        Nothing may cost more in parts than it was said to cost as a whole, or budgets end in dead ends.
        """
        return self.last_line(depth + 1)

    def last_line(self, depth: int) -> int:
        """The bytes of white space that must stand before the bracket that closes a container at `depth`."""
        spacing = self.form.spacing
        return 1 + spacing.indent * depth if spacing.depends_on_depth else 0

    def gap(self, space: Node, target: int) -> int:
        """The entry of white space before `target`; one rule for each kind, of which `Spacing` gives the same node."""
        if isinstance(space, Text):
            return self.graph.literal(space.data, target)
        if isinstance(space, Repeat) and space.max == 1:
            return self.graph.node(links=((EPSILON, self.gap(space.item, target), 0), (EPSILON, target, 0)))
        known = self._gaps.get(id(space))
        if known is None:
            known = self._gaps[id(space)] = (space, self.lowering.rule(space))
        return self.graph.node(links=((CALL, known[1], target),))

    def overlaps(self, a: String, b: String) -> bool:
        """Whether two sets of strings have a common one."""
        both = strings.intersect(a, b, self.schema.language)
        return both is not None and not self.schema.language.is_empty(both)

    def constants(self, formula: Formula) -> list[Any] | None:
        """The values of a formula, if they are finitely many constants."""
        normal = self.schema.cases(formula)
        if normal.arrays or normal.objects:
            return None
        found: list[Any] = [None] if normal.null else []
        found += sorted(normal.booleans)
        for case in (*normal.numbers, *normal.strings):
            if case.values is None:
                return None
            found += sorted(case.values)
        return found + list(normal.constants)

    def after_name(self, formula: Formula, depth: int, target: int) -> int:
        """The entry of colon and value, after the name of a member of an object at `depth`."""
        return self.graph.node(links=((CALL, self.member(formula, depth), target),))

    def length_after_name(self, formula: Formula, depth: int) -> int:
        """The bytes of colon and value, as `after_name`."""
        return 1 + bool(self.line(0)) + self.shortest(formula, depth + 1)

    def text(self, data: bytes, target: int) -> int:
        """The entry of fixed bytes before `target`."""
        return self.graph.literal(data, target)

    def _define(self, start: int, formula: Formula, depth: int) -> None:
        """Give the current rule its body: the alternatives of the formula."""
        self.graph.define(start, links=self._alternatives(formula, depth))

    def _define_member(self, start: int, formula: Formula, depth: int) -> None:
        """Give the current rule its body: colon, and the alternatives of the formula."""
        spacing = self.form.spacing
        value = self.graph.promised(self._alternatives(formula, depth + 1), lambda: self.shortest(formula, depth + 1))
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
        many = len(normal.constants) > FEW
        for kind in container_kinds(normal.constants) if many else ():
            places = ConstantPlaces(self, kind, depth, final, [final] * len(kind), lambda _: 0)
            entries.append(places.entry())
        constants = () if many else [as_case(constant, self.schema.formulas) for constant in normal.constants]
        for case in (*normal.arrays, *normal.objects, *constants):
            entries.append(self._container(case, depth, final))
        links += [(EPSILON, entry, 0) for entry in entries if entry is not None]
        return links

    def _container(self, case: Array | Object, depth: int, target: int) -> int | None:
        """The node before an array or object that goes on at `target`; None if there is none."""
        if isinstance(case, Array):
            return Items(self, case, depth, target).entry()
        names = MemberNames(self, case, depth)
        kind = (
            MemberSet(self, names, depth, target) if suits(case, names) else Members(self, case, names, depth, target)
        )
        return kind.entry()

    def number_rule(self, case: Number) -> int:
        """The rule of a set of numbers, of which there is one."""
        if case not in self._numbers:
            piece = number_piece(case)
            self._numbers[case] = self.graph.insert(piece) if piece else self.lowering.rule(number_node(case))
        return self._numbers[case]

    def string_rule(self, case: String) -> int | None:
        """The rule of a set of strings, of which there is one; None if no string is in it."""
        if case not in self._strings:
            piece = string_piece(case, self.form.escapes)
            if piece is not None:
                self._strings[case] = rule = self.graph.insert(piece)
                return rule
            with self.graph.new_rule() as rule:
                entry = self.strings.entry(case, self.graph.final())
                self.graph.define(rule, links=() if entry is None else ((EPSILON, entry, 0),))
            self._strings[case] = None if entry is None else rule
        return self._strings[case]
