"""A schema as a graph: each formula is a rule, worked out when the automaton first reaches it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ....kernels.chart.layout import CALL, EPSILON, UNBOUNDED
from ...graph.graph import Graph, Link
from ...graph.lowering import Lowering
from ...syntax import Literal as Text
from ...syntax import Node, Repeat
from ..algebra.cases import ANY_ARRAY, ANY_NUMBER, ANY_STRING, Array, Normal, Number, Object, String
from ..algebra.formula import EVERYTHING, NOTHING, Formula
from ..algebra.normalise import as_case
from ..compiled import CompiledSchema
from .arrays import Items
from .constants import FEW, ConstantPlaces, container_kinds
from .form import Form
from .fragments import number_fragment, space_fragment, string_fragment
from .measures import MOST, Measure, Measures
from .numbers.texts import spelt_numbers
from .objects.choices import Choices
from .objects.member_names import MemberNames
from .objects.member_set import MemberSet, suits
from .objects.members import Members
from .stencil_graph import COUNT, ITEMS, NAMES, NUMBER, SPACE, STRING, Hole, StencilGraph
from .stencils import ANYTHING, Stencil, is_common, keep, shape_of, stencils, turns
from .strings.lowering import StringLowering

Rules = dict[tuple[Formula, int], int]


class SchemaLowering:
    """Adds the values of a schema's formulas to a graph.

    marks: the nodes that items return to which must differ, and which the graph does not tell apart; filled as they are
    made; repeating: whether some of these must be there, so that a shortest text of the graph may repeat them
    """

    def __init__(
        self,
        schema: CompiledSchema,
        form: Form,
        marks: set[int] | None = None,
        *,
        repeating: bool = False,
        graph: Graph | None = None,
    ) -> None:
        self.schema = schema
        self.marks: set[int] = set() if marks is None else marks
        self.form = form
        self.graph = Graph() if graph is None else graph
        self.lowering = Lowering(self.graph)
        # Taken over: what is made again, after an exception, begins with none that may be in the middle of a change.
        conjunctions, schema.conjunctions = schema.conjunctions, {}
        self.strings = StringLowering(self.lowering, form.escapes, conjunctions)
        self._values: Rules = {}
        self._members: Rules = {}
        self._shortest: dict[Formula, Measure] = {}
        self._is_indented = form.spacing.depends_on_depth
        indent = form.spacing.indent if self._is_indented else None
        self._measures = Measures(indent, form.spelling, uniform=repeating, of_strings=self.strings.shortest)
        self._spaces: dict[int, int] = {}
        self._stencils = stencils(form)
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

    def value(self, formula: Formula, depth: int) -> int:
        """The rule of the values of a formula, in a container at `depth`."""
        return self._rule(self._values, LazyValue, formula, depth)

    def member(self, formula: Formula, depth: int) -> int:
        """The rule of colon and value, after the name of a member of an object at `depth`."""
        return self._rule(self._members, LazyMember, formula, depth)

    def _rule(self, known: Rules, kind: type[LazyValue], formula: Formula, depth: int) -> int:
        """The rule of a formula at a depth; its body is defined when it is reached."""
        if not self._is_indented:
            depth = 0
        rule = known.get((formula, depth))
        if rule is None:
            lazy = kind(self, formula, depth)
            rule = known[formula, depth] = self.graph.lazy(lazy.define, lazy.promise)
            self.graph.names[rule] = lazy.name
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
        """The entry of white space before `target`; one rule for each of `Spacing.rules`, copied at the first."""
        if isinstance(space, Text):
            return self.graph.literal(space.data, target)
        if isinstance(space, Repeat) and space.max == 1:
            return self.graph.node(links=((EPSILON, self.gap(space.item, target), 0), (EPSILON, target, 0)))
        return self.graph.node(links=((CALL, self.space_rule(space), target),))

    def space_rule(self, space: Node) -> int:
        """The rule of a kind of white space, of which there is one."""
        if not self._spaces:
            fragment, starts = space_fragment(self.form.spacing)
            first = self.graph.insert(fragment)
            self._spaces = {node: first + start for node, start in starts.items()}
        return self._spaces[id(space)]

    def after_name(self, formula: Formula, depth: int, target: int) -> int:
        """The entry of colon and value, after the name of a member of an object at `depth`."""
        return self.graph.node(links=((CALL, self.member(formula, depth), target),))

    def length_after_name(self, formula: Formula, depth: int) -> int:
        """The bytes of colon and value, as `after_name`."""
        return 1 + bool(self.line(0)) + self.shortest(formula, depth + 1)

    def text(self, data: bytes, target: int) -> int:
        """The entry of fixed bytes before `target`."""
        return self.graph.literal(data, target)

    def define_value(self, start: int, formula: Formula, depth: int) -> None:
        """Give the current rule its body: the alternatives of the formula."""
        if formula is EVERYTHING and not self.form.spacing.depends_on_depth:
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

    def colon(self, value: int, target: int) -> int:
        """The entry of colon and value, of which the rule is given, before `target`."""
        spacing = self.form.spacing
        call = self.graph.node(links=((CALL, value, target),))
        return self.gap(spacing.before_colon(), self.text(b":", self.gap(spacing.after_colon(), call)))

    def define_body(self, start: int, formula: Formula, depth: int, *, is_member: bool) -> None:
        """Give the current rule its body, whatever the formula is."""
        alternatives = self._alternatives(formula, depth)
        if not is_member:
            self.graph.define(start, links=alternatives)
            return
        spacing = self.form.spacing
        value = self.graph.promised(alternatives, LazyValue(self, formula, depth).promise)
        colon = self.text(b":", self.gap(spacing.after_colon(), value))
        self.graph.define(start, links=((EPSILON, self.gap(spacing.before_colon(), colon), 0),))

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
        if is_member:
            self.graph.promise(stencil.promising + shift, LazyValue(self, formula, depth).promise)
        return True

    def _is_uniform(self, case: Array) -> bool:
        """Whether nothing is asked of an array but how many items there are, and of all items the same."""
        asks = case.prefix or case.contains or case.unique is not None
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

    def number_rule(self, case: Number) -> int:
        """The rule of a set of numbers, of which there is one."""
        if case not in self._numbers:
            fragment = number_fragment(case, self.form.spelling)
            if fragment is not None:
                self._numbers[case] = self.graph.insert(fragment)
            else:
                self._numbers[case] = self.lowering.rule(spelt_numbers(case, self.form.spelling))
        return self._numbers[case]

    def string_rule(self, case: String) -> int | None:
        """The rule of a set of strings, of which there is one; None if no string is in it."""
        if case not in self._strings:
            fragment = string_fragment(case, self.form.escapes)
            if fragment is not None:
                self._strings[case] = rule = self.graph.insert(fragment)
                return rule
            with self.graph.new_rule() as rule:
                entry = self.strings.entry(case, self.graph.final())
                self.graph.define(rule, links=() if entry is None else ((EPSILON, entry, 0),))
            self._strings[case] = None if entry is None else rule
        return self._strings[case]


class LazyValue:
    """The rule of a formula's values in a container at a depth, as long as it is not reached: one object for each."""

    __slots__ = ("_depth", "_formula", "_lowering")

    def __init__(self, lowering: SchemaLowering, formula: Formula, depth: int) -> None:
        self._lowering = lowering
        self._formula = formula
        self._depth = depth

    def define(self, start: int) -> None:
        """Give the rule its body."""
        self._lowering.define_value(start, self._formula, self._depth)

    def promise(self) -> int:
        """The bytes of a short text."""
        return self._lowering.shortest(self._formula, self._depth)

    def name(self) -> str:
        """What people know the rule by."""
        return self._lowering.schema.formulas.place_of(self._formula)


class LazyMember(LazyValue):
    """The rule of colon and value in an object at a depth."""

    __slots__ = ()

    def define(self, start: int) -> None:
        """Give the rule its body."""
        self._lowering.define_member(start, self._formula, self._depth)

    def promise(self) -> int:
        """The bytes of a short text."""
        return self._lowering.length_after_name(self._formula, self._depth)


class StencilLowering(SchemaLowering):
    """As its base, with holes in place of the rules that are called."""

    def __init__(self, schema: CompiledSchema, form: Form) -> None:
        self._outline = StencilGraph()
        super().__init__(schema, form, graph=self._outline)
        self._made: Counter[str] = Counter()
        self._kinds: list[Node] = []
        self._whole: int | None = None

    def stencil(self, formula: Formula, depth: int, *, is_member: bool) -> Stencil:
        """The body of a formula's rule, or of that of its members; `depth` is the value's."""
        start = self._outline.begin_rule()
        self.define_body(start, formula, depth, is_member=is_member)
        final, after = self._outline.final_node(), self._outline.guarded_node()
        fragment, holes = self._outline.fragment(), tuple(self._outline.holes)
        return Stencil(fragment, holes, tuple(self._kinds), final, self._outline.promising, after)

    def anything(self) -> Stencil:
        """The rule of any value, which calls itself."""
        start = self._outline.begin_rule()
        self._whole = start
        final = self._outline.final()
        words = [(EPSILON, self._outline.literal(word, final), 0) for word in (b"null", b"true", b"false")]
        rules = [(CALL, rule, final) for rule in (self.number_rule(ANY_NUMBER), self._next(STRING))]
        array = Items(self, ANY_ARRAY, EVERYTHING, 0, final).entry()
        assert array is not None
        containers = [(EPSILON, entry, 0) for entry in (array, self._any_object(start, final))]
        self._outline.define(start, links=[*words, *rules, *containers])
        return Stencil(self._outline.fragment(), tuple(self._outline.holes), tuple(self._kinds), final, 0, 0)

    def _any_object(self, value: int, target: int) -> int:
        """The entry of an object whose members are of this rule."""
        graph, spacing = self._outline, self.form.spacing
        end = self.text(b"}", target)
        name = graph.reserve()
        comma = self.text(b",", self.gap(spacing.after_comma(0), name))
        more, close = self.gap(spacing.before_comma(), comma), self.gap(spacing.at_end(0), end)
        after = graph.node(links=((EPSILON, close, 0), (EPSILON, more, 0)))
        graph.define(name, links=((CALL, self._next(STRING), self.colon(value, after)),))
        empty, inside = self.gap(spacing.when_empty(), end), self.gap(spacing.inside(0), name)
        return graph.node(((0x7B, 0x7B, graph.node(links=((EPSILON, empty, 0), (EPSILON, inside, 0)))),))

    def value(self, formula: Formula, depth: int) -> int:
        """A hole, since items are all alike; the rule itself where that is any value."""
        return self._outline.hole(ITEMS) if self._whole is None else self._whole

    def number_rule(self, case: Number) -> int:
        """A hole."""
        return self._next(NUMBER)

    def string_rule(self, case: String) -> int | None:
        """A hole."""
        return self._next(STRING)

    def space_rule(self, space: Node) -> int:
        """A hole, of which a kind of white space has the same each time."""
        self._kinds.append(space)
        return self._next(SPACE)

    def _next(self, kind: str) -> int:
        self._made[kind] += 1
        return self._outline.hole(kind, self._made[kind] - 1)
