"""Leaving out alternatives that lie within another: cases of objects as sets of the single things they ask for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from ...limits import spend
from . import objects, strings
from .cases import ANY, ANY_ARRAY, ANY_NUMBER, ANY_OBJECT, ANY_STRING, BOOLEANS, Normal, Object, Rule
from .formula import EVERYTHING, NOTHING, Formula, json_key

FEW = 4096
"""Up to how many cases those that lie within another are looked for."""

Case = TypeVar("Case")


def absorbed(cases: Sequence[Object]) -> list[Object]:
    """The cases without those that another covers, as far as their words show (see `objects.covers`).

    A case covers those that ask for all it asks for, and perhaps more: only such cases are compared with one as ask for
    the rarest thing that it asks for.
    """
    asked = _asked(cases)
    often = Counter(bit for bits in asked for bit in bits)
    masks = [sum(1 << bit for bit in bits) for bits in asked]
    kept: list[int] = []
    by_rarest: dict[int, list[int]] = {}
    for at in sorted(range(len(cases)), key=lambda at: len(asked[at])):
        mask = masks[at]
        alike = [wide for bit in (-1, *asked[at]) for wide in by_rarest.get(bit, ())]
        spend(100 + 20 * len(alike))
        if any(wide & mask == wide for wide in alike):
            continue
        kept.append(at)
        by_rarest.setdefault(min(asked[at], key=often.__getitem__, default=-1), []).append(mask)
    return [cases[at] for at in sorted(kept)]


def _asked(cases: Sequence[Object]) -> list[set[int]]:
    """For each case the numbers of the things that it asks for."""
    numbers: dict[Any, int] = {}
    of_name: dict[str, set[int]] = {}
    of_member: dict[tuple[str, Formula], set[int]] = {}
    least = {case.min_properties for case in cases if case.min_properties}
    most = {case.max_properties for case in cases if case.max_properties is not None}
    found: list[set[int]] = []
    without: dict[frozenset[str], set[int]] = {}
    closed = [_only_names(case) for case in cases]
    listed: frozenset[str] = frozenset(name for names in closed if names is not None for name in names)
    for case in cases:
        spend(200 + 100 * (len(case.properties) + len(case.required) + len(case.rules) + len(case.some)))
        bits = {numbers.setdefault(thing, len(numbers)) for thing in _things(case, least, most)}
        for name, formula in case.properties.items():
            if formula is EVERYTHING:
                continue
            own = of_member.get((name, formula))
            if own is None:
                parts = formula.parts if formula.kind == "all" else (formula,)
                own = {numbers.setdefault((name, part), len(numbers)) for part in parts}
                of_member[name, formula] = own
                of_name.setdefault(name, set()).update(own)
            bits |= own
        found.append(bits)
    for case, bits, names in zip(cases, found, closed, strict=True):
        for name, formula in case.properties.items():
            if formula is NOTHING:
                bits |= of_name[name]
        if names is None or len(names) == len(listed):
            continue
        if names not in without:
            # Whatever is asked of a member that cannot be there holds.
            spend(50 * len(listed))
            gone = listed - names
            without[names] = {numbers.setdefault(("without", name), len(numbers)) for name in gone}
            without[names].update(*(of_name.get(name, ()) for name in gone))
        bits |= without[names]
    return found


def _only_names(case: Object) -> frozenset[str] | None:
    """The names that members may have, None if there are others."""
    allowed = [rule.names.excluded for rule in case.rules if _is_closing(rule)]
    return allowed[0].intersection(*allowed[1:]) if allowed else None


def _is_closing(rule: Rule) -> bool:
    """Tell whether a rule forbids all members but some, of which `without` tells more."""
    names = rule.names
    any_length = names.min_length == 0 and names.max_length is None
    return rule.formula is NOTHING and any_length and names.values is None and strings.is_plain(names)


def _things(case: Object, least: set[int], most: set[int]) -> Iterator[Any]:
    """The demands of a case beside the values of named members."""
    yield from (("required", name) for name in case.required)
    yield from (("rule", rule if not _is_closing(rule) else "closed") for rule in case.rules)
    yield from (("some", rule) for rule in case.some)
    yield from (("either", group) for group in case.either)
    yield from (("least", count) for count in least if case.min_properties >= count)
    if case.max_properties is not None:
        yield from (("most", count) for count in most if case.max_properties <= count)


def without_absorbed(cases: tuple[Any, ...]) -> tuple[Any, ...]:
    """The cases of one type without those that lie within another of them."""
    return tuple(absorbed(cases)) if len(cases) > 1 and isinstance(cases[0], Object) else cases


def covers(wide: Any, narrow: Any) -> bool:
    """Tell whether a case has all that another has, as far as that is seen at first sight."""
    return isinstance(wide, Object) and objects.covers(wide, narrow)


def key_of(case: Any) -> Any:
    """The key of a case among others; objects are told apart only by identity."""
    return id(case) if isinstance(case, Object) else case


def union(normals: Sequence[Normal]) -> Normal:
    """The disjunction of normal forms."""
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
    """The cases of all groups, each once; `any_case` alone if it is among them."""
    found: dict[Any, Case] = {}
    for group in groups:
        for case in group:
            if case is any_case:
                return (any_case,)
            found[key_of(case)] = case
    return without_absorbed(tuple(found.values())) if len(found) <= FEW else tuple(found.values())
