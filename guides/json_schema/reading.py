"""Characters of JSON strings as edges of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as ListOf
from typing import NamedTuple

from ...kernels.chart.layout import EPSILON
from ..graph import Edge
from ..lower import Lowering
from ..regex.charsets import intersect, normalize
from ..syntax import Alternation, Chars, Ranges
from ..utf8 import template
from .spelling import PLAIN, Escapes, after_backslash, spell_chars

BEYOND_ASCII: Ranges = ((0x80, 0x10FFFF),)
PLAIN_ASCII: Ranges = intersect(PLAIN, ((0, 0x7F),))


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


class Ways(NamedTuple):
    """Which characters lead to which state.

    plain: ASCII characters that stand for themselves, as (first, last, state); others: for a state, the numbers of
    the sets of characters that are spelt with more bytes, if not all of them
    """

    plain: list[tuple[int, int, int]]
    others: list[tuple[int, tuple[int, ...]]]


class Alphabet:
    """Disjoint sets of characters, prepared for being spelt by many nodes."""

    def __init__(self, sets: ListOf[Ranges], escapes: Escapes) -> None:
        self.escapes: Escapes = escapes
        self._sets = sets
        self._unions: dict[tuple[int, ...], Ranges] = {}
        self._plain = sorted(
            (low, high, number) for number, ranges in enumerate(sets) for low, high in intersect(ranges, PLAIN_ASCII)
        )
        self._others = [
            number for number, ranges in enumerate(sets) if escapes == "any" or intersect(ranges, PLAIN_ASCII) != ranges
        ]

    def ways(self, row: ListOf[int]) -> Ways:
        """Which characters lead where, if set number i leads to row[i], or nowhere if that is negative."""
        plain: list[Edge] = []
        end = state = -1
        for low, high, number in self._plain:
            if row[number] == state and low == end + 1:
                if state >= 0:
                    plain[-1] = (plain[-1][0], high, state)
            else:
                state = row[number]
                if state >= 0:
                    plain.append((low, high, state))
            end = high
        others: dict[int, tuple[int, ...]] = {}
        for number in self._others:
            if row[number] >= 0:
                others[row[number]] = (*others.get(row[number], ()), number)
        return Ways(plain, list(others.items()))

    def union(self, numbers: tuple[int, ...]) -> Ranges:
        """The characters in any of these sets."""
        known = self._unions.get(numbers)
        if known is None:
            known = normalize(pair for number in numbers for pair in self._sets[number])
            self._unions[numbers] = known
        return known


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
                piece = template(beyond)
                first = self._lowering.graph.instantiate(piece, target)
                for low, high, after in piece.edges[: int(piece.ends[0])].tolist():
                    known.append((low, high, target if after < 0 else first + after))
            escaped = self._lowering.lower(after_backslash(ranges, self._alphabet.escapes), target)
            if escaped is not None:
                known.append((0x5C, 0x5C, escaped))
        return known
