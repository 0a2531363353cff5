"""Certain verdicts on a schema, by `jsonschema` and bounded arguments, without any engine.

A value counts as valid where every reading says so, and as invalid where every reading says so: `jsonschema` as it is,
`jsonschema` with patterns of ECMA-262 and exact numbers, and for validity also with formats asserted. A schema without
`$schema` is read by the drafts 2020-12 and 7. A beginning of a text counts as dead where `Judge.dead` has a reason.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import regex
from json_walks import exact_validator, in_python, with_python_patterns
from jsonschema import Draft7Validator, Draft202012Validator
from jsonschema.validators import validator_for

from .partial_json import Node, NotJSONError, read

TYPES = {"null", "boolean", "number", "integer", "string", "array", "object"}
DEEP = 20
"""References that are followed in one place."""


class UnusableError(ValueError):
    """A schema of which nothing can be said here."""


class Judge:
    """Verdicts about values and texts of one schema. Raises UnusableError where `jsonschema` cannot read it."""

    def __init__(self, schema: Any) -> None:
        if not isinstance(schema, dict):
            raise UnusableError("no object")
        self.schema: dict[str, Any] = schema
        named = validator_for(schema, default=None)
        if "$schema" in schema and named is None:
            raise UnusableError(f"$schema {schema['$schema']}")
        kinds = [named] if named is not None else [Draft202012Validator, Draft7Validator]
        ecma = with_python_patterns(schema)
        self._plain: list[Any] = []
        self._exact: list[Any] = []
        self._strict: list[Any] = []
        for kind in kinds:
            try:
                kind.check_schema(schema)
            except Exception as error:
                raise UnusableError(f"{type(error).__name__}: {error}"[:200]) from error
            self._plain.append(kind(schema))
            self._exact.append(exact_validator(kind)(ecma, format_checker=None))
            self._strict.append(kind(schema, format_checker=kind.FORMAT_CHECKER))
        drafts = {kind.META_SCHEMA.get("$id") or kind.META_SCHEMA["id"] for kind in kinds}
        self._is_draft_4 = any("draft-04" in draft or "draft-03" in draft for draft in drafts)
        self._is_old = any("draft-0" in draft for draft in drafts)
        self._is_new = any("2020-12" in draft for draft in drafts)
        self._has_places = not any(key in json.dumps(_below(schema)) for key in ('"$id":', '"id": "', '"$anchor":'))

    def verdict(self, value: Any) -> bool | None:
        """True for what is valid in every reading, False for what is in none, None for what they disagree about."""
        plain = {each.is_valid(value) for each in (*self._plain, *self._exact)}
        if plain == {True}:
            return True if all(each.is_valid(value) for each in self._strict) else None
        return False if plain == {False} else None

    def finished(self, text: bytes) -> tuple[bool | None, str]:
        """The verdict about a whole text, and why it is invalid; None where an object has a name twice."""
        try:
            node = read(text + b" ")
            if node.is_open:
                return False, "the text is no complete JSON"
        except NotJSONError as error:
            return False, f"the text is no JSON: {error}"
        if node.repeats() or not _is_finite(node.value):
            return None, ""
        verdict = self.verdict(node.value)
        if verdict is not False:
            return verdict, ""
        error = next(self._plain[0].iter_errors(node.value))
        return False, f"{error.message[:160]} ({'/'.join(map(str, error.absolute_schema_path))})"

    def dead(self, text: bytes) -> str | None:
        """Reason why no text that begins so is valid, or None where that is not certain."""
        try:
            node = read(text)
        except NotJSONError as error:
            return f"no JSON text begins so: {error}"
        if node.repeats():
            return None
        if not self._has_places:
            return self._refused(self.schema, node, "#") if not node.is_open and _is_finite(node.value) else None
        return self._why(self.schema, node, "#", 0)

    def fits(self, schema: Any, value: Any) -> bool:
        """True if a value satisfies a part of the schema, by `jsonschema` as it is."""
        return self._plain[0].evolve(schema=schema).is_valid(value)

    def target(self, reference: Any) -> Any:
        """Target of a reference within this document; True for others, of which nothing is said."""
        if not isinstance(reference, str) or not re.match(r"#(/|$)", reference) or "%" in reference:
            return True
        found: Any = self.schema
        for part in reference[2:].split("/") if len(reference) > 1 else ():
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                return True
        return found

    def _why(self, schema: Any, node: Node, at: str, depth: int) -> str | None:
        """Reason why no value that goes on as a node does fits a schema; by keywords that hold together only."""
        if schema is False:
            return f"{at} is false" if node.kind else None
        if not isinstance(schema, dict) or not node.kind or depth > DEEP:
            return None
        if not node.is_open:
            return self._refused(schema, node, at) if _is_finite(node.value) else None
        if "$ref" in schema:
            found = self._why(self.target(schema["$ref"]), node, schema["$ref"], depth + 1)
            if found or self._is_old:
                return found
        return self._by_value(schema, node, at) or self._by_parts(schema, node, at, depth)

    def _by_parts(self, schema: dict[str, Any], node: Node, at: str, depth: int) -> str | None:
        for number, part in enumerate(schema.get("allOf", ())):
            if found := self._why(part, node, f"{at}/allOf/{number}", depth + 1):
                return found
        for keyword in ("anyOf", "oneOf"):
            cases = schema.get(keyword, ())
            all_of = [self._why(case, node, f"{at}/{keyword}/{number}", depth + 1) for number, case in enumerate(cases)]
            if all_of and None not in all_of:
                return "; ".join(map(str, all_of))[:600]
        if node.kind == "array":
            return self._in_array(schema, node, at, depth)
        return self._in_object(schema, node, at, depth) if node.kind == "object" else None

    def _by_value(self, schema: dict[str, Any], node: Node, at: str) -> str | None:
        """By the keywords that hold no schemas."""
        types = schema.get("type", [])
        types = [types] if isinstance(types, str) else types
        numbers = {"number", "integer"} if node.kind == "number" else {node.kind}
        if types and TYPES.issuperset(types) and not numbers & set(types):
            return f"{at}/type: {node.kind}"
        if "enum" in schema and not any(_may_become(node, value) for value in schema["enum"]):
            return f"{at}/enum: no value of it begins so"
        if "const" in schema and not self._is_draft_4 and not _may_become(node, schema["const"]):
            return f"{at}/const: it does not begin so"
        if node.kind == "string":
            if len(node.value) > schema.get("maxLength", len(node.value)):
                return f"{at}/maxLength: {len(node.value)} characters"
            if "pattern" in schema and not _may_match(schema["pattern"], node.value):
                return f"{at}/pattern: no match begins with {node.value[-40:]!r}"
        return None

    def _in_array(self, schema: dict[str, Any], node: Node, at: str, depth: int) -> str | None:
        if len(node.items) > schema.get("maxItems", len(node.items)):
            return f"{at}/maxItems: {len(node.items)} items"
        done = [item.value for item in node.items if not item.is_open]
        unique = {"uniqueItems": schema.get("uniqueItems") is True and _is_finite(done)}
        if found := self._refused(unique, Node("array", False, done), at):
            return found
        first, rest = self._items(schema)
        for number, item in enumerate(node.items):
            part = first[number] if number < len(first) else rest
            if part is False and number >= len(first):
                return f"{at}: no item {number}"
            if found := self._why(part, item, f"{at}/items", depth + 1):
                return found
        return None

    def _items(self, schema: dict[str, Any]) -> tuple[list[Any], Any]:
        """The schemas of the first items, and that of all others; True where the draft is not certain."""
        items = schema.get("items", True)
        if isinstance(items, list):
            return ([], True) if self._is_new else (items, schema.get("additionalItems", True))
        if "prefixItems" in schema:
            return ([], True) if self._is_old else (schema["prefixItems"], items if self._is_new else True)
        return [], items

    def _in_object(self, schema: dict[str, Any], node: Node, at: str, depth: int) -> str | None:
        if len(node.members) > schema.get("maxProperties", len(node.members)):
            return f"{at}/maxProperties: {len(node.members)} members"
        properties, more = schema.get("properties", {}), schema.get("additionalProperties", True)
        patterns = schema.get("patternProperties", {})
        for member in node.members:
            name: str = member.name.value
            if member.name.is_open:
                known = any(each.startswith(name) for each in properties)
                if more is False and not known and not any(_may_match(each, name) for each in patterns):
                    return f"{at}/additionalProperties: no name begins with {name[-40:]!r}"
                continue
            named = True if self._is_draft_4 else schema.get("propertyNames", True)
            if found := self._refused(named, member.name, f"{at}/propertyNames"):
                return found
            matched = {each: _matches(each, name) for each in patterns}
            parts = [(properties[name], f"{at}/properties/{name}")] if name in properties else []
            parts += [(patterns[each], f"{at}/patternProperties") for each, found in matched.items() if found]
            if name not in properties and not any(found is not False for found in matched.values()):
                parts.append((more, f"{at}/additionalProperties"))
                if more is False:
                    return f"{at}/additionalProperties: {name[:40]!r}"
            for part, place in parts:
                if found := self._why(part, member.value, place, depth + 1):
                    return found
        return None

    def _refused(self, schema: Any, node: Node, at: str) -> str | None:
        """Reason why a closed value is invalid in every reading."""
        if isinstance(schema, bool):
            return None if schema else f"{at} is false"
        ecma = with_python_patterns(schema)
        checked = [each.evolve(schema=schema) for each in self._plain]
        checked += [each.evolve(schema=ecma) for each in self._exact]
        if any(each.is_valid(node.value) for each in checked):
            return None
        return f"{at}: {next(checked[0].iter_errors(node.value)).message[:160]}"


def _below(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in ("$id", "id", "$anchor")}


def _is_finite(value: Any) -> bool:
    """True for a value whose numbers are finite floats, as `jsonschema` needs them."""
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list):
        return all(map(_is_finite, value))
    return not isinstance(value, (int, float)) or abs(value) < 1e300


def _may_become(node: Node, value: Any) -> bool:
    """False where a node cannot go on to a value of `enum` or `const`, however it is spelled."""
    if not node.kind:
        return True
    if node.kind != _kind(value):
        return False
    if not node.is_open:
        return node.value == value or node.kind in ("array", "object")
    match node.kind:
        case "string":
            return value.startswith(node.value)
        case "boolean":
            return node.value == value
        case "array":
            return len(node.items) <= len(value) and all(map(_may_become, node.items, value))
        case "object":
            return all(
                any(each.startswith(member.name.value) for each in value)
                if member.name.is_open
                else member.name.value in value and _may_become(member.value, value[member.name.value])
                for member in node.members
            )
        case _:
            return True


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    return {type(None): "null", str: "string", list: "array", dict: "object"}[type(value)]


@cache
def _compiled(pattern: str) -> tuple[Any, ...] | None:
    """A pattern as Python reads it and as ECMA-262 does; None where its partial matches are not certain."""
    if re.search(r"\(\?(?!:)|\\[1-9kpPbB]", pattern):
        return None
    try:
        return regex.compile(pattern), regex.compile(in_python(pattern))
    except regex.error:
        return None


def _may_match(pattern: str, text: str) -> bool:
    """False where a pattern is found in no text that begins so."""
    found = _compiled(pattern)
    return found is None or any(each.search(text, partial=True) is not None for each in found)


def _matches(pattern: str, text: str) -> bool | None:
    """True if a pattern is found in a text, in both readings; None where that is not certain."""
    found = _compiled(pattern)
    verdicts = {each.search(text) is not None for each in found} if found is not None else set[bool]()
    return verdicts.pop() if len(verdicts) == 1 else None
