"""Conjunctions of disjunctions, held as they are: their product may have a case for every combination.

A case holds them as groups (`either`), of each of which one alternative holds. What is here is for strings and numbers;
objects know more of what their groups ask for, see `objects.narrowed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from ...limits import spend

Case = TypeVar("Case", bound=Any)


class ManyError(Exception):
    """Objects or strings fall into so many cases that their alternatives are to be held in groups."""


@dataclass(frozen=True, slots=True)
class GroupKind(Generic[Case]):
    """The operations of sets that have groups, as their attribute `either`.

    intersect: what is in both of two; None if nothing is, as far as that is seen at first sight
    covers: whether the first has all of the second, as far as that is seen at first sight
    holding: the set of what is in each of some groups
    """

    intersect: Callable[[Case, Case], Case | None]
    covers: Callable[[Case, Case], bool]
    holding: Callable[[Iterable[tuple[Case, ...]]], Case]

    def within(self, bare: Case, groups: Iterable[tuple[Case, ...]]) -> Case | None:
        """The intersection of a set and some groups, without alternatives that are seen not to be in the set."""
        left: list[tuple[Case, ...]] = []
        waiting = list(dict.fromkeys(groups))
        while waiting:
            group = waiting.pop(0)
            spend(300 * len(group))
            if any(self.covers(one, bare) for one in group):
                continue
            met = [(one, both) for one in group if (both := self.intersect(bare, one)) is not None]
            if not met:
                return None
            if len(met) == 1:
                # What it asks for may leave less of the groups before.
                rest = (*left, *waiting)
                return self.intersect(met[0][1], self.holding(rest)) if rest else met[0][1]
            left.append(tuple(one for one, _ in met))
        return replace(bare, either=tuple(left))

    def absorbed(self, cases: Iterable[Case]) -> list[Case]:
        """The sets without those that lie within another, as far as it is seen at first sight."""
        kept: list[Case] = []
        for case in cases:
            spend(100 * len(kept))
            if not any(self.covers(wide, case) for wide in kept):
                kept = [narrow for narrow in kept if not self.covers(case, narrow)]
                kept.append(case)
        return kept

    def product(
        self,
        a: Sequence[Case],
        b: Sequence[Case],
        multiply: Callable[[Any, Any, int | None], tuple[Case, ...] | None],
        grouped: Callable[[Any, Any], list[Case]],
        most: int,
    ) -> tuple[Case, ...]:
        """The intersection of two unions; alternatives that come to more than `most` are held in groups.

        multiply: gives all pairs of alternatives; None if they come to more than so many; grouped: gives the same in
        groups
        """
        held = any(case.either for case in (*a, *b))
        if not held and (len(a) <= 1 or len(b) <= 1):
            return multiply(a, b, None) or ()
        most = max(most, len(a), len(b))
        pairs = None if held else multiply(a, b, most * most)
        found = None if pairs is None else self.absorbed(pairs)
        if found is None or len(found) > most:
            found = grouped(a, b) if a and b else []
        return tuple(found)

    def both_groups(self, a: Iterable[Case], b: Iterable[Case]) -> list[Case]:
        """The intersection of two unions as one set, the alternatives of each a group; none if there is nothing."""
        sides = self.absorbed(a), self.absorbed(b)
        if not all(sides):
            return []
        one, other = (side[0] if len(side) == 1 else self.holding((tuple(side),)) for side in sides)
        both = self.intersect(one, other)
        return [] if both is None else [both]
