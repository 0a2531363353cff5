"""Small arrays for the cases of a normal form."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from typing import Any, Generic, NamedTuple, TypeVar

from ...limits import spend
from ..algebra import arrays
from ..algebra.cases import Array, Contains
from ..algebra.formula import EVERYTHING, NOTHING, Formula, json_key
from ..algebra.normalise import Normaliser
from ..algebra.translate import UNREACHED
from .instances import NO_INSTANCE, Ask, Several

Counts = tuple[int, ...]
Item = TypeVar("Item")


class ItemChain(NamedTuple):
    """The first items of an array, as a linked list: matches of each `contains`, size, last item and its formula."""

    counts: Counts
    size: int
    formula: Formula
    item: Any
    before: ItemChain | None

    def items(self) -> tuple[list[Formula], list[Any]]:
        """Return the formulas of all items, and their instances."""
        formulas: list[Formula] = []
        items: list[Any] = []
        choice: ItemChain = self
        while choice.before is not None:
            formulas.append(choice.formula)
            items.append(choice.item)
            choice = choice.before
        return formulas[::-1], items[::-1]


class ReplayedItems(Generic[Item]):
    """An iterator that can be iterated repeatedly; items are taken from the source on demand."""

    def __init__(self, source: Iterator[Item]) -> None:
        self._source = source
        self._cache: list[Item] = []

    def __iter__(self) -> Iterator[Item]:
        at = 0
        while True:
            if at == len(self._cache):
                try:
                    self._cache.append(next(self._source))
                except StopIteration:
                    return
            yield self._cache[at]
            at += 1


Kind = tuple[tuple[bool, ...], Formula]
Kinds = dict[tuple[Formula, tuple[bool, ...]], ReplayedItems[Kind]]


class ArrayWitnesses:
    """Builds arrays out of witnesses of their items."""

    def __init__(self, normaliser: Normaliser, several: Several) -> None:
        self._normaliser = normaliser
        self._several = several
        self._formulas = normaliser.formulas

    def build(self, case: Array, ask: Ask) -> Any:
        """Return an array of the case, or NO_INSTANCE."""
        if case.min_items == 0 and case.unique is not False and not any(part.min for part in case.contains):
            return []
        spend(20 * min(case.min_items, UNREACHED))
        if case.unique is False:
            return self._with_twins(case, ask)
        if case.contains:
            return self._with_contents(case, ask)
        items: list[Any] = []
        for index in range(min(case.min_items, len(case.prefix))):
            items.append(ask(case.prefix[index]))
        if case.min_items > len(case.prefix):
            items.extend([ask(case.rest)] * (case.min_items - len(case.prefix)))
        if any(item is NO_INSTANCE for item in items):
            return NO_INSTANCE
        formulas = [arrays.item(case, index) for index in range(case.min_items)] if case.unique else []
        return self._unique(formulas, items, ask) if case.unique else items

    def _with_contents(self, case: Array, ask: Ask) -> Any:
        """Choose for every item which `contains` it satisfies, so that all counts are met."""
        parts = case.contains
        settled = max(len(case.prefix), *(part.start for part in parts))
        limit = max(settled, case.min_items) + sum(part.min for part in parts) + 1
        limit = limit if case.max_items is None else min(limit, case.max_items)
        start = ItemChain((0,) * len(parts), 0, EVERYTHING, None, None)
        waiting: list[tuple[int, int, int, ItemChain]] = [(_missing_count(case, start), 0, 0, start)]
        seen: set[Any] = set()
        kinds_of: Kinds = {}
        if not self._covers(case, limit, kinds_of, ask):
            return NO_INSTANCE
        while waiting:
            spend(500)
            missing, _, _, choice = heappop(waiting)
            if missing == 0:
                formulas, items = choice.items()
                spend(100 * len(items))
                found = self._unique(formulas, items, ask) if case.unique else items
                if found is not NO_INSTANCE:
                    return found
            if choice.size == limit:
                continue
            for chosen, formula in self._kinds_at(case, choice.size, kinds_of):
                spend(300)
                item = ask(formula)
                if item is NO_INSTANCE:
                    continue
                counts = _counted(choice.counts, chosen, parts)
                if counts is None:
                    continue
                after = ItemChain(counts, choice.size + 1, formula, item, choice)
                # One choice per combination of counts is enough, of any length once all items are alike. Where items
                # must differ, the formulas of the items matter as well.
                late = choice.size >= settled and choice.size >= case.min_items and not case.unique
                kinds = self._kinds(after) if case.unique else None
                key = (None if late else after.size, counts, kinds)
                if key not in seen:
                    seen.add(key)
                    left = _missing_count(case, after)
                    heappush(waiting, (left, after.size, len(seen), after))
                    if left == 0 and not case.unique:
                        break
        return NO_INSTANCE

    def _kinds_at(self, case: Array, index: int, kinds_of: Kinds) -> ReplayedItems[Kind]:
        """Return the combinations of `contains` that the item at `index` can satisfy, each with its formula."""
        base, active = arrays.item(case, index), tuple(index >= part.start for part in case.contains)
        if (base, active) not in kinds_of:
            kinds_of[base, active] = ReplayedItems(self._chosen(case, active, 0, base))
        return kinds_of[base, active]

    def _covers(self, case: Array, limit: int, kinds_of: Kinds, ask: Ask) -> bool:
        """Test whether for each required `contains` a possible item is known."""
        missing = {number for number, part in enumerate(case.contains) if part.min}
        settled = max(len(case.prefix), *(part.start for part in case.contains))
        for index in range(min(settled + 1, limit)):
            for chosen, formula in self._kinds_at(case, index, kinds_of):
                spend(300)
                if not missing:
                    return True
                if any(chosen[number] for number in missing) and ask(formula) is not NO_INSTANCE:
                    missing -= {number for number in missing if chosen[number]}
        return not missing

    def _kinds(self, choice: ItemChain) -> frozenset[tuple[Formula, int]]:
        formulas = choice.items()[0]
        spend(50 * len(formulas))
        return frozenset(Counter(formulas).items())

    def _chosen(
        self, case: Array, active: tuple[bool, ...], number: int, formula: Formula
    ) -> Iterator[tuple[tuple[bool, ...], Formula]]:
        """Yield the combinations from `contains` number `number` on, without obvious contradictions."""
        if formula is NOTHING:
            return
        if number == len(case.contains):
            yield (), formula
            return
        spend(500 + 100 * number)
        part = case.contains[number]
        both, refuse = self._formulas.all_of, self._formulas.negation
        if active[number]:
            for rest, conjunction in self._chosen(case, active, number + 1, both((formula, part.formula))):
                yield (True, *rest), conjunction
            formula = both((formula, refuse(part.formula)))
        for rest, conjunction in self._chosen(case, active, number + 1, formula):
            yield (False, *rest), conjunction

    def _with_twins(self, case: Array, ask: Ask) -> Any:
        """Return an array with two equal items, the earliest possible pair."""
        last = max(len(case.prefix) + 2, case.min_items)
        last = last if case.max_items is None else min(last, case.max_items)
        for j in range(1, last):
            for i in range(j):
                spend(1000)
                twin = self._formulas.all_of((arrays.item(case, i), arrays.item(case, j)))
                prefix = [arrays.item(case, index) for index in range(max(j + 1, len(case.prefix)))]
                prefix[i] = prefix[j] = twin
                length = max(case.min_items, j + 1)
                found = self.build(replace(case, prefix=tuple(prefix), unique=None, min_items=length), ask)
                if found is not NO_INSTANCE:
                    return [*found[:i], found[j], *found[i + 1 :]]
        return NO_INSTANCE

    def _unique(self, formulas: Sequence[Formula], items: Sequence[Any], ask: Ask) -> Any:
        """Return different instances of the formulas; `items` are instances, possibly equal."""
        if len({json_key(item) for item in items}) == len(items):
            return list(items)
        pools = {formula: self._several(formula, len(items), ask) for formula in dict.fromkeys(formulas)}
        return _matching([pools[formula] for formula in formulas])

    def more(self, case: Array, count: int, ask: Ask) -> Iterator[Any]:
        """Yield further arrays of the case: longer ones, and ones with other items."""
        longest = case.min_items + count if case.max_items is None else case.max_items
        bases: list[Any] = [self.build(case, ask)]
        for length in range(case.min_items + 1, min(case.min_items + count, longest) + 1):
            bases.append(self.build(replace(case, min_items=length), ask))
            yield bases[-1]
        pools: dict[Formula, list[Any]] = {}

        def changed(base: list[Any]) -> Iterator[list[Any]]:
            for index in range(len(base)):
                formula = arrays.item(case, index)
                if formula not in pools:
                    pools[formula] = self._several(formula, count, ask)
                for value in pools[formula]:
                    yield [*base[:index], value, *base[index + 1 :]]

        for found in changes([base for base in bases if base is not NO_INSTANCE], changed, count):
            if self._normaliser.membership.in_array(case, found):
                yield found


def changes(bases: list[Any], changed: Callable[[Any], Iterator[Any]], count: int) -> Iterator[Any]:
    """Yield the values reachable by changes, fewest changes first, until enough distinct ones were seen."""
    seen = set(map(json_key, bases))
    waiting = deque(bases)
    while waiting and len(seen) <= 4 * count:
        for found in changed(waiting.popleft()):
            spend(100)
            key = json_key(found)
            if key not in seen:
                seen.add(key)
                waiting.append(found)
                yield found


def _missing_count(case: Array, choice: ItemChain) -> int:
    """Return the number of items and matches that an array still needs."""
    matches = sum(max(part.min - count, 0) for count, part in zip(choice.counts, case.contains, strict=True))
    return matches + max(case.min_items - choice.size, 0)


def _counted(counts: Counts, chosen: tuple[bool, ...], parts: tuple[Contains, ...]) -> Counts | None:
    """Return the counts after an item, capped where they stop to matter; None if a maximum is exceeded."""
    after: list[int] = []
    for count, holds, part in zip(counts, chosen, parts, strict=True):
        total = count + holds
        if part.max is not None and total > part.max:
            return None
        after.append(total if part.max is not None else min(total, part.min))
    return tuple(after)


def _matching(pools: list[list[Any]]) -> Any:
    """Return one value from each pool, all different (augmenting paths); NO_INSTANCE if that is impossible."""
    values = {json_key(value): value for pool in {id(pool): pool for pool in pools}.values() for value in pool}
    by_pool = {id(pool): [json_key(value) for value in pool] for pool in pools}
    keys = [by_pool[id(pool)] for pool in pools]
    owner: dict[Any, int] = {}
    held: dict[int, Any] = {}
    for start in range(len(pools)):
        found = _path(start, keys, owner)
        if found is None:
            return NO_INSTANCE
        key, came_from = found
        while True:
            index = came_from[key]
            before = held.get(index)
            owner[key], held[index] = index, key
            if index == start:
                break
            key = before
    return [values[held[index]] for index in range(len(pools))]


def _path(start: int, keys: list[list[Any]], owner: dict[Any, int]) -> tuple[Any, dict[Any, int]] | None:
    """Return a free value reached breadth first from an item without one, and the item that reached each value."""
    came_from: dict[Any, int] = {}
    waiting = [start]
    for index in waiting:
        spend(20 * len(keys[index]))
        for key in keys[index]:
            if key not in came_from:
                came_from[key] = index
                if key not in owner:
                    return key, came_from
                waiting.append(owner[key])
    return None
