"""The arrays of a graph, and bulk insertion of fragments and member names.

A fragment is a rule that is lowered once per process, and copied into every graph that uses it. A span is a set
of characters, as bits, that a graph promises to accept.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from ...kernels.chart.copying import FragmentArrays, copy_bytes, copy_piece, lay_names, lay_trie, measure_trie
from ...kernels.chart.layout import COUNTER, GUARD, LINK_HI, RULE, SPAN
from ...kernels.chart.layout import GraphArrays as GraphArrays
from ...kernels.chart.rows import FIRST_LEAD
from ...kernels.jit.aliases import Ints
from ...kernels.jit.compiling import call
from ..cached import cached
from ..limits import spend, spend_growth
from ..syntax import Ranges
from .utf8 import NO_EXITS, ByteFragment

Span = tuple[int, int, int]


@cached(256, 8 << 20)
def span_of(ranges: Ranges) -> Span:
    """Convert a set of characters to a row of Graph.spans; lead bytes need all their characters in the set."""
    bits = 0
    for low, high in ranges:
        if low < 0x80:
            bits |= (1 << (min(high, 0x7F) + 1)) - (1 << low)
    leads = 0
    for lead, (first, last) in _BEGINNING_WITH.items():
        if any(low <= first and last <= high for low, high in ranges):
            leads |= 1 << (lead - FIRST_LEAD)
    return bits & (2**64 - 1), bits >> 64, leads


def _beginning_with(lead: int) -> tuple[int, int]:
    """Return the first and the last character whose UTF-8 begins with a byte, without surrogates."""
    if lead < 0xE0:
        return (lead & 0x1F) << 6, (lead & 0x1F) << 6 | 0x3F
    if lead < 0xF0:
        first = (lead & 0x0F) << 12
        return max(first, 0x800), 0xD7FF if lead == 0xED else first | 0xFFF
    first = (lead & 0x07) << 18
    return max(first, 0x10000), min(first | 0x3FFFF, 0x10FFFF)


_BEGINNING_WITH = {lead: _beginning_with(lead) for lead in range(0xC2, 0xF5)}


class Fragment(NamedTuple):
    """A rule with the rules it calls, numbered from 0; it starts at node 0.

    piece: its nodes, edges and links, which may have holes; counters: as in kernels/chart/layout.py, without counter 0
    spans: nodes with a promised span
    """

    piece: FragmentArrays
    counters: Ints
    spans: tuple[tuple[int, Span], ...]

    @property
    def held_bytes(self) -> int:
        """Bytes of the nodes, edges and links."""
        return self.piece.nodes.nbytes + self.piece.edges.nbytes + self.piece.links.nbytes


# Steps counted per record of a small addition, and the size below which an addition is small
GROWTH, FEW = 40, 64


class RecordArray:
    """A growing int32 array [n, width]; `array` has spare capacity, `count` rows are in use."""

    def __init__(self, width: int, capacity: int) -> None:
        self.width = width
        self._take(np.zeros((capacity, width), np.int32))
        self.count = 0

    def _take(self, rows: Ints) -> None:
        self.array: Ints = rows
        self._room = len(rows)
        # For single numbers a memoryview is several times faster than NumPy.
        self.flat = memoryview(rows.reshape(-1))  # type: ignore[arg-type]

    def used(self) -> Ints:
        """Return a copy of the rows in use."""
        return self.array[: self.count].copy()

    def extend(self, rows: Ints) -> int:
        """Append rows and return the number of the first."""
        first = self.reserve(len(rows))
        self.array[first : self.count] = rows
        return first

    def append(self, values: Sequence[int]) -> int:
        """Append rows given as a flat sequence, and return the number of the first."""
        first = self.reserve(len(values) // self.width)
        self.flat[first * self.width : self.count * self.width] = array("i", values)
        return first

    def reserve(self, amount: int) -> int:
        """Append rows of zeros and return the number of the first."""
        first = self.count
        self.count = count = first + amount
        if count > self._room:
            room = max(count, 2 * self._room)
            spend_growth(GROWTH * self.count if amount < FEW else amount, 4 * self.width * room)
            larger = np.zeros((room, self.width), np.int32)
            larger[:first] = self.array[:first]
            self._take(larger)
        return first


Copy = tuple[ByteFragment, int, int, int, int]
"""A fragment, the first reserved node of its copy, the target of its exits, the rule and the counter."""

# Nodes that are copied in some milliseconds; a call can be cancelled in between
_LARGE = 1 << 16


def make_copies(copies: Iterable[Copy], nodes: RecordArray, edges: RecordArray, links: RecordArray) -> None:
    """Write the copies. Raises Cancelled between parts of large ones; no edge leads to these yet."""
    for fragment, *placement in copies:
        ends, exits, size = fragment.ends, fragment.exits, len(fragment.ends)
        edge, link = edges.reserve(len(fragment.edges)), links.reserve(len(exits))
        arrays = nodes.array, edges.array, links.array, ends, fragment.edges
        if size <= _LARGE:  # almost always
            call(copy_bytes, *arrays, exits, 0, size, *placement, edge, link)
            continue
        for begin in range(0, size, _LARGE):
            spend(0)
            end = min(begin + _LARGE, size)
            call(copy_bytes, *arrays, exits if end == size else NO_EXITS, begin, end, *placement, edge, link)


Link = tuple[int, int, int]


class NameTrie(NamedTuple):
    """Two or more member names of one length, sorted, JSON-encoded, with a rule that is called after each.

    bit: the bit of the first name in a large set of present names; the others follow
    """

    names: Sequence[bytes]
    rule: int
    bit: int


_NO_HOLES = np.zeros(0, np.int32)


class ArrayGraph:
    """The growing arrays of kernels/chart/layout.py. rule, counter: given to new nodes"""

    def __init__(self) -> None:
        self._nodes = RecordArray(8, 512)
        self._edges = RecordArray(3, 1024)
        self._links = RecordArray(3, 512)
        self._counters = RecordArray(2, 8)
        self._counters.reserve(1)
        self._guards = RecordArray(4, 8)
        self._spans: dict[Span, int] = {(0, 0, 0): 0}
        self._span_array = np.zeros((1, 3), np.uint64)
        # Pending records, three numbers each; one bulk write is several times faster.
        self._pending_edges: list[int] = []
        self._pending_links: list[int] = []
        self._copies: list[Copy] = []
        self._handed: GraphArrays | None = None
        self.rule = 0
        self.counter = 0

    @property
    def node_count(self) -> int:
        """The number of nodes."""
        return self._nodes.count

    @property
    def held_bytes(self) -> int:
        """Bytes of the records in use."""
        numbers = 8 * self._nodes.count + 3 * (self._edges.count + self._links.count)
        return 4 * (numbers + 2 * self._counters.count + 4 * self._guards.count)

    def arrays(self) -> GraphArrays:
        """Return the graph's arrays for kernels; valid until the next change."""
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
            self._copies = []

    def reserve(self) -> int:
        """Reserve a node of the current rule and counter, to be defined later."""
        node = self._nodes.reserve(1)
        flat, base = self._nodes.flat, 8 * node
        flat[base + RULE] = self.rule
        flat[base + COUNTER] = self.counter
        return node

    def instantiate(self, byte_fragment: ByteFragment, target: int) -> int:
        """Copy a fragment whose exits lead to `target`; return its first node.

        The nodes get their edges at the next `arrays()`, after the edges that are pending now.
        """
        first = self._nodes.reserve(len(byte_fragment.ends))
        self._copies.append((byte_fragment, first, target, self.rule, self.counter))
        return first

    def insert(self, fragment: Fragment, holes: Sequence[int] = ()) -> int:
        """Copy a fragment and return its offset in the graph, which is its start node.

        holes: the nodes that replace its holes
        """
        self._flush()
        piece = fragment.piece
        shift = self._nodes.reserve(len(piece.nodes))
        edge, link = self._edges.reserve(len(piece.edges)), self._links.reserve(len(piece.links))
        counters = self._counters.extend(fragment.counters) - 1 if len(fragment.counters) else 0
        numbers = np.array(holes, np.int32) if holes else _NO_HOLES
        arrays = self._nodes.array, self._edges.array, self._links.array
        call(copy_piece, *arrays, piece, numbers, shift, edge, link, counters)
        for node, span in fragment.spans:
            self._promise(node + shift, span)
        return shift

    def define_names(
        self,
        node: int,
        names: Sequence[bytes],
        rules: Sequence[int],
        guards: Sequence[int],
        after: int,
        others: Sequence[Link],
        tries: Sequence[NameTrie] = (),
    ) -> None:
        """Give a node edges to member names, which begin with a quote, each behind its guard, and links to other nodes.

        rules: the rule called after each name, which returns to `after`; guards: as for `guard`, four numbers each
        tries: further names
        """
        self._flush()
        rests = [name[1:] for name in names]
        data, count = b"".join(rests), len(names)
        first, edge = self._nodes.reserve(1 + len(data) + 2 * count), self._edges.reserve(1 + len(data))
        link, guard = self._links.reserve(3 * count + len(tries)), self._guards.append(guards)
        ends = np.array(list(accumulate(map(len, rests))), np.int32)
        texts = 0x22, np.frombuffer(data, np.uint8), ends, np.array(rules, np.int32)
        arrays = self._nodes.array, self._edges.array, self._links.array
        call(lay_names, *arrays, *texts, node, after, first, edge, link, guard, len(tries))
        for other in others:
            self._pending_links += other
        self._nodes.flat[8 * node + LINK_HI] += len(others)
        # Pending links are appended behind the existing ones, so they are written before those of tries.
        self._flush()
        for number, trie in enumerate(tries):
            root = self._trie(node, trie, after)
            some = self._guards.append((0, trie.bit + 1, -len(trie.names), 0))
            self._links.array[link + 3 * count + number] = GUARD, root, some

    def _trie(self, node: int, trie: NameTrie, after: int) -> int:
        """Lay the trie of names, without their first byte, in the rule of a node; return its root."""
        count = len(trie.names)
        texts = np.frombuffer(b"".join(name[1:] for name in trie.names), np.uint8).reshape(count, -1)
        sizes = np.zeros(2, np.int32)
        call(measure_trie, texts, sizes)
        size, ways = sizes.tolist()
        first, edge = self._nodes.reserve(1 + size + ways + 2 * count), self._edges.reserve(size)
        link, guard = self._links.reserve(ways + 3 * count), self._guards.reserve(ways + count)
        arrays = self._nodes.array, self._edges.array, self._links.array, self._guards.array
        call(lay_trie, *arrays, texts, trie.rule, node, after, trie.bit, first, edge, link, guard)
        return first

    def promise_span(self, node: int, ranges: Ranges) -> None:
        """Promise that from `node` every text of these characters can be read and continued."""
        self._promise(node, span_of(ranges))

    def _promise(self, node: int, span: Span) -> None:
        number = self._spans.get(span)
        if number is None:
            number = self._spans[span] = len(self._spans)
            self._span_array = np.array(list(self._spans), np.uint64)
        self._nodes.flat[8 * node + SPAN] = number
