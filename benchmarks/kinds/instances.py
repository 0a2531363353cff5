"""Values of made-up schemas, as far as they are found by looking at one keyword after the other."""

from __future__ import annotations

import json
import random
from typing import Any

Schema = dict[str, Any]

WORDS = """
name id type kind status version labels owner path url source target items tags config options value values label
description title email phone address city country code price amount currency count size width height unit start
end created updated author license homepage repository scripts files main private engines workspaces extends rules
env globals ignore include exclude plugins presets targets output input format level mode enabled timeout retries
""".split()  # noqa: SIM905
EXAMPLES = {
    "date": "2024-02-29",
    "date-time": "2024-02-29T10:20:30Z",
    "email": "jane@example.org",
    "uri": "https://example.org/a/b?c=1",
    "uuid": "0b8a1c6e-7c1c-4a4e-9a54-0d2b7c9d1e2f",
    "ipv4": "192.168.0.17",
    "time": "10:20:30Z",
    "hostname": "db-1.example.org",
    "duration": "P1DT2H",
    "^[a-z][a-z0-9-]*$": "web-server-2",
    r"^\d{4}-\d{2}$": "2024-05",
    "^[A-Z]{2,5}$": "EUR",
    r"^v?\d+\.\d+\.\d+$": "v1.22.3",
    "^(x-|_)": "x-internal",
    "^#[0-9a-fA-F]{6}$": "#00ffAA",
    r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$": "500Mi",
    r"^[_a-zA-Z][a-zA-Z0-9_-]*$": "build_job",
}


def words(rng: random.Random, least: int, most: int) -> list[str]:
    """Different names of members."""
    return rng.sample(WORDS, rng.randint(least, most))


class Instances:
    """Values of a schema, as far as they are made by looking at one keyword after the other."""

    def __init__(self, root: Schema, rng: random.Random) -> None:
        self._root = root
        self._rng = rng

    def of(self, schema: Any, depth: int = 7) -> Any:
        """A value that has a good chance to satisfy a schema."""
        rng = self._rng
        if not isinstance(schema, dict) or not schema:
            return rng.choice(("anything", 7, True, None))
        if "$ref" in schema:
            target: Any = self._root
            for name in schema["$ref"].split("/")[1:]:
                target = target[name]
            return self.of(target, depth)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return rng.choice(schema["enum"])
        for union in ("oneOf", "anyOf"):
            if union in schema:
                cases = schema[union]
                one = rng.choice(cases) if depth > 2 else cases[-1] if len(json.dumps(cases[-1])) < 200 else cases[0]
                return self.of(_both({key: each for key, each in schema.items() if key != union}, one), depth)
        if "allOf" in schema and "if" not in schema["allOf"][0]:
            rest = {key: each for key, each in schema.items() if key != "allOf"}
            for part in schema["allOf"]:
                while isinstance(part, dict) and set(part) == {"$ref"}:
                    part = self._root["definitions"][part["$ref"].rsplit("/", 1)[1]]
                rest = _both(rest, part)
            return self.of(rest, depth)
        types = schema.get("type", "object" if "properties" in schema else "string")
        match rng.choice(types) if isinstance(types, list) else types:
            case "null":
                return None
            case "boolean":
                return rng.random() < 0.5
            case "integer":
                return rng.randint(int(schema.get("minimum", -3)), int(schema.get("maximum", 900)))
            case "number":
                least = schema.get("exclusiveMinimum", schema.get("minimum", -50))
                return round(rng.uniform(least, least + 1000), 2)
            case "array":
                return self._array(schema, depth)
            case "object":
                return self._object(schema, depth)
            case _:
                return self._text(schema)

    def _text(self, schema: Schema) -> str:
        known = EXAMPLES.get(schema.get("format", schema.get("pattern", "")))
        if known is not None:
            return known
        text = " ".join(self._rng.choices(WORDS, k=self._rng.randint(1, 6)))
        text = text.ljust(schema.get("minLength", 0), "x")
        return text[: schema.get("maxLength", len(text))]

    def _array(self, schema: Schema, depth: int) -> list[Any]:
        items = schema.get("items", {})
        first: list[Any] = schema.get("prefixItems", items if isinstance(items, list) else [])
        if first:
            return [self.of(each, depth - 1) for each in first]
        least = schema.get("minItems", 0)
        most = min(schema.get("maxItems", 99), least + 3)
        count = self._rng.randint(least, most) if depth > 0 else least
        found = [self.of(items, depth - 1) for _ in range(count)]
        return [each for at, each in enumerate(found) if each not in found[:at]] if "uniqueItems" in schema else found

    def _object(self, schema: Schema, depth: int) -> Schema:
        rng = self._rng
        properties = schema.get("properties", {})
        needed = set(schema.get("required", ()))
        chosen = [name for name in properties if name in needed or (depth > 0 and rng.random() < 0.6)]
        found = {name: self.of(properties[name], depth - 1) for name in chosen}
        for name in needed - set(found):
            found[name] = self.of(schema.get("additionalProperties", {}), depth - 1)
        for pattern, each in schema.get("patternProperties", {}).items():
            if rng.random() < 0.6 or schema.get("minProperties"):
                found[EXAMPLES[pattern]] = self.of(each, depth - 1)
        more = schema.get("additionalProperties", None)
        if isinstance(more, dict) and depth > 0:
            found.update({name: self.of(more, depth - 1) for name in words(rng, 1, 3) if name not in properties})
        for one in schema.get("allOf", ()):
            if "then" in one and one["if"]["properties"]["kind"]["const"] == found.get("kind"):
                found.update(self._object(one["then"], 0) | {key: found[key] for key in found if key == "kind"})
        return found


def _both(one: Schema, other: Any) -> Schema:
    """Two schemas as one, the members and required names of both."""
    if not isinstance(other, dict):
        return one
    found = {**one, **other}
    for key in ("properties", "required"):
        if key in one and key in other:
            joined: Any = {**one[key], **other[key]} if key == "properties" else [*one[key], *other[key]]
            found[key] = joined
    return found
