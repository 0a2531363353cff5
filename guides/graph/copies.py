"""Fragments of bytes copied into the arrays of a graph, all copies of one at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...kernels.chart.layout import COUNTER, EDGE_HI, EDGE_LO, LINK_HI, LINK_LO, RULE
from ..limits import spend
from .fragment import Ints
from .records import Records
from .utf8 import ByteFragment

Copy = tuple[int, int, int, int]
"""The first node of a copy, which is reserved, where its ways out lead, its rule and its counter."""

# Edges that are copied in some milliseconds, between which a call can be cancelled
_LARGE = 1 << 18


def make_copies(asked: Mapping[ByteFragment, Sequence[Copy]], nodes: Records, edges: Records, links: Records) -> None:
    """Write the copies of each fragment. Raises Cancelled between parts of large ones; nothing leads to these then."""
    for byte_fragment, copies in asked.items():
        if len(copies) * len(byte_fragment.edges) < _LARGE:
            _copy(byte_fragment, copies, nodes, edges, links)
        else:
            for copy in copies:
                _copy_in_parts(byte_fragment, copy, nodes, edges, links)


def _copy(byte_fragment: ByteFragment, copies: Sequence[Copy], nodes: Records, edges: Records, links: Records) -> None:
    """Make the copies of a fragment, all at once."""
    count, amount = len(byte_fragment.edges), len(copies)
    base = edges.reserve(amount * count)
    written = edges.array[base : edges.count].reshape(amount, count, 3)
    if amount == 1:  # as is most frequent; plain numbers and a slice are quicker
        first, target, rule, counter = copies[0]
        rows = slice(first, first + len(byte_fragment.ends))
    else:
        first, target, rule, counter = np.array(copies, np.int32).T[:, :, None]
        rows = first + np.arange(len(byte_fragment.ends), dtype=np.int32)
        base = base + count * np.arange(amount)[:, None]
    written[:] = byte_fragment.edges
    written[:, :, 2] += first
    written[:, byte_fragment.ways_out, 2] = target
    array = nodes.array
    array[rows, EDGE_LO] = byte_fragment.starts + base
    array[rows, EDGE_HI] = byte_fragment.ends + base
    array[rows, RULE] = rule
    array[rows, COUNTER] = counter
    if len(byte_fragment.exits):
        _link_exits(byte_fragment.exits + first, target, amount, nodes, links)


def _copy_in_parts(byte_fragment: ByteFragment, copy: Copy, nodes: Records, edges: Records, links: Records) -> None:
    """Make one copy of a large fragment."""
    first, target, rule, counter = copy
    base = edges.reserve(len(byte_fragment.edges))
    written = edges.array[base : edges.count]
    for at in range(0, len(written), _LARGE):
        spend(0)
        part = byte_fragment.edges[at : at + _LARGE]
        rows = written[at : at + len(part)]
        rows[:] = part
        rows[:, 2] += first
    written[byte_fragment.ways_out, 2] = target
    for at in range(0, len(byte_fragment.ends), _LARGE):
        spend(0)
        part = byte_fragment.ends[at : at + _LARGE]
        rows = nodes.array[first + at : first + at + len(part)]
        rows[:, EDGE_LO] = byte_fragment.starts[at : at + len(part)] + base
        rows[:, EDGE_HI] = part + base
        rows[:, RULE] = rule
        rows[:, COUNTER] = counter
    if len(byte_fragment.exits):
        _link_exits(byte_fragment.exits + first, target, 1, nodes, links)


def _link_exits(exits: Ints, target: int | Ints, copies: int, nodes: Records, links: Records) -> None:
    """Give nodes, [exits] or [copies, exits], a way to what is behind their copy: one target, or [copies, 1]."""
    base = links.reserve(exits.size)
    links.array[base : links.count].reshape(copies, -1, 3)[:, :, 1] = target
    numbers = np.arange(base, links.count).reshape(exits.shape)
    nodes.array[exits, LINK_LO] = numbers
    nodes.array[exits, LINK_HI] = numbers + 1
