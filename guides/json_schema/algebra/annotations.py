"""Unevaluated members: a schema as alternatives, each with the members that it has evaluated.

Which members are evaluated depends on which branches hold. An alternative assumes that certain branches
hold; if others hold as well, more members are evaluated and less is forbidden, so the alternatives that
assume those, too, take such values in. Their union is exact without saying that a branch does not hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, NamedTuple, Protocol

from ....errors import LimitError
from ...limits import spend
from ..read.dialects import is_array
from .cases import ANY, Array, Normal, Object, Rule, String
from .formula import EVERYTHING, NOTHING, Formula, Formulas
from .objects import lacking, requiring
from .strings import StringLanguage
from .translate import ScopedSchema, references


class SchemaReader(Protocol):
    """The part of the normaliser that reading needs."""

    @property
    def formulas(self) -> Formulas:
        """Makes formulas."""
        ...

    @property
    def max_cases(self) -> int:
        """How many alternatives are too many."""
        ...

    def place(self, formula: Formula) -> ScopedSchema:
        """The subschema of a formula."""
        ...

    def parts(self, place: ScopedSchema) -> list[Formula]:
        """The conjuncts of a subschema."""
        ...


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The members that a schema that holds has evaluated.

    names, patterns: of members, or every member; items: how many from the front, or every item;
    matching: items that satisfy one of these
    """

    names: frozenset[str] = frozenset()
    patterns: frozenset[str] = frozenset()
    every_member: bool = False
    items: int = 0
    every_item: bool = False
    matching: tuple[Formula, ...] = ()

    def __or__(self, other: Evaluated) -> Evaluated:
        return Evaluated(
            self.names | other.names,
            self.patterns | other.patterns,
            self.every_member or other.every_member,
            max(self.items, other.items),
            self.every_item or other.every_item,
            self.matching + other.matching,
        )


Alternative = tuple[Formula, Evaluated]
NOTHING_EVALUATED = Evaluated()


def own_evaluated(place: ScopedSchema) -> Evaluated:
    """The members that keywords of a subschema evaluate themselves, those that lead to other subschemas left aside."""
    items: Any = place.keyword("items")
    prefix: list[Any] = items if is_array(items) else place.keyword("prefixItems", [])
    closed = place.has("additionalItems") if is_array(items) else items is not None
    newest = place.schema.resource.dialect.draft >= 2020
    return Evaluated(
        frozenset(place.keyword("properties", ())),
        frozenset(place.keyword("patternProperties", ())),
        place.has("additionalProperties"),
        len(prefix),
        closed,
        (place.inner(place.keyword("contains")),) if newest and place.has("contains") else (),
    )


class Reader:
    """Reads subschemas with what they evaluate."""

    def __init__(self, reader: SchemaReader) -> None:
        self._reader = reader
        self._formulas = reader.formulas
        self._depth = 0

    def formula(self, place: ScopedSchema) -> Formula:
        """The normal form of a subschema with unevaluated members."""
        return self._formulas.any_of(formula for formula, _ in self.alternatives(place))

    def alternatives(self, place: ScopedSchema) -> list[Alternative]:
        """The ways in which a subschema can hold, and what each evaluates."""
        found: list[Alternative] = [(EVERYTHING, NOTHING_EVALUATED)]
        if place.schema.resource.dialect.ref_alone and place.has("$ref"):
            parts = [self._of(formula) for formula in references(place)]
        else:
            parts = list(self._parts(place))
        for part in parts:
            found = self._both(found, part)
        if place.has("unevaluatedProperties"):
            found = [self._close_members(place, formula, seen) for formula, seen in found]
        if place.has("unevaluatedItems"):
            found = [self._close_items(place, formula, seen) for formula, seen in found]
        return found

    def _of(self, formula: Formula) -> list[Alternative]:
        """The alternatives of a formula that is a subschema (or true or false)."""
        if formula.kind != "schema":
            return [(formula, NOTHING_EVALUATED)] if formula is not NOTHING else []
        self._depth += 1
        if self._depth > 100:
            raise LimitError("schemas nested more than 100 deep beside unevaluated members")
        found = self.alternatives(self._reader.place(formula))
        self._depth -= 1
        return self._simplified(found)

    def _simplified(self, found: list[Alternative]) -> list[Alternative]:
        """Alternatives that evaluate the same, as one."""
        by_seen: dict[Evaluated, list[Formula]] = {}
        for formula, seen in found:
            by_seen.setdefault(seen, []).append(formula)
        return [(self._formulas.any_of(formulas), seen) for seen, formulas in by_seen.items()]

    def _both(self, a: list[Alternative], b: list[Alternative]) -> list[Alternative]:
        if len(a) * len(b) > self._reader.max_cases:
            raise LimitError(
                f"unevaluated members depend on more than {self._reader.max_cases} combinations of "
                "branches; the option max_cases raises the limit"
            )
        spend(1000 * len(a) * len(b))
        both = self._formulas.all_of
        return self._simplified([(both((f, g)), seen | more) for f, seen in a for g, more in b])

    def _parts(self, place: ScopedSchema) -> Iterator[list[Alternative]]:
        kept = ("$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas")
        yield [(self._without(place, kept), own_evaluated(place))]
        for formula in references(place):
            yield self._of(formula)
        for schema in place.keyword("allOf", ()):
            yield self._of(place.inner(schema))
        if place.has("anyOf"):
            yield self._any([place.inner(schema) for schema in place.keyword("anyOf")])
        if place.has("oneOf"):
            yield self._one([place.inner(schema) for schema in place.keyword("oneOf")])
        if place.has("if"):
            yield self._conditional(place)
        for name, schema in place.keyword("dependentSchemas", {}).items():
            without = self._formulas.plain(replace(ANY, objects=(lacking(name),)))
            having = self._formulas.plain(Normal(objects=(requiring((name,)),)))
            held = self._both([(having, NOTHING_EVALUATED)], self._of(place.inner(schema)))
            yield [(without, NOTHING_EVALUATED), *held]

    def _without(self, place: ScopedSchema, keywords: tuple[str, ...]) -> Formula:
        """The bounds of a subschema with some keywords, and the unevaluated ones, left out."""
        gone = {*keywords, "unevaluatedItems", "unevaluatedProperties"}
        schema = place.schema
        value = {key: content for key, content in schema.value.items() if key not in gone}
        bare = type(schema)(value, schema.resource, schema.parent, schema.keys)
        return self._formulas.all_of(self._reader.parts(place._replace(schema=bare)))

    def _any(self, branches: list[Formula]) -> list[Alternative]:
        read = [self._of(branch) for branch in branches]
        silent = [formula for found in read for formula, seen in found if seen == NOTHING_EVALUATED]
        telling = [pairs for found in read if (pairs := [pair for pair in found if pair[1] != NOTHING_EVALUATED])]
        if 2 ** len(telling) > self._reader.max_cases:
            raise LimitError(
                f"unevaluated members depend on {len(telling)} branches; the option max_cases raises the limit"
            )
        result: list[Alternative] = [(self._formulas.any_of(silent), NOTHING_EVALUATED)] if silent else []
        for count in range(1, len(telling) + 1):
            for chosen in combinations(telling, count):
                found: list[Alternative] = [(EVERYTHING, NOTHING_EVALUATED)]
                for part in chosen:
                    found = self._both(found, part)
                result.extend(found)
        return self._simplified(result)

    def _one(self, branches: list[Formula]) -> list[Alternative]:
        result: list[Alternative] = []
        for index, branch in enumerate(branches):
            others = self._formulas.any_of(branches[:index] + branches[index + 1 :])
            alone = [(self._formulas.negation(others), NOTHING_EVALUATED)]
            result.extend(self._both(self._of(branch), alone))
        return self._simplified(result)

    def _conditional(self, place: ScopedSchema) -> list[Alternative]:
        condition = place.inner(place.keyword("if"))
        then = self._both(self._of(condition), self._of(place.inner(place.keyword("then", True))))
        otherwise = [(self._formulas.negation(condition), NOTHING_EVALUATED)]
        return then + self._both(otherwise, self._of(place.inner(place.keyword("else", True))))

    def _close_members(self, place: ScopedSchema, formula: Formula, seen: Evaluated) -> Alternative:
        inner = place.inner(place.keyword("unevaluatedProperties"))
        if not seen.every_member and inner is not EVERYTHING:
            others = Rule(String(not_patterns=seen.patterns, excluded=seen.names), inner)
            closed = self._formulas.plain(replace(ANY, objects=(Object(rules=(others,)),)))
            formula = self._formulas.all_of((formula, closed))
        return formula, replace(seen, every_member=True)

    def _close_items(self, place: ScopedSchema, formula: Formula, seen: Evaluated) -> Alternative:
        inner = place.inner(place.keyword("unevaluatedItems"))
        rest = self._formulas.any_of((inner, *seen.matching))
        if not seen.every_item and rest is not EVERYTHING:
            case = Array((EVERYTHING,) * seen.items, rest)
            closed = self._formulas.plain(replace(ANY, arrays=(case,)))
            formula = self._formulas.all_of((formula, closed))
        return formula, replace(seen, every_item=True)


MAX_PATTERNS = 4
"""Up to how many patterns are told apart, which makes a formula for each set of them."""
MAX_DEPTH = 100


class Evaluation(NamedTuple):
    """The members evaluated where a formula holds."""

    condition: Formula
    seen: Evaluated


def formula_of(place: ScopedSchema, reader: SchemaReader, language: StringLanguage) -> Formula | None:
    """The formula of a subschema with `unevaluatedProperties`; None where that has to be told by combinations.

    A subschema that holds evaluates members under conditions: those of a branch of `anyOf` if the branch holds, those
    of `then` if the condition holds. A member that is there must satisfy `unevaluatedProperties`, or one of the
    branches must hold that evaluate it. That is a formula for each name, where the combinations would be 2^n.
    """
    schema, formulas = place.schema, reader.formulas
    inner = place.inner(place.keyword("unevaluatedProperties"))
    bare = {key: content for key, content in schema.value.items() if key != "unevaluatedProperties"}
    kept = place._replace(schema=type(schema)(bare, schema.resource, schema.parent, schema.keys))
    found = list(_evaluations(kept, reader, EVERYTHING, 0))
    names = frozenset(name for _, seen in found for name in seen.names)
    patterns = sorted({pattern for _, seen in found for pattern in seen.patterns})
    if len(patterns) > MAX_PATTERNS:
        return None
    parts = reader.parts(kept)
    for name in sorted(names):
        spend(100 * len(found))
        matched = [pattern for pattern in patterns if language.contains(String(patterns=frozenset((pattern,))), name)]
        told = [one for one, seen in found if name in seen.names or _reaches(seen, matched)]
        parts.append(_either(place, Object({name: inner}), told))
    for count in range(len(patterns) + 1):
        for matched in combinations(patterns, count):
            others = frozenset(patterns).difference(matched)
            free = String(patterns=frozenset(matched), not_patterns=others, excluded=names)
            told = [one for one, seen in found if _reaches(seen, matched)]
            parts.append(_either(place, Object(rules=(Rule(free, inner),)), told))
    return formulas.all_of(parts)


def _reaches(seen: Evaluated, matched: list[str] | tuple[str, ...]) -> bool:
    """Tell whether a member that has no name of its own is evaluated, by the patterns that its name matches."""
    return seen.every_member or not seen.patterns.isdisjoint(matched)


def _either(place: ScopedSchema, case: Object, told: list[Formula]) -> Formula:
    """The objects of a case, those in which something else evaluates its members, and what is no object."""
    return place.formulas.any_of((place.formulas.plain(replace(ANY, objects=(case,))), *told))


def _evaluations(place: ScopedSchema, reader: SchemaReader, condition: Formula, depth: int) -> Iterator[Evaluation]:
    """The members that a subschema evaluates where it holds and a condition does."""
    if depth > MAX_DEPTH:
        raise LimitError(f"schemas nested more than {MAX_DEPTH} deep beside unevaluated members")
    spend(500)
    both, refuse = reader.formulas.all_of, reader.formulas.negation
    if place.schema.resource.dialect.ref_alone and place.has("$ref"):
        inner = [(formula, condition) for formula in references(place)]
    else:
        yield Evaluation(condition, _own(place))
        inner = [(formula, condition) for formula in references(place)]
        inner += [(place.inner(schema), condition) for schema in place.keyword("allOf", ())]
        for keyword in ("anyOf", "oneOf"):
            branches = [place.inner(schema) for schema in place.keyword(keyword, ())]
            inner += [(branch, both((condition, branch))) for branch in branches]
        if place.has("if"):
            holds = place.inner(place.keyword("if"))
            met, unmet = both((condition, holds)), both((condition, refuse(holds)))
            inner += [(holds, met), (place.inner(place.keyword("then", True)), met)]
            inner.append((place.inner(place.keyword("else", True)), unmet))
        for name, schema in place.keyword("dependentSchemas", {}).items():
            having = place.formulas.plain(Normal(objects=(requiring((name,)),)))
            inner.append((place.inner(schema), both((condition, having))))
    for formula, holding in inner:
        if formula.kind == "schema":
            yield from _evaluations(reader.place(formula), reader, holding, depth + 1)


def _own(place: ScopedSchema) -> Evaluated:
    """The members that the keywords of a subschema evaluate themselves."""
    seen = own_evaluated(place)
    return replace(seen, every_member=True) if place.has("unevaluatedProperties") else seen
