"""Unevaluated members and items: those that no subschema evaluates must satisfy a schema of their own.

Evaluation is conditional: a branch of `anyOf` evaluates members if it holds, `then` if the condition holds. So a member
must satisfy `unevaluatedProperties`, or one of the branches that evaluate it must hold. This is one formula per name,
and per range of items, rather than one per combination of branches (2^n). Combinations are needed only for members
evaluated by name pattern, and items by value: an alternative for each set of such branches says that all of them hold,
and that what none of them evaluates satisfies the schema. If more branches hold, more is evaluated and less required;
alternatives that assume them cover these values too. A branch with only `contains` holds as soon as it evaluates an
item, and takes no alternative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Any, NamedTuple, cast

from ....errors import LimitError
from ...limits import spend
from ..read.dialects import is_array
from .cases import ANY, Array, Normal, Object, Rule, String
from .formula import EVERYTHING, Formula
from .objects import requiring
from .strings import StringLanguage
from .translate import ScopedSchema, references

MAX_DEPTH = 100
UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The members and items that a schema evaluates if it holds.

    names, patterns: of members, or every member; items: number of first items, or every item; matching: items that
    satisfy one of these
    """

    names: frozenset[str] = frozenset()
    patterns: frozenset[str] = frozenset()
    every_member: bool = False
    items: int = 0
    every_item: bool = False
    matching: tuple[Formula, ...] = ()


class Evaluation(NamedTuple):
    """The members and items evaluated where a formula holds."""

    condition: Formula
    seen: Evaluated


def formula_of(
    place: ScopedSchema,
    conditions: Callable[[ScopedSchema], list[Formula]],
    language: StringLanguage,
    max_cases: int,
) -> Formula:
    """Return the formula of a subschema with unevaluated members or items. Raises LimitError for too many branches.

    conditions: returns the conjuncts of a subschema without such keywords
    """
    schema = place.schema
    bare = {key: content for key, content in schema.value.items() if key not in UNEVALUATED}
    stripped = place._replace(schema=type(schema)(bare, schema.resource, schema.parent, schema.keys))
    found = list(_evaluations(stripped, EVERYTHING, 0))
    parts = conditions(stripped)
    if place.has("unevaluatedProperties"):
        parts += _members(place, found, language, max_cases)
    if place.has("unevaluatedItems"):
        # First: alternatives that assume branches then meet the `anyOf` of these without multiplying.
        parts.insert(0, _items(place, found, max_cases))
    return place.formulas.all_of(parts)


def _members(
    place: ScopedSchema, found: list[Evaluation], language: StringLanguage, max_cases: int
) -> Iterator[Formula]:
    """Yield the conditions on members of each name, and on those of other names."""
    inner = place.inner(place.keyword("unevaluatedProperties"))
    names = frozenset(name for _, seen in found for name in seen.names)
    for name in sorted(names):
        spend(100 * len(found))
        evaluated = [
            one for one, seen in found if seen.every_member or name in seen.names or _matches(seen, name, language)
        ]
        yield _either(place, Normal(objects=(Object({name: inner}),)), evaluated)
    evaluated_always = [one for one, seen in found if seen.every_member]
    ways: list[Formula] = []
    for holding, seen in _sets([one for one in found if one.seen.patterns], max_cases):
        patterns = frozenset(pattern for each in seen for pattern in each.patterns)
        rule = Rule(String(not_patterns=patterns, excluded=names), inner)
        closed = _either(place, Normal(objects=(Object(rules=(rule,)),)), evaluated_always)
        ways.append(place.formulas.all_of((*holding, closed)))
    yield place.formulas.any_of(ways)


def _matches(seen: Evaluated, name: str, language: StringLanguage) -> bool:
    """Test whether a name is evaluated by one of the patterns."""
    return any(language.contains(String(patterns=frozenset((pattern,))), name) for pattern in seen.patterns)


def _items(place: ScopedSchema, found: list[Evaluation], max_cases: int) -> Formula:
    """Return the condition on all items, by ranges of indices that the same subschemas evaluate."""
    inner = place.inner(place.keyword("unevaluatedItems"))
    bounds = sorted({0, *(seen.items for _, seen in found)})
    ways: list[Formula] = []
    for holding, seen in _sets([one for one in found if one.seen.matching], max_cases):
        item = place.formulas.any_of((inner, *(formula for each in seen for formula in each.matching)))
        cases = [Array((EVERYTHING,) * first + (item,) * (end - first)) for first, end in pairwise(bounds)]
        parts = list(holding)
        for first, case in zip(bounds, [*cases, Array((EVERYTHING,) * bounds[-1], item)], strict=True):
            evaluated = [one for one, each in found if each.every_item or each.items > first]
            parts.append(_either(place, Normal(arrays=(case,)), evaluated))
        ways.append(place.formulas.all_of(parts))
    return place.formulas.any_of(ways)


def _sets(found: Sequence[Evaluation], max_cases: int) -> Iterator[tuple[list[Formula], list[Evaluated]]]:
    """Yield each subset of evaluations, with the unconditional ones: its conditions, and what it evaluates."""
    always = [one.seen for one in found if one.condition is EVERYTHING]
    rest = [one for one in found if one.condition is not EVERYTHING]
    if 2 ** len(rest) > max_cases:
        raise LimitError(f"unevaluated members depend on {len(rest)} branches; the option max_cases raises the limit")
    for count in range(len(rest) + 1):
        for some in combinations(rest, count):
            yield [one.condition for one in some], [*always, *(one.seen for one in some)]


def _either(place: ScopedSchema, case: Normal, evaluated: list[Formula]) -> Formula:
    """Return the values of a case, those whose members something else evaluates, and those of other types."""
    others = replace(ANY, objects=case.objects) if case.objects else replace(ANY, arrays=case.arrays)
    return place.formulas.any_of((place.formulas.plain(others), *evaluated))


def _evaluations(place: ScopedSchema, condition: Formula, depth: int) -> Iterator[Evaluation]:
    """Yield what a subschema evaluates where it and a condition hold."""
    if depth > MAX_DEPTH:
        raise LimitError(f"schemas nested more than {MAX_DEPTH} deep beside unevaluated members")
    spend(500)
    both, refuse = place.formulas.all_of, place.formulas.negation
    inner = [(formula, condition) for formula in references(place)]
    if not (place.schema.resource.dialect.ref_alone and place.has("$ref")):
        yield Evaluation(condition, _own_evaluated(place))
        inner += [(place.inner(schema), condition) for schema in place.keyword("allOf", ())]
        for keyword in ("anyOf", "oneOf"):
            for schema in place.keyword(keyword, ()):
                branch = place.inner(schema)
                inner.append((branch, condition if _holds_with(schema) else both((condition, branch))))
        if place.has("if"):
            test = place.keyword("if")
            holds = place.inner(test)
            met, unmet = both((condition, holds)), both((condition, refuse(holds)))
            inner.append((holds, condition if _holds_with(test) else met))
            inner.append((place.inner(place.keyword("then", True)), met))
            inner.append((place.inner(place.keyword("else", True)), unmet))
        for name, schema in place.keyword("dependentSchemas", {}).items():
            having = place.formulas.plain(Normal(objects=(requiring((name,)),)))
            inner.append((place.inner(schema), both((condition, having))))
    for formula, holding in inner:
        if formula.kind == "schema":
            schema, scope = formula.subject
            yield from _evaluations(place._replace(schema=schema, scope=scope), holding, depth + 1)


def _holds_with(schema: Any) -> bool:
    """Test whether a schema requires only an item that it evaluates, by `contains`."""
    stated: Mapping[str, Any] = cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else {}
    return (
        "contains" in stated and stated.keys() <= {"contains", "minContains"} and stated.get("minContains", 1) in (0, 1)
    )


def _own_evaluated(place: ScopedSchema) -> Evaluated:
    """Return what a subschema's own keywords evaluate, without its subschemas."""
    items: Any = place.keyword("items")
    prefix: list[Any] = items if is_array(items) else place.keyword("prefixItems", [])
    closed = place.has("additionalItems") if is_array(items) else items is not None
    newest = place.schema.resource.dialect.draft >= 2020
    return Evaluated(
        frozenset(place.keyword("properties", ())),
        frozenset(place.keyword("patternProperties", ())),
        place.has("additionalProperties") or place.has("unevaluatedProperties"),
        len(prefix),
        closed or place.has("unevaluatedItems"),
        (place.inner(place.keyword("contains")),) if newest and place.has("contains") else (),
    )
