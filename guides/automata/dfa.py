"""Finite automata as tables: conversion of charts and minimisation.

One algorithm minimises automata over bytes and over classes of characters.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ...kernels.answers import DEAD
from ...kernels.jit.aliases import Longs
from ..chart.automaton import ChartAutomaton
from ..limits import spend

State = TypeVar("State", bound=Hashable)


class StateNumbering(dict[State, int]):
    """A numbering of states from 0 on in order of first lookup, `numbers[state]`.

    states: the state of each number; a loop over it while rows are built visits all reachable states
    """

    def __init__(self) -> None:
        super().__init__()
        self.states: list[State] = []

    def __missing__(self, state: State) -> int:
        # In this order, an interrupt in between only leaves an unused number.
        self.states.append(state)
        number = self[state] = len(self.states) - 1
        return number


STEPS_PER_ROUND, STEPS_PER_STATE, STEPS_PER_TRANSITION = 2000, 30, 3

Minimised = tuple[NDArray[np.int32], NDArray[np.bool_]]


def minimise(transitions: NDArray[np.int32], accepting: NDArray[np.bool_]) -> Minimised:
    """Return the minimal automaton of the same language, without states that reach no accepting one.

    transitions: int32 [states, classes], -1 where there is none; accepting: bool [states]; all states are reachable
    from state 0, the start, which is kept even if nothing is accepted. The others keep the order of the first state of
    each class.

    Source: E. F. Moore, "Gedanken-experiments on sequential machines" (1956): partition refinement by the classes of
    the successors; and J. Hopcroft, "An n log n algorithm for minimizing states in a finite automaton" (1971): the
    largest part of a split class keeps its label, so that a state changes its label O(log n) times, and only
    predecessors of relabelled states are examined again.
    """
    columns = _distinct_columns(transitions)
    before = _Predecessors(transitions[:, columns])
    live = _live_states(before, accepting)
    numbers = np.full(len(accepting) + 1, -1, np.int32)  # the last entry serves index -1
    numbers[live] = np.arange(len(live))
    transitions, accepting = numbers[transitions[live]], accepting[live]
    labels = _label_states(transitions[:, columns], accepting)
    _, first = np.unique(labels, return_index=True)
    firsts = np.sort(first)
    numbers = np.full(len(labels) + 1, -1, np.int32)
    numbers[:-1] = np.searchsorted(firsts, first[labels])
    return numbers[transitions[firsts]], accepting[firsts]


def _distinct_columns(transitions: NDArray[np.int32]) -> list[int]:
    """Return the indices of the distinct columns."""
    spend(STEPS_PER_TRANSITION * transitions.size)
    return list({column.tobytes(): number for number, column in reversed(list(enumerate(transitions.T)))}.values())


class _Predecessors:
    """The predecessors of each state."""

    def __init__(self, transitions: NDArray[np.int32]) -> None:
        spend(STEPS_PER_TRANSITION * transitions.size)
        sources, columns = np.nonzero(transitions >= 0)
        targets = transitions[sources, columns]
        self._sources = sources[np.argsort(targets, kind="stable")]
        self._ends = np.cumsum(np.bincount(targets, minlength=len(transitions)))
        self._counts = np.diff(self._ends, prepend=0)

    def of(self, states: Longs) -> Longs:
        """Return the predecessors of any of these states, sorted."""
        counts = self._counts[states]
        spend(STEPS_PER_ROUND + STEPS_PER_TRANSITION * int(counts.sum()))
        # The offset of each state's predecessors, minus the number of entries before them
        begins = np.repeat(self._ends[states] - np.cumsum(counts), counts)
        return np.unique(self._sources[begins + np.arange(len(begins))])


def _live_states(before: _Predecessors, accepting: NDArray[np.bool_]) -> Longs:
    """Return the states that reach an accepting one, and state 0."""
    alive = accepting.copy()
    fresh = np.flatnonzero(accepting)
    while len(fresh):
        fresh = before.of(fresh)
        fresh = fresh[~alive[fresh]]
        alive[fresh] = True
    alive[:1] = True
    return np.flatnonzero(alive)


def _label_states(transitions: NDArray[np.int32], accepting: NDArray[np.bool_]) -> Longs:
    """Label each state, equally for equivalent states; labels are 0 to n - 1."""
    before = _Predecessors(transitions)
    _, found = np.unique(accepting, return_inverse=True)
    sizes: list[int] = np.bincount(found.reshape(-1)).tolist()
    labels = np.append(found.reshape(-1), -1)  # the last entry serves index -1
    changed = np.arange(len(accepting))
    while len(changed):
        touched = before.of(changed)
        moved: list[int] = []
        for label, parts in _split_by_successors(touched, transitions, labels).items():
            # The untouched states of this label are one part: their successors' labels are unchanged.
            untouched = sizes[label] - sum(map(len, parts))
            parts.sort(key=len)
            if untouched < len(parts[-1]):
                parts.pop()
                if untouched:
                    parts.append(np.setdiff1d(np.flatnonzero(labels == label), touched, assume_unique=True).tolist())
            for members in parts:
                labels[members] = len(sizes)
                sizes.append(len(members))
                sizes[label] -= len(members)
                moved += members
        changed = np.array(moved, np.int64)
    return labels[:-1]


def _split_by_successors(states: Longs, transitions: NDArray[np.int32], labels: Longs) -> dict[int, list[list[int]]]:
    """Split the given states of each label into parts whose successors have equal labels."""
    rows = np.concatenate([labels[states, None], labels[transitions[states]]], axis=1)
    spend(STEPS_PER_STATE * len(states) + STEPS_PER_TRANSITION * rows.size)
    keys, width = rows.tobytes(), rows.itemsize * rows.shape[1]
    groups: dict[bytes, list[int]] = {}
    for place, state in enumerate(states.tolist()):
        groups.setdefault(keys[place * width : (place + 1) * width], []).append(state)
    parts: dict[int, list[list[int]]] = {}
    for members in groups.values():
        parts.setdefault(labels.item(members[0]), []).append(members)
    return parts


@dataclass(frozen=True, slots=True, eq=False)
class Dfa:
    """A complete table of a byte automaton.

    transitions: int32 [states, 256], DEAD where there is none
    accepting: bool [states]; start: the first state
    States keep the order of their numbers in the source automaton.
    """

    transitions: NDArray[np.int32]
    accepting: NDArray[np.bool_]
    start: int

    @classmethod
    def of(cls, automaton: ChartAutomaton, max_states: int = 100_000) -> Dfa:
        """Convert all states of an automaton. Raises LimitError if there are more than `max_states`."""
        states = automaton.explore(max_states)
        number = np.full(max(states) + 2, DEAD, np.int32)  # the last is for DEAD
        number[states] = np.arange(len(states))
        transitions = number[np.stack([automaton.transitions(state) for state in states])]
        accepting = np.array([automaton.is_accepting(state) for state in states])
        return cls(transitions, accepting, number.item(automaton.start))

    def __len__(self) -> int:
        return len(self.transitions)

    def step(self, state: int, byte: int) -> int:
        """Return the state after `byte`, or DEAD."""
        return int(self.transitions[state, byte])

    def is_accepting(self, state: int) -> bool:
        """Test whether the bytes read so far are a complete text."""
        return bool(self.accepting[state])

    def breadth_first(self) -> tuple[list[int], Dfa]:
        """Return the states in breadth-first order from the start, and the automaton numbered so."""
        known = {DEAD, self.start}
        queue = [self.start]
        for state in queue:
            new = [target for target in dict.fromkeys(self.transitions[state].tolist()) if target not in known]
            known.update(new)
            queue += new
        number = np.full(len(self) + 1, DEAD, np.int32)
        number[queue] = np.arange(len(queue))
        return queue, Dfa(number[self.transitions[queue]], self.accepting[queue], 0)

    def minimised(self) -> Dfa:
        """Return the minimal automaton of the same language, in breadth-first order."""
        _, ordered = self.breadth_first()
        return Dfa(*minimise(ordered.transitions, ordered.accepting), 0).breadth_first()[1]


def byte_runs(row: NDArray[np.int32]) -> list[tuple[int, int, int]]:
    """Convert a transition row to (first byte, last byte, target), without bytes that lead nowhere."""
    cuts = np.flatnonzero(np.diff(row)) + 1
    runs: list[tuple[int, int, int]] = []
    for first, end in zip([0, *cuts.tolist()], [*cuts.tolist(), 256], strict=True):
        if row[first] != DEAD:
            runs.append((first, end - 1, int(row[first])))
    return runs
