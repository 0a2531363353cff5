"""Two automata of numbers side by side: the texts of both, or of either."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .....kernels.jit.calling import call
from .....kernels.numbers import find_alive
from ....limits import spend
from ....syntax import Table

BYTES = np.frombuffer(b"+-.0123456789Ee", np.uint8)
"""The bytes that numbers are made of."""


def intersection(a: Table, b: Table) -> Table | None:
    """The texts of both tables; None if there are none."""
    pairs, edges = _pairs(a, b, either=False)
    return trimmed(edges.astype(np.int32), a.accepting[pairs[:, 0]] & b.accepting[pairs[:, 1]])


def trimmed(edges: NDArray[np.int32], accepting: NDArray[np.bool_]) -> Table | None:
    """The table of the states that reach an accepting one; None if the first does not.

    edges: int32 [states, BYTES], below 0 where there is none
    """
    spend(10 * edges.size)
    reaching = accepting.astype(np.uint8)
    call(find_alive, edges, reaching)
    if not reaching[0]:
        return None
    alive = reaching > 0
    number = np.append(np.where(alive, np.cumsum(alive) - 1, -1), -1)
    return _table(number[edges[alive]], accepting[alive])


def union(a: Table, b: Table) -> Table:
    """The texts of either table."""
    pairs, edges = _pairs(a, b, either=True)
    return _table(edges, np.append(a.accepting, False)[pairs[:, 0]] | np.append(b.accepting, False)[pairs[:, 1]])


def _table(edges: NDArray[np.int64], accepting: NDArray[np.bool_]) -> Table:
    transitions = np.full((len(edges), 256), -1, np.int32)
    transitions[:, BYTES] = edges
    return Table(transitions, accepting)


def _pairs(a: Table, b: Table, *, either: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The pairs of states that are reached together, int64 [pairs, 2], and where the bytes lead, int64 [pairs, BYTES].

    either: a pair goes on where only one of both does; the other is then at the number of its states, or -1
    """
    rows = [np.vstack([one.transitions[:, BYTES], np.full(len(BYTES), -1)]).astype(np.int64) for one in (a, b)]
    width = len(b.transitions) + 1
    known = np.full((len(a.transitions) + 1) * width, -1, np.int64)
    level = np.array([a.start * width + b.start])
    known[level] = 0
    found = [level]
    afters: list[NDArray[np.int64]] = []
    count = 1
    while len(level):
        spend(20 * level.size * len(BYTES))
        first, second = rows[0][level // width], rows[1][level % width]
        dead = (first < 0) & (second < 0) if either else (first < 0) | (second < 0)
        after = np.where(first < 0, len(a.transitions), first) * width + np.where(second < 0, width - 1, second)
        after[dead] = -1
        afters.append(after)
        level = np.unique(after[(after >= 0) & (known[after] < 0)])
        known[level] = count + np.arange(len(level))
        count += len(level)
        found.append(level)
    edges = np.concatenate(afters)
    pairs = np.concatenate(found)
    return np.stack([pairs // width, pairs % width], axis=1), np.where(edges >= 0, known[edges], -1)
