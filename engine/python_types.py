"""Python types and function signatures as JSON Schemas, by pydantic; the only module that imports it."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any, NotRequired, Required, get_origin, get_type_hints, is_typeddict

from pydantic import ConfigDict, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError
from pydantic_core import SchemaError as CoreSchemaError
from typing_extensions import TypedDict

from ..errors import OptionError
from .type_schemas import ConvertibleSchemas

Converted = tuple[dict[str, Any], Callable[[str], Any]]


def schema_of(kind: Any) -> Converted:
    """The schema of a type's values, and the function from JSON text to a value. Raises OptionError."""
    try:
        adapter = TypeAdapter[Any](_accepted(kind))
        schema = adapter.json_schema(schema_generator=ConvertibleSchemas)
    except (
        PydanticUserError,
        PydanticSchemaGenerationError,
        PydanticInvalidForJsonSchema,
        CoreSchemaError,
        ImportError,
    ) as error:
        reason = str(error).partition("\n")[0]
        raise OptionError(f"generate.json cannot write {kind!r} as JSON: {reason}") from None
    return schema, adapter.validate_json


def schema_of_arguments(function: Callable[..., Any]) -> Converted:
    """The same for the arguments of a function, as a dict; those with a default may be left out."""
    name = getattr(function, "__name__", repr(function))
    try:
        parameters = inspect.signature(function).parameters.values()
        hints = get_type_hints(function, include_extras=True)
    except (TypeError, ValueError, NameError) as error:
        raise OptionError(f"the signature of {name} cannot be read: {error}") from None
    members: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise OptionError(f"{name} takes any number of arguments ({parameter}); give it a plain signature")
        hint = hints.get(parameter.name, Any)
        members[parameter.name] = hint if parameter.default is parameter.empty else NotRequired[hint]
    return schema_of(_typed_dict(name, members))


def _accepted(kind: Any) -> Any:
    """The type as pydantic takes it: before Python 3.12 it refuses the TypedDict of `typing`."""
    if not is_typeddict(kind) or type(kind).__module__ != "typing":
        return kind
    hints = get_type_hints(kind, include_extras=True)
    # Where annotations are strings, it has taken those that say NotRequired for required.
    marked = {name for name, hint in hints.items() if get_origin(hint) in (NotRequired, Required)}
    for name in kind.__optional_keys__ - marked:
        hints[name] = NotRequired[hints[name]]
    return _typed_dict(kind.__name__, hints)


def _typed_dict(name: str, members: dict[str, Any]) -> Any:
    made: Any = types.new_class(
        name,
        (TypedDict,),  # pyright: ignore[reportArgumentType]
        exec_body=lambda body: body.update(
            __annotations__=members, __module__=__name__, __pydantic_config__=ConfigDict(extra="forbid")
        ),
    )
    return made
