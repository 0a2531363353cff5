"""The normal form: for every type a list of alternatives, each a plain set of bounds.

A value satisfies a `Normal` iff it satisfies one alternative of its type. Alternatives may overlap. Inside arrays and
objects the members are formulas, not yet normalised.

A conjunction of disjunctions may have exponentially many cases, so a case can hold it unexpanded, as groups (`either`):
one alternative of each holds (`GroupKind`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Generic, Literal, TypeVar

from ...limits import spend
from ...quoting.quotation import Quote
from .formula import EVERYTHING, Formula

Rational = int | Fraction
NO_NAMES: frozenset[str] = frozenset()
NO_NUMBERS: frozenset[Rational] = frozenset()


@dataclass(frozen=True, slots=True)
class Number:
    """Numbers that meet all bounds. Bounds are decimal numbers, as JSON can write.

    multiple_of: the value is a multiple of it (1 for integers)
    not_multiple_of: the value is a multiple of none of these
    notation: "integer" where a fraction or exponent must not be written, "real" where one must be (draft 4)
    values: the only members (then nothing else is set except the notation); excluded: never members
    texts: the values as a schema writes them, as far as it does
    either: the number is in at least one set of each group
    """

    minimum: Rational | None = None
    maximum: Rational | None = None
    exclusive_minimum: bool = False
    exclusive_maximum: bool = False
    multiple_of: Rational | None = None
    not_multiple_of: frozenset[Rational] = NO_NUMBERS
    notation: Literal["integer", "real"] | None = None
    values: frozenset[Rational] | None = None
    excluded: frozenset[Rational] = NO_NUMBERS
    texts: frozenset[str] = NO_NAMES
    either: tuple[tuple[Number, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class String:
    """Strings that meet all bounds; also used for sets of member names.

    Lengths count code points. Patterns are ECMA-262, found anywhere in the string.
    values: the only members (then nothing else is set); excluded: never members
    quote: a quotation of this kind (then nothing but lengths is set)
    either: the string is in at least one set of each group; none of these is a quotation
    """

    min_length: int = 0
    max_length: int | None = None
    patterns: frozenset[str] = NO_NAMES
    not_patterns: frozenset[str] = NO_NAMES
    formats: frozenset[str] = NO_NAMES
    not_formats: frozenset[str] = NO_NAMES
    values: frozenset[str] | None = None
    excluded: frozenset[str] = NO_NAMES
    quote: Quote | None = None
    either: tuple[tuple[String, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Contains:
    """Of the items from index `start` on, at least `min` and at most `max` satisfy `formula`."""

    formula: Formula
    start: int = 0
    min: int = 1
    max: int | None = None


@dataclass(frozen=True, slots=True)
class Array:
    """Arrays that meet all bounds.

    prefix: formulas of the first items, if they exist; rest: of every later item
    unique: True if no two items are equal, False if some are, None if it does not matter
    """

    prefix: tuple[Formula, ...] = ()
    rest: Formula = EVERYTHING
    min_items: int = 0
    max_items: int | None = None
    contains: tuple[Contains, ...] = ()
    unique: bool | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """Members whose name is in `names` have a value that satisfies `formula`."""

    names: String
    formula: Formula


@dataclass(frozen=True, slots=True, eq=False)
class Object:
    """Objects that meet all bounds.

    properties: formulas of named members, in schema order; rules: further formulas, also of named members
    required: names that must be there, all among the properties
    some: for each rule, at least one member has a name in `names` and a value that satisfies `formula`
    either: the object is in at least one case of each group; these have no groups themselves
    """

    properties: Mapping[str, Formula] = field(default_factory=dict[str, Formula])
    rules: tuple[Rule, ...] = ()
    required: frozenset[str] = NO_NAMES
    some: tuple[Rule, ...] = ()
    min_properties: int = 0
    max_properties: int | None = None
    either: tuple[tuple[Object, ...], ...] = ()


ANY_NUMBER = Number()
ANY_STRING = String()
ANY_ARRAY = Array()
ANY_OBJECT = Object()


@dataclass(frozen=True, slots=True, eq=False)
class Normal:
    """The alternatives of every type. `constants` are whole arrays and objects, allowed beside the cases."""

    null: bool = False
    booleans: frozenset[bool] = frozenset()
    numbers: tuple[Number, ...] = ()
    strings: tuple[String, ...] = ()
    arrays: tuple[Array, ...] = ()
    objects: tuple[Object, ...] = ()
    constants: tuple[Any, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True if no alternative is left."""
        return not (
            self.null or self.booleans or self.numbers or self.strings or self.arrays or self.objects or self.constants
        )


BOOLEANS = frozenset((True, False))
ANY = Normal(True, BOOLEANS, (ANY_NUMBER,), (ANY_STRING,), (ANY_ARRAY,), (ANY_OBJECT,))
NONE = Normal()


Case = TypeVar("Case", bound=Any)


class ManyError(Exception):
    """Objects or strings have so many cases that their alternatives must be held in groups."""


@dataclass(frozen=True, slots=True)
class GroupKind(Generic[Case]):
    """The operations on sets with groups (`either`).

    intersect: the intersection; None if a shallow check finds it empty
    covers: whether a shallow check finds that the first contains the second
    holding: the set that has these groups
    """

    intersect: Callable[[Case, Case], Case | None]
    covers: Callable[[Case, Case], bool]
    holding: Callable[[Iterable[tuple[Case, ...]]], Case]

    def within(self, bare: Case, groups: Iterable[tuple[Case, ...]]) -> Case | None:
        """Return the intersection of a set and groups, without alternatives found to be disjoint from the set."""
        left: list[tuple[Case, ...]] = []
        is_narrowed = False
        for group in dict.fromkeys(groups):
            spend(300 * len(group))
            if any(self.covers(one, bare) for one in group):
                continue
            compatible = [(one, both) for one in group if (both := self.intersect(bare, one)) is not None]
            if not compatible:
                return None
            if len(compatible) == 1:
                bare, is_narrowed = compatible[0][1], True
            else:
                left.append(tuple(one for one, _ in compatible))
        if not is_narrowed:
            return replace(bare, either=tuple(left))
        # The narrower set may exclude alternatives of earlier groups.
        return self.intersect(bare, self.holding(left)) if left else bare

    def absorbed(self, cases: Iterable[Case]) -> list[Case]:
        """Return the sets without those found to lie within another."""
        widest: list[Case] = []
        for case in cases:
            spend(100 * len(widest))
            if not any(self.covers(wide, case) for wide in widest):
                widest = [narrow for narrow in widest if not self.covers(case, narrow)]
                widest.append(case)
        return widest

    def product(
        self,
        a: Sequence[Case],
        b: Sequence[Case],
        multiply: Callable[[Any, Any, int | None], tuple[Case, ...]],
        grouped: Callable[[Any, Any], list[Case]],
        most: int,
    ) -> tuple[Case, ...]:
        """Return the intersection of two unions; more than `most` alternatives are held in groups.

        multiply: returns all pairs of alternatives; raises ManyError for more than its limit; grouped: returns the same
        set in groups
        """
        held = any(case.either for case in (*a, *b))
        if not held and (len(a) <= 1 or len(b) <= 1):
            return multiply(a, b, None)
        most = max(most, len(a), len(b))
        try:
            found = None if held else self.absorbed(multiply(a, b, most * most))
        except ManyError:
            found = None
        if found is None or len(found) > most:
            found = grouped(a, b) if a and b else []
        return tuple(found)

    def both_groups(self, a: Iterable[Case], b: Iterable[Case]) -> list[Case]:
        """Return the intersection of two unions as one set with a group for each; an empty list if there is nothing."""
        sides = self.absorbed(a), self.absorbed(b)
        if not all(sides):
            return []
        one, other = (side[0] if len(side) == 1 else self.holding((tuple(side),)) for side in sides)
        both = self.intersect(one, other)
        return [] if both is None else [both]
