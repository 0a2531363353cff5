"""Sets of arrays: intersection and complement of `Array`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from ...limits import spend
from .cases import ANY_ARRAY, Array, Contains
from .formula import EVERYTHING, NOTHING, Formula, Formulas


def item(case: Array, index: int) -> Formula:
    """Return the formula of the item at `index`."""
    return case.prefix[index] if index < len(case.prefix) else case.rest


Clashes = Callable[[Formula, Formula], bool]
"""Tests whether a shallow check finds that no value satisfies two formulas."""


def intersect(a: Array, b: Array, formulas: Formulas, clashes: Clashes) -> Array | None:
    """Return the intersection of two sets; None if a shallow check of lengths and items finds it empty."""
    if a is ANY_ARRAY:
        return b
    if b is ANY_ARRAY:
        return a
    if a.unique is not None and b.unique is not None and a.unique != b.unique:
        return None
    length = max(len(a.prefix), len(b.prefix))
    spend(300 + 200 * length)
    prefix = tuple(formulas.all_of((item(a, index), item(b, index))) for index in range(length))
    if a.max_items is None or b.max_items is None:
        max_items = a.max_items if b.max_items is None else b.max_items
    else:
        max_items = min(a.max_items, b.max_items)
    contains = a.contains + tuple(part for part in b.contains if part not in a.contains)
    unique = a.unique if b.unique is None else b.unique
    rest = formulas.all_of((a.rest, b.rest))
    case = tidy(Array(prefix, rest, max(a.min_items, b.min_items), max_items, contains, unique))
    case = case and _without_clashes(case, a, b, clashes)
    return _counting_less(case, formulas, clashes) if case is not None and case.contains else case


def _without_clashes(case: Array, a: Array, b: Array, clashes: Clashes) -> Array | None:
    """Return the intersection, ending before the first item that cannot be in both; None if that item is required."""
    last = len(case.prefix) + 1 if case.max_items is None else min(len(case.prefix) + 1, case.max_items)
    for index in range(last):
        ours, theirs = item(a, index), item(b, index)
        if ours is not EVERYTHING and theirs is not EVERYTHING and ours is not theirs and clashes(ours, theirs):
            return tidy(replace(case, max_items=index))
    return case


def _counting_less(case: Array, formulas: Formulas, clashes: Clashes) -> Array | None:
    """Return the same set without `contains` implied by the rest; None if a required one is impossible."""
    needed: list[Contains] = []
    for part in case.contains:
        items = dict.fromkeys((*case.prefix[part.start :], case.rest))
        if part.min and all(clashes(each, part.formula) for each in items):
            return None
        if part.max is None and all(clashes(each, formulas.negation(part.formula)) for each in items):
            continue  # every item counts, and `tidy` requires enough of them
        if any(_follows(part, other, items, formulas, clashes) for other in needed):
            continue
        needed = [other for other in needed if not _follows(other, part, items, formulas, clashes)]
        needed.append(part)
    return case if len(needed) == len(case.contains) else replace(case, contains=tuple(needed))


def _follows(part: Contains, other: Contains, items: Iterable[Formula], formulas: Formulas, clashes: Clashes) -> bool:
    """Test whether a `contains` is implied by a narrower one."""
    if part.max is not None or part.start > other.start or part.min > other.min:
        return False
    outside = formulas.negation(part.formula)
    return all(clashes(formulas.all_of((each, other.formula)), outside) for each in items)


def lies_within(narrow: Array, wide: Array, formulas: Formulas, clashes: Clashes) -> bool:
    """Test whether a shallow check finds that all arrays of `narrow` are in `wide`."""
    if wide.unique is not None or any(part not in narrow.contains for part in wide.contains):
        return False
    most = narrow.max_items
    if wide.min_items > narrow.min_items or (wide.max_items is not None and (most is None or most > wide.max_items)):
        return False
    count = max(len(narrow.prefix), len(wide.prefix)) + 1
    spend(200 * count)
    return all(
        theirs is EVERYTHING or ours is theirs or clashes(ours, formulas.negation(theirs))
        for ours, theirs in ((item(narrow, index), item(wide, index)) for index in range(count)[:most])
    )


def tidy(case: Array) -> Array | None:
    """Return the same set, with the maximum that impossible items imply; None if it is empty."""
    maximum = case.max_items
    prefix = case.prefix
    if NOTHING in prefix:
        maximum = min(prefix.index(NOTHING), len(prefix) if maximum is None else maximum)
    elif case.rest is NOTHING and (maximum is None or maximum > len(prefix)):
        maximum = len(prefix)
    if maximum is not None:
        prefix = prefix[:maximum]
        if case.min_items > maximum:
            return None
    rest = case.rest if maximum is None or maximum > len(prefix) else EVERYTHING
    for part in case.contains:
        if part.max is not None and part.min > part.max:
            return None
        if maximum is not None and part.start + part.min > maximum:
            return None
    minimum = max((case.min_items, *(part.start + part.min for part in case.contains if part.min)))
    if case.unique is False:
        minimum = max(minimum, 2)
    return Array(prefix, rest, minimum, maximum, case.contains, case.unique)


def containing(part: Contains, formulas: Formulas) -> Array | None:
    """Return the arrays that meet one `contains`; ANY_ARRAY if it has neither a minimum above 0 nor a maximum."""
    if part.max == 0:
        return Array((EVERYTHING,) * part.start, formulas.negation(part.formula)) if part.min == 0 else None
    if part.min == 0 and part.max is None:
        return ANY_ARRAY
    return tidy(Array(contains=(part,)))


def complement(case: Array, formulas: Formulas) -> list[Array]:
    """Return the arrays that are not in the set, as alternatives."""
    parts: list[Array | None] = []
    for index, formula in enumerate(case.prefix):
        if formula is not EVERYTHING:
            wrong = (EVERYTHING,) * index + (formulas.negation(formula),)
            parts.append(tidy(Array(wrong, min_items=index + 1)))
    if case.rest is not EVERYTHING:
        parts.append(containing(Contains(formulas.negation(case.rest), len(case.prefix)), formulas))
    if case.min_items:
        parts.append(Array(max_items=case.min_items - 1))
    if case.max_items is not None:
        parts.append(Array(min_items=case.max_items + 1))
    for part in case.contains:
        if part.min:
            parts.append(containing(Contains(part.formula, part.start, 0, part.min - 1), formulas))
        if part.max is not None:
            parts.append(containing(Contains(part.formula, part.start, part.max + 1), formulas))
    if case.unique is not None:
        parts.append(tidy(Array(unique=not case.unique)))
    return [part for part in parts if part is not None]
