"""Alternatives of normal forms: their unions without those that lie within others, and discriminators.

Alternatives within others are dropped (`absorbed`), by comparing object cases as sets of elementary conditions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain
from typing import Any, TypeVar

from ...limits import spend
from . import objects
from .cases import ANY, ANY_ARRAY, ANY_NUMBER, ANY_OBJECT, ANY_STRING, BOOLEANS, Normal, Object
from .formula import EVERYTHING, NOTHING, Formula, conjuncts, json_key

FEW = 4096
"""Maximum number of cases among which covered ones are looked for."""

Case = TypeVar("Case")


def absorbed(cases: Sequence[Object]) -> list[Object]:
    """Return the cases without those syntactically covered by another (see `objects.covers`).

    A case covers those whose conditions are a superset of its own. So it is compared only with cases that share its
    rarest condition.
    """
    implied = _implied_conditions(cases)
    often = Counter(bit for bits in implied for bit in bits)
    masks = [sum(1 << bit for bit in bits) for bits in implied]
    uncovered: list[int] = []
    by_rarest: dict[int, list[int]] = {}
    for at in sorted(range(len(cases)), key=lambda at: len(implied[at])):
        mask = masks[at]
        alike = [wide for bit in (-1, *implied[at]) for wide in by_rarest.get(bit, ())]
        spend(100 + 20 * len(alike))
        if any(wide & mask == wide for wide in alike):
            continue
        uncovered.append(at)
        by_rarest.setdefault(min(implied[at], key=often.__getitem__, default=-1), []).append(mask)
    return [cases[at] for at in sorted(uncovered)]


def _implied_conditions(cases: Sequence[Object]) -> list[set[int]]:
    """Return for each case the numbers of the conditions that it implies."""
    numbers: dict[Any, int] = {}
    of_name: dict[str, set[int]] = {}
    of_member: dict[tuple[str, Formula], set[int]] = {}
    least = {case.min_properties for case in cases if case.min_properties}
    most = {case.max_properties for case in cases if case.max_properties is not None}
    closed = [objects.only_names(case) for case in cases]
    listed = frozenset(chain.from_iterable(names for names in closed if names is not None))
    found: list[tuple[set[int], frozenset[str]]] = []
    for case, names in zip(cases, closed, strict=True):
        spend(200 + 100 * (len(case.properties) + len(case.required) + len(case.rules) + len(case.some)))
        bits = {numbers.setdefault(condition, len(numbers)) for condition in _conditions(case, least, most)}
        gone = set[str]() if names is None else {*(listed - names)}
        for name, formula in case.properties.items():
            if formula is NOTHING:
                gone.add(name)
            elif formula is not EVERYTHING:
                bits_of_member = of_member.get((name, formula))
                if bits_of_member is None:
                    parts = formula.parts if formula.kind == "all" else (formula,)
                    bits_of_member = {numbers.setdefault((name, part), len(numbers)) for part in parts}
                    of_member[name, formula] = bits_of_member
                    of_name.setdefault(name, set()).update(bits_of_member)
                bits |= bits_of_member
        found.append((bits, frozenset(gone)))
    without: dict[frozenset[str], set[int]] = {}
    for bits, gone in found:
        if gone not in without:
            # Any condition on a member that cannot be there holds.
            spend(50 * len(gone))
            none = {numbers.setdefault(("without", name), len(numbers)) for name in gone}
            without[gone] = none.union(*(of_name.get(name, ()) for name in gone))
        bits |= without[gone]
    return [bits for bits, _ in found]


def _conditions(case: Object, least: set[int], most: set[int]) -> Iterator[Any]:
    """Yield the conditions of a case, apart from values of named members."""
    yield from (("required", name) for name in case.required)
    yield from (("rule", rule if not objects.is_closing(rule) else "closed") for rule in case.rules)
    yield from (("some", rule) for rule in case.some)
    yield from (("either", group) for group in case.either)
    yield from (("least", count) for count in least if case.min_properties >= count)
    if case.max_properties is not None:
        yield from (("most", count) for count in most if case.max_properties <= count)


def without_absorbed(cases: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the cases of one type without those that lie within another."""
    return tuple(absorbed(cases)) if len(cases) > 1 and isinstance(cases[0], Object) else cases


def covers(wide: Any, narrow: Any) -> bool:
    """Test whether a shallow check finds that one case contains another."""
    return isinstance(wide, Object) and objects.covers(wide, narrow)


def union(normals: Sequence[Normal]) -> Normal:
    """Return the disjunction of normal forms."""
    if len(normals) == 1:
        return normals[0]
    if ANY in normals:
        return ANY
    constants = {json_key(value): value for normal in normals for value in normal.constants}
    return Normal(
        any(normal.null for normal in normals),
        BOOLEANS.intersection(value for normal in normals for value in normal.booleans),
        _sum([normal.numbers for normal in normals], ANY_NUMBER),
        _sum([normal.strings for normal in normals], ANY_STRING),
        _sum([normal.arrays for normal in normals], ANY_ARRAY),
        _sum([normal.objects for normal in normals], ANY_OBJECT),
        tuple(constants.values()),
    )


def _sum(groups: list[tuple[Case, ...]], any_case: Case) -> tuple[Case, ...]:
    """Return the distinct cases of all groups; `any_case` alone if it is among them."""
    found = dict.fromkeys(chain.from_iterable(groups))
    if any_case in found:  # or its equal
        return (any_case,)
    return without_absorbed(tuple(found)) if len(found) <= FEW else tuple(found)


Meaning = Callable[[Formula], Formula]
"""Returns the formula that a subschema stands for."""


def tags(normals: Sequence[Normal], meaning: Meaning) -> list[AbstractSet[Any]] | None:
    """Return for each normal form the constants, by key, of one member that all objects require.

    None if there is no such member. Normal forms with disjoint constants have no object in common.
    """
    if not all(normal.objects and not normal.constants for normal in normals):
        return None
    cases = [case for normal in normals for case in normal.objects]
    for name in cases[0].properties:
        if all(name in case.required for case in cases):
            found = [_constants(name, normal.objects, meaning) for normal in normals]
            tagged = [constants for constants in found if constants is not None]
            if len(tagged) == len(found):
                return tagged
    return None


def _constants(name: str, cases: Iterable[Object], meaning: Meaning) -> AbstractSet[Any] | None:
    """Return the keys of all constants that a member may be in some cases; None if it may be anything else."""
    found = set[Any]()
    for case in cases:
        asked = conjuncts(case.properties.get(name, EVERYTHING), frozenset(), meaning)
        listed = next((keys for part in asked if (keys := _keys(part)) is not None), None)
        if listed is None:
            return None
        found |= listed
    return found


def _keys(formula: Formula) -> AbstractSet[Any] | None:
    """Return the keys of the constants that a formula lists; None if it does not list any."""
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
