"""Automata over characters against `re`, and the way to bytes and back against both."""

from __future__ import annotations

import re
from itertools import product
from random import Random

import numpy as np
import pytest
from trellm.errors import LimitError
from trellm.guides import DEAD
from trellm.guides.automata.byte_table import byte_table
from trellm.guides.automata.charsets import ALL, character_rows, normalise, partition, segments_of
from trellm.guides.automata.conditions import Automaton, without

from ..json_schema.support import JointConditions, automaton
from ..support import Table, minimise, parse

PARTS = ["a", "b", "é", "[^a]", "[a-z]", "(a|é)", "(ab|b)*", "a{0,2}", "(é|ab){1,2}", ".", r"\w?", "😀", "[一-龥]"]
TEXTS = ["".join(text) for length in range(5) for text in product("abé😀", repeat=length)]


def expressions(seed: int, count: int) -> list[str]:
    random = Random(seed)
    return ["".join(random.choices(PARTS, k=random.randrange(1, 4))) for _ in range(count)]


def accepts(machine: Automaton, text: str) -> bool:
    """Whether the automaton accepts a text, read character by character."""
    state = machine.start
    for char in text:
        atom = next(
            n for n, ranges in enumerate(machine.atoms) if any(low <= ord(char) <= high for low, high in ranges)
        )
        state = machine.rows[state][atom]
        if state == DEAD:
            return False
    return machine.accepting[state]


@pytest.mark.parametrize("seed", range(6))
def test_what_expressions_have_in_common(seed: int) -> None:
    random = Random(seed)
    patterns = expressions(seed, 3)[: 1 + seed % 3]
    wanted = [random.random() < 0.6 for _ in patterns]
    machine = automaton(JointConditions([parse(pattern) for pattern in patterns]), wanted)
    fewer = without(machine, TEXTS[3:9])
    for text in TEXTS:
        expected = all(
            (re.fullmatch(pattern, text) is not None) == each for pattern, each in zip(patterns, wanted, strict=True)
        )
        assert accepts(machine, text) == expected, (patterns, wanted, text)
        assert accepts(fewer, text) == (expected and text not in TEXTS[3:9])


@pytest.mark.parametrize("pattern", expressions(9, 8))
def test_bytes_and_back(pattern: str) -> None:
    machine = automaton(JointConditions([parse(pattern)]), [True])
    transitions, accepting = minimise(np.array(machine.rows, np.int32), np.array(machine.accepting))
    table = byte_table(segments_of(machine.atoms), transitions, accepting, 10_000, lambda most: LimitError(str(most)))
    for text in TEXTS:
        state = table.start
        for byte in text.encode():
            state = int(table.transitions[state, byte]) if state != DEAD else DEAD
        assert (state != DEAD and bool(table.accepting[state])) == (re.fullmatch(pattern, text) is not None)
    for state, row in character_rows(table).items():
        for target in range(len(transitions)):
            atoms = np.flatnonzero(transitions[state] == target).tolist()
            assert row.get(target, ()) == normalise(pair for atom in atoms for pair in machine.atoms[atom])
    with pytest.raises(LimitError, match="1"):
        byte_table(segments_of(machine.atoms), transitions, accepting, 1, lambda most: LimitError(str(most)))


def test_only_well_formed_text_has_characters() -> None:
    """All bytes after all bytes, up to four of them, are all characters and nothing else."""
    transitions = np.array([[1] * 256, [DEAD] * 256], np.int32)
    whole = byte_table(
        [(low, high, 0) for low, high in ALL], np.array([[0]], np.int32), np.array([True]), 99, LimitError
    )
    assert character_rows(whole) == {0: {0: ALL}}
    assert character_rows(Table(transitions, np.array([False, True])))[0] == {1: ((0, 0x7F),)}


def test_atoms_are_the_coarsest() -> None:
    random = Random(3)
    sets = {
        normalise((low, low + random.randrange(9)) for low in random.sample(range(60), random.randrange(1, 4)))
        for _ in range(6)
    }
    atoms, classes = partition(sets)
    assert normalise(pair for atom in atoms for pair in atom) == ALL
    kinds = [tuple(classes[ranges] >> number & 1 for ranges in sorted(sets)) for number in range(len(atoms))]
    assert len(set(kinds)) == len(atoms)
    for ranges in sets:
        inside = [atom for number, atom in enumerate(atoms) if classes[ranges] >> number & 1]
        assert normalise(pair for atom in inside for pair in atom) == ranges


def test_minimising_a_long_chain() -> None:
    """Each state is told apart by a text of its own length, and none is left out."""
    count = 3000
    transitions = np.full((2 * count, 2), DEAD, np.int32)
    transitions[:-2, 0] = np.arange(2, 2 * count)
    transitions[0, 1] = 1
    accepting = np.zeros(2 * count, np.bool_)
    accepting[-2:] = True
    fewer, final = minimise(transitions, accepting)
    # Two chains side by side become one, and the first state, which leads to both, stands before it.
    assert len(fewer) == count + 1
    assert final.sum() == 1
