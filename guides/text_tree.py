"""Many fixed texts as one piece of graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..kernels.calling import call
from ..kernels.texts import NOWHERE, WAY_OUT, grow_tree
from .utf8 import Template

Ints = NDArray[np.int32]


class Beside(NamedTuple):
    """An automaton as kernels/texts.py wants it: its runs, where those of each state begin, the most of a state."""

    runs: Ints
    offsets: NDArray[np.int64]
    most: int


NOTHING = Beside(np.zeros((0, 3), np.int32), np.zeros(1, np.int64), 0)


def beside(runs: Sequence[Sequence[tuple[int, int, int]]]) -> Beside:
    """An automaton given by the runs of each state: first byte, last byte, target or WAY_OUT."""
    listed = np.array([run for found in runs for run in found], np.int32).reshape(-1, 3)
    return Beside(listed, np.cumsum([0, *map(len, runs)]), max(map(len, runs)))


def text_tree(texts: Sequence[bytes]) -> Template:
    """The tree of the texts: a node for each prefix, the way out behind each text.

    The texts are sorted and different, and none is empty or the beginning of another.
    """
    return _grown(texts, WAY_OUT, NOTHING, NOWHERE)


def all_but_texts(texts: Sequence[bytes], automaton: Beside) -> Template:
    """What an automaton reads from its state 0 to its way out, but the texts, which are as for `text_tree`."""
    return _grown(texts, NOWHERE, automaton, 0)


def _grown(texts: Sequence[bytes], behind: int, automaton: Beside, start: int) -> Template:
    data = b"".join(texts)
    bounds = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=bounds[1:])
    most = len(data) + len(automaton.offsets)
    edges = np.empty((most * (automaton.most + 2), 3), np.int32)
    ends = np.empty(most, np.int32)
    places = np.empty((len(data) + 1, 4), np.int32)
    values = np.frombuffer(data, np.uint8)
    count = call(grow_tree, values, bounds, behind, automaton.runs, automaton.offsets, start, places, edges, ends)
    ends = ends[:count].copy()
    return Template(ends, edges[: ends[-1]].copy())
