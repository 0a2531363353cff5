"""Intersections of normal forms: whether they are empty, and the values of exactly one of several.

Emptiness needs only the first pair of alternatives that meet. For an exclusive choice, a discriminator member with
different constants often separates the alternatives; then none needs to be refuted, and the quadratic number of pairs
is not examined.

Alternatives within others are dropped (`absorbed`), by comparing object cases as sets of elementary conditions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import chain
from typing import Any, Protocol, TypeVar

from ...limits import spend
from . import arrays, numbers, objects, strings
from .cases import ANY, ANY_ARRAY, ANY_NUMBER, ANY_OBJECT, ANY_STRING, BOOLEANS, Array, ManyError, Normal, Object, Rule
from .formula import EVERYTHING, NOTHING, Formula, Formulas, conjuncts, json_key
from .strings import StringLanguage
from .translate import ScopedSchema

FEW = 4096
"""Maximum number of cases among which covered ones are looked for."""

Case = TypeVar("Case")


def absorbed(cases: Sequence[Object]) -> list[Object]:
    """Return the cases without those syntactically covered by another (see `objects.covers`).

    A case covers those whose conditions are a superset of its own. So it is compared only with cases that share its
    rarest condition.
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
    """Return for each case the numbers of its conditions."""
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
            # Any condition on a member that cannot be there holds.
            spend(50 * len(listed))
            gone = listed - names
            without[names] = {numbers.setdefault(("without", name), len(numbers)) for name in gone}
            without[names].update(*(of_name.get(name, ()) for name in gone))
        bits |= without[names]
    return found


def _only_names(case: Object) -> frozenset[str] | None:
    """Return the names that members may have, None if others are allowed."""
    allowed = [rule.names.excluded for rule in case.rules if _is_closing(rule)]
    return allowed[0].intersection(*allowed[1:]) if allowed else None


def _is_closing(rule: Rule) -> bool:
    """Test whether a rule forbids all members except some names."""
    names = rule.names
    any_length = names.min_length == 0 and names.max_length is None
    return rule.formula is NOTHING and any_length and names.values is None and strings.is_plain(names)


def _things(case: Object, least: set[int], most: set[int]) -> Iterator[Any]:
    """Yield the conditions of a case, apart from values of named members."""
    yield from (("required", name) for name in case.required)
    yield from (("rule", rule if not _is_closing(rule) else "closed") for rule in case.rules)
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


def key_of(case: Any) -> Any:
    """Return the key of a case; objects are compared by identity."""
    return id(case) if isinstance(case, Object) else case


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
    found: dict[Any, Case] = {}
    for group in groups:
        for case in group:
            if case is any_case:
                return (any_case,)
            found[key_of(case)] = case
    return without_absorbed(tuple(found.values())) if len(found) <= FEW else tuple(found.values())


STEPS_PER_PAIR = 300


class Normalising(Protocol):
    """The part of the normaliser that this module and readers of subschemas use."""

    max_cases: int
    formulas: Formulas
    language: StringLanguage

    def normal(self, formula: Formula) -> Normal:
        """Return the normal form of a formula."""
        ...

    def meaning(self, formula: Formula) -> Formula:
        """Return the formula that a subschema stands for."""
        ...

    def place(self, formula: Formula) -> ScopedSchema:
        """Return the subschema of a formula."""
        ...

    def parts(self, place: ScopedSchema) -> list[Formula]:
        """Return the conjuncts of a subschema."""
        ...

    def both_objects(self, a: Object, b: Object) -> Object | None:
        """Return the intersection of two cases."""
        ...

    def settled(self, case: Object) -> list[Object]:
        """Return the alternatives of a case with `some` rules."""
        ...

    def clashes(self, a: Formula, b: Formula) -> bool:
        """Test whether no value satisfies both formulas."""
        ...

    def conjunction(self, normals: Iterable[Normal]) -> Normal:
        """Return the conjunction of normal forms."""
        ...

    def outside(self, normal: Normal, formula: Formula) -> Normal:
        """Return the difference of a normal form and a formula. Raises ManyError for too many object cases."""
        ...

    def complement(self, normal: Normal) -> Normal:
        """Return the complement of a normal form."""
        ...


def meet(a: Normal, b: Normal, owner: Normalising) -> bool:
    """Test whether some alternatives of both meet, by a shallow check; constants are ignored."""
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
    """Test whether one side has all values of a type, and the other some."""
    return bool(a and b) and (a[0] is any_case or b[0] is any_case)


def _arrays_meet(one: Array, other: Array, owner: Normalising) -> bool:
    return arrays.intersect(one, other, owner.formulas, owner.clashes) is not None


def _objects_meet(a: Object, b: Object, owner: Normalising) -> bool:
    spend(STEPS_PER_PAIR)
    if a.either or b.either or a.some or b.some:
        case = owner.both_objects(a, b)
        return case is not None and bool(owner.settled(case))
    return objects.meet(a, b, owner.formulas, owner.language, owner.clashes)


def exactly_one(parts: Sequence[Formula], context: Formula, owner: Normalising) -> Normal:
    """Return the values that satisfy exactly one of the formulas.

    context: a formula known to hold of all values; the result may be larger outside it
    """
    within = [owner.formulas.all_of((context, part)) for part in parts]
    normals = [owner.normal(formula) for formula in within]
    tags = _tags(normals, owner)
    # Objects told apart by a member are disjoint; values of other types are still compared.
    beside = [replace(normal, objects=()) if tags else normal for normal in normals]
    found: list[Normal] = []
    for index, chosen in enumerate(parts):
        apart = [tags is not None and tags[index].isdisjoint(tags[at]) for at in range(len(parts))]
        others = [part for at, part in enumerate(parts) if at != index and not apart[at]]
        told = (normal for normal, is_apart in zip(beside, apart, strict=True) if is_apart)
        outside = (owner.complement(normal) for normal in told if not normal.is_empty)
        found.append(owner.conjunction(chain((_only(chosen, within[index], others, owner),), outside)))
    return union(found)


def _only(chosen: Formula, within: Formula, others: Iterable[Formula], owner: Normalising) -> Normal:
    """Return the values that satisfy one formula and none of the others; disjoint ones need no negation.

    within: the formula and its context
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


def _tags(normals: Sequence[Normal], owner: Normalising) -> list[AbstractSet[Any]] | None:
    """Return for each normal form the constants, by key, of one member that all objects require.

    None if there is no such member. Normal forms with disjoint constants have no object in common.
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


def _constants(name: str, cases: Iterable[Object], owner: Normalising) -> AbstractSet[Any] | None:
    """Return the keys of all constants that a member may be in some cases; None if it may be anything else."""
    found = set[Any]()
    for case in cases:
        asked = conjuncts(case.properties.get(name, EVERYTHING), frozenset(), owner.meaning)
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
