"""Sets of objects: intersection and complement of `Object`, and the formula of a member of a given name.

What several alternatives of a group leave open is decided once members are known: by a witness, a value, or a text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from ...limits import spend
from .cases import ANY_OBJECT, NO_NAMES, Object, Rule
from .formula import EVERYTHING, NOTHING, Formula, Formulas
from .strings import StringLanguage, is_plain, perhaps, surely

MANY_MEMBERS = 1000
"""Maximum number of members in all cases for which cases that differ in one member are merged."""
STEPS_PER_RULE = 200
"""Work of deciding whether a rule applies to a name."""


Group = tuple[Object, ...]


def member(case: Object, name: str, formulas: Formulas, language: StringLanguage) -> Formula:
    """Return the formula of the member called `name`, if it is there."""
    formula = case.properties.get(name, EVERYTHING)
    if not case.rules:
        return formula
    spend(STEPS_PER_RULE * len(case.rules))
    matching = [rule.formula for rule in case.rules if language.contains(rule.names, name)]
    return formulas.all_of((formula, *matching)) if matching else formula


Clashes = Callable[[Formula, Formula], bool]
"""Tests whether a shallow check finds that no value satisfies two formulas."""


def together(cases: Group, formulas: Formulas) -> Group:
    """Return the cases, merging those that differ only in the formula of one member, or in whether it is required.

    Separate alternatives would multiply, although one member decides between them.
    """
    alike: dict[Any, list[Object]] = {}
    for case in cases:
        spend(100 + 10 * len(case.properties))
        bounds = (case.rules, case.some, case.min_properties, case.max_properties, case.either)
        alike.setdefault((frozenset(case.properties), bounds), []).append(case)
    if len(alike) == len(cases):
        return cases
    found = [case for group in alike.values() for case in _by_one_member(group, formulas)]
    return tuple(found) if len(found) < len(cases) else cases


def _by_one_member(cases: list[Object], formulas: Formulas) -> list[Object]:
    """Return `together` of cases with equal names and bounds."""
    names = [name for name in cases[0].properties if len({case.properties[name] for case in cases}) > 1]
    if len(cases) * len(names) > MANY_MEMBERS:
        return cases
    for name in names:
        others = [other for other in names if other != name]
        alike: dict[Any, list[Object]] = {}
        for case in cases:
            spend(100 + 10 * len(others))
            key = (case.required - {name}, *(case.properties[other] for other in others))
            alike.setdefault(key, []).append(case)
        cases = [_with_either(group, name, formulas) if len(group) > 1 else group[0] for group in alike.values()]
    return cases


def _with_either(cases: list[Object], name: str, formulas: Formulas) -> Object:
    """Return one case for several that differ in one member."""
    properties = {**cases[0].properties, name: formulas.any_of(case.properties[name] for case in cases)}
    required = cases[0].required.intersection(*(case.required for case in cases))
    return replace(cases[0], properties=properties, required=required)


def meet(a: Object, b: Object, formulas: Formulas, language: StringLanguage, clashes: Clashes) -> bool:
    """Test whether two sets meet, by counts and required members only."""
    required = a.required | b.required
    most = _least_of(a.max_properties, b.max_properties)
    if most is not None and max(len(required), a.min_properties, b.min_properties) > most:
        return False
    spend(200 + 60 * len(required))
    for name in required:
        ours, theirs = member(a, name, formulas, language), member(b, name, formulas, language)
        if ours is NOTHING or theirs is NOTHING:
            return False
        if ours is not EVERYTHING and theirs is not EVERYTHING and clashes(ours, theirs):
            return False
    return True


def _least_of(a: int | None, b: int | None) -> int | None:
    """Return the smaller of two bounds, each of which may be None."""
    return b if a is None else a if b is None else min(a, b)


def intersect(a: Object, b: Object, formulas: Formulas, language: StringLanguage, clashes: Clashes) -> Object | None:
    """Return the intersection of two sets; None if `meet` finds it empty.

    Groups are concatenated.
    """
    if a is ANY_OBJECT:
        return b
    if b is ANY_OBJECT:
        return a
    if not meet(a, b, formulas, language, clashes):
        return None
    spend(20 * (len(a.properties) + len(b.properties)))
    properties = dict(a.properties)
    for name, formula in b.properties.items():
        known = properties.get(name)
        properties[name] = formula if known is None or known is formula else formulas.all_of((known, formula))
    rules = a.rules + tuple(rule for rule in b.rules if rule not in a.rules)
    some = a.some + tuple(rule for rule in b.some if rule not in a.some)
    least, most = max(a.min_properties, b.min_properties), _least_of(a.max_properties, b.max_properties)
    return Object(properties, rules, a.required | b.required, some, least, most, a.either + b.either)


def complement(case: Object, formulas: Formulas, within: Object = ANY_OBJECT) -> list[Object]:
    """Return the objects that are not in the set, as alternatives.

    within: a case known to hold; its conditions are not refuted, and outside it the result may be wrong
    """
    parts: list[Object] = []
    for name, formula in case.properties.items():
        must_come = name in case.required
        if formula is not EVERYTHING and not _asks_of(within, name, formula):
            wrong = {name: formulas.negation(formula)}
            # A required member is missing or wrong: one alternative, like an optional member that is wrong.
            parts.append(Object(wrong, required=NO_NAMES if must_come else frozenset((name,))))
        elif must_come and name not in within.required:
            parts.append(lacking(name))
    for rule in case.rules:
        if rule not in within.rules:
            parts.append(Object(some=(Rule(surely(rule.names), formulas.negation(rule.formula)),)))
    for rule in case.some:
        if rule not in within.some:
            parts.append(Object(rules=(Rule(perhaps(rule.names), formulas.negation(rule.formula)),)))
    if case.min_properties > within.min_properties:
        parts.append(Object(max_properties=case.min_properties - 1))
    if case.max_properties is not None:
        parts.append(Object(min_properties=case.max_properties + 1))
    for group in case.either:
        refuted = tuple(tuple(complement(one, formulas)) for one in group)
        if all(refuted):
            parts.append(Object(either=refuted))
    return parts


def _asks_of(case: Object, name: str, formula: Formula) -> bool:
    """Test whether a case syntactically implies a formula for a member, or forbids the member."""
    known = case.properties.get(name, EVERYTHING)
    if known is formula or known is NOTHING:
        return True
    parts = formula.parts if formula.kind == "all" else (formula,)
    return known.kind == "all" and all(part in known.parts for part in parts)


def only_names(case: Object) -> frozenset[str] | None:
    """Return the names that members may have; None if others are allowed."""
    allowed = [rule.names.excluded for rule in case.rules if is_closing(rule)]
    return allowed[0].intersection(*allowed[1:]) if allowed else None


def is_closing(rule: Rule) -> bool:
    """Test whether a rule forbids all members except some names."""
    names = rule.names
    any_length = names.min_length == 0 and names.max_length is None
    return rule.formula is NOTHING and any_length and names.values is None and is_plain(names)


def settled(case: Object, formulas: Formulas, language: StringLanguage, clashes: Clashes) -> list[Object]:
    """Return the case with its `some` turned into required members, if only known names are allowed."""
    allowed = only_names(case) if case.some else None
    if allowed is None:
        return [case]
    rule, left = case.some[0], case.some[1:]
    parts: list[Object] = []
    for name in case.properties:
        if name not in allowed or not language.contains(rule.names, name):
            continue
        if not clashes(case.properties[name], rule.formula):
            formula = formulas.all_of((case.properties[name], rule.formula))
            properties = {**case.properties, name: formula}
            one = replace(case, properties=properties, required=case.required | {name}, some=left)
            if case.max_properties is None or len(one.required) <= case.max_properties:
                parts.extend(settled(one, formulas, language, clashes))
    return parts


def covers(wide: Object, narrow: Object) -> bool:
    """Test whether a syntactic comparison finds `narrow` to lie within `wide`."""
    if not wide.required <= narrow.required or wide.min_properties > narrow.min_properties:
        return False
    if any(group not in narrow.either for group in wide.either):
        return False
    longest = narrow.max_properties
    if wide.max_properties is not None and (longest is None or longest > wide.max_properties):
        return False
    if any(rule not in narrow.rules for rule in wide.rules) or any(rule not in narrow.some for rule in wide.some):
        return False
    for name, formula in wide.properties.items():
        if formula is EVERYTHING:
            continue
        if not _asks_of(narrow, name, formula):
            return False
    return True


def tells_by_names(case: Object) -> bool:
    """Test whether an object with groups has conditions only on which members it has, and on named members."""
    parts = (case, *(one for group in case.either for one in group))
    return not any(
        one.min_properties or one.max_properties is not None or any(rule.formula is not EVERYTHING for rule in one.some)
        for one in parts
    )


def requiring(names: Iterable[str]) -> Object:
    """Return the objects that have these members."""
    named = dict.fromkeys(names, EVERYTHING)
    return Object(named, required=frozenset(named))


def lacking(name: str) -> Object:
    """Return the objects that do not have this member."""
    return Object({name: NOTHING})
