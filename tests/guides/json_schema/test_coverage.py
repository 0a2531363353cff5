"""What becomes of every keyword, and values of schemas with keywords that are not enforced."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from trellm import Cancellation, Cancelled, generate, models
from trellm.errors import LimitError, OptionError, SchemaError
from trellm.guides import JSONGuide

from .test_guide_suite import BYTES, reads

LISTS = {"type": "array", "items": {"type": "string", "pattern": r"(a)\1"}}
IN_USE: list[tuple[dict[str, Any], str]] = [
    ({"items": {"pattern": r"^(a)\1$"}}, "#/items/pattern"),
    ({"not": {"items": {"pattern": r"^(a)\1$"}}}, "#/not/items/pattern"),
    ({"contains": {"type": "string", "pattern": r"^(a)\1$"}}, "#/contains/pattern"),
    (
        {"properties": {"a": {"contains": {"items": {"pattern": r"^(a)\1$"}}, "minContains": 2}}},
        "#/properties/a/contains/items/pattern",
    ),
    (
        {"$defs": {"a": {"type": "string", "pattern": r"^(a)\1$"}}, "items": {"$ref": "#/$defs/a"}},
        "#/$defs/a/pattern",
    ),
    (LISTS, "#/items/pattern"),
]


@pytest.mark.parametrize(("schema", "pointer"), IN_USE, ids=str)
def test_what_cannot_be_enforced_is_refused_when_the_guide_is_made(schema: Any, pointer: str) -> None:
    with pytest.raises(SchemaError) as caught:
        JSONGuide(schema, BYTES, spelling="plain")
    assert caught.value.pointer == pointer


@pytest.mark.parametrize(("schema", "pointer"), IN_USE, ids=str)
def test_allowed_keywords_are_checked_at_the_end(schema: Any, pointer: str) -> None:
    guide = JSONGuide(schema, BYTES, spelling="plain", unenforced="allow")
    left = [one for one in guide.coverage if one.status == "refused"]
    assert [one.pointer for one in left] == [pointer if "not" not in schema else "#/not"]
    assert all(one.reason for one in left)
    validator = Draft202012Validator(schema)
    for value in (
        [3, 4],
        [["aa"]],
        {"a": [["ab"], ["aa"], ["aa"]]},
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


def checked(schema: Any, text: str, **options: Any) -> bool | None:
    """What is said of the only keyword that is left out."""
    held = JSONGuide(schema, BYTES, unenforced="allow", **options).unenforced_in(text)
    assert len(held) == 1
    return next(iter(held.values()))


@pytest.mark.parametrize(
    ("pattern", "text", "holds"),
    [
        (r"^(?<n>a)\k<n>$", "aa", True),
        (r"^(?<n>a)\k<n>$", "ab", False),
        (r"^(a)?\1b$", "b", True),  # a group that took no part is the empty text
        (r"^(a)\1$", "aa\n", False),  # $ is the end
        (r"^(\d)\1$", "٣٣", False),
        (r"^(\d)\1$", "33", True),
        (r"^(\w\s)\1$", "a\u00a0a\u00a0", True),
        (r"^(\D)\1$", "٣٣", True),
        (r"^([\d$.])\1$", "$$", True),
        (r"^([^])\1$", "\n\n", True),
        (r"^([])?\1$", "", True),
        (r"^(.)\1$", "\u2028\u2028", False),
        (r"^(\u{1F600})\1$", "\U0001f600\U0001f600", True),
        (r"^(\p{L})\1$", "éé", True),
        (r"^(\cA)\1$", "\x01\x01", True),
        (r"^([[])\1$", "[[", True),
        (r"^(a)\1{99999999999}$", "aa", None),
    ],
)
def test_patterns_are_checked_as_ecma_262_has_them(pattern: str, text: str, holds: bool | None) -> None:
    assert checked({"type": "string", "pattern": pattern}, json.dumps(text)) is holds


def test_the_final_check_ends() -> None:
    """Whatever it would take; what it does not know it does not say."""
    assert checked({"type": "string", "pattern": r"^((a|aa)+)+\1$"}, json.dumps("a" * 40 + "b")) is None
    doubling = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)}
    schema = {"$defs": {**doubling, "d40": {}}, "$ref": "#/$defs/d0", "type": "string", "pattern": r"^(a)\1$"}
    assert checked(schema, '"aa"') is None
    nested = {"contains": {"type": "string", "pattern": r"^(a+)\1$"}}
    assert checked(nested, "[" * 300 + "]" * 300) is None
    with pytest.raises(LimitError, match="nested too deep"):
        checked(nested, "[" * 100_000 + "]" * 100_000)
    with pytest.raises(OptionError, match="not JSON"):
        checked(nested, "x")


def test_the_final_check_can_be_cancelled() -> None:
    guide = JSONGuide({"type": "string", "pattern": r"^(a)\1$"}, BYTES, unenforced="allow")
    with Cancellation() as stop:
        stop.cancel()
        with pytest.raises(Cancelled):
            guide.unenforced_in('"aa"')


def test_numbers_of_any_size_are_checked() -> None:
    schema = {"type": "array", "items": {"multipleOf": 0.12345671}, "contains": {"pattern": r"^(a)\1$"}}
    nines = "9" * 400
    assert checked({**schema, "items": {}}, f'[{nines}, "aa"]') is True
    for spelling in ("plain", "any"):
        guide = JSONGuide({"type": "number", "multipleOf": 0.12345671}, BYTES, spelling=spelling)
        assert not reads(guide, nines) and reads(guide, f"{12345671 * 10**400}")


def test_resources_may_be_of_any_dialect() -> None:
    schema = {"type": "string", "pattern": r"^(a)\1$"}
    guide = JSONGuide(schema, BYTES, resources={"http://x/b": {"$schema": 5}}, unenforced="allow")
    assert guide.unenforced_in('"aa"') == {"#/pattern": True}


def test_a_text_too_deep_for_its_quotations_says_so() -> None:
    tree = {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/t"}}, {"type": "string", "x-quote": "c"}]}
    guide = JSONGuide({"$defs": {"t": tree}, "$ref": "#/$defs/t"}, BYTES, contexts={"c": "hello world"})
    assert set(guide.spans('[["hello"]]')) == {"/0/0"}
    for depth in (2000, 100_000):
        with pytest.raises(LimitError, match="nested too deep"):
            guide.spans("[" * depth + '"hello"' + "]" * depth)


def test_members_that_are_called_like_keywords_do_not_matter() -> None:
    twice: dict[str, Any] = {"type": "string", "pattern": r"^(a+)\1$"}
    names = {"unevaluatedProperties": twice, "patternProperties": {"type": "integer"}}
    guide = JSONGuide({"properties": names}, BYTES, unenforced="allow")
    pointer = "#/properties/unevaluatedProperties/pattern"
    assert guide.unenforced_in('{"unevaluatedProperties": "aa"}') == {pointer: True}
    assert guide.unenforced_in('{"unevaluatedProperties": "aaa"}') == {pointer: False}
    keywords = {"patternProperties": {"^a": twice}, "unevaluatedProperties": False}
    guide = JSONGuide({**keywords, "properties": {"b": twice}}, BYTES, unenforced="allow")
    assert set(guide.unenforced_in('{"b": "aa"}').values()) == {None}


def test_regular_expressions_that_python_does_not_read_are_of_the_format() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "pattern": r"^(x)\1$"}, "b": {"format": "regex"}},
    }
    guide = JSONGuide(schema, BYTES, unenforced="allow")
    for text in ("[]", "[^]", "(?<=a+)b", "(?<n>x)"):
        assert guide.unenforced_in(json.dumps({"a": "xx", "b": text})) == {"#/properties/a/pattern": True}, text


def test_what_only_some_member_must_be_is_refused_before_a_text_gets_there() -> None:
    """That equal items cannot be asked for must not be found out in the middle of a text."""
    members = {"type": "object", "additionalProperties": {"type": "array", "uniqueItems": True}}
    listed = {"prefixItems": [{"minItems": 1}], "items": {"const": 4}, "contains": {"uniqueItems": True}}
    with pytest.raises(SchemaError, match=r"equal cannot be enforced.*#/contains/uniqueItems"):
        JSONGuide({**listed, "maxContains": 1}, BYTES)
    with pytest.raises(SchemaError, match="equal cannot be enforced"):
        JSONGuide({"type": "object", "not": members}, BYTES)
    for item in (members["additionalProperties"], {"properties": {"a": members["additionalProperties"]}}):
        with pytest.raises(SchemaError, match="equal cannot be enforced"):
            JSONGuide({"type": "array", "not": {"items": item}}, BYTES)
