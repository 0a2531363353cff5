"""Subschemas, the schema objects of a document at their places, and resources, which have a URI of their own.

Schema text is JSON with exact numbers, in which an object must not repeat a name. `show` formats values for messages.
"""

from __future__ import annotations

import json
from reprlib import Repr
from typing import Any

from ....errors import LimitError, SchemaError
from ...limits import spend
from .dialects import MAX_DIGITS, Dialect, WrittenNumber, is_array, is_object


def parsed(schema: dict[str, Any] | bool | str) -> dict[str, Any] | bool:
    """Return a schema, parsed if it is text. Raises SchemaError if it is malformed, LimitError if too deep."""
    value: Any = schema
    if isinstance(schema, str):
        try:
            value = json.loads(
                schema, parse_float=_decimal, parse_int=_integer, parse_constant=_no_number, object_pairs_hook=_members
            )
        except RecursionError:
            raise LimitError("the schema's text is nested too deep to be read; pass it as a dict") from None
        except ValueError as error:
            path = f"; a file is given as pathlib.Path({schema!r})" if schema.endswith(".json") else ""
            raise SchemaError(f"the schema's text is no JSON: {error}{path}", "#") from None
    if isinstance(value, bool) or is_object(value):
        return value
    raise SchemaError(f"a schema is an object, true or false, not {type(value).__name__}", "#")


def _decimal(text: str) -> WrittenNumber:
    digits, _, exponent = text.lower().partition("e")
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number has {len(digits)} digits; the limit is {MAX_DIGITS}")
    if len(exponent) > 9 or (exponent and abs(int(exponent)) > MAX_DIGITS):
        raise ValueError(f"the number {show(text)} is beyond 1e{MAX_DIGITS}")
    return WrittenNumber(text)


def _integer(text: str) -> int:
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
    """Return the repr of a value, in at most MAX_SHOWN characters."""
    try:
        text = _shown.repr(value)
    except (ValueError, RecursionError):
        return "something too large to be shown"
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."


class Resource:
    """A schema with a URI of its own, the base of references inside it. `Documents` knows its root."""

    __slots__ = ("dialect", "is_recursive", "uri")

    def __init__(self, uri: str, dialect: Dialect) -> None:
        self.uri = uri
        self.dialect = dialect
        self.is_recursive = False


class Subschema:
    """One schema object at its place in a document; compared by identity."""

    __slots__ = ("keys", "parent", "resource", "value")

    def __init__(
        self, value: dict[str, Any], resource: Resource, parent: Subschema | None, keys: tuple[str | int, ...]
    ) -> None:
        self.value = value
        self.resource = resource
        self.parent = parent
        self.keys = keys

    @property
    def pointer(self) -> str:
        """The place in the document, as a URI fragment from its root."""
        return self.pointer_to()

    def pointer_to(self, *keys: str | int) -> str:
        """Return the place of a keyword of the subschema, or of a part below."""
        path: list[tuple[str | int, ...]] = [keys]
        place: Subschema | None = self
        top = self
        while place is not None:
            path.append(place.keys)
            top, place = place, place.parent
        parts = [step_of(key) for step in reversed(path) for key in step]
        uri = top.resource.uri
        # Messages cannot contain lone surrogates, so their code points are shown.
        return (uri + "#" + "".join("/" + part for part in parts)).encode("utf-8", "backslashreplace").decode()

    def error(self, reason: str, *keys: str | int) -> SchemaError:
        """Return a SchemaError with the place of this subschema."""
        return SchemaError(reason, self.pointer_to(*keys))


def key_of(step: str) -> str:
    """Decode a step of a JSON pointer to a name or a number."""
    return step.replace("~1", "/").replace("~0", "~")


def step_of(key: str | int) -> str:
    """Encode a name or a number as a step of a JSON pointer."""
    return str(key).replace("~", "~0").replace("/", "~1")


def without(value: Any, pointer: str) -> Any:
    """Return a schema without the keyword at a JSON pointer, copying what differs; None if there is no such keyword."""
    return _without(value, [key_of(step) for step in pointer.split("/")[1:]])


def _without(value: Any, keys: list[str]) -> Any:
    key = keys[0]
    if is_array(value) and key.isdigit() and int(key) < len(value) and len(keys) > 1:
        inner = _without(value[int(key)], keys[1:])
        return None if inner is None else [*value[: int(key)], inner, *value[int(key) + 1 :]]
    if not is_object(value) or key not in value:
        return None
    if len(keys) == 1:
        return {name: content for name, content in value.items() if name != key}
    inner = _without(value[key], keys[1:])
    return None if inner is None else {**value, key: inner}
