"""Free text up to a marker, or without any, as nodes of a graph that are defined when they are reached."""

from __future__ import annotations

from collections.abc import Callable

from ...kernels.chart.layout import EPSILON
from ...tokenizers_adapter.marked import MARK
from ..graph.array_graph import Link
from ..graph.graph import Edge, Graph
from ..limits import spend
from .markers import Markers, bytes_left, place_of, ways

STEPS_PER_EDGE = 30
Key = tuple[bytes, int]
"""A state: the longest beginning of a marker that the text ends with, and where in a character it is."""


class FreeText:
    """Free text of a rule, UTF-8, as far as the automaton walks into it.

    matched: the node behind a marker; None where no marker may be, and the text may end between characters
    needed: the fewest bytes behind a marker up to `target`, the end of the rule
    """

    def __init__(
        self,
        graph: Graph,
        markers: Markers,
        target: int,
        matched: Callable[[bytes], int] | None,
        needed: Callable[[bytes], int],
    ) -> None:
        self._graph = graph
        self._markers = markers
        self._target = target
        self._matched = matched
        self._needed = needed
        self._nodes: dict[Key, int] = {}

    def start(self) -> int:
        """The node before the text."""
        return self._node((b"", 0))

    def _node(self, key: Key) -> int:
        node = self._nodes.get(key)
        if node is None:
            node = self._graph.lazy_node(
                lambda node, key=key: self._define(node, key), lambda key=key: self._promise(key), self._target
            )
            self._nodes[key] = node
        return node

    def _define(self, node: int, key: Key) -> None:
        begun, place = key
        targets = self._markers.targets(begun)
        if begun[:1] == bytes((MARK,)):
            edges = [(byte, byte, self._behind(text)) for byte, text in sorted(targets.items()) if text[0] == MARK]
        else:
            edges = self._edges(place, targets)
        spend(STEPS_PER_EDGE * len(edges))
        links: list[Link] = [(EPSILON, self._target, 0)] if self._matched is None and place == 0 else []
        self._graph.define(node, edges, links)

    def _edges(self, place: int, targets: dict[int, bytes]) -> list[Edge]:
        """The bytes of characters, and MARK between these: to longer beginnings of markers, or to none."""
        edges: list[Edge] = []
        for first, last, after in ways(place):
            begin = first
            for byte in sorted(byte for byte in targets if first <= byte <= last):
                if begin < byte:
                    edges.append((begin, byte - 1, self._node((b"", after))))
                if self._may_be(targets[byte]):
                    edges.append((byte, byte, self._behind(targets[byte])))
                begin = byte + 1
            if begin <= last:
                edges.append((begin, last, self._node((b"", after))))
        if place == 0 and MARK in targets and self._matched is not None:
            edges.append((MARK, MARK, self._behind(targets[MARK])))
        return edges

    def _may_be(self, text: bytes) -> bool:
        return self._matched is not None or text not in self._markers.numbers

    def _behind(self, text: bytes) -> int:
        if text in self._markers.numbers:
            assert self._matched is not None
            return self._matched(text)
        return self._node((text, 0 if text[0] == MARK else place_of(text)))

    def _promise(self, key: Key) -> int:
        """The fewest bytes to the end of the rule along a way that there is."""
        begun, place = key
        if self._matched is None:
            return bytes_left(place)
        if not begun:
            return bytes_left(place) + min(len(text) + self._needed(text) for text in self._markers.numbers)
        return min(len(text) - len(begun) + self._needed(text) for text in self._markers.below(begun))
