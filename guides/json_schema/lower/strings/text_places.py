"""Fixed strings in every spelling, or all strings but those: a tree of characters, expanded when reached."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from .....kernels.chart.layout import EPSILON
from ....automata.charsets import ALL, LAST, negate, single
from ....graph.graph import Link
from ....graph.lowering import Lowering
from ....syntax import Ranges
from ...automata.spelling import Escapes, bytes_of
from .character_edges import read_character

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
