"""The graph a constraint is lowered to: nodes with byte edges and links, grown as it is explored."""

from __future__ import annotations

import weakref
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from functools import cache

import numpy as np

from ...errors import LimitError
from ...kernels.chart.layout import (
    CALL,
    COUNTER,
    EDGE_HI,
    EDGE_LO,
    EPSILON,
    FINAL,
    FLAGS,
    GUARD,
    INCREMENT,
    LAZY,
    LINK_HI,
    LINK_LO,
    LOOKED,
    RULE,
    SPAN,
    TAIL,
    UNBOUNDED,
)
from ...kernels.chart.layout import Graph as GraphArrays
from ...kernels.chart.sets import BITS
from ..syntax import Ranges
from .copies import Copy, make_copies
from .fragment import Fragment, fragment_of
from .later import Later
from .records import Records
from .spans import Span, span_of
from .utf8 import ByteFragment

Edge = tuple[int, int, int]
Link = tuple[int, int, int]


class Graph:
    """Builds the arrays of kernels/chart/layout.py."""

    def __init__(self) -> None:
        self._nodes = Records(8, 512)
        self._edges = Records(3, 1024)
        self._links = Records(3, 512)
        self._counters = Records(2, 8)
        self._counters.reserve(1)
        self._guards = Records(4, 8)
        self._spans: dict[Span, int] = {(0, 0, 0): 0}
        self._span_array = np.zeros((1, 3), np.uint64)
        # What is to be written into the arrays, three numbers each; all at once is several times faster.
        self._pending_edges: list[int] = []
        self._pending_links: list[int] = []
        self._copies: dict[ByteFragment, list[Copy]] = {}
        self._handed: GraphArrays | None = None
        self._later = Later()
        self._lazy: list[int] = []
        self._terminals: list[tuple[int, int, str]] = []
        self.rule = 0
        self.counter = 0

    @property
    def names(self) -> dict[int, Callable[[], str]]:
        """What the rules that people know are called, by start node; asked for only when a state is described."""
        return self._later.names

    @property
    def node_count(self) -> int:
        """The number of nodes so far."""
        return self._nodes.count

    @property
    def held_bytes(self) -> int:
        """How much memory the records in use take."""
        records = (self._nodes, self._edges, self._links, self._counters, self._guards)
        return sum(each.count * each.array.strides[0] for each in records)

    def arrays(self) -> GraphArrays:
        """The graph as it stands, for the kernels; valid until the next change."""
        self._flush()
        handed = self._handed
        if (
            handed is None
            or handed.nodes is not self._nodes.array
            or handed.edges is not self._edges.array
            or handed.links is not self._links.array
            or handed.counters is not self._counters.array
            or handed.guards is not self._guards.array
            or handed.spans is not self._span_array
        ):
            self._handed = handed = GraphArrays(
                self._nodes.array,
                self._edges.array,
                self._links.array,
                self._counters.array,
                self._guards.array,
                self._span_array,
            )
        return handed

    def _flush(self) -> None:
        if self._pending_edges:
            self._edges.append(self._pending_edges)
            self._pending_edges = []
        if self._pending_links:
            self._links.append(self._pending_links)
            self._pending_links = []
        if self._copies:
            make_copies(self._copies, self._nodes, self._edges, self._links)
            self._copies.clear()

    def reserve(self) -> int:
        """A new node of the current rule and counter, to be defined later."""
        node = self._nodes.reserve(1)
        flat, base = self._nodes.flat, 8 * node
        flat[base + RULE] = self.rule
        flat[base + COUNTER] = self.counter
        return node

    def define(self, node: int, edges: Iterable[Edge] = (), links: Iterable[Link] = (), flags: int = 0) -> int:
        """Give a reserved node its edges and links, once; returns the node."""
        pending_edges, pending_links = self._pending_edges, self._pending_links
        flat, base = self._nodes.flat, 8 * node
        flat[base + EDGE_LO] = self._edges.count + len(pending_edges) // 3
        flat[base + LINK_LO] = self._links.count + len(pending_links) // 3
        for edge in edges:
            pending_edges += edge
        for link in links:
            pending_links += link
        flat[base + EDGE_HI] = self._edges.count + len(pending_edges) // 3
        flat[base + LINK_HI] = self._links.count + len(pending_links) // 3
        flat[base + FLAGS] = flags
        return node

    def node(self, edges: Iterable[Edge] = (), links: Iterable[Link] = (), flags: int = 0) -> int:
        """A new node with these edges and links."""
        return self.define(self.reserve(), edges, links, flags)

    def counter_for(self, least: int, most: int) -> int:
        """A new counter with these bounds; one that no text comes to is none. Raises LimitError."""
        if least >= UNBOUNDED:
            raise LimitError(f"a text of the constraint repeats something at least {least:,} times; ask for fewer")
        return self._counters.append((least, min(most, UNBOUNDED)))

    def new_set(self, needed: int, weights: Callable[[], list[int]]) -> int:
        """A new set of bits 0 ... 30; `needed`: those that must be there at the end.

        `weights()` is asked for when distances are needed: for each bit the bytes it takes to come by it.
        """
        self._later.weights.append(weights)
        return self._counters.append((needed, -len(self._later.weights)))

    def new_large_set(self, needed: int, weights: Callable[[], list[int]]) -> int:
        """A new set of any size; the first `needed` bits must be there at the end, for which there are weights."""
        known = cache(weights)
        counter = self._counters.append((-1 - needed, -1 - len(self._later.weights)))
        for first in range(0, max(needed, 1), BITS):
            self._later.weights.append(lambda first=first: known()[first : first + BITS])
        return counter

    def weights(self, first: int) -> list[list[int]]:
        """The weights of the sets from number `first` on; a large set has several numbers."""
        return [weights() for weights in self._later.weights[first:]]

    def guard(self, target: int, *, needed: int = 0, refused: int = 0, kept: int = -1, added: int = 0) -> Link:
        """A link within a set; see `guards` of kernels/chart/layout.py, and kernels/chart/sets.py for large sets."""
        return (GUARD, target, self._guards.append((needed, refused, kept, added)))

    def promise_span(self, node: int, ranges: Ranges) -> None:
        """Promise that from `node` every text of these characters can be read and continued."""
        self._promise(node, span_of(ranges))

    def _promise(self, node: int, span: Span) -> None:
        number = self._spans.get(span)
        if number is None:
            number = self._spans[span] = len(self._spans)
            self._span_array = np.array(list(self._spans), np.uint64)
        self._nodes.flat[8 * node + SPAN] = number

    def begin_rule(self) -> int:
        """Reserve the start node of a rule and make the rule current; the node's number names the rule."""
        start = self.reserve()
        self.rule, self.counter = start, 0
        self._nodes.flat[8 * start + RULE] = start
        self._nodes.flat[8 * start + COUNTER] = 0
        return start

    @contextmanager
    def new_rule(self) -> Generator[int]:
        """A rule to be built inside the block, beside the current one; gives its start node."""
        outer = self.rule, self.counter
        yield self.begin_rule()
        self.rule, self.counter = outer

    def name_nodes(self, first: int, name: str) -> None:
        """Remember that the nodes made since `first` are those of a named terminal."""
        self._terminals.append((first, self.node_count, name))

    def terminal_at(self, node: int) -> str | None:
        """The innermost named terminal that a node belongs to."""
        around = [(last - first, name) for first, last, name in self._terminals if first <= node < last]
        return min(around)[1] if around else None

    def final(self) -> int:
        """The end of the current rule."""
        return self.node(flags=FINAL | TAIL)

    def lazy(self, expand: Callable[[], None], promise: Callable[[], int]) -> int:
        """The start of a rule whose body `expand` defines when the automaton first reaches it.

        `promise()` is asked for when distances are needed: the fewest bytes of the rule's texts, or more.
        """
        with self.new_rule() as start:
            pass
        return self._await(start, expand, promise, -1)

    def lazy_node(
        self, expand: Callable[[int], None], promise: Callable[[], int], target: int, lacking: int | None = None
    ) -> int:
        """A node of the current rule that `expand(node)` defines when the automaton first reaches it.

        `promise()`: the fewest bytes from the node to `target`, or more; `lacking`: in a set while bits are missing,
        without their weights, if it is not the same.
        """
        node = self.reserve()
        return self._await(node, lambda: expand(node), promise, target, lacking)

    def promised(self, links: Iterable[Link], promise: Callable[[], int]) -> int:
        """A node of the current rule with these links, from which `promise()` bytes lead to the end of the rule.

        For links into a set from without: what its bits weigh is not in the costs of its nodes.
        """
        node = self.node(links=links)
        self._lazy.append(node)
        self._later.promises[node] = (promise, -1, None)
        return node

    def _await(
        self, node: int, expand: Callable[[], None], promise: Callable[[], int], target: int, lacking: int | None = None
    ) -> int:
        self._nodes.flat[8 * node + FLAGS] = LAZY
        self._later.expanders[node] = expand
        self._lazy.append(node)
        self._later.promises[node] = (promise, target, lacking)
        return node

    def hand_over(self) -> Later:
        """What is asked for later, from now on the caller's to keep: it refers to the graph, and so to itself.

        Whoever keeps it need not wait until Python comes to look for such circles: it goes with its keeper.
        """
        later = self._later
        self._later = weakref.proxy(later)
        return later

    def expand(self, nodes: Iterable[int]) -> None:
        """Call the expanders of lazy nodes, each in its node's rule; they must define the nodes, or raise.

        So are those that whoever comes to these comes to before a byte is read: a closure that asked for them one
        after the other would begin as often. Nodes that are defined are passed over. After an exception the graph is
        of no use any more.
        """
        outer = self.rule, self.counter
        expanders = self._later.expanders
        wanted = [node for node in nodes if node in expanders]
        while wanted:
            for node in wanted:
                self.rule = self._nodes.flat[8 * node + RULE]
                self.counter = self._nodes.flat[8 * node + COUNTER]
                expanders[node]()
                del expanders[node]
                self._nodes.flat[8 * node + FLAGS] |= LOOKED
            wanted = self._ahead(wanted)
        self.rule, self.counter = outer

    def _ahead(self, nodes: list[int]) -> list[int]:
        """The lazy nodes that links lead to, whatever is counted, from nodes that were just defined.

        Each node is looked at once, since what it led to was expanded then.
        """
        self._flush()
        flat, links = self._nodes.flat, self._links.flat
        found: list[int] = []
        todo = list(nodes)
        while todo:
            base = 8 * todo.pop()
            for at in range(3 * flat[base + LINK_LO], 3 * flat[base + LINK_HI], 3):
                kind, target = links[at], 8 * links[at + 1]
                if kind in (CALL, INCREMENT) or (kind == EPSILON and links[at + 2] == 0):
                    flags = flat[target + FLAGS]
                    if flags & LOOKED:
                        continue
                    flat[target + FLAGS] = flags | LOOKED
                    (found if flags & LAZY else todo).append(target // 8)
        return found

    def promises(self, first: int, last: int) -> list[tuple[int, int, int, int]]:
        """The nodes among first ... last - 1 that are or were lazy: the bytes they promise, with all bits of their
        set and without, and up to which node."""
        found: list[tuple[int, int, int, int]] = []
        for at in range(bisect_left(self._lazy, first), bisect_left(self._lazy, last)):
            node = self._lazy[at]
            promise, target, lacking = self._later.promises[node]
            if not isinstance(promise, int):
                promise = promise()
                self._later.promises[node] = promise, target, lacking
            found.append((node, promise, promise if lacking is None else lacking, target))
        return found

    def literal(self, data: bytes, target: int) -> int:
        """A chain of nodes that reads `data` and leads to `target`; its first node."""
        count = len(data)
        if count == 0:
            return target
        first = self._nodes.reserve(count)
        pending = self._pending_edges
        edge = self._edges.count + len(pending) // 3
        for after, byte in enumerate(data, first + 1):
            pending += (byte, byte, after)
        pending[-1] = target
        flat, rule, counter = self._nodes.flat, self.rule, self.counter
        for base in range(8 * first, 8 * (first + count), 8):
            flat[base + EDGE_LO] = edge
            edge += 1
            flat[base + EDGE_HI] = edge
            flat[base + RULE] = rule
            flat[base + COUNTER] = counter
        return first

    def instantiate(self, byte_fragment: ByteFragment, target: int) -> int:
        """Copy a fragment, its ways out leading to `target`; its first node.

        The nodes get their edges when the graph is next asked for: copies of one fragment are made together.
        """
        size = len(byte_fragment.ends)
        first = self._nodes.reserve(size)
        self._copies.setdefault(byte_fragment, []).append((first, target, self.rule, self.counter))
        return first

    def fragment(self) -> Fragment:
        """The graph as it stands, with its first rule, as a fragment for others; nothing in it is lazy or a set."""
        assert not self._lazy and not self._later.weights, "what is worked out when it is reached belongs to one graph"
        self._flush()
        nodes = self._nodes.used()
        spans = list(self._spans)
        promising: list[int] = nodes[:, SPAN].nonzero()[0].tolist()
        promises = tuple((node, spans[int(nodes[node, SPAN])]) for node in promising)
        nodes[:, SPAN] = 0
        return fragment_of(nodes, self._edges.used(), self._links.used(), self._counters.used(), promises)

    def insert(self, fragment: Fragment) -> int:
        """Copy a fragment; the start node of its rule."""
        self._flush()
        size = len(fragment.nodes)
        first = self._nodes.reserve(size)
        edge, link = self._edges.extend(fragment.edges), self._links.extend(fragment.links)
        self._edges.array[edge : self._edges.count, 2] += first
        self._links.array[link : self._links.count] += fragment.to_nodes * np.int32(first)
        block = self._nodes.array[first : first + size]
        block[:] = fragment.nodes + np.array((edge, edge, link, link, 0, first, 0, 0), np.int32)
        if len(fragment.counters):
            counters = self._counters.extend(fragment.counters) - 1
            self._links.array[link : self._links.count] += fragment.to_counters * np.int32(counters)
            block[block[:, COUNTER] > 0, COUNTER] += counters
        for node, span in fragment.spans:
            self._promise(first + node, span)
        return first
