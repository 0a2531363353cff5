"""Characters of JSON strings as edges of nodes."""

from __future__ import annotations

from collections.abc import Mapping

from .....kernels.chart.layout import EPSILON
from ....automata.charsets import intersect
from ....graph.graph import Edge
from ....graph.lowering import Lowering
from ....graph.utf8 import byte_fragment
from ....syntax import Alternation, Chars, Ranges
from ...automata.spelling import PLAIN, Alphabet, Escapes, Ways, after_backslash, spell_chars

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
