"""Sets of strings as places of a graph, each added when it is reached.

Fixed strings in every spelling, or all strings but those, are a tree of characters; all but a few in canonical spelling
are the free string's automaton beside that tree; strings under many conditions have a node for each common state of
their automata.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as ListOf
from functools import lru_cache
from typing import NamedTuple

from .....kernels.answers import NEVER
from .....kernels.chart.layout import EPSILON
from .....kernels.trie.texts import WAY_OUT
from ....automata.charsets import ALL, LAST, intersect, negate, single
from ....automata.dfa import Dfa, byte_runs
from ....chart.automaton import ChartAutomaton
from ....graph.graph import Edge, Graph, Link
from ....graph.lowering import Lowering, fragment_of_table
from ....graph.text_tree import Beside, all_but_texts, beside
from ....graph.utf8 import byte_fragment
from ....limits import spend
from ....syntax import Alternation, Chars, Literal, Ranges, Repeat, Sequence, Table
from ...automata.conjunction import Conjunction
from ...automata.spelling import (
    PLAIN,
    Alphabet,
    Escapes,
    Ways,
    after_backslash,
    all_spelt,
    bytes_of,
    free_character,
    spell_chars,
)

BEYOND_ASCII: Ranges = ((0x80, 0x10FFFF),)


def read_character(lowering: Lowering, escapes: Escapes, ranges: Ranges, target: int, endless: Ranges = ()) -> int:
    """The node before a character of a set that is not empty, which leads to `target`.

    endless: characters of which any text can be read and continued from here
    """
    spelling = spell_chars(ranges, escapes)
    first = spelling.items[0] if isinstance(spelling, Alternation) else spelling
    entry = lowering.lower(spelling if first is spelling or not endless else first, target)
    assert entry is not None, "sets of characters are not empty"
    if not endless or not isinstance(first, Chars):
        return entry
    lowering.graph.promise_span(entry, intersect(endless, PLAIN))
    if not isinstance(spelling, Alternation):
        return entry
    others = lowering.lower(Alternation(spelling.items[1:]), target)
    return lowering.graph.node(links=[(EPSILON, one, 0) for one in (entry, others) if one is not None])


class CharacterEdges:
    """Makes the edges of nodes at which a character of an alphabet begins."""

    def __init__(self, lowering: Lowering, alphabet: Alphabet) -> None:
        self._lowering = lowering
        self._alphabet = alphabet
        self._longer: dict[tuple[tuple[int, ...], int], list[Edge]] = {}

    def of(self, ways: Ways, targets: Mapping[int, int]) -> list[Edge]:
        """Edges that read the characters of each way and lead to its state's node among `targets`, if that is there."""
        edges = [(low, high, targets[state]) for low, high, state in ways.plain if state in targets]
        for state, numbers in ways.others:
            target = targets.get(state)
            if target is not None:
                edges += self._by_several_bytes(numbers, target)
        return edges

    def _by_several_bytes(self, numbers: tuple[int, ...], target: int) -> list[Edge]:
        """The first edges of the spellings that are not one byte; what follows them is added to the graph once."""
        known = self._longer.get((numbers, target))
        if known is None:
            known = self._longer[numbers, target] = []
            ranges = self._alphabet.union(numbers)
            beyond = intersect(ranges, BEYOND_ASCII)
            if beyond:
                fragment = byte_fragment(beyond)
                first = self._lowering.graph.instantiate(fragment, target)
                for low, high, after in fragment.edges[: int(fragment.ends[0])].tolist():
                    known.append((low, high, target if after < 0 else first + after))
            escaped = self._lowering.lower(after_backslash(ranges, self._alphabet.escapes), target)
            if escaped is not None:
                known.append((0x5C, 0x5C, escaped))
        return known


Branch = tuple[int, int, int]


class TextPlaces:
    """Adds to the current rule of a graph the strings `texts`, or all but them, before the node `target`."""

    def __init__(
        self, lowering: Lowering, escapes: Escapes, texts: Iterable[str], target: int, *, all_but: bool = False
    ) -> None:
        self._lowering = lowering
        self._graph = lowering.graph
        self._escapes: Escapes = escapes
        self._texts = sorted(texts)
        self._target = target
        self._close = self._graph.node(((0x22, 0x22, target),))
        self._all_but = all_but
        self._free = self._any_string() if all_but else -1

    def _any_string(self) -> int:
        """The node from which any characters may follow up to the closing quote."""
        free = self._graph.reserve()
        char = self._read(ALL, free)
        return self._graph.define(free, links=((EPSILON, char, 0), (EPSILON, self._close, 0)))

    def entry(self) -> int:
        """The node before the opening quote."""
        return self._graph.node(((0x22, 0x22, self._node(0, len(self._texts), 0)),))

    def _node(self, first: int, last: int, depth: int) -> int:
        """The node after the first `depth` characters that the texts first ... last - 1 have in common."""
        return self._graph.lazy_node(
            lambda node: self._define(node, first, last, depth),
            lambda: self._needed(first, last, depth),
            self._target,
        )

    def _define(self, node: int, first: int, last: int, depth: int) -> None:
        links: list[Link] = []
        if self._ends(first, last, depth) != self._all_but:
            links.append((EPSILON, self._close, 0))
        branches = self._branches(first, last, depth)
        for code, start, end in branches:
            links.append((EPSILON, self._read(single(code), self._node(start, end, depth + 1)), 0))
        if self._all_but:
            links.append((EPSILON, self._read(_others(branches), self._free), 0))
        self._graph.define(node, links=links)

    def _ends(self, first: int, last: int, depth: int) -> bool:
        """Tell whether the characters so far are one of the texts."""
        return first < last and len(self._texts[first]) == depth

    def _branches(self, first: int, last: int, depth: int) -> list[Branch]:
        """The characters with which the texts of a span go on, each with the span of its texts."""
        found: list[Branch] = []
        first += self._ends(first, last, depth)
        while first < last:
            text = self._texts[first]
            code = ord(text[depth])
            end = bisect_left(self._texts, text[:depth] + chr(code + 1), first, last) if code < LAST else last
            found.append((code, first, end))
            first = end
        return found

    def _read(self, ranges: Ranges, target: int) -> int:
        endless = ALL if self._all_but else ()
        return read_character(self._lowering, self._escapes, ranges, target, endless)

    def _needed(self, first: int, last: int, depth: int) -> int:
        """The fewest bytes from a place to the end."""
        if not self._all_but:
            return 1 + min(sum(map(_bytes_of, text[depth:])) for text in self._texts[first:last])
        if not self._ends(first, last, depth):
            return 1
        return 1 + bytes_of(_others(self._branches(first, last, depth)))


def _others(branches: list[Branch]) -> Ranges:
    return negate(tuple((code, code) for code, _, _ in branches))


def _bytes_of(char: str) -> int:
    return bytes_of(single(ord(char)))


class ConjunctionPlaces:
    """Adds the strings of a `Conjunction` to the current rule of a graph, each state a node, defined when reached.

    after: gives the node behind the closing quote, for a state in which a string may end
    end, beyond: a node, and how many bytes further than the verdict counts it lies
    """

    def __init__(
        self,
        lowering: Lowering,
        escapes: Escapes,
        strings: Conjunction,
        after: Callable[[int], int],
        end: int,
        beyond: int = 0,
    ) -> None:
        self._graph = lowering.graph
        self._escapes: Escapes = escapes
        self._strings = strings
        self._alphabet = Alphabet(strings.atoms, escapes)
        self._edges = CharacterEdges(lowering, self._alphabet)
        self._after = after
        self._end = end
        self._beyond = beyond + 1
        self._nodes: dict[int, int] = {}

    def entry(self) -> int:
        """The node before the opening quote."""
        return self._graph.node(((0x22, 0x22, self._node(self._strings.start)),))

    def _node(self, state: int) -> int:
        node = self._nodes.get(state)
        if node is None:
            node = self._nodes[state] = self._graph.lazy_node(
                lambda node: self._define(node, state), lambda: self._beyond + self._strings.promised(state), self._end
            )
        return node

    def _define(self, node: int, state: int) -> None:
        strings = self._strings
        row = strings.row(state)
        spend(2000)
        targets = {after: self._node(after) for after in set(row) if after >= 0 and strings.promised(after) < NEVER}
        edges = self._edges.of(self._alphabet.ways(row), targets)
        if strings.cost_at_end(state) < NEVER:
            edges.append((0x22, 0x22, self._after(state)))
        if strings.is_endless:
            self._graph.promise_span(node, PLAIN)
        self._graph.define(node, edges)


Runs = list[tuple[int, int, int]]

MAX_AT_ONCE = 16_000
"""Up to how many bytes of excluded texts are added at once; more are added as they are reached."""


class FreeString(NamedTuple):
    """The canonical strings as a table; for each state its runs, and the bytes to the end.

    inside: the state after the opening quote
    """

    table: Table
    runs: list[Runs]
    to_end: list[int]
    inside: int
    automaton: Beside


@lru_cache(maxsize=1)
def _free_string() -> FreeString:
    graph = Graph()
    quote = Literal(b'"')
    rule = Lowering(graph).rule(Sequence((quote, Repeat(free_character("canonical"), 0, None), quote)))
    dfa = Dfa.of(ChartAutomaton(graph, rule)).minimised()
    assert dfa.start == 0, "minimised automata are numbered from the start"
    runs = [byte_runs(row) for row in dfa.transitions]
    to_end = [0 if end else len(dfa) for end in dfa.accepting]
    for _ in runs:
        for state, found in enumerate(runs):
            to_end[state] = min([to_end[state], *(1 + to_end[target] for _, _, target in found)])
    open_ended = [
        [(low, high, WAY_OUT if dfa.accepting[target] else target) for low, high, target in found] for found in runs
    ]
    return FreeString(Table(dfa.transitions, dfa.accepting), runs, to_end, dfa.step(0, 0x22), beside(open_ended))


def all_but(graph: Graph, texts: Iterable[str], target: int) -> int:
    """The entry of the canonical strings that are not among `texts`."""
    listed = sorted(all_spelt(texts))
    if sum(map(len, listed)) > MAX_AT_ONCE:
        return Exclusion(graph, listed, target).entry()
    return graph.instantiate(all_but_texts(listed, _free_string().automaton), target)


class Exclusion:
    """Adds to a graph the canonical strings that are not among `texts`, sorted and spelt, as they are reached.

    At a node of the tree, a byte that goes on like an excluded string leads to the next node of the tree,
    any other to the free automaton, of which there is one copy; only the closing quote of an excluded string
    is missing. A place in the tree is a span of the sorted texts, alike up to a depth.
    """

    def __init__(self, graph: Graph, texts: ListOf[bytes], target: int) -> None:
        self._string = _free_string()
        self._graph = graph
        self._target = target
        self._free = graph.instantiate(fragment_of_table(self._string.table), target)
        self._texts = texts

    def entry(self) -> int:
        """The node before the opening quote."""
        root = self._node(0, len(self._texts), 1, self._string.inside)
        return self._graph.node(((0x22, 0x22, root),))

    def _node(self, first: int, last: int, depth: int, state: int) -> int:
        """The node at a place of the tree, where the free automaton is in `state`; most are never reached."""
        node = self._graph.lazy_node(
            lambda node: self._define(node, first, last, depth, state),
            lambda: self._needed(first, last, depth, state),
            self._target,
        )
        return node

    def _define(self, node: int, first: int, last: int, depth: int, state: int) -> None:
        branches = self._branches(first, last, depth)
        edges: list[Edge] = []
        at = 0
        for low, high, target in self._string.runs[state]:
            free = self._free + target
            begin = low
            while at < len(branches) and branches[at][0] <= high:
                byte, start, end = branches[at]
                at += 1
                if begin < byte:
                    edges.append((begin, byte - 1, free))
                if len(self._texts[start]) > depth + 1:
                    edges.append((byte, byte, self._node(start, end, depth + 1, target)))
                begin = byte + 1
            if begin <= high:
                edges.append((begin, high, free))
        self._graph.define(node, edges)

    def _branches(self, first: int, last: int, depth: int) -> list[tuple[int, int, int]]:
        """The bytes with which the texts of a span go on, each with the span of its texts."""
        found: list[tuple[int, int, int]] = []
        while first < last:
            text = self._texts[first]
            end = bisect_left(self._texts, text[:depth] + bytes((text[depth] + 1,)), first, last)
            found.append((text[depth], first, end))
            first = end
        return found

    def _needed(self, first: int, last: int, depth: int, state: int) -> int:
        """The fewest bytes from a place to the end; along the tree only where no byte leaves it."""
        branches = self._branches(first, last, depth)
        inside = {byte for byte, _, _ in branches}
        outside = [
            1 + self._string.to_end[target]
            for low, high, target in self._string.runs[state]
            if any(byte not in inside for byte in range(low, high + 1))
        ]
        if outside:
            return min(outside)
        target_of = {byte: target for low, high, target in self._string.runs[state] for byte in range(low, high + 1)}
        return 1 + min(
            self._needed(start, end, depth + 1, target_of[byte])
            for byte, start, end in branches
            if len(self._texts[start]) > depth + 1
        )
