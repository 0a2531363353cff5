"""JSON Schemas of Python types and function signatures, by pydantic. Only this module imports it."""

from __future__ import annotations

import datetime
import inspect
import types
import zoneinfo
from collections.abc import Callable, Hashable
from decimal import Decimal
from enum import Enum
from typing import Any, NotRequired, Required, get_origin, get_type_hints, is_typeddict

from pydantic import ConfigDict, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import SchemaError as CoreSchemaError
from pydantic_core import core_schema
from typing_extensions import TypedDict

from ..errors import OptionError
from . import formats

Converted = tuple[dict[str, Any], Callable[[str], Any]]


def schema_of(kind: Any) -> Converted:
    """Return the schema of a type, and the conversion of JSON text to a value. Raises OptionError."""
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
    """Return the same for a function's arguments, as a dict. Arguments with defaults are optional."""
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
    """Convert a `typing` TypedDict to one that pydantic accepts before Python 3.12."""
    if not is_typeddict(kind) or type(kind).__module__ != "typing":
        return kind
    hints = get_type_hints(kind, include_extras=True)
    # With string annotations, TypedDict has counted NotRequired members as required.
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


MAX_SECONDS = 86_400 * 999_999_999
MAX_DECIMAL = 10**15
_VALUES = ("default", "const", "enum", "examples")
_OUTSIDE = ("PathType.validate_file", "PathType.validate_directory", "PathType.validate_new", "import_string")


class ConvertibleSchemas(GenerateJsonSchema):
    """Generates schemas whose instances pydantic can read back, without undeclared members of objects.

    Raises OptionError for types with checks that no text can guarantee.
    """

    def generate(self, schema: Any, mode: Any = "validation") -> JsonSchemaValue:
        """Return the schema, with patterns for formats that pydantic validates."""
        return _narrowed(super().generate(schema, mode))

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Exclude undeclared members, whose values would be lost."""
        return _closed(super().model_schema(schema))

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        """Exclude undeclared members."""
        return _closed(super().dataclass_schema(schema))

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        """Exclude undeclared members."""
        return _closed(super().typed_dict_schema(schema))

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        """Return a number, not a string of digits, with a bounded number of digits."""
        found: dict[str, Any] = {"type": "number"}
        names = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
        for key, keyword in {**names, "multiple_of": "multipleOf"}.items():
            value = schema.get(key)
            if isinstance(value, (Decimal, int, float)):
                found[keyword] = int(value) if value == int(value) else float(value)
        places, digits = schema.get("decimal_places"), schema.get("max_digits")
        parts: list[dict[str, Any]] = []
        if places is not None or digits is not None:
            decimals = min(places if places is not None else digits or 0, digits if digits is not None else 99)
            parts.append({"multipleOf": float(f"1e-{decimals}") if decimals else 1})
            most = 10 ** (digits - decimals) if digits is not None else MAX_DECIMAL
            parts.append({"exclusiveMinimum": -most, "exclusiveMaximum": most})
        elif "multipleOf" in found:
            parts.append({"minimum": -MAX_DECIMAL, "maximum": MAX_DECIMAL})
        return found | ({"allOf": parts} if parts else {})

    def date_schema(self, schema: core_schema.DateSchema) -> JsonSchemaValue:
        """Return dates from year 1, within their bounds. Past and future dates are at least a day off."""
        today, day = datetime.datetime.now(datetime.UTC).date(), datetime.timedelta(days=1)
        bounds = dict(schema)
        if (now := schema.get("now_op")) is not None:
            bounds["lt" if now == "past" else "gt"] = today - day if now == "past" else today + day
        return _within(formats.date_pattern(), bounds)

    def datetime_schema(self, schema: core_schema.DatetimeSchema) -> JsonSchemaValue:
        """Return dates with times, within their bounds, in the time zone of the bounds."""
        bounds, now = dict(schema), schema.get("now_op")
        if now is not None:
            day = datetime.timedelta(days=1 if now == "future" else -1)
            bounds["gt" if now == "future" else "lt"] = datetime.datetime.now(datetime.UTC) + day
        limits = [value for key in ("ge", "gt", "le", "lt") if isinstance(value := bounds.get(key), datetime.datetime)]
        zone = schema.get("tz_constraint") != "naive"
        if any(bound.tzinfo is None for bound in limits):
            zone = False
        found = _within(formats.moment_pattern(zone), bounds)
        return found | ({"allOf": [*found["allOf"], {"pattern": "Z$"}]} if limits and zone else {})

    def time_schema(self, schema: core_schema.TimeSchema) -> JsonSchemaValue:
        """Return times of a day, within their bounds. Bounded times have no zone."""
        is_bounded = any(key in schema for key in ("ge", "gt", "le", "lt"))
        zone = {"aware": True, "naive": False}.get(str(schema.get("tz_constraint")), False if is_bounded else None)
        return _within(formats.time_pattern(zone), dict(schema))

    def timedelta_schema(self, schema: core_schema.TimedeltaSchema) -> JsonSchemaValue:
        """Return ISO 8601 durations, or whole seconds if they are bounded."""
        limits = {
            key: value for key in ("ge", "gt", "le", "lt") if isinstance(value := schema.get(key), datetime.timedelta)
        }
        if not limits:
            return {"type": "string", "pattern": formats.DURATION}
        second = datetime.timedelta(seconds=1)
        least = [value // second + 1 for key, value in limits.items() if key in ("ge", "gt")]
        most = [-(-value // second) - 1 for key, value in limits.items() if key in ("le", "lt")]
        return {"type": "integer", "minimum": max([-MAX_SECONDS, *least]), "maximum": min([MAX_SECONDS, *most])}

    def url_schema(self, schema: core_schema.UrlSchema) -> JsonSchemaValue:
        """Return URLs with a host and one of the allowed schemes."""
        return _url(schema, formats.url_pattern(schema.get("allowed_schemes")))

    def multi_host_url_schema(self, schema: core_schema.MultiHostUrlSchema) -> JsonSchemaValue:
        """Return URLs with several hosts."""
        return _url(schema, formats.url_pattern(schema.get("allowed_schemes"), several=True))

    def literal_schema(self, schema: core_schema.LiteralSchema) -> JsonSchemaValue:
        """Raise OptionError for Enum members, which pydantic does not read from JSON here."""
        wrong = [value for value in schema["expected"] if isinstance(value, Enum)]
        if wrong:
            raise OptionError(
                f"generate.json cannot write Literal[{wrong[0]}]: pydantic reads no member of an Enum from JSON there; "
                "use the Enum, or Literal with the members' values"
            )
        return super().literal_schema(schema)

    def json_schema(self, schema: core_schema.JsonSchema) -> JsonSchemaValue:
        """Return JSON in a string."""
        if "schema" in schema and schema["schema"]["type"] != "any":
            raise OptionError(
                "generate.json cannot write Json[...] of a type: JSON within a string cannot be constrained; use the "
                "type itself, or Json"
            )
        return {"type": "string", "pattern": formats.FLAT_JSON}

    def complex_schema(self, schema: core_schema.ComplexSchema) -> JsonSchemaValue:
        """Return texts that complex() reads."""
        return {"type": "string", "pattern": formats.COMPLEX}

    def str_schema(self, schema: core_schema.StringSchema) -> JsonSchemaValue:
        """Return strings. If white space is stripped, a minimum length counts from non-space to non-space
        characters."""
        found = super().str_schema(schema)
        least = schema.get("min_length") or 0
        if schema.get("strip_whitespace") and least:
            solid = r"[^\s\u0085\u001c-\u001f]"
            inner = rf"{solid}[\s\S]{{{least - 2},}}{solid}" if least > 1 else solid
            return {**found, "allOf": [{"pattern": inner}]}
        return found

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        """Return objects whose member names match the key type."""
        found = super().dict_schema(schema)
        keys = self.generate_inner(schema["keys_schema"]) if "keys_schema" in schema else {}
        pattern = formats.KEYS.get(str(keys.get("type")))
        names = {"pattern": pattern} if pattern else keys
        return {**found, "propertyNames": names} if len(names) > (names.get("type") == "string") else found

    def chain_schema(self, schema: core_schema.ChainSchema) -> JsonSchemaValue:
        """Return the schema of a chain. Hashable values are neither arrays nor objects."""
        steps: list[Any] = schema["steps"]
        if any(step["type"] == "is-instance" and step["cls"] is Hashable for step in steps):
            return {"type": ["string", "number", "boolean", "null"]}
        return super().chain_schema(schema)

    def set_schema(self, schema: core_schema.SetSchema) -> JsonSchemaValue:
        """Return arrays; a set drops repeated items."""
        return _several(super().set_schema(schema))

    def frozenset_schema(self, schema: core_schema.FrozenSetSchema) -> JsonSchemaValue:
        """Return arrays; a frozenset drops repeated items."""
        return _several(super().frozenset_schema(schema))

    def generate_inner(self, schema: Any) -> JsonSchemaValue:
        """Raise OptionError for types that pydantic checks against the environment."""
        if schema["type"] in ("function-plain", "function-after"):
            name = str(getattr(schema["function"]["function"], "__qualname__", ""))
            if name in _OUTSIDE:
                raise OptionError(
                    f"generate.json cannot guarantee what {name} of pydantic checks outside of the text; use Path or "
                    "str, and check the value afterwards"
                )
        return super().generate_inner(schema)


def _several(schema: JsonSchemaValue) -> JsonSchemaValue:
    """Require distinct items only if they decide the size of the set, or if few values exist."""
    items = schema.get("items", {})
    is_short = "enum" in items or "const" in items or items.get("type") == "boolean"
    if is_short or schema.get("minItems", 0) > 1:
        return schema
    return {key: value for key, value in schema.items() if key != "uniqueItems"}


def _closed(schema: JsonSchemaValue) -> JsonSchemaValue:
    if "properties" in schema:
        schema.setdefault("additionalProperties", False)
    return schema


def _within(pattern: str, bounds: dict[str, Any]) -> JsonSchemaValue:
    """Return texts of a pattern within date or time bounds. To the second, datetimes equal to a bound are excluded."""
    parts: list[dict[str, Any]] = []
    for key in ("ge", "gt", "le", "lt"):
        bound = bounds.get(key)
        if isinstance(bound, (datetime.date, datetime.time)):
            above, text = key in ("ge", "gt"), formats.written(bound)
            equal = (
                [{"pattern": f"^{text}$"}] if key in ("ge", "le") and not isinstance(bound, datetime.datetime) else []
            )
            parts.append({"anyOf": [{"pattern": formats.compared(text, above)}, *equal]})
    return {"type": "string", "pattern": pattern, "allOf": parts} if parts else {"type": "string", "pattern": pattern}


def _url(schema: Any, pattern: str) -> JsonSchemaValue:
    most = schema.get("max_length")
    return {"type": "string", "minLength": 1, "pattern": pattern, **({} if most is None else {"maxLength": most})}


def _narrowed(value: Any) -> Any:
    """Replace formats that pydantic validates by patterns."""
    if isinstance(value, list):
        return [_narrowed(one) for one in value]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(value, dict):
        return value
    found: dict[str, Any] = {key: one if key in _VALUES else _narrowed(one) for key, one in value.items()}  # pyright: ignore[reportUnknownVariableType]
    name = found.get("format")
    if isinstance(name, str) and found.get("type") == "string":
        if name == "zoneinfo":
            return {"enum": sorted(zoneinfo.available_timezones())}
        if name in formats.OF_FORMATS:
            found = {key: one for key, one in found.items() if key != "format"}
            found["pattern"] = formats.OF_FORMATS[name]
    if found.get("pattern") == BYTE_SIZE:
        found["pattern"] = formats.BYTE_SIZE
    return found


BYTE_SIZE = r"^\s*(\d*\.?\d+)\s*(\w+)?"
"""pydantic's pattern of ByteSize, which does not name the units."""
