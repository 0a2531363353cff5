"""The rules of a schema's formulas, and of what they have in common: all that the lowerings of containers build on.

Rules of numbers, strings and white space that many schemas have are fragments, lowered once in a process. A search
ahead, without recursion, finds the places from which a text can be completed, and remembers them (`Liveness`).

The lengths of texts of values are numbers (`Measures`): parts that a value has several times are measured once. A value
may be a few lists that hold one another twenty times over: its text has millions of bytes, and is never made.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakMethod

from ....kernels.chart.layout import CALL, EPSILON
from ...graph.array_graph import Fragment
from ...graph.graph import Graph, NamedRule
from ...graph.lowering import Lowering
from ...kept import kept
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
from ..witness.instances import Standing
from ..witness.strings import StandingText
from .form import Form, Spacing, Spelling
from .numbers.literals import places_of_points, spellings, written_exponents
from .numbers.texts import fewest_number_bytes, number_rule, spelt_numbers
from .strings.lowering import REGEX, StringLowering, in_quotes, plan

MOST = 2**28
"""The greatest number that is told; whatever takes more is out of every budget's reach."""


class Measure(NamedTuple):
    """The bytes of a text that begins in the first column, and how many line breaks are in it."""

    length: int
    lines: int


EMPTY = Measure(2, 0)


class Measures:
    """Measures the texts that json.dumps writes: without any white space, or with so many blanks for each level.

    But for numbers, which are written as the spelling has it; one that stands for a set as the shortest of the set.
    of_strings: the bytes that nodes which count characters say of a string that stands for a set; it may have fewer
    uniform: whether every item counts as long as the longest of its array, where nobody knows which of them are left
    spare: how many bytes more a name counts, where nobody knows which of them are left
    """

    def __init__(
        self,
        indent: int | None,
        spelling: Spelling = "any",
        *,
        uniform: bool = False,
        spare: int = 0,
        of_strings: Callable[[String], int] | None = None,
    ) -> None:
        self._indent = indent
        self._of_strings = of_strings
        self._uniform = uniform
        self._spare = spare
        self._spelling: Spelling = spelling
        # The containers themselves are kept, so that their numbers stay theirs.
        self._known: dict[int, tuple[Any, Measure]] = {}

    def of(self, value: Any) -> Measure:
        """The measure of a value's text."""
        waiting = [value]
        while waiting:
            part = waiting[-1]
            if not (is_object(part) or is_array(part)) or id(part) in self._known:
                waiting.pop()
                continue
            inner: Iterable[Any] = part.values() if is_object(part) else part
            spend(50 + 20 * len(part))
            unknown = [one for one in inner if (is_object(one) or is_array(one)) and one and id(one) not in self._known]
            if unknown:
                waiting += unknown
            else:
                self._known[id(part)] = (part, self._container(part))
                waiting.pop()
        return self._told(value)

    def _told(self, value: Any) -> Measure:
        if is_object(value) or is_array(value):
            return self._known[id(value)][1] if value else EMPTY
        return Measure(self._scalar(value), 0)

    def _container(self, value: Any) -> Measure:
        if not value:
            return EMPTY
        colon = 1 if self._indent is None else 2
        names = [len(spelt(name)) + colon + self._spare for name in value] if is_object(value) else [0] * len(value)
        parts = [self._told(part) for part in (value.values() if is_object(value) else value)]
        if self._uniform and is_array(value):
            parts = [Measure(max(part.length for part in parts), max(part.lines for part in parts))] * len(parts)
        length = 1 + len(parts) + sum(names) + sum(part.length for part in parts)
        if self._indent is None:
            return Measure(min(length, MOST), 0)
        lines = sum(part.lines for part in parts) + len(parts) + 1
        # Each line of a part begins a level deeper; the last one, of the closing bracket, does not.
        return Measure(min(length + len(parts) + 1 + self._indent * (lines - 1), MOST), min(lines, MOST))

    def _scalar(self, value: Any) -> int:
        """The bytes of a value that is no container."""
        if isinstance(value, StandingText) and self._of_strings is not None:
            return min(self._of_strings(value.case), MOST)
        if isinstance(value, str):
            return len(spelt(value))
        if value is None or isinstance(value, bool):
            return 5 if value is False else 4
        if isinstance(value, Standing):
            return min(fewest_number_bytes(value.case, self._spelling), MOST)
        if self._spelling == "plain":
            return len(as_written(value))
        text = as_written(value)
        number, places = Fraction(text), partial(places_of_points, own=written_exponents((text,)))
        if not number:
            return 1
        return min(
            len(mantissa) + len(f"e{exponent}" if exponent else "") for mantissa, exponent in spellings(number, places)
        )


MAX_NODES = 2000
"""Up to how many nodes a piece has that is kept."""
PlaceT = TypeVar("PlaceT")
Rules = dict[tuple[Formula, int], int]
UNKNOWN = -1


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


class Liveness(Generic[PlaceT]):
    """Answers for places that lead to one another, or to themselves, but never back.

    may_end: whether everything may end at a place; after: the places after it, those nearest to an end first;
    methods of who keeps the search, which must not keep them, or both would stay until Python looks for circles
    """

    def __init__(self, may_end: Callable[[PlaceT], bool], after: Callable[[PlaceT], Iterable[PlaceT]]) -> None:
        self._may_end = WeakMethod(may_end)
        self._after = WeakMethod(after)
        self._known: dict[PlaceT, bool] = {}

    def __call__(self, place: PlaceT) -> bool:
        """Tell whether an end can be reached from a place."""
        known = self._known.get(place)
        if known is not None:
            return known
        may_end, after = self._may_end(), self._after()
        assert may_end is not None and after is not None
        way: list[tuple[PlaceT, Iterator[PlaceT]]] = []
        following: PlaceT | None = place
        while following is not None or way:
            spend(200)
            if following is not None:
                if self._known.get(following) or may_end(following):
                    self._known[following] = True
                    self._known.update((passed, True) for passed, _ in way)
                    return True
                way.append((following, iter(after(following))))
            at, others = way[-1]
            following = next((other for other in others if other != at and self._known.get(other, True)), None)
            if following is None:
                self._known[at] = False
                way.pop()
        return False


class Marks(NamedTuple):
    """Nodes at which a text must not have something twice that the graph does not tell apart; filled as they are made.

    items: the nodes that items return to which must differ; names: those that names of members return to
    """

    items: set[int]
    names: set[int]


class Watch(NamedTuple):
    """The items and names to be watched.

    items: whether there are arrays; repeating: whether items must be there in one, so that a shortest text repeats them
    names: whether there are objects; spare: how many bytes longer than a shortest name one is that must be there
    beside_free: whether some of the arrays stand where others may be whose items need not differ
    open_names: whether objects may have names that the schema does not mention; scarce_names: whether such names may be
    so few that all of them can be there
    """

    items: bool = False
    repeating: bool = False
    names: bool = False
    spare: int = 0
    beside_free: bool = False
    open_names: bool = False
    scarce_names: bool = False

    @property
    def any(self) -> bool:
        """Tell whether there is anything to be watched."""
        return self.items or self.names


NO_WATCH = Watch()


class RuleLowering(ABC):
    """Adds the values of a schema's formulas to a graph, a rule each; whoever derives from this gives them bodies.

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

    def text(self, data: bytes, target: int) -> int:
        """The entry of fixed bytes before `target`."""
        return self.graph.literal(data, target)

    def after_name(self, formula: Formula, depth: int, target: int) -> int:
        """The entry of colon and value, after the name of a member of an object at `depth`."""
        return self.graph.node(links=((CALL, self.member(formula, depth), target),))

    def length_after_name(self, formula: Formula, depth: int) -> int:
        """The bytes of colon and value, as `after_name`."""
        return 1 + bool(self.line(0)) + self.shortest(formula, depth + 1)

    @abstractmethod
    def weight_of(self, formula: Formula) -> int:
        """As `NamedRule.weight`, of the rule of a member with a formula's values. Raises LimitError."""

    @abstractmethod
    def define_value(self, start: int, formula: Formula, depth: int) -> None:
        """Give the current rule its body: the alternatives of the formula."""

    @abstractmethod
    def define_member(self, start: int, formula: Formula, depth: int) -> None:
        """Give the current rule its body: colon, and the alternatives of the formula."""


class LazyValue(NamedRule):
    """The rule of a formula's values in a container at a depth, as long as it is not reached: one object for each."""

    __slots__ = ("_depth", "_formula", "_lowering")

    def __init__(self, lowering: RuleLowering, formula: Formula, depth: int) -> None:
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
