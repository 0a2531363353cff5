"""Finite automata over characters: of patterns, of what they have in common, of all strings but a few."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as ListOf
from dataclasses import dataclass

from ...kernels.answers import DEAD
from ..limits import spend
from ..syntax import Node, Ranges
from .atoms import bits, partition, sets_of
from .charsets import single
from .positions import MAX_SUBSETS, Subsets
from .product import Joint, Product

Condition = tuple[Node, bool]


@dataclass(frozen=True, slots=True, eq=False)
class Automaton:
    """A deterministic automaton over atoms.

    atoms: disjoint sets that hold all characters; rows: for each state the state after each atom, DEAD if none
    """

    atoms: list[Ranges]
    rows: list[list[int]]
    accepting: list[bool]
    start: int = 0


def subsets_of(nodes: ListOf[Node]) -> tuple[list[Ranges], list[Subsets]]:
    """The atoms of all nodes together, and the automaton of each node over them."""
    found: set[Ranges] = set()
    for node in nodes:
        sets_of(node, found)
    atoms, classes = partition(found)
    return atoms, [Subsets(node, classes, len(atoms)) for node in nodes]


def automaton(conditions: ListOf[Condition], max_states: int = MAX_SUBSETS) -> Automaton:
    """The strings in all languages that are paired with True and in none of the others, which is a complement.

    Raises LimitError if one of them takes more than MAX_SUBSETS states, or if all conditions together take more than
    `max_states`.
    """
    atoms, machines = subsets_of([node for node, _ in conditions])
    if not machines:
        return Automaton(atoms, [[0]], [True])
    if len(machines) == 1 and conditions[0][1]:
        machines[0].complete()
        return Automaton(atoms, machines[0].rows, machines[0].accepting)
    pairs = [(machine, wanted) for machine, (_, wanted) in zip(machines, conditions, strict=True)]

    def is_lost(joint: Joint) -> bool:
        """Whether one of the conditions can no longer be as it is wanted."""
        return any(
            at == DEAD if wanted else at == machine.everything != DEAD
            for (machine, wanted), at in zip(pairs, joint, strict=True)
        )

    product = Product(machines, len(atoms), is_lost, max_states)
    rows = product.complete()
    accepting = [
        all((at >= 0 and machine.accepting[at]) == wanted for (machine, wanted), at in zip(pairs, joint, strict=True))
        for joint in product.states
    ]
    return Automaton(atoms, rows, accepting)


def without(machine: Automaton, texts: Iterable[str]) -> Automaton:
    """The strings of an automaton but these: a tree of them beside it, whose branches end in its states.

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
