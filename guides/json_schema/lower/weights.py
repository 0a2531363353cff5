"""Weights of normal forms: what it takes to lower them, where that is known to be little."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ...graph.later import HEAVY
from ..algebra.cases import ANY_STRING, NO_NAMES, Normal, Number, Object, Rule, String

SHORT = 32
"""Up to how many constants, or members, are few; and how long they are on average."""
FEW_RULES = 4
"""Up to how many rules about names are few, which may be told apart by all that they have in common."""
USUAL = 1 << 64
"""Above the numerators and denominators of usual bounds."""


def weight_of(normal: Normal) -> int:
    """The cost of lowering a normal form, in strings; HEAVY for what is not so common that this is known."""
    if not _is_single(normal):
        return HEAVY
    if not (all(map(_is_light, normal.strings)) and all(map(_is_round, normal.numbers))):
        return HEAVY
    weight = 1 + len(normal.arrays)
    for case in normal.objects:
        if not _is_plain(case) or not _are_short(case.properties) or not _are_few(case.rules):
            return HEAVY
        weight += 2 + len(case.properties) // 4
    return weight


def _is_single(normal: Normal) -> bool:
    """Tell whether there is one kind of arrays and of objects at most, and none by value."""
    return not normal.constants and len(normal.arrays) <= 1 and len(normal.objects) <= 1


def _are_few(rules: tuple[Rule, ...]) -> bool:
    """Tell whether rules are few, about names that are all but few, or few."""
    return len(rules) <= FEW_RULES and all(_is_light(_without_excluded(rule.names)) for rule in rules)


def _without_excluded(names: String) -> String:
    return replace(names, excluded=NO_NAMES) if _are_short(names.excluded) else names


def _is_light(case: String) -> bool:
    """Tell whether strings are all, or few."""
    return case == ANY_STRING or (case.values is not None and _are_short(case.values))


def _are_short(texts: Collection[str]) -> bool:
    return len(texts) <= SHORT and sum(map(len, texts)) <= SHORT * SHORT


def _is_round(case: Number) -> bool:
    """Tell whether numbers are all, or integers, within usual bounds or not."""
    if case.multiple_of not in (None, 1) or case.not_multiple_of or case.excluded or case.values or case.either:
        return False
    bounds = (bound for bound in (case.minimum, case.maximum) if bound is not None)
    return all(abs(bound.numerator) < USUAL and bound.denominator < USUAL for bound in bounds)


def _is_plain(case: Object) -> bool:
    """Tell whether an object may be told by a set."""
    counted = case.max_properties is not None or case.min_properties > len(case.required)
    return not counted and not case.either and not case.some
