"""Satisfiable formulas, with a small instance of each: the least fixpoint over recursive references.

A witness is built from earlier witnesses, so it is finite. Exploration is on demand: the witness of an object needs
witnesses of its required members, and nothing else.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import replace
from operator import is_
from typing import Any

from ....errors import LimitError
from ...limits import spend
from ..algebra import arrays, numbers, objects
from ..algebra.arrays import lies_within
from ..algebra.cases import Array, Normal, Object, String
from ..algebra.formula import EVERYTHING, NOTHING, Formula, json_key
from ..algebra.membership import Membership
from ..algebra.normalise import Normaliser
from ..algebra.strings import is_plain
from ..algebra.translate import UNREACHED
from .arrays import ArrayWitnesses
from .instances import NO_INSTANCE, Ask, of_number
from .objects import ObjectWitnesses
from .strings import StandInText


class Witnesses:
    """Finds and caches witnesses."""

    def __init__(self, normaliser: Normaliser) -> None:
        self.normaliser = normaliser
        # No reference cycle, so that an unused schema is freed at once
        itself: Witnesses = weakref.proxy(self)

        def several(formula: Formula, count: int, ask: Ask) -> list[Any]:
            return itself.several(formula, count, ask)

        self.membership = Membership(normaliser.formulas, normaliser.language, lambda formula: itself.cases(formula))
        self.arrays = ArrayWitnesses(normaliser, several)
        self.objects = ObjectWitnesses(normaliser, several)
        self._instances: dict[Formula, Any] = {EVERYTHING: None, NOTHING: NO_INSTANCE}
        self._listing: set[Formula] = set()
        self._cases: dict[Formula, Normal] = {}

    def find(self, formula: Formula) -> Any:
        """Return a small instance, or NO_INSTANCE."""
        known = self._instances.get(formula, self)
        if known is self:
            self._explore(formula)
            known = self._instances[formula]
        return known

    def has_instance(self, formula: Formula) -> bool:
        """Test whether any value satisfies a formula."""
        return is_modest(formula) or self.find(formula) is not NO_INSTANCE

    def _explore(self, target: Formula) -> None:
        """Find a witness for `target`, exploring other formulas as they are needed."""
        waiting = [target]
        pending: dict[Formula, None] = {target: None}
        dependents: dict[Formula, dict[Formula, None]] = {}
        while waiting and target not in self._instances:
            formula = waiting.pop()
            if formula in self._instances:
                continue

            def ask(part: Formula, asking: Formula = formula) -> Any:
                found = self._instances.get(part, self)
                if found is not self:
                    return found
                if part not in pending:
                    pending[part] = None
                    waiting.append(part)
                dependents.setdefault(part, {})[asking] = None
                return NO_INSTANCE

            spend(1000)
            try:
                witness = self._of_normal(self.normaliser.normal(formula), ask)
            except LimitError as error:
                error.locate(self.normaliser.formulas.pointer_of(formula))
                raise
            if witness is not NO_INSTANCE:
                self._instances[formula] = witness
                waiting.extend(dependents.pop(formula, ()))
        if target not in self._instances:
            for formula in pending:
                self._instances.setdefault(formula, NO_INSTANCE)

    def cases(self, formula: Formula) -> Normal:
        """Return the normal form without alternatives that have no instance."""
        known = self._cases.get(formula)
        if known is None:
            try:
                known = self._cases[formula] = self._without_empty(self.normaliser.normal(formula))
            except LimitError as error:
                error.locate(self.normaliser.formulas.pointer_of(formula))
                raise
        return known

    def _without_empty(self, normal: Normal) -> Normal:
        """Return a normal form without alternatives that have no instance."""
        spread = self._spread(normal.objects)
        strings = tuple(case for case in normal.strings if self.of_string(case) is not NO_INSTANCE)
        apart = self._apart(normal.arrays)
        arrays = tuple(case for case in apart if self.arrays.build(case, self.find) is not NO_INSTANCE)
        objects = tuple(case for case in spread if self.objects.build(case, self.find) is not NO_INSTANCE)
        remaining = (*strings, *arrays, *objects)
        before = (*normal.strings, *normal.arrays, *normal.objects)
        if len(remaining) == len(before) and all(map(is_, remaining, before)):
            return normal
        return replace(normal, strings=strings, arrays=arrays, objects=objects)

    def _apart(self, cases: tuple[Array, ...]) -> tuple[Array, ...]:
        """Return the alternatives without arrays of unique items that lie within another alternative."""
        free = [case for case in cases if case.unique is None]
        formulas, clashes = self.normaliser.formulas, self.normaliser.clashes
        return tuple(
            case
            for case in cases
            if not case.unique or not any(lies_within(case, wide, formulas, clashes) for wide in free)
        )

    def _spread(self, cases: tuple[Object, ...]) -> Iterator[Object]:
        """Yield object alternatives with definite required members; keep groups that are decided by names."""
        grouped = [case for case in cases if case.either and not objects.tells_by_names(case)]
        for case in cases:
            if case not in grouped:
                yield from self.objects.spread(case)
        yield from self.objects.multiplied(grouped)

    def _of_normal(self, normal: Normal, ask: Ask) -> Any:
        """Return a witness of some alternative, the simplest types first."""
        for witness in self._alternatives(normal, ask):
            if witness is not NO_INSTANCE:
                return witness
        return NO_INSTANCE

    def _alternatives(self, normal: Normal, ask: Ask) -> Iterator[Any]:
        if normal.null:
            yield None
        yield from sorted(normal.booleans)
        for number in normal.numbers:
            yield of_number(number)
        for string in normal.strings:
            yield self.of_string(string)
        yield from normal.constants
        for array in normal.arrays:
            yield self.arrays.build(array, ask)
        for object_ in normal.objects:
            for case in self.objects.spread(object_):
                yield self.objects.build(case, ask)

    def of_string(self, case: String) -> Any:
        """Return a string of the set, or NO_INSTANCE."""
        spend(min(case.min_length, UNREACHED))
        if is_plain(case) and case.values is None and not case.excluded:
            return "a" * case.min_length
        found = self.normaliser.language.examples(case, 1)
        if not found:
            return NO_INSTANCE
        return StandInText.of(found[0], case) if case.min_length > 1 and case.values is None else found[0]

    def several(self, formula: Formula, count: int, ask: Ask) -> list[Any]:
        """Return up to `count` different instances; fewer if there are no more, or if more are hard to find.

        Instances that contain others of the same formula are not looked for.
        """
        if formula in self._listing:
            return []
        found: dict[Any, Any] = {}
        self._listing.add(formula)
        try:
            for value in self._many(self.normaliser.normal(formula), count, ask):
                spend(100)
                if value is not NO_INSTANCE:
                    found.setdefault(json_key(value), value)
                if len(found) >= count:
                    break
        finally:
            self._listing.discard(formula)
        return list(found.values())

    def _many(self, normal: Normal, count: int, ask: Ask) -> Iterator[Any]:
        yield from self._alternatives(normal, ask)
        for number in normal.numbers:
            yield from map(_literal, numbers.some(number, count))
        for string in normal.strings:
            yield from self.normaliser.language.examples(string, count)
        for array in normal.arrays:
            yield from self.arrays.more(array, count, ask)
        for object_ in normal.objects:
            for case in self.objects.spread(object_):
                yield from self.objects.more(case, count, ask)


DEMANDING = frozenset(
    (
        *("$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if", "enum", "const", "x-quote"),
        *("minLength", "pattern", "minItems", "contains", "required", "minProperties"),
        *("maximum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf"),
        # The following always have an instance, but may have too many cases, which should be noticed early.
        *("dependencies", "dependentRequired", "dependentSchemas", "propertyNames", "patternProperties"),
        *("unevaluatedProperties", "unevaluatedItems"),
    )
)


def is_modest(formula: Formula) -> bool:
    """Test whether a subschema surely has an instance: an empty value, or a large enough one."""
    if formula.kind != "schema":
        return False
    keywords: dict[str, Any] = formula.subject[0].value
    return DEMANDING.isdisjoint(keywords) and not ("format" in keywords and "maxLength" in keywords)


def _literal(value: numbers.Rational) -> Any:
    return int(value) if value == value // 1 else value


def conflict(root: Formula, witnesses: Witnesses) -> str:
    """Return the pointer of the innermost subschema to which the lack of an instance can be traced."""
    pointer = "#"
    formula: Formula | None = root
    seen: set[Formula] = set()
    while formula is not None and formula not in seen:
        seen.add(formula)
        if formula.kind == "schema":
            pointer = formula.subject[0].pointer
        parts = (part for part in _explanations(formula, witnesses) if part not in seen)
        formula = next((part for part in parts if not witnesses.has_instance(part)), None)
    return pointer


def _explanations(formula: Formula, witnesses: Witnesses) -> Iterator[Formula]:
    """Yield the formulas whose lack of instances may explain another's: conjuncts, then required members and items."""
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
