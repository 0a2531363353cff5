"""Demands on strings: conditions to be met or not, and of each of some groups one such demand at least.

Of a group with a demand that is met for good nothing is asked any more, nor of a demand that cannot be met. So where
the automata of such conditions are makes no difference: they are taken to be DEAD, and a conjunction of many
alternatives comes to far fewer states than its automata have together.
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

Met = tuple[bool, ...]

FEW_PLACES = 500
"""Up to how many places of two automata it is looked for one where both may end."""


@dataclass(frozen=True)
class Demand:
    """A demand on a string.

    conditions: the numbers of conditions, each with whether it must be met; either: the groups
    """

    conditions: tuple[tuple[int, bool], ...] = ()
    either: tuple[tuple[Demand, ...], ...] = ()


ANYTHING = Demand()


class Progress:
    """The progress of strings towards what is asked for, told by where the automata of all conditions are.

    Behind the places of these a joint state has the bits of what is settled: of groups that are met for good, and of
    demands that cannot be met.
    """

    def __init__(self, demand: Demand, machines: Sequence[Subsets]) -> None:
        self._part = _Part(demand, machines, count(), {})
        self.has_groups = bool(self._part.groups)

    def settled(self, joint: Joint) -> Joint | None:
        """The state with nothing in it that makes no difference; None if what is asked for cannot be met."""
        part = self._part
        if not part.groups:
            spend(10 * len(joint))
            return None if part.is_lost(joint) else joint
        matter: set[int] = set()
        found = part.settle(joint, joint[-1], matter)
        if found is None:
            return None
        places = (at if number in matter else DEAD for number, at in enumerate(joint[:-1]))
        return (*places, found.bits)

    def fewest(self, joint: Joint) -> int:
        """No more characters than are needed from a state; NEVER if none are enough."""
        return max(self._part.steps(joint, joint[-1], total=False))

    def guess(self, joint: Joint) -> int:
        """About how many characters are needed from a state."""
        return sum(self._part.steps(joint, joint[-1], total=True))

    def unmet(self, joint: Joint) -> int:
        """The number of groups that are not met for good in a state."""
        return sum(not joint[-1] & group.bit for group in self._part.groups)

    def most(self, joint: Joint, turn: Callable[[int], int]) -> int:
        """A sufficient length from any state, where a turn gives what it takes to meet a condition for good."""
        return self._part.most(joint, joint[-1], turn)

    def clashes(self, joint: Joint) -> bool:
        """Tell whether two conditions outside of groups cannot both be met from a state, as far as a few steps tell."""
        return self._part.clashes(joint)

    @cached_property
    def is_sure(self) -> bool:
        """Tell whether what is asked for can be met for good from every state."""
        return self._part.is_sure

    def is_met(self, joint: Joint, met: Met) -> bool:
        """Tell whether a text may end in a state, in which these of the conditions are met."""
        return self._part.is_met(met, joint[-1])


class Settled:
    """The bits of what is settled, which no character changes, as a machine among the others."""

    def __init__(self, atoms: int) -> None:
        self._atoms = atoms

    def row(self, state: int) -> list[int]:
        """The same bits after each atom."""
        return [state] * self._atoms


class _Found(NamedTuple):
    """The bits of what is settled, and whether a demand is met for good."""

    bits: int
    is_met: bool


_Condition = tuple[int, bool, Subsets, "Steps"]
"""A condition by its number, whether it must be met, its automaton, and how far that is from any state."""


class _Part:
    """A demand, whose bit says that it cannot be met; inner: the bits of what is within it.

    steps: those of each condition, as it is wanted, worked out before
    """

    def __init__(
        self,
        demand: Demand,
        machines: Sequence[Subsets],
        numbers: Iterator[int],
        steps: dict[tuple[int, bool], Steps],
    ) -> None:
        self.bit = 1 << next(numbers)
        for number, wanted in demand.conditions:
            if (number, wanted) not in steps:
                steps[number, wanted] = Steps(machines[number], wanted)
        self._own = [(number, wanted, machines[number], steps[number, wanted]) for number, wanted in demand.conditions]
        self.groups = [
            _Group([_Part(one, machines, numbers, steps) for one in group], numbers) for group in demand.either
        ]
        self.inner = sum(group.bit | group.inner for group in self.groups)

    def is_lost(self, joint: Joint) -> bool:
        """Tell whether one of its own conditions cannot be as it is wanted."""
        return any(steps[joint[number]] >= NEVER for number, _, _, steps in self._own)

    def clashes(self, joint: Joint) -> bool:
        """As of `Progress`."""
        return any(
            (one[1] or other[1]) and _is_apart(one, other, (joint[one[0]], joint[other[0]]))
            for one, other in combinations(self._own, 2)
        )

    def settle(self, joint: Joint, bits: int, matter: set[int]) -> _Found | None:
        """The part that is settled; None if the demand cannot be met. Adds the machines to `matter` that still do."""
        spend(100 * (1 + len(self._own)))
        if self.is_lost(joint):
            return None
        is_met = True
        for number, wanted, machine, _ in self._own:
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

    def steps(self, joint: Joint, bits: int, *, total: bool) -> Iterator[int]:
        """The characters that each condition and each group that is not met takes, in all or at least."""
        yield 0
        for number, _, _, steps in self._own:
            yield steps[joint[number]]
        fold = sum if total else max
        for group in self.groups:
            if not bits & group.bit:
                yield min(fold(one.steps(joint, bits, total=total)) for one in group.parts if not bits & one.bit)

    @cached_property
    def is_sure(self) -> bool:
        """Tell whether it can be met for good, whatever came before."""
        return all(wanted and can_always_be_met(machine) for _, wanted, machine, _ in self._own) and all(
            any(one.is_sure for one in group.parts) for group in self.groups
        )

    def most(self, joint: Joint, bits: int, turn: Callable[[int], int]) -> int:
        """As of `Progress`, of what is sure."""
        own = sum(turn(number) for number, _, machine, _ in self._own if joint[number] != machine.everything)
        return own + sum(
            min(one.most(joint, bits, turn) for one in group.parts if one.is_sure)
            for group in self.groups
            if not bits & group.bit
        )

    def is_met(self, met: Met, bits: int) -> bool:
        """Tell whether a text is as it is asked for that meets these conditions."""
        return all(met[number] == wanted for number, wanted, _, _ in self._own) and all(
            bits & group.bit or any(not bits & one.bit and one.is_met(met, bits) for one in group.parts)
            for group in self.groups
        )


class _Group:
    """Demands of which one is to be met; its bit says that one is for good. inner: the bits of what is within it."""

    def __init__(self, parts: list[_Part], numbers: Iterator[int]) -> None:
        self.bit = 1 << next(numbers)
        self.parts = parts
        self.inner = sum(part.bit | part.inner for part in parts)

    def settle(self, joint: Joint, bits: int, matter: set[int]) -> _Found | None:
        """As of a part."""
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
    """For each state of an automaton the fewest characters until a condition is as it is wanted; NEVER if it cannot be.

    For what must not be met they are guesses, and too low, where the automaton has too many states.
    """

    def __init__(self, machine: Subsets, wanted: bool) -> None:
        self._machine, self._wanted = machine, wanted
        self._all: list[int] | None = None
        self._told: dict[int, int] = {}
        if not wanted and machine.is_complete:
            self._all = [*machine.steps_to([not accepting for accepting in machine.accepting], True), 0]

    def __getitem__(self, state: int) -> int:
        if self._all is not None:
            return self._all[state]
        if state == DEAD:
            return NEVER if self._wanted else 0
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


def _is_apart(one: _Condition, other: _Condition, start: tuple[int, int]) -> bool:
    """Tell whether no string goes on from two places with both conditions as wanted; False if that takes long."""
    (_, wanted, machine, steps), (_, also_wanted, also_machine, also_steps) = one, other
    nowhere = [DEAD] * machine.atoms
    seen = {start}
    places = list(seen)
    for at, also in places:
        if (at >= 0 and machine.accepting[at]) == wanted and (
            also >= 0 and also_machine.accepting[also]
        ) == also_wanted:
            return False
        spend(40 * machine.atoms)
        row = nowhere if at < 0 else machine.row(at)
        also_row = nowhere if also < 0 else also_machine.row(also)
        after = set(zip(row, also_row, strict=True)) - seen
        fresh = [pair for pair in after if steps[pair[0]] < NEVER and also_steps[pair[1]] < NEVER]
        seen.update(after)
        places += fresh
        if len(places) > FEW_PLACES:
            return False
    return True


def can_always_be_met(machine: Subsets) -> bool:
    """Tell whether from every state, met as DEAD too, a state is reached from which every string is accepted."""
    if not machine.is_complete:
        return False
    if machine.everything == DEAD or any(DEAD in row for row in machine.rows):
        return False
    ends = [state == machine.everything for state in range(len(machine.accepting))]
    return all(steps < NEVER for steps in machine.steps_to(ends, False))
