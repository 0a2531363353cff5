"""Arrays whose items must differ, out of more values than can be listed: which those are, and what is asked of them.

The graph does not know what has been written: it has such arrays without that condition, and marks where their items
return to. Whoever reads texts remembers the items (`guides/distinct`). That takes that each item has a value that is
left, whatever came before. Where a text does not tell these arrays from others, the others go on with `EQUAL_ITEM`.
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
from .rules import Measures, Watch

MOST_ITEMS = 100
"""How many items may have to be there."""
MAX_GROUPS, FEW_GROUPS = 20_000, 1_000
"""How many sets of formulas are looked at: to tell arrays apart, and only for the names that objects may have."""


def is_watched(schema: CompiledSchema, case: Array) -> bool:
    """Tell whether the items of an array must differ, and are not listed."""
    if not case.unique or (case.max_items is not None and case.max_items <= 1):
        return False
    return not all(schema.constants(part) is not None for part in _parts(case))


def _parts(case: Array) -> list[Formula]:
    """The formulas of the items of an array."""
    return [part for part in (*case.prefix[: case.max_items], case.rest) if part is not NOTHING]


def check_watched(schema: CompiledSchema, case: Array, formula: Formula, pointer: str) -> None:
    """Raise SchemaError for arrays whose items cannot be told to have a value left, LimitError for too many items.

    formula: what the whole array satisfies
    """
    if case.min_items > MOST_ITEMS:
        raise LimitError(
            f"uniqueItems over infinitely many values takes minItems of at most {MOST_ITEMS}, not {case.min_items:,}"
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
    """The number of items that must be there, or of one kind."""
    return max((case.min_items, *(part.min for part in case.contains)))


def _check_counted(schema: CompiledSchema, case: Array, pointer: str) -> None:
    """Raise SchemaError where items that must be there may run out of values, as `contains` counts them.

    An array is completed with items that count until these are enough, and then with any: so there must be as many
    values that count, and as many in all, of which no more count than may.
    """
    (part, *others), rest = case.contains, case.rest
    if not others and not case.prefix and not part.start and part.min <= MOST_ITEMS:
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
    """As many different values of an item as must be there: those of the shortest array, if that tells.

    part, formula: what the item and the whole array satisfy
    """
    found = schema.minimal_instance(formula)
    is_told = is_array(found) and len(found) == most_needed(case) and not case.prefix
    if is_told and len(set(map(json_key, found))) == len(found) and all(schema.accepts(part, each) for each in found):
        return found
    return schema.several(part, most_needed(case))


def _check_prefix(schema: CompiledSchema, case: Array, pointer: str) -> None:
    """Raise SchemaError where items that must be there may run out of values, or it is not known what they take."""
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


def check_told(schema: CompiledSchema, watch: Watch) -> Watch:
    """The watch, with whether arrays stand beside others, and what names objects may have."""
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


def _with_names(schema: CompiledSchema, cases: list[Object], watch: Watch) -> Watch:
    """The watch, with what names some objects may have besides those that they mention."""
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
    """The formulas that may be those of one item, or of one member."""
    longest = max((len(case.prefix) for case in cases), default=0)
    for index in range(longest + 1):
        yield _live(part for case in cases for part in _items(schema, case, index))
    objects = [case for normal in normals for case in normal.objects]
    names = dict.fromkeys(name for case in objects for name in case.properties)
    for name in names:
        yield _live(formula for case in objects for formula in _named(schema, case, name))
    found = [(case, *region) for case in objects for region in _regions(schema, case)]
    for case, own, formulas in found:
        others = (more for other, names, more in found if other is not case and _may_overlap(schema, own, names))
        yield _live((*formulas, *chain.from_iterable(others)))


def _named(schema: CompiledSchema, case: Object, name: str) -> Iterator[Formula]:
    """The formulas that the member of a name may satisfy, as one that must be there and as any."""
    formula = schema.member(case, name)
    yield formula
    for rule in case.some:
        if schema.language.contains(rule.names, name):
            yield schema.formulas.all_of((formula, rule.formula))


def _regions(schema: CompiledSchema, case: Object) -> Iterator[tuple[String, list[Formula]]]:
    """The sets of names that an object does not name itself, and what the members of each may satisfy."""
    if has_many_rules(case):
        yield ANY_STRING, [rule.formula for rule in case.rules]
        return
    for names, formula in schema.regions(case):
        some = (rule for rule in case.some if _may_overlap(schema, names, rule.names))
        yield names, [formula, *(schema.formulas.all_of((formula, rule.formula)) for rule in some)]


def _may_overlap(schema: CompiledSchema, a: String, b: String) -> bool:
    """Tell whether two sets of names have a common one, or it takes too much to tell."""
    spend(500)
    try:
        return schema.overlaps(a, b)
    except LimitError:
        spend(0)  # raises the error again where it is the call that takes too much
        return True


def _items(schema: CompiledSchema, case: Array, index: int) -> Iterator[Formula]:
    """The formulas that the item at an index may satisfy, as one that `contains` counts and as one that it does not."""
    item, formulas = arrays.item(case, index), schema.formulas
    yield item
    for part in case.contains:
        yield formulas.all_of((item, part.formula))
        yield formulas.all_of((item, formulas.negation(part.formula)))


def _live(formulas: Any) -> frozenset[Formula]:
    return frozenset(formula for formula in formulas if formula is not NOTHING)


def has_twins(constant: Any) -> bool:
    """Tell whether two items of an array within a constant are equal."""
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
