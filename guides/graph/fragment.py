"""Fragments of a graph: rules that are lowered once in a process, and copied into every graph that wants them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels.chart.layout import CALL

Ints = NDArray[np.int32]
Span = tuple[int, int, int]


class Fragment(NamedTuple):
    """A rule with the rules it calls, numbered from 0; it starts at node 0.

    nodes, edges, links, counters: as in kernels/chart/layout.py, without counter 0
    to_nodes, to_counters: int32 [links, 3], 1 where a link has the number of a node, of a counter
    spans: the nodes that promise something, and what
    """

    nodes: Ints
    edges: Ints
    links: Ints
    counters: Ints
    to_nodes: Ints
    to_counters: Ints
    spans: tuple[tuple[int, Span], ...]


def fragment_of(nodes: Ints, edges: Ints, links: Ints, counters: Ints, spans: tuple[tuple[int, Span], ...]) -> Fragment:
    """The arrays of a graph with nothing lazy and no sets, as a fragment."""
    calls = links[:, 0] == CALL
    to_nodes, to_counters = np.zeros_like(links), np.zeros_like(links)
    to_nodes[:, 1] = 1
    to_nodes[calls, 2] = 1
    to_counters[:, 2] = ~calls & (links[:, 2] > 0)
    return Fragment(nodes, edges, links, counters[1:], to_nodes, to_counters, spans)
