"""Constants in the normal form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..read.dialects import as_written, exact, is_array, is_number, is_object, only_strings
from . import numbers, strings
from .cases import Array, Normal, Object, Rule, String
from .formula import NOTHING, Formulas


def constants(by_key: Mapping[Any, Any]) -> Normal:
    """Exactly these constants, by their keys."""
    if only_strings(by_key.values()):
        return Normal(strings=(strings.of_values(by_key.values()),) if by_key else ())
    texts = frozenset(value for value in by_key.values() if isinstance(value, str))
    written = [value for value in by_key.values() if is_number(value)]
    values = frozenset(map(exact, written))
    return Normal(
        any(value is None for value in by_key.values()),
        frozenset(value for value in by_key.values() if isinstance(value, bool)),
        (numbers.of_values(values, frozenset(map(as_written, written))),) if values else (),
        (strings.of_values(texts),) if texts else (),
        constants=tuple(value for value in by_key.values() if (is_array(value) or is_object(value))),
    )


def as_case(value: Any, formulas: Formulas) -> Array | Object:
    """The case that has one array or object and no other."""
    if is_object(value):
        properties = {name: formulas.values((content,)) for name, content in value.items()}
        others = Rule(String(excluded=frozenset(value)), NOTHING)
        return Object(properties, (others,), frozenset(value))
    prefix = tuple(formulas.values((item,)) for item in value)
    return Array(prefix, min_items=len(prefix), max_items=len(prefix))
