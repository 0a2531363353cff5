"""Intersections of normal forms: whether anything at all, and what belongs to exactly one of several.

The first pair of alternatives that meet tells the one. For the other, alternatives are most often told apart by a
member of theirs, of other constants in each: then nothing of one is refuted for another, and their pairs, as many as
the square of their number, are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import chain
from typing import Any, Protocol

from ...limits import spend
from . import arrays, numbers, objects, strings
from .absorption import union
from .cases import ANY_ARRAY, ANY_NUMBER, ANY_OBJECT, ANY_STRING, Array, Normal, Object
from .formula import EVERYTHING, Formula, Formulas, conjuncts
from .groups import ManyError
from .strings import StringLanguage

STEPS_PER_PAIR = 300


class Intersecting(Protocol):
    """The part of the normaliser that this needs."""

    formulas: Formulas
    language: StringLanguage

    def both_objects(self, a: Object, b: Object) -> Object | None:
        """The intersection of two cases."""
        ...

    def settled(self, case: Object) -> list[Object]:
        """The alternatives of a case that asks for members of some names."""
        ...

    def clashes(self, a: Formula, b: Formula) -> bool:
        """Tell whether no value satisfies both formulas."""
        ...


def meet(a: Normal, b: Normal, owner: Intersecting) -> bool:
    """Tell whether some alternatives of both meet, as far as it is seen at first sight; constants are not looked at."""
    if (a.null and b.null) or a.booleans & b.booleans:
        return True
    if _any(a.numbers, b.numbers, ANY_NUMBER) or _any(a.strings, b.strings, ANY_STRING):
        return True
    if _any(a.arrays, b.arrays, ANY_ARRAY) or _any(a.objects, b.objects, ANY_OBJECT):
        return True
    spend(STEPS_PER_PAIR * (len(a.numbers) * len(b.numbers) + len(a.strings) * len(b.strings)))
    if any(numbers.intersect(one, other) is not None for one in a.numbers for other in b.numbers):
        return True
    if any(strings.intersect(one, other, owner.language) is not None for one in a.strings for other in b.strings):
        return True
    spend(STEPS_PER_PAIR * len(a.arrays) * len(b.arrays))
    if any(_arrays_meet(one, other, owner) for one in a.arrays for other in b.arrays):
        return True
    return any(_objects_meet(one, other, owner) for one in a.objects for other in b.objects)


def _any(a: tuple[object, ...], b: tuple[object, ...], any_case: object) -> bool:
    """Tell whether one side has all values of a type, and the other some."""
    return bool(a and b) and (a[0] is any_case or b[0] is any_case)


def _arrays_meet(one: Array, other: Array, owner: Intersecting) -> bool:
    return arrays.intersect(one, other, owner.formulas, owner.clashes) is not None


def _objects_meet(a: Object, b: Object, owner: Intersecting) -> bool:
    spend(STEPS_PER_PAIR)
    if a.either or b.either or a.some or b.some:
        case = owner.both_objects(a, b)
        return case is not None and bool(owner.settled(case))
    return objects.meet(a, b, owner.formulas, owner.language, owner.clashes)


class Excluding(Protocol):
    """The part of the normaliser that this needs."""

    formulas: Formulas

    def normal(self, formula: Formula) -> Normal:
        """The normal form of a formula."""
        ...

    def meaning(self, formula: Formula) -> Formula:
        """The formula that a subschema stands for."""
        ...

    def clashes(self, a: Formula, b: Formula) -> bool:
        """Tell whether no value satisfies both formulas."""
        ...

    def conjunction(self, normals: Iterable[Normal]) -> Normal:
        """The conjunction of normal forms."""
        ...

    def outside(self, normal: Normal, formula: Formula) -> Normal:
        """The difference of a normal form and a formula. Raises ManyError for too many cases of objects."""
        ...

    def complement(self, normal: Normal) -> Normal:
        """The complement of a normal form."""
        ...


def exactly_one(parts: Sequence[Formula], context: Formula, owner: Excluding) -> Normal:
    """The values that satisfy one of the formulas and no other.

    context: what is known of the values anyway; of others more may be let through
    """
    within = [owner.formulas.all_of((context, part)) for part in parts]
    normals = [owner.normal(formula) for formula in within]
    tags = _tags(normals, owner)
    # Objects that a member tells apart may be something else yet, all alike
    beside = [replace(normal, objects=()) if tags else normal for normal in normals]
    found: list[Normal] = []
    for index, chosen in enumerate(parts):
        apart = [tags is not None and tags[index].isdisjoint(tags[at]) for at in range(len(parts))]
        others = [part for at, part in enumerate(parts) if at != index and not apart[at]]
        told = (normal for normal, is_apart in zip(beside, apart, strict=True) if is_apart)
        outside = (owner.complement(normal) for normal in told if not normal.is_empty)
        found.append(owner.conjunction(chain((_only(chosen, within[index], others, owner),), outside)))
    return union(found)


def _only(chosen: Formula, within: Formula, others: Iterable[Formula], owner: Excluding) -> Normal:
    """The values that satisfy one formula and none of the others; disjoint ones need no negation.

    within: the formula in its context
    """
    holding = conjuncts(chosen, frozenset(), owner.meaning)
    refuted: list[list[Formula]] = []
    for other in others:
        if not owner.clashes(chosen, other) and (within is chosen or not owner.clashes(within, other)):
            left = conjuncts(other, frozenset(holding), owner.meaning)
            refuted.append([part for part, leaf in left.items() if leaf])
    found = owner.normal(chosen)
    try:
        for left in refuted:
            found = union([owner.outside(found, part) for part in left])
    except ManyError:
        negated = (owner.formulas.any_of(map(owner.formulas.negation, left)) for left in refuted)
        return owner.conjunction(map(owner.normal, (chosen, *negated)))
    return found


def _tags(normals: Sequence[Normal], owner: Excluding) -> list[AbstractSet[Any]] | None:
    """For each normal form the constants, by their keys, that a member has which its objects require.

    None where there is no such member in all. Normal forms whose constants differ have no object in common.
    """
    if not all(normal.objects and not normal.constants for normal in normals):
        return None
    cases = [case for normal in normals for case in normal.objects]
    for name in cases[0].properties:
        if all(name in case.required for case in cases):
            found = [_constants(name, normal.objects, owner) for normal in normals]
            told = [constants for constants in found if constants is not None]
            if len(told) == len(found):
                return told
    return None


def _constants(name: str, cases: Iterable[Object], owner: Excluding) -> AbstractSet[Any] | None:
    """The keys of all constants that a member may be in some cases; None if it may be anything else."""
    found = set[Any]()
    for case in cases:
        asked = conjuncts(case.properties.get(name, EVERYTHING), frozenset(), owner.meaning)
        listed = next((keys for part in asked if (keys := _keys(part)) is not None), None)
        if listed is None:
            return None
        found |= listed
    return found


def _keys(formula: Formula) -> AbstractSet[Any] | None:
    """The keys of the constants that a formula lists, of any kind or as strings; None if it does not list any."""
    if formula.kind == "values":
        listed: Mapping[Any, Any] = formula.subject
        return listed.keys()
    if formula.kind != "plain":
        return None
    normal: Normal = formula.subject
    if normal.null or normal.booleans or normal.numbers or normal.arrays or normal.objects or normal.constants:
        return None
    found = set[str]()
    for case in normal.strings:
        if case.values is None:
            return None
        found |= case.values
    return found
