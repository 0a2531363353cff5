"""The arguments of a call as a piece of a guide: JSON, or parameters that are written one by one."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, cast
from urllib.parse import quote

from ...errors import LanguageError, LimitError, OptionError, SchemaError
from ...guides import JSONGuide
from ...guides.json_guide import meaning_of
from ...guides.json_schema import Form, Spacing
from ...guides.json_schema.algebra.cases import ANY_STRING, Normal, String
from ...guides.json_schema.automata.conjunction import table_of
from ...guides.json_schema.read.dialects import is_writable, type_of
from ...guides.limits import Limits, Meter
from ...guides.protocol import DEAD
from ...guides.regular_guide import RegularGuide
from ...guides.syntax import Alternation
from ...guides.tagged.composed_guide import ComposedGuide, check_guide
from ...guides.tagged.pieces import NOTHING, Fixed, Free, Inner, InOrder, Named, OneOf, Piece
from ...tokenizers_adapter import Vocabulary
from .formats import Parameters, Spelling
from .tools import Tool, ToolError

ROOT = "urn:trellm:parameters"
# Keywords on all arguments together, which parameters that are written one by one cannot be held to
TOGETHER = (
    *("$ref", "$dynamicRef", "$recursiveRef"),
    *("allOf", "anyOf", "oneOf", "not", "if", "enum", "const", "patternProperties", "propertyNames", "minProperties"),
    *("maxProperties", "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties"),
)
DESCRIBING = frozenset({"title", "description", "default", "examples", "deprecated", "$comment"})
SURROUNDING = frozenset({"$defs", "definitions", "$schema", "$id"})
_DEFINED = re.compile(r"#/(\$defs|definitions)/([^/~%]+)")
WRITTEN = Form("schema", Spacing("flexible", 2), "canonical", "plain")
_SPECIAL, _ESCAPED = re.compile(r"([\\^$.*+?()\[\]{}|/])"), r"\\\1"


class ParameterValue(NamedTuple):
    """Spellings of a parameter's value: as JSON of a guide, or as it is, a string; one of them may be None."""

    as_json: JSONGuide | None
    as_text: Piece | None

    def is_json(self, text: str) -> bool:
        """Tell whether a text is JSON rather than a string, which it is if it can be both."""
        if self.as_json is None or self.as_text is None:
            return self.as_text is None
        state = self.as_json.read(self.as_json.start, text.encode())
        return state != DEAD and self.as_json.is_accepting(state)


class CallArguments(NamedTuple):
    """The arguments of a tool: a piece, and how the value of each parameter is written, empty for JSON."""

    piece: Inner
    values: dict[str, ParameterValue]


def json_arguments(tool: Tool, vocabulary: Vocabulary, limits: Limits | None) -> CallArguments:
    """Arguments as JSON. Raises ToolError for a schema that cannot be enforced."""
    return CallArguments(Inner(_json_guide(tool, tool.parameters, vocabulary, limits)), {})


def plain_arguments(tool: Tool, form: Parameters, spelling: Spelling, limits: Limits | None) -> CallArguments:
    """Arguments as parameters that are written one by one, in the order of the schema. Raises ToolError."""
    tool = replace(tool, parameters=_followed(tool.parameters))
    properties, required = _properties(tool)
    reader = _Values(tool, form, spelling, limits)
    values: dict[str, ParameterValue] = {}
    items: list[Piece] = []
    for name in properties:
        if any(mark in name for mark in (form.behind_name[:1], form.before[:1], "\n")):
            raise ToolError(f"the form writes names plainly, and cannot write {name!r}", f"{tool.pointer}/properties")
        values[name] = value = reader.value(name)
        ways = list(reader.ways(name, value))
        one = ways[0] if len(ways) == 1 else OneOf(tuple(ways))
        items.append(one if name in required else OneOf((one, NOTHING)))
    return CallArguments(Inner(ComposedGuide(InOrder(tuple(items)), spelling.vocabulary, limits=limits)), values)


def _followed(root: dict[str, Any]) -> dict[str, Any]:
    """A schema that only refers to one of its definitions, as that one beside the definitions; others as they are."""
    found = _DEFINED.fullmatch(str(root.get("$ref")))
    beside = {name: value for name, value in root.items() if name != "$ref"}
    if found is None or beside.keys() - DESCRIBING - SURROUNDING - {"type"}:
        return root
    target = root.get(found[1], {}).get(found[2])
    if not isinstance(target, Mapping) or SURROUNDING & cast("Mapping[str, Any]", target).keys():
        return root
    return {**cast("Mapping[str, Any]", target), **beside}


def _properties(tool: Tool) -> tuple[dict[str, Any], frozenset[str]]:
    """The schemas of parameters by their names, and those that must be there."""
    root = tool.parameters
    together = next((name for name in TOGETHER if name in root), None)
    if together is not None and tool.strict:
        raise ToolError(
            "parameters are written one by one in this form, and cannot be held to what is said of all of them "
            "together; leave it out, set strict to false, or choose a form that writes arguments as JSON",
            f"{tool.pointer}/{together}",
        )
    given = root.get("properties", {})
    if not isinstance(given, Mapping):
        raise ToolError("properties are an object of schemas", f"{tool.pointer}/properties")
    wanted = root.get("required", [])
    if not isinstance(wanted, list) or not all(isinstance(each, str) for each in cast("list[Any]", wanted)):
        raise ToolError("a list of names", f"{tool.pointer}/required")
    properties = dict(cast("Mapping[str, Any]", given))
    for name in cast("list[str]", wanted):
        properties.setdefault(name, root.get("additionalProperties", True))
    return properties, frozenset(cast("list[str]", wanted))


class _Values:
    """Spellings of the values of a tool's parameters."""

    def __init__(self, tool: Tool, form: Parameters, spelling: Spelling, limits: Limits | None) -> None:
        self._tool, self._form, self._spelling, self._limits = tool, form, spelling, limits

    def value(self, name: str) -> ParameterValue:
        """The way in which the value of a parameter is written."""
        root = self._tool.parameters
        inside = name in root.get("properties", {})
        path = f"properties/{name.replace('~', '~0').replace('/', '~1')}" if inside else "additionalProperties"
        schema = root.get("properties", {}).get(name, root.get("additionalProperties", True))
        narrowed = self._alone(schema) or {"$ref": f"{ROOT}#/{_percent(path)}"}
        normal = self._meaning(narrowed, path)
        text = self._as_text(normal.strings, path)
        if text is None:
            return ParameterValue(self._json(narrowed, path), None)
        others = _other_kinds(normal)
        return ParameterValue(self._json({"allOf": [narrowed], "type": others}, path) if others else None, text)

    def _alone(self, schema: Any) -> dict[str, Any] | None:
        """A schema that refers to no other, without what only describes it: many parameters have the same."""
        if not isinstance(schema, Mapping) or _refers(schema):
            return None
        given = cast("Mapping[str, Any]", schema)
        dialect = {"$schema": self._tool.parameters["$schema"]} if "$schema" in self._tool.parameters else {}
        return {**{name: value for name, value in given.items() if name not in DESCRIBING}, **dialect}

    def ways(self, name: str, value: ParameterValue) -> Iterator[Piece]:
        """Ways to write a parameter, from what stands before its name to its end."""
        form = self._form
        end, behind = self._spelling.marker(form.end), self._spelling.fixed(form.behind)
        line = Fixed(("\n",)) if form.own_line else NOTHING
        if value.as_json is not None:
            before = self._spelling.fixed(form.before, name, form.behind_name)
            yield InOrder((before, Inner(value.as_json), line, Fixed((end,)), behind))
        before = self._spelling.fixed(form.before, name, form.behind_text or form.behind_name)
        if isinstance(value.as_text, Free):
            yield InOrder((before, Free(((end, behind),))))
        elif value.as_text is not None:
            yield InOrder((before, value.as_text, line, Fixed((end,)), behind))

    def _json(self, schema: dict[str, Any], path: str) -> JSONGuide:
        return _json_guide(self._tool, schema, self._spelling.vocabulary, self._limits, self._resources(schema), path)

    def _meaning(self, schema: dict[str, Any], path: str) -> Normal:
        unenforced = "refuse" if self._tool.strict else "allow"
        with _placed(self._tool, path):
            return meaning_of(schema, self._resources(schema), WRITTEN, unenforced, self._limits)

    def _resources(self, schema: dict[str, Any]) -> dict[str, Any]:
        return {ROOT: self._tool.parameters} if _refers(schema) else {}

    def _as_text(self, cases: tuple[String, ...], path: str) -> Piece | None:
        """Strings as they are; None where there are none, or one of a list is such that it must be written as JSON."""
        if any(case == ANY_STRING for case in cases):
            return Free(((self._form.end, NOTHING),))
        listed = [case.values for case in cases if case.values is not None]
        if len(listed) == len(cases):
            texts = sorted(text for text in frozenset[str]().union(*listed) if is_writable(text))
            if not texts or any(self._form.end in each for each in texts):
                return None
            return Named(tuple((Fixed((each,) if each else ()), NOTHING) for each in texts))
        try:
            with Meter(self._limits):
                texts = Alternation(tuple(table_of(_without_end(case, self._form.end)) for case in cases))
                return Inner(RegularGuide(texts, self._spelling.vocabulary))
        except (LanguageError, LimitError) as error:
            if self._tool.strict:
                raise ToolError(
                    f"strings that this form cannot hold to it: {error}", f"{self._tool.pointer}/{path}"
                ) from error
            return Free(((self._form.end, NOTHING),))


def _json_guide(
    tool: Tool,
    schema: dict[str, Any],
    vocabulary: Vocabulary,
    limits: Limits | None,
    resources: Mapping[str, Any] | None = None,
    path: str = "",
) -> JSONGuide:
    """The guide of a schema. Raises ToolError."""
    with _placed(tool, path):
        guide = JSONGuide(
            schema,
            vocabulary,
            order=WRITTEN.order,
            spelling=WRITTEN.spelling,
            resources=resources,
            unenforced="refuse" if tool.strict else "allow",
            limits=limits,
        )
        if not tool.strict and getattr(guide, "refuses_lowering", ""):
            plain = {uri: _without_unique(value) for uri, value in (resources or {}).items()}
            return _json_guide(tool, _without_unique(schema), vocabulary, limits, plain, path)
        check_guide(guide)
        return guide


@contextmanager
def _placed(tool: Tool, path: str) -> Generator[None]:
    """Errors of a schema as a ToolError at its place. path: that of a part of the parameters, else that of the error"""
    try:
        yield
    except (SchemaError, LimitError) as error:
        pointer = error.pointer or ""
        at = pointer.removeprefix("#/") if pointer.startswith("#") and not path else path
        where = "/".join(part for part in (tool.pointer, at.strip("#")) if part)
        raise ToolError(error.reason, where) from error
    except (LanguageError, OptionError) as error:
        raise ToolError(str(error), f"{tool.pointer}/{path}".rstrip("/")) from error


def _without_unique(value: Any) -> Any:
    """A schema without `uniqueItems`, which some guides cannot hold to within other text."""
    if isinstance(value, Mapping):
        given = cast("Mapping[str, Any]", value)
        return {name: _without_unique(each) for name, each in given.items() if (name, each) != ("uniqueItems", True)}
    return [_without_unique(each) for each in cast("list[Any]", value)] if isinstance(value, list) else value


def _other_kinds(normal: Normal) -> list[str]:
    """The JSON types of values that are no strings; an integer is a number."""
    kinds = {type_of(value) for value in normal.constants}
    found = (("null", normal.null), ("boolean", normal.booleans), ("number", normal.numbers))
    kinds |= {kind for kind, cases in (*found, ("array", normal.arrays), ("object", normal.objects)) if cases}
    return sorted(kinds)


def _without_end(case: String, end: str) -> String:
    """The strings of a set that do not contain what ends a value."""
    if case.values is not None:
        return replace(case, values=frozenset(text for text in case.values if end not in text))
    return replace(case, not_patterns=case.not_patterns | {_SPECIAL.sub(_ESCAPED, end)})


def _refers(value: Any) -> bool:
    """Tell whether a schema has references, or what they may refer to."""
    if isinstance(value, Mapping):
        given = cast("Mapping[str, Any]", value)
        return any(str(name).startswith("$") or _refers(each) for name, each in given.items())
    return isinstance(value, list) and any(map(_refers, cast("list[Any]", value)))


def _percent(path: str) -> str:
    return quote(path, safe="/~")
