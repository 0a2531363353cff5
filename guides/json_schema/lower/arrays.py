"""Arrays of a schema as fragments of a graph."""

from __future__ import annotations

from functools import partial
from itertools import islice, repeat
from operator import add
from typing import Any, NamedTuple

from ....errors import SchemaError
from ....kernels.chart.layout import CALL, EPSILON, INCREMENT, LEAVE, UNBOUNDED
from ...graph.graph import Link
from ...graph.utf8 import EQUAL_ITEM
from ...limits import spend
from ..algebra import arrays
from ..algebra.cases import Array, Contains
from ..algebra.formula import NOTHING, Formula, json_key
from .rules import MAX_LENGTH, RuleLowering, reaches_end
from .unique import different_values, is_watched, most_needed

MUCH = 3
FEW = 8
"""Maximum number of required items and matches for which the shortest completion is searched."""


class ArrayPlace(NamedTuple):
    """The progress of an array: number of items; matches of each `contains`; for unique items, the bits used."""

    length: int
    counts: tuple[int, ...]
    used: int


class CountingMode(NamedTuple):
    """May the next item count for a `contains`, and may a matching item remain uncounted."""

    counts: bool
    uncounted: bool


class UniqueValue(NamedTuple):
    """A value of unique items: its bit and formula, the `contains` it satisfies, and the bytes of a short text."""

    bit: int
    formula: Formula
    meets: tuple[bool, ...]
    length: int


class ItemLowering:
    """One array case of a formula at one depth, in the current rule, before the node `target`."""

    def __init__(self, owner: RuleLowering, case: Array, formula: Formula, depth: int, target: int) -> None:
        self._owner = owner
        self._graph = owner.graph
        self._case = case
        self._formula = formula
        self._depth = depth
        self._afters: dict[Any, int] = {}
        self._alive: dict[ArrayPlace, bool] = {}
        self._kinds_of: dict[tuple[Formula, tuple[CountingMode, ...]], list[tuple[Formula, tuple[int, ...]]]] = {}
        self._rests: dict[ArrayPlace, int] = {}
        self._listed: dict[Formula, list[UniqueValue]] = {}
        self._bits: dict[Any, int] = {}
        self._shortest_values: dict[ArrayPlace, int] = {}
        bracket = owner.graph.literal(b"]", target)
        self._close = owner.gap(owner.form.spacing.at_end(depth), bracket)
        self._close_empty = owner.gap(owner.form.spacing.free(), bracket)
        self._target = target
        self._rest_exists = case.rest is not NOTHING and owner.schema.has_instance(case.rest)
        self._is_watched = is_watched(owner.schema, case)
        several = case.max_items is None or case.max_items > 1
        self._listing = bool(case.unique) and several and not self._is_watched
        self._needs_fresh = self._is_watched and most_needed(case) > 1
        # Values that `contains` counts may run out.
        both = owner.schema.formulas.all_of
        counted = (both((case.rest, part.formula)) for part in case.contains)
        self._is_scarce = self._needs_fresh and any(map(self._scarce_values, counted))

    def entry(self) -> int | None:
        """Return the node before the opening bracket; None if there is no such array."""
        is_tracked = self._case.contains or self._listing or self._case.unique is False
        links = self._tracked() if is_tracked else self._plain()
        if not links:
            return None
        return self._graph.node(((0x5B, 0x5B, self._graph.node(links=links)),))

    def _item(self, formula: Formula, after: int, *, is_spent: bool = False) -> int:
        """Return the node before an item of a formula that leads to `after`. is_spent: all its values are there"""
        graph, owner = self._graph, self._owner
        rule = owner.value(formula, self._depth + 1)
        if not self._is_watched:
            if owner.beside_free:
                after = graph.node(((EQUAL_ITEM, EQUAL_ITEM, after),), ((EPSILON, after, 0),))
            return graph.node(links=((CALL, rule, after),))
        back = graph.node(links=((EPSILON, after, 0),))
        owner.marks.items.add(back)
        call: Link = (CALL, rule, back)
        if not self._needs_fresh:
            return graph.node(links=(call,))
        length = partial(self._length, formula, is_spent=is_spent)
        return graph.lazy_node(lambda node: self._define_item(node, call), length, back)

    def _define_item(self, node: int, call: Link) -> None:
        self._graph.define(node, links=(call,))

    def _values_of(self, formula: Formula) -> list[Any]:
        """Return as many different values of an item as are required, or all that are found."""
        return different_values(self._owner.schema, self._case, formula, self._formula)

    def _scarce_values(self, formula: Formula) -> int:
        """Return the number of values of an item if they may run out before enough items are there, otherwise 0."""
        found = len(self._values_of(formula))
        return found if found < most_needed(self._case) else 0

    def _length(self, formula: Formula, *, is_spent: bool = False) -> int:
        """Return bytes sufficient for an item of a formula; if items must differ, for one unlike all earlier ones."""
        if is_spent:
            return MAX_LENGTH
        owner = self._owner
        if not self._needs_fresh:
            return owner.shortest(formula, self._depth + 1)
        return max((owner.length_of(value, self._depth + 1) for value in self._values_of(formula)), default=MAX_LENGTH)

    def _is_spent(self, place: ArrayPlace, formula: Formula, after: ArrayPlace) -> bool:
        """Test whether all values of an item are there, as far as the counts of a place tell."""
        if not self._needs_fresh or len(self._case.contains) != 1:
            return False
        (count,), (counted,) = place.counts, after.counts
        used = count if counted > count else place.length - count
        return 0 < self._scarce_values(formula) <= used

    # Arrays whose items depend only on their index

    def _plain(self) -> list[Link]:
        case, has_instance = self._case, self._owner.schema.has_instance
        prefix: list[Formula] = []
        most = UNBOUNDED if case.max_items is None else case.max_items
        for formula in case.prefix[:most]:
            if formula is NOTHING or not has_instance(formula):
                most = len(prefix)
                break
            prefix.append(formula)
        if len(prefix) == len(case.prefix) and not self._rest_exists:
            most = min(most, len(prefix))
        if most < case.min_items:
            return []
        links: list[Link] = [(EPSILON, self._close_empty, 0)] if case.min_items == 0 else []
        if most == 0:
            return links
        if prefix:
            after = self._after_prefix(prefix, most)
            return [*links, self._owner.first(self._item(prefix[0], after), self._depth)]
        least = max(0, case.min_items - 1)
        after = self._loop(least, most if most == UNBOUNDED else most - 1)
        return [*links, self._owner.first(self._item(case.rest, after), self._depth)]

    def _after_prefix(self, prefix: list[Formula], most: int) -> int:
        """Return the node after the first item of the prefix."""
        case, count = self._case, len(prefix)
        if most > count:
            after = self._loop(max(0, case.min_items - count), most if most == UNBOUNDED else most - count)
        else:
            after = self._close
        for index in range(count - 1, 0, -1):
            links = [self._owner.comma(self._item(prefix[index], after), self._depth)]
            if index >= case.min_items:
                links.append((EPSILON, self._close, 0))
            after = self._graph.node(links=links)
        return after

    def _loop(self, least: int, most: int) -> int:
        """Return the node after an item from which `least` to `most` further items follow, then the end."""
        if most == 0:
            return self._close
        graph, rest = self._graph, self._case.rest
        if least == 0 and most == UNBOUNDED:
            head = graph.reserve()
            comma = self._owner.comma(self._item(rest, head), self._depth)
            return graph.define(head, links=(comma, (EPSILON, self._close, 0)))
        counter = graph.counter_for(least, most)
        head = graph.reserve()  # outside the counter: the first item returns here with a count of zero
        graph.counter = counter
        turn = graph.node(links=((INCREMENT, head, counter),))
        comma = self._owner.comma(self._item(rest, turn), self._depth)
        graph.counter = 0
        return graph.define(head, links=((EPSILON, comma[1], counter), (LEAVE, self._close, counter)))

    # Arrays whose items depend on earlier items

    def _tracked(self) -> list[Link]:
        case = self._case
        if case.unique is False:
            raise SchemaError("arrays in which some two items are equal cannot be enforced", "#/uniqueItems")
        start = ArrayPlace(0, (0,) * len(case.contains), 0)
        if not self._is_alive(start):
            return []
        links: list[Link] = [(EPSILON, self._close_empty, 0)] if self._may_end(start) else []
        steps = [step for step in self._steps(start) if self._is_alive(step[1])]
        if steps:
            links.append(self._owner.first(self._alternatives(start, steps), self._depth))
        return links

    def _alternatives(self, place: ArrayPlace, steps: list[tuple[Formula, ArrayPlace]]) -> int:
        """Return the node before an item of any of the formulas, each with the place after it. place: before it"""
        items = [
            self._item(formula, self._after(after), is_spent=self._is_spent(place, formula, after))
            for formula, after in steps
        ]
        return self._graph.node(links=[(EPSILON, item, 0) for item in items])

    def _after(self, place: ArrayPlace) -> int:
        node = self._afters.get(place)
        if node is None:
            node = self._afters[place] = self._graph.lazy_node(
                lambda node: self._define_after(node, place), lambda: self._shortest(place), self._target
            )
        return node

    def _define_after(self, node: int, place: ArrayPlace) -> None:
        links: list[Link] = [(EPSILON, self._close, 0)] if self._may_end(place) else []
        steps = [step for step in self._steps(place) if self._is_alive(step[1])]
        if steps:
            links.append(self._owner.comma(self._alternatives(place, steps), self._depth))
        self._graph.define(node, links=links)

    def _may_end(self, place: ArrayPlace) -> bool:
        case = self._case
        enough = all(count >= part.min for count, part in zip(place.counts, case.contains, strict=True))
        return enough and place.length >= case.min_items

    def _steps(self, place: ArrayPlace) -> list[tuple[Formula, ArrayPlace]]:
        """Return the possible next items: the formula of each kind, and the place after it."""
        case = self._case
        if case.max_items is not None and place.length >= case.max_items:
            return []
        if self._listing:
            return self._unused(place)
        length = self._following(place.length)
        modes = tuple(map(self._mode, case.contains, place.counts, repeat(place.length)))
        return [
            (formula, place._replace(length=length, counts=tuple(map(add, place.counts, more))))
            for formula, more in self._kinds(arrays.item(case, place.length), modes)
        ]

    def _mode(self, part: Contains, count: int, length: int) -> CountingMode:
        """Return how an item may count for a `contains`."""
        if length < part.start:
            return CountingMode(False, True)
        if part.max is None:
            # If many matches are counted, every matching item counts; a choice would double the chart's items.
            much = len(self._case.contains) > MUCH or part.min > MUCH
            # Where values run out, it matters how many of them are there.
            is_exact = self._is_scarce or (much and part.formula.kind == "values")
            return CountingMode(count < part.min, count >= part.min or not is_exact)
        return CountingMode(count < part.max, False)

    def _kinds(self, base: Formula, modes: tuple[CountingMode, ...]) -> list[tuple[Formula, tuple[int, ...]]]:
        """Return the kinds of an item: their formulas, and what each adds to the counts."""
        known = self._kinds_of.get((base, modes))
        if known is None:
            schema, formulas = self._owner.schema, self._owner.schema.formulas
            kinds: list[tuple[Formula, tuple[int, ...]]] = [(base, ())]
            for mode, part in zip(modes, self._case.contains, strict=True):
                split: list[tuple[Formula, tuple[int, ...]]] = []
                spend(1000 * len(kinds))
                for formula, more in kinds:
                    without = formula
                    if not mode.uncounted:
                        without = formulas.all_of((formula, formulas.negation(part.formula)))
                    split.append((without, (*more, 0)))
                    if mode.counts:
                        split.append((formulas.all_of((formula, part.formula)), (*more, 1)))
                kinds = [kind for kind in split if kind[0] is not NOTHING]
            known = [kind for kind in kinds if schema.has_instance(kind[0])]
            self._kinds_of[base, modes] = known
        return known

    def _following(self, index: int) -> int:
        """Return the index of the next item, capped where it stops to matter."""
        case = self._case
        matters = [len(case.prefix), case.min_items, *(part.start for part in case.contains)]
        if case.max_items is not None:
            matters.append(case.max_items)
        return min(index + 1, max(matters))

    def _values(self, formula: Formula) -> list[UniqueValue]:
        """Return the values of unique items of a formula, by length of their text."""
        known = self._listed.get(formula)
        if known is None:
            owner, case = self._owner, self._case
            values = owner.schema.constants(formula)
            if values is None:
                raise SchemaError(
                    "uniqueItems can be enforced only for items out of finitely many values (enum, const, boolean)",
                    owner.schema.formulas.pointer_of(formula),
                )
            known = self._listed[formula] = []
            for value in values:
                one = owner.schema.formulas.values((value,))
                meets = tuple(owner.schema.accepts(part.formula, value) for part in case.contains)
                bit = self._bits.setdefault(json_key(value), 1 << len(self._bits))
                known.append(UniqueValue(bit, one, meets, owner.shortest(one, self._depth + 1)))
            known.sort(key=lambda value: value.length)
        return known

    def _unused(self, place: ArrayPlace) -> list[tuple[Formula, ArrayPlace]]:
        """Return the values that are not used yet."""
        values = self._values(arrays.item(self._case, place.length))
        spend((100 + place.used.bit_length() // 64) * len(values))
        unused = [value for value in values if not value.bit & place.used]
        length = self._following(place.length)
        if self._case.contains:
            counted = ((value, self._counted(place, value)) for value in unused)
            return [
                (value.formula, ArrayPlace(length, counts, place.used | value.bit))
                for value, counts in counted
                if counts is not None
            ]
        steps = [(value.formula, ArrayPlace(length, (), place.used | value.bit)) for value in unused]
        if place.length >= len(self._case.prefix):
            self._note_shortest([after for _, after in steps], [value.length for value in unused])
        return steps

    def _counted(self, place: ArrayPlace, value: UniqueValue) -> tuple[int, ...] | None:
        """Return the counts after one more value; None if a maximum is exceeded."""
        counts: list[int] = []
        for count, meets, part in zip(place.counts, value.meets, self._case.contains, strict=True):
            more = count + (meets and place.length >= part.start)
            if part.max is not None and more > part.max:
                return None
            counts.append(more if part.max is not None else min(more, part.min))
        return tuple(counts)

    def _note_shortest(self, places: list[ArrayPlace], lengths: list[int]) -> None:
        """Store the bytes of the shortest required values after each of the unused ones.

        places: after each of the unused values; lengths: of these, in ascending order
        """
        missing = max(self._case.min_items - places[0].length, 0) if places else 0
        few, more = sum(lengths[:missing]), sum(lengths[: missing + 1])
        for number, (place, length) in enumerate(zip(places, lengths, strict=True)):
            self._shortest_values[place] = few if number >= missing else more - length

    def _is_alive(self, place: ArrayPlace) -> bool:
        """Test whether the array can be completed."""
        decided = self._decide_alive(place)
        return reaches_end(place, self._alive, self._may_end, self._places_after) if decided is None else decided

    def _decide_alive(self, place: ArrayPlace) -> bool | None:
        """Test whether an array can be completed with one item per missing match; None if that does not decide."""
        case = self._case
        if place.length < max((len(case.prefix), *(part.start for part in case.contains))):
            return None
        missing = max(case.min_items - place.length, 0)
        wanted = [max(part.min - count, 0) for part, count in zip(case.contains, place.counts, strict=True)]
        if not missing and not any(wanted):
            return True
        if not (self._enough_values(place, missing, wanted) if self._listing else self._enough_kinds(wanted)):
            return False
        bounded = any(part.max is not None for part in case.contains)
        roomy = case.max_items is None or place.length + max(missing, sum(wanted)) <= case.max_items
        return True if roomy and not bounded else None

    def _enough_values(self, place: ArrayPlace, missing: int, wanted: list[int]) -> bool:
        """Test whether enough values are left for the missing items, and for each `contains`."""
        values = self._values(self._case.rest) if self._rest_exists else []
        if not any(wanted) and not self._case.prefix:
            return missing <= len(values) - place.used.bit_count()
        spend(10 * len(values))
        left = [value.meets for value in values if not value.bit & place.used]
        return missing <= len(left) and not any(
            sum(meets[number] for meets in left) < count for number, count in enumerate(wanted) if count
        )

    def _enough_kinds(self, wanted: list[int]) -> bool:
        """Test whether further items can satisfy each `contains` that is wanted."""
        case, schema = self._case, self._owner.schema
        return self._rest_exists and all(
            schema.has_instance(schema.formulas.all_of((case.rest, part.formula)))
            for part, count in zip(case.contains, wanted, strict=True)
            if count
        )

    def _places_after(self, place: ArrayPlace) -> list[ArrayPlace]:
        """Return the places after one more item, nearest to the end first."""
        return sorted({after for _, after in self._steps(place)}, key=self._missing)

    def _short_values(self, place: ArrayPlace) -> int | None:
        """Return the bytes of the shortest required values, with separators; None if more conditions matter."""
        case = self._case
        if case.contains or place.length < len(case.prefix):
            return None
        missing = max(case.min_items - place.length, 0)
        total = self._shortest_values.get(place)
        if total is None:
            values = self._values(case.rest) if missing else []
            spend(10 * len(values))
            total = sum(islice((value.length for value in values if not value.bit & place.used), missing))
        return missing * (1 + self._owner.line(self._depth)) + total

    def _shortest(self, place: ArrayPlace) -> int:
        """Return the bytes from after an item to after the closing bracket, along short items."""
        remaining = self._short_values(place) if self._listing else self._short_matches(place)
        way: list[tuple[ArrayPlace, int]] = []
        if remaining is None:
            line = self._owner.line(self._depth)
            while place not in self._rests and not self._may_end(place):
                formula, after = self._nearest(place)
                way.append((place, 1 + line + self._length(formula)))
                place = after
            remaining = self._rests.get(place, 0)
        for passed, length in reversed(way):
            remaining = self._rests[passed] = remaining + length
        return min(remaining + self._owner.last_line(self._depth) + 1, MAX_LENGTH)

    def _nearest(self, place: ArrayPlace) -> tuple[Formula, ArrayPlace]:
        """Return the next item on a short way to the end, and the place after it."""
        return min(
            (step for step in self._steps(place) if self._is_alive(step[1])),
            key=lambda step: (self._is_spent(place, *step), self._missing(step[1]), self._length(step[0])),
        )

    def _short_matches(self, place: ArrayPlace) -> int | None:
        """Return `_shortest` with one item per missing match, if these are many and nothing else matters; else None."""
        case, owner = self._case, self._owner
        settled = max((len(case.prefix), *(part.start for part in case.contains)), default=0)
        bounded = case.max_items is not None or any(part.max is not None for part in case.contains)
        few = case.min_items + sum(part.min for part in case.contains) <= FEW
        if few or bounded or place.length < settled:
            return None
        wanted = [max(part.min - count, 0) for part, count in zip(case.contains, place.counts, strict=True)]
        others = max(case.min_items - place.length - sum(wanted), 0)
        pairs = [(case.rest, others)] if others else []
        both = owner.schema.formulas.all_of
        pairs += [(both((case.rest, part.formula)), n) for part, n in zip(case.contains, wanted, strict=True) if n]
        line = 1 + owner.line(self._depth)
        return sum(count * (line + self._length(formula)) for formula, count in pairs)

    def _missing(self, place: ArrayPlace) -> int:
        parts = zip(place.counts, self._case.contains, strict=True)
        return max(self._case.min_items - place.length, 0) + sum(max(part.min - count, 0) for count, part in parts)
