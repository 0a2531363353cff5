"""The rules of a schema's formulas and of their common parts, on which the lowerings of containers build.

Common rules of numbers, strings and white space are fragments, lowered once per process. A lookahead without recursion
finds the places from which a text can be completed (`reaches_end`).

The lengths of texts are computed, not the texts (`Measures`). Shared parts of values are measured once: nested lists
that share parts may have texts of many megabytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ....kernels.chart.layout import CALL, EPSILON
from ...cached import cached
from ...graph.array_graph import Fragment
from ...graph.graph import Graph, Link, NamedRule
from ...graph.lowering import Lowering
from ...limits import spend
from ...syntax import Literal as Text
from ...syntax import Node, Repeat
from ..algebra.cases import Number, String
from ..algebra.formula import Formula
from ..automata.counting import Counting
from ..automata.spelling import Escapes, spell, spelt
from ..compiled import CompiledSchema
from ..read.dialects import as_written, is_array, is_object
from ..read.formats import BRANCH, WHOLE, rules
from ..witness.instances import StandInNumber
from ..witness.strings import StandInText
from .form import Form, Spacing, Spelling
from .numbers.literals import places_of_points, spellings, written_exponents
from .numbers.texts import fewest_number_bytes, number_rule, spelt_numbers
from .strings.lowering import REGEX, StringLowering, in_quotes, plan

MAX_LENGTH = 2**28
"""Cap on lengths; no token budget is larger."""


class Measure(NamedTuple):
    """The bytes of a text that starts in the first column, and its number of line breaks."""

    length: int
    lines: int


EMPTY = Measure(2, 0)


class Measures:
    """Measures texts as json.dumps writes them: without white space, or with `indent` blanks per level.

    Numbers are spelt as the schema allows; a number that stands for a set counts as the shortest of the set.
    of_strings: bytes of a string that stands for a set, as the counting nodes promise them; it may have fewer
    uniform: whether each item counts as the longest of its array, because it is unknown which items remain
    extra_name_bytes: bytes added to each name, because it is unknown which names remain
    """

    def __init__(
        self,
        indent: int | None,
        spelling: Spelling = "any",
        *,
        uniform: bool = False,
        extra_name_bytes: int = 0,
        of_strings: Callable[[String], int] | None = None,
    ) -> None:
        self._indent = indent
        self._of_strings = of_strings
        self._uniform = uniform
        self._extra_name_bytes = extra_name_bytes
        self._spelling: Spelling = spelling
        # Holds the containers too, so that no `id` is reused.
        self._cache: dict[int, tuple[Any, Measure]] = {}

    def of(self, value: Any) -> Measure:
        """Return the measure of a value's text."""
        waiting = [value]
        while waiting:
            part = waiting[-1]
            if not (is_object(part) or is_array(part)) or id(part) in self._cache:
                waiting.pop()
                continue
            inner: Iterable[Any] = part.values() if is_object(part) else part
            spend(50 + 20 * len(part))
            unknown = [one for one in inner if (is_object(one) or is_array(one)) and one and id(one) not in self._cache]
            if unknown:
                waiting += unknown
            else:
                self._cache[id(part)] = (part, self._container(part))
                waiting.pop()
        return self._cached_measure(value)

    def _cached_measure(self, value: Any) -> Measure:
        if is_object(value) or is_array(value):
            return self._cache[id(value)][1] if value else EMPTY
        return Measure(self._scalar(value), 0)

    def _container(self, value: Any) -> Measure:
        if not value:
            return EMPTY
        colon = 1 if self._indent is None else 2
        names = (
            [len(spelt(name)) + colon + self._extra_name_bytes for name in value]
            if is_object(value)
            else [0] * len(value)
        )
        parts = [self._cached_measure(part) for part in (value.values() if is_object(value) else value)]
        if self._uniform and is_array(value):
            parts = [Measure(max(part.length for part in parts), max(part.lines for part in parts))] * len(parts)
        length = 1 + len(parts) + sum(names) + sum(part.length for part in parts)
        if self._indent is None:
            return Measure(min(length, MAX_LENGTH), 0)
        lines = sum(part.lines for part in parts) + len(parts) + 1
        # Each line of a part is indented one level more, except that of the closing bracket.
        return Measure(min(length + len(parts) + 1 + self._indent * (lines - 1), MAX_LENGTH), min(lines, MAX_LENGTH))

    def _scalar(self, value: Any) -> int:
        """Return the bytes of a scalar."""
        if isinstance(value, StandInText) and self._of_strings is not None:
            return min(self._of_strings(value.case), MAX_LENGTH)
        if isinstance(value, str):
            return len(spelt(value))
        if value is None or isinstance(value, bool):
            return 5 if value is False else 4
        if isinstance(value, StandInNumber):
            return min(fewest_number_bytes(value.case, self._spelling), MAX_LENGTH)
        if self._spelling == "plain":
            return len(as_written(value))
        text = as_written(value)
        number, places = Fraction(text), partial(places_of_points, exponents=written_exponents((text,)))
        if not number:
            return 1
        return min(
            len(mantissa) + len(f"e{exponent}" if exponent else "") for mantissa, exponent in spellings(number, places)
        )


MAX_NODES = 2000
"""Maximum number of nodes of a cached fragment."""
PlaceT = TypeVar("PlaceT")
Rules = dict[tuple[Formula, int], int]
UNKNOWN = -1


@cached(512, 32 << 20)
def number_fragment(case: Number, spelling: Spelling) -> Fragment | None:
    """Return the rule of a set of numbers; None if it is empty or too large."""
    node = spelt_numbers(case, spelling)
    return None if node is None else _lowered(node)


@cached(512, 32 << 20)
def string_fragment(case: String, escapes: Escapes) -> Fragment | None:
    """Return the rule of a set of strings with quotes; None if it is empty, too large, or not expressible as syntax."""
    if case.values is not None or case.quote is not None or case.excluded:
        return None
    if case == REGEX:
        return _regexes(escapes)
    found = plan(case, escapes)
    return None if found is None or isinstance(found, Counting) else _lowered(in_quotes(found))


@cached(64, 1 << 20)
def space_fragment(spacing: Spacing) -> tuple[Fragment, dict[int, int]]:
    """Return all rules of white space as one fragment, with the start of each by the `id` of its node."""
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
    """Return the rules of the format `regex` alone: nested groups are not regular."""
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


def reaches_end(
    place: PlaceT,
    known: dict[PlaceT, bool],
    may_end: Callable[[PlaceT], bool],
    after: Callable[[PlaceT], Iterable[PlaceT]],
) -> bool:
    """Test whether an end can be reached from a place, on an acyclic graph of places (self-loops excepted).

    known: cached answers, extended; may_end: whether everything may end at a place; after: the next places, nearest to
    an end first
    """
    if place in known:
        return known[place]
    way: list[tuple[PlaceT, Iterator[PlaceT]]] = []
    following: PlaceT | None = place
    while following is not None or way:
        spend(200)
        if following is not None:
            if known.get(following) or may_end(following):
                known[following] = True
                known.update((passed, True) for passed, _ in way)
                return True
            way.append((following, iter(after(following))))
        at, others = way[-1]
        following = next((other for other in others if other != at and known.get(other, True)), None)
        if following is None:
            known[at] = False
            way.pop()
    return False


class RepeatMarks(NamedTuple):
    """Nodes where repeats are forbidden that the graph cannot detect. Filled as nodes are made.

    items: return nodes of items that must differ; names: return nodes of member names that must differ
    """

    items: set[int]
    names: set[int]


class WatchedRepeats(NamedTuple):
    """The repeats to watch for.

    items: whether some arrays have unique items; repeating: whether one requires items, so that a shortest text repeats
    them
    names: whether some names must differ; extra_name_bytes: bytes by which a required name may exceed the shortest one
    beside_free: whether at the place of such an array, another without unique items is possible
    open_names: whether objects may have names that the schema does not list; scarce_names: whether such names may be so
    few that an object can use them all
    """

    items: bool = False
    repeating: bool = False
    names: bool = False
    extra_name_bytes: int = 0
    beside_free: bool = False
    open_names: bool = False
    scarce_names: bool = False

    @property
    def any(self) -> bool:
        """True if anything must be watched."""
        return self.items or self.names


NO_WATCH = WatchedRepeats()


class RuleLowering(ABC):
    """Adds the values of a schema's formulas to a graph, one rule each; subclasses define the bodies.

    marks: filled as nodes are made; watch: repeats that the graph cannot detect
    """

    def __init__(
        self,
        schema: CompiledSchema,
        form: Form,
        marks: RepeatMarks | None = None,
        *,
        watch: WatchedRepeats = NO_WATCH,
        graph: Graph | None = None,
    ) -> None:
        self.schema = schema
        self.marks = RepeatMarks(set(), set()) if marks is None else marks
        self.extra_name_bytes = watch.extra_name_bytes
        self.beside_free = watch.beside_free
        self.form = form
        self.graph = Graph() if graph is None else graph
        self.lowering = Lowering(self.graph)
        # Taken over from an earlier attempt: after an exception, start without half-changed state.
        conjunctions, schema.conjunctions = schema.conjunctions, {}
        self.strings = StringLowering(self.lowering, form.escapes, conjunctions)
        self._values: Rules = {}
        self._members: Rules = {}
        self._shortest: dict[Formula, Measure] = {}
        self._is_indented = form.spacing.depends_on_depth
        indent = form.spacing.indent if self._is_indented else None
        self._measures = Measures(
            indent,
            form.spelling,
            uniform=watch.repeating,
            extra_name_bytes=watch.extra_name_bytes,
            of_strings=self.strings.shortest,
        )
        self._spaces: dict[int, int] = {}
        self._strings: dict[String, int | None] = {}
        self._numbers: dict[Number, int] = {}

    def root(self) -> int:
        """Return the rule of the whole text."""
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
        """Return the rule of a formula's values, in a container at `depth`."""
        return self._rule(self._values, LazyValue, formula, depth)

    def member(self, formula: Formula, depth: int) -> int:
        """Return the rule of colon and value, after a member's name in an object at `depth`."""
        return self._rule(self._members, LazyMember, formula, depth)

    def _rule(self, known: Rules, kind: type[LazyValue], formula: Formula, depth: int) -> int:
        """Return the rule of a formula at a depth. Its body is defined when a state first needs it."""
        if not self._is_indented:
            depth = 0
        key = formula, depth
        rule = known.get(key)
        if rule is None:
            lazy = kind(self, formula, depth)
            rule = known[key] = self.graph.lazy(lazy.define, lazy.promise, lazy)
        return rule

    def number_rule(self, case: Number) -> int:
        """Return the rule of a set of numbers, shared."""
        rule = self._numbers.get(case)
        if rule is None:
            fragment = number_fragment(case, self.form.spelling)
            is_new = fragment is None
            rule = number_rule(self.lowering, case, self.form.spelling) if is_new else self.graph.insert(fragment)
            self._numbers[case] = rule
        return rule

    def string_rule(self, case: String) -> int | None:
        """Return the rule of a set of strings, shared; None if the set is empty."""
        rule = self._strings.get(case, UNKNOWN)
        if rule == UNKNOWN:
            # Excluded names are rarely shared between schemas, so that a cache lookup would not pay.
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

    def shortest(self, formula: Formula, depth: int = 0) -> int:
        """Return the bytes of a short text of a formula's values, in a container at `depth`."""
        known = self._shortest.get(formula)
        if known is None:
            known = self._shortest[formula] = self._measures.of(self.schema.minimal_instance(formula))
        return min(known.length + known.lines * self.form.spacing.indent * depth, MAX_LENGTH)

    def length_of(self, value: Any, depth: int) -> int:
        """Return the bytes of a short text of one value, in a container at `depth`."""
        length, lines = self._measures.of(value)
        return min(length + lines * self.form.spacing.indent * depth, MAX_LENGTH)

    def line(self, depth: int) -> int:
        """Return the bytes of required white space before an item or member, in a container at `depth`.

        The parts must never cost more than the promised whole, or token budgets end in dead ends.
        """
        return self.last_line(depth + 1)

    def last_line(self, depth: int) -> int:
        """Return the bytes of required white space before the closing bracket of a container at `depth`."""
        spacing = self.form.spacing
        return 1 + spacing.indent * depth if spacing.depends_on_depth else 0

    def gap(self, space: Node, target: int) -> int:
        """Return the entry of white space before `target`. `Spacing.rules` are inserted once, at the first use."""
        if isinstance(space, Text):
            return self.graph.literal(space.data, target)
        if isinstance(space, Repeat) and space.max == 1 and isinstance(space.item, Text):
            return self.graph.node(links=((EPSILON, self.gap(space.item, target), 0), (EPSILON, target, 0)))
        if not self._spaces:
            fragment, starts = space_fragment(self.form.spacing)
            first = self.graph.insert(fragment)
            self._spaces = {node: first + start for node, start in starts.items()}
        return self.graph.node(links=((CALL, self._spaces[id(space)], target),))

    def first(self, item: int, depth: int) -> Link:
        """Return the link from an opening bracket to the first item or member, in a container at `depth`."""
        return (EPSILON, self.gap(self.form.spacing.inside(depth), item), 0)

    def comma(self, item: int, depth: int) -> Link:
        """Return the link from after an item or member to the next one, in a container at `depth`."""
        spacing = self.form.spacing
        comma = self.graph.literal(b",", self.gap(spacing.after_comma(depth), item))
        return (EPSILON, self.gap(spacing.free(), comma), 0)

    def colon(self, value: int) -> Link:
        """Return the link from after a member's name to its value."""
        spacing = self.form.spacing
        colon = self.graph.literal(b":", self.gap(spacing.after_colon(), value))
        return (EPSILON, self.gap(spacing.free(), colon), 0)

    def after_name(self, formula: Formula, depth: int, target: int) -> int:
        """Return the entry of colon and value, after a member's name in an object at `depth`."""
        return self.graph.node(links=((CALL, self.member(formula, depth), target),))

    def length_after_name(self, formula: Formula, depth: int) -> int:
        """Return the bytes of colon and value after a member's name."""
        return 1 + bool(self.line(0)) + self.shortest(formula, depth + 1)

    @abstractmethod
    def weight_of(self, formula: Formula) -> int:
        """Return `NamedRule.weight` of the rule of a member with a formula's values. Raises LimitError."""

    @abstractmethod
    def define_value(self, start: int, formula: Formula, depth: int) -> None:
        """Define the body of the current rule: the alternatives of the formula."""

    @abstractmethod
    def define_member(self, start: int, formula: Formula, depth: int) -> None:
        """Define the body of the current rule: colon, and the alternatives of the formula."""


class LazyValue(NamedRule):
    """A rule of a formula's values in a container at a depth, not yet defined."""

    __slots__ = ("_depth", "_formula", "_lowering")

    def __init__(self, lowering: RuleLowering, formula: Formula, depth: int) -> None:
        self._lowering = lowering
        self._formula = formula
        self._depth = depth

    def define(self, start: int) -> None:
        """Define the rule's body."""
        self._lowering.define_value(start, self._formula, self._depth)

    def promise(self) -> int:
        """Return the bytes of a short text."""
        return self._lowering.shortest(self._formula, self._depth)

    def weight(self) -> int:
        """Return the work of defining the rule. Raises LimitError."""
        return self._lowering.weight_of(self._formula)

    def name(self) -> str:
        """Return the readable name of the rule."""
        return self._lowering.schema.formulas.place_of(self._formula)

    def pointer(self) -> str:
        """Return the JSON pointer of the formula in the schema."""
        return self._lowering.schema.formulas.pointer_of(self._formula)


class LazyMember(LazyValue):
    """A rule of colon and value in an object at a depth, not yet defined."""

    __slots__ = ()
    has_siblings = True

    def define(self, start: int) -> None:
        """Define the rule's body."""
        self._lowering.define_member(start, self._formula, self._depth)

    def promise(self) -> int:
        """Return the bytes of a short text."""
        return self._lowering.length_after_name(self._formula, self._depth)
