"""The text of a schema: JSON whose numbers are exact, and whose objects name no member twice; values in messages."""

from __future__ import annotations

import json
from reprlib import Repr
from typing import Any

from ....errors import LimitError, SchemaError
from ...limits import spend
from .dialects import MAX_DIGITS, Written, is_object


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
            path = f"; a file is given as pathlib.Path({schema!r})" if schema.endswith(".json") else ""
            raise SchemaError(f"the schema's text is no JSON: {error}{path}", "#") from None
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


MAX_SHOWN = 60

_shown = Repr()
_shown.maxstring = _shown.maxother = _shown.maxlong = MAX_SHOWN
_shown.maxlevel = 4


def show(value: Any) -> str:
    """A value as Python writes it, in at most MAX_SHOWN characters."""
    try:
        text = _shown.repr(value)
    except (ValueError, RecursionError):
        return "something too large to be shown"
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."
