"""The arguments of a call as a piece of a guide: JSON, or parameters written one by one."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, cast
from urllib.parse import quote

from ...errors import LanguageError, LimitError, OptionError, SchemaError
from ...guides import JSONGuide
from ...guides.json_guide import Whitespace, meaning_of
from ...guides.json_schema import Form, Spacing
from ...guides.json_schema.algebra.cases import ANY_STRING, Normal, String
from ...guides.json_schema.automata.conjunction import table_of
from ...guides.json_schema.read.dialects import is_writable, type_of
from ...guides.json_schema.read.subschema import step_of
from ...guides.limits import Limits, Meter
from ...guides.protocol import DEAD
from ...guides.regular_guide import RegularGuide
from ...guides.syntax import Alternation
from ...guides.tagged.composed_guide import ComposedGuide, check_guide
from ...guides.tagged.pieces import (
    EMPTY,
    AnyOrder,
    Fixed,
    Free,
    Inner,
    InOrder,
    Named,
    OneOf,
    Piece,
    Several,
    optional,
)
from ...tokenizers_adapter import Vocabulary
from .formats import TYPE, Parameters, Spelling
from .tools import Tool, ToolError

ROOT = "urn:trellm:parameters"
# Keywords about all arguments together, which cannot be enforced for parameters written one by one.
OBJECT_KEYWORDS = (
    *("$ref", "$dynamicRef", "$recursiveRef"),
    *("allOf", "anyOf", "oneOf", "not", "if", "enum", "const", "patternProperties", "propertyNames", "minProperties"),
    *("maxProperties", "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties"),
)
# The same for all items of an array.
ARRAY_KEYWORDS = (
    *("uniqueItems", "prefixItems", "additionalItems", "unevaluatedItems", "contains", "minContains", "maxContains"),
)
ANNOTATIONS = frozenset({"title", "description", "default", "examples", "deprecated", "$comment"})
DEFINITION_KEYWORDS = frozenset({"$defs", "definitions", "$schema", "$id"})
_DEFINED = re.compile(r"#/(\$defs|definitions)/([^/~%]+)")
FORM = Form("schema", Spacing("flexible", 2), "canonical", "plain")
_SPECIAL = re.compile(r"([\\^$.*+?()\[\]{}|/])")


class ParameterValue(NamedTuple):
    """Spellings of a parameter's value: as JSON, or as a plain string; one of them may be None."""

    as_json: JSONGuide | None
    as_text: Piece | None

    def is_json(self, text: str) -> bool:
        """Test whether a text is JSON rather than a plain string. Ambiguous texts are JSON."""
        if self.as_json is None or self.as_text is None:
            return self.as_text is None
        state = self.as_json.read(self.as_json.start, text.encode())
        return state != DEAD and self.as_json.is_accepting(state)


class CallArguments(NamedTuple):
    """The arguments of a tool: a piece, and the spelling of each parameter's value, empty for JSON."""

    piece: Inner
    values: dict[str, ParameterValue]


def json_arguments(tool: Tool, vocabulary: Vocabulary, limits: Limits | None) -> CallArguments:
    """Return arguments as JSON. Raises ToolError for a schema that cannot be enforced."""
    return CallArguments(Inner(_json_guide(tool, tool.parameters, vocabulary, limits)), {})


def plain_arguments(
    tool: Tool,
    form: Parameters,
    spelling: Spelling,
    limits: Limits | None,
    *,
    any_order: bool = False,
    whitespace: Whitespace = "flexible",
) -> CallArguments:
    """Return arguments as parameters written one by one, in the order of the schema or in any. Raises ToolError."""
    builder = _ValueBuilder(tool, form, spelling, limits, any_order, whitespace)
    piece, values = builder.members(tool.parameters, "")
    return CallArguments(Inner(ComposedGuide(piece, spelling.vocabulary, limits=limits)), values)


def _resolve_root(root: dict[str, Any]) -> dict[str, Any]:
    """Resolve a schema that is only a reference to one of its definitions. Return other schemas unchanged."""
    found = _DEFINED.fullmatch(str(root.get("$ref")))
    beside = {name: value for name, value in root.items() if name != "$ref"}
    if found is None or beside.keys() - ANNOTATIONS - DEFINITION_KEYWORDS - {"type"}:
        return root
    target = root.get(found[1], {}).get(found[2])
    if not isinstance(target, Mapping) or DEFINITION_KEYWORDS & cast("Mapping[str, Any]", target).keys():
        return root
    return {**cast("Mapping[str, Any]", target), **beside}


class _ValueBuilder:
    """Builds the values of a tool's parameters, including nested ones if the format writes these one by one."""

    def __init__(
        self,
        tool: Tool,
        form: Parameters,
        spelling: Spelling,
        limits: Limits | None,
        any_order: bool,
        whitespace: Whitespace,
    ) -> None:
        self._whitespace: Whitespace = whitespace
        self._root = _resolve_root(tool.parameters)
        self._tool, self._spelling = replace(tool, parameters=self._root), spelling
        self._form, self._limits, self._any_order = _with_token(form, spelling), limits, any_order

    def members(self, schema: Mapping[str, Any], path: str) -> tuple[Piece, dict[str, ParameterValue]]:
        """Return the members of an object, one by one, and the spelling of each value. path: path of the schema"""
        schema, form = (self._root if not path else schema), self._form
        properties, required = self._properties(schema, path)
        values: dict[str, ParameterValue] = {}
        items: list[Piece] = []
        for name, inner in properties.items():
            if any(mark in name for mark in (form.behind_name[:1], form.before[:1], "\n")):
                message = f"the tool-call format writes names without quotes, and cannot express {name!r}"
                raise ToolError(message, self._at(path, "properties"))
            within = "additionalProperties"
            if name in schema.get("properties", {}):
                within = f"properties/{step_of(name)}"
            values[name], piece = self._value((form.before, name), inner, f"{path}/{within}".lstrip("/"))
            items.append(piece)
        if self._any_order:
            return AnyOrder(tuple(items), tuple(name in required for name in properties)), values
        named = zip(properties, items, strict=True)
        return InOrder(tuple(item if name in required else optional(item) for name, item in named)), values

    def _properties(self, schema: Mapping[str, Any], path: str) -> tuple[dict[str, Any], frozenset[str]]:
        """Return the schemas of members by name, and the names of required ones."""
        self._check_keywords(schema, OBJECT_KEYWORDS, path)
        members = schema.get("properties", {})
        if not isinstance(members, Mapping):
            raise ToolError("expected an object of schemas", self._at(path, "properties"))
        required = schema.get("required", [])
        if not isinstance(required, list) or not all(isinstance(each, str) for each in cast("list[Any]", required)):
            raise ToolError("expected a list of names", self._at(path, "required"))
        properties = dict(cast("Mapping[str, Any]", members))
        for name in cast("list[str]", required):
            properties.setdefault(name, schema.get("additionalProperties", True))
        return properties, frozenset(cast("list[str]", required))

    def _check_keywords(self, schema: Mapping[str, Any], names: Iterable[str], path: str) -> None:
        """Raise ToolError for a keyword about all members or items together."""
        keyword = next((name for name in names if name in schema), None)
        if keyword is not None and self._tool.strict:
            raise ToolError(
                "the tool-call format writes parameters one by one, and cannot enforce a keyword about all of them; "
                "leave it out, set strict to false, or choose a format that writes arguments as JSON",
                self._at(path, keyword),
            )

    def _at(self, *path: str) -> str:
        return "/".join(filter(None, (self._tool.pointer, *path)))

    def _value(self, lead: tuple[str, ...], schema: Any, path: str) -> tuple[ParameterValue, Piece]:
        """Return the spelling of a value, and the piece from its lead to its end."""
        narrowed = self._self_contained(schema) or {"$ref": f"{ROOT}#/{_percent(path)}"}
        normal = self._meaning(narrowed, path)
        text, kinds = self._as_text(normal.strings, path), _other_kinds(normal)
        ways: list[Piece] = []
        if self._form.item:
            ways += self._nested(lead, schema, path, kinds)
            kinds = [kind for kind in kinds if kind not in ("array", "object")]
        if text is None and normal.strings:
            kinds.append("string")
        json_schema = narrowed if text is None and not self._form.item else {"allOf": [narrowed], "type": kinds}
        value = ParameterValue(self._json(json_schema, path) if kinds else None, text)
        ways += self._ways(lead, value, narrowed, kinds, path)
        if not ways:
            raise ToolError("the tool-call format cannot express the values of this schema", self._at(path))
        return value, ways[0] if len(ways) == 1 else OneOf(tuple(ways))

    def _self_contained(self, schema: Any) -> dict[str, Any] | None:
        """Return a self-contained schema without annotations, so that equal ones are shared; None if it has
        references."""
        if not isinstance(schema, Mapping) or _has_references(schema):
            return None
        members = cast("Mapping[str, Any]", schema)
        dialect = {"$schema": self._root["$schema"]} if "$schema" in self._root else {}
        return {**{name: value for name, value in members.items() if name not in ANNOTATIONS}, **dialect}

    def _ways(
        self, lead: tuple[str, ...], value: ParameterValue, narrowed: dict[str, Any], kinds: list[str], path: str
    ) -> Iterator[Piece]:
        """Yield the alternatives of a value: as JSON, and as plain text."""
        form = self._form
        end, behind = self._spelling.marker(form.end), self._spelling.fixed(form.behind)
        line = Fixed(("\n",)) if form.own_line else EMPTY
        typed = [(form.behind_name, value.as_json)]
        if form.types:
            several = [(kind, written) for kind, written in form.types if kind in kinds]
            guides = [self._json({"allOf": [narrowed], "type": kind}, path) for kind, _ in several]
            heads = [form.behind_name.replace(TYPE, written) for _, written in several]
            typed = list(zip(heads, guides, strict=True))
        for head, guide in typed:
            if guide is not None:
                yield InOrder((self._head(lead, head), Inner(guide), line, Fixed((end,)), behind))
        before = self._head(lead, form.behind_text or form.behind_name)
        if isinstance(value.as_text, Free):
            yield InOrder((before, Free(((end, behind),))))
        elif value.as_text is not None:
            yield InOrder((before, value.as_text, line, Fixed((end,)), behind))

    def _head(self, lead: tuple[str, ...], behind: str) -> Fixed:
        """Return the text before a value. behind: text after a name; for an item, which has no name, without its
        closing quote"""
        return self._spelling.fixed(*lead, behind if len(lead) > 1 else behind.removeprefix('"'))

    def _nested(self, lead: tuple[str, ...], schema: Any, path: str, kinds: list[str]) -> Iterator[Piece]:
        """Yield objects and arrays whose members and items are written one by one, if their schemas name them."""
        form = self._form
        mapping: Mapping[str, Any] = cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else {}
        if "$ref" in mapping:
            raise ToolError(
                "the tool-call format writes nested objects and arrays in place, and does not support references",
                self._at(path),
            )
        end = (Fixed((self._spelling.marker(form.end),)), self._spelling.fixed(form.behind))
        if "object" in kinds and "properties" in mapping:
            members, _ = self.members(mapping, path)
            yield InOrder((self._head(lead, form.behind_dict), members, *end))
        if "array" in kinds and isinstance(mapping.get("items"), Mapping):
            self._check_keywords(mapping, (*OBJECT_KEYWORDS, *ARRAY_KEYWORDS), path)
            _, item = self._value((form.item,), mapping["items"], f"{path}/items")
            least, most = int(mapping.get("minItems", 0)), mapping.get("maxItems")
            items: Piece = EMPTY if most == 0 else Several(item, EMPTY, least or 1, most and int(most))
            yield InOrder((self._head(lead, form.behind_list), items if least else optional(items), *end))

    def _json(self, schema: dict[str, Any], path: str) -> JSONGuide:
        resources, vocabulary = self._resources(schema), self._spelling.vocabulary
        return _json_guide(self._tool, schema, vocabulary, self._limits, resources, path, self._whitespace)

    def _meaning(self, schema: dict[str, Any], path: str) -> Normal:
        unenforced = "refuse" if self._tool.strict else "allow"
        with _convert_errors(self._tool, path):
            return meaning_of(schema, self._resources(schema), FORM, unenforced, self._limits)

    def _resources(self, schema: dict[str, Any]) -> dict[str, Any]:
        return {ROOT: self._root} if _has_references(schema) else {}

    def _as_text(self, cases: tuple[String, ...], path: str) -> Piece | None:
        """Return plain strings; None if there are none, or if a listed one has to be written as JSON."""
        if any(case == ANY_STRING for case in cases):
            return Free(((self._form.end, EMPTY),))
        listed = [case.values for case in cases if case.values is not None]
        if len(listed) == len(cases):
            texts = sorted(text for text in frozenset[str]().union(*listed) if is_writable(text))
            if not texts or any(self._form.end in each for each in texts):
                return None
            return Named(tuple((Fixed((each,) if each else ()), EMPTY) for each in texts))
        try:
            with Meter(self._limits):
                texts = Alternation(tuple(table_of(_without_end(case, self._form.end)) for case in cases))
                return Inner(RegularGuide(texts, self._spelling.vocabulary))
        except (LanguageError, LimitError) as error:
            if self._tool.strict:
                raise ToolError(
                    f"the tool-call format cannot enforce this schema of strings: {error}", self._at(path)
                ) from error
            return Free(((self._form.end, EMPTY),))


def _with_token(form: Parameters, spelling: Spelling) -> Parameters:
    """Replace the end of a format's values by a token if it begins with the text of one."""
    text = next((text for text in spelling.tokens if form.end.startswith(text)), form.end)
    return replace(form, end=text, behind=form.end.removeprefix(text) + form.behind)


def _json_guide(
    tool: Tool,
    schema: dict[str, Any],
    vocabulary: Vocabulary,
    limits: Limits | None,
    resources: Mapping[str, Any] | None = None,
    path: str = "",
    whitespace: Whitespace = "flexible",
) -> JSONGuide:
    """Return the guide of a schema. Raises ToolError."""
    with _convert_errors(tool, path):
        guide = JSONGuide(
            schema,
            vocabulary,
            order=FORM.order,
            spelling=FORM.spelling,
            whitespace=whitespace,
            resources=resources,
            unenforced="refuse" if tool.strict else "allow",
            limits=limits,
        )
        if not tool.strict and getattr(guide, "refuses_lowering", ""):
            plain = {uri: _without_unique(value) for uri, value in (resources or {}).items()}
            return _json_guide(tool, _without_unique(schema), vocabulary, limits, plain, path, whitespace)
        check_guide(guide)
        return guide


@contextmanager
def _convert_errors(tool: Tool, path: str) -> Generator[None]:
    """Convert errors of a schema to ToolErrors with their place. path: path within the parameters, "" to use the
    error's own"""
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
    """Remove `uniqueItems`, which guides inside other text may not support."""
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        return {name: _without_unique(each) for name, each in members.items() if (name, each) != ("uniqueItems", True)}
    return [_without_unique(each) for each in cast("list[Any]", value)] if isinstance(value, list) else value


def _other_kinds(normal: Normal) -> list[str]:
    """Return the JSON types of values other than strings. Integers are numbers."""
    kinds = {type_of(value) for value in normal.constants}
    found = (("null", normal.null), ("boolean", normal.booleans), ("number", normal.numbers))
    kinds |= {kind for kind, cases in (*found, ("array", normal.arrays), ("object", normal.objects)) if cases}
    return sorted(kinds)


def _without_end(case: String, end: str) -> String:
    """Remove the strings that contain a value's end from a set."""
    if case.values is not None:
        return replace(case, values=frozenset(text for text in case.values if end not in text))
    return replace(case, not_patterns=case.not_patterns | {literal_pattern(end)})


def literal_pattern(text: str) -> str:
    """Return the pattern, valid in JSON Schema and Python, of a literal text."""
    return _SPECIAL.sub(r"\\\1", text)


def _has_references(value: Any) -> bool:
    """Test whether a schema contains references or their targets."""
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        return any(str(name).startswith("$") or _has_references(each) for name, each in members.items())
    return isinstance(value, list) and any(map(_has_references, cast("list[Any]", value)))


def _percent(path: str) -> str:
    return quote(path, safe="/~")
