"""Structured outputs: the JSON Schema of what a caller asks for, and the way from JSON text to its value."""

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
    """A JSON Schema, and the function from the text of an instance to its value."""

    schema: Schema
    convert: Callable[[str], Any]


class Validation:
    """From JSON text to a value of a Python type; sent to another process as the type."""

    def __init__(self, kind: Any, convert: Callable[[str], Any]) -> None:
        self._kind = kind
        self._convert = convert

    def __call__(self, text: str) -> Any:
        """The value. Raises what pydantic does."""
        return self._convert(text)

    def __reduce__(self) -> tuple[Any, ...]:
        return _validation_of, (self._kind,)


def _validation_of(kind: Any) -> Callable[[str], Any]:
    return structure_of(kind).convert


def structure_of(kind: Any) -> OutputType:
    """The structure of a JSON Schema (dict, JSON text, True), a Python type, or the arguments of a function.

    Types are what pydantic knows: its models, dataclasses, TypedDicts, list[int] and so on; members that a type
    does not have are not written. Raises OptionError if pydantic is missing or cannot turn them into a schema.
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
    """The value of a JSON text, with integers of any length."""
    # Through Decimal, because int() refuses texts of more than 4,300 digits.
    return json.loads(text, parse_int=lambda digits: int(digits) if len(digits) < 4000 else int(Decimal(digits)))
