"""The drafts of JSON Schema: the keywords of each, and the checks of their values.

Without `$schema` the newest draft is assumed, extended by unambiguous older forms: `definitions`, `dependencies`,
array-form `items` with `additionalItems`, and boolean `exclusiveMinimum`/`exclusiveMaximum`. Newer drafts accept these
forms also if they are named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import isfinite
from typing import Any, Literal, TypeGuard

from ...limits import spend

Kind = Literal["schema", "schemas", "map", "items", "dependencies", "reference", "plain"]

MAX_DIGITS = 1000
GREATEST = 10**MAX_DIGITS
TYPES = ("null", "boolean", "number", "integer", "string", "array", "object")
_EVERY_TYPE = frozenset(TYPES)

WELL_FORMED = "without lone surrogates (U+D800 to U+DFFF), which UTF-8 cannot write: remove them"

Check = Callable[[Any], str | None]
"""Returns what a keyword's value should have been, or None if it is valid."""


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Test whether a JSON value is an object."""
    return isinstance(value, dict)


def is_array(value: Any) -> TypeGuard[list[Any]]:
    """Test whether a JSON value is an array."""
    return isinstance(value, list)


def is_number(value: Any) -> bool:
    """Test whether a JSON value is a number; in JSON booleans are not."""
    return isinstance(value, (int, float, Fraction)) and not isinstance(value, bool)


def is_writable(text: str) -> bool:
    """Test whether a text has no lone surrogates, which UTF-8 cannot encode."""
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def only_strings(values: Iterable[Any]) -> bool:
    """Test whether all values are plain strings, as in most lists of constants."""
    return set(map(type, values)) <= {str}


def type_of(value: Any) -> str:
    """Return the JSON type of a value that is no number."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    return "string" if isinstance(value, str) else "array" if is_array(value) else "object"


def exact(value: Any) -> int | Fraction:
    """Return the exact decimal number that a JSON literal denotes: 0.1 is a tenth. Integers are `int`."""
    if isinstance(value, int):
        return int(value)
    fraction = value if isinstance(value, Fraction) else Fraction(float.__repr__(value))
    return fraction.numerator if fraction.denominator == 1 else fraction


class WrittenNumber(Fraction):
    """A number that the schema writes with a fraction or an exponent; text: its spelling there."""

    text: str

    def __new__(cls, text: str) -> WrittenNumber:
        written = super().__new__(cls, text)
        written.text = text
        return written


def as_written(value: Any) -> str:
    """Return a number as the schema writes it; a Python value as json.dumps writes it."""
    if isinstance(value, WrittenNumber):
        return value.text
    return str(int(value)) if isinstance(value, int) else float.__repr__(float(value))


def is_real(text: str) -> bool:
    """Test whether a number is written with a fraction or an exponent."""
    return any(char in ".eE" for char in text)


def _count(value: Any) -> str | None:
    is_integer = is_number(value) and (isinstance(value, int) or (value == value // 1))
    return None if is_integer and value >= 0 else "a non-negative integer"


def _finite(value: Any) -> bool:
    if isinstance(value, float):
        return isfinite(value)
    return is_number(value) and abs(value) <= GREATEST and value.denominator <= GREATEST


def _number(value: Any) -> str | None:
    return None if _finite(value) else f"a number of at most {MAX_DIGITS} digits"


def _positive(value: Any) -> str | None:
    return None if _finite(value) and value > 0 else f"a number above 0, of at most {MAX_DIGITS} digits"


def _flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "true or false"


def _bound(value: Any) -> str | None:
    return None if isinstance(value, bool) else _number(value) and f"{_number(value)} (or, in draft 4, true or false)"


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) and is_writable(value) else f"a string {WELL_FORMED}"


def _quote(value: Any) -> str | None:
    fine = isinstance(value, str) or (is_object(value) and "context" in value)
    return (
        None
        if fine and _constant(value) is None
        else 'the name of a context, or an object with "context" and the options of a Quote'
    )


def expected_names(value: Any) -> str | None:
    """Return what a list of names should have been, or None if it is valid."""
    if not is_array(value) or not (only_strings(value) or all(isinstance(name, str) for name in value)):
        return "an array of strings"
    spend(2 * len(value))
    return None if is_writable("".join(value)) else f"an array of strings {WELL_FORMED}"


def _names_by_name(value: Any) -> str | None:
    if not is_object(value) or not all(isinstance(name, str) for name in value):  # type: ignore[reportUnnecessaryIsInstance]
        return "an object of arrays of strings"
    wrong = (wrong for names in ([*value], *value.values()) if (wrong := expected_names(names)) is not None)
    return next((f"an object of arrays of strings, each {reason}" for reason in wrong), None)


def _types(value: Any) -> str | None:
    names: list[Any] = value if is_array(value) else [value]
    are_texts = only_strings(names) or all(isinstance(name, str) for name in names)
    if names and are_texts and _EVERY_TYPE.issuperset(names):
        return None
    return f"one or several of {', '.join(TYPES)}"


def _values(value: Any) -> str | None:
    if not is_array(value):
        return "an array"
    if only_strings(value):
        spend(2 * len(value))
        return None if is_writable("".join(value)) else f"made of strings {WELL_FORMED}"
    return _constant(value)


def _constant(value: Any) -> str | None:
    """Return the fault of a JSON value, or None. Iterative; terminates for cyclic values."""
    waiting: list[Any] = [value]
    seen: set[int] = set()
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            if not is_writable(part):
                return f"made of strings {WELL_FORMED}"
            continue
        if part is None or isinstance(part, bool):
            continue
        if isinstance(part, (dict, list)):
            if id(part) not in seen:  # type: ignore[reportUnknownArgumentType]
                seen.add(id(part))  # type: ignore[reportUnknownArgumentType]
                spend(20 + 20 * len(part))  # type: ignore[reportUnknownArgumentType]
                waiting.extend(part.values() if is_object(part) else part)  # type: ignore[reportUnknownArgumentType]
                if is_object(part) and not all(isinstance(name, str) for name in part):  # type: ignore[reportUnnecessaryIsInstance]
                    return "made of JSON values, with strings as names of members"
                if is_object(part) and not is_writable("".join(part)):
                    return f"made of JSON values, with names of members {WELL_FORMED}"
        elif not is_number(part):
            return "made of JSON values"
        elif not _finite(part):
            return f"made of JSON values, with numbers of at most {MAX_DIGITS} digits"
    return None


def _mapping(value: Any) -> str | None:
    return None if is_object(value) else "an object"


def _schemas(value: Any) -> str | None:
    return None if is_array(value) else "a non-empty array of schemas"


def _some_schemas(value: Any) -> str | None:
    return _schemas(value) if value else "a non-empty array of schemas"


def _anything(value: Any) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Keyword:
    """A keyword: where schemas lie in its value (`kind`), and the check of the value itself."""

    kind: Kind
    check: Check
    validates: bool = False


def _plain(check: Check) -> Keyword:
    return Keyword("plain", check, validates=True)


_SCHEMA = Keyword("schema", _anything)
_SCHEMAS = Keyword("schemas", _some_schemas)
_MAP = Keyword("map", _mapping)
_REFERENCE = Keyword("reference", _text)

_DRAFT4: dict[str, Keyword] = {
    "$ref": _REFERENCE,
    "definitions": _MAP,
    "type": _plain(_types),
    "enum": _plain(_values),
    "minimum": _plain(_number),
    "maximum": _plain(_number),
    "exclusiveMinimum": _plain(_flag),
    "exclusiveMaximum": _plain(_flag),
    "multipleOf": _plain(_positive),
    "minLength": _plain(_count),
    "maxLength": _plain(_count),
    "pattern": _plain(_text),
    "format": _plain(_text),
    "x-quote": _plain(_quote),
    "items": Keyword("items", _anything),
    "additionalItems": _SCHEMA,
    "minItems": _plain(_count),
    "maxItems": _plain(_count),
    "uniqueItems": _plain(_flag),
    "properties": _MAP,
    "patternProperties": _MAP,
    "additionalProperties": _SCHEMA,
    "required": _plain(expected_names),
    "minProperties": _plain(_count),
    "maxProperties": _plain(_count),
    "dependencies": Keyword("dependencies", _mapping),
    "allOf": _SCHEMAS,
    "anyOf": _SCHEMAS,
    "oneOf": _SCHEMAS,
    "not": _SCHEMA,
}
_DRAFT6 = _DRAFT4 | {
    "const": _plain(_constant),
    "exclusiveMinimum": _plain(_number),
    "exclusiveMaximum": _plain(_number),
    "contains": _SCHEMA,
    "propertyNames": _SCHEMA,
}
_DRAFT7 = _DRAFT6 | {"if": _SCHEMA, "then": _SCHEMA, "else": _SCHEMA}
_DRAFT2019 = _DRAFT7 | {
    "exclusiveMinimum": _plain(_bound),
    "exclusiveMaximum": _plain(_bound),
    "$defs": _MAP,
    "$recursiveRef": _REFERENCE,
    "minContains": _plain(_count),
    "maxContains": _plain(_count),
    "dependentRequired": _plain(_names_by_name),
    "dependentSchemas": _MAP,
    "unevaluatedItems": _SCHEMA,
    "unevaluatedProperties": _SCHEMA,
}
_DRAFT2020 = {key: rule for key, rule in _DRAFT2019.items() if key != "$recursiveRef"} | {
    "$dynamicRef": _REFERENCE,
    "prefixItems": Keyword("schemas", _schemas),
}


@dataclass(frozen=True, slots=True, eq=False)
class Dialect:
    """One draft.

    draft: 4, 6, 7, 2019 or 2020
    keywords: all keywords that constrain or hold schemas; others are annotations
    id_keyword: the keyword that names a resource
    """

    uri: str
    draft: int
    keywords: Mapping[str, Keyword]
    id_keyword: str = "$id"

    @property
    def ref_alone(self) -> bool:
        """True if `$ref` disables the keywords beside it."""
        return self.draft <= 7

    @property
    def integer_is_notation(self) -> bool:
        """True if `1.0` is no integer, because of its notation."""
        return self.draft == 4

    def without_validation(self) -> Dialect:
        """Return the dialect of a metaschema whose `$vocabulary` omits the validation vocabulary."""
        kept = {key: rule for key, rule in self.keywords.items() if not rule.validates or key == "format"}
        return replace(self, keywords=kept)


DRAFT4 = Dialect("http://json-schema.org/draft-04/schema", 4, _DRAFT4, "id")
DRAFT6 = Dialect("http://json-schema.org/draft-06/schema", 6, _DRAFT6)
DRAFT7 = Dialect("http://json-schema.org/draft-07/schema", 7, _DRAFT7)
DRAFT2019 = Dialect("https://json-schema.org/draft/2019-09/schema", 2019, _DRAFT2019)
DRAFT2020 = Dialect("https://json-schema.org/draft/2020-12/schema", 2020, _DRAFT2020)
DIALECTS = (DRAFT4, DRAFT6, DRAFT7, DRAFT2019, DRAFT2020)


def _key(uri: str) -> str:
    return uri.rstrip("#").removeprefix("http://").removeprefix("https://")


_BY_URI = {_key(dialect.uri): dialect for dialect in DIALECTS} | {"json-schema.org/schema": DRAFT2020}


def dialect_of(named: Any) -> Dialect | None:
    """Return the dialect that a `$schema` names (with or without `#`, http or https); None for any other value."""
    return _BY_URI.get(_key(named)) if isinstance(named, str) else None
