"""Objects as fragments of a graph with a node per place. Earlier members decide what may follow, and the end."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from .....errors import SchemaError
from .....kernels.chart.layout import CALL, EPSILON
from ....graph.graph import Link
from ....limits import spend
from ...algebra.cases import Object, String
from ...algebra.formula import Formula
from ...automata.spelling import spelt
from ..rules import MAX_LENGTH, RuleLowering, reaches_end
from .names import MemberNames


class MemberPlace(NamedTuple):
    """The progress of an object.

    used: names that can no longer come, as bits; members: their number, as far as it matters
    unmet: rules of `Object.some` without a member yet, as bits
    alive: for each group, the alternatives left, as bits
    """

    used: int
    members: int
    unmet: int
    alive: tuple[int, ...] = ()


class NextMember(NamedTuple):
    """A possible next member: index of its name, or -1 - region; formula of its value; place after it."""

    name: int
    formula: Formula
    after: MemberPlace


class Members:
    """One object case at one depth, in the current rule, before the node `target`."""

    def __init__(self, owner: RuleLowering, case: Object, names: MemberNames, depth: int, target: int) -> None:
        self._owner = owner
        self._graph = owner.graph
        self._case = case
        self._depth = depth
        self._target = target
        self._members: dict[MemberPlace, int] = {}
        self._afters: dict[MemberPlace, int] = {}
        self._tails: dict[NextMember, int] = {}
        self._alive: dict[MemberPlace, bool] = {}
        self._rests: dict[Hashable, int] = {}
        self._member_lengths: dict[tuple[int, Formula], int] = {}
        self._lengths: list[tuple[int, int]] | None = None
        self._lengths_from: list[int] | None = None
        self._names = names.names
        self._formulas = names.formulas
        self._regions = names.regions
        self._schema_names = names.schema_names
        self._in_order = (1 << self._schema_names) - 1
        self._required = names.required
        self._must_differ = names.must_differ
        self._ceiling = self._count_that_matters()

    def _count_that_matters(self) -> int:
        """Return the cap on counting members; 0 if their number does not matter."""
        case = self._case
        if case.max_properties is not None:
            return max(case.max_properties + 1, case.min_properties)
        return case.min_properties if case.min_properties > self._required.bit_count() else 0

    def entry(self) -> int:
        """Return the node before the opening brace."""
        owner, graph = self._owner, self._graph
        start = self._start()
        links: list[Link] = []
        if self._may_end(start):
            links.append((EPSILON, owner.gap(owner.form.spacing.free(), graph.literal(b"}", self._target)), 0))
        if self._goes_on(start):
            links.append(owner.first(self._member(start), self._depth))
        if not links:
            raise SchemaError("the counts of members and the members themselves leave no object", "#")
        return graph.node(((0x7B, 0x7B, graph.node(links=links)),))

    def _start(self) -> MemberPlace:
        """Return the place before the first member."""
        return MemberPlace(0, 0, (1 << len(self._case.some)) - 1)

    def _member(self, place: MemberPlace) -> int:
        """Return the node before the name of the next member."""
        node = self._members.get(place)
        if node is None:
            node = self._members[place] = self._graph.lazy_node(
                lambda node: self._define(node, place), lambda: self._shortest(place), self._target
            )
        return node

    def _define(self, node: int, place: MemberPlace) -> None:
        """Define a node by the names that may come at a place."""
        owner = self._owner
        named: list[tuple[bytes, int]] = []
        links: list[Link] = []
        for choice in self._choices(place):
            if not self._is_alive(choice.after):
                continue
            tail = self._tail(choice)
            if choice.name < 0:
                entry = self._other_name(choice, tail)
                if entry is not None:
                    links.append((EPSILON, entry, 0))
            elif owner.form.escapes == "canonical":
                named.append((spelt(self._names[choice.name]), tail))
            else:
                entry = owner.lowering.lower(owner.strings.literal(self._names[choice.name]), tail)
                if entry is not None:
                    links.append((EPSILON, entry, 0))
        if named:
            links.append((EPSILON, owner.lowering.tree(named), 0))
        self._graph.define(node, links=links)

    def _other_name(self, choice: NextMember, tail: int) -> int | None:
        """Return the entry of the names of a region. They are one rule, shared by all places."""
        graph, names = self._graph, self._owner.string_rule(self._regions[-1 - choice.name][0])
        if names is None:
            return None
        links: tuple[Link] = ((CALL, names, tail),)
        if not self._must_differ:
            return graph.node(links=links)
        self._owner.marks.names.add(tail)
        return graph.lazy_node(
            lambda node: self._define_name(node, links), lambda: self._name_length(choice.name), tail
        )

    def _define_name(self, node: int, links: tuple[Link]) -> None:
        self._graph.define(node, links=links)

    def _name_length(self, name: int) -> int:
        """Return the bytes of a name; for names that must differ, enough for an unused one."""
        if name >= 0:
            return len(spelt(self._names[name]))
        shortest = self._owner.strings.shortest(self._regions[-1 - name][0])
        return shortest + self._owner.extra_name_bytes if self._must_differ else shortest

    def _tail(self, choice: NextMember) -> int:
        """Return the node after a name: colon, value, and what comes after the member."""
        node = self._tails.get(choice)
        if node is None:
            node = self._tails[choice] = self._graph.lazy_node(
                lambda node: self._define_tail(node, choice),
                lambda: (
                    self._owner.length_after_name(choice.formula, self._depth) + self._remaining_bytes(choice.after)
                ),
                self._target,
            )
        return node

    def _define_tail(self, node: int, choice: NextMember) -> None:
        entry = self._owner.after_name(choice.formula, self._depth, self._after(choice.after))
        self._graph.define(node, links=((EPSILON, entry, 0),))

    def _after(self, place: MemberPlace) -> int:
        """Return the node after a member: a comma and the next one, or the end."""
        node = self._afters.get(place)
        if node is None:
            owner, graph = self._owner, self._graph
            links: list[Link] = []
            if self._may_end(place):
                close = owner.gap(owner.form.spacing.at_end(self._depth), graph.literal(b"}", self._target))
                links.append((EPSILON, close, 0))
            if self._goes_on(place):
                links.append(owner.comma(self._member(place), self._depth))
            node = self._afters[place] = self._graph.node(links=links)
        return node

    def _may_end(self, place: MemberPlace) -> bool:
        case = self._case
        enough = place.members >= case.min_properties or not self._ceiling
        return enough and not place.unmet and not self._required & ~place.used

    def _goes_on(self, place: MemberPlace) -> bool:
        """Test whether another member may come."""
        return any(self._is_alive(choice.after) for choice in self._choices(place))

    def _choices(self, place: MemberPlace) -> Iterable[NextMember]:
        """Return the members that may come next."""
        case = self._case
        if case.max_properties is not None and place.members >= case.max_properties:
            return []
        found: list[NextMember] = []
        for index in range(self._come(place), self._schema_names):
            used = (1 << (index + 1)) - 1
            found += self._variants(index, self._formulas[index], self._names[index], place, used)
            if self._required >> index & 1:
                return found
        for index in range(self._schema_names, len(self._names)):
            if not place.used >> index & 1:
                used = place.used | self._in_order | 1 << index
                found += self._variants(index, self._formulas[index], self._names[index], place, used)
        for index, (names, formula) in enumerate(self._regions):
            found += self._variants(-1 - index, formula, names, place, place.used | self._in_order)
        return found

    def _come(self, place: MemberPlace) -> int:
        """Return the number of ordered names that can no longer come."""
        return (place.used & self._in_order).bit_length()

    def _variants(
        self, name: int, formula: Formula, names: str | String, place: MemberPlace, used: int
    ) -> list[NextMember]:
        """Return a member with each subset of the unmet rules that it can meet."""
        schema = self._owner.schema
        spend(200 + place.used.bit_length() // 64)
        count = min(place.members + 1, self._ceiling)
        found = [NextMember(name, formula, MemberPlace(used, count, place.unmet))]
        for index, rule in enumerate(self._case.some):
            if place.unmet >> index & 1 and self._concerns(rule.names, names):
                for choice in list(found):
                    both = schema.formulas.all_of((choice.formula, rule.formula))
                    if schema.has_instance(both):
                        unmet = choice.after.unmet & ~(1 << index)
                        found.append(NextMember(name, both, choice.after._replace(unmet=unmet)))
        return found

    def _concerns(self, rule: String, names: str | String) -> bool:
        """Test whether a rule's names contain this name, or overlap this region."""
        if isinstance(names, str):
            return self._owner.schema.language.contains(rule, names)
        return self._owner.schema.overlaps(rule, names)

    def _is_alive(self, place: MemberPlace) -> bool:
        """Test whether the object can be completed."""
        if not self._ceiling and not place.unmet:
            return True
        if not place.unmet:
            return self._has_room(place)
        return reaches_end(place, self._alive, self._may_end, self._places_after)

    def _has_room(self, place: MemberPlace) -> bool:
        """Test whether the missing members fit the maximum and the available names, if no rule is unmet."""
        case = self._case
        missing = (self._required & ~place.used).bit_count()
        needed = max(case.min_properties - place.members, missing)
        if case.max_properties is not None and place.members + needed > case.max_properties:
            return False
        return bool(self._regions) or needed <= len(self._names) - place.used.bit_count()

    def _places_after(self, place: MemberPlace) -> list[MemberPlace]:
        """Return the places after one more member, nearest to the end first."""
        return sorted({choice.after for choice in self._choices(place)}, key=self._still)

    def _shortest(self, place: MemberPlace) -> int:
        """Return the bytes from before a name to after the closing brace, along required members."""
        if self._counts_nothing(place) and self._required & ~place.used:
            return max(self._remaining_bytes(place) - 1 - self._owner.line(self._depth), 0)
        choice = self._nearest(place)
        return min(self._length(choice) + self._remaining_bytes(choice.after), MAX_LENGTH)

    def _nearest(self, place: MemberPlace) -> NextMember:
        """Return the next member on a short way to the end."""
        return min(
            (choice for choice in self._choices(place) if self._is_alive(choice.after)),
            key=lambda choice: (self._still(choice.after), self._length(choice)),
        )

    def _counts_nothing(self, place: MemberPlace) -> bool:
        """Test whether only required members are still needed."""
        return not self._ceiling and not place.unmet

    def _still(self, place: MemberPlace) -> int:
        """Return how much is missing: required members, count and unmet rules. Some member always lowers it."""
        few = max(self._case.min_properties - place.members, 0) if self._ceiling else 0
        return (self._required & ~place.used).bit_count() + few + place.unmet.bit_count()

    def _length(self, choice: NextMember) -> int:
        """Return the bytes of a member: name, colon, value."""
        key = (choice.name, choice.formula)
        known = self._member_lengths.get(key)
        if known is None:
            known = self._name_length(choice.name) + self._owner.length_after_name(choice.formula, self._depth)
            self._member_lengths[key] = known
        return known

    def _remaining_bytes(self, place: MemberPlace) -> int:
        """Return the bytes from after a member to after the closing brace."""
        between, end = 1 + self._owner.line(self._depth), 1 + self._owner.last_line(self._depth)
        if self._counts_nothing(place):
            return min(end + self._missing_lengths(place, between), MAX_LENGTH)
        way: list[tuple[Hashable, int]] = []
        while (key := self._rest_key(place)) not in self._rests and not self._may_end(place):
            choice = self._nearest(place)
            way.append((key, between + self._length(choice)))
            place = choice.after
        total = self._rests.setdefault(key, end)
        for passed, length in reversed(way):
            total = self._rests[passed] = min(total + length, MAX_LENGTH)
        return total

    def _rest_key(self, place: MemberPlace) -> Hashable:
        """Return the key on which the bytes after a member depend."""
        return place

    def _missing_lengths(self, place: MemberPlace, between: int) -> int:
        """Return the bytes of the missing required members, each with its separator."""
        if not self._schema_names:
            missing = self._required & ~place.used
            return sum(between + length for bit, length in self._required_lengths() if missing >> bit & 1)
        if self._lengths_from is None:
            lengths = dict(self._required_lengths())
            totals = [0]
            for index in range(self._schema_names - 1, -1, -1):
                totals.append(totals[-1] + (between + lengths[index] if index in lengths else 0))
            self._lengths_from = totals[::-1]
        return self._lengths_from[self._come(place)]

    def _required_lengths(self) -> list[tuple[int, int]]:
        """Return (number, bytes of the member) for each required name."""
        if self._lengths is None:
            names = (index for index in range(len(self._names)) if self._required >> index & 1)
            self._lengths = [
                (
                    index,
                    len(spelt(self._names[index])) + self._owner.length_after_name(self._formulas[index], self._depth),
                )
                for index in names
            ]
        return self._lengths
