"""Arrays of unique items with too many values to list: which arrays these are, and their preconditions.

The graph does not know what has been written: it omits the condition, and marks the return nodes of items. A
`DistinctGuide` remembers the items (`guides/distinct`). Every required item must have an unused value, whatever came
before. Where the text does not separate these arrays from others, the others continue with `EQUAL_ITEM`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from ....errors import LimitError, SchemaError
from ...limits import spend
from ..algebra import arrays
from ..algebra.cases import ANY_STRING, Array, Normal, Object, String
from ..algebra.formula import NOTHING, Formula, json_key
from ..compiled import CompiledSchema
from ..read.dialects import is_array, is_object
from .objects.names import has_many_rules, is_endless
from .rules import Measures, WatchedRepeats

MAX_ITEMS = 100
"""Maximum number of required items."""
MAX_GROUPS, FEW_GROUPS = 20_000, 1_000
"""Maximum number of sets of formulas examined: to separate arrays, and for names of objects only."""


def is_watched(schema: CompiledSchema, case: Array) -> bool:
    """Test whether the items of an array must differ and cannot be listed."""
    if not case.unique or (case.max_items is not None and case.max_items <= 1):
        return False
    return not all(schema.constants(part) is not None for part in _parts(case))


def _parts(case: Array) -> list[Formula]:
    """Return the formulas of the items of an array."""
    return [part for part in (*case.prefix[: case.max_items], case.rest) if part is not NOTHING]


def check_watched(schema: CompiledSchema, case: Array, formula: Formula, pointer: str) -> None:
    """Raise SchemaError if required items may run out of values, LimitError for too many required items.

    formula: of the whole array
    """
    if case.min_items > MAX_ITEMS:
        raise LimitError(
            f"uniqueItems over infinitely many values takes minItems of at most {MAX_ITEMS}, not {case.min_items:,}"
        )
    for part in _parts(case):
        normal = schema.cases(part)
        if case.min_items < 2 or not (normal.arrays or normal.objects):
            continue
        if len(different_values(schema, case, part, formula)) < case.min_items:
            raise SchemaError(
                "uniqueItems can be enforced for items that are objects or arrays only where so many different ones as "
                "must be there are found",
                pointer,
            )
    is_counted = most_needed(case) > 1 or any(part.max is not None for part in case.contains)
    if len(case.contains) > 1 or (case.contains and is_counted):
        _check_counted(schema, case, pointer)
    if case.prefix and case.min_items > 1:
        _check_prefix(schema, case, pointer)


def most_needed(case: Array) -> int:
    """Return the number of required items, or of one kind of them."""
    return max((case.min_items, *(part.min for part in case.contains)))


def _check_counted(schema: CompiledSchema, case: Array, pointer: str) -> None:
    """Raise SchemaError if items required by `contains` may run out of values.

    An array is completed with matching items until they suffice, and then with any. So there must be enough matching
    values, and enough values in all without exceeding the maximum of matches.
    """
    (part, *others), rest = case.contains, case.rest
    if not others and not case.prefix and not part.start and part.min <= MAX_ITEMS:
        counted = schema.several(schema.formulas.all_of((rest, part.formula)), most_needed(case))
        usable = len(counted) if part.max is None else min(len(counted), part.max)
        missing = max(case.min_items - usable, 0)
        uncounted = schema.formulas.all_of((rest, schema.formulas.negation(part.formula)))
        enough = not missing or len(schema.several(uncounted, missing)) == missing
        if len(counted) >= part.min and enough:
            return
    raise SchemaError(
        "uniqueItems where `contains` counts items can be enforced only where as many different ones as must be there "
        "are found, for one `contains` without prefixItems, or for items out of finitely many values",
        pointer,
    )


def different_values(schema: CompiledSchema, case: Array, part: Formula, formula: Formula) -> list[Any]:
    """Return as many different values of an item as are required; those of the shortest array, if it provides them.

    part, formula: of the item and of the whole array
    """
    found = schema.minimal_instance(formula)
    is_told = is_array(found) and len(found) == most_needed(case) and not case.prefix
    if is_told and len(set(map(json_key, found))) == len(found) and all(schema.accepts(part, each) for each in found):
        return found
    return schema.several(part, most_needed(case))


def _check_prefix(schema: CompiledSchema, case: Array, pointer: str) -> None:
    """Raise SchemaError if required items may run out of values, or their bytes are unknown."""
    witness = schema.minimal_instance(schema.formulas.plain(Normal(arrays=(case,))))
    longest = max(map(_length, witness))
    for index in range(case.min_items):
        found = schema.several(arrays.item(case, index), case.min_items)
        if len(found) < case.min_items:
            raise SchemaError(
                "uniqueItems cannot be enforced where some items have few values and others many", pointer
            )
        if max(map(_length, found)) > longest:
            raise SchemaError("uniqueItems cannot be enforced where items that must be there are unlike", pointer)


def _length(value: Any) -> int:
    return Measures(None, uniform=True).of(value).length


def check_told(schema: CompiledSchema, watch: WatchedRepeats) -> WatchedRepeats:
    """Return the watch, extended by whether arrays share places with others, and which names objects may have."""
    most = MAX_GROUPS if watch.items else FEW_GROUPS
    todo = [frozenset((schema.root,))]
    seen = set(todo)
    while todo:
        group = todo.pop()
        spend(2000 * len(group))
        normals = [schema.cases(formula) for formula in group]
        cases = [case for normal in normals for case in normal.arrays]
        if any(is_watched(schema, case) for case in cases):
            is_free = any(case.unique is None and case.max_items not in (0, 1) for case in cases)
            if is_free or any(has_twins(constant) for normal in normals for constant in normal.constants):
                watch = watch._replace(beside_free=True)
        watch = _with_names(schema, [case for normal in normals for case in normal.objects], watch)
        for part in _below(schema, cases, normals):
            if part and part not in seen:
                if len(seen) >= most:
                    return watch._replace(beside_free=watch.items, open_names=True, scarce_names=True)
                seen.add(part)
                todo.append(part)
    return watch


def _with_names(schema: CompiledSchema, cases: list[Object], watch: WatchedRepeats) -> WatchedRepeats:
    """Return the watch, extended by the unlisted names that some objects may have."""
    for case in cases:
        if watch.scarce_names:
            break
        names = [] if has_many_rules(case) else [names for names, _ in schema.regions(case)]
        if has_many_rules(case) or case.either or not all(map(is_endless, names)):
            watch = watch._replace(open_names=True, scarce_names=True)
        elif names:
            watch = watch._replace(open_names=True)
    return watch


def _below(schema: CompiledSchema, cases: list[Array], normals: list[Normal]) -> Iterator[frozenset[Formula]]:
    """Yield the sets of formulas that one item, or one member, may have."""
    longest = max((len(case.prefix) for case in cases), default=0)
    for index in range(longest + 1):
        yield _live(part for case in cases for part in _items(schema, case, index))
    objects = [case for normal in normals for case in normal.objects]
    names = dict.fromkeys(name for case in objects for name in case.properties)
    for name in names:
        yield _live(formula for case in objects for formula in _named(schema, case, name))
    found = [(case, *region) for case in objects for region in _regions(schema, case)]
    for case, own_names, formulas in found:
        others = (more for other, names, more in found if other is not case and _may_overlap(schema, own_names, names))
        yield _live((*formulas, *chain.from_iterable(others)))


def _named(schema: CompiledSchema, case: Object, name: str) -> Iterator[Formula]:
    """Yield the formulas that the member of a name may satisfy, as required by a `some` rule and in general."""
    formula = schema.member(case, name)
    yield formula
    for rule in case.some:
        if schema.language.contains(rule.names, name):
            yield schema.formulas.all_of((formula, rule.formula))


def _regions(schema: CompiledSchema, case: Object) -> Iterator[tuple[String, list[Formula]]]:
    """Yield the sets of names that an object does not list, with the possible formulas of their members."""
    if has_many_rules(case):
        yield ANY_STRING, [rule.formula for rule in case.rules]
        return
    for names, formula in schema.regions(case):
        some = (rule for rule in case.some if _may_overlap(schema, names, rule.names))
        yield names, [formula, *(schema.formulas.all_of((formula, rule.formula)) for rule in some)]


def _may_overlap(schema: CompiledSchema, a: String, b: String) -> bool:
    """Test whether two sets of names overlap, or deciding it takes too long."""
    spend(500)
    try:
        return schema.overlaps(a, b)
    except LimitError:
        spend(0)  # raises again if the limits of the whole call are exceeded
        return True


def _items(schema: CompiledSchema, case: Array, index: int) -> Iterator[Formula]:
    """Yield the formulas that the item at an index may satisfy: any, matched by a `contains`, and unmatched."""
    item, formulas = arrays.item(case, index), schema.formulas
    yield item
    for part in case.contains:
        yield formulas.all_of((item, part.formula))
        yield formulas.all_of((item, formulas.negation(part.formula)))


def _live(formulas: Any) -> frozenset[Formula]:
    return frozenset(formula for formula in formulas if formula is not NOTHING)


def has_twins(constant: Any) -> bool:
    """Test whether two items of an array within a constant are equal."""
    waiting = [constant]
    while waiting:
        value = waiting.pop()
        spend(100)
        if is_array(value):
            if len({json_key(item) for item in value}) < len(value):
                return True
            waiting += value
        elif is_object(value):
            waiting += value.values()
    return False
