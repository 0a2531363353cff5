"""A node of syntax as an automaton over atoms, with a lazy subset construction.

A pattern becomes a position automaton, whose sets of positions are ints: a subset is found with one AND per atom.
This module therefore differs from `guides/chart`, over bytes and for grammars, and from `guides/regex/lookaround.py`
and `guides/required_content/automaton.py`, whose states are formulas or counts and not plain subsets.
Where all states are wanted, a kernel finds them from the same positions (see conditions.py).

Source: V. M. Glushkov, "The abstract theory of automata" (1961).

`Product` runs several automata over common atoms in parallel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as ListOf
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from ...errors import LimitError
from ...kernels.answers import DEAD, NEVER
from ..limits import spend
from ..syntax import Alternation, Chars, Literal, Node, Ranges, Repeat, Sequence, Table
from .charsets import bits, character_rows, single


def steps_to(rows: ListOf[ListOf[int]], ends: ListOf[bool], from_dead: bool = False) -> list[int]:
    """Return for each state the fewest symbols to one of `ends`, NEVER if there is no path.

    rows: for each state the state after each symbol, DEAD where there is none; from_dead: whether DEAD is an end, too
    """
    before: list[list[int]] = [[] for _ in ends]
    steps = [0 if end else NEVER for end in ends]
    queue = [state for state, end in enumerate(ends) if end]
    spend(200 * len(rows) + 5 * sum(map(len, rows)))
    for state, row in enumerate(rows):
        for after in set(row):
            if after >= 0:
                before[after].append(state)
            elif from_dead and steps[state]:
                steps[state] = 1
    queue += [state for state, count in enumerate(steps) if count == 1]
    for state in queue:
        for other in before[state]:
            if steps[other] == NEVER:
                steps[other] = steps[state] + 1
                queue.append(other)
    return steps


def shortest_in_table(table: Table) -> int:
    """Return the length in bytes of a table's shortest text, NEVER if it has none."""
    level = np.array([table.start])
    seen = np.zeros(len(table.accepting), np.bool_)
    length = 0
    while len(level):
        if table.accepting[level].any():
            return length
        seen[level] = True
        after = np.unique(table.transitions[level])
        level = after[(after >= 0) & ~seen[after]]
        length += 1
    return NEVER


MAX_SUBSETS = 8_000
MAX_CELLS = 400_000
"""Most transitions of an automaton that is computed ahead of any text."""
MAX_POSITIONS = 20_000


class PositionPart(NamedTuple):
    """Glushkov sets of a subexpression: nullable, and its first and last positions, as bits."""

    nullable: bool
    first: int
    last: int


class PositionAutomaton:
    """The position (Glushkov) automaton of a node. Position 0 stands before the text.

    classes: the atoms of each set of characters of the node, as bits, of `atoms` atoms in all; see `partition`
    follow: the positions after each, as bits; last: where a text may end; of_atom: the positions that read each atom
    universal: the positions from which every text is accepted
    """

    def __init__(self, node: Node, classes: dict[Ranges, int], atoms: int) -> None:
        self._classes = classes
        self._sets = [0]
        self.follow = [0]
        root = self._add(node)
        self.follow[0] = root.first
        self.last = root.last | (1 if root.nullable else 0)
        self.of_atom = [0] * atoms
        self.universal = 0
        every = (1 << atoms) - 1
        of_set: dict[int, int] = {}
        for index, atom_bits in enumerate(self._sets):
            of_set[atom_bits] = of_set.get(atom_bits, 0) | 1 << index
            if atom_bits == every and self.follow[index] >> index & 1 and self.last >> index & 1:
                self.universal |= 1 << index
        for atom_bits, indices in of_set.items():
            for atom in bits(atom_bits):
                self.of_atom[atom] |= indices

    def _position(self, ranges: Ranges) -> int:
        self._check_room(1)
        self._sets.append(self._classes[ranges])
        self.follow.append(0)
        return 1 << (len(self._sets) - 1)

    def _check_room(self, count: int) -> None:
        spend((100 + len(self._sets) // 32) * count)
        if len(self._sets) + count > MAX_POSITIONS:
            raise LimitError(f"a pattern has more than {MAX_POSITIONS:,} characters when its repeats are written out")

    def _literal(self, text: str) -> PositionPart:
        """Add a chain of positions in one step: patterns may list thousands of words."""
        if not text:
            return PositionPart(True, 0, 0)
        self._check_room(len(text))
        classes, first = self._classes, len(self._sets)
        self._sets += [classes[single(ord(char))] for char in text]
        last = len(self._sets) - 1
        self.follow += [2 << position for position in range(first, last)]
        self.follow.append(0)
        return PositionPart(False, 1 << first, 1 << last)

    def _link(self, last: int, first: int) -> None:
        follow = self.follow
        spend((100 + len(follow) // 32) * last.bit_count())
        for position in bits(last):
            follow[position] |= first

    def _add(self, node: Node) -> PositionPart:
        match node:
            case Chars(ranges):
                position = self._position(ranges)
                return PositionPart(False, position, position)
            case Literal(data):
                return self._literal(data.decode())
            case Sequence(items):
                return self._chain(items)
            case Alternation(items):
                parts = [self._add(item) for item in items]
                first = last = 0
                for part in parts:
                    first, last = first | part.first, last | part.last
                return PositionPart(any(part.nullable for part in parts), first, last)
            case Repeat(item, least, most):
                return self._repeat(item, least, most)
            case Table():
                return self._table(node)
            case _:
                raise AssertionError("patterns refer to no rules")

    def _chain(self, items: Iterable[Node]) -> PositionPart:
        nullable, first, last = True, 0, 0
        for item in items:
            part = self._add(item)
            self._link(last, part.first)
            first |= part.first if nullable else 0
            last = part.last | (last if part.nullable else 0)
            nullable = nullable and part.nullable
        return PositionPart(nullable, first, last)

    def _repeat(self, item: Node, least: int, most: int | None) -> PositionPart:
        """Unroll the iterations; the repeat may end after the last required one and after each later one."""
        first = last = before = 0
        nullable = least == 0
        part = PositionPart(True, 0, 0)
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
        return PositionPart(nullable, first, last)

    def _table(self, table: Table) -> PositionPart:
        """Add a position for each transition of a table."""
        rows = character_rows(table)
        begins = dict.fromkeys(rows, 0)
        ends = dict.fromkeys(rows, 0)
        for state, row in rows.items():
            for target, ranges in row.items():
                position = self._position(ranges)
                begins[state] |= position
                ends[target] |= position
        last = 0
        for state in rows:
            self._link(ends[state], begins[state])
            if table.accepting[state]:
                last |= ends[state]
        return PositionPart(bool(table.accepting[table.start]), begins[table.start], last)


class Subsets:
    """The deterministic automaton of a node; a state is a set of next positions, and whether it accepts.

    classes, atoms: as for PositionAutomaton
    everything: the state that accepts every text, DEAD while none was met
    """

    def __init__(self, node: Node, classes: dict[Ranges, int], atoms: int) -> None:
        positions = PositionAutomaton(node, classes, atoms)
        self._follow, self._last = positions.follow, positions.last
        self.atoms = atoms
        self._of_atom, self._universal = positions.of_atom, positions.universal
        self._numbers: dict[tuple[int, bool], int] = {}
        self._state_of: dict[int, int] = {0: DEAD}
        self._follow_sets: list[int] = []
        self._rows: list[list[int] | None] = []
        self.accepting: list[bool] = []
        self.everything = DEAD
        self._steps: list[int] | None = None
        self._number(1)

    def _number(self, reached: int) -> int:
        """Return the state in which these positions have been reached."""
        known = self._state_of.get(reached)
        if known is None:
            follow = 0
            universal = reached & self._universal
            spend((50 + len(self._follow) // 32) * reached.bit_count())
            for position in (universal.bit_length() - 1,) if universal else bits(reached):
                follow |= self._follow[position]
            key = (follow, reached & self._last != 0)
            known = self._numbers.get(key)
            if known is None:
                known = len(self.accepting)
                self._numbers[key] = known
                self._follow_sets.append(follow)
                self._rows.append(None)
                self.accepting.append(key[1])
            if universal:
                self.everything = known
            self._state_of[reached] = known
        return known

    def row(self, state: int) -> list[int]:
        """Return the state after each atom."""
        known = self._rows[state]
        if known is None:
            follow, universal, after = self._follow_sets[state], self._universal, self._state_of
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

    @cached_property
    def is_complete(self) -> bool:
        """The completeness of the states: all of them are computed now, unless they are too many."""
        most, state = min(MAX_SUBSETS, MAX_CELLS // self.atoms), 0
        while state < len(self.accepting) <= most:
            self.row(state)
            state += 1
        return state == len(self.accepting)

    def steps_to(self, ends: ListOf[bool], from_dead: bool) -> list[int]:
        """Apply `steps_to` to the rows of a complete automaton."""
        return steps_to(self.rows, ends, from_dead)

    def steps_to_end(self, state: int) -> int:
        """Return the fewest characters from a state to an accepting one; NEVER if there is none. Builds no states."""
        if self._steps is None:
            self._steps = self._steps_from_positions()
        steps = self._steps
        spend(10 * self._follow_sets[state].bit_count())
        return (
            0
            if self.accepting[state]
            else min((steps[position] for position in bits(self._follow_sets[state])), default=NEVER)
        )

    def _steps_from_positions(self) -> list[int]:
        """Return the fewest characters from each position to the end of a text, its own included, or NEVER."""
        before: list[list[int]] = [[] for _ in self._follow]
        spend(50 * len(self._follow) + 20 * sum(after.bit_count() for after in self._follow))
        for position, after in enumerate(self._follow):
            for following in bits(after):
                before[following].append(position)
        steps = [NEVER] * len(self._follow)
        level, count = list(bits(self._last)), 1
        while level:
            fresh = [position for position in dict.fromkeys(level) if steps[position] >= NEVER]
            for position in fresh:
                steps[position] = count
            level, count = [earlier for position in fresh for earlier in before[position]], count + 1
        return steps

    @property
    def rows(self) -> list[list[int]]:
        """All rows of a complete automaton."""
        return [row for row in self._rows if row is not None]


def too_many_states(most: int) -> LimitError:
    """Return the error for conditions that require too large an automaton."""
    return LimitError(f"these conditions take an automaton of more than {most:,} states; simplify them")


Joint = tuple[int, ...]


class AtomAutomaton(Protocol):
    """A deterministic automaton over atoms."""

    def row(self, state: int) -> list[int]:
        """Return the state after each atom."""
        ...


class Product:
    """The lazy product of several automata; states are numbered as they are met.

    machines: each over `atoms` atoms; a machine in DEAD stays there, and is part of the joint state like any other
    representative: maps a joint state to its representative, or None for DEAD
    states: the joint states; `row` raises LimitError beyond `max_states` of them, if given
    """

    def __init__(
        self,
        machines: ListOf[AtomAutomaton],
        atoms: int,
        representative: Callable[[Joint], Joint | None],
        max_states: int | None = None,
    ) -> None:
        self._machines = machines
        self._atoms = atoms
        self._representative = representative
        self._max_states = max_states
        start = (0,) * len(machines)
        self._numbers: dict[Joint, int] = {start: 0}
        self.states: list[Joint] = [start]
        self._rows: list[list[int] | None] = [None]

    def row(self, state: int) -> list[int]:
        """Return the state after each atom."""
        known = self._rows[state]
        if known is None:
            pairs = zip(self._machines, self.states[state], strict=True)
            columns = [machine.row(at) if at >= 0 else self._dead_row for machine, at in pairs]
            spend((30 + 20 * len(columns)) * self._atoms)
            numbers = self._numbers
            row: list[int] = []
            for joint in zip(*columns, strict=True):
                number = numbers.get(joint)
                row.append(self._number(joint) if number is None else number)
            known = self._rows[state] = row
        return known

    @cached_property
    def _dead_row(self) -> list[int]:
        return [DEAD] * self._atoms

    def _number(self, joint: Joint) -> int:
        """Number a joint state that was not met before."""
        representative = self._representative(joint)
        number = DEAD if representative is None else self._numbers.get(representative, len(self.states))
        if representative is not None and number == len(self.states):
            if self._max_states is not None and number >= self._max_states:
                raise too_many_states(self._max_states)
            self.states.append(representative)
            self._rows.append(None)
            self._numbers[representative] = number
        self._numbers[joint] = number
        return number

    def complete(self) -> list[list[int]]:
        """Compute and return all rows."""
        rows: list[list[int]] = []
        while len(rows) < len(self.states):
            rows.append(self.row(len(rows)))
        return rows
