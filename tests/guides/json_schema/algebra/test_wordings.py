"""Subschemas that say the same are one formula, wherever they stand; those that do not are several."""

from __future__ import annotations

import json
from typing import Any

import pytest
from trellm import Vocabulary
from trellm.guides import DEAD, JSONGuide

from ...support import CompiledSchema
from ..support import Formula

RECORD: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": ["string", "null"]}, "b": {"type": "array", "items": {"enum": [1, "1", None]}}},
    "required": ["a"],
    "patternProperties": {"^x": {"anyOf": [{"$ref": "#/$defs/one"}, {"type": "null"}]}},
    "dependencies": {"a": ["b"], "b": {"minProperties": 1}},
}
DEFINITIONS: dict[str, Any] = {
    "one": {"type": "object", "properties": {"next": {"$ref": "#/$defs/one"}}},
    "two": {"items": RECORD},
}


def formulas(*schemas: Any, **more: Any) -> list[Formula]:
    """The formulas of some members of a schema."""
    named = {f"p{index}": schema for index, schema in enumerate(schemas)}
    written = json.loads(json.dumps({"properties": named, "$defs": DEFINITIONS, **more}))  # nothing is shared
    compiled = CompiledSchema(written)
    return list(compiled.normal(compiled.root).objects[0].properties.values())


def test_what_stands_elsewhere_is_the_same_formula() -> None:
    titled = {"title": "again", **RECORD, "default": {}}
    deeper = {"type": "array", "items": titled, "description": "a list"}
    first, second, list_, other_list = formulas(RECORD, titled, {"type": "array", "items": RECORD}, deeper)
    assert first is second and list_ is other_list


@pytest.mark.parametrize(
    "changes",
    [
        {"required": ["b"]},
        {"required": ["a", "b"]},
        {"properties": dict(reversed(RECORD["properties"].items()))},
        {"properties": {**RECORD["properties"], "a": {"type": "string"}}},
        {"properties": {**RECORD["properties"], "b": {"type": "array", "items": {"enum": [True, "1", None]}}}},
        {"properties": {**RECORD["properties"], "b": {"type": "array", "items": {"enum": [1.0, "1", None]}}}},
        {"patternProperties": {"^x": {"anyOf": [{"$ref": "#/$defs/two"}, {"type": "null"}]}}},
        {"patternProperties": {"^y": {"anyOf": [{"$ref": "#/$defs/one"}, {"type": "null"}]}}},
        {"dependencies": {"a": ["b"], "b": {"minProperties": 2}}},
        {"dependencies": {"a": ["a"], "b": {"minProperties": 1}}},
        {"additionalProperties": False},
        {"minProperties": 1},
    ],
)
def test_what_says_something_else_is_another_formula(changes: dict[str, Any]) -> None:
    first, second = formulas(RECORD, {**RECORD, **changes})
    assert first is not second


def test_a_reference_is_read_from_the_resource_that_it_stands_in() -> None:
    inner = {"$id": "http://example.org/inner", "$defs": {"one": {"type": "null"}}, "items": {"$ref": "#/$defs/one"}}
    first, second = formulas({"items": {"$ref": "#/$defs/one"}}, inner)
    assert first is not second


def test_what_depends_on_the_dynamic_scope_is_told_apart_by_place() -> None:
    inner = {"type": "array", "items": {"$dynamicRef": "#one"}}
    first, second = formulas(inner, inner, **{"$dynamicAnchor": "one"})
    assert first is not second


def test_a_list_of_one_schema_says_something_else_than_the_schema() -> None:
    """`items` of older drafts: the first item's schema, or that of all items."""
    text = {"type": "string"}
    draft = "http://json-schema.org/draft-07/schema#"
    for first, second in (([text], text), (text, [text])):
        arrays = {"a": {"type": "array", "items": first}, "b": {"type": "array", "items": second}}
        guide = JSONGuide({"$schema": draft, "properties": arrays}, Vocabulary.from_bytes())
        for name, items in (("a", first), ("b", second)):
            state = guide.read(guide.start, b'{"%s":["x",1]}' % name.encode())
            assert (state != DEAD) is isinstance(items, list)
