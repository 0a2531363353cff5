"""Finite automata as tables: all states of a regular language, minimised on request."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...kernels.answers import DEAD
from ..chart.automaton import ChartAutomaton
from .minimise import minimise


@dataclass(frozen=True, slots=True, eq=False)
class Dfa:
    """A complete table of a byte automaton.

    transitions: int32 [states, 256], DEAD where there is none
    accepting: bool [states]
    start: the first state
    States are numbered in the order of their numbers in the automaton that they come from.
    """

    transitions: NDArray[np.int32]
    accepting: NDArray[np.bool_]
    start: int

    @classmethod
    def of(cls, automaton: ChartAutomaton, max_states: int = 100_000) -> Dfa:
        """All states of an automaton. Raises LimitError if there are more than `max_states`."""
        states = automaton.explore(max_states)
        number = np.full(max(states) + 2, DEAD, np.int32)  # the last is for DEAD
        number[states] = np.arange(len(states))
        transitions = number[np.stack([automaton.transitions(state) for state in states])]
        accepting = np.array([automaton.is_accepting(state) for state in states])
        return cls(transitions, accepting, number.item(automaton.start))

    def __len__(self) -> int:
        return len(self.transitions)

    def step(self, state: int, byte: int) -> int:
        """The state after `byte`, or DEAD."""
        return int(self.transitions[state, byte])

    def is_accepting(self, state: int) -> bool:
        """Tell whether the bytes read so far are a complete text."""
        return bool(self.accepting[state])

    def breadth_first(self) -> tuple[list[int], Dfa]:
        """The states in the order of a breadth-first search from the start, and the automaton so numbered."""
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
        """The smallest automaton of the same language, numbered in the order of a breadth-first search."""
        _, whole = self.breadth_first()
        return Dfa(*minimise(whole.transitions, whole.accepting), 0).breadth_first()[1]


def byte_runs(row: NDArray[np.int32]) -> list[tuple[int, int, int]]:
    """A transition row as (first byte, last byte, target), without the bytes that lead nowhere."""
    cuts = np.flatnonzero(np.diff(row)) + 1
    runs: list[tuple[int, int, int]] = []
    for first, end in zip([0, *cuts.tolist()], [*cuts.tolist(), 256], strict=True):
        if row[first] != DEAD:
            runs.append((first, end - 1, int(row[first])))
    return runs
