"""Automata with bounds on the length of their strings: which states can be completed at which length.

In long stretches of lengths this does not depend on the length; there a counter is enough. Near the bounds each length
has its own states.
"""

from __future__ import annotations

from copy import copy
from typing import NamedTuple

from ....kernels.answers import NEVER
from ...automata.charsets import bits, normalise
from ...automata.conditions import Automaton
from ...automata.positions import steps_to
from ...graph.array_graph import Fragment
from ...limits import spend
from ...syntax import Ranges
from .spelling import Alphabet, CharacterTransitions, Escapes, bytes_of

MAX_REACHED = 32


class LoweredStretch(NamedTuple):
    """All states of a free stretch, lowered once for all graphs: three fragment nodes per state.

    numbers: the number i of each live state, of n. Node i, undefined, is where a full stretch is left; n + i follows a
    character; 2n + i precedes one
    needed: for nodes i and n + i, the fewest bytes to after the closing quote
    """

    fragment: Fragment
    numbers: dict[int, int]
    needed: list[int]

    @property
    def held_bytes(self) -> int:
        """Approximate memory."""
        return self.fragment.held_bytes + 150 * len(self.numbers)


class Counting:
    """An automaton with bounds on the number of characters, `least` to `most` (None: unbounded).

    edges: for each state its live successors, with the fewest bytes of a character
    to_end: for each state the fewest characters to an end, NEVER if there is none
    steady: up to this length the live states are constant; 0 if there is no such stretch
    turn, steady_end: most bytes of a further character within it, and most bytes needed at its end
    free: from `least` to this length every state can be completed; `least` if there is no such stretch
    stretched: the lowered free stretch, by spelling; None if it is too large
    deferred: spellings in which the stretch was lowered state by state at first
    """

    def __init__(self, automaton: Automaton, least: int = 0, most: int | None = None) -> None:
        self.automaton = automaton
        self.to_end = steps_to(automaton.rows, automaton.accepting)
        self.edges = self._edges()
        self._bytes_to_end = self._bytes()
        self._farthest = max((steps for steps in self.to_end if steps < NEVER), default=0)
        self._common: int | None = None
        self._endless: dict[int, Ranges] = {}
        self._unions: dict[int, Ranges] = {}  # by atom bits, which many states share
        self._atoms_to: dict[int, dict[int, int]] = {}
        self._ways: dict[tuple[int, Escapes], CharacterTransitions] = {}
        self._alphabets: dict[Escapes, Alphabet] = {}
        self.stretched: dict[Escapes, LoweredStretch | None] = {}
        self.deferred: set[Escapes] = set()
        self._bound(least, most)

    def within(self, least: int, most: int | None) -> Counting:
        """Return the same strings with other bounds; data independent of them is shared."""
        other = copy(self)
        other._bound(least, most)
        return other

    def _bound(self, least: int, most: int | None) -> None:
        self.least = least
        self.most = most
        self.steady = 0
        self.turn = 0
        self.steady_end = 0
        self._needed: dict[int, list[int]] = {}
        self.free = least if most is None else max(least, most - self._farthest)
        if least:
            self._look_back()

    @property
    def held_bytes(self) -> int:
        """Approximate current memory."""
        states, atoms = len(self.automaton.rows), len(self.automaton.atoms)
        found = len(self._endless) + len(self._atoms_to) + len(self._ways)
        pairs = sum(map(len, self.automaton.atoms)) * (1 + len(self._alphabets))
        # Shared by strings of all bounds, and counted once: for the unbounded ones, which are cached too.
        lowered = [] if self.most is not None else list(self.stretched.values())
        copied = sum(each.held_bytes for each in lowered if each is not None)
        return states * (300 + 16 * atoms + 8 * len(self._needed)) + 200 * pairs + found * (500 + 50 * atoms) + copied

    @property
    def is_empty(self) -> bool:
        """True if there is no text."""
        return self.bytes_needed(self.automaton.start, 0) >= NEVER

    def all_alive(self, length: int) -> bool:
        """Test whether every live state can be completed at this length."""
        return self.least <= length and (self.most is None or length + self._farthest <= self.most)

    def bytes_needed(self, state: int, length: int) -> int:
        """Return the bytes of a short way to the end from a length, NEVER if there is none."""
        if length < self.steady:
            way = (self.steady - length) * self.turn + self.steady_end
            return way if self._needed[self.steady][state] < NEVER else NEVER
        if length < self.least:
            return self._needed[length][state]
        if self.most is not None and length + self.to_end[state] > self.most:
            return NEVER
        return self._bytes_to_end[state]

    def alphabet(self, escapes: Escapes) -> Alphabet:
        """Return the automaton's atoms, prepared for spelling."""
        known = self._alphabets.get(escapes)
        if known is None:
            known = self._alphabets[escapes] = Alphabet(self.automaton.atoms, escapes)
        return known

    def ways(self, state: int, escapes: Escapes) -> CharacterTransitions:
        """Return the characters that lead from a state to others."""
        known = self._ways.get((state, escapes))
        if known is None:
            known = self._ways[state, escapes] = self.alphabet(escapes).ways(self.automaton.rows[state])
        return known

    def endless(self, state: int) -> Ranges:
        """Return characters that can follow a state any number of times, in any order, with all states live."""
        known = self._endless.get(state)
        if known is None:
            known = self._endless[state] = self._find_endless(state)
        return known

    def _find_endless(self, state: int) -> Ranges:
        allowed = self._allowed(state)
        while True:
            reached = {state}
            queue = [state]
            for place in queue:
                spend(100 * len(self._atoms(place)))
                new = {after for after, atoms in self._atoms(place).items() if atoms & allowed} - reached
                reached |= new
                queue += new
                if len(reached) > MAX_REACHED:
                    return self._ranges(self._everywhere())
            before = allowed
            for place in reached:
                allowed &= self._allowed(place)
            if allowed == before:
                return self._ranges(allowed)

    def _atoms(self, state: int) -> dict[int, int]:
        """Return the atoms, as bits, to each live successor."""
        known = self._atoms_to.get(state)
        if known is None:
            known = dict.fromkeys(self.edges[state], 0)
            for atom, after in enumerate(self.automaton.rows[state]):
                if after in known:
                    known[after] |= 1 << atom
            self._atoms_to[state] = known
        return known

    def _allowed(self, state: int) -> int:
        """Return the atoms, as bits, to live successors."""
        return sum(self._atoms(state).values())

    def _everywhere(self) -> int:
        """Return the atoms that every live state allows."""
        known = self._common
        if known is None:
            known = -1
            for state, steps in enumerate(self.to_end):
                if known and steps < NEVER:
                    known &= self._allowed(state)
            self._common = known
        return known

    def _ranges(self, atoms: int) -> Ranges:
        known = self._unions.get(atoms)
        if known is None:
            known = normalise(pair for atom in bits(atoms) for pair in self.automaton.atoms[atom])
            self._unions[atoms] = known
        return known

    def _edges(self) -> list[dict[int, int]]:
        costs = [bytes_of(ranges) for ranges in self.automaton.atoms]
        order = sorted(range(len(costs)), key=lambda atom: -costs[atom])
        ordered_costs = [costs[atom] for atom in order]
        edges: list[dict[int, int]] = []
        spend(20 * len(costs) * len(self.automaton.rows))
        for row in self.automaton.rows:
            # The cheapest character to a state comes last, and stays.
            found = dict(zip([row[atom] for atom in order], ordered_costs, strict=True))
            edges.append({after: cost for after, cost in found.items() if after >= 0 and self.to_end[after] < NEVER})
        return edges

    def _bytes(self) -> list[int]:
        """Return the bytes of the ways with fewest characters to an end."""
        needed = [0 if steps == 0 else NEVER for steps in self.to_end]
        for state in sorted(range(len(needed)), key=self.to_end.__getitem__):
            steps = self.to_end[state]
            if 0 < steps < NEVER:
                needed[state] = min(
                    cost + needed[after] for after, cost in self.edges[state].items() if self.to_end[after] == steps - 1
                )
        return needed

    def _look_back(self) -> None:
        """Compute backwards from `least` which states can be completed, until the set is constant."""
        length = self.least
        needed = [self.bytes_needed(state, length) for state in range(len(self.edges))]
        self._needed[length] = needed
        edges_at_all = sum(map(len, self.edges))
        while length:
            spend(100 + 20 * edges_at_all + 30 * len(needed))
            earlier = [
                min((cost + needed[after] for after, cost in edges.items()), default=NEVER) for edges in self.edges
            ]
            earlier = [min(cost, NEVER) for cost in earlier]
            if length > 1 and all((a < NEVER) == (b < NEVER) for a, b in zip(earlier, needed, strict=True)):
                self._settle(length, needed)
                return
            length -= 1
            needed = self._needed[length] = earlier

    def _settle(self, length: int, needed: list[int]) -> None:
        self.steady = length
        alive = [state for state, cost in enumerate(needed) if cost < NEVER]
        self.steady_end = max((needed[state] for state in alive), default=0)
        self.turn = max(
            (min(cost for after, cost in self.edges[state].items() if needed[after] < NEVER) for state in alive),
            default=0,
        )
