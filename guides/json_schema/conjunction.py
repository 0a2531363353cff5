"""Strings under many conditions at once: automata read side by side, whose common states are made when reached.

All states of such a product may be more than there is room for. So nothing is worked out up front: whether a state
can be completed is found by a search that prefers states nearer to what is wanted, and ends at states known before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from heapq import heappop, heappush

from ...errors import LimitError
from ..limits import spend
from ..lower import Lowering
from ..syntax import Alternation, Literal, Node, Ranges
from .cases import String
from .characters import DEAD, Condition, ConditionMachine, collect, partition
from .counting import NEVER
from .dialects import is_writable
from .formats import PATTERNS
from .patterns import parse
from .reading import Alphabet, CharacterEdges
from .spelling import PLAIN, Escapes, bytes_of

Joint = tuple[int, ...]
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
        found: set[Ranges] = set()
        for node in nodes:
            collect(node, found)
        self.atoms, classes = partition(found)
        self._machines = [ConditionMachine(node, classes, len(self.atoms), True) for node in nodes]
        self._verdict = verdict
        self._wanted = wanted
        self._least, self._most = least, most
        self._costs = [bytes_of(ranges) for ranges in self.atoms]
        self._order = sorted(range(len(self.atoms)), key=lambda atom: (self._costs[atom], atom))
        self._far = None if wanted is None else [_steps(*pair) for pair in zip(self._machines, wanted, strict=True)]
        self._numbers: dict[Joint, int] = {}
        self._states: list[Joint] = []
        self._rows: list[list[int] | None] = []
        self._needed: dict[int, int] = {}
        self.start = self._number((0,) * len(self._machines) + (0,))

    def _number(self, joint: Joint) -> int:
        known = self._numbers.get(joint)
        if known is None:
            known = self._numbers[joint] = len(self._states)
            self._states.append(joint)
            self._rows.append(None)
        return known

    def row(self, state: int) -> list[int]:
        """The state after each atom, DEAD where a condition that must be met cannot be any more."""
        row = self._rows[state]
        if row is None:
            *places, length = self._states[state]
            nowhere = [DEAD] * len(self.atoms)
            columns = [
                machine.row(at) if at >= 0 else nowhere for machine, at in zip(self._machines, places, strict=True)
            ]
            spend(len(self.atoms) * (100 + 40 * len(columns)))
            longer = length + 1 if self._most is not None else min(length + 1, self._least)
            if self._most is not None and longer > self._most:
                row = nowhere
            else:
                lengths = [longer] * len(self.atoms)
                row = [DEAD if self._is_lost(at) else self._number(at) for at in zip(*columns, lengths, strict=True)]
            self._rows[state] = row
        return row

    def _is_lost(self, joint: Joint) -> bool:
        return self._far is not None and any(
            steps[at] >= NEVER for steps, at in zip(self._far, joint[:-1], strict=True)
        )

    def cost_at_end(self, state: int) -> int:
        """The bytes after a string that ends in a state, NEVER if none may."""
        return NEVER if self._states[state][-1] < self._least else self._verdict(self.met(state))

    def met(self, state: int) -> Met:
        """Which conditions a string meets that ends in a state."""
        places = self._states[state][:-1]
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
        joint = self._states[state]
        missing = max(self._least - joint[-1], 0)
        if self._far is None:
            return missing
        return missing + sum(steps[at] for steps, at in zip(self._far, joint[:-1], strict=True))

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
        *places, length = self._states[state]
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


def conditions_of(case: String) -> list[Condition]:
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


def _steps(machine: ConditionMachine, wanted: bool) -> list[int]:
    """For each state the fewest characters to one that meets the condition, or does not; the last is for DEAD."""
    machine.complete()
    ends = [accepting == wanted for accepting in machine.accepting]
    return [*machine.steps_to(ends, not wanted), NEVER if wanted else 0]


def _can_always_be_met(machine: ConditionMachine) -> bool:
    """Whether from every state, met as DEAD too, a state is reached from which every string is accepted."""
    machine.complete()
    if machine.everything == DEAD or any(DEAD in row for row in machine.rows):
        return False
    ends = [state == machine.everything for state in range(len(machine.accepting))]
    return all(steps < NEVER for steps in machine.steps_to(ends, False))


def _bytes_to(machine: ConditionMachine, end: int, costs: Sequence[int]) -> list[int]:
    """For each state of a complete machine the bytes of a way of fewest characters to a state that all lead to."""
    steps = machine.steps_to([state == end for state in range(len(machine.accepting))], False)
    needed = [0] * len(steps)
    for state in sorted(range(len(steps)), key=steps.__getitem__):
        if steps[state]:
            spend(20 * len(costs))
            ways = zip(machine.row(state), costs, strict=True)
            needed[state] = min(needed[after] + cost for after, cost in ways if steps[after] == steps[state] - 1)
    return needed


class ConjunctionPlaces:
    """Adds the strings of a `Conjunction` to the current rule of a graph, each state a node, defined when reached.

    after: gives the node behind the closing quote, for a state in which a string may end
    end, beyond: a node, and how many bytes further than the verdict counts it lies
    """

    def __init__(
        self,
        lowering: Lowering,
        escapes: Escapes,
        strings: Conjunction,
        after: Callable[[int], int],
        end: int,
        beyond: int = 0,
    ) -> None:
        self._graph = lowering.graph
        self._escapes: Escapes = escapes
        self._strings = strings
        self._alphabet = Alphabet(strings.atoms, escapes)
        self._edges = CharacterEdges(lowering, self._alphabet)
        self._after = after
        self._end = end
        self._beyond = beyond + 1
        self._nodes: dict[int, int] = {}

    def entry(self) -> int:
        """The node before the opening quote."""
        return self._graph.node(((0x22, 0x22, self._node(self._strings.start)),))

    def _node(self, state: int) -> int:
        node = self._nodes.get(state)
        if node is None:
            node = self._nodes[state] = self._graph.lazy_node(
                lambda node: self._define(node, state), lambda: self._beyond + self._strings.promised(state), self._end
            )
        return node

    def _define(self, node: int, state: int) -> None:
        strings = self._strings
        row = strings.row(state)
        spend(2000)
        targets = {after: self._node(after) for after in set(row) if after >= 0 and strings.promised(after) < NEVER}
        edges = self._edges.of(self._alphabet.ways(row), targets)
        if strings.cost_at_end(state) < NEVER:
            edges.append((0x22, 0x22, self._after(state)))
        if strings.is_endless:
            self._graph.promise_span(node, PLAIN)
        self._graph.define(node, edges)
