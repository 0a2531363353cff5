"""A schema as a graph: its formulas are rules, each worked out when the automaton first reaches it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from ....kernels.chart.layout import CALL, EPSILON
from ...graph.array_graph import Fragment
from ...graph.graph import HEAVY, Graph, Link, NamedRule
from ...graph.lowering import Lowering
from ...kept import kept
from ...syntax import Literal as Text
from ...syntax import Node, Repeat
from ..algebra.cases import ANY_STRING, NO_NAMES, Array, Normal, Number, Object, Rule, String
from ..algebra.formula import EVERYTHING, NOTHING, Formula
from ..algebra.normalise import as_case
from ..automata.counting import Counting
from ..automata.spelling import Escapes, spell
from ..compiled import CompiledSchema
from ..read.formats import BRANCH, WHOLE, rules
from .arrays import Items
from .constants import FEW, ConstantPlaces, container_kinds
from .form import Form, Spacing, Spelling
from .measures import MOST, Measure, Measures
from .numbers.texts import number_rule, spelt_numbers
from .objects.choices import Choices
from .objects.member_set import MemberSet, suits
from .objects.members import Members
from .objects.names import MemberNames
from .protocol import Marks
from .strings.lowering import REGEX, StringLowering, in_quotes, plan
from .unique import NO_WATCH, Watch, has_twins

MAX_NODES = 2000
"""Up to how many nodes a piece has that is kept."""


@kept(512, 32 << 20)
def number_fragment(case: Number, spelling: Spelling) -> Fragment | None:
    """The rule of a set of numbers; None if there are none, or too many."""
    node = spelt_numbers(case, spelling)
    return None if node is None else _lowered(node)


@kept(512, 32 << 20)
def string_fragment(case: String, escapes: Escapes) -> Fragment | None:
    """The rule of a set of strings, quotes included; None if there are none, or it is too large, or no syntax tells."""
    if case.values is not None or case.quote is not None or case.excluded:
        return None
    if case == REGEX:
        return _regexes(escapes)
    found = plan(case, escapes)
    return None if found is None or isinstance(found, Counting) else _lowered(in_quotes(found))


@kept(64, 1 << 20)
def space_fragment(spacing: Spacing) -> tuple[Fragment, dict[int, int]]:
    """All rules of white space together, and where each starts, by the `id` of its node, which a spacing keeps."""
    graph = Graph()
    lowering = Lowering(graph)
    starts = {id(node): lowering.rule(node) for node in spacing.rules}
    return graph.fragment(), starts


def _lowered(node: Node) -> Fragment | None:
    graph = Graph()
    with graph.new_rule() as start:
        entry = Lowering(graph).lower(node, graph.final())
    if entry is None or graph.node_count > MAX_NODES:
        return None
    graph.define(start, links=((EPSILON, entry, 0),))
    return graph.fragment()


def _regexes(escapes: Escapes) -> Fragment:
    """The format `regex` alone: groups may nest, which no pattern and no condition on lengths can say."""
    graph = Graph()
    bodies = {name: spell(body, escapes) for name, body in rules().items()}
    start = graph.begin_rule()
    starts = {WHOLE: start}
    for name in bodies.keys() - starts:
        with graph.new_rule() as starts[name]:
            pass
    lowering = Lowering(graph, starts.__getitem__, nullable=lambda name: name == BRANCH)
    for name, body in bodies.items():
        graph.rule = starts[name]
        lowering.body(graph.rule, in_quotes(body) if name == WHOLE else body)
    return graph.fragment()


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


Rules = dict[tuple[Formula, int], int]
UNKNOWN = -1


class SchemaLowering:
    """Adds the values of a schema's formulas to a graph.

    marks: filled as nodes are made; watch: what must not be there twice, and is not told apart by the graph
    """

    def __init__(
        self,
        schema: CompiledSchema,
        form: Form,
        marks: Marks | None = None,
        *,
        watch: Watch = NO_WATCH,
        graph: Graph | None = None,
    ) -> None:
        self.schema = schema
        self.marks = Marks(set(), set()) if marks is None else marks
        self.spare = watch.spare
        self.beside_free = watch.beside_free
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
        self._measures = Measures(
            indent, form.spelling, uniform=watch.repeating, spare=watch.spare, of_strings=self.strings.shortest
        )
        self._spaces: dict[int, int] = {}
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
        key = formula, depth
        rule = known.get(key)
        if rule is None:
            lazy = kind(self, formula, depth)
            rule = known[key] = self.graph.lazy(lazy.define, lazy.promise, lazy)
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
        if isinstance(space, Repeat) and space.max == 1 and isinstance(space.item, Text):
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

    def number_rule(self, case: Number) -> int:
        """The rule of a set of numbers, of which there is one."""
        rule = self._numbers.get(case)
        if rule is None:
            fragment = number_fragment(case, self.form.spelling)
            made = fragment is None
            rule = number_rule(self.lowering, case, self.form.spelling) if made else self.graph.insert(fragment)
            self._numbers[case] = rule
        return rule

    def string_rule(self, case: String) -> int | None:
        """The rule of a set of strings, of which there is one; None if no string is in it."""
        rule = self._strings.get(case, UNKNOWN)
        if rule == UNKNOWN:
            # Few schemas have the same names that are none of these: to look for them takes as long as to make them.
            fragment = None if case.excluded else string_fragment(case, self.form.escapes)
            if fragment is not None:
                rule = self.graph.insert(fragment)
            else:
                with self.graph.new_rule() as start:
                    entry = self.strings.entry(case, self.graph.final())
                    self.graph.define(start, links=() if entry is None else ((EPSILON, entry, 0),))
                rule = None if entry is None else start
            self._strings[case] = rule
        return rule


class LazyValue(NamedRule):
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

    def weight(self) -> int:
        """The weight of defining the rule. Raises LimitError."""
        return self._lowering.weight_of(self._formula)

    def name(self) -> str:
        """The name that people know the rule by."""
        return self._lowering.schema.formulas.place_of(self._formula)

    def pointer(self) -> str:
        """The place of the formula in the schema."""
        return self._lowering.schema.formulas.pointer_of(self._formula)


class LazyMember(LazyValue):
    """The rule of colon and value in an object at a depth."""

    __slots__ = ()
    has_siblings = True

    def define(self, start: int) -> None:
        """Give the rule its body."""
        self._lowering.define_member(start, self._formula, self._depth)

    def promise(self) -> int:
        """The bytes of a short text."""
        return self._lowering.length_after_name(self._formula, self._depth)
