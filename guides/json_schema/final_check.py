"""The check of complete values against the keywords of their schema that are not enforced.

The library jsonschema checks them, except keywords whose time or result it does not control: patterns are read as
ECMA-262 and searched with a timeout, unique items are compared in one pass, multiples exactly. Every applied keyword
counts as work of the call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from fractions import Fraction
from functools import partial
from typing import Any, cast

import regex

from ...errors import LimitError, OptionError
from ..cached import cached
from ..limits import spend
from .algebra.formula import json_key
from .read.dialects import is_array, is_number, is_object
from .read.documents import Documents
from .read.subschema import key_of

STEPS_PER_KEYWORD = 1000
MAX_DEEP = 100
"""Maximum nesting of a value; the library recurses about six times per level."""

Verdict = bool | None
Errors = Iterator[Any]


class FinalCheck:
    """Checks complete values against the whole schema, with the library jsonschema.

    left_out: pointers of the keywords that are not enforced
    Raises OptionError if the library is not installed.
    """

    def __init__(self, schema: Any, resources: Mapping[str, Any], left_out: Mapping[str, str]) -> None:
        try:
            import referencing
            from jsonschema import Draft202012Validator, validators
        except ImportError:
            raise OptionError(
                'unenforced="allow" checks values with the library jsonschema: pip install jsonschema'
            ) from None
        kind: Any = validators.validator_for(schema, default=Draft202012Validator)
        checks = {"pattern": _pattern, "patternProperties": _pattern_properties, "uniqueItems": _unique_items}
        checks |= {"multipleOf": _multiple_of, "additionalProperties": _additional_properties}
        applied = {**kind.VALIDATORS, **{name: check for name, check in checks.items() if name in kind.VALIDATORS}}
        library: Any = validators
        counted: Any = library.extend(kind, {name: _counted(check) for name, check in applied.items()})
        found: Any = referencing
        registry: Any = found.Registry()
        for uri, content in resources.items():
            registry = registry.with_resource(uri, _resource(content))
        formats = deepcopy(kind.FORMAT_CHECKER)
        formats.checks("regex")(_is_regex)
        self._validator: Any = counted(schema, registry=registry, format_checker=formats)
        self._places = [(pointer, id(_at(schema, pointer)), pointer.rpartition("/")[2]) for pointer in left_out]
        # The library itself matches patterns of names to find evaluated members.
        documents = Documents(resources, lambda _: None)
        documents.load(schema)
        self._can_judge = not all(documents.mentions((key,)) for key in ("unevaluatedProperties", "patternProperties"))

    def held(self, value: Any) -> dict[str, Verdict]:
        """Return by pointer whether each unenforced keyword held; all False if the value breaks other keywords.

        None if undecided: the check exceeds the work or time of a call, the value is nested too deep for the library,
        or a pattern cannot be searched for.
        """
        unknown: dict[str, Verdict] = {pointer: None for pointer, _, _ in self._places}
        if not self._can_judge or not _is_shallow(value):
            return unknown
        try:
            errors = list(self._validator.iter_errors(value))
        except (LimitError, UnsearchableError, RecursionError, ValueError, OverflowError):
            return unknown  # ValueError: the library shows a number of more digits than Python writes
        if not errors:
            return {pointer: True for pointer in unknown}
        broken: set[tuple[int, str]] = set()
        for error in errors:
            broken.add((id(error.schema), str(error.validator)))
            errors.extend(error.context)
        held: dict[str, Verdict] = {pointer: (place, keyword) not in broken for pointer, place, keyword in self._places}
        return held if not all(held.values()) else dict.fromkeys(held, False)


def _at(value: Any, pointer: str) -> Any:
    """Return the container of the keyword at a JSON pointer."""
    for key in map(key_of, pointer.split("/")[1:-1]):
        value = value[int(key)] if is_array(value) else value[key]
    return value


def _resource(content: Any) -> Any:
    """Return a further schema as a resource of the library, of the newest draft if it names no known one."""
    from referencing import Resource
    from referencing.jsonschema import DRAFT202012

    if is_object(content) and not isinstance(content.get("$schema", ""), str):
        return DRAFT202012.create_resource(content)
    return Resource.from_contents(content, default_specification=DRAFT202012)


def _is_shallow(value: Any) -> bool:
    """Test whether a value is not nested too deep for the library."""
    level: list[Any] = [value]
    for _ in range(MAX_DEEP):
        spend(20 * len(level))
        level = [
            inner
            for each in level
            if is_array(each) or is_object(each)
            for inner in (each.values() if is_object(each) else each)
        ]
        if not level:
            return True
    return False


def _counted(check: Callable[..., Errors | None]) -> Callable[..., Errors]:
    """Return a keyword's check that counts as work."""

    def counted(validator: Any, expected: Any, instance: Any, schema: Any) -> Errors:
        spend(STEPS_PER_KEYWORD)
        yield from check(validator, expected, instance, schema) or ()

    return counted


def _error(message: str) -> Any:
    from jsonschema import ValidationError

    return ValidationError(message)


def _is_regex(instance: Any) -> bool:
    """Test whether a value is an ECMA-262 pattern, or no string; the library would test Python patterns."""
    return not isinstance(instance, str) or is_regex(instance)


def _pattern(_: Any, expected: str, instance: Any, __: Any) -> Errors:
    if isinstance(instance, str) and not found_in(expected, instance):
        yield _error(f"the pattern {expected!r} is not found")


def _pattern_properties(validator: Any, expected: dict[str, Any], instance: Any, _: Any) -> Errors:
    if is_object(instance):
        for pattern, subschema in expected.items():
            for name, value in instance.items():
                if found_in(pattern, name):
                    yield from validator.descend(value, subschema, path=name, schema_path=pattern)


def _additional_properties(validator: Any, expected: Any, instance: Any, schema: dict[str, Any]) -> Errors:
    if not is_object(instance):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for name, value in instance.items():
        if name not in known and not any(found_in(pattern, name) for pattern in patterns):
            yield from validator.descend(value, expected, path=name)


def _unique_items(_: Any, expected: bool, instance: Any, __: Any) -> Errors:
    if expected and is_array(instance):
        keys = [json_key(item) for item in instance]
        spend(20 * len(keys))
        if len(set(keys)) < len(keys):
            yield _error("two items are equal")


def _multiple_of(_: Any, expected: float, instance: Any, __: Any) -> Errors:
    if is_number(instance):
        number = cast("float", instance)
        if abs(number) == float("inf") or Fraction(str(number)) % Fraction(str(expected)):
            yield _error("it is no such multiple")


MAX_SECONDS = 0.25
_SPACE = r"\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_LINE_ENDS = r"\n\r\u2028\u2029"
_CLASSES = {"d": "0-9", "w": "A-Za-z0-9_", "s": _SPACE}

_PART = re.compile(
    r"""
    \\u\{(?P<code>[0-9A-Fa-f]+)\} | \\c(?P<control>[A-Za-z]) | \\k<(?P<name>\w+)> | \\(?P<number>[1-9][0-9]*)
    | \\(?P<letter>[dwsDWS]) | (?P<escape>\\.) | (?P<set>\[\^?\]?) | (?P<end>\]) | (?P<stop>\$) | (?P<dot>\.)
    """,
    re.VERBOSE | re.DOTALL,
)


class UnsearchableError(Exception):
    """A pattern that cannot be searched for, or not within the time."""


def found_in(pattern: str, text: str) -> bool:
    """Test whether an ECMA-262 pattern matches in a text. Raises UnsearchableError."""
    expression = _expression(pattern)
    if expression is None:
        raise UnsearchableError
    try:
        return expression.search(text, timeout=MAX_SECONDS) is not None
    except TimeoutError:
        raise UnsearchableError from None


def is_regex(text: str) -> bool:
    """Test whether a text is an ECMA-262 pattern that can be searched for."""
    return _expression(text) is not None


@cached(256, 16 << 20)
def _expression(pattern: str) -> regex.Pattern[str] | None:
    """Return the compiled pattern; None if the library `regex` cannot read it."""
    try:
        return regex.compile(_PART.sub(partial(_translated, _Place()), pattern), regex.V0)
    except (regex.error, OverflowError, RecursionError, MemoryError):
        return None


class _Place:
    """Parser state: whether a part is inside a character class."""

    in_set = False


def _translated(place: _Place, part: re.Match[str]) -> str:
    """Translate a part of a pattern: classes are ASCII except for white space; unset groups are empty."""
    kind, text = str(part.lastgroup), part.group()
    value = part[kind]
    if kind == "code":
        return regex.escape(chr(int(value, 16)))
    if kind == "control":
        return regex.escape(chr(ord(value) % 32))
    if kind == "letter":
        inside = _CLASSES[value.lower()]
        if value.islower():
            return inside if place.in_set else f"[{inside}]"
        return text if place.in_set else f"[^{inside}]"
    if place.in_set:
        place.in_set = not text.endswith("]") or kind == "escape"
        return f"\\{text}" if kind == "set" else text
    if kind == "set":
        if text.endswith("]"):
            return "(?!)" if text == "[]" else r"[\s\S]"
        place.in_set = True
        return text
    if kind == "name":
        return f"(?({value})(?P={value}))"
    if kind == "number":
        return f"(?({value})\\{value})"
    return {"stop": r"\Z", "dot": f"[^{_LINE_ENDS}]"}.get(kind, text)
