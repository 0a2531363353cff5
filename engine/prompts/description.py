"""Descriptions of JSON in prompts: a schema as a skeleton with the names of types, as small models follow it best."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from ...errors import OptionError
from ...guides.json_schema.read.subschema import key_of, parsed
from ..structures import structure_of
from .given import Prompt, is_chat

LEAD = "Answer with JSON like this:"
MOST_CHARS = 2000
"""Of a skeleton; what is nested deepest is left out first."""
MOST_DEPTH = 8
MOST_PARTS = 500
"""Subschemas that are read, since references can say more than the schema's text has."""
MOST_VALUES = 24
MOST_COMMENT = 80
CUT = "..."
_SILENT = frozenset(("title", "description", "default", "examples", "deprecated", "$defs", "definitions", "$schema"))
_NAMED_FORMATS = frozenset(("date", "time", "date-time", "duration", "email", "uri", "uuid", "ipv4", "ipv6"))


def describe(schema: Any) -> str:
    """An instruction that shows what JSON to write, to be put behind a request in a prompt.

    schema: whatever `generate.json` takes
    Types are named; alternatives and the values of an enum stand between bars, members that may be missing have a
    question mark, and descriptions are comments of at most 80 characters. Of a schema whose skeleton would be longer
    than 2,000 characters, or that holds itself, the innermost parts are dots. Raises OptionError, SchemaError.
    """
    root = parsed(cast("dict[str, Any] | bool | str", structure_of(schema).schema))
    written = ""
    for depth in range(MOST_DEPTH, 0, -1):
        skeleton = _Skeleton(root)
        written = skeleton.of(root, depth)
        if len(written) <= MOST_CHARS and not skeleton.is_cut:
            break
    return f"{LEAD}\n{_cut(written)}"


def with_description(prompt: Prompt, description: str) -> Prompt:
    """A prompt with a description behind it: of a chat behind its last message of a user. Raises OptionError.

    prompt: as `prompt_of` gives it
    """
    if isinstance(prompt, str):
        return f"{prompt}\n{description}\n"
    if not is_chat(prompt):
        raise OptionError(
            "describe=True writes the schema behind a text or into a chat, and the prompt is token ids; give a text, "
            "or encode prompts.describe(schema) with it"
        )
    messages = [*cast("Sequence[Mapping[str, Any]]", prompt)]
    last = next((place for place in range(len(messages) - 1, -1, -1) if messages[place]["role"] == "user"), None)
    if last is None:
        raise OptionError(
            "describe=True writes the schema into the last message of a user, and the chat has none; add a message "
            "with the role 'user', or put prompts.describe(schema) into one"
        )
    messages[last] = {**messages[last], "content": _behind(messages[last].get("content"), description)}
    return messages


def _behind(content: Any, description: str) -> Any:
    """The content of a message, a text or parts, with more text."""
    if content is None or isinstance(content, str):
        return f"{content}\n{description}" if content else description
    return [*content, {"type": "text", "text": f"\n{description}" if content else description}]


class _Skeleton:
    """Writes subschemas of one schema. is_cut: whether parts were left out because there are too many."""

    def __init__(self, root: dict[str, Any] | bool) -> None:
        self._root = root
        self._open: list[int] = []
        self._parts = 0
        self.is_cut = False

    def of(self, schema: Any, depth: int) -> str:
        """A subschema, nested as deep as `depth` says."""
        self._parts += 1
        if self._parts > MOST_PARTS:
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
            return _either([*map(_value, several[:MOST_VALUES]), *[CUT] * (len(several) > MOST_VALUES)])
        for name in ("anyOf", "oneOf"):
            if isinstance(cases := schema.get(name), list):
                own = {key: value for key, value in schema.items() if key != name}
                return _either([self._all(own, [case], depth) for case in cast("list[Any]", cases)])
        if isinstance(parts := schema.get("allOf"), list):
            own = {key: value for key, value in schema.items() if key != "allOf"}
            return self._all(own, cast("list[Any]", parts), depth)
        kinds = schema.get("type", _implied(schema))
        several = cast("list[Any]", kinds) if isinstance(kinds, list) else [kinds]
        return _either([self._typed(schema, str(kind), depth) for kind in several])

    def _all(self, own: dict[str, Any], parts: Sequence[Any], depth: int) -> str:
        """A schema of several subschemas together, one of which may be what is being written."""
        resolved = [self._resolved(part) for part in parts]
        if any(id(part) in self._open for part in resolved if not isinstance(part, bool)):
            return CUT
        if own.keys() <= _SILENT and len(resolved) == 1:
            return self.of(resolved[0], depth)
        before = len(self._open)
        self._open += map(id, resolved)
        try:
            return self._of(_merged([own, *resolved]), depth)
        finally:
            del self._open[before:]

    def _typed(self, schema: dict[str, Any], kind: str, depth: int) -> str:
        """The values of one type."""
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
        given = schema.get("required")
        required = cast("list[Any]", given) if isinstance(given, list) else []
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
        if isinstance(rest, list):  # as drafts before 2020-12 have it
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
        """The description of a member, its own or that of what it refers to, as a short comment."""
        for each in (schema, self._resolved(schema)):
            text = cast("dict[str, Any]", each).get("description") if isinstance(each, dict) else None
            if isinstance(text, str) and text.strip():
                words = " ".join(text.strip().split("\n\n")[0].replace("*/", "* /").split())
                return f" /* {_within(words, MOST_COMMENT)} */"
        return ""

    def _resolved(self, schema: Any) -> Any:
        """The schema that a reference leads to; any other schema as it is."""
        for _ in range(MOST_DEPTH):
            if not isinstance(schema, dict) or not isinstance(reference := schema.get("$ref"), str):  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
                break
            schema = self._target(reference)
        return cast("Any", schema)

    def _target(self, reference: str) -> Any:
        """The subschema of a reference within the document; True, which is anything, for others."""
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
    """Schemas that all hold as one, near enough to be shown: members of all, of other keywords the last."""
    found: dict[str, Any] = {}
    for schema in schemas:
        if not isinstance(schema, dict):
            continue
        for name, value in cast("dict[str, Any]", schema).items():
            known = found.get(name)
            if isinstance(known, dict) and isinstance(value, dict) and name == "properties":
                found[name] = {**cast("dict[str, Any]", known), **cast("dict[str, Any]", value)}
            elif isinstance(known, list) and isinstance(value, list) and name == "required":
                found[name] = [*cast("list[Any]", known), *cast("list[Any]", value)]
            else:
                found[name] = value
    return found


def _implied(schema: dict[str, Any]) -> str:
    """The type that a schema without one is about."""
    if "properties" in schema:
        return "object"
    return "array" if "items" in schema or "prefixItems" in schema else "any"


def _either(parts: Sequence[str]) -> str:
    return " | ".join(dict.fromkeys(parts)) or "nothing"


def _value(value: Any) -> str:
    return _within(json.dumps(value, ensure_ascii=False, default=float), MOST_COMMENT)


def _cut(skeleton: str) -> str:
    """A skeleton without the members that are too many."""
    if len(skeleton) <= MOST_CHARS:
        return skeleton
    closing = {"{": "}", "[": "]"}.get(skeleton[0], "")
    return f"{skeleton[:MOST_CHARS].rpartition(', ')[0]}, {CUT}{closing}"


def _within(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - len(CUT)]}{CUT}"
