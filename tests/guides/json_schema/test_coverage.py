"""What becomes of every keyword, and values of schemas with keywords that are not enforced."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from trellm import generate, models
from trellm.errors import OptionError, SchemaError
from trellm.guides import JSONGuide

from .test_guide_suite import BYTES, reads

LISTS = {"type": "array", "items": {"type": "string", "pattern": r"(a)\1"}}
IN_USE: list[tuple[dict[str, Any], str]] = [
    ({"items": {"multipleOf": 1000003}}, "#/items/multipleOf"),
    ({"not": {"items": {"multipleOf": 1000003}}}, "#/not/items/multipleOf"),
    ({"contains": {"type": "integer", "multipleOf": 1000003}}, "#/contains/multipleOf"),
    (
        {"properties": {"a": {"contains": {"items": {"multipleOf": 1000003}}, "minContains": 2}}},
        "#/properties/a/contains/items/multipleOf",
    ),
    (
        {"$defs": {"a": {"type": "integer", "multipleOf": 1000003}}, "items": {"$ref": "#/$defs/a"}},
        "#/$defs/a/multipleOf",
    ),
    (LISTS, "#/items/pattern"),
]


@pytest.mark.parametrize(("schema", "pointer"), IN_USE, ids=str)
def test_what_cannot_be_enforced_is_refused_when_the_guide_is_made(schema: Any, pointer: str) -> None:
    with pytest.raises(SchemaError) as caught:
        JSONGuide(schema, BYTES)
    assert caught.value.pointer == pointer


@pytest.mark.parametrize(("schema", "pointer"), IN_USE, ids=str)
def test_allowed_keywords_are_checked_at_the_end(schema: Any, pointer: str) -> None:
    guide = JSONGuide(schema, BYTES, unenforced="allow")
    left = [one for one in guide.coverage if one.status == "refused"]
    assert [one.pointer for one in left] == [pointer if "not" not in schema else "#/not"]
    assert all(one.reason for one in left)
    validator = Draft202012Validator(schema)
    for value in (
        [1000003, 2000006],
        [3, 4],
        [[1000003]],
        {"a": [[1], [1000003], [2000006]]},
        {"a": []},
        ["aa"],
        ["ab"],
        7,
    ):
        text = json.dumps(value)
        if reads(guide, text):
            held = guide.unenforced_in(text)
            assert set(held) == {left[0].pointer}
            assert all(held.values()) == validator.is_valid(value), value


def test_every_keyword_is_listed_once_with_its_place() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "a",
        "properties": {"a/b": {"type": "string", "format": "date", "description": "b"}, "c": {"format": "colour"}},
        "items": [{"$ref": "#/definitions/d", "minimum": 3}],
        "definitions": {"d": {"minimum": 1}},
        "example": {"type": "x"},
    }
    found = {one.pointer: one.status for one in JSONGuide(schema, BYTES).coverage}
    assert found == {
        "#/$schema": "enforced",
        "#/title": "annotation",
        "#/properties": "enforced",
        "#/properties/a~1b/type": "enforced",
        "#/properties/a~1b/format": "enforced",
        "#/properties/a~1b/description": "annotation",
        "#/properties/c/format": "annotation",
        "#/items": "enforced",
        "#/items/0/$ref": "enforced",
        "#/items/0/minimum": "annotation",
        "#/definitions": "enforced",
        "#/definitions/d/minimum": "enforced",
        "#/example": "annotation",
    }
    formats = JSONGuide(schema, BYTES, formats=False).coverage
    assert {one.pointer for one in formats if one.status == "annotation"} >= {"#/properties/a~1b/format"}


def test_results_say_what_was_not_enforced() -> None:
    model = models.ziplm('["ab", "aa"]\n' * 3)
    result = generate.json(model, LISTS, unenforced="allow").run("lists: ", max_tokens=30)
    assert result.unenforced == {"#/items/pattern": Draft202012Validator(LISTS).is_valid(result.value)}
    assert "unenforced" in repr(result)
    assert generate.json(model, {"type": "integer"}).run("n: ").unenforced == {}


def test_guides_are_told_apart_by_what_they_allow() -> None:
    JSONGuide(LISTS, BYTES, unenforced="allow")
    with pytest.raises(SchemaError):
        JSONGuide(LISTS, BYTES)
    with pytest.raises(OptionError, match="unenforced"):
        JSONGuide(LISTS, BYTES, unenforced="perhaps")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_what_is_no_keyword_to_leave_out_is_refused_still() -> None:
    for schema in ({"type": "integr"}, {"not": True}, {"items": {"$ref": "#/no"}}):
        with pytest.raises(SchemaError):
            JSONGuide(schema, BYTES, unenforced="allow")  # type: ignore[arg-type]
