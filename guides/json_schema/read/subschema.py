"""Subschemas, the schema objects of a document at their places, and resources, which have a URI of their own."""

from __future__ import annotations

from typing import Any

from ....errors import SchemaError
from .dialects import Dialect, is_array, is_object


class Resource:
    """A schema with a URI of its own: the base of the references inside it. `Documents` knows where it begins."""

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
        """The place of a keyword of it, or of what lies below."""
        path: list[tuple[str | int, ...]] = [keys]
        place: Subschema | None = self
        top = self
        while place is not None:
            path.append(place.keys)
            top, place = place, place.parent
        parts = [step_of(key) for step in reversed(path) for key in step]
        uri = top.resource.uri
        # Lone surrogates, which no message could be written with, are told by their numbers.
        return (uri + "#" + "".join("/" + part for part in parts)).encode("utf-8", "backslashreplace").decode()

    def error(self, reason: str, *keys: str | int) -> SchemaError:
        """The error that says what is wrong here."""
        return SchemaError(reason, self.pointer_to(*keys))


def key_of(step: str) -> str:
    """The name, or the number, that a step of a JSON pointer stands for."""
    return step.replace("~1", "/").replace("~0", "~")


def step_of(key: str | int) -> str:
    """The step of a JSON pointer that stands for a name or a number."""
    return str(key).replace("~", "~0").replace("/", "~1")


def without(value: Any, pointer: str) -> Any:
    """A schema without the keyword at a JSON pointer, a copy as far as it differs; None if it has none there."""
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
