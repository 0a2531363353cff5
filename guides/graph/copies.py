"""Fragments of bytes copied into the arrays of a graph."""

from __future__ import annotations

from collections.abc import Iterable

from ...kernels.chart.copying import copy_bytes
from ...kernels.jit.calling import call
from ..limits import spend
from .records import Records
from .utf8 import NO_EXITS, ByteFragment

Copy = tuple[ByteFragment, int, int, int, int]
"""A fragment, the first node of its copy, which is reserved, where the ways out lead, the rule and the counter."""

# Nodes that are copied in some milliseconds, between which a call can be cancelled
_LARGE = 1 << 16


def make_copies(asked: Iterable[Copy], nodes: Records, edges: Records, links: Records) -> None:
    """Write the copies. Raises Cancelled between parts of large ones; nothing leads to these then."""
    for fragment, *given in asked:
        ends, exits, size = fragment.ends, fragment.exits, len(fragment.ends)
        edge, link = edges.reserve(len(fragment.edges)), links.reserve(len(exits))
        arrays = nodes.array, edges.array, links.array, ends, fragment.edges
        if size <= _LARGE:  # as nearly all are
            call(copy_bytes, *arrays, exits, 0, size, *given, edge, link)
            continue
        for begin in range(0, size, _LARGE):
            spend(0)
            end = min(begin + _LARGE, size)
            call(copy_bytes, *arrays, exits if end == size else NO_EXITS, begin, end, *given, edge, link)
