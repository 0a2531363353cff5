"""Strings of an automaton whose length is bounded: which states can still be completed at which length.

The lengths fall into stretches. In most of them a state can be completed or not whatever the length is; there
a counter tells the length. Near the bounds it depends on the length, and each length has its own states.
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
from .spelling import Alphabet, Escapes, Ways, bytes_of

MAX_REACHED = 32


class Stretched(NamedTuple):
    """All states of a free stretch, lowered once for every graph: three nodes of the fragment for each state.

    numbers: each state that has an end, with its number i of n. Node i is that at which the stretch is left when it is
    full, not defined; n + i the one after a character; 2n + i the one before a character. needed: of the first two of
    each, the fewest bytes up to behind the closing quote
    """

    fragment: Fragment
    numbers: dict[int, int]
    needed: list[int]

    @property
    def held_bytes(self) -> int:
        """About how much memory this takes."""
        return self.fragment.held_bytes + 150 * len(self.numbers)


class Counting:
    """An automaton together with bounds on the number of characters, `least` to `most` (None: without bound).

    edges: for each state the states after it from which there is an end, with the fewest bytes of a character
    to_end: for each state the fewest characters to an end, NEVER if there is none
    steady: up to this length, the states that can be completed are the same; 0 if there is no such stretch
    turn, steady_end: the most bytes that a further character takes up to there, and that are needed from there
    free: from `least` to this length, every state can be completed; `least` if there is no such stretch
    stretched: all states of a free stretch lowered, once they are; None where that is too large
    begun: the spellings in which they have been lowered one after the other
    """

    def __init__(self, automaton: Automaton, least: int = 0, most: int | None = None) -> None:
        self.automaton = automaton
        self.to_end = steps_to(automaton.rows, automaton.accepting)
        self.edges = self._edges()
        self._bytes_to_end = self._bytes()
        self._farthest = max((steps for steps in self.to_end if steps < NEVER), default=0)
        self._common: int | None = None
        self._endless: dict[int, Ranges] = {}
        self._unions: dict[int, Ranges] = {}  # by the bits of atoms, which many states have in common
        self._atoms_to: dict[int, dict[int, int]] = {}
        self._ways: dict[tuple[int, Escapes], Ways] = {}
        self._alphabets: dict[Escapes, Alphabet] = {}
        self.stretched: dict[Escapes, Stretched | None] = {}
        self.begun: set[Escapes] = set()
        self._bound(least, most)

    def within(self, least: int, most: int | None) -> Counting:
        """The same strings with other bounds; what does not depend on these is shared."""
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
        """About how much memory this takes now."""
        states, atoms = len(self.automaton.rows), len(self.automaton.atoms)
        found = len(self._endless) + len(self._atoms_to) + len(self._ways)
        pairs = sum(map(len, self.automaton.atoms)) * (1 + len(self._alphabets))
        # Shared by strings of all bounds, and weighed once: by those without a greatest length, which are kept as well.
        lowered = [] if self.most is not None else list(self.stretched.values())
        copied = sum(each.held_bytes for each in lowered if each is not None)
        return states * (300 + 16 * atoms + 8 * len(self._needed)) + 200 * pairs + found * (500 + 50 * atoms) + copied

    @property
    def is_empty(self) -> bool:
        """Tell whether there is no text."""
        return self.bytes_needed(self.automaton.start, 0) >= NEVER

    def all_alive(self, length: int) -> bool:
        """Tell whether every state that has an end can be completed at this length."""
        return self.least <= length and (self.most is None or length + self._farthest <= self.most)

    def bytes_needed(self, state: int, length: int) -> int:
        """The bytes of a short way to the end for a text of this length, NEVER if there is none."""
        if length < self.steady:
            way = (self.steady - length) * self.turn + self.steady_end
            return way if self._needed[self.steady][state] < NEVER else NEVER
        if length < self.least:
            return self._needed[length][state]
        if self.most is not None and length + self.to_end[state] > self.most:
            return NEVER
        return self._bytes_to_end[state]

    def alphabet(self, escapes: Escapes) -> Alphabet:
        """The automaton's atoms, prepared for being spelt."""
        known = self._alphabets.get(escapes)
        if known is None:
            known = self._alphabets[escapes] = Alphabet(self.automaton.atoms, escapes)
        return known

    def ways(self, state: int, escapes: Escapes) -> Ways:
        """The characters that lead from a state to others."""
        known = self._ways.get((state, escapes))
        if known is None:
            known = self._ways[state, escapes] = self.alphabet(escapes).ways(self.automaton.rows[state])
        return known

    def endless(self, state: int) -> Ranges:
        """Characters of which any text leads from a state to states that have an end."""
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
        """The atoms, as bits, that lead to each state that has an end."""
        known = self._atoms_to.get(state)
        if known is None:
            known = dict.fromkeys(self.edges[state], 0)
            for atom, after in enumerate(self.automaton.rows[state]):
                if after in known:
                    known[after] |= 1 << atom
            self._atoms_to[state] = known
        return known

    def _allowed(self, state: int) -> int:
        """The atoms, as bits, after which there is an end."""
        return sum(self._atoms(state).values())

    def _everywhere(self) -> int:
        """The atoms that every state with an end allows."""
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
        """The bytes of the fewest characters to an end."""
        needed = [0 if steps == 0 else NEVER for steps in self.to_end]
        for state in sorted(range(len(needed)), key=self.to_end.__getitem__):
            steps = self.to_end[state]
            if 0 < steps < NEVER:
                needed[state] = min(
                    cost + needed[after] for after, cost in self.edges[state].items() if self.to_end[after] == steps - 1
                )
        return needed

    def _look_back(self) -> None:
        """Work out from `least` backwards which states can be completed, until that does not change any more."""
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
