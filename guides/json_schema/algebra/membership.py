"""Membership of JSON values in normal forms, a direct reading of the cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...limits import spend
from ..read.dialects import is_number, is_object
from . import arrays, numbers, objects
from .cases import Array, Normal, Object
from .formula import EVERYTHING, Formula, Formulas, json_key
from .strings import StringLanguage


class Membership:
    """Decides membership of values; `normal_of` returns the normal form of a formula."""

    def __init__(self, formulas: Formulas, language: StringLanguage, normal_of: Callable[[Formula], Normal]) -> None:
        self._formulas = formulas
        self._language = language
        self._normal_of = normal_of
        self._keys: dict[Normal, frozenset[Any]] = {}

    def accepts(self, formula: Formula, value: Any) -> bool:
        """Test whether a JSON value satisfies a formula."""
        if formula is EVERYTHING:
            return True
        spend(100)
        normal = self._normal_of(formula)
        if value is None:
            return normal.null
        if isinstance(value, bool):
            return value in normal.booleans
        if is_number(value):
            return any(numbers.accepts(case, value) for case in normal.numbers)
        if isinstance(value, str):
            return any(self._language.contains(case, value) for case in normal.strings)
        return self.in_containers(normal, value)

    def in_containers(self, normal: Normal, value: Any) -> bool:
        """Test whether an array or object is among the alternatives."""
        if normal.constants:
            keys = self._keys.get(normal)
            if keys is None:
                spend(20 * len(normal.constants))
                keys = self._keys[normal] = frozenset(map(json_key, normal.constants))
            if json_key(value) in keys:
                return True
        return self.in_cases(normal, value)

    def in_cases(self, normal: Normal, value: Any) -> bool:
        """Test whether an array or object is among the alternatives, constants excluded."""
        if is_object(value):
            members: dict[str, Any] = value
            return any(self.in_object(case, members) for case in normal.objects)
        return any(self.in_array(case, value) for case in normal.arrays)

    def in_object(self, case: Object, value: dict[str, Any]) -> bool:
        """Test whether an object is in a case."""
        if len(value) < case.min_properties or not case.required <= value.keys():
            return False
        if case.max_properties is not None and len(value) > case.max_properties:
            return False
        for name, content in value.items():
            if not self.accepts(objects.member(case, name, self._formulas, self._language), content):
                return False
        if not all(any(self.in_object(one, value) for one in group) for group in case.either):
            return False
        return all(
            any(
                self._language.contains(rule.names, name) and self.accepts(rule.formula, content)
                for name, content in value.items()
            )
            for rule in case.some
        )

    def in_array(self, case: Array, value: list[Any]) -> bool:
        """Test whether an array is in a case."""
        if len(value) < case.min_items or (case.max_items is not None and len(value) > case.max_items):
            return False
        if not all(self.accepts(arrays.item(case, index), item) for index, item in enumerate(value)):
            return False
        if case.unique is not None and (len({json_key(item) for item in value}) == len(value)) != case.unique:
            return False
        for part in case.contains:
            count = sum(self.accepts(part.formula, item) for item in value[part.start :])
            if count < part.min or (part.max is not None and count > part.max):
                return False
        return True
