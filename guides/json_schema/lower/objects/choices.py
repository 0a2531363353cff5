"""Objects with groups of alternatives as fragments of a graph: each member leaves those that its name and value meet.

The alternatives of all groups would multiply; here a place only says which are left of each group. A value that some
alternatives allow and others do not is told apart where its member comes, if what they ask of it is easily refused;
otherwise the text is read in several ways side by side. An object may end where every group has an alternative left
that misses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from .....errors import LimitError
from ....limits import spend
from ...algebra.cases import ANY_ARRAY, ANY_OBJECT, Object, Rule
from ...algebra.formula import EVERYTHING, NOTHING, Formula
from ..protocol import MemberLowering
from .member_names import MemberNames
from .members import MemberPlace, Members, NextMember

Alive = tuple[int, ...]
MAX_WAYS = 4096
"""How many ways to read one member are too many."""


def names_of(owner: MemberLowering, case: Object, depth: int) -> MemberNames:
    """The names that an object or any of its alternatives tells apart."""
    alternatives = [one for group in case.either for one in group]
    properties = dict(case.properties)
    for one in alternatives:
        for name in one.properties:
            properties.setdefault(name, EVERYTHING)
    rules = dict.fromkeys(rule.names for one in alternatives for rule in one.rules)
    apart = tuple(Rule(names, EVERYTHING) for names in rules)
    return MemberNames(owner, Object(properties, case.rules, case.required), depth, apart)


class Choices(Members):
    """One object case with groups at one depth, in the current rule, before the node `target`."""

    def __init__(self, owner: MemberLowering, case: Object, depth: int, target: int) -> None:
        super().__init__(owner, case, names_of(owner, case, depth), depth, target)
        self._groups = [self._numbered(group) for group in case.either]
        self._asked: dict[int, list[list[tuple[Formula, ...] | None]]] = {}
        self._ways: dict[tuple[int, Alive], list[tuple[Formula, Alive]]] = {}
        # What must come, by the members that may be missing: the names that an alternative requires. With all that are
        # left, or with those that were chosen; and in which order the alternatives of a group are tried.
        self._wanted = self._required
        for group in self._groups:
            for _, required in group:
                self._wanted |= required
        self._missing: dict[tuple[int, Alive], dict[int, Formula] | None] = {}
        self._chosen: dict[tuple[int, tuple[tuple[int, int], ...]], dict[int, Formula] | None] = {}
        self._orders: dict[tuple[int, int, int], tuple[int, ...]] = {}

    def _numbered(self, group: tuple[Object, ...]) -> list[tuple[Object, int]]:
        """The alternatives of a group that no required name rules out, each with its required names as bits."""
        number = {name: index for index, name in enumerate(self._names)}
        found: list[tuple[Object, int]] = []
        for one in group:
            spend(200 + 50 * len(one.required))
            if all(name in number for name in one.required):
                found.append((one, sum(1 << number[name] for name in one.required)))
        return found

    def _start(self) -> MemberPlace:
        return MemberPlace(0, 0, 0, tuple((1 << len(group)) - 1 for group in self._groups))

    def _may_end(self, place: MemberPlace) -> bool:
        return not self._required & ~place.used and all(
            any(not required & ~place.used for required in self._left(group, alive))
            for group, alive in zip(self._groups, place.alive, strict=True)
        )

    def _left(self, group: list[tuple[Object, int]], alive: int) -> Iterator[int]:
        return (required for bit, (_, required) in enumerate(group) if alive >> bit & 1)

    def _choices(self, place: MemberPlace) -> list[NextMember]:
        """The members that may come next."""
        found: list[NextMember] = []
        for index in range(self._come(place), self._schema_names):
            found += self._named(index, place)
            if self._required >> index & 1:
                return found
        for index in range(self._schema_names, len(self._names)):
            if not place.used >> index & 1:
                found += self._named(index, place)
        for index in range(len(self._regions)):
            found += self._read(-1 - index, place, 0, self._in_order)
        return found

    def _named(self, index: int, place: MemberPlace) -> list[NextMember]:
        """The ways to read the member of a name."""
        return self._read(index, place, 1 << index, self._in_order & (1 << index) - 1)

    def _read(self, index: int, place: MemberPlace, used: int, passed: int) -> list[NextMember]:
        """The ways to read a member; used: its own bit; passed: the names that come no more."""
        spend(200)
        gone = passed & ~place.used
        alive = place.alive
        if gone:
            alive = tuple(
                sum(1 << bit for bit, (_, required) in enumerate(group) if left >> bit & 1 and not required & gone)
                for group, left in zip(self._groups, alive, strict=True)
            )
        return [
            NextMember(index, formula, MemberPlace(place.used | used | passed, 0, 0, after))
            for formula, after in self._told(index, alive)
        ]

    def _told(self, index: int, alive: Alive) -> list[tuple[Formula, Alive]]:
        """What the value of a member may satisfy, and the alternatives that are left then."""
        key = (index, alive)
        known = self._ways.get(key)
        if known is None:
            asked = self._asked_of(index)
            literals: dict[Formula, None] = {}
            for group, left in zip(asked, alive, strict=True):
                for bit, parts in enumerate(group):
                    if left >> bit & 1 and parts:
                        literals.update(dict.fromkeys(parts))
            known = self._ways[key] = []
            for formula, holding in self._cells(index, list(literals)):
                after = self._after_value(asked, alive, holding)
                if all(after):
                    known.append((formula, after))
        return known

    def _after_value(
        self, asked: list[list[tuple[Formula, ...] | None]], alive: Alive, holding: frozenset[Formula]
    ) -> Alive:
        spend(20 * sum(map(len, asked)))
        return tuple(
            sum(
                1 << bit
                for bit, parts in enumerate(group)
                if left >> bit & 1 and parts is not None and holding.issuperset(parts)
            )
            for group, left in zip(asked, alive, strict=True)
        )

    def _asked_of(self, index: int) -> list[list[tuple[Formula, ...] | None]]:
        """For each alternative what it asks of a member: formulas that must all hold, None if it forbids it."""
        known = self._asked.get(index)
        if known is None:
            known = self._asked[index] = [
                [self._parts(self._of(one, index)) for one, _ in group] for group in self._groups
            ]
        return known

    def _of(self, one: Object, index: int) -> Formula:
        """What an alternative asks of the members of a name, or of a region of names."""
        schema = self._owner.schema
        if index >= 0:
            return schema.member(one, self._names[index])
        names = self._regions[-1 - index][0]
        return schema.formulas.all_of(rule.formula for rule in one.rules if schema.overlaps(rule.names, names))

    @staticmethod
    def _parts(formula: Formula) -> tuple[Formula, ...] | None:
        if formula is NOTHING:
            return None
        return formula.parts if formula.kind == "all" else () if formula is EVERYTHING else (formula,)

    def _base(self, index: int) -> Formula:
        return self._formulas[index] if index >= 0 else self._regions[-1 - index][1]

    def _cells(self, index: int, literals: list[Formula]) -> list[tuple[Formula, frozenset[Formula]]]:
        """Sets of values that together are all the values of a member, each with literals that hold in it."""
        schema, asked = self._owner.schema, set(literals)
        both, refuse = schema.formulas.all_of, schema.formulas.negation
        cells = [(self._base(index), frozenset[Formula]())]
        for literal in literals:
            other = refuse(literal)
            if other in asked and literal.kind == "not":
                continue
            apart = other in asked or self._is_simple(literal)
            split: list[tuple[Formula, frozenset[Formula]]] = []
            for formula, holding in cells:
                spend(1000)
                ways = [(literal, {literal}), (other, {other}) if apart else (EVERYTHING, set[Formula]())]
                found = [(both((formula, part)), holding | more) for part, more in ways]
                split += [(part, held) for part, held in found if schema.has_instance(part)]
            cells = split
            if len(cells) > MAX_WAYS:
                raise LimitError(f"one member of an object can be read in more than {MAX_WAYS} ways")
        return cells

    def _is_simple(self, formula: Formula) -> bool:
        """Whether a formula speaks of nothing inside arrays and objects."""
        normal = self._owner.schema.normal(formula)
        return not normal.constants and normal.arrays in ((), (ANY_ARRAY,)) and normal.objects in ((), (ANY_OBJECT,))

    def _is_alive(self, place: MemberPlace) -> bool:
        return self._to_come(place) is not None

    def _to_come(self, place: MemberPlace) -> dict[int, Formula] | None:
        """Members that complete the object, by their numbers, with what they must satisfy; None if it cannot be."""
        key = (self._wanted & ~place.used, place.alive)
        if key not in self._missing:
            self._missing[key] = self._completed(*key)
        return self._missing[key]

    def _completed(self, missing: int, alive: Alive) -> dict[int, Formula] | None:
        """Choose an alternative of each group, those that miss least first, until all that must come has values."""
        order = sorted(range(len(self._groups)), key=lambda group: alive[group].bit_count())
        first = self._needed(missing, {}, [], self._required)
        if first is None:
            return None
        found = [first]
        chosen: list[tuple[int, int]] = []
        waiting: list[Iterator[int]] = []
        while len(chosen) < len(order):
            group = order[len(chosen)]
            if len(waiting) == len(chosen):
                waiting.append(iter(self._by_missing(missing, group, alive[group])))
            for bit in waiting[-1]:
                chosen.append((group, bit))
                needed = self._needed(missing, found[-1], chosen, self._groups[group][bit][1])
                if needed is not None:
                    found.append(needed)
                    break
                chosen.pop()
            else:
                waiting.pop()
                if not chosen:
                    return None
                chosen.pop()
                found.pop()
        return found[-1]

    def _by_missing(self, missing: int, group: int, alive: int) -> tuple[int, ...]:
        """The alternatives that are left of a group, those that miss the fewest members first."""
        key = (missing, group, alive)
        known = self._orders.get(key)
        if known is None:
            alternatives = self._groups[group]
            left = [bit for bit in range(len(alternatives)) if alive >> bit & 1]
            left.sort(key=lambda bit: (alternatives[bit][1] & missing).bit_count())
            known = self._orders[key] = tuple(left)
        return known

    def _needed(
        self, missing: int, known: dict[int, Formula], chosen: list[tuple[int, int]], required: int
    ) -> dict[int, Formula] | None:
        """What must still come, as was known, with the last alternative that was chosen and what it requires.

        None if a member has no value that satisfies all alternatives that were chosen.
        """
        spend(100)
        key = (missing, tuple(chosen))
        if key not in self._chosen:
            self._chosen[key] = self._worked_out(missing & required, known, chosen)
        return self._chosen[key]

    def _worked_out(
        self, missing: int, known: dict[int, Formula], chosen: list[tuple[int, int]]
    ) -> dict[int, Formula] | None:
        spend(200 + 50 * len(known))
        found = dict(known)
        for index in known if chosen else ():
            if not self._add(found, index, known[index], chosen[-1:]):
                return None
        while missing:
            index = (missing & -missing).bit_length() - 1
            missing &= missing - 1
            spend(100 + 50 * len(chosen))
            if index not in known and not self._add(found, index, self._formulas[index], chosen):
                return None
        return found

    def _add(self, found: dict[int, Formula], index: int, formula: Formula, chosen: list[tuple[int, int]]) -> bool:
        """Note what a member must satisfy with these alternatives; whether any value does."""
        schema, asked = self._owner.schema, self._asked_of(index)
        parts = [asked[group][bit] for group, bit in chosen]
        told = [part for part in parts if part is not None]
        found[index] = schema.formulas.all_of((formula, *chain.from_iterable(told))) if any(told) else formula
        return len(told) == len(parts) and schema.has_instance(found[index])

    def _nearest(self, place: MemberPlace) -> NextMember:
        """The next member on a short way to the end."""
        needed = self._to_come(place)
        found = self._named(min(needed), place) if needed else self._choices(place)
        found.sort(key=self._length)
        if not needed:
            for choice in found:
                if self._to_come(choice.after) == {}:
                    return choice
        alive = (choice for choice in found if self._is_alive(choice.after))
        return min(alive, key=lambda choice: self._still(choice.after))

    def _still(self, place: MemberPlace) -> int:
        """How many members must still come."""
        return len(self._to_come(place) or ())

    def _counts_nothing(self, place: MemberPlace) -> bool:
        """What must come depends on the alternatives that are left."""
        return False
