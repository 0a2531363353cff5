"""Sets of strings as places of a graph, each added when it is reached.

Conjunctions, fixed strings in "any" spelling, and complements of fixed strings have a node for each state of an
automaton over characters. Complements of few strings in canonical spelling combine the automaton of all strings with a
tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from .....kernels.answers import NEVER
from .....kernels.trie.texts import WAY_OUT
from ....automata.charsets import intersect
from ....automata.dfa import Dfa, byte_runs
from ....chart.automaton import ChartAutomaton
from ....graph.graph import Edge, Graph
from ....graph.lowering import Lowering
from ....graph.text_tree import ByteRuns, all_but_texts, beside
from ....graph.utf8 import byte_fragment
from ....limits import spend
from ....syntax import Literal, Ranges, Repeat, Sequence
from ...automata.conjunction import Conjunction
from ...automata.spelling import (
    PLAIN,
    Alphabet,
    CharacterTransitions,
    Escapes,
    after_backslash,
    all_spelt,
    free_character,
)
from ...automata.text_tree import TextTree

BEYOND_ASCII: Ranges = ((0x80, 0x10FFFF),)


class CharacterEdges:
    """Makes the edges of nodes at which a character of an alphabet begins."""

    def __init__(self, lowering: Lowering, alphabet: Alphabet) -> None:
        self._lowering = lowering
        self._alphabet = alphabet
        self._longer: dict[tuple[tuple[int, ...], int], list[Edge]] = {}

    def of(self, ways: CharacterTransitions, targets: Mapping[int, int]) -> list[Edge]:
        """Return edges for the characters of each way to its state's node; ways without a target are skipped."""
        edges = [(low, high, targets[state]) for low, high, state in ways.plain if state in targets]
        for state, numbers in ways.others:
            target = targets.get(state)
            if target is not None:
                edges += self._by_several_bytes(numbers, target)
        return edges

    def _by_several_bytes(self, numbers: tuple[int, ...], target: int) -> list[Edge]:
        """Return the first edges of spellings of several bytes; the nodes after them are added to the graph once."""
        known = self._longer.get((numbers, target))
        if known is None:
            known = self._longer[numbers, target] = []
            ranges = self._alphabet.union(numbers)
            non_ascii = intersect(ranges, BEYOND_ASCII)
            if non_ascii:
                fragment = byte_fragment(non_ascii)
                first = self._lowering.graph.instantiate(fragment, target)
                for low, high, after in fragment.edges[: int(fragment.ends[0])].tolist():
                    known.append((low, high, target if after < 0 else first + after))
            escaped = self._lowering.lower(after_backslash(ranges, self._alphabet.escapes), target)
            if escaped is not None:
                known.append((0x5C, 0x5C, escaped))
        return known


class AutomatonPlaces:
    """Adds the strings of an automaton to the current rule of a graph: a node per state, defined when reached.

    after: returns the node after the closing quote, for a state in which a string may end
    end, beyond: a node, and the bytes to it in addition to those that the verdict counts
    """

    def __init__(
        self,
        lowering: Lowering,
        escapes: Escapes,
        strings: Conjunction | TextTree,
        after: Callable[[int], int],
        end: int,
        bytes_after: int = 0,
    ) -> None:
        self._graph = lowering.graph
        self._escapes: Escapes = escapes
        self._strings = strings
        self._alphabet = Alphabet(strings.atoms, escapes)
        self._edges = CharacterEdges(lowering, self._alphabet)
        self._after = after
        self._end = end
        self._bytes_after = bytes_after + 1
        self._nodes: dict[int, int] = {}

    def entry(self) -> int:
        """Return the node before the opening quote."""
        return self._graph.node(((0x22, 0x22, self._node(self._strings.start)),))

    def _node(self, state: int) -> int:
        node = self._nodes.get(state)
        if node is None:
            node = self._nodes[state] = self._graph.lazy_node(
                lambda node: self._define(node, state),
                lambda: self._bytes_after + self._strings.promised(state),
                self._end,
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


MAX_AT_ONCE = 16_000
"""Maximum bytes of excluded texts that are added at once; more are added on demand."""


@lru_cache(maxsize=1)
def _free_string() -> ByteRuns:
    """Return the automaton of canonical strings, left by the closing quote."""
    graph = Graph()
    quote = Literal(b'"')
    rule = Lowering(graph).rule(Sequence((quote, Repeat(free_character("canonical"), 0, None), quote)))
    dfa = Dfa.of(ChartAutomaton(graph, rule)).minimised()
    assert dfa.start == 0, "minimised automata are numbered from the start"
    runs = (byte_runs(row) for row in dfa.transitions)
    return beside([[(low, high, WAY_OUT if dfa.accepting[to] else to) for low, high, to in found] for found in runs])


def all_but(lowering: Lowering, escapes: Escapes, texts: Iterable[str], target: int) -> int:
    """Return the entry of the strings that are not among `texts`."""
    listed = sorted(all_spelt(texts)) if escapes == "canonical" else []
    if escapes == "any" or sum(map(len, listed)) > MAX_AT_ONCE:
        tree = TextTree(texts, all_but=True)
        return AutomatonPlaces(lowering, escapes, tree, lambda _: target, target).entry()
    return lowering.graph.instantiate(all_but_texts(listed, _free_string()), target)
