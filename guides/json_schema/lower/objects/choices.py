"""Objects with groups of alternatives as fragments of a graph. Each member eliminates alternatives it does not satisfy.

Multiplying out all groups would explode; instead a place holds the alternatives left of each group. If alternatives
disagree about a value and their conditions are easily negated, the value decides among them; otherwise the text is read
in several ways in parallel. An object may end if every group has an alternative left whose required members are all
there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from .....errors import LimitError
from ....automata.charsets import bits as bits_of
from ....limits import spend
from ...algebra.cases import ANY_ARRAY, ANY_OBJECT, Object, Rule
from ...algebra.formula import EVERYTHING, NOTHING, Formula
from ...compiled import CompiledSchema
from ..rules import RuleLowering
from .members import MemberPlace, Members, NextMember
from .names import MemberNames

Alive = tuple[int, ...]
GroupBits = tuple[tuple[int, int], ...]
"""(group number, alternatives as bits) pairs."""
Cell = tuple[Formula, frozenset[Formula]]
FEW_LITERALS = 4
MAX_WAYS = 4096
"""Maximum number of ways to read one member."""


class Completion(NamedTuple):
    """A completion of an object: needed members by number, with their formulas, and the alternatives chosen."""

    needed: dict[int, Formula]
    chosen: tuple[tuple[int, int], ...]


class GroupLowering(Members):
    """One object case with groups at one depth, in the current rule, before the node `target`."""

    def __init__(self, owner: RuleLowering, case: Object, depth: int, target: int) -> None:
        case = in_groups(case)
        names = names_of(owner, case, depth)
        super().__init__(owner, case, names, depth, target)
        self._groups = [numbered(group, names, owner.schema) for group in case.either]
        self._conditions: dict[int, list[list[tuple[Formula, ...] | None]]] = {}
        self._ways: dict[tuple[int, Alive], list[tuple[Formula, GroupBits]]] = {}
        self._concerned: dict[int, GroupBits] = {}
        self._cells_of: dict[int, list[Cell] | None] = {}
        self._blocked: dict[int, Alive] = {}
        # Completions by missing members: with all alternatives left, with those chosen so far; and the order in which
        # the alternatives of a group are tried.
        self._wanted = self._required
        for group in self._groups:
            for _, required in group:
                self._wanted |= required
        self._missing: dict[tuple[int, Alive], Completion | None] = {}
        self._hints: dict[tuple[int, Alive], tuple[int, Completion]] = {}
        self._chosen: dict[tuple[int, tuple[tuple[int, int], ...]], dict[int, Formula] | None] = {}
        self._orders: dict[tuple[int, int, int], tuple[int, ...]] = {}

    def _start(self) -> MemberPlace:
        return MemberPlace(0, 0, 0, tuple((1 << len(group)) - 1 for group in self._groups))

    def _may_end(self, place: MemberPlace) -> bool:
        missing = self._wanted & ~place.used
        if self._required & missing:
            return False
        return all(left & ~bits for left, bits in zip(place.alive, self._blocked_by(missing), strict=True))

    def _goes_on(self, place: MemberPlace) -> bool:
        """Test whether another member may come; always true if one must."""
        return bool(self._to_come(place)) or super()._goes_on(place)

    def _choices(self, place: MemberPlace) -> Iterator[NextMember]:
        """Yield the members that may come next."""
        for index in range(self._come(place), self._schema_names):
            yield from self._named(index, place)
            if self._required >> index & 1:
                return
        for index in range(self._schema_names, len(self._names)):
            if not place.used >> index & 1:
                yield from self._named(index, place)
        for index in range(len(self._regions)):
            yield from self._free(-1 - index, place)

    def _free(self, index: int, place: MemberPlace) -> list[NextMember]:
        """Return the ways to read a member of a region."""
        return self._read(index, place, self._bit(index) & self._wanted, self._in_order)

    def _bit(self, index: int) -> int:
        """Return the bit of a name; those of regions follow."""
        return 1 << (index if index >= 0 else len(self._names) - 1 - index)

    def _named(self, index: int, place: MemberPlace) -> list[NextMember]:
        """Return the ways to read the member of a name."""
        return self._read(index, place, 1 << index, self._in_order & (1 << index) - 1)

    def _read(self, index: int, place: MemberPlace, used: int, passed: int) -> list[NextMember]:
        """Return the ways to read a member; used: its own bit; passed: names that can no longer come."""
        spend(200)
        gone = passed & ~place.used
        alive = place.alive
        if gone:
            alive = tuple(
                sum(1 << bit for bit, (_, required) in enumerate(group) if left >> bit & 1 and not required & gone)
                for group, left in zip(self._groups, alive, strict=True)
            )
        found: list[NextMember] = []
        known = self._missing.get(self._rest_key(place))
        for formula, eliminated in self._ways_of_member(index, alive):
            left = list(alive)
            for group, bits in eliminated:
                left[group] &= ~bits
            if all(left):
                after = MemberPlace(place.used | used | passed, 0, 0, tuple(left))
                found.append(NextMember(index, formula, after))
                if known is not None and (key := self._rest_key(after)) not in self._missing:
                    self._hints[key] = index, known
        return found

    def _rest_key(self, place: MemberPlace) -> tuple[int, Alive]:
        """Return the state on which completions depend: missing members that matter, and alternatives left."""
        return self._wanted & ~place.used, place.alive

    def _ways_of_member(self, index: int, alive: Alive) -> list[tuple[Formula, GroupBits]]:
        """Return the formulas that the value of a member may satisfy, with the alternatives that each eliminates.

        This depends only on the alternatives with conditions on the member, usually few.
        """
        concerned = self._concerned_by(index)
        key = (index, tuple(alive[group] & bits for group, bits in concerned))
        known = self._ways.get(key)
        if known is None:
            conditions = self._conditions_of(index)
            literals: dict[Formula, None] = {}
            for (group, _), left in zip(concerned, key[1], strict=True):
                for bit in bits_of(left):
                    literals.update(dict.fromkeys(conditions[group][bit] or ()))
            cells = self._all_cells(index) if len(literals) > FEW_LITERALS else None
            if cells is None:
                cells = self._cells(index, list(literals))
                assert cells is not None, "they are too many only where fewer than MAX_WAYS are asked for"
            known = self._ways[key] = [
                (formula, self._eliminated(conditions, concerned, key[1], holding)) for formula, holding in cells
            ]
        return known

    def _eliminated(
        self,
        conditions: list[list[tuple[Formula, ...] | None]],
        concerned: GroupBits,
        alive: Alive,
        holding: frozenset[Formula],
    ) -> GroupBits:
        """Return those of the remaining alternatives that a value fails if exactly these literals are known to hold."""
        found: list[tuple[int, int]] = []
        for (group, _), alternatives in zip(concerned, alive, strict=True):
            spend(20 * alternatives.bit_count())
            failed = 0
            for bit in bits_of(alternatives):
                parts = conditions[group][bit]
                if parts is None or not holding.issuperset(parts):
                    failed |= 1 << bit
            if failed:
                found.append((group, failed))
        return tuple(found)

    def _concerned_by(self, index: int) -> GroupBits:
        """Return (group, bits of the alternatives with conditions on a member), for each group that has some."""
        known = self._concerned.get(index)
        if known is None:
            conditions = self._conditions_of(index)
            spend(20 * sum(map(len, conditions)))
            each = (sum(1 << bit for bit, parts in enumerate(group) if parts != ()) for group in conditions)
            known = self._concerned[index] = tuple((group, bits) for group, bits in enumerate(each) if bits)
        return known

    def _conditions_of(self, index: int) -> list[list[tuple[Formula, ...] | None]]:
        """Return each alternative's conditions on a member: formulas that must all hold, None if it is forbidden."""
        known = self._conditions.get(index)
        if known is None:
            known = self._conditions[index] = [
                [self._parts(self._of(one, index)) for one, _ in group] for group in self._groups
            ]
        return known

    def _of(self, one: Object, index: int) -> Formula:
        """Return the formula of an alternative for the member of a name, or of a region of names."""
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

    def _all_cells(self, index: int) -> list[Cell] | None:
        """Return the cells of all conditions on a member, if they are at most about two per condition.

        This is so if the member is a discriminator. Then the cells serve for any remaining alternatives.
        """
        if index not in self._cells_of:
            conditions = self._conditions_of(index)
            literals = dict.fromkeys(part for group in conditions for parts in group for part in parts or ())
            self._cells_of[index] = self._cells(index, list(literals), 2 * len(literals) + 2)
        return self._cells_of[index]

    def _cells(self, index: int, literals: list[Formula], most: int = MAX_WAYS) -> list[Cell] | None:
        """Cover the values of a member by sets, each with the literals that hold in it.

        None if they are more than `most`. Raises LimitError for more than MAX_WAYS.
        """
        schema, wanted = self._owner.schema, set(literals)
        both, refuse = schema.formulas.all_of, schema.formulas.negation
        cells = [(self._base(index), frozenset[Formula]())]
        for literal in literals:
            other = refuse(literal)
            if other in wanted and literal.kind == "not":
                continue
            apart = other in wanted or self._is_simple(literal)
            split: list[tuple[Formula, frozenset[Formula]]] = []
            for formula, holding in cells:
                spend(1000)
                ways = [(literal, {literal}), (other, {other}) if apart else (EVERYTHING, set[Formula]())]
                found = [(both((formula, part)), holding | more) for part, more in ways]
                split += [(part, held) for part, held in found if schema.has_instance(part)]
            cells = split
            if len(cells) > most < MAX_WAYS:
                return None
            if len(cells) > MAX_WAYS:
                raise LimitError(f"one member of an object can be read in more than {MAX_WAYS} ways")
        return cells

    def _is_simple(self, formula: Formula) -> bool:
        """Test whether a formula has no conditions on the content of arrays and objects."""
        normal = self._owner.schema.normal(formula)
        return not normal.constants and normal.arrays in ((), (ANY_ARRAY,)) and normal.objects in ((), (ANY_OBJECT,))

    def _is_alive(self, place: MemberPlace) -> bool:
        return self._to_come(place) is not None

    def _to_come(self, place: MemberPlace) -> dict[int, Formula] | None:
        """Return the members that complete the object, by number, with their formulas; None if none do."""
        key = self._rest_key(place)
        if key not in self._missing:
            found = self._as_before(*key)
            self._missing[key] = self._completed(*key) if found is None else found
            self._hints.pop(key, None)
        known = self._missing[key]
        return None if known is None else known.needed

    def _as_before(self, missing: int, alive: Alive) -> Completion | None:
        """Return the completion found before the last member, without that member, if it is still valid."""
        hint = self._hints.get((missing, alive))
        if hint is None:
            return None
        came, (needed, chosen) = hint
        spend(100 + 20 * (len(needed) + len(chosen)))
        if not all(alive[group] >> bit & 1 for group, bit in chosen):
            return None
        left = {index: formula for index, formula in needed.items() if index != came}
        if not all(missing & self._bit(index) for index in left) or self._undecided(missing, alive, left, chosen) >= 0:
            return None
        return Completion(left, chosen)

    def _completed(self, missing: int, alive: Alive) -> Completion | None:
        """Choose alternatives, those with fewest missing members first, until every needed member has a possible value.

        A group is decided only if each of its remaining alternatives has a condition on the needed members, or misses
        one. Deciding others would cause needless backtracking.
        """
        first = self._needed(missing, {}, (), self._required)
        if first is None:
            return None
        found = [Completion(first, ())]
        waiting: list[tuple[int, Iterator[int]]] = []
        while (undecided := self._undecided(missing, alive, *found[-1])) >= 0:
            waiting.append((undecided, iter(self._by_missing(missing, undecided, alive[undecided]))))
            while len(waiting) == len(found):
                group, bits = waiting[-1]
                before = found[-1]
                for bit in bits:
                    chosen = (*before.chosen, (group, bit))
                    needed = self._needed(missing, before.needed, chosen, self._groups[group][bit][1])
                    if needed is not None:
                        found.append(Completion(needed, chosen))
                        break
                else:
                    waiting.pop()
                    found.pop()
                    if not found:
                        return None
        return found[-1]

    def _undecided(
        self, missing: int, alive: Alive, needed: dict[int, Formula], chosen: tuple[tuple[int, int], ...]
    ) -> int:
        """Return the undecided group with the fewest alternatives left; -1 if there is none."""
        decided = {group for group, _ in chosen}
        blocked = self._blocked_by(missing & ~sum(map(self._bit, needed)))
        speaking: dict[int, int] = {}
        for index in needed:
            for group, bits in self._concerned_by(index):
                speaking[group] = speaking.get(group, 0) | bits
        spend(50 * len(alive) + 100 * len(needed))
        best, fewest = -1, 0
        for group, left in enumerate(alive):
            if left & ~blocked[group] & ~speaking.get(group, 0) or group in decided:
                continue
            count = left.bit_count()
            if best < 0 or count < fewest:
                best, fewest = group, count
        return best

    def _blocked_by(self, missing: int) -> Alive:
        """Return for each group the alternatives that require one of these members."""
        known = self._blocked.get(missing)
        if known is None:
            spend(50 * sum(map(len, self._groups)))
            known = self._blocked[missing] = tuple(
                sum(1 << bit for bit, (_, required) in enumerate(group) if required & missing) for group in self._groups
            )
        return known

    def _by_missing(self, missing: int, group: int, alive: int) -> tuple[int, ...]:
        """Return the remaining alternatives of a group, those with fewest missing members first."""
        key = (missing, group, alive)
        known = self._orders.get(key)
        if known is None:
            alternatives = self._groups[group]
            left = [bit for bit in range(len(alternatives)) if alive >> bit & 1]
            left.sort(key=lambda bit: (alternatives[bit][1] & missing).bit_count())
            known = self._orders[key] = tuple(left)
        return known

    def _needed(
        self, missing: int, known: dict[int, Formula], chosen: tuple[tuple[int, int], ...], required: int
    ) -> dict[int, Formula] | None:
        """Extend a completion by the last chosen alternative and its required members.

        None if some member has no value that satisfies all chosen alternatives.
        """
        spend(100)
        key = (missing, chosen)
        if key not in self._chosen:
            self._chosen[key] = self._worked_out(missing & required, known, chosen)
        return self._chosen[key]

    def _worked_out(
        self, missing: int, known: dict[int, Formula], chosen: tuple[tuple[int, int], ...]
    ) -> dict[int, Formula] | None:
        spend(200 + 50 * len(known))
        found = dict(known)
        for index in known if chosen else ():
            if not self._add(found, index, known[index], chosen[-1:]):
                return None
        while missing:
            index = (missing & -missing).bit_length() - 1
            index = index if index < len(self._names) else len(self._names) - 1 - index
            missing &= missing - 1
            spend(100 + 50 * len(chosen))
            if index not in known and not self._add(found, index, self._base(index), chosen):
                return None
        return found

    def _add(
        self, found: dict[int, Formula], index: int, formula: Formula, chosen: tuple[tuple[int, int], ...]
    ) -> bool:
        """Add the conditions of chosen alternatives on a member. Return whether some value satisfies them."""
        schema, conditions = self._owner.schema, self._conditions_of(index)
        parts = [conditions[group][bit] for group, bit in chosen]
        allowed = [part for part in parts if part is not None]
        found[index] = schema.formulas.all_of((formula, *chain.from_iterable(allowed))) if any(allowed) else formula
        return len(allowed) == len(parts) and schema.has_instance(found[index])

    def _nearest(self, place: MemberPlace) -> NextMember:
        """Return the next member on a short way to the end."""
        needed = self._to_come(place)
        first = min(needed, key=lambda index: (index < 0, index)) if needed else 0
        way = self._named if first >= 0 else self._free
        found = way(first, place) if needed else list(self._choices(place))
        found.sort(key=self._length)
        missing = len(needed or ())
        for choice in found:
            left = self._to_come(choice.after)
            if left is not None and (len(left) < missing or not left):
                return choice
        alive = (choice for choice in found if self._is_alive(choice.after))
        return min(alive, key=lambda choice: self._still(choice.after))

    def _still(self, place: MemberPlace) -> int:
        """Return the number of members that must still come."""
        return len(self._to_come(place) or ())

    def _counts_nothing(self, place: MemberPlace) -> bool:
        """Return False: completions depend on the remaining alternatives."""
        return False


MAX_SPREAD = 4096
"""Maximum number of ways in which the members of an alternative can have the names it requires."""


class NumberedCase(NamedTuple):
    """An alternative of a group. needed: bits of members that must be there, names first, then regions"""

    case: Object
    needed: int


def in_groups(case: Object) -> Object:
    """Return the case with its `some` rules as groups of one alternative."""
    alone = tuple((Object(some=(rule,)),) for rule in case.some)
    return replace(case, some=(), either=case.either + alone) if alone else case


def names_of(owner: RuleLowering, case: Object, depth: int) -> MemberNames:
    """Return the names that an object or any of its alternatives distinguishes."""
    alternatives = [one for group in case.either for one in group]
    properties = dict(case.properties)
    for one in alternatives:
        for name in (*one.properties, *(name for rule in one.some for name in rule.names.excluded)):
            properties.setdefault(name, EVERYTHING)
    rules = dict.fromkeys(rule.names for one in alternatives for rule in (*one.rules, *one.some))
    apart = tuple(Rule(names, EVERYTHING) for names in rules)
    return MemberNames(owner, Object(properties, case.rules, case.required), depth, apart)


def numbered(group: Iterable[Object], names: MemberNames, schema: CompiledSchema) -> list[NumberedCase]:
    """Return the alternatives of a group that are possible, one for each way to have the required names."""
    number = {name: index for index, name in enumerate(names.names)}
    found: list[NumberedCase] = []
    for one in group:
        spend(200 + 50 * len(one.required))
        if not all(name in number for name in one.required):
            continue
        ways = {sum(1 << number[name] for name in one.required): None}
        for rule in one.some:
            may = _members(rule, names, schema)
            spend(100 * len(ways) * may.bit_count())
            ways = {
                way | bit: None
                for way in ways
                for bit in ((0,) if way & may else (1 << index for index in bits_of(may)))
            }
            if len(ways) > MAX_SPREAD:
                raise LimitError(f"an object can have the names that must be there in more than {MAX_SPREAD} ways")
        found += (NumberedCase(one, way) for way in ways)
    return found


def _members(rule: Rule, names: MemberNames, schema: CompiledSchema) -> int:
    """Return the names in a rule's set, and the regions that overlap it, as bits."""
    found = sum(1 << at for at, name in enumerate(names.names) if schema.language.contains(rule.names, name))
    within = (at for at, (region, _) in enumerate(names.regions) if schema.overlaps(rule.names, region))
    return found | sum(1 << len(names.names) + at for at in within)
