"""Finite automata over characters: of patterns, of what they have in common, of all strings but a few.

Characters that no condition tells apart are one *atom*. A pattern becomes a position automaton, whose sets
of positions are integers, and is determinised with one AND per atom.

Source: V. M. Glushkov, "The abstract theory of automata" (1961).
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as ListOf
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from ....errors import LimitError
from ...limits import spend
from ...regex.charsets import ALL, single
from ...syntax import Alternation, Chars, Literal, Node, Ranges, Repeat, Sequence, Table
from .byte_tables import character_rows

MAX_STATES = 8_000
MAX_POSITIONS = 20_000
DEAD = -1
UNREACHED = 2**30

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


def automaton(conditions: ListOf[Condition], max_states: int = MAX_STATES) -> Automaton:
    """The strings in all languages that are paired with True and in none of the others.

    Raises LimitError if that takes more than MAX_STATES states, or if all conditions together take more than
    `max_states`.
    """
    found: set[Ranges] = set()
    for node, _ in conditions:
        collect(node, found)
    atoms, classes = partition(found)
    machines = [ConditionMachine(node, classes, len(atoms), wanted) for node, wanted in conditions]
    if not machines:
        return Automaton(atoms, [[0]], [True])
    if len(machines) == 1 and machines[0].wanted:
        machines[0].complete()
        return Automaton(atoms, machines[0].rows, machines[0].accepting)
    return _product(machines, atoms, max_states)


def partition(sets: Iterable[Ranges]) -> tuple[list[Ranges], dict[Ranges, int]]:
    """All characters in atoms, and each set as the bits of its atoms; it has an atom wholly or not at all."""
    ordered = sorted(sets)
    marks: dict[int, int] = {}
    for index, ranges in enumerate((ALL, *ordered)):
        for low, high in ranges:
            marks[low] = marks.get(low, 0) ^ 1 << index
            marks[high + 1] = marks.get(high + 1, 0) ^ 1 << index
    spend(len(marks) * (50 + 10 * len(ordered)))
    pieces: dict[int, list[tuple[int, int]]] = {}
    inside = 0
    for low, end in pairwise(sorted(marks)):
        inside ^= marks[low]
        if inside & 1:
            pieces.setdefault(inside, []).append((low, end - 1))
    classes = dict.fromkeys(ordered, 0)
    for number, inside in enumerate(pieces):
        for index, ranges in enumerate(ordered, 1):
            if inside >> index & 1:
                classes[ranges] |= 1 << number
    return [tuple(ranges) for ranges in pieces.values()], classes


def collect(node: Node, found: set[Ranges]) -> None:
    """Add all sets of characters of a node to `found`."""
    match node:
        case Chars(ranges):
            found.add(ranges)
        case Literal(data):
            found.update(single(ord(char)) for char in data.decode())
        case Sequence(items) | Alternation(items):
            for item in items:
                collect(item, found)
        case Repeat(item, _, _):
            collect(item, found)
        case Table():
            for row in character_rows(node).values():
                found.update(row.values())
        case _:
            raise AssertionError("patterns refer to no rules")


class Part(NamedTuple):
    """Of a piece of pattern: whether it may be empty, and the positions (as bits) at which it begins and ends."""

    nullable: bool
    first: int
    last: int


class _Positions:
    """The position automaton of a node. Position 0 stands before the text.

    sets: the atoms of each position, as bits; follow: the positions after each, as bits; last: where a text may end
    """

    def __init__(self, node: Node, classes: dict[Ranges, int]) -> None:
        self._classes = classes
        self.sets = [0]
        self.follow = [0]
        whole = self._add(node)
        self.follow[0] = whole.first
        self.last = whole.last | (1 if whole.nullable else 0)

    def _position(self, ranges: Ranges) -> int:
        spend(100 + len(self.sets) // 32)
        if len(self.sets) >= MAX_POSITIONS:
            raise LimitError(f"a pattern has more than {MAX_POSITIONS:,} characters when its repeats are written out")
        self.sets.append(self._classes[ranges])
        self.follow.append(0)
        return 1 << (len(self.sets) - 1)

    def _link(self, last: int, first: int) -> None:
        follow = self.follow
        spend((100 + len(follow) // 32) * last.bit_count())
        for position in bits(last):
            follow[position] |= first

    def _add(self, node: Node) -> Part:
        match node:
            case Chars(ranges):
                here = self._position(ranges)
                return Part(False, here, here)
            case Literal(data):
                return self._chain(Chars(single(ord(char))) for char in data.decode())
            case Sequence(items):
                return self._chain(items)
            case Alternation(items):
                parts = [self._add(item) for item in items]
                first = last = 0
                for part in parts:
                    first, last = first | part.first, last | part.last
                return Part(any(part.nullable for part in parts), first, last)
            case Repeat(item, least, most):
                return self._repeat(item, least, most)
            case Table():
                return self._table(node)
            case _:
                raise AssertionError("patterns refer to no rules")

    def _chain(self, items: Iterable[Node]) -> Part:
        nullable, first, last = True, 0, 0
        for item in items:
            part = self._add(item)
            self._link(last, part.first)
            first |= part.first if nullable else 0
            last = part.last | (last if part.nullable else 0)
            nullable = nullable and part.nullable
        return Part(nullable, first, last)

    def _repeat(self, item: Node, least: int, most: int | None) -> Part:
        """Turns one behind the other; after the last one, or any that may be the last, the repeat may end."""
        first = last = before = 0
        nullable = least == 0
        part = Part(True, 0, 0)
        for turn in range(1, (max(least, 1) if most is None else most) + 1):
            part = self._add(item)
            if part.nullable:
                least, nullable = 0, True
            self._link(before, part.first)
            first = first or part.first
            if turn >= least:
                last |= part.last
            before = part.last
        if most is None:
            self._link(before, part.first)
        return Part(nullable, first, last)

    def _table(self, table: Table) -> Part:
        """A position for each pair of states that follow each other."""
        rows = character_rows(table)
        begins = dict.fromkeys(rows, 0)
        ends = dict.fromkeys(rows, 0)
        for state, row in rows.items():
            for target, ranges in row.items():
                here = self._position(ranges)
                begins[state] |= here
                ends[target] |= here
        last = 0
        for state in rows:
            self._link(ends[state], begins[state])
            if table.accepting[state]:
                last |= ends[state]
        return Part(bool(table.accepting[table.start]), begins[table.start], last)


def bits(value: int) -> Iterable[int]:
    """The numbers of the bits that are set."""
    while value:
        lowest = value & -value
        yield lowest.bit_length() - 1
        value ^= lowest


class ConditionMachine:
    """A determinised condition, worked out on demand; a state is what may follow, and whether a text may end."""

    def __init__(self, node: Node, classes: dict[Ranges, int], atoms: int, wanted: bool) -> None:
        positions = _Positions(node, classes)
        self.wanted = wanted
        self._follow, self._last = positions.follow, positions.last
        self._of_atom = [0] * atoms
        every = (1 << atoms) - 1
        self._universal = 0
        of_set: dict[int, int] = {}
        for index, atom_bits in enumerate(positions.sets):
            of_set[atom_bits] = of_set.get(atom_bits, 0) | 1 << index
            if atom_bits == every and self._follow[index] >> index & 1 and self._last >> index & 1:
                self._universal |= 1 << index
        for atom_bits, indices in of_set.items():
            for atom in bits(atom_bits):
                self._of_atom[atom] |= indices
        self._numbers: dict[tuple[int, bool], int] = {}
        self._after: dict[int, int] = {0: DEAD}
        self._befores: list[int] = []
        self._rows: list[list[int] | None] = []
        self.accepting: list[bool] = []
        self.everything = DEAD
        self._number(1)

    def _number(self, reached: int) -> int:
        """The state in which these positions have been reached."""
        known = self._after.get(reached)
        if known is None:
            follow = 0
            universal = reached & self._universal
            spend((50 + len(self._follow) // 32) * reached.bit_count())
            for position in (universal.bit_length() - 1,) if universal else bits(reached):
                follow |= self._follow[position]
            key = (follow, reached & self._last != 0)
            known = self._numbers.get(key)
            if known is None:
                known = self._numbers[key] = len(self.accepting)
                if known >= MAX_STATES:
                    raise too_many_states()
                self._befores.append(follow)
                self._rows.append(None)
                self.accepting.append(key[1])
            if universal:
                self.everything = known
            self._after[reached] = known
        return known

    def row(self, state: int) -> list[int]:
        """The state after each atom."""
        known = self._rows[state]
        if known is None:
            follow, universal, after = self._befores[state], self._universal, self._after
            row: list[int] = []
            spend((20 + len(self._follow) // 32) * len(self._of_atom))
            for positions in self._of_atom:
                reached = follow & positions
                if reached & universal:
                    reached = universal
                number = after.get(reached)
                row.append(self._number(reached) if number is None else number)
            known = self._rows[state] = row
        return known

    def complete(self) -> None:
        """Work out all rows."""
        state = 0
        while state < len(self.accepting):
            self.row(state)
            state += 1

    def steps_to(self, ends: ListOf[bool], from_dead: bool) -> list[int]:
        """For each state of a complete machine the fewest characters to one of `ends`, UNREACHED if there are none.

        from_dead: whether DEAD is one of the ends
        """
        before: list[list[int]] = [[] for _ in ends]
        steps = [0 if end else UNREACHED for end in ends]
        queue = [state for state, end in enumerate(ends) if end]
        spend(20 * len(ends) * len(self._of_atom))
        for state, row in enumerate(self.rows):
            for after in set(row):
                if after >= 0:
                    before[after].append(state)
                elif from_dead and steps[state]:
                    steps[state] = 1
        queue += [state for state, count in enumerate(steps) if count == 1]
        for state in queue:
            for other in before[state]:
                if steps[other] == UNREACHED:
                    steps[other] = steps[state] + 1
                    queue.append(other)
        return steps

    @property
    def rows(self) -> list[list[int]]:
        """All rows, once they are complete."""
        return [row for row in self._rows if row is not None]


def _product(machines: list[ConditionMachine], atoms: list[Ranges], max_states: int) -> Automaton:
    """The strings that all machines agree on. A machine that need not match may be DEAD."""
    nowhere = [DEAD] * len(atoms)
    start = (0,) * len(machines)
    numbers: dict[tuple[int, ...], int] = {start: 0}
    states = [start]
    rows: list[list[int]] = []
    accepting: list[bool] = []
    for state in states:
        pairs = list(zip(machines, state, strict=True))
        accepting.append(all((at >= 0 and one.accepting[at]) == one.wanted for one, at in pairs))
        columns = [one.row(at) if at >= 0 else nowhere for one, at in pairs]
        row: list[int] = []
        spend((30 + 20 * len(machines)) * len(atoms))
        for after in zip(*columns, strict=True):
            number = numbers.get(after)
            if number is None:
                if any(
                    at == DEAD if one.wanted else at == one.everything != DEAD
                    for one, at in zip(machines, after, strict=True)
                ):
                    number = DEAD
                else:
                    number = len(states)
                    states.append(after)
                    if number >= max_states:
                        raise too_many_states()
                numbers[after] = number
            row.append(number)
        rows.append(row)
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


def too_many_states() -> LimitError:
    """The error for conditions that take too large an automaton."""
    return LimitError(f"these conditions take an automaton of more than {MAX_STATES:,} states; simplify them")
