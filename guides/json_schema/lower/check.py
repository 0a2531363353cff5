"""Checks before generation: refuses sets of values that cannot be enforced or are too large."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ....errors import LimitError, SchemaError
from ...graph.graph import Graph
from ...graph.lowering import Lowering
from ..algebra.cases import NO_NAMES, Array, Normal, Object, String
from ..algebra.formula import Formula
from ..algebra.strings import intersect, is_plain
from ..compiled import CompiledSchema
from .form import Form
from .objects.names import EXTRA_BYTES, free_names, has_many_rules, repeats_matter
from .rules import NO_WATCH, WatchedRepeats
from .strings.lowering import StringLowering
from .unique import check_told, check_watched, is_watched, most_needed

MAX_CHECKED = 20_000
"""Maximum number of formulas that are checked."""
FEW_CHARACTERS = 5000
"""Maximum number of characters of excluded texts that surely give few enough states."""
# Only a schema with one of these keywords can have such sets.
RISKY = frozenset(
    (
        *("uniqueItems", "contains", "unevaluatedItems", "not", "oneOf", "if", "dependencies", "dependentSchemas"),
        *("patternProperties", "propertyNames", "unevaluatedProperties", "minProperties", "maxProperties", "x-quote"),
    )
)
# A subschema without these keywords below it, alone, has no such set; with them it may be and-ed with others.
JOINING = frozenset(("allOf", "anyOf", "pattern", "format", "$dynamicRef", "$recursiveRef"))
# Only with one of these keywords are members required that are not required by name.
NEEDING = frozenset(("minProperties", "not", "oneOf", "if", "dependencies", "dependentSchemas"))


def check(schema: CompiledSchema, form: Form) -> WatchedRepeats:
    """Check all formulas reachable from the root, up to MAX_CHECKED. Return what must be watched.

    Raises SchemaError for sets that cannot be enforced, LimitError for sets that are too large.
    """
    watch = NO_WATCH
    if not schema.documents.mentions(RISKY):
        return watch
    looked_into = schema.documents.above(RISKY | JOINING)
    strings = StringLowering(Lowering(Graph()), form.escapes, schema.conjunctions)
    todo, negated = [schema.root], list[Formula]()
    seen = set(todo)
    while todo and len(seen) < MAX_CHECKED:
        formula = todo.pop()
        try:
            normal = schema.cases(formula)
            watch = _check_cases(schema, normal, strings, formula, watch)
            negated += (part for array in normal.arrays for part in _negated(schema, array))
            for part in _parts(schema, normal, strings):
                if part not in seen and not (part.kind == "schema" and id(part.subject[0].value) not in looked_into):
                    seen.add(part)
                    todo.append(part)
        except LimitError as error:
            error.locate(schema.formulas.pointer_of(formula))
            raise
    if schema.documents.mentions(frozenset(("uniqueItems",))):
        watch = watch._replace(items=True, repeating=True) if todo else watch
        _check_equal(schema, strings, negated, seen)
    if todo and schema.documents.mentions(NEEDING):
        watch = watch._replace(names=True, extra_name_bytes=max(watch.extra_name_bytes, EXTRA_BYTES))
    return check_told(schema, watch) if watch.any else watch


def _check_cases(
    schema: CompiledSchema, normal: Normal, strings: StringLowering, formula: Formula, watch: WatchedRepeats
) -> WatchedRepeats:
    """Check the alternatives of one formula; return the watch, extended by theirs."""
    _check_texts(schema, strings, normal, formula)
    for array in normal.arrays:
        watch = _check_unique(schema, array, formula, watch)
    for object_ in normal.objects:
        watch = _check_names(schema, object_, strings, formula, watch)
    return watch


def _negated(schema: CompiledSchema, array: Array) -> Iterator[Formula]:
    """Yield the formulas of items under a negated `contains`: many, so only their refusable parts are examined."""
    negated = (part.formula for part in array.contains if part.formula.kind == "not")
    return (schema.formulas.all_of((each, formula)) for formula in negated for each in _items(array))


def _items(array: Array) -> tuple[Formula, ...]:
    """Return the formulas of an array's items."""
    most = array.max_items
    return array.prefix[:most] if most is not None and most <= len(array.prefix) else (*array.prefix, array.rest)


def _check_equal(schema: CompiledSchema, strings: StringLowering, formulas: list[Formula], seen: set[Formula]) -> None:
    """Raise SchemaError if arrays must have equal items, in these formulas or below. Empties the list."""
    while formulas and len(seen) < MAX_CHECKED:
        formula = formulas.pop()
        if formula in seen:
            continue
        seen.add(formula)
        try:
            normal = schema.cases(formula)
            for array in normal.arrays:
                _refuse_equal(schema, array, formula)
                formulas += _negated(schema, array)
            formulas += _parts(schema, normal, strings)
        except LimitError as error:
            error.locate(schema.formulas.pointer_of(formula))
            raise


def _refuse_equal(schema: CompiledSchema, array: Array, formula: Formula) -> None:
    if array.unique is False:
        pointer = schema.formulas.keyword_of(formula, "uniqueItems")
        raise SchemaError("arrays in which some two items are equal cannot be enforced", pointer)


def _parts(schema: CompiledSchema, normal: Normal, strings: StringLowering) -> Iterator[Formula]:
    """Yield the formulas of items and members."""
    both, refuse = schema.formulas.all_of, schema.formulas.negation
    for array in normal.arrays:
        yield from array.prefix
        yield array.rest
        # Negated `contains` are many, and each would take an automaton.
        written = [part for part in array.contains if part.formula.kind != "not"]
        yield from (part.formula.parts[0] for part in array.contains if part.formula.kind == "not")
        for each in _items(array):
            yield from (both((each, part.formula)) for part in written)
            yield from (both((each, refuse(part.formula))) for part in written if part.max is not None)
    for object_ in normal.objects:
        yield from _of_members(schema, object_, strings)


def _of_members(schema: CompiledSchema, object_: Object, strings: StringLowering) -> Iterator[Formula]:
    """Yield the formulas of an object's members."""
    both = schema.formulas.all_of
    for name in object_.properties:
        yield schema.member(object_, name)
    if has_many_rules(object_):
        yield from (rule.formula for rule in object_.rules)
        return
    for rule in object_.some:
        named = (name for name in object_.properties if schema.language.contains(rule.names, name))
        yield from (both((schema.member(object_, name), rule.formula)) for name in named)
    for names, formula in schema.regions(object_):
        _check_strings(strings, names)
        yield formula
        some = (rule for rule in object_.some if intersect(names, rule.names, schema.language) is not None)
        yield from (both((formula, rule.formula)) for rule in some)
    for one in (one for group in object_.either for one in group):
        yield from (both((schema.member(object_, name), schema.member(one, name))) for name in one.properties)
        for rule in one.some:
            _check_strings(strings, rule.names)
        for rule in one.rules:
            _check_strings(strings, rule.names)
            yield rule.formula


def _check_texts(schema: CompiledSchema, strings: StringLowering, normal: Normal, formula: Formula) -> None:
    """Raise LimitError, with the place of a pattern, for strings with too many conditions."""
    try:
        for case in normal.strings:
            _check_strings(strings, case)
    except LimitError as error:
        error.locate(schema.formulas.keyword_of(formula, "pattern"))
        raise


def _check_strings(strings: StringLowering, case: String) -> None:
    """Raise LimitError for strings with too many conditions; a single condition is never too much.

    A few excluded texts add no more states than characters, so they are ignored here; objects that differ only in
    member names then share the result.
    """
    if case.excluded and not is_plain(case) and sum(map(len, case.excluded)) <= FEW_CHARACTERS:
        case = replace(case, excluded=NO_NAMES)
    is_and_ed = case.excluded or case.not_patterns or case.not_formats or case.either
    if is_and_ed or len(case.patterns) + len(case.formats) > 1:
        strings.shortest(case)


def _check_unique(schema: CompiledSchema, array: Array, formula: Formula, watch: WatchedRepeats) -> WatchedRepeats:
    """Check one array; return the watch, extended by it."""
    _refuse_equal(schema, array, formula)
    if not is_watched(schema, array):
        return watch
    pointer = schema.formulas.keyword_of(formula, "uniqueItems")
    try:
        check_watched(schema, array, formula, pointer)
    except LimitError as error:
        error.locate(pointer)
        raise
    return watch._replace(items=True, repeating=watch.repeating or most_needed(array) > 1)


def _check_names(
    schema: CompiledSchema, case: Object, strings: StringLowering, formula: Formula, watch: WatchedRepeats
) -> WatchedRepeats:
    """Check the names of one object; return the watch, extended by them."""
    if not repeats_matter(case):
        return watch
    pointer = schema.formulas.keyword_of(formula, "minProperties")
    more = free_names(schema, case).extra_name_bytes(strings.shortest, pointer)
    return watch._replace(names=True, extra_name_bytes=max(watch.extra_name_bytes, more)) if more else watch
