"""Strings under many conditions at once: automata read side by side, whose common states are made when reached.

All states of such a product may be more than there is room for. So nothing is worked out up front: whether a state
can be completed is found by a search that prefers states nearer to what is wanted, and ends at states known before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from heapq import heappop, heappush

from ....errors import LimitError
from ....kernels.answers import DEAD, NEVER
from ...automata.conditions import subsets_of
from ...automata.numbers import Numbers
from ...automata.positions import Subsets
from ...automata.product import Joint, Product
from ...limits import spend
from ...syntax import Alternation, Literal, Node, Ranges
from ..algebra.cases import String
from ..read.dialects import is_writable
from ..read.formats import PATTERNS
from ..read.patterns import parse
from .spelling import bytes_of

Met = tuple[bool, ...]
Verdict = Callable[[Met], int]
"""The bytes after a string that meets these of the conditions and not the others; NEVER if it must not."""


class Conjunction:
    """The strings whose conditions, which they meet or not, a verdict allows, of `least` to `most` characters.

    wanted: for each condition whether it must be met; None where only the verdict tells
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        verdict: Verdict,
        wanted: Sequence[bool] | None = None,
        least: int = 0,
        most: int | None = None,
    ) -> None:
        self.atoms, self._machines = subsets_of(nodes)
        self._product = Product(self._machines, len(self.atoms), self._is_lost)
        self._verdict = verdict
        self._wanted = wanted
        self._least, self._most = least, most
        self._costs = [bytes_of(ranges) for ranges in self.atoms]
        self._order = sorted(range(len(self.atoms)), key=lambda atom: (self._costs[atom], atom))
        self._far = None if wanted is None else [Steps(*pair) for pair in zip(self._machines, wanted, strict=True)]
        # A state is one of the product, and the length as far as it matters.
        self._numbers: Numbers[tuple[int, int]] = Numbers()
        self._rows: dict[int, list[int]] = {}
        self._needed: dict[int, int] = {}
        self._longest: dict[int, int] = {}
        self.start = self._numbers[0, 0]

    def _at(self, state: int) -> tuple[Joint, int]:
        """Where the automata of all conditions are in a state, and the length as far as it matters."""
        place, length = self._numbers.states[state]
        return self._product.states[place], length

    def row(self, state: int) -> list[int]:
        """The state after each atom, DEAD where a condition that must be met cannot be any more."""
        row = self._rows.get(state)
        if row is None:
            place, length = self._numbers.states[state]
            longer = length + 1 if self._most is not None else min(length + 1, self._least)
            spend(50 * len(self.atoms))
            if self._most is not None and longer > self._most:
                row = [DEAD] * len(self.atoms)
            else:
                numbers = self._numbers
                row = [
                    DEAD if at == DEAD or self._is_late(at, longer) else numbers[at, longer]
                    for at in self._product.row(place)
                ]
            self._rows[state] = row
        return row

    def _is_late(self, place: int, length: int) -> bool:
        """Whether some condition takes more characters from here than there may be."""
        if self._most is None or self._far is None:
            return False
        steps = self._longest.get(place)
        if steps is None:
            steps = max(far[at] for far, at in zip(self._far, self._product.states[place], strict=True))
            self._longest[place] = steps
        return length + steps > self._most

    def _is_lost(self, joint: Joint) -> bool:
        return self._far is not None and any(steps[at] >= NEVER for steps, at in zip(self._far, joint, strict=True))

    def cost_at_end(self, state: int) -> int:
        """The bytes after a string that ends in a state, NEVER if none may."""
        return NEVER if self._numbers.states[state][1] < self._least else self._verdict(self.met(state))

    def met(self, state: int) -> Met:
        """Which conditions a string meets that ends in a state."""
        places, _ = self._at(state)
        return tuple(at >= 0 and machine.accepting[at] for machine, at in zip(self._machines, places, strict=True))

    def needed(self, state: int) -> int:
        """The bytes of a short way from a state to the end, NEVER if there is none."""
        if state not in self._needed:
            self._search(state)
        return self._needed[state]

    def _search(self, start: int) -> None:
        """Find a way to an end, and remember what it takes from every state on it; or that there is none."""
        came_from: dict[int, tuple[int, int]] = {start: (-1, -1)}
        waiting = [(self._distance(start), 0, start)]
        while waiting:
            state = heappop(waiting)[2]
            cost = self._needed.get(state)
            if cost is None:
                cost = self.cost_at_end(state)
            if cost < NEVER:
                self._retrace(state, cost, came_from)
                return
            row = self.row(state)
            spend(100 * len(row))
            for atom in self._order:
                after = row[atom]
                if after >= 0 and after not in came_from and self._needed.get(after, 0) < NEVER:
                    came_from[after] = (state, atom)
                    heappush(waiting, (self._distance(after), len(came_from), after))
        self._needed.update(dict.fromkeys(came_from, NEVER))

    def _retrace(self, state: int, cost: int, came_from: dict[int, tuple[int, int]]) -> None:
        self._needed.setdefault(state, cost)
        before, atom = came_from[state]
        while before >= 0:
            cost = self._needed[before] = min(cost + self._costs[atom], NEVER - 1)
            before, atom = came_from[before]

    def _distance(self, state: int) -> int:
        """How far a state is from what is wanted, at a guess."""
        places, length = self._at(state)
        missing = max(self._least - length, 0)
        if self._far is None:
            return missing
        return missing + sum(steps[at] for steps, at in zip(self._far, places, strict=True))

    def example(self, choose: Callable[[Ranges], str]) -> str | None:
        """A string, its characters chosen from sets that all conditions take alike; None if there is none."""
        if self.needed(self.start) >= NEVER:
            return None
        chars: list[str] = []
        state = self.start
        while self._needed[state] != self.cost_at_end(state):
            row = self.row(state)
            left = self._needed[state]
            atom = next(
                atom
                for atom in self._order
                if row[atom] >= 0 and self._needed.get(row[atom], NEVER) + self._costs[atom] == left
            )
            chars.append(choose(self.atoms[atom]))
            state = row[atom]
        return "".join(chars)

    def promised(self, state: int) -> int:
        """The bytes of some way from a state to the end, as far as they are known without looking for it.

        Where every text can be continued this is one condition met for good after the other, each from wherever it
        takes longest; else as `needed`.
        """
        if not self.is_endless:
            return self.needed(state)
        places, length = self._at(state)
        missing = max(self._least - length, 0) * min(self._costs)
        turns = zip(self._machines, self._turns, places, strict=True)
        unmet = sum(turn for machine, turn, at in turns if at != machine.everything)
        return min(missing + unmet + self._verdict((True,) * len(places)), NEVER - 1)

    @cached_property
    def is_endless(self) -> bool:
        """Whether every text can be continued to a string: each condition can be met for good, whatever came before."""
        return (
            self._most is None
            and self._verdict((True,) * len(self._machines)) < NEVER
            and all(_can_always_be_met(machine) for machine in self._machines)
        )

    @cached_property
    def _turns(self) -> list[int]:
        """The bytes that meet each condition for good, from wherever that takes most; for what is endless."""
        return [max(_bytes_to(machine, machine.everything, self._costs)) for machine in self._machines]


def conditions_of(case: String) -> list[tuple[Node, bool]]:
    """The patterns and formats of a set, each with whether it must match."""
    return [
        *((parse(pattern), True) for pattern in sorted(case.patterns)),
        *((parse(PATTERNS[name]), True) for name in sorted(case.formats)),
        *((parse(pattern), False) for pattern in sorted(case.not_patterns)),
        *((parse(PATTERNS[name]), False) for name in sorted(case.not_formats)),
    ]


def conjunction(case: String) -> Conjunction:
    """The strings of a set of patterns, formats, lengths and exclusions."""
    conditions = conditions_of(case)
    if case.excluded:
        conditions.append((any_of(case.excluded), False))
    wanted = tuple(wanted for _, wanted in conditions)
    nodes = [node for node, _ in conditions]
    try:
        return Conjunction(
            nodes, lambda met: 0 if met == wanted else NEVER, wanted, least=case.min_length, most=case.max_length
        )
    except LimitError as error:
        raise LimitError(f"{error}: {listed(case)}") from None


def listed(case: String) -> str:
    """The conditions of a set, for a message."""
    positive = sorted(case.patterns) + sorted(case.formats)
    negative = sorted(case.not_patterns) + sorted(case.not_formats)
    return ", ".join([*map(repr, positive), *(f"not {name!r}" for name in negative)])[:400]


def any_of(texts: Iterable[str]) -> Node:
    """Any of these texts, but for those that cannot be written."""
    return Alternation(tuple(Literal(text.encode()) for text in sorted(texts) if is_writable(text)))


class Steps:
    """For each state of an automaton the fewest characters until a condition is as it is wanted; NEVER if it cannot be.

    Where the automaton has too many states these are told one by one. Then they are guesses, and too low, for what must
    not be met.
    """

    def __init__(self, machine: Subsets, wanted: bool) -> None:
        self._machine, self._wanted = machine, wanted
        self._dead = NEVER if wanted else 0
        self._all: list[int] | None = None
        self._told: dict[int, int] = {}
        if _is_complete(machine):
            ends = [accepting == wanted for accepting in machine.accepting]
            self._all = [*machine.steps_to(ends, not wanted), self._dead]

    def __getitem__(self, state: int) -> int:
        if self._all is not None:
            return self._all[state]
        if state == DEAD:
            return self._dead
        steps = self._told.get(state)
        if steps is None:
            steps = self._told[state] = self._ahead(state)
        return steps

    def _ahead(self, state: int) -> int:
        machine = self._machine
        if self._wanted:
            return machine.steps_to_end(state)
        if state == machine.everything:
            return NEVER
        return int(machine.accepting[state])


def _is_complete(machine: Subsets) -> bool:
    """Whether all states of an automaton have been worked out; if they are too many they are made on demand."""
    if machine.max_states is None:
        return False
    try:
        machine.complete()
    except LimitError:
        spend(0)  # raises the error again where it is the call that takes too much
        machine.max_states = None
        return False
    return True


def _can_always_be_met(machine: Subsets) -> bool:
    """Whether from every state, met as DEAD too, a state is reached from which every string is accepted."""
    if not _is_complete(machine):
        return False
    if machine.everything == DEAD or any(DEAD in row for row in machine.rows):
        return False
    ends = [state == machine.everything for state in range(len(machine.accepting))]
    return all(steps < NEVER for steps in machine.steps_to(ends, False))


def _bytes_to(machine: Subsets, end: int, costs: Sequence[int]) -> list[int]:
    """For each state of a complete machine the bytes of a way of fewest characters to a state that all lead to."""
    steps = machine.steps_to([state == end for state in range(len(machine.accepting))], False)
    needed = [0] * len(steps)
    for state in sorted(range(len(steps)), key=steps.__getitem__):
        if steps[state]:
            spend(20 * len(costs))
            ways = zip(machine.row(state), costs, strict=True)
            needed[state] = min(needed[after] + cost for after, cost in ways if steps[after] == steps[state] - 1)
    return needed
