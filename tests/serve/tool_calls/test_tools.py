"""Tools and choices as requests have them, and what is refused, with its place."""

from __future__ import annotations

from typing import Any

import pytest
from trellm.serve import tool_calls

from .models import form_of

NOW = {"type": "function", "function": {"name": "now"}}
TOOLS = tool_calls.tools_of(
    [NOW, {"type": "function", "name": "later", "parameters": {"properties": {"n": {}}}, "strict": True}]
)


def test_both_forms_of_functions() -> None:
    now, later = TOOLS
    assert (now.name, now.strict, now.pointer) == ("now", False, "tools/0/function/parameters")
    assert now.parameters == {"type": "object", "properties": {}, "additionalProperties": False}
    assert (later.name, later.strict, later.pointer) == ("later", True, "tools/1/parameters")
    assert later.parameters == {"type": "object", "properties": {"n": {}}}
    assert tool_calls.tools_of(None) == tool_calls.tools_of([]) == ()


@pytest.mark.parametrize(
    ("tools", "pointer", "said"),
    [
        ({}, "tools", "a list of tools"),
        ("now", "tools", "a list of tools"),
        ([NOW] * 100_000, "tools", "100,000 tools exceed the limit of 2,048"),
        ([NOW, NOW], "tools/1/function/name", "'now' is the name of tools/0 too"),
        ([1], "tools/0", "a tool must be"),
        ([{"type": "web_search"}], "tools/0/type", "'web_search' are not supported"),
        ([{"type": "function", "function": "now"}], "tools/0/function", "an object with name and parameters"),
        (
            [{"type": "function", "function": {}}],
            "tools/0/function/name",
            "must be a string that is not empty, not None",
        ),
        (
            [{"type": "function", "function": {"name": ""}}],
            "tools/0/function/name",
            "must be a string that is not empty",
        ),
        ([{"type": "function", "function": {"name": "a" * 257}}], "tools/0/function/name", "257 characters"),
        ([{"type": "function", "function": {"name": "a\nb"}}], "tools/0/function/name", "unprintable characters"),
        ([{"type": "function", "function": {"name": "a\ud800"}}], "tools/0/function/name", "unprintable characters"),
        ([{"type": "function", "function": {"name": "a", "strict": 1}}], "tools/0/function/strict", "true, false"),
        (
            [{"type": "function", "function": {"name": "a", "parameters": []}}],
            "tools/0/function/parameters",
            "JSON Schema",
        ),
        (
            [NOW, {"type": "function", "function": {"name": "a", "parameters": {"type": "array"}}}],
            "tools/1/function/parameters/type",
            'must be "object"',
        ),
    ],
)
def test_tools_that_are_refused(tools: Any, pointer: str, said: str) -> None:
    with pytest.raises(tool_calls.ToolError, match=said) as caught:
        tool_calls.tools_of(tools)
    assert caught.value.pointer == pointer
    assert str(caught.value).startswith(f"{pointer}: ")


@pytest.mark.parametrize(
    ("choice", "pointer", "said"),
    [
        ("some", "tool_choice", "not 'some'"),
        (3, "tool_choice", "not 3"),
        ({"type": "function"}, "tool_choice/name", "None is none of the 2"),
        ({"type": "tool", "name": "now"}, "tool_choice", "a function by its name"),
        (
            {"type": "function", "function": {"name": "never"}},
            "tool_choice/function/name",
            "'never' is none of the 2",
        ),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "none", "tools": [NOW]}},
            "tool_choice/allowed_tools",
            "needs mode",
        ),
        ({"type": "allowed_tools", "mode": "auto", "tools": []}, "tool_choice", "a list of tools"),
        (
            {"type": "allowed_tools", "tools": [{"type": "function", "name": "x"}]},
            "tool_choice/tools/0/name",
            "'x'",
        ),
        (
            {"type": "allowed_tools", "allowed_tools": {"tools": [{"type": "function", "function": {"name": "x"}}]}},
            "tool_choice/allowed_tools/tools/0/function/name",
            "'x'",
        ),
    ],
)
def test_choices_that_are_refused(choice: Any, pointer: str, said: str) -> None:
    with pytest.raises(tool_calls.ToolError, match=said) as caught:
        tool_calls.choice_of(choice, TOOLS)
    assert caught.value.pointer == pointer


def test_a_choice_without_tools() -> None:
    with pytest.raises(tool_calls.ToolError, match="and the request has none"):
        tool_calls.choice_of("required", ())
    assert tool_calls.choice_of("none", ()).mode == "none"


@pytest.mark.parametrize("name", ["hermes", "glm-4.5"])
@pytest.mark.parametrize(
    ("schema", "pointer", "said"),
    [
        ({"properties": {"a/b": {"type": "strin"}}}, "/properties/a~1b", "strin"),
        ({"properties": {"a": {"minimum": "1", "type": "number"}}}, "/properties/a", "1"),
        (
            {"properties": {"a": {"type": "integer", "minimum": 2, "maximum": 1}}, "required": ["a"]},
            "",
            "no value satisfies",
        ),
    ],
)
def test_schemas_that_are_refused(name: str, schema: Any, pointer: str, said: str) -> None:
    tools = tool_calls.tools_of([NOW, {"type": "function", "function": {"name": "f", "parameters": schema}}])
    with pytest.raises(tool_calls.ToolError, match=said) as caught:
        form_of(name).plan(tools)
    assert caught.value.pointer.startswith("tools/1/function/parameters" + pointer)


def test_what_cannot_be_enforced_is_an_error_where_it_is_strict() -> None:
    unique = {"properties": {"a": {"type": "array", "items": {"type": "string"}, "uniqueItems": True}}}
    for name in ("hermes", "glm-4.5"):
        function = {"name": "f", "parameters": unique}
        assert form_of(name).plan(tool_calls.tools_of([{"type": "function", "function": function}])).guide is not None
        with pytest.raises(tool_calls.ToolError, match="uniqueItems"):
            form_of(name).plan(tool_calls.tools_of([{"type": "function", "function": {**function, "strict": True}}]))
