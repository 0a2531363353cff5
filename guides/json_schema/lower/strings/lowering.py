"""Strings of a schema as fragments of a graph, quotes included.

If the length of an automaton's strings is bounded, characters are counted (`CountedStrings`): every node is a state
before a character. In stretches of lengths where the bounds do not decide what may follow, the items count; nearer to
the bounds each length has its own nodes. Only nodes from which a text can be completed are entered. Nodes are defined
in groups of neighbours when one is reached. Stretches up to the maximum length are equal for all bounds, and copied
from a process-wide cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from .....errors import LimitError
from .....kernels.answers import NEVER
from .....kernels.chart.layout import EPSILON, INCREMENT, LEAVE
from ....automata.charsets import ALL, intersect, single
from ....automata.conditions import JointConditions, automaton, without
from ....automata.positions import MAX_SUBSETS
from ....cached import cached, cached_growing
from ....graph.graph import Graph, Link
from ....graph.lowering import STEPS_PER_COPY, Lowering
from ....graph.text_tree import text_tree
from ....limits import spend
from ....quoting.quotation import fragment_of_quote
from ....regex.tree import ENDLESS
from ....syntax import NOTHING, Alternation, Chars, Literal, Node, Repeat, Sequence
from ...algebra.cases import String
from ...algebra.strings import is_plain
from ...automata.conjunction import Conjunction, conjunction, listed
from ...automata.counting import Counting, LoweredStretch
from ...automata.matching import narrow, size
from ...automata.spelling import PLAIN, Escapes, all_spelt, fewest_bytes, has_table, spell, spell_chars, spelt
from ...automata.text_tree import TextTree
from ...read.dialects import is_writable
from ...read.formats import PATTERNS
from ...read.patterns import parse
from .places import AutomatonPlaces, CharacterEdges, all_but

WORTHWHILE = 2
"""Minimum number of lengths in a counted stretch."""

FEW, MANY = 16, 128
"""Number of nodes defined at a time: FEW at first, then doubled up to MANY."""


AT_ONCE: dict[Escapes, int] = {"canonical": 500, "any": 50}
MAX_STATES: dict[Escapes, int] = {"canonical": 4000, "any": 1200}
MAX_NODES = 60_000
"""Maximum number of states lowered together at the first use; at any use; and the maximum number of nodes then."""

STEPS_PER_STATE = 1000

# Holes of a copied stretch
RULE, CLOSE, COUNTER, FULL, ANYTIME = range(-1, -6, -1)


class Stretch(NamedTuple):
    """Counted lengths `begin` to `end`, and counters for: another character, the full count, ending at any count."""

    begin: int
    end: int
    counter: int
    full: int
    anytime: int


class CountedPlace(NamedTuple):
    """The place of a node: a state before a character at a length; or, with `within`, after a counted character."""

    state: int
    length: int
    within: Stretch | None


class StretchNode(NamedTuple):
    """The node of a state within a stretch, where a character begins or the stretch ends, and the nodes after it."""

    node: int
    after: list[int]


def lower_stretch(counting: Counting, escapes: Escapes) -> LoweredStretch | None:
    """Lower all states of a free stretch, with holes for rule, counters and closing quote; None if they are too many.

    The result is independent of the bounds: up to its end every state can be completed.
    """
    graph = Graph()
    edges = CharacterEdges(Lowering(graph), counting.alphabet(escapes))
    states = [state for state, steps in enumerate(counting.to_end) if steps < NEVER]
    if len(states) > MAX_STATES[escapes]:
        return None
    numbers = {state: number for number, state in enumerate(states)}
    count = len(numbers)
    graph.rule = RULE
    for _ in range(3 * count):
        graph.reserve()
    after = {state: count + number for state, number in numbers.items()}
    for state, number in numbers.items():
        spend(STEPS_PER_STATE)
        links: list[Link] = [(LEAVE, number, FULL)]
        if counting.automaton.accepting[state]:
            links.append((LEAVE, CLOSE, ANYTIME))
        graph.counter = COUNTER
        first = edges.of(counting.ways(state, escapes), after)
        if first:
            links.append((EPSILON, graph.node(first), COUNTER))
        graph.counter = 0
        graph.define(after[state], links=((INCREMENT, count + after[state], COUNTER),))
        graph.define(count + after[state], links=links)
        if graph.node_count > MAX_NODES:
            return None
    return LoweredStretch(
        graph.fragment(), numbers, [1 + counting.bytes_needed(state, counting.least) for state in numbers]
    )


class CountedStrings:
    """The strings of a nonempty `Counting`, in the current rule, before the node `target`."""

    def __init__(self, lowering: Lowering, escapes: Escapes, counting: Counting, target: int) -> None:
        self._graph = lowering.graph
        self._escapes: Escapes = escapes
        self._edges = CharacterEdges(lowering, counting.alphabet(escapes))
        self._counting = counting
        self._target = target
        self._close = self._graph.node(((0x22, 0x22, target),))
        # By state and length, and by state and begin of the stretch; hashing a CountedPlace would dominate the time.
        self._nodes: dict[tuple[int, int], int] = {}
        self._nodes_within: dict[tuple[int, int], int] = {}
        self._heads: dict[tuple[int, int], StretchNode] = {}
        self._undefined: dict[int, CountedPlace] = {}
        self._together = FEW // 2
        self._steady = self._stretch(0, counting.steady)
        self._free = self._stretch(counting.least, counting.free)

    def _stretch(self, begin: int, end: int) -> Stretch | None:
        """Return a counted stretch, if it is long enough. Unreachable nodes give its counters their cost."""
        if end - begin < WORTHWHILE:
            return None
        graph, counting = self._graph, self._counting
        full = graph.counter_for(end - begin, end - begin)
        if begin == counting.least:
            counter = graph.counter_for(0, end - begin)
            graph.node(links=((LEAVE, self._target, counter),))
        else:
            counter = graph.counter_for(end - begin, end - begin)
            turn = graph.lazy_node(_never_reached, lambda: counting.turn, -1)
            after = graph.lazy_node(_never_reached, lambda: 1 + counting.steady_end, self._target)
            graph.node(links=((EPSILON, turn, 0), (LEAVE, after, counter)))
        return Stretch(begin, end, counter, full, graph.counter_for(0, end - begin))

    def entry(self) -> int:
        """Return the node before the opening quote."""
        return self._graph.node(((0x22, 0x22, self._before(self._counting.automaton.start, 0)),))

    def _before(self, state: int, length: int) -> int:
        """Return the node of a state at a length that is not counted, or where a stretch begins."""
        counting = self._counting
        if counting.most is None:
            length = min(length, counting.least)
        node = self._nodes.get((state, length))
        if node is None:
            node = self._nodes[state, length] = self._new_node(CountedPlace(state, length, None), self._target)
        return node

    def _after(self, state: int, stretch: Stretch) -> int:
        """Return the node after a counted character."""
        node = self._nodes_within.get((state, stretch.begin))
        if node is None:
            node = self._new_node(CountedPlace(state, stretch.begin, stretch), -1)
            self._nodes_within[state, stretch.begin] = node
        return node

    def _new_node(self, place: CountedPlace, target: int) -> int:
        counter, self._graph.counter = self._graph.counter, 0
        node = self._graph.lazy_node(self._expand, lambda: self._needed(place), target)
        self._graph.counter = counter
        self._undefined[node] = place
        return node

    def _needed(self, place: CountedPlace) -> int:
        """Return the bytes to the end. Below the minimum length the counter promises further characters."""
        if place.within is not None and place.within is self._steady:
            return 0
        return 1 + self._counting.bytes_needed(place.state, place.length)

    def _expand(self, node: int) -> None:
        """Define a node and its neighbours."""
        queue = [node]
        defined = 0
        self._together = min(2 * self._together, MANY)
        for near in queue:
            place = self._undefined.pop(near, None)
            if place is not None:
                queue += self._define(near, place)
                defined += 1
                if defined == self._together:
                    break

    def _define(self, node: int, place: CountedPlace) -> list[int]:
        """Define a node. Return the nodes after one more character."""
        state, length, stretch = place
        if stretch is None:
            stretch = self._steady if length < self._counting.steady else self._free
            if stretch is None or length != stretch.begin:
                return self._define_uncounted(node, state, length)
            head = self._head(state, stretch)
            self._graph.define(node, links=((EPSILON, head.node, 0),))
        else:
            head = self._head(state, stretch)
            self._graph.define(node, links=((INCREMENT, head.node, stretch.counter),))
        return head.after

    def _define_uncounted(self, node: int, state: int, length: int) -> list[int]:
        counting = self._counting
        targets = {after: self._before(after, length + 1) for after in self._live(state, length + 1)}
        edges = self._edges.of(counting.ways(state, self._escapes), targets)
        if length >= counting.least:
            if counting.automaton.accepting[state]:
                edges.append((0x22, 0x22, self._target))
            if counting.most is None:
                self._graph.promise_span(node, intersect(counting.endless(state), PLAIN))
        self._graph.define(node, edges)
        return list(targets.values())

    def _head(self, state: int, stretch: Stretch) -> StretchNode:
        head = self._heads.get((state, stretch.begin))
        if head is None and stretch is self._free:
            head = self._copied_head(state)
        if head is None:
            graph, counting = self._graph, self._counting
            targets = {after: self._after(after, stretch) for after in self._live(state, stretch.end)}
            links: list[Link] = []
            if self._is_alive(state, stretch.end):
                links.append((LEAVE, self._before(state, stretch.end), stretch.full))
            if stretch is self._free and counting.automaton.accepting[state]:
                links.append((LEAVE, self._close, stretch.anytime))
            graph.counter = stretch.counter
            edges = self._edges.of(counting.ways(state, self._escapes), targets)
            if edges:
                links.append((EPSILON, graph.node(edges), stretch.counter))
            graph.counter = 0
            head = StretchNode(graph.node(links=links), list(targets.values()))
            self._heads[state, stretch.begin] = head
        return head

    def _copied_head(self, state: int) -> StretchNode | None:
        """Return `_head` in a copied stretch; None if the stretch is not copied."""
        if self._copy is None:
            return None
        stretched, first = self._copy
        return StretchNode(first + 2 * len(stretched.numbers) + stretched.numbers[state], [])

    @cached_property
    def _copy(self) -> tuple[LoweredStretch, int] | None:
        """The copy of the free stretch and its first node; None if nodes are defined as they are reached."""
        stretch, stretched = self._free, self._stretched()
        if stretch is None or stretched is None:
            return None
        graph, count = self._graph, len(stretched.numbers)
        spend(STEPS_PER_COPY * len(stretched.fragment.piece.nodes))
        counters = stretch.counter, stretch.full, stretch.anytime
        first = graph.insert(stretched.fragment, (graph.rule, self._close, *counters))
        states = list(stretched.numbers)

        def leave(node: int) -> None:
            self._undefined[node] = CountedPlace(states[node - first], stretch.end, None)
            self._expand(node)

        graph.define_all_later(range(first, first + count), leave, stretched.needed, self._target)
        graph.promise_all(range(first + count, first + 2 * count), stretched.needed)
        return stretched, first

    def _stretched(self) -> LoweredStretch | None:
        """Return the fragment of the free stretch; None if it is large, and for many states at the first call."""
        counting, escapes = self._counting, self._escapes
        fragments = counting.stretched
        if escapes not in fragments:
            if len(counting.edges) > AT_ONCE[escapes] and escapes not in counting.deferred:
                counting.deferred.add(escapes)
                return None
            fragments[escapes] = lower_stretch(counting, escapes)
        return fragments[escapes]

    def _live(self, state: int, length: int) -> list[int]:
        """Return the states after one more character that can be completed at `length`."""
        if self._counting.all_alive(length):
            return list(self._counting.edges[state])
        return [after for after in self._counting.edges[state] if self._is_alive(after, length)]

    def _is_alive(self, state: int, length: int) -> bool:
        return self._counting.bytes_needed(state, length) < NEVER


def _never_reached(node: int) -> None:
    raise AssertionError(f"node {node} only has a price")


QUOTE = Literal(b'"')
MANY_TEXTS = 24
MANY_CONDITIONS = 4
MAX_JOINT_STATES = 500
"""Maximum number of states of an automaton for many conditions; beyond it, a conjunction makes states on demand."""
REGEX = String(formats=frozenset(("regex",)))
MAX_SIZE: dict[Escapes, int] = {"canonical": 1100, "any": 40}
"""Maximum number of syntax nodes of a pattern that is spelt directly; larger ones are determinised first."""


class StringLowering:
    """Adds strings to a graph, spelt as JSON with the allowed escapes.

    conjunctions: shared cache of conjunctions
    """

    def __init__(
        self, lowering: Lowering, escapes: Escapes, conjunctions: dict[String, Conjunction] | None = None
    ) -> None:
        self._lowering = lowering
        self._graph = lowering.graph
        self._escapes: Escapes = escapes
        self._conjunctions: dict[String, Conjunction] = {} if conjunctions is None else conjunctions

    def entry(self, case: String, target: int) -> int | None:
        """Return the node where a string of the set begins, with its quotes, and continues at `target`.

        None if there is no such string. The graph's counter must be 0.
        """
        if case.values is not None:
            return self.literals(case.values, target)
        if case.quote is not None:
            end = self._graph.literal(b'"', target)
            return self._graph.literal(b'"', self._graph.instantiate(fragment_of_quote(case.quote, True), end))
        if _only_excludes(case):
            return all_but(self._lowering, self._escapes, _writable(case.excluded), target)
        found = plan(case, self._escapes)
        if found is None:
            strings = self._conjunction(case)
            if strings.needed(strings.start) >= NEVER:
                return None
            return AutomatonPlaces(self._lowering, self._escapes, strings, lambda _: target, target).entry()
        if not isinstance(found, Counting):
            return self._lowering.lower(in_quotes(found), target)
        if found.is_empty:
            return None
        return CountedStrings(self._lowering, self._escapes, found, target).entry()

    def shortest(self, case: String) -> int:
        """Return the bytes of a short string of a nonempty set, quotes included."""
        if case.values is not None:
            return min(map(len, all_spelt(_writable(case.values))), default=NEVER)
        if case.quote is not None:
            return len(spelt(case.quote.examples(1)[0]))
        if _only_excludes(case):
            texts = chain(("",), map(chr, range(0x23, 0xD800)))
            return next(len(spelt(text)) for text in texts if text not in case.excluded)
        if case == REGEX:
            return 2
        found = plan(case, self._escapes)
        if found is None:
            strings = self._conjunction(case)
            return 2 + strings.needed(strings.start)
        if isinstance(found, Counting):
            return 2 + found.bytes_needed(found.automaton.start, 0)
        return 2 + fewest_bytes(found)

    def _conjunction(self, case: String) -> Conjunction:
        """Return the conjunction of a set with too many conditions for one automaton."""
        known = self._conjunctions.get(case)
        if known is None:
            known = self._conjunctions[case] = conjunction(case)
        return known

    def literals(self, texts: Iterable[str], target: int) -> int | None:
        """Return the entry of finitely many distinct strings."""
        listed = _writable(texts)
        if self._escapes == "canonical" and listed:
            # Sorting str is faster than sorting bytes, and leaves the spelt texts almost sorted.
            return self._graph.instantiate(text_tree(sorted(all_spelt(sorted(listed)))), target)
        if len(listed) > MANY_TEXTS:
            return AutomatonPlaces(self._lowering, "any", TextTree(listed), lambda _: target, target).entry()
        return self._lowering.lower(Alternation(tuple(self.literal(text) for text in listed)), target)

    def literal(self, text: str) -> Node:
        """Return one string with its quotes."""
        if self._escapes == "canonical":
            return Literal(spelt(text))
        return Sequence((QUOTE, *(spell_chars(single(ord(char)), "any") for char in text), QUOTE))


def in_quotes(node: Node) -> Node:
    """Return spelt syntax between quotes."""
    return Sequence((QUOTE, node, QUOTE))


def _only_excludes(case: String) -> bool:
    return bool(case.excluded) and case == String(excluded=case.excluded)


def _writable(texts: Iterable[str]) -> list[str]:
    """Return the texts without lone surrogates, which UTF-8 cannot encode."""
    listed = list(texts)
    if "".join(listed).isascii():
        return listed
    return [text for text in listed if is_writable(text)]


def plan(case: String, escapes: Escapes) -> Node | Counting | None:
    """Return the strings of a set without quotes: spelt syntax if it is brief, else an automaton.

    None if the automaton is too large to compute ahead.
    """
    if case.either:
        return None
    node = _spelt_syntax(case, escapes, MAX_SIZE[escapes])
    if node is not None:
        return node
    return _spelt_syntax(case, escapes, ENDLESS) if _takes_too_much(case) else counted(case)


@cached(4096, 32 << 20)
def _spelt_syntax(case: String, escapes: Escapes, most: int) -> Node | None:
    """Return the strings of a set as spelt syntax of at most `most` nodes; None if it is larger, or not syntax."""
    node = _as_syntax(case)
    if node is None or (escapes == "any" and has_table(node)) or size(node) > most:
        return None
    return spell(node, escapes)


@cached(4096, 8 << 20)
def _takes_too_much(case: String) -> bool:
    """Test whether the automaton of a set exceeds its limits."""
    try:
        counted(case)
    except LimitError:
        spend(0)  # raises again if the limits of the whole call are exceeded
        return True
    return False


def _as_syntax(case: String) -> Node | None:
    """Return the strings of a set as syntax; None if an automaton is required."""
    most = ENDLESS if case.max_length is None else case.max_length
    if most < case.min_length:
        return NOTHING
    if case.excluded or case.not_patterns or case.not_formats:
        return None
    if is_plain(case):
        return Repeat(Chars(ALL), case.min_length, case.max_length)
    if len(case.patterns) + len(case.formats) > 1:
        return None
    node = parse(next(iter(case.patterns or (PATTERNS[name] for name in case.formats))))
    if case.min_length or case.max_length is not None:
        return narrow(node, case.min_length, most)
    return node


@cached_growing(256, 32 << 20)
def counted(case: String) -> Counting:
    """Return a set of strings as an automaton with length bounds. Raises LimitError."""
    if case.min_length or case.max_length is not None:
        return counted(replace(case, min_length=0, max_length=None)).within(case.min_length, case.max_length)
    conditions = sorted(
        (*_named(case.patterns, case.formats, True), *_named(case.not_patterns, case.not_formats, False))
    )
    try:
        machine = automaton(
            _read_together(tuple(pattern for pattern, _ in conditions)),
            [wanted for _, wanted in conditions],
            MAX_SUBSETS if len(conditions) < MANY_CONDITIONS else MAX_JOINT_STATES,
        )
        if case.excluded:
            machine = without(machine, _writable(sorted(case.excluded)))
        return Counting(machine)
    except LimitError as error:
        raise LimitError(f"{error}: {listed(case)}") from None


def _named(patterns: Iterable[str], formats: Iterable[str], wanted: bool) -> Iterator[tuple[str, bool]]:
    """Yield the patterns, also those of formats, each with whether strings must match."""
    return ((pattern, wanted) for pattern in chain(patterns, (PATTERNS[name] for name in formats)))


@cached_growing(64, 16 << 20)
def _read_together(patterns: tuple[str, ...]) -> JointConditions:
    """Return patterns over common atoms. Cached: many sets have the same patterns, negated or not."""
    return JointConditions([parse(pattern) for pattern in patterns])
