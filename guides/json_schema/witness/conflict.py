"""Where a schema without an instance contradicts itself: the innermost subschema that still has none."""

from __future__ import annotations

from collections.abc import Iterator

from ..algebra import arrays, objects
from ..algebra.formula import EVERYTHING, Formula
from .witnesses import Witnesses


def conflict(root: Formula, witnesses: Witnesses) -> str:
    """The pointer of the innermost subschema to which the lack of an instance can be traced."""
    pointer = "#"
    formula: Formula | None = root
    seen: set[Formula] = set()
    while formula is not None and formula not in seen:
        seen.add(formula)
        if formula.kind == "schema":
            pointer = formula.subject[0].pointer
        parts = (part for part in _asked(formula, witnesses) if part not in seen)
        formula = next((part for part in parts if not witnesses.has_instance(part)), None)
    return pointer


def _asked(formula: Formula, witnesses: Witnesses) -> Iterator[Formula]:
    """What a formula needs an instance of: its conjuncts, then the members and items that must be there."""
    normaliser = witnesses.normaliser
    if formula.kind == "schema":
        meaning = normaliser.meaning(formula)
        yield from meaning.parts if meaning.kind == "all" else (meaning,)
    elif formula.kind == "all":
        yield from formula.parts
    normal = normaliser.normal(formula)
    if len(normal.objects) + len(normal.arrays) != 1:
        return
    for case in normal.objects:
        for name in case.properties:
            if name in case.required:
                yield objects.member(case, name, normaliser.formulas, normaliser.language)
    for case in normal.arrays:
        for index in range(min(case.min_items, len(case.prefix) + 1)):
            if arrays.item(case, index) is not EVERYTHING:
                yield arrays.item(case, index)
