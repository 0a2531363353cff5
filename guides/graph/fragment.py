"""Fragments of a graph: rules that are lowered once in a process, and copied into every graph that wants them."""

from __future__ import annotations

from typing import NamedTuple

from ...kernels.chart.copying import FragmentArrays
from ...kernels.jit.aliases import Ints
from .spans import Span


class Fragment(NamedTuple):
    """A rule with the rules it calls, numbered from 0; it starts at node 0.

    piece: its nodes, edges and links, which may have holes; counters: as in kernels/chart/layout.py, without counter 0
    spans: the nodes that promise something, and what
    """

    piece: FragmentArrays
    counters: Ints
    spans: tuple[tuple[int, Span], ...]

    @property
    def held_bytes(self) -> int:
        """The memory that the nodes, edges and links take."""
        return self.piece.nodes.nbytes + self.piece.edges.nbytes + self.piece.links.nbytes
