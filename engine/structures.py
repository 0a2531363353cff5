"""Structured outputs: JSON Schemas of Python types, and conversion of JSON text to values."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

from ..errors import OptionError

Schema = Mapping[str, Any] | bool | str


@dataclass(frozen=True)
class OutputType:
    """A JSON Schema, and the conversion of an instance's text to its value."""

    schema: Schema
    convert: Callable[[str], Any]


class Validation:
    """Conversion of JSON text to a Python type. It is pickled as the type."""

    def __init__(self, kind: Any, convert: Callable[[str], Any]) -> None:
        self._kind = kind
        self._convert = convert

    def __call__(self, text: str) -> Any:
        """Return the value. Raises the errors of pydantic."""
        return self._convert(text)

    def __reduce__(self) -> tuple[Any, ...]:
        return _validation_of, (self._kind,)


def _validation_of(kind: Any) -> Callable[[str], Any]:
    return structure_of(kind).convert


def structure_of(kind: Any) -> OutputType:
    """Return the schema and conversion of a JSON Schema (dict, JSON text, True), a Python type or a function's
    arguments.

    Types are those of pydantic: models, dataclasses, TypedDicts, list[int] and so on. Undeclared members are excluded.
    Raises OptionError if pydantic is missing or cannot produce a schema.
    """
    if isinstance(kind, (bool, str, Mapping)):
        return OutputType(cast(Schema, kind), read_json)
    try:
        from . import python_types
    except ImportError:
        raise OptionError(
            f"generate.json needs pydantic for the Python type {kind!r}: pip install pydantic, or pass a JSON Schema"
        ) from None
    schema, convert = (
        python_types.schema_of_arguments(kind) if inspect.isroutine(kind) else python_types.schema_of(kind)
    )
    return OutputType(schema, Validation(kind, convert))


def read_json(text: str) -> Any:
    """Parse JSON text, with integers of any length."""
    # int() refuses more than 4,300 digits, Decimal does not.
    return json.loads(text, parse_int=lambda digits: int(digits) if len(digits) < 4000 else int(Decimal(digits)))
