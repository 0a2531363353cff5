"""Bodies of rules that many formulas have alike: made once in a process, then copied with their holes filled.

What a member is like (a string; an array of something; an object or null) takes few forms, and there are many members.
Without the copies first masks of 300 schemas of MaskBench take a tenth longer on average.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from ....kernels.chart.layout import CALL, EPSILON, UNBOUNDED
from ...graph.fragment import Fragment
from ...graph.later import HEAVY
from ...syntax import Node
from ..algebra.cases import ANY_ARRAY, ANY_NUMBER, ANY_STRING, NO_NAMES, Array, Normal, Number, Object, Rule, String
from ..algebra.formula import EVERYTHING, Formula
from ..compiled import CompiledSchema
from .arrays import Items
from .form import Form
from .formulas import FormulaLowering
from .objects.member_set import MemberSet
from .stencil_graph import ITEMS, NUMBER, SPACE, STRING, Hole, StencilGraph

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
    """The part that is the same in the bodies of all formulas that have one stencil.

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
    """Tell whether a normal form asks nothing that a shape does not tell, as far as it alone says so."""
    if not _is_single(normal):
        return False
    return not any(case.values is not None for case in normal.strings) and all(map(_is_plain, normal.objects))


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


class StencilLowering(FormulaLowering):
    """Lowers the body of a formula's rule as a stencil, with holes in place of the rules that it calls."""

    def __init__(self, schema: CompiledSchema, form: Form) -> None:
        self._outline = StencilGraph()
        super().__init__(schema, form, graph=self._outline)
        self._made: Counter[str] = Counter()
        self._kinds: list[Node] = []
        self._whole: int | None = None

    def stencil(self, formula: Formula, depth: int, *, is_member: bool) -> Stencil:
        """The body of a formula's rule, or of that of its members; `depth` is the value's."""
        start = self._outline.begin_rule()
        self.define_body(start, formula, depth, is_member=is_member)
        final, after = self._outline.final_node(), self._outline.guarded_node()
        fragment, holes = self._outline.fragment(), tuple(self._outline.holes)
        return Stencil(fragment, holes, tuple(self._kinds), final, self._outline.promising, after)

    def anything(self) -> Stencil:
        """The rule of any value, which calls itself."""
        start = self._outline.begin_rule()
        self._whole = start
        final = self._outline.final()
        words = [(EPSILON, self._outline.literal(word, final), 0) for word in (b"null", b"true", b"false")]
        rules = [(CALL, rule, final) for rule in (self.number_rule(ANY_NUMBER), self._next(STRING))]
        array = Items(self, ANY_ARRAY, EVERYTHING, 0, final).entry()
        assert array is not None
        containers = [(EPSILON, entry, 0) for entry in (array, self._any_object(start, final))]
        self._outline.define(start, links=[*words, *rules, *containers])
        return Stencil(self._outline.fragment(), tuple(self._outline.holes), tuple(self._kinds), final, 0, 0)

    def _any_object(self, value: int, target: int) -> int:
        """The entry of an object whose members are of this rule."""
        graph, spacing = self._outline, self.form.spacing
        end = self.text(b"}", target)
        name = graph.reserve()
        comma = self.text(b",", self.gap(spacing.after_comma(0), name))
        more, close = self.gap(spacing.before_comma(), comma), self.gap(spacing.at_end(0), end)
        after = graph.node(links=((EPSILON, close, 0), (EPSILON, more, 0)))
        graph.define(name, links=((CALL, self._next(STRING), self.colon(value, after)),))
        empty, inside = self.gap(spacing.when_empty(), end), self.gap(spacing.inside(0), name)
        return graph.node(((0x7B, 0x7B, graph.node(links=((EPSILON, empty, 0), (EPSILON, inside, 0)))),))

    def value(self, formula: Formula, depth: int) -> int:
        """A hole, since items are all alike; the rule itself where that is any value."""
        return self._outline.hole(ITEMS) if self._whole is None else self._whole

    def number_rule(self, case: Number) -> int:
        """A hole."""
        return self._next(NUMBER)

    def string_rule(self, case: String) -> int | None:
        """A hole."""
        return self._next(STRING)

    def space_rule(self, space: Node) -> int:
        """A hole, of which a kind of white space has the same each time."""
        self._kinds.append(space)
        return self._next(SPACE)

    def _next(self, kind: str) -> int:
        self._made[kind] += 1
        return self._outline.hole(kind, self._made[kind] - 1)
