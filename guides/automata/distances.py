"""Distances to where texts may end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...kernels.answers import NEVER
from ..limits import spend
from ..syntax import Table


def steps_to(rows: Sequence[Sequence[int]], ends: Sequence[bool], from_dead: bool = False) -> list[int]:
    """For each state the fewest symbols to one of `ends`, NEVER if there are none: a search backwards, breadth first.

    rows: for each state the state after each symbol, DEAD where there is none; from_dead: whether DEAD is an end, too
    """
    before: list[list[int]] = [[] for _ in ends]
    steps = [0 if end else NEVER for end in ends]
    queue = [state for state, end in enumerate(ends) if end]
    spend(200 * len(rows) + 5 * sum(map(len, rows)))
    for state, row in enumerate(rows):
        for after in set(row):
            if after >= 0:
                before[after].append(state)
            elif from_dead and steps[state]:
                steps[state] = 1
    queue += [state for state, count in enumerate(steps) if count == 1]
    for state in queue:
        for other in before[state]:
            if steps[other] == NEVER:
                steps[other] = steps[state] + 1
                queue.append(other)
    return steps


def shortest_in_table(table: Table) -> int:
    """The bytes of a table's shortest text, NEVER if it has none."""
    level = np.array([table.start])
    seen = np.zeros(len(table.accepting), np.bool_)
    length = 0
    while len(level):
        if table.accepting[level].any():
            return length
        seen[level] = True
        after = np.unique(table.transitions[level])
        level = after[(after >= 0) & ~seen[after]]
        length += 1
    return NEVER
