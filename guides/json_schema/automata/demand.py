"""Demands on strings: conditions that must or must not be met, and groups of which one demand must be satisfied.

Once one demand of a group is met for good, the group needs no tracking; nor does a demand that has become impossible.
The components of such conditions are set to DEAD. This merges states: a conjunction of many alternatives has far fewer
of them than the full product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, count
from typing import NamedTuple

from ....kernels.answers import DEAD, NEVER
from ...automata.positions import Joint, Subsets
from ...limits import spend

MetConditions = tuple[bool, ...]

FEW_PLACES = 500
"""Maximum number of product states examined for one where both conditions hold."""


@dataclass(frozen=True)
class Demand:
    """A demand on a string.

    conditions: condition numbers, each with whether it must be met; either: the groups
    """

    conditions: tuple[tuple[int, bool], ...] = ()
    either: tuple[tuple[Demand, ...], ...] = ()


ANYTHING = Demand()


class SettledBits:
    """The settled bits as a component of the product; no character changes them."""

    def __init__(self, atoms: int) -> None:
        self._atoms = atoms

    def row(self, state: int) -> list[int]:
        """Return the same bits after each atom."""
        return [state] * self._atoms


class _Found(NamedTuple):
    """The settled bits, and whether a demand is met for good."""

    bits: int
    is_met: bool


_Condition = tuple[int, bool, Subsets, "Steps"]
"""(number, must it be met, automaton, distances of its states)."""


class Progress:
    """The progress of strings towards a demand, given the states of the conditions' automata.

    The last component of a joint state has bits for what is settled: groups met for good, and impossible demands.
    groups: of the demand; bit: says that it is impossible; inner: all bits inside it
    numbers, steps: of the demand around, which shares the distances of conditions
    """

    def __init__(
        self,
        demand: Demand,
        machines: Sequence[Subsets],
        numbers: Iterator[int] | None = None,
        steps: dict[tuple[int, bool], Steps] | None = None,
    ) -> None:
        numbers = count() if numbers is None else numbers
        steps = {} if steps is None else steps
        self.bit = 1 << next(numbers)
        for number, wanted in demand.conditions:
            if (number, wanted) not in steps:
                steps[number, wanted] = Steps(machines[number], wanted)
        self._conditions = [
            (number, wanted, machines[number], steps[number, wanted]) for number, wanted in demand.conditions
        ]
        self.groups = [
            _Group([Progress(one, machines, numbers, steps) for one in group], numbers) for group in demand.either
        ]
        self.inner = sum(group.bit | group.inner for group in self.groups)

    def settled(self, joint: Joint) -> Joint | None:
        """Return the state with irrelevant components set to DEAD; None if the demand has become impossible."""
        if not self.groups:
            spend(10 * len(joint))
            return None if self._is_lost(joint) else joint
        matter: set[int] = set()
        found = self.settle(joint, joint[-1], matter)
        if found is None:
            return None
        places = (at if number in matter else DEAD for number, at in enumerate(joint[:-1]))
        return (*places, found.bits)

    def fewest(self, joint: Joint) -> int:
        """Return a lower bound on the characters needed from a state; NEVER if the demand is impossible."""
        return max(self._steps(joint, total=False))

    def guess(self, joint: Joint) -> int:
        """Estimate the characters needed from a state."""
        return sum(self._steps(joint, total=True))

    def unmet(self, joint: Joint) -> int:
        """Return the number of groups not met for good in a state."""
        return sum(not joint[-1] & group.bit for group in self.groups)

    def _is_lost(self, joint: Joint) -> bool:
        """Test whether one of its own conditions has become impossible."""
        return any(steps[joint[number]] >= NEVER for number, _, _, steps in self._conditions)

    def clashes(self, joint: Joint) -> bool:
        """Test whether two conditions outside groups contradict each other from a state, by a short search."""
        return any(
            (one[1] or other[1]) and _is_apart(one, other, (joint[one[0]], joint[other[0]]))
            for one, other in combinations(self._conditions, 2)
        )

    def settle(self, joint: Joint, bits: int, matter: set[int]) -> _Found | None:
        """Return what is settled; None if the demand is impossible. Adds the machines that still matter to `matter`."""
        spend(100 * (1 + len(self._conditions)))
        if self._is_lost(joint):
            return None
        is_met = True
        for number, wanted, machine, _ in self._conditions:
            matter.add(number)
            is_met = is_met and joint[number] == (machine.everything if wanted else DEAD)
        for group in self.groups:
            if bits & group.bit:
                continue
            found = group.settle(joint, bits, matter)
            if found is None:
                return None
            bits, is_met = found.bits, is_met and found.is_met
        return _Found(bits, is_met)

    def _steps(self, joint: Joint, *, total: bool) -> Iterator[int]:
        """Yield the characters that each condition and unmet group needs: in all if `total`, else at least."""
        yield 0
        for number, _, _, steps in self._conditions:
            yield steps[joint[number]]
        fold = sum if total else max
        for group in self.groups:
            if not joint[-1] & group.bit:
                possible = (one for one in group.parts if not joint[-1] & one.bit)
                yield min(fold(one._steps(joint, total=total)) for one in possible)

    @cached_property
    def is_sure(self) -> bool:
        """True if the demand can be met for good from every state."""
        return all(wanted and can_always_be_met(machine) for _, wanted, machine, _ in self._conditions) and all(
            any(one.is_sure for one in group.parts) for group in self.groups
        )

    def most(self, joint: Joint, turn: Callable[[int], int]) -> int:
        """Return a sufficient length from any state, if the demand can always be met.

        turn: gives the length that meets one condition for good
        """
        total = sum(turn(number) for number, _, machine, _ in self._conditions if joint[number] != machine.everything)
        return total + sum(
            min(one.most(joint, turn) for one in group.parts if one.is_sure)
            for group in self.groups
            if not joint[-1] & group.bit
        )

    def is_met(self, joint: Joint, met_conditions: MetConditions) -> bool:
        """Test whether a text may end in a state with these conditions met."""
        bits = joint[-1]
        return all(met_conditions[number] == wanted for number, wanted, _, _ in self._conditions) and all(
            bits & group.bit or any(not bits & one.bit and one.is_met(joint, met_conditions) for one in group.parts)
            for group in self.groups
        )


class _Group:
    """Demands of which one must be met; its bit says that one is, for good. inner: all bits inside it"""

    def __init__(self, parts: list[Progress], numbers: Iterator[int]) -> None:
        self.bit = 1 << next(numbers)
        self.parts = parts
        self.inner = sum(part.bit | part.inner for part in parts)

    def settle(self, joint: Joint, bits: int, matter: set[int]) -> _Found | None:
        """Return what is settled, as `Progress.settle` does."""
        more: set[int] = set()
        is_open = False
        for part in self.parts:
            if bits & part.bit:
                continue
            found = part.settle(joint, bits, more)
            if found is None:
                bits = bits & ~part.inner | part.bit
            elif found.is_met:
                return _Found(bits & ~self.inner | self.bit, True)
            else:
                bits, is_open = found.bits, True
        matter |= more
        return _Found(bits, False) if is_open else None


class Steps:
    """Fewest characters from each state of an automaton until a condition is as wanted; NEVER if impossible.

    For conditions that must not be met, in automata with too many states, these are underestimates.
    """

    def __init__(self, machine: Subsets, wanted: bool) -> None:
        self._machine, self._wanted = machine, wanted
        self._distances: list[int] | None = None
        self._cache: dict[int, int] = {}
        if not wanted and machine.is_complete:
            self._distances = [*machine.steps_to([not accepting for accepting in machine.accepting], True), 0]

    def __getitem__(self, state: int) -> int:
        if self._distances is not None:
            return self._distances[state]
        if state == DEAD:
            return NEVER if self._wanted else 0
        steps = self._cache.get(state)
        if steps is None:
            steps = self._cache[state] = self._ahead(state)
        return steps

    def _ahead(self, state: int) -> int:
        machine = self._machine
        if self._wanted:
            return machine.steps_to_end(state)
        if state == machine.everything:
            return NEVER
        return int(machine.accepting[state])


def _is_apart(one: _Condition, other: _Condition, start: tuple[int, int]) -> bool:
    """Test whether no string from two states makes both conditions as wanted; False if that takes too long to tell."""
    (_, wanted, machine, steps), (_, also_wanted, also_machine, also_steps) = one, other
    dead_row = [DEAD] * machine.atoms
    seen = {start}
    places = list(seen)
    for at, also in places:
        if (at >= 0 and machine.accepting[at]) == wanted and (
            also >= 0 and also_machine.accepting[also]
        ) == also_wanted:
            return False
        spend(40 * machine.atoms)
        row = dead_row if at < 0 else machine.row(at)
        also_row = dead_row if also < 0 else also_machine.row(also)
        after = set(zip(row, also_row, strict=True)) - seen
        fresh = [pair for pair in after if steps[pair[0]] < NEVER and also_steps[pair[1]] < NEVER]
        seen.update(after)
        places += fresh
        if len(places) > FEW_PLACES:
            return False
    return True


def can_always_be_met(machine: Subsets) -> bool:
    """Test whether no state leads to DEAD, and every state can reach the one that accepts everything."""
    if not machine.is_complete:
        return False
    if machine.everything == DEAD or any(DEAD in row for row in machine.rows):
        return False
    ends = [state == machine.everything for state in range(len(machine.accepting))]
    return all(steps < NEVER for steps in machine.steps_to(ends, False))
