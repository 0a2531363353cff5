"""Descriptions of JSON schemas for prompts: a skeleton with type names, which small models follow best."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from ...errors import OptionError
from ...guides.json_schema.read.subschema import key_of, parsed
from ..structures import structure_of
from .arguments import Prompt, is_chat

LEAD = "Answer with JSON like this:"
MAX_CHARS = 2000
"""Greatest length of a skeleton. The most deeply nested parts are omitted first."""
MAX_DEPTH = 8
MAX_PARTS = 500
"""Greatest number of visited subschemas. References can expand beyond the size of the schema's text."""
MAX_VALUES = 24
MAX_COMMENT = 80
CUT = "..."
_SILENT = frozenset(("title", "description", "default", "examples", "deprecated", "$defs", "definitions", "$schema"))
_NAMED_FORMATS = frozenset(("date", "time", "date-time", "duration", "email", "uri", "uuid", "ipv4", "ipv6"))


def describe(schema: Any) -> str:
    """Return an instruction that shows which JSON to write, for the end of a prompt.

    schema: a schema as for `generate.json`

    The skeleton names types. Bars separate alternatives and enum values, optional members have a question mark, and
    descriptions become comments of at most 80 characters. The innermost parts become dots if the skeleton exceeds 2,000
    characters or the schema is recursive. Raises OptionError, SchemaError.
    """
    root = parsed(cast("dict[str, Any] | bool | str", structure_of(schema).schema))
    written = ""
    for depth in range(MAX_DEPTH, 0, -1):
        skeleton = _Skeleton(root)
        written = skeleton.of(root, depth)
        if len(written) <= MAX_CHARS and not skeleton.is_cut:
            break
    return f"{LEAD}\n{_cut(written)}"


def with_description(prompt: Prompt, description: str) -> Prompt:
    """Append a description to a prompt, in a chat to the last message of a user. Raises OptionError.

    prompt: as `prompt_of` returns it
    """
    if isinstance(prompt, str):
        return f"{prompt}\n{description}\n"
    if not is_chat(prompt):
        raise OptionError(
            "describe=True appends the schema to a text or a chat, but the prompt is token ids; give a text, or encode "
            "prompts.describe(schema) with it"
        )
    messages = [*cast("Sequence[Mapping[str, Any]]", prompt)]
    last = next((place for place in range(len(messages) - 1, -1, -1) if messages[place]["role"] == "user"), None)
    if last is None:
        raise OptionError(
            "describe=True appends the schema to the last message of a user, but the chat has none; add a message "
            "with the role 'user', or put prompts.describe(schema) into one"
        )
    messages[last] = {**messages[last], "content": _behind(messages[last].get("content"), description)}
    return messages


def _behind(content: Any, description: str) -> Any:
    """Append text to the content of a message, a text or parts."""
    if content is None or isinstance(content, str):
        return f"{content}\n{description}" if content else description
    return [*content, {"type": "text", "text": f"\n{description}" if content else description}]


class _Skeleton:
    """A writer of the subschemas of one schema. is_cut: True if parts were omitted because there were too many"""

    def __init__(self, root: dict[str, Any] | bool) -> None:
        self._root = root
        self._open: list[int] = []
        self._parts = 0
        self.is_cut = False

    def of(self, schema: Any, depth: int) -> str:
        """Write a subschema down to `depth` nested levels."""
        self._parts += 1
        if self._parts > MAX_PARTS:
            self.is_cut = True
            return CUT
        if not isinstance(schema, dict):
            return "nothing" if schema is False else "any"
        if id(cast("object", schema)) in self._open:
            return CUT
        self._open.append(id(cast("object", schema)))
        try:
            return self._of(cast("dict[str, Any]", schema), depth)
        finally:
            self._open.pop()

    def _of(self, schema: dict[str, Any], depth: int) -> str:
        if isinstance(reference := schema.get("$ref"), str):
            return self.of(self._target(reference), depth)
        if "const" in schema:
            return _value(schema["const"])
        if isinstance(values := schema.get("enum"), list):
            several = cast("list[Any]", values)
            return _either([*map(_value, several[:MAX_VALUES]), *[CUT] * (len(several) > MAX_VALUES)])
        for name in ("anyOf", "oneOf"):
            if isinstance(cases := schema.get(name), list):
                beside = {key: value for key, value in schema.items() if key != name}
                return _either([self._all_of(beside, [case], depth) for case in cast("list[Any]", cases)])
        if isinstance(parts := schema.get("allOf"), list):
            beside = {key: value for key, value in schema.items() if key != "allOf"}
            return self._all_of(beside, cast("list[Any]", parts), depth)
        kinds = schema.get("type", _implied(schema))
        several = cast("list[Any]", kinds) if isinstance(kinds, list) else [kinds]
        return _either([self._typed(schema, str(kind), depth) for kind in several])

    def _all_of(self, beside: dict[str, Any], parts: Sequence[Any], depth: int) -> str:
        """Write the conjunction of subschemas. One of them may be a schema that is being written."""
        resolved = [self._resolved(part) for part in parts]
        if any(id(part) in self._open for part in resolved if not isinstance(part, bool)):
            return CUT
        if beside.keys() <= _SILENT and len(resolved) == 1:
            return self.of(resolved[0], depth)
        before = len(self._open)
        self._open += map(id, resolved)
        try:
            return self._of(_merged([beside, *resolved]), depth)
        finally:
            del self._open[before:]

    def _typed(self, schema: dict[str, Any], kind: str, depth: int) -> str:
        """Write the values of one type."""
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, depth)
        if kind == "string" and schema.get("format") in _NAMED_FORMATS:
            return str(schema["format"])
        return kind

    def _object(self, schema: dict[str, Any], depth: int) -> str:
        named, further = schema.get("properties"), schema.get("additionalProperties")
        members = cast("dict[str, Any]", named) if isinstance(named, dict) else {}
        if not members and (not isinstance(further, dict) or not further):
            return "object"
        if depth == 0:
            return f"{{{CUT}}}"
        names = schema.get("required")
        required = cast("list[Any]", names) if isinstance(names, list) else []
        parts = [
            f"{_value(name)}{'' if name in required else '?'}: {self.of(member, depth - 1)}{self._comment(member)}"
            for name, member in members.items()
            if member is not False
        ]
        if isinstance(further, dict) and further:
            parts.append(f"string: {self.of(further, depth - 1)}")
        return f"{{{', '.join(parts)}}}"

    def _array(self, schema: dict[str, Any], depth: int) -> str:
        first, rest = schema.get("prefixItems"), schema.get("items")
        if isinstance(rest, list):  # form of drafts before 2020-12
            first, rest = cast("list[Any]", rest), schema.get("additionalItems")
        leading = cast("list[Any]", first) if isinstance(first, list) else []
        if not leading and not isinstance(rest, dict):
            return "array"
        if depth == 0:
            return f"[{CUT}]"
        parts = [self.of(item, depth - 1) for item in leading]
        if isinstance(rest, dict):
            item = self.of(rest, depth - 1)
            parts.append(f"{CUT}{item}" if leading else item)
        return f"[{', '.join(parts)}]"

    def _comment(self, schema: Any) -> str:
        """Write the description of a member, or of the schema that it refers to, as a short comment."""
        for each in (schema, self._resolved(schema)):
            text = cast("dict[str, Any]", each).get("description") if isinstance(each, dict) else None
            if isinstance(text, str) and text.strip():
                words = " ".join(text.strip().split("\n\n")[0].replace("*/", "* /").split())
                return f" /* {_within(words, MAX_COMMENT)} */"
        return ""

    def _resolved(self, schema: Any) -> Any:
        """Follow references; return any other schema as it is."""
        for _ in range(MAX_DEPTH):
            if not isinstance(schema, dict) or not isinstance(reference := schema.get("$ref"), str):  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
                break
            schema = self._target(reference)
        return cast("Any", schema)

    def _target(self, reference: str) -> Any:
        """Return the subschema that a local reference names; True, which allows anything, for other references."""
        if not reference.startswith("#"):
            return True
        found: Any = self._root
        for step in reference.removeprefix("#").split("/")[1:]:
            key = key_of(step)
            if isinstance(found, list):
                items = cast("list[Any]", found)
                found = items[int(key)] if key.isdecimal() and int(key) < len(items) else True
            else:
                found = cast("dict[str, Any]", found).get(key, True) if isinstance(found, dict) else True
        return found if reference == "#" or "/" in reference else True


def _merged(schemas: Sequence[Any]) -> dict[str, Any]:
    """Merge schemas approximately: members of all, and of other keywords the last value."""
    found: dict[str, Any] = {}
    for schema in schemas:
        if not isinstance(schema, dict):
            continue
        for name, value in cast("dict[str, Any]", schema).items():
            present = found.get(name)
            if isinstance(present, dict) and isinstance(value, dict) and name == "properties":
                found[name] = {**cast("dict[str, Any]", present), **cast("dict[str, Any]", value)}
            elif isinstance(present, list) and isinstance(value, list) and name == "required":
                found[name] = [*cast("list[Any]", present), *cast("list[Any]", value)]
            else:
                found[name] = value
    return found


def _implied(schema: dict[str, Any]) -> str:
    """Return the type that a schema without `type` implies."""
    if "properties" in schema:
        return "object"
    return "array" if "items" in schema or "prefixItems" in schema else "any"


def _either(parts: Sequence[str]) -> str:
    return " | ".join(dict.fromkeys(parts)) or "nothing"


def _value(value: Any) -> str:
    return _within(json.dumps(value, ensure_ascii=False, default=float), MAX_COMMENT)


def _cut(skeleton: str) -> str:
    """Cut a skeleton to MAX_CHARS at the end of a member."""
    if len(skeleton) <= MAX_CHARS:
        return skeleton
    closing = {"{": "}", "[": "]"}.get(skeleton[0], "")
    return f"{skeleton[:MAX_CHARS].rpartition(', ')[0]}, {CUT}{closing}"


def _within(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - len(CUT)]}{CUT}"
