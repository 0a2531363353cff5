"""Parameters that are written one by one: whatever their schemas say, what is read back is an instance."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from trellm.serve import tool_calls

from .models import TEXT, accepts, drawn, form_of, read

PLAIN = ["qwen3-coder", "glm-4.5", "glm-4.7", "minimax-m2"]
RICH: dict[str, Any] = {
    "type": "object",
    "properties": {
        "code": {"type": "string", "pattern": "^[A-Z]{2}-\\d+$"},
        "day": {"type": "string", "format": "date"},
        "short": {"type": "string", "minLength": 2, "maxLength": 4},
        "unit": {"enum": ["c", "f", "two\nlines"]},
        "mixed": {"enum": ["a", 1, None]},
        "maybe": {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}]},
        "named": {"$ref": "#/$defs/point"},
        "either": {"type": ["string", "number"]},
        "any": {"title": "Anything"},
        "odd": {"type": "string", "not": {"const": "no"}},
        "list": {"type": "array", "items": {"type": "integer", "minimum": 3}, "maxItems": 2},
    },
    "required": ["code", "short", "mixed", "named", "odd", "extra"],
    "$defs": {
        "point": {
            "type": "object",
            "properties": {"x": {"type": "number"}},
            "required": ["x"],
            "additionalProperties": False,
        }
    },
    "additionalProperties": {"type": "boolean"},
}


def plan_of(name: str, schema: dict[str, Any], *, strict: bool = True) -> tool_calls.AnswerPlan:
    function = {"name": "f", "parameters": schema, "strict": strict}
    tools = tool_calls.tools_of([{"type": "function", "function": function}])
    return form_of(name).plan(tools, tool_calls.choice_of("required", tools), parallel=False)


def coder(**values: str) -> str:
    """A call of Qwen3-Coder, of the values as they are written."""
    written = "".join(f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in values.items())
    return f"<tool_call>\n<function=f>\n{written}</function>\n</tool_call>"


@pytest.mark.parametrize("name", PLAIN)
def test_whatever_is_drawn_is_an_instance(name: str) -> None:
    random, plan = Random(8), plan_of(name, RICH)
    seen: set[str] = set()
    for budget in (0, 5, 20, 60, 100, 200):
        assert plan.guide is not None
        tokens = drawn(plan.guide, random, plan.needed + budget)
        [call] = read(plan, tokens, random).calls
        value = json.loads(call.arguments)
        assert call.complete
        assert list(value) == [key for key in [*RICH["properties"], "extra"] if key in value]
        Draft202012Validator(RICH, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(value)
        seen |= value.keys()
    assert len(seen) > 6


def test_strings_and_what_may_be_a_string() -> None:
    """Strings are as they are; where something else is possible too, what is JSON for the schema is that."""
    schema: dict[str, Any] = {
        "properties": {"a": {"type": ["string", "number"]}, "b": {"anyOf": [{"type": "string"}, {"type": "null"}]}}
    }
    plan = plan_of("qwen3-coder", schema)
    for a, b, expected in (
        ("1", "null", {"a": 1, "b": None}),
        ("true", "1", {"a": "true", "b": "1"}),
        ('"x"', "nul", {"a": '"x"', "b": "nul"}),
        ("NaN", "a\n", {"a": "NaN", "b": "a\n"}),
        ("", "</param", {"a": "", "b": "</param"}),
    ):
        tokens = TEXT.tokenizer.encode(coder(a=a, b=b), add_special_tokens=False)
        assert plan.guide is not None
        assert accepts(plan.guide, tokens)
        for _ in range(3):
            [call] = read(plan, tokens, Random(4)).calls
            assert json.loads(call.arguments) == expected


@pytest.mark.parametrize(
    ("values", "is_accepted"),
    [
        ({"code": "AB-1", "short": "abc"}, True),
        ({"code": "AB-1", "short": "</p>"}, True),
        ({"code": "ab-1", "short": "abc"}, False),
        ({"code": "AB-1", "short": "abcde"}, False),
        ({"code": "AB-1"}, False),
        ({"short": "abc", "code": "AB-1"}, False),
        ({"code": "AB-1", "short": "abc", "day": "2024-02-29"}, False),
        ({"code": "AB-1", "day": "2024-02-29", "short": "abc"}, True),
        ({"code": "AB-1", "day": "2024-02-30", "short": "abc"}, False),
        ({"code": "AB-1", "short": "abc", "unit": "two\nlines"}, True),
        ({"code": "AB-1", "short": "abc", "unit": "k"}, False),
    ],
)
def test_what_strings_must_be(values: dict[str, str], is_accepted: bool) -> None:
    schema = {
        "properties": {key: RICH["properties"][key] for key in ("code", "day", "short", "unit")},
        "required": ["code", "short"],
    }
    guide = plan_of("qwen3-coder", schema).guide
    assert guide is not None
    assert accepts(guide, TEXT.tokenizer.encode(coder(**values), add_special_tokens=False)) == is_accepted


def test_what_is_said_of_all_parameters_together() -> None:
    schema = {"properties": {"a": {"type": "string"}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
    with pytest.raises(tool_calls.ToolError, match="one by one") as caught:
        plan_of("glm-4.5", schema)
    assert caught.value.pointer == "tools/0/function/parameters/anyOf"
    assert plan_of("glm-4.5", schema, strict=False).guide is not None
    assert plan_of("hermes", schema).guide is not None


def test_parameters_that_a_reference_leads_to() -> None:
    """As pydantic writes models that hold themselves; what else stands beside a reference is for all parameters."""
    inner = {"properties": {"a": {"type": "string"}, "b": {"$ref": "#/$defs/P"}}, "required": ["a"], "type": "object"}
    schema: dict[str, Any] = {"$ref": "#/$defs/P", "$defs": {"P": inner}}
    guide = plan_of("qwen3-coder", schema).guide
    assert guide is not None
    for values, is_accepted in (({"a": "x"}, True), ({}, False), ({"a": "x", "b": '{"a": "y"}'}, True)):
        assert accepts(guide, TEXT.tokenizer.encode(coder(**values), add_special_tokens=False)) == is_accepted
    assert not accepts(guide, TEXT.tokenizer.encode(coder(a="x", b="{}"), add_special_tokens=False))
    others: list[dict[str, Any]] = [
        {**schema, "properties": {"c": {}}},
        {"$ref": "#/$defs/Q/x", "$defs": {"Q": {"x": inner}}},
    ]
    for other in others:
        with pytest.raises(tool_calls.ToolError, match="one by one"):
            plan_of("qwen3-coder", other)


CHOICES = {
    "type": "string",
    "allOf": [{"anyOf": [{"pattern": each} for each in group]} for group in ("aB", "cD", "ef", "gh")],
}
"""More cases than are multiplied out."""
DEFINED = {
    "letter": {"enum": ["a", "b"]},
    "letters": {"anyOf": [{"$ref": "#/$defs/letter"}, {"const": "c"}]},
    "loop": {"anyOf": [{"const": "a"}, {"allOf": [{"$ref": "#/$defs/letter"}]}]},
}


@pytest.mark.parametrize("name", [*PLAIN, "deepseek-v3.2"])
@pytest.mark.parametrize(
    ("schema", "strings", "refused"),
    [
        ({"anyOf": [{"const": "a"}, {"const": "b"}]}, ["a", "b"], ['"a"', "z", "null"]),
        ({"oneOf": [{"const": "a"}, {"const": "b"}]}, ["a", "b"], ['"a"', "z"]),
        ({"oneOf": [{"enum": ["a", "c"]}, {"enum": ["b", "c"]}]}, ["a", "b"], ['"a"', "c"]),
        ({"allOf": [{"enum": ["a", 1]}, {"type": "string"}]}, ["a"], ['"a"', "1"]),
        ({"allOf": [{"enum": ["a", "b"]}, {"not": {"const": "b"}}]}, ["a"], ["b", '"a"']),
        ({"type": ["string"]}, ["a", '"a"', "null", "12"], []),
        ({"type": "string", "const": "true"}, ["true"], ['"true"', "false"]),
        ({"$ref": "#/$defs/letters"}, ["a", "b", "c"], ['"a"', "d"]),
        ({"$ref": "#/$defs/loop", "description": "x"}, ["a", "b"], ['"a"', "c"]),
        ({"anyOf": [{"anyOf": [{"const": "a"}]}, {"oneOf": [{"enum": ["b", "c"]}]}]}, ["a", "b", "c"], ['"a"', "d"]),
        ({"enum": ["a", ""]}, ["a", ""], ['""', "b"]),
        ({"type": "string", "not": {"const": "a"}}, ["z", "aa", '"a"', ""], ["a"]),
        ({"type": "string", "not": {"pattern": "^a"}}, ["z", "ba", '"a"'], ["a", "ab"]),
        ({"not": {"type": ["null", "boolean", "number", "array", "object"]}}, ["a", "1"], []),
        ({"anyOf": [{"pattern": "^a+$"}, {"const": "z."}], "type": "string"}, ["a", "aa", "z."], ["zz", '"a"']),
        ({"type": "string", "format": "date", "not": {"const": "2024-02-29"}}, ["2024-02-28"], ["2024-02-29", "x"]),
        ({"if": {"const": "a"}, "then": {"type": "string"}, "else": {"const": "b"}}, ["a", "b"], ['"a"', "c"]),
        (CHOICES, ["aceg", "xBfDh", "BDeg"], ["ace", "x", "", "bdeg"]),
        ({"type": "string", "format": "date-time"}, ["2024-02-29T00:00:00Z"], ["2023-02-29T00:00:00Z", "x"]),
        ({"type": "string", "format": "email", "maxLength": 9}, ["a@b.c"], ["a@", "a@example.org"]),
        ({"type": "string", "format": "uri"}, ["https://a.b/c?d"], ["//a.b/ c", "x"]),
    ],
)
def test_parameters_that_can_only_be_strings_are_written_as_they_are(
    name: str, schema: Any, strings: list[str], refused: list[str]
) -> None:
    """Whatever keywords say so; and they are read as what was written."""
    root = {"properties": {"a": schema}, "required": ["a"], "$defs": DEFINED}
    for strict in (True, False):
        plan = plan_of(name, root, strict=strict)
        assert plan.guide is not None
        for text in strings:
            tokens = TEXT.tokenizer.encode(called(name, text), add_special_tokens=False)
            assert accepts(plan.guide, tokens), text
            [call] = read(plan, tokens, Random(4)).calls
            assert json.loads(call.arguments) == {"a": text}
        for text in refused:
            tokens = TEXT.tokenizer.encode(called(name, text), add_special_tokens=False)
            assert not accepts(plan.guide, tokens), text


def called(name: str, value: str) -> str:
    """A call of f in a form, with a value of `a` that is a string, as it is written."""
    frame = tool_calls.FORMATS[name].frames[0]
    form = frame.parameters
    assert form is not None
    line = "\n" if form.own_line else ""
    parameter = f"{form.before}a{form.behind_text or form.behind_name}{value}{line}{form.end}{form.behind}"
    call = frame.call.replace("$name", "f").replace("$arguments", parameter)
    return f"{frame.opening}{call}{frame.closing}"


@pytest.mark.parametrize(
    ("schema", "read_as"),
    [
        ({"anyOf": [{"enum": ["a", "1"]}, {"type": "integer"}]}, {"a": "a", "1": 1, "12": 12}),
        ({"oneOf": [{"const": "null"}, {"type": "null"}, {"const": "b"}]}, {"null": None, "b": "b"}),
        ({"enum": ["a", None, [], {}, True, "true"]}, {"a": "a", "null": None, "[]": [], "{}": {}, "true": True}),
        ({"allOf": [{"type": ["string", "null"]}, {"type": ["null", "array"]}]}, {"null": None}),
        (
            {"anyOf": [{"$ref": "#/$defs/letter"}, {"type": "string", "pattern": "^z$"}, {"const": 0}]},
            {"z": "z", "0": 0},
        ),
        ({"const": "a</parameter>"}, {'"a</parameter>"': "a</parameter>"}),
    ],
)
def test_what_is_valid_json_beside_strings_is_that(schema: Any, read_as: dict[str, Any]) -> None:
    plan = plan_of("qwen3-coder", {"properties": {"a": schema}, "required": ["a"], "$defs": DEFINED})
    assert plan.guide is not None
    for text, value in read_as.items():
        tokens = TEXT.tokenizer.encode(coder(a=text), add_special_tokens=False)
        assert accepts(plan.guide, tokens), text
        [call] = read(plan, tokens, Random(4)).calls
        assert json.loads(call.arguments) == {"a": value}
    assert not accepts(plan.guide, TEXT.tokenizer.encode(coder(a='"a"'), add_special_tokens=False))


def test_strings_that_are_not_held_to_a_pattern_are_still_written_as_they_are() -> None:
    schema = {"properties": {"a": {"type": "string", "pattern": "^(a+)\\1$"}}, "required": ["a"]}
    with pytest.raises(tool_calls.ToolError) as caught:
        plan_of("qwen3-coder", schema)
    assert caught.value.pointer == "tools/0/function/parameters/properties/a"
    guide = plan_of("qwen3-coder", schema, strict=False).guide
    assert guide is not None
    assert accepts(guide, TEXT.tokenizer.encode(coder(a="aaa"), add_special_tokens=False))
