"""Unevaluated members without listing which branches hold: each member needs one branch that evaluates it.

A subschema that holds evaluates members under conditions: those of a branch of `anyOf` if the branch holds, those of
`then` if the condition holds. A member that is there must satisfy `unevaluatedProperties`, or one of the branches must
hold that evaluate it. That is a formula for each name, where the combinations of branches would be 2^n.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

from ....errors import LimitError
from ...limits import spend
from .annotations import Evaluated, SchemaReader, own_evaluated
from .cases import ANY, Normal, Object, Rule, String
from .formula import EVERYTHING, Formula
from .objects import requiring
from .strings import StringLanguage
from .translate import ScopedSchema, references

MAX_PATTERNS = 4
"""Up to how many patterns are told apart, which makes a formula for each set of them."""
MAX_DEPTH = 100


class Evaluation(NamedTuple):
    """What is evaluated where a formula holds."""

    condition: Formula
    seen: Evaluated


def formula_of(place: ScopedSchema, reader: SchemaReader, language: StringLanguage) -> Formula | None:
    """What a subschema with `unevaluatedProperties` asks for; None where that has to be told by combinations."""
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
    """Whether a member that has no name of its own is evaluated, by the patterns that its name matches."""
    return seen.every_member or not seen.patterns.isdisjoint(matched)


def _either(place: ScopedSchema, case: Object, told: list[Formula]) -> Formula:
    """The objects of a case, those in which something else evaluates its members, and what is no object."""
    return place.formulas.any_of((place.formulas.plain(replace(ANY, objects=(case,))), *told))


def _evaluations(place: ScopedSchema, reader: SchemaReader, condition: Formula, depth: int) -> Iterator[Evaluation]:
    """What a subschema evaluates that holds where a condition does."""
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
    """What the keywords of a subschema evaluate themselves."""
    seen = own_evaluated(place)
    return replace(seen, every_member=True) if place.has("unevaluatedProperties") else seen
