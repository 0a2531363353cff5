"""Free text up to a marker, or without a marker, as lazy nodes of a graph."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from ...kernels.chart.layout import EPSILON
from ...tokenizers_adapter.marked import MARK
from ..graph.array_graph import Link
from ..graph.graph import Edge, Graph
from ..limits import spend
from .markers import Markers, bytes_left, place_of, ways

STEPS_PER_EDGE = 30


class FreeState(NamedTuple):
    """A state of free text.

    prefix: the longest prefix of a marker that the text ends with; place: position inside a character, 0 between
    characters
    head: the whole text so far, while it is a prefix of a text in `unlike`, else None
    """

    prefix: bytes = b""
    place: int = 0
    head: bytes | None = None


class FreeText:
    """Free text of a rule, in UTF-8; nodes are defined on demand.

    exit_node: returns the node behind a marker; needed: returns the fewest bytes from there to `target`, the end of the
    rule
    refused: markers that must not occur
    may_end: whether the text may end between characters, without a marker
    unlike: ASCII texts that it must not begin with
    """

    def __init__(
        self,
        graph: Graph,
        markers: Markers,
        target: int,
        exit_node: Callable[[bytes], int],
        needed: Callable[[bytes], int],
        *,
        refused: Collection[bytes] = (),
        may_end: bool = False,
        unlike: Collection[bytes] = (),
    ) -> None:
        self._graph = graph
        self._markers = markers
        self._target = target
        self._exit_node = exit_node
        self._needed = needed
        self._refused = frozenset(refused)
        self._may_end = may_end
        self._unlike = frozenset(unlike)
        self._heads: dict[bytes, set[int]] = {}
        for text in self._unlike:
            spend(STEPS_PER_EDGE * len(text))
            for end in range(len(text)):
                self._heads.setdefault(text[:end], set()).add(text[end])
        self._nodes: dict[FreeState, int] = {}

    def start(self) -> int:
        """Return the node before the text."""
        return self._node(FreeState(head=b"" if self._heads else None))

    def _node(self, key: FreeState) -> int:
        node = self._nodes.get(key)
        if node is None:
            node = self._graph.lazy_node(
                lambda node, key=key: self._define(node, key), lambda key=key: self._promise(key), self._target
            )
            self._nodes[key] = node
        return node

    def _define(self, node: int, key: FreeState) -> None:
        targets = self._markers.targets(key.prefix)
        if key.prefix[:1] == bytes((MARK,)):
            edges = [
                (byte, byte, self._node_after(text))
                for byte, text in sorted(targets.items())
                if text[0] == MARK and self._exits_below(text)
            ]
        else:
            edges = self._edges(key.place, targets)
        if key.head is not None:
            edges = self._edges_of_head(key.head, edges, targets)
        spend(STEPS_PER_EDGE * len(edges))
        links: list[Link] = [(EPSILON, self._target, 0)] if self._can_end(key) else []
        self._graph.define(node, edges, links)

    def _can_end(self, key: FreeState) -> bool:
        return self._may_end and key.place == 0 and key.prefix[:1] != bytes((MARK,))

    def _edges(self, place: int, targets: dict[int, bytes]) -> list[Edge]:
        """Return the edges of character bytes, and of MARK between characters, to states of free text."""
        edges: list[Edge] = []
        for first, last, after in ways(place):
            begin = first
            for byte in sorted(byte for byte in targets if first <= byte <= last):
                if begin < byte:
                    edges.append((begin, byte - 1, self._node(FreeState(place=after))))
                if targets[byte] not in self._refused:
                    edges.append((byte, byte, self._node_after(targets[byte])))
                begin = byte + 1
            if begin <= last:
                edges.append((begin, last, self._node(FreeState(place=after))))
        if place == 0 and MARK in targets and self._exits_below(targets[MARK]):
            edges.append((MARK, MARK, self._node_after(targets[MARK])))
        return edges

    def _edges_of_head(self, head: bytes, edges: list[Edge], targets: dict[int, bytes]) -> list[Edge]:
        """Redirect the edges along a text of `unlike` to its longer prefix, and drop those that would complete it."""
        along = self._heads[head]
        found: list[Edge] = []
        for first, last, node in edges:
            begin = first
            for byte in sorted(byte for byte in along if first <= byte <= last):
                if begin < byte:
                    found.append((begin, byte - 1, node))
                if head + bytes((byte,)) not in self._unlike:
                    prefix = targets.get(byte, b"")
                    if prefix not in self._markers.numbers:
                        found.append((byte, byte, self._node(FreeState(prefix, head=head + bytes((byte,))))))
                    elif prefix not in self._refused:
                        found.append((byte, byte, self._exit_node(prefix)))
                begin = byte + 1
            if begin <= last:
                found.append((begin, last, node))
        return found

    def _node_after(self, text: bytes) -> int:
        if text in self._markers.numbers:
            return self._exit_node(text)
        return self._node(FreeState(text, 0 if text[0] == MARK else place_of(text)))

    def _exits_below(self, prefix: bytes) -> list[bytes]:
        """Return the markers with this prefix that may occur."""
        return [text for text in self._markers.below(prefix) if text not in self._refused]

    def _promise(self, key: FreeState) -> int:
        """Return the fewest bytes to the end of the rule."""
        if self._can_end(key._replace(place=0)):
            return bytes_left(key.place)
        ahead = self._exits_below(key.prefix) if key.prefix else []
        if ahead:
            return min(len(text) - len(key.prefix) + self._needed(text) for text in ahead)
        return bytes_left(key.place) + min(len(text) + self._needed(text) for text in self._exits_below(b""))
