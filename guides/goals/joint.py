"""A guide and goals together: their joint states as numbers, and the steps between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels.answers import NEVER
from ...kernels.jit.aliases import Ints
from ..given import state_of
from ..lift.tables import VocabularyTables
from ..limits import spend
from ..protocol import DEAD, ByteGuide
from .children import child_of
from .tokens import GoalTokens

START = 0
STATE_BYTES = 250
"""About how much memory a state takes, without its places in the goals."""


class JointSteps(NamedTuple):
    """Transitions of bytes or tokens: label i to states[which[i]], nowhere if which[i] is DEAD."""

    states: list[int]
    which: NDArray[np.intp]


class Joint:
    """States (of the guide, of goal 1, of goal 2, ...), numbered as they are met; START is the first."""

    def __init__(self, guide: ByteGuide, goals: Sequence[GoalTokens], tables: VocabularyTables) -> None:
        self.guide = guide
        self.goals = goals
        self.child = child_of(guide, tables)
        self.members: list[tuple[int, ...]] = []
        self._numbers: dict[tuple[int, ...], int] = {}
        self._deepest = max(tables.trie.deepest, 1)
        self.number((guide.start, *(0 for _ in goals)))

    def number(self, members: tuple[int, ...]) -> int:
        """The number of a joint state."""
        number = self._numbers.get(members)
        if number is None:
            number = len(self.members)
            self.members.append(members)
            self._numbers[members] = number
        return number

    def check(self, state: int) -> int:
        """The state, which may be DEAD, as an int. Raises StateError for anything else."""
        return state_of(state, len(self.members))

    @property
    def held_bytes(self) -> int:
        """About how much memory the states take."""
        return (STATE_BYTES + 8 * len(self.goals)) * len(self.members)

    def read(self, state: int, child: int, data: bytes) -> int:
        """The joint state after `data`, with the guide in the state `child`."""
        _, *places = self.members[state]
        after = (goal.automaton.read(place, data) for goal, place in zip(self.goals, places, strict=True))
        return self.number((child, *after))

    def is_met(self, state: int) -> bool:
        """Tell whether all goals are met if the text ends here."""
        _, *places = self.members[state]
        return all(goal.automaton.met[place] for goal, place in zip(self.goals, places, strict=True))

    def is_settled(self, state: int) -> bool:
        """Tell whether all goals are met whatever follows."""
        _, *places = self.members[state]
        return all(goal.automaton.settled[place] for goal, place in zip(self.goals, places, strict=True))

    def by_bytes(self, state: int, spelled: NDArray[np.bool_]) -> JointSteps:
        """The steps of all bytes; those that are not `spelled` lead nowhere."""
        child, *places = self.members[state]
        after = np.where(spelled, self.child.by_bytes(child), DEAD)
        return self._steps([after, *(g.automaton.after[p] for g, p in zip(self.goals, places, strict=True))])

    def by_tokens(self, state: int, node: int = 0) -> JointSteps:
        """The steps of what the tokens below a node of the trie have beyond it, in the order of the trie."""
        child, *places = self.members[state]
        rows = (goal.after_below(place, node) for goal, place in zip(self.goals, places, strict=True))
        return self._steps([self.child.by_tokens(child, node), *rows])

    def least_left(self, states: Sequence[int], *, in_bytes: bool) -> list[int]:
        """For each state, no more than the bytes, or else tokens, that are still needed; those of goals are exact."""
        child, *goals = self._left(states, in_bytes)
        return np.max([child, *goals], axis=0).tolist()

    def sum_left(self, states: Sequence[int], *, in_bytes: bool) -> list[int]:
        """For each state, what is still needed if no part of it served two ends."""
        return np.minimum(np.sum(self._left(states, in_bytes), axis=0, dtype=np.int64), NEVER).tolist()

    def _left(self, states: Sequence[int], in_bytes: bool) -> list[Ints]:
        columns = np.array([self.members[state] for state in states], np.int32).T
        child = self.child.bytes_needed(np.ascontiguousarray(columns[0]))
        needed = [goal.bytes_to_meet if in_bytes else goal.needed for goal in self.goals]
        if not in_bytes:
            child = -(-child // self._deepest)
        return [child, *(n[at] for n, at in zip(needed, columns[1:], strict=True))]

    def _steps(self, columns: list[Ints]) -> JointSteps:
        """Labels with equal members in all columns lead to one state; the first column has DEAD for nowhere."""
        spend(4 * len(columns) * len(columns[0]))
        places = np.flatnonzero(columns[0] != DEAD)
        values, key = _compressed(columns[0][places])
        lists = [values]
        for column in columns[1:]:
            values, digit = _compressed(column[places])
            pairs, key = _compressed(key.astype(np.int64) * len(values) + digit)
            firsts, seconds = np.divmod(pairs, max(len(values), 1))
            lists = [*(members[firsts] for members in lists), values[seconds]]
        which = np.full(len(columns[0]), DEAD, np.intp)
        which[places] = key
        return JointSteps(
            [self.number(members) for members in zip(*(row.tolist() for row in lists), strict=True)], which
        )


def _compressed(column: NDArray[np.integer]) -> tuple[NDArray[np.integer], NDArray[np.intp]]:
    """The values of a column without negative numbers, ascending, and the place of each entry's value."""
    if len(column) == 0 or int(column.max()) > 4 * len(column) + 1024:
        values, places = np.unique(column, return_inverse=True)
        return values, places.reshape(-1)
    seen = np.zeros(int(column.max()) + 1, np.bool_)
    seen[column] = True
    values = np.flatnonzero(seen)
    place = np.empty(len(seen), np.intp)
    place[values] = np.arange(len(values))
    return values, place[column]
