"""The texts of a value that an engine may write: it is charged with refusing a value only if it refuses all of them."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from .judge import DEEP, Judge

DIGITS, ITEMS = 15, 20
"""Numbers of more digits, and arrays of more items, are charged to nobody."""


def spelled(judge: Judge, value: Any) -> list[str]:
    """Compact and with single spaces, members as they are and in the order of the schema, with and without \\u."""
    texts = dict[str, None]()
    for each in (value, arranged(judge, judge.schema, value)):
        for separators in ((",", ":"), (", ", ": ")):
            for is_ascii in (False, True):
                texts[json.dumps(each, separators=separators, ensure_ascii=is_ascii)] = None
    return list(texts)


def is_common(value: Any) -> bool:
    """True for a value with a usual spelling: short numbers without an exponent, short arrays, line breaks and tabs."""
    if isinstance(value, dict):
        return all(is_common(name) and is_common(each) for name, each in value.items())
    if isinstance(value, list):
        return len(value) <= ITEMS and all(map(is_common, value))
    if isinstance(value, str):
        return not any(unicodedata.category(each) in ("Cc", "Cs") for each in value if each not in "\n\t")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        text = json.dumps(value)
        return "e" not in text.lower() and len(text) <= DIGITS and not text.startswith("-0")
    return True


def plain(value: Any) -> Any:
    """The value with whole floats as integers: 1.0 is another spelling of 1."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return int(value) if isinstance(value, float) and value == Decimal(value).to_integral_value() else value


def arranged(judge: Judge, schema: Any, value: Any, depth: int = 0) -> Any:
    """A value with its members in the order in which `properties` names them, others behind."""
    if depth > DEEP:
        return value
    parts = list(_parts(judge, schema, value))
    if isinstance(value, list):
        return [
            arranged(judge, part, each, depth + 1) for each, part in zip(value, _items(parts, len(value)), strict=True)
        ]
    if not isinstance(value, dict):
        return value
    known = dict(_named(parts, value))
    names = [*(name for name in known if name in value), *(name for name in value if name not in known)]
    return {name: arranged(judge, known.get(name, True), value[name], depth + 1) for name in names}


def undeclared(schema: Any, value: Any) -> bool:
    """True if a member has a name that stands in no `properties` of the schema."""
    return not _names(value) <= _declared(schema)


def _names(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*map(_names, value.values()))
    return set().union(*map(_names, value)) if isinstance(value, list) else set()


def _declared(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return set().union(*map(_declared, schema))
    if not isinstance(schema, dict):
        return set()
    own = schema.get("properties")
    return set(own if isinstance(own, dict) else ()).union(*map(_declared, schema.values()))


def _parts(judge: Judge, schema: Any, value: Any, depth: int = 0) -> Iterator[dict[str, Any]]:
    """A schema, and those that hold in the same place of the value."""
    if not isinstance(schema, dict) or depth > DEEP:
        return
    yield schema
    yield from _parts(judge, judge.target(schema.get("$ref")), value, depth + 1)
    for part in schema.get("allOf", ()):
        yield from _parts(judge, part, value, depth + 1)
    for part in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), schema.get("then"), schema.get("else")):
        if part is not None and judge.fits(part, value):
            yield from _parts(judge, part, value, depth + 1)


def _named(parts: list[dict[str, Any]], value: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names and what holds for their members, first those of `properties`; the first schema of a name."""
    seen = set[str]()
    for part in parts:
        for name, inside in part.get("properties", {}).items():
            if name not in seen:
                seen.add(name)
                yield name, inside
    for name in value:
        for part in parts if name not in seen else ():
            matching = [
                inside for pattern, inside in part.get("patternProperties", {}).items() if _found(pattern, name)
            ]
            inside = matching[0] if matching else part.get("additionalProperties", True)
            if isinstance(inside, dict):
                yield name, inside
                break


def _found(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:
        return False


def _items(parts: list[dict[str, Any]], count: int) -> list[Any]:
    first: list[Any] = []
    rest: Any = True
    for part in parts:
        items = part.get("items", True)
        first = first or (items if isinstance(items, list) else part.get("prefixItems", []))
        rest = items if isinstance(items, dict) and rest is True else rest
    return [*first[:count], *[rest] * max(0, count - len(first))]
