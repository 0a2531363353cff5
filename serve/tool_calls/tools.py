"""The tools of a request, and the choice of tools to call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from ...checks import brief, items_of, lone_surrogate, shown
from ...errors import OptionError

MAX_TOOLS = 2048
MAX_NAME = 256
Mode = Literal["auto", "none", "required"]


class ToolError(OptionError):
    """A tool, or a choice of tools, that cannot be used. pointer: its place, as "tools/0/function" in a request"""

    def __init__(self, reason: str, pointer: str) -> None:
        super().__init__(f"{pointer}: {reason}")
        self.reason = reason
        self.pointer = pointer

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason, self.pointer)


@dataclass(frozen=True)
class Tool:
    """A function that a model may call.

    parameters: the JSON Schema of its arguments, an object
    strict: whether the whole schema must be enforced; otherwise unenforceable parts are dropped
    pointer: place of the parameters in the request
    """

    name: str
    parameters: dict[str, Any]
    strict: bool
    pointer: str


@dataclass(frozen=True)
class ToolChoice:
    """The mode of calls, and the names of the tools that may be called."""

    mode: Mode
    names: frozenset[str]


def tools_of(value: Any, most: int = MAX_TOOLS) -> tuple[Tool, ...]:
    """Validate tools: a list of {"type": "function", "function": {...}}, or of functions as in /v1/responses.

    most: greatest number of tools

    Raises ToolError. The schemas are only checked when a guide is built.
    """
    items = () if value is None else items_of(value)
    if items is None:
        raise ToolError(f"expected a list of tools, not {shown(value)}", "tools")
    if len(items) > most:
        raise ToolError(
            f"{len(items):,} tools exceed the limit of {most:,}; send only those that fit the request", "tools"
        )
    tools = tuple(_tool(each, f"tools/{number}") for number, each in enumerate(items))
    places: dict[str, int] = {}
    for number, tool in enumerate(tools):
        if tool.name in places:
            where = tool.pointer.removesuffix("parameters") + "name"
            raise ToolError(f"{tool.name!r} is the name of tools/{places[tool.name]} too; names must differ", where)
        places[tool.name] = number
    return tools


def choice_of(value: Any, tools: tuple[Tool, ...]) -> ToolChoice:
    """Validate `tool_choice`: None, "auto", "none", "required", "any", a function by its name, or allowed tools.

    Raises ToolError.
    """
    names = frozenset(tool.name for tool in tools)
    modes: dict[str, Mode] = {"auto": "auto", "none": "none", "required": "required", "any": "required"}
    if value is None:
        return ToolChoice("auto", names)
    if isinstance(value, str) and value in modes:
        if modes[value] == "required" and not tools:
            raise ToolError(
                f"{value!r} needs tools, and the request has none; send tools, or leave tool_choice out", "tool_choice"
            )
        return ToolChoice(modes[value], names)
    if not isinstance(value, Mapping):
        raise ToolError(
            'expected "auto", "none", "required", "any" or {"type": "function", "function": {"name": ...}}, '
            f"not {shown(value)}",
            "tool_choice",
        )
    choice = cast("Mapping[str, Any]", value)
    if choice.get("type") == "allowed_tools":
        where = "tool_choice/allowed_tools" if "allowed_tools" in choice else "tool_choice"
        return _allowed_choice(choice.get("allowed_tools", choice), names, where)
    return ToolChoice("required", frozenset([_function_name(choice, names, "tool_choice")]))


def _allowed_choice(value: Any, names: frozenset[str], where: str) -> ToolChoice:
    """Return the choice of allowed tools, in the format of chats or of responses."""
    allowed = cast("Mapping[str, Any]", value if isinstance(value, Mapping) else {})
    mode, listed = allowed.get("mode", "auto"), items_of(allowed.get("tools"))
    if mode not in ("auto", "required") or not listed:
        raise ToolError('allowed_tools needs mode, "auto" or "required", and a list of tools', where)
    return ToolChoice(
        mode, frozenset(_function_name(each, names, f"{where}/tools/{number}") for number, each in enumerate(listed))
    )


def _function_name(value: Any, names: frozenset[str], where: str) -> str:
    """Return the name of a chosen function."""
    choice = cast("Mapping[str, Any]", value if isinstance(value, Mapping) else {})
    function: Any = choice.get("function", choice)
    if not isinstance(function, Mapping) or choice.get("type") != "function":
        raise ToolError(
            f'expected a function by its name, {{"type": "function", "function": {{"name": ...}}}}, not {shown(value)}',
            where,
        )
    name = cast("Mapping[str, Any]", function).get("name")
    if not isinstance(name, str) or name not in names:
        where = f"{where}/function" if "function" in choice else where
        raise ToolError(f"{brief(name)} is none of the {len(names):,} tools of the request", f"{where}/name")
    return name


def _tool(value: Any, where: str) -> Tool:
    if not isinstance(value, Mapping):
        raise ToolError(
            f'a tool must be {{"type": "function", "function": {{"name": ...}}}}, not {shown(value)}', where
        )
    outer = cast("Mapping[str, Any]", value)
    if outer.get("type", "function") != "function":
        raise ToolError(f"tools of type {brief(outer.get('type'))} are not supported, only functions", f"{where}/type")
    function: Any = outer.get("function", outer)
    if "function" in outer:
        where = f"{where}/function"
    if not isinstance(function, Mapping):
        raise ToolError(f"a function must be an object with name and parameters, not {shown(function)}", where)
    strict = cast("Mapping[str, Any]", function).get("strict")
    if strict is not None and not isinstance(strict, bool):
        raise ToolError(f"expected true, false or null, not {shown(strict)}", f"{where}/strict")
    name = _name(cast("Mapping[str, Any]", function).get("name"), f"{where}/name")
    parameters: Any = cast("Mapping[str, Any]", function).get("parameters")
    return Tool(name, _object(parameters, f"{where}/parameters"), bool(strict), f"{where}/parameters")


def _name(name: Any, where: str) -> str:
    if not isinstance(name, str) or not name:
        raise ToolError(f"the name of a function must be a string that is not empty, not {shown(name)}", where)
    if len(name) > MAX_NAME:
        raise ToolError(f"the name has {len(name):,} characters; the limit is {MAX_NAME}", where)
    if lone_surrogate(name) >= 0 or not name.isprintable():
        raise ToolError(f"{name!r} has unprintable characters; use letters, digits, _ and -", where)
    return name


def _object(schema: Any, where: str) -> dict[str, Any]:
    """Return the schema of arguments, an object. Without a schema it has no members."""
    if schema is None:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    if schema is True:
        return {"type": "object"}
    if not isinstance(schema, Mapping):
        raise ToolError(f"expected the JSON Schema of an object, not {shown(schema)}", where)
    found = dict(cast("Mapping[str, Any]", schema))
    kinds = found.get("type", "object")
    if kinds != "object" and not (isinstance(kinds, list) and "object" in kinds):
        raise ToolError(f'the type of arguments must be "object", not {brief(kinds)}', f"{where}/type")
    return {**found, "type": "object"}
