"""Regular parts of grammars as automata: intersections, complements, and shortest matches."""

from __future__ import annotations

from collections.abc import Sequence as ListOf

import numpy as np

from ...kernels.answers import DEAD
from ..automata.byte_table import byte_table
from ..automata.charsets import contains, segments_of
from ..automata.conditions import Automaton, JointConditions, automaton
from ..automata.dfa import minimise
from ..automata.positions import too_many_states
from ..regex.tree import ANY, ANY_TEXT
from ..syntax import NOTHING, Alternation, Literal, Node, Sequence

MAX_STATES = 50_000


def common(wanted: ListOf[Node], unwanted: ListOf[Node]) -> Node:
    """Return the texts in all wanted languages and in no unwanted one. Raises LimitError."""
    flags = [True] * len(wanted) + [False] * len(unwanted)
    return _table(automaton(JointConditions([*wanted, *unwanted]), flags, MAX_STATES))


def shortest(node: Node, stop: str = "") -> Node:
    """Return the texts of which no proper prefix is a text too, without the stop at their end. Raises LimitError."""
    machine = automaton(JointConditions([node]), [True], MAX_STATES)
    rows = [
        [DEAD] * len(machine.atoms) if accepting else row
        for row, accepting in zip(machine.rows, machine.accepting, strict=True)
    ]
    ends = machine.accepting
    for char in reversed(stop):
        atom = next(atom for atom, ranges in enumerate(machine.atoms) if contains(ranges, char))
        ends = [row[atom] != DEAD and ends[row[atom]] for row in rows]
    return _table(Automaton(machine.atoms, rows, ends))


def free_of(marks: ListOf[str]) -> Node:
    """Return the texts that contain none of the marks. Raises LimitError."""
    return common([], [_containing(marks)]) if marks else ANY_TEXT


def up_to(mark: str, marks: ListOf[str], refused: ListOf[str]) -> Node:
    """Return the texts that end with `mark`, contain none of `marks` before it, and none of `refused` at all."""
    unwanted = [Sequence((_containing(marks), ANY)), *([_containing(refused)] if refused else [])]
    return common([Sequence((ANY_TEXT, Literal(mark.encode())))], unwanted)


def _containing(marks: ListOf[str]) -> Node:
    any_of = Alternation(tuple(Literal(mark.encode()) for mark in marks))
    return Sequence((ANY_TEXT, any_of, ANY_TEXT))


def _table(machine: Automaton) -> Node:
    transitions, accepting = minimise(np.array(machine.rows, np.int32), np.array(machine.accepting, np.bool_))
    if not accepting.any():
        return NOTHING
    return byte_table(segments_of(machine.atoms), transitions, accepting, MAX_STATES, too_many_states)
