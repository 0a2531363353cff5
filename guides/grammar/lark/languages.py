"""Terminals as automata: what several have in common, and texts that end as soon as they can."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....kernels.answers import DEAD
from ...automata.atoms import segments_of
from ...automata.byte_table import byte_table
from ...automata.conditions import Automaton, Together, automaton
from ...automata.minimise import minimise
from ...automata.positions import too_many_states
from ...syntax import NOTHING, Node

MAX_STATES = 50_000


def common(wanted: Sequence[Node], unwanted: Sequence[Node]) -> Node:
    """The texts that are in all of the wanted languages and in none of the others. Raises LimitError."""
    flags = [True] * len(wanted) + [False] * len(unwanted)
    return _table(automaton(Together([*wanted, *unwanted]), flags, MAX_STATES))


def shortest(node: Node, stop: str = "") -> Node:
    """The texts of which no beginning is a text too, without the stop at their end. Raises LimitError."""
    machine = automaton(Together([node]), [True], MAX_STATES)
    rows = [
        [DEAD] * len(machine.atoms) if accepting else row
        for row, accepting in zip(machine.rows, machine.accepting, strict=True)
    ]
    ends = machine.accepting
    for char in reversed(stop):
        atom = next(atom for atom, ranges in enumerate(machine.atoms) if _is_in(ord(char), ranges))
        ends = [row[atom] != DEAD and ends[row[atom]] for row in rows]
    return _table(Automaton(machine.atoms, rows, ends))


def _is_in(code: int, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(low <= code <= high for low, high in ranges)


def _table(machine: Automaton) -> Node:
    transitions, accepting = minimise(np.array(machine.rows, np.int32), np.array(machine.accepting, np.bool_))
    if not accepting.any():
        return NOTHING
    return byte_table(segments_of(machine.atoms), transitions, accepting, MAX_STATES, too_many_states)
