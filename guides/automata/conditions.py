"""Finite automata over characters: of patterns, of intersections and complements, of all strings but a few."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as ListOf
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels.answers import DEAD, EXHAUSTED, FULL
from ...kernels.jit.compiling import call
from ...kernels.subsets import BITS, COUNT, MAX_STEPS, STEPS, find_subsets, start_subsets
from ...kernels.subsets import Positions as KernelPositions
from ..limits import spend, spend_growth
from ..syntax import Node, Ranges
from .charsets import bits, partition, sets_of, single
from .positions import MAX_SUBSETS, PositionAutomaton, Subsets, too_many_states

FIRST_ROOM = 512
STEPS_AT_ONCE = 1 << 20
"""Steps of a kernel before its work is checked against the limits, about 5 ms."""


@dataclass(frozen=True, slots=True, eq=False)
class Automaton:
    """A deterministic automaton over atoms.

    atoms: disjoint sets that cover all characters; rows: for each state the state after each atom, DEAD if none
    """

    atoms: list[Ranges]
    rows: list[list[int]]
    accepting: list[bool]
    start: int = 0


def subsets_of(nodes: ListOf[Node]) -> tuple[list[Ranges], list[Subsets]]:
    """Return the common atoms of all nodes, and the lazy automaton of each node over them."""
    atoms, classes = _atoms_of(nodes)
    return atoms, [Subsets(node, classes, len(atoms)) for node in nodes]


def _atoms_of(nodes: ListOf[Node]) -> tuple[list[Ranges], dict[Ranges, int]]:
    """Return the common atoms of all nodes, and each of their sets as the bits of its atoms."""
    found: set[Ranges] = set()
    for node in nodes:
        sets_of(node, found)
    return partition(found)


class JointConditions:
    """Several expressions over common atoms, as one set of arrays for kernels.

    held_bytes: estimated bytes of the arrays
    """

    def __init__(self, nodes: ListOf[Node]) -> None:
        self.atoms, classes = _atoms_of(nodes)
        machines = [PositionAutomaton(node, classes, len(self.atoms)) for node in nodes]
        counts = [-(-len(machine.follow) // BITS) for machine in machines]
        first = np.array([0, *accumulate(counts)], np.int32)
        words, widest = sum(counts), max(counts, default=1)
        self.held_bytes = 4 * words * (BITS * widest + len(self.atoms)) + 100 * sum(map(len, self.atoms))
        spend_growth(words * BITS, self.held_bytes)
        follow = np.zeros((words * BITS, widest), np.uint32)
        last, everything = np.zeros(words, np.uint32), np.zeros(words, np.uint32)
        of_atom = np.zeros((len(self.atoms), words), np.uint32)
        universal = np.full(len(machines), -1, np.int32)
        for number, (machine, count) in enumerate(zip(machines, counts, strict=True)):
            start = int(first[number])
            span = slice(start, start + count)
            follow[start * BITS : start * BITS + len(machine.follow), :count] = _words(machine.follow, count)
            of_atom[:, span] = _words(machine.of_atom, count)
            last[span], everything[span] = _words([machine.last, machine.universal], count)
            if machine.universal:
                universal[number] = start * BITS + machine.universal.bit_length() - 1
        self.positions = KernelPositions(follow, of_atom, last, everything, first, universal)


def automaton(joint: JointConditions, wanted: ListOf[bool], max_states: int = MAX_SUBSETS) -> Automaton:
    """Build the automaton of the strings that are in all wanted languages and in no other one.

    Raises LimitError if that takes more than `max_states` states.
    """
    if not wanted:
        return Automaton(joint.atoms, [[0]], [True])
    wanted_flags = np.array(wanted, np.uint8)
    edges, accepted = _build_subsets(joint.positions, wanted_flags, len(joint.atoms), max_states)
    return Automaton(joint.atoms, edges.tolist(), (accepted == wanted_flags).all(1).tolist())


def _words(numbers: ListOf[int], count: int) -> NDArray[np.uint32]:
    """Split ints into words of 32 bits: uint32 [numbers, count]."""
    data = b"".join(number.to_bytes(4 * count, "little") for number in numbers)
    return np.frombuffer(data, "<u4").reshape(len(numbers), count)


def _build_subsets(
    positions: KernelPositions, wanted: NDArray[np.uint8], atoms: int, max_states: int
) -> tuple[NDArray[np.int32], NDArray[np.uint32]]:
    """Return the state after each atom, int32 [states, atoms], DEAD if none, and each state's accepted languages."""
    most = max_states + atoms + 1
    room = min(FIRST_ROOM + atoms, most)
    words = len(positions.last)
    states = np.empty((room, words + len(wanted)), np.uint32)
    edges = np.empty((room, atoms), np.int32)
    index = np.full(1 << (2 * most).bit_length(), DEAD, np.int32)
    progress = np.zeros(4, np.int64)
    progress[COUNT] = 1
    progress[MAX_STEPS] = STEPS_AT_ONCE
    call(start_subsets, positions, states, index)
    while True:
        answer = call(find_subsets, positions, wanted, states, edges, index, progress)
        count = int(progress[COUNT])
        spend(int(progress[STEPS]))
        progress[STEPS] = 0
        if count > max_states:
            raise too_many_states(max_states)
        if answer == FULL:
            room = min(2 * room, most)
            spend_growth(room, room * 4 * (words + atoms))
            states, edges = _enlarge(states, room), _enlarge(edges, room)
        elif answer != EXHAUSTED:
            return edges[:count], states[:count, words:]


def _enlarge(array: NDArray[Any], room: int) -> NDArray[Any]:
    """Copy an array to one with `room` rows."""
    larger = np.empty((room, array.shape[1]), array.dtype)
    larger[: len(array)] = array
    return larger


def without(machine: Automaton, texts: Iterable[str]) -> Automaton:
    """Remove texts from the language of an automaton, by a trie of them whose branches end in the automaton's states.

    The texts have no surrogates.
    """
    listed = list(texts)
    atoms, classes = partition({*machine.atoms, *(single(ord(char)) for text in listed for char in text)})
    source = [0] * len(atoms)
    for number, ranges in enumerate(machine.atoms):
        for atom in bits(classes[ranges]):
            source[atom] = number
    spend(5 * len(machine.rows) * len(source))
    rows = [[row[atom] for atom in source] for row in machine.rows]
    accepting = list(machine.accepting)
    atom_of = {char: classes[single(ord(char))].bit_length() - 1 for text in listed for char in text}
    count = len(rows)
    rows.append(list(rows[machine.start]))
    accepting.append(accepting[machine.start])
    for text in listed:
        place = count
        spend((20 + len(atoms)) * len(text))
        for char in text:
            atom = atom_of[char]
            after = rows[place][atom]
            if after == DEAD:
                break
            if after < count:
                rows[place][atom] = len(rows)
                rows.append(list(rows[after]))
                accepting.append(accepting[after])
                after = len(rows) - 1
            place = after
        else:
            accepting[place] = False
    return Automaton(atoms, rows, accepting, count)
