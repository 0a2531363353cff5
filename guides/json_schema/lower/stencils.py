"""Bodies of rules that many formulas have alike: made once in a process, then copied with their holes filled.

What a member is like (a string; an array of something; an object or null) takes few forms, and there are many members.
Without the copies first masks of 300 schemas of MaskBench take a tenth longer on average.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from ....kernels.chart.layout import UNBOUNDED
from ...graph.fragment import Fragment
from ...graph.later import HEAVY
from ...syntax import Node
from ..algebra.cases import ANY_STRING, NO_NAMES, Array, Normal, Number, Object, Rule, String
from .form import Form
from .objects.member_set import MemberSet
from .stencil_graph import Hole

MOST_FORMS = 16
MOST_STENCILS = 128

SHORT = 32
"""Up to how many constants, or members, are few; and how long they are on average."""
FEW_RULES = 4
"""Up to how many rules about names are few, which may be told apart by all that they have in common."""
USUAL = 1 << 64
"""Above the numerators and denominators of usual bounds."""


class ArrayShape(NamedTuple):
    """An array of items that are all alike: whether it may be empty, and how many items there may be."""

    may_be_empty: bool
    may_have_items: bool
    may_go_on: bool
    is_counted: bool


class ObjectShape(NamedTuple):
    """An object that a set tells of: whether members must, and may be there."""

    has_required: bool
    has_members: bool


class Shape(NamedTuple):
    """What is the same in the bodies of all formulas that have one stencil.

    is_member: whether a colon comes first; depth: 0 where it does not matter
    """

    is_member: bool
    depth: int
    null: bool
    booleans: frozenset[bool]
    numbers: int
    strings: int
    array: ArrayShape | None
    object: ObjectShape | None


ANYTHING = Shape(False, 0, False, frozenset(), -1, -1, None, None)
"""Stands for the rule of any value; no formula has less than no numbers."""


class Stencil(NamedTuple):
    """The body of a rule as a fragment, whose node 0 is the rule's start.

    holes: what is to be in them; spaces: the white space whose rules some of them want; final: the end of the rule;
    promising: the node before the value of a member; after: that after a member of the object; 0 where there is none
    """

    fragment: Fragment
    holes: tuple[Hole, ...]
    spaces: tuple[Node, ...]
    final: int
    promising: int
    after: int


@lru_cache(maxsize=MOST_FORMS)
def stencils(form: Form) -> dict[Shape, Stencil]:
    """The stencils for one form of JSON, as far as they were wanted."""
    return {}


def keep(known: dict[Shape, Stencil], shape: Shape, stencil: Stencil) -> Stencil:
    """Keep a stencil, if there is room; the stencil."""
    if len(known) < MOST_STENCILS:
        known[shape] = stencil
    return stencil


def is_common(normal: Normal) -> bool:
    """Whether a normal form asks nothing that a shape does not tell, as far as it alone says so."""
    if not _is_single(normal):
        return False
    return not any(case.values is not None for case in normal.strings) and all(map(_is_plain, normal.objects))


def weight_of(normal: Normal) -> int:
    """What it takes to lower a normal form, in strings; HEAVY for what is not so common that this is known."""
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
    """Whether there is one kind of arrays and of objects at most, and none by value."""
    return not normal.constants and len(normal.arrays) <= 1 and len(normal.objects) <= 1


def _are_few(rules: tuple[Rule, ...]) -> bool:
    """Whether rules are few, about names that are all but few, or few."""
    return len(rules) <= FEW_RULES and all(_is_light(_without_excluded(rule.names)) for rule in rules)


def _without_excluded(names: String) -> String:
    return replace(names, excluded=NO_NAMES) if _are_short(names.excluded) else names


def _is_light(case: String) -> bool:
    """Whether strings are all, or few."""
    return case == ANY_STRING or (case.values is not None and _are_short(case.values))


def _are_short(texts: Collection[str]) -> bool:
    return len(texts) <= SHORT and sum(map(len, texts)) <= SHORT * SHORT


def _is_round(case: Number) -> bool:
    """Whether numbers are all, or integers, within usual bounds or not."""
    if case.multiple_of not in (None, 1) or case.not_multiple_of or case.excluded or case.values or case.either:
        return False
    bounds = (bound for bound in (case.minimum, case.maximum) if bound is not None)
    return all(abs(bound.numerator) < USUAL and bound.denominator < USUAL for bound in bounds)


def _is_plain(case: Object) -> bool:
    """Whether an object may be told by a set."""
    counted = case.max_properties is not None or case.min_properties > len(case.required)
    return not counted and not case.either and not case.some


def shape_of(normal: Normal, items: Array | None, members: MemberSet | None, is_member: bool, depth: int) -> Shape:
    """The shape of a normal form; items, members: its array and its object, if it has any."""
    return Shape(
        is_member,
        depth,
        normal.null,
        normal.booleans,
        len(normal.numbers),
        len(normal.strings),
        None if items is None else array_shape(items),
        None if members is None else ObjectShape(members.has_required, members.has_members),
    )


def array_shape(case: Array) -> ArrayShape:
    """The shape of an array of items that are all alike."""
    least, most = turns(case)
    return ArrayShape(case.min_items == 0, case.max_items != 0, most > 0, least > 0 or most != UNBOUNDED)


def turns(case: Array) -> tuple[int, int]:
    """How many items may come after the first."""
    most = UNBOUNDED if case.max_items is None else max(case.max_items - 1, 0)
    return max(case.min_items - 1, 0), most
