"""The keyword of a JSON Schema that a value violates, and its place."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..guides.json_schema import CompiledSchema
from ..guides.json_schema.read.dialects import is_array, is_object
from ..guides.json_schema.read.subschema import Subschema, step_of

if TYPE_CHECKING:
    from ..guides.quoting.quotation import Quote

_SHOWN = 60
# Keywords about the value itself, with those that modify them.
_PLAIN: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("type", "enum", "const", "multipleOf", "minLength", "maxLength", "pattern", "format"), ()),
    **dict.fromkeys(("required", "minProperties", "maxProperties", "minItems", "maxItems", "uniqueItems"), ()),
    **dict.fromkeys(("x-quote", "dependentRequired"), ()),
    "minimum": ("exclusiveMinimum",),
    "maximum": ("exclusiveMaximum",),
    "exclusiveMinimum": ("minimum",),
    "exclusiveMaximum": ("maximum",),
}
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


@dataclass(frozen=True)
class Violation:
    """A violated keyword with its value, and the JSON pointer of the offending value."""

    keyword: str
    limit: Any
    pointer: str
    value: Any

    def __str__(self) -> str:
        at = f"at {self.pointer}" if self.pointer else "at the top"
        return f"{self.keyword} {_short(self.limit)} {at}, where the value is {_short(self.value)}"


def violation(
    schema: Any, value: Any, resources: Mapping[str, Any], contexts: Mapping[str, Quote] | None = None
) -> Violation | None:
    """Return the first violated keyword, the most deeply nested one of alternatives; None if the schema is
    satisfied."""
    compiled = CompiledSchema(schema, resources, contexts=contexts)
    if compiled.accepts(compiled.root, value):
        return None
    root: Any = json.loads(schema) if isinstance(schema, str) else schema
    if not is_object(root):
        return Violation("the schema", False, "", value)
    compiled = CompiledSchema(root, resources, contexts=contexts)
    found = _ViolationSearch(compiled, root, contexts).first(compiled.documents.at(root), value, "")
    return found or Violation("the schema as a whole", root, "", value)


class _ViolationSearch:
    """A search through a schema by keyword. Simple keywords are evaluated as schemas of their own."""

    def __init__(self, compiled: CompiledSchema, root: dict[str, Any], contexts: Mapping[str, Quote] | None) -> None:
        self._documents = compiled.documents
        self._dialect = {"$schema": root["$schema"]} if "$schema" in root else {}
        self._contexts = contexts

    def first(self, place: Subschema | bool, value: Any, pointer: str) -> Violation | None:
        """Return the first violated keyword of a subschema."""
        if isinstance(place, bool):
            return None if place else Violation("schema", False, pointer, value)
        return next(self._violations(place, value, pointer), None)

    def _violations(self, place: Subschema, value: Any, pointer: str) -> Iterator[Violation]:
        schema = place.value
        for keyword, limit in schema.items():
            if keyword not in place.resource.dialect.keywords:
                continue
            if keyword in _PLAIN:
                if not self._is_met(schema, keyword, value):
                    yield Violation(keyword, limit, pointer, value)
                continue
            if keyword in _REFERENCES:
                inner = self.first(self._documents.resolve(place, keyword), value, pointer)
            elif keyword in ("allOf", "anyOf", "oneOf", "not", "if"):
                inner = self._in_combination(schema, keyword, value, pointer)
            elif is_object(value):
                inner = self._in_object(schema, keyword, value, pointer)
            elif is_array(value):
                inner = self._in_array(schema, keyword, value, pointer)
            else:
                inner = None
            if inner is not None:
                yield inner

    def _is_met(self, schema: dict[str, Any], keyword: str, value: Any) -> bool:
        modifiers = {name: schema[name] for name in _PLAIN[keyword] if isinstance(schema.get(name), (bool, int, float))}
        applied = modifiers if isinstance(schema[keyword], bool) else {k: v for k, v in modifiers.items() if v is True}
        compiled = CompiledSchema({**self._dialect, **applied, keyword: schema[keyword]}, contexts=self._contexts)
        return compiled.accepts(compiled.root, value)

    def _child(self, schema: Any, value: Any, pointer: str) -> Violation | None:
        return self.first(schema if isinstance(schema, bool) else self._documents.at(schema), value, pointer)

    def _in_combination(self, schema: dict[str, Any], keyword: str, value: Any, pointer: str) -> Violation | None:
        parts: Any = schema[keyword]
        if keyword == "not":
            return None if self._child(parts, value, pointer) else Violation(keyword, parts, pointer, value)
        if keyword == "if":
            branch = "else" if self._child(parts, value, pointer) else "then"
            return self._child(schema[branch], value, pointer) if branch in schema else None
        found = [self._child(part, value, pointer) for part in parts]
        broken = [one for one in found if one is not None]
        if keyword == "allOf":
            return broken[0] if broken else None
        if len(broken) == len(found):
            deepest = max(broken, key=lambda one: one.pointer.count("/"))
            return deepest if deepest.pointer != pointer else Violation(keyword, parts, pointer, value)
        is_ambiguous = keyword == "oneOf" and len(found) - len(broken) > 1
        return Violation(keyword, parts, pointer, value) if is_ambiguous else None

    def _in_object(self, schema: dict[str, Any], keyword: str, value: dict[str, Any], pointer: str) -> Violation | None:
        limit: Any = schema[keyword]
        if keyword == "propertyNames":
            return next((one for name in value if (one := self._child(limit, name, _below(pointer, name)))), None)
        if keyword in ("dependentSchemas", "dependencies"):
            return self._dependent(keyword, limit, value, pointer)
        parts: list[tuple[Any, str]] = []
        for name in value:
            if keyword == "properties" and name in limit:
                parts.append((limit[name], name))
            elif keyword == "patternProperties":
                parts += [(part, name) for pattern, part in limit.items() if self._matches(pattern, name)]
            elif keyword == "additionalProperties" and self._is_additional(schema, name):
                parts.append((limit, name))
        for part, name in parts:
            if part is False:
                return Violation(keyword, False, _below(pointer, name), value[name])
            if one := self._child(part, value[name], _below(pointer, name)):
                return one
        return None

    def _dependent(self, keyword: str, limit: Any, value: dict[str, Any], pointer: str) -> Violation | None:
        for name, part in limit.items():
            if name in value and is_array(part):
                if missing := [other for other in part if other not in value]:
                    return Violation(keyword, {name: missing}, pointer, value)
            elif name in value and (one := self._child(part, value, pointer)):
                return one
        return None

    def _matches(self, pattern: str, name: str) -> bool:
        compiled = CompiledSchema({"pattern": pattern})
        return compiled.accepts(compiled.root, name)

    def _is_additional(self, schema: dict[str, Any], name: str) -> bool:
        patterns = schema.get("patternProperties", {})
        return name not in schema.get("properties", {}) and not any(self._matches(one, name) for one in patterns)

    def _in_array(self, schema: dict[str, Any], keyword: str, value: list[Any], pointer: str) -> Violation | None:
        limit: Any = schema[keyword]
        if keyword == "contains":
            count = sum(self._child(limit, item, pointer) is None for item in value)
            most = schema.get("maxContains", len(value))
            return None if schema.get("minContains", 1) <= count <= most else Violation(keyword, limit, pointer, value)
        listed = schema.get("prefixItems", schema.get("items") if is_array(schema.get("items")) else [])
        if keyword == "prefixItems" or (keyword == "items" and is_array(limit)):
            parts = list(zip(range(len(value)), limit, strict=False))
        elif keyword == "items" or (keyword == "additionalItems" and is_array(schema.get("items"))):
            parts = [(number, limit) for number in range(len(listed), len(value))]
        else:
            return None
        found = (self._child(part, value[number], _below(pointer, number)) for number, part in parts)
        return next((one for one in found if one is not None), None)


def _below(pointer: str, key: str | int) -> str:
    return f"{pointer}/{step_of(key)}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
