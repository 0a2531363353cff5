"""The text of a schema: JSON whose numbers are exact, and whose objects name no member twice."""

from __future__ import annotations

import json
from typing import Any

from ....errors import LimitError, SchemaError
from ...limits import spend
from .dialects import MAX_DIGITS, Written, is_object
from .showing import show


def parsed(schema: dict[str, Any] | bool | str) -> dict[str, Any] | bool:
    """A schema, read if it is JSON text. Raises SchemaError for what is none, LimitError for what is too deep."""
    value: Any = schema
    if isinstance(schema, str):
        try:
            value = json.loads(
                schema, parse_float=_decimal, parse_int=_whole, parse_constant=_no_number, object_pairs_hook=_members
            )
        except RecursionError:
            raise LimitError("the schema's text is nested too deep to be read; pass it as a dict") from None
        except ValueError as error:
            raise SchemaError(f"the schema's text is no JSON: {error}", "#") from None
    if isinstance(value, bool) or is_object(value):
        return value
    raise SchemaError(f"a schema is an object, true or false, not {type(value).__name__}", "#")


def _decimal(text: str) -> Written:
    digits, _, exponent = text.lower().partition("e")
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number has {len(digits)} digits; the limit is {MAX_DIGITS}")
    if len(exponent) > 9 or (exponent and abs(int(exponent)) > MAX_DIGITS):
        raise ValueError(f"the number {show(text)} is beyond 1e{MAX_DIGITS}")
    return Written(text)


def _whole(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number has {len(text)} digits; the limit is {MAX_DIGITS}")
    return int(text)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    spend(50 + 20 * len(pairs))
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has two members called {show(twice)}")
    return found


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no JSON number")
