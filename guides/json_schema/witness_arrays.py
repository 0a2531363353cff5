"""Small arrays for the cases of a normal form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from ...errors import LimitError
from . import arrays
from .cases import Array, Contains
from .formula import Formula, json_key
from .instances import NO_INSTANCE, Ask, Witnessing

MAX_ITEMS = 10_000
MAX_UNIQUE = 1_000
MAX_STATES = 20_000

Counts = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """The first items of an array: how many satisfy each `contains`, their formulas, and instances of those."""

    counts: Counts
    formulas: tuple[Formula, ...]
    items: tuple[Any, ...]


class ArrayWitnesses:
    """Builds arrays out of witnesses of their items."""

    def __init__(self, owner: Witnessing) -> None:
        self._owner = owner
        self._formulas = owner.normaliser.formulas

    def build(self, case: Array, ask: Ask) -> Any:
        """An array of the case, or NO_INSTANCE."""
        if case.min_items == 0 and case.unique is not False and not any(part.min for part in case.contains):
            return []
        if case.min_items > MAX_ITEMS:
            raise LimitError(f"minItems above {MAX_ITEMS}")
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
        """Choose for every item which of the `contains` it satisfies, so that all counts come out right."""
        parts = case.contains
        settled = max(len(case.prefix), *(part.start for part in parts))
        limit = max(settled, case.min_items) + sum(part.min for part in parts) + 1
        limit = limit if case.max_items is None else min(limit, case.max_items)
        level = [Choice((0,) * len(parts), (), ())]
        seen: set[Any] = set()
        for index in range(limit + 1):
            for choice in level:
                enough = all(count >= part.min for count, part in zip(choice.counts, parts, strict=True))
                if enough and index >= case.min_items:
                    found = self._unique(choice.formulas, choice.items, ask) if case.unique else list(choice.items)
                    if found is not NO_INSTANCE:
                        return found
            following: list[Choice] = []
            for choice in level:
                for chosen, formula, item in self._items(case, index, ask):
                    counts = _counted(choice.counts, chosen, parts)
                    if counts is None:
                        continue
                    after = Choice(counts, (*choice.formulas, formula), (*choice.items, item))
                    # Of choices with the same counts one will do, whatever their length once all items are
                    # alike; where items must differ, what each of them satisfies matters as well.
                    late = index >= settled and index >= case.min_items and not case.unique
                    kinds = frozenset(Counter(after.formulas).items()) if case.unique else None
                    key = (None if late else index, counts, kinds)
                    if key not in seen:
                        seen.add(key)
                        following.append(after)
                if len(seen) > MAX_STATES:
                    raise LimitError("the counts of several contains are too large to be combined")
            level = following
        return NO_INSTANCE

    def _items(self, case: Array, index: int, ask: Ask) -> Iterator[tuple[tuple[bool, ...], Formula, Any]]:
        """The ways in which the item at `index` can satisfy the `contains` or not: as formulas, with witnesses."""
        base = arrays.item(case, index)
        active = [part if index >= part.start else None for part in case.contains]
        choices = [(False,) if part is None else (True, False) for part in active]
        for chosen in product(*choices):
            wanted = [base]
            for part, holds in zip(active, chosen, strict=True):
                if part is not None:
                    wanted.append(part.formula if holds else self._formulas.negation(part.formula))
            formula = self._formulas.all_of(wanted)
            found = ask(formula)
            if found is not NO_INSTANCE:
                yield chosen, formula, found

    def _with_twins(self, case: Array, ask: Ask) -> Any:
        """Two equal items somewhere: the first two, unless the front differs."""
        last = max(len(case.prefix) + 2, case.min_items)
        last = last if case.max_items is None else min(last, case.max_items)
        for j in range(1, last):
            for i in range(j):
                twin = self._formulas.all_of((arrays.item(case, i), arrays.item(case, j)))
                prefix = [arrays.item(case, index) for index in range(max(j + 1, len(case.prefix)))]
                prefix[i] = prefix[j] = twin
                length = max(case.min_items, j + 1)
                found = self.build(replace(case, prefix=tuple(prefix), unique=None, min_items=length), ask)
                if found is not NO_INSTANCE:
                    return [*found[:i], found[j], *found[i + 1 :]]
        return NO_INSTANCE

    def _unique(self, formulas: Sequence[Formula], items: Sequence[Any], ask: Ask) -> Any:
        """Different instances of the formulas; `items` are instances that may be equal."""
        if len({json_key(item) for item in items}) == len(items):
            return list(items)
        if len(items) > MAX_UNIQUE:
            raise LimitError(f"uniqueItems with more than {MAX_UNIQUE} items")
        pools = {formula: self._owner.several(formula, len(items), ask) for formula in dict.fromkeys(formulas)}
        return _matching([pools[formula] for formula in formulas])

    def more(self, case: Array, count: int, ask: Ask) -> Iterator[Any]:
        """Further arrays of the case: longer ones, and ones with other items."""
        longest = case.min_items + count if case.max_items is None else case.max_items
        for length in range(case.min_items + 1, min(case.min_items + count, longest) + 1):
            yield self.build(replace(case, min_items=length), ask)
        base = self.build(case, ask)
        if base is NO_INSTANCE:
            return
        for index in range(len(base)):
            for value in self._owner.several(arrays.item(case, index), count, ask):
                changed = [*base[:index], value, *base[index + 1 :]]
                if self._owner.in_array(case, changed):
                    yield changed


def _counted(counts: Counts, chosen: tuple[bool, ...], parts: tuple[Contains, ...]) -> Counts | None:
    """The counts after an item, as far as they matter; None if a maximum is passed."""
    after: list[int] = []
    for count, holds, part in zip(counts, chosen, parts, strict=True):
        total = count + holds
        if part.max is not None and total > part.max:
            return None
        after.append(total if part.max is not None else min(total, part.min))
    return tuple(after)


def _matching(pools: list[list[Any]]) -> Any:
    """One value from each pool, all different (augmenting paths); NO_INSTANCE if there are too few."""
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
    """A value that no item has, reached breadth first from an item without one, and who reached each value."""
    came_from: dict[Any, int] = {}
    waiting = [start]
    for index in waiting:
        for key in keys[index]:
            if key not in came_from:
                came_from[key] = index
                if key not in owner:
                    return key, came_from
                waiting.append(owner[key])
    return None
