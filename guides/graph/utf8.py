"""Character sets as automata over UTF-8 bytes; derived from the table in `kernels/utf8.py`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels.answers import NOWHERE
from ...kernels.utf8 import FIRST_NEXT, FORMS, LAST_LEAD, LAST_NEXT, LEAD, MORE
from ..cached import cached
from ..syntax import Ranges

NO_EXITS: NDArray[np.int32] = np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class ByteFragment:
    """A fragment of a graph to be copied: ends int32 [nodes], where each node's edges end; edges int32 [n, 3].

    An edge's target is a node of the fragment, or -1 for the exit. Node 0 is the entry. From the nodes in
    exits (int32) the exit can be taken without reading a byte.
    """

    ends: NDArray[np.int32]
    edges: NDArray[np.int32]
    exits: NDArray[np.int32] = field(default_factory=lambda: NO_EXITS)


class LeadBytes(NamedTuple):
    """Lead bytes of characters with `follow` continuation bytes; byte minus offset has the code point's high bits."""

    first: int
    last: int
    offset: int
    follow: int


FIRST_OF_LENGTH = (0, 0x80, 0x800, 0x10000)
LAST_OF_LENGTH = (0x7F, 0x7FF, 0xFFFF, 0x10FFFF)
"""The first and the last code point of one, two, three and four bytes."""
CONTINUATION = range(FIRST_NEXT, LAST_NEXT + 1)
"""Continuation bytes; the bytes below them are ASCII."""


def _leads() -> tuple[LeadBytes, ...]:
    leads: list[LeadBytes] = []
    for follow in (1, 2, 3):
        forms = FORMS[FORMS[:, MORE] == follow - 1]
        first, last = int(forms[:, LEAD].min()), int(forms[:, LAST_LEAD].max())
        leads.append(LeadBytes(first, last, 0xFF ^ (0xFF >> (follow + 1)), follow))
    return tuple(leads)


LEADS = _leads()
"""Lead bytes of characters beyond ASCII, by length."""
TEXT_BYTES = frozenset(range(FIRST_NEXT)).union(CONTINUATION, *(range(lead.first, lead.last + 1) for lead in LEADS))
"""All bytes of valid UTF-8."""
EQUAL_ITEM = 0xFF
"""A byte outside UTF-8: an edge after an array item, which leads on where an earlier item may be equal."""
assert EQUAL_ITEM not in TEXT_BYTES


def first_bytes(data: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Test for each byte whether it is the first of a character."""
    return (data < CONTINUATION.start) | (data >= CONTINUATION.stop)


def fragment_of_rows(rows: NDArray[np.int32], exits: NDArray[np.signedinteger] = NO_EXITS) -> ByteFragment:
    """Build a fragment from rows of targets by byte, int32 [nodes, 256], -1 for the exit; equal runs become edges."""
    change = np.ones(rows.shape, np.bool_)
    change[:, 1:] = rows[:, 1:] != rows[:, :-1]
    node, low = np.nonzero(change)
    high = np.append(low[1:], 0) - 1
    high[high < 0] = 255
    target = rows[node, low]
    alive = target != NOWHERE
    edges = np.stack([low[alive], high[alive], target[alive]], axis=1).astype(np.int32)
    ends = np.cumsum(np.bincount(node[alive], minlength=len(rows)))
    return ByteFragment(ends.astype(np.int32), edges, exits.astype(np.int32))


ByteRanges = tuple[tuple[int, int], ...]
Tree = dict[tuple[int, int], "Tree"]


def byte_sequences(ranges: Ranges) -> list[ByteRanges]:
    """Split ranges into sequences of byte ranges, one range per byte of a character."""
    found: list[ByteRanges] = []
    for low, high in ranges:
        stack = [(0xE000, high), (low, 0xD7FF)] if low < 0xD800 and high > 0xDFFF else [(low, high)]
        while stack:
            low, high = stack.pop()
            split = _split(low, high)
            if split is None:
                first, last = chr(low).encode(), chr(high).encode()
                found.append(tuple(zip(first, last, strict=True)))
            else:
                stack += [(split + 1, high), (low, split)]
    return found


def _split(low: int, high: int) -> int | None:
    """Return where to cut a range so that its parts have a fixed length and full continuation bytes; None if it has."""
    for last in LAST_OF_LENGTH:
        if low <= last < high:
            return last
    if high < 0x80:
        return None
    for shift in (6, 12, 18):
        full = (1 << shift) - 1
        if low >> shift != high >> shift:
            if low & full:
                return low | full
            if high & full != full:
                return (high & ~full) - 1
    return None


@cached(512, 16 << 20)
def byte_fragment(ranges: Ranges) -> ByteFragment:
    """Build the minimal deterministic automaton of one character of `ranges`."""
    tree: Tree = {}
    for sequence in byte_sequences(ranges):
        level = tree
        for step in sequence:
            level = level.setdefault(step, {})
    shared: dict[tuple[tuple[int, int, int], ...], int] = {}
    nodes: list[tuple[tuple[int, int, int], ...]] = []
    root = _share(tree, shared, nodes)
    order = [root, *(n for n in range(len(nodes)) if n != root)]
    number = {old: new for new, old in enumerate(order)} | {-1: -1}
    edges = [(low, high, number[target]) for old in order for low, high, target in nodes[old]]
    ends = np.cumsum([len(nodes[old]) for old in order])
    return ByteFragment(ends.astype(np.int32), np.array(edges, np.int32).reshape(-1, 3))


def _share(
    tree: Tree,
    shared: dict[tuple[tuple[int, int, int], ...], int],
    nodes: list[tuple[tuple[int, int, int], ...]],
) -> int:
    """Number a subtree so that equal subtrees share a number (UTF-8 has at most four levels)."""
    edges: list[tuple[int, int, int]] = []
    for (low, high), below in sorted(tree.items(), key=lambda item: item[0]):
        target = _share(below, shared, nodes) if below else -1
        if edges and edges[-1][2] == target and edges[-1][1] + 1 == low:
            edges[-1] = (edges[-1][0], high, target)
        else:
            edges.append((low, high, target))
    key = tuple(edges)
    if key not in shared:
        shared[key] = len(nodes)
        nodes.append(key)
    return shared[key]
