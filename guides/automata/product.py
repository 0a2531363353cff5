"""Automata over the same atoms, read side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Protocol

from ...kernels.answers import DEAD
from ..limits import spend
from .positions import too_many_states

Joint = tuple[int, ...]


class AtomAutomaton(Protocol):
    """A deterministic automaton over atoms."""

    def row(self, state: int) -> list[int]:
        """The state after each atom."""
        ...


class Product:
    """The states that several automata are in together, numbered as they are met.

    machines: each over `atoms` atoms. One that is DEAD itself stays so, and is a part of the state as any other.
    settled: gives the joint state that one is taken for, None where nothing is wanted of it, so that it is DEAD.
    states: for each state that of every machine. `row` raises LimitError beyond `max_states` of them, if given.
    """

    def __init__(
        self,
        machines: Sequence[AtomAutomaton],
        atoms: int,
        settled: Callable[[Joint], Joint | None],
        max_states: int | None = None,
    ) -> None:
        self._machines = machines
        self._atoms = atoms
        self._settled = settled
        self._max_states = max_states
        start = (0,) * len(machines)
        self._numbers: dict[Joint, int] = {start: 0}
        self.states: list[Joint] = [start]
        self._rows: list[list[int] | None] = [None]

    def row(self, state: int) -> list[int]:
        """The state after each atom."""
        known = self._rows[state]
        if known is None:
            pairs = zip(self._machines, self.states[state], strict=True)
            columns = [machine.row(at) if at >= 0 else self._nowhere for machine, at in pairs]
            spend((30 + 20 * len(columns)) * self._atoms)
            numbers = self._numbers
            row: list[int] = []
            for joint in zip(*columns, strict=True):
                number = numbers.get(joint)
                row.append(self._number(joint) if number is None else number)
            known = self._rows[state] = row
        return known

    @cached_property
    def _nowhere(self) -> list[int]:
        return [DEAD] * self._atoms

    def _number(self, joint: Joint) -> int:
        """The number of a state that was not met before."""
        settled = self._settled(joint)
        number = DEAD if settled is None else self._numbers.get(settled, len(self.states))
        if settled is not None and number == len(self.states):
            if self._max_states is not None and number >= self._max_states:
                raise too_many_states(self._max_states)
            self.states.append(settled)
            self._rows.append(None)
            self._numbers[settled] = number
        self._numbers[joint] = number
        return number

    def complete(self) -> list[list[int]]:
        """All rows."""
        rows: list[list[int]] = []
        while len(rows) < len(self.states):
            rows.append(self.row(len(rows)))
        return rows
