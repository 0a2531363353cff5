"""The arguments of a call as a piece of a guide: JSON, or parameters that are written one by one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, cast
from urllib.parse import quote

from ...errors import LanguageError, LimitError, OptionError, PatternError, SchemaError
from ...guides import JSONGuide, RegexGuide
from ...guides.json_schema.read.formats import PATTERNS
from ...guides.limits import Limits
from ...guides.protocol import DEAD
from ...guides.tagged.composed_guide import ComposedGuide, check_guide
from ...guides.tagged.pieces import NOTHING, Fixed, Free, Inner, InOrder, Named, OneOf, Piece
from ...tokenizers_adapter import Vocabulary
from .families import Parameters
from .spelling import Spelling
from .tools import Tool, ToolError

ROOT = "urn:trellm:parameters"
KINDS = frozenset({"string", "number", "boolean", "null", "object", "array"})
# Keywords on all arguments together, which parameters that are written one by one cannot be held to
TOGETHER = (
    *("allOf", "anyOf", "oneOf", "not", "if", "enum", "const", "patternProperties", "propertyNames", "minProperties"),
    *("maxProperties", "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties"),
)
OF_STRINGS = frozenset({"pattern", "format", "minLength", "maxLength"})
DESCRIBING = frozenset({"title", "description", "default", "examples", "deprecated", "$comment"})
# Keywords that say nothing of which strings there may be
BESIDE = DESCRIBING | {"type"}


_SPECIAL, _ESCAPED = re.compile(r"([\\^$.*+?()\[\]{}|/])"), r"\\\1"


class Value(NamedTuple):
    """How a parameter's value is written: as JSON of a guide, or as it is, a string; one of them may be None."""

    as_json: JSONGuide | None
    as_text: Piece | None

    def is_json(self, text: str) -> bool:
        """Whether a text is JSON rather than a string, which it is if it can be both."""
        if self.as_json is None or self.as_text is None:
            return self.as_text is None
        state = self.as_json.read(self.as_json.start, text.encode())
        return state != DEAD and self.as_json.is_accepting(state)


class Arguments(NamedTuple):
    """The arguments of a tool: a piece, and how the value of each parameter is written, empty for JSON."""

    piece: Inner
    values: dict[str, Value]


def json_arguments(tool: Tool, vocabulary: Vocabulary, limits: Limits | None) -> Arguments:
    """Arguments as JSON. Raises ToolError for a schema that cannot be enforced."""
    return Arguments(Inner(_json_guide(tool, tool.parameters, vocabulary, limits)), {})


def plain_arguments(
    tool: Tool, form: Parameters, spelling: Spelling, vocabulary: Vocabulary, limits: Limits | None
) -> Arguments:
    """Arguments as parameters that are written one by one, in the order of the schema. Raises ToolError."""
    properties, required = _properties(tool)
    reader = _Values(tool, form, spelling, vocabulary, limits)
    values: dict[str, Value] = {}
    items: list[Piece] = []
    for name in properties:
        if any(mark in name for mark in (form.behind_name[:1], form.before[:1], "\n")):
            raise ToolError(f"the form writes names plainly, and cannot write {name!r}", f"{tool.pointer}/properties")
        values[name] = value = reader.value(name)
        ways = list(reader.ways(name, value))
        one = ways[0] if len(ways) == 1 else OneOf(tuple(ways))
        items.append(one if name in required else OneOf((one, NOTHING)))
    return Arguments(Inner(ComposedGuide(InOrder(tuple(items)), vocabulary, limits=limits)), values)


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
    """How the values of a tool's parameters are written."""

    def __init__(
        self, tool: Tool, form: Parameters, spelling: Spelling, vocabulary: Vocabulary, limits: Limits | None
    ) -> None:
        self._tool, self._form, self._spelling = tool, form, spelling
        self._vocabulary, self._limits = vocabulary, limits

    def value(self, name: str) -> Value:
        """That of the parameter of this name."""
        root = self._tool.parameters
        inside = name in root.get("properties", {})
        path = f"properties/{name.replace('~', '~0').replace('/', '~1')}" if inside else "additionalProperties"
        schema = root.get("properties", {}).get(name, root.get("additionalProperties", True))
        kinds = kinds_of(schema, root)
        text = self._as_text(schema, path) if "string" in kinds else None
        others = kinds if text is None else kinds - {"string"}
        if not others and text is not None:
            return Value(None, text)
        narrowed = self._alone(schema) or {"$ref": f"{ROOT}#/{_percent(path)}"}
        if text is not None and others != kinds:
            narrowed = {"allOf": [narrowed], "type": sorted(others)}
        try:
            return Value(self._json(narrowed, path), text)
        except ToolError:
            if text is None:
                raise
            return Value(None, text)  # no instance of another type than a string

    def _alone(self, schema: Any) -> dict[str, Any] | None:
        """A schema that refers to no other, without what only describes it: many parameters have the same."""
        if not isinstance(schema, Mapping) or _refers(schema):
            return None
        given = cast("Mapping[str, Any]", schema)
        dialect = {"$schema": self._tool.parameters["$schema"]} if "$schema" in self._tool.parameters else {}
        return {**{name: value for name, value in given.items() if name not in DESCRIBING}, **dialect}

    def ways(self, name: str, value: Value) -> Iterator[Piece]:
        """How a parameter may be written, from what stands before its name to its end."""
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
        resources = {ROOT: self._tool.parameters} if _refers(schema) else None
        return _json_guide(self._tool, schema, self._vocabulary, self._limits, resources, path)

    def _as_text(self, schema: Any, path: str) -> Piece | None:
        """Strings as they are, None where that cannot be said, and they are written as JSON."""
        found = strings_of(schema, self._tool.parameters)
        if found is None:
            return None
        if "const" in found or "enum" in found:
            texts = [each for each in found.get("enum", [found.get("const")]) if isinstance(each, str)]
            if not texts or any(self._form.end in each for each in texts) or OF_STRINGS & found.keys():
                return None
            return Named(tuple((Fixed((each,) if each else ()), NOTHING) for each in dict.fromkeys(texts)))
        if not OF_STRINGS & found.keys():
            return Free(((self._form.end, NOTHING),))
        try:
            return Inner(
                RegexGuide(_pattern(found, self._form.end), self._vocabulary, dialect="ecma", limits=self._limits)
            )
        except (PatternError, LanguageError, LimitError, KeyError) as error:
            if self._tool.strict:
                raise ToolError(
                    f"strings that this form cannot hold to it: {error}", f"{self._tool.pointer}/{path}"
                ) from error
            return None


def _json_guide(
    tool: Tool,
    schema: dict[str, Any],
    vocabulary: Vocabulary,
    limits: Limits | None,
    resources: Mapping[str, Any] | None = None,
    path: str = "",
) -> JSONGuide:
    """The guide of a schema. Raises ToolError."""
    try:
        guide = JSONGuide(
            schema,
            vocabulary,
            order="schema",
            spelling="plain",
            resources=resources,
            unenforced="refuse" if tool.strict else "allow",
            limits=limits,
        )
        if not tool.strict and getattr(guide, "refuses_lowering", ""):
            plain = {uri: _without_unique(value) for uri, value in (resources or {}).items()}
            return _json_guide(tool, _without_unique(schema), vocabulary, limits, plain, path)
        check_guide(guide)
        return guide
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


def kinds_of(schema: Any, root: dict[str, Any], depth: int = 0) -> frozenset[str]:
    """The JSON types that an instance may have, or more; an integer is a number."""
    if not isinstance(schema, Mapping) or depth > 20:
        return KINDS
    given = cast("Mapping[str, Any]", schema)
    found = KINDS
    if "type" in given:
        kinds: Any = given["type"]
        listed = cast("list[Any]", kinds if isinstance(kinds, list) else [kinds])
        found &= frozenset("number" if each == "integer" else str(each) for each in listed)
    if "const" in given or isinstance(given.get("enum"), list):
        found &= frozenset(map(_kind, given["enum"] if "enum" in given else [given["const"]]))
    if "$ref" in given:
        found &= kinds_of(_target(given["$ref"], root), root, depth + 1)
    for several in ("anyOf", "oneOf"):
        if isinstance(given.get(several), list):
            found &= frozenset().union(*(kinds_of(each, root, depth + 1) for each in given[several]))
    for each in given.get("allOf", ()) if isinstance(given.get("allOf"), list) else ():
        found &= kinds_of(each, root, depth + 1)
    return found


def strings_of(schema: Any, root: dict[str, Any], depth: int = 0) -> dict[str, Any] | None:
    """The keywords that strings among the instances must meet, {} for any string, None where it is not said so."""
    if schema is True:
        return {}
    if not isinstance(schema, Mapping) or depth > 20:
        return None
    given = {name: value for name, value in cast("Mapping[str, Any]", schema).items() if not _says_nothing(name, value)}
    for several in ("anyOf", "oneOf"):
        if several in given and isinstance(given[several], list):
            branches = [each for each in given.pop(several) if "string" in kinds_of(each, root)]
            return strings_of(branches[0], root, depth + 1) if len(branches) == 1 and not given else None
    if "$ref" in given:
        target = _target(given.pop("$ref"), root)
        return strings_of(target, root, depth + 1) if target is not None and not given else None
    if given.keys() - OF_STRINGS - {"enum", "const"}:
        return None
    return given


def _says_nothing(name: str, value: Any) -> bool:
    """Whether a keyword says nothing of strings beyond their type."""
    of_others = {
        "properties",
        "required",
        "additionalProperties",
        "items",
        "minimum",
        "maximum",
        "minItems",
        "maxItems",
    }
    return name in BESIDE or name in of_others or (name == "format" and value not in PATTERNS)


def _pattern(found: Mapping[str, Any], end: str) -> str:
    """A pattern of ECMA-262 for the strings that meet some keywords, and do not contain what ends a value."""
    ahead = [f"(?![\\s\\S]*{_SPECIAL.sub(_ESCAPED, end)})"]
    if "pattern" in found:
        ahead.append(f"(?=[\\s\\S]*?(?:{found['pattern']}))")
    if "format" in found:
        ahead.append(f"(?=(?:{PATTERNS[found['format']]})$)")
    most = found.get("maxLength", "")
    return f"{''.join(ahead)}[\\s\\S]{{{found.get('minLength', 0)},{most}}}"


def _refers(value: Any) -> bool:
    """Whether a schema has references, or what they may refer to."""
    if isinstance(value, Mapping):
        given = cast("Mapping[str, Any]", value)
        return any(str(name).startswith("$") or _refers(each) for name, each in given.items())
    return isinstance(value, list) and any(map(_refers, cast("list[Any]", value)))


def _target(reference: Any, root: dict[str, Any]) -> Any:
    """What a reference within the schema refers to; None for any other."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    found: Any = root
    for part in reference[1:].split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        found = cast("Mapping[str, Any]", found).get(name) if isinstance(found, Mapping) else None
    return found


def _kind(value: Any) -> str:
    """The JSON type of a value."""
    for kinds, name in ((str, "string"), (bool, "boolean"), ((int, float), "number"), (list, "array")):
        if isinstance(value, kinds):
            return name
    return "null" if value is None else "object"


def _percent(path: str) -> str:
    return quote(path, safe="/~")
