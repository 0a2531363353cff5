"""Random JSON Schemas: trees of all keywords of the drafts 4 to 2020-12, and changes to known ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

from trellm.guides.json_schema.read.formats import ENFORCED

from .mutation import changed_text, changed_value, number, size, value, word
from .regexes import alternation

DRAFTS = [
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
    "http://json-schema.org/schema#",
    "urn:nothing",
]
TYPES = ["object", "array", "string", "integer", "number", "boolean", "null"]
FORMATS = [*sorted(ENFORCED), "color", "utc-millisec", ""]
NAMES = ["a", "b", "ab", "", "é", "a/b", "~", "$ref", "x y", "😀"]
REFERENCES = [
    "#",
    "#/$defs/a",
    "#/$defs/b",
    "#/definitions/a",
    "#a",
    "#/properties/a",
    "urn:a",
    "#/%24defs/a",
    "#/nope",
    "a.json",
    "//",
]


def schema(random: Random, known: list[Any]) -> Any:
    """A random schema, well formed or not, as a value or as JSON text."""
    draw = random.random()
    if draw < 0.5 or not known:
        made = tree(random, random.randint(1, 3))
        if isinstance(made, dict):
            _give_definitions(random, made)
    elif draw < 0.97:
        made = changed_value(random, random.choice(known), known, lambda random: tree(random, 1))
    else:
        made = large(random)
    if random.random() < 0.05:
        text = json.dumps(made)
        return changed_text(random, text, [text], ["{", "}", "[", '"', ",", "1e999", "NaN", "\\ud800", "//"])
    return made


def tree(random: Random, depth: int) -> Any:
    """A schema: a boolean, or some keywords that go together, sometimes with a keyword that does not."""
    if random.random() < 0.08:
        return random.random() < 0.7
    kind = random.choice(list(KEYWORDS))
    made: dict[str, Any] = {}
    if random.random() < 0.7 and kind in TYPES:
        made["type"] = kind if random.random() < 0.8 else random.sample(TYPES, random.randint(0, 4))
    chosen = list(KEYWORDS[kind])
    for _ in range(random.choice([0, 1, 2, 2, 3, 4])):
        name = random.choice(chosen) if random.random() < 0.85 else random.choice(ALL)
        made[name] = ALL_KEYWORDS[name](random, depth - 1) if random.random() < 0.97 else value(random)
    return made


def large(random: Random) -> Any:
    """A schema that is long, or nested deeply, or asks for much."""
    many = random.choice([20, 200, 2000])
    names = [f"{word(random, 3)}{index}" for index in range(many)]
    some = tree(random, 1)
    nested: Any = some
    key = random.choice(["items", "not", "additionalProperties", "contains", "allOf", "if", "properties", "anyOf"])
    for _ in range(min(many, 300)):
        nested = {key: [nested] if key.endswith("Of") else {"a": nested} if key == "properties" else nested}
    few = random.randint(2, 16)
    shapes: list[Callable[[], Any]] = [
        lambda: {"enum": [value(random) for _ in range(many)]},
        lambda: {"properties": dict.fromkeys(names, some), "required": names[: random.randint(0, many)]},
        lambda: nested,
        lambda: {random.choice(["allOf", "anyOf", "oneOf"]): [tree(random, 1) for _ in range(few)]},
        lambda: {"patternProperties": {alternation(random, 1, True): tree(random, 0) for _ in range(few)}},
        lambda: {"allOf": [{"contains": tree(random, 1), "minContains": size(random)} for _ in range(few)]},
        lambda: {"allOf": [{"pattern": alternation(random, 2, True)} for _ in range(few)]},
        lambda: {"items": {"enum": list(range(few))}, "uniqueItems": True, "minItems": few - random.randint(0, 2)},
        lambda: {"$defs": {f"d{i}": {"anyOf": 2 * [{"$ref": f"#/$defs/d{i + 1}"}]} for i in range(few)}
                 | {f"d{few}": some}, "$ref": "#/$defs/d0"},
        lambda: {"dependentSchemas": {name: tree(random, 1) for name in names[:few]}, "minProperties": few},
        lambda: {"anyOf": [{"properties": {name: some}} for name in names[:few]], "unevaluatedProperties": False},
        lambda: {"not": {"anyOf": [tree(random, 1) for _ in range(few)]}},
        lambda: {"type": "integer", "multipleOf": number(random), "minimum": number(random), "maximum": number(random)},
    ]  # fmt: skip
    return random.choice(shapes)()


def options(random: Random) -> dict[str, Any]:
    """Options for the guide, mostly the default ones."""
    possible: dict[str, list[Any]] = {
        "order": ["any", "schema"],
        "whitespace": ["flexible", "compact", "pretty", "any"],
        "escapes": ["canonical", "any"],
        "indent": [0, 1, 2, 4, 8, 100],
        "formats": [True, False],
        "max_cases": [1, 8, 512, 4096, 100_000],
        "resources": [{"urn:a": {"type": "string"}}, {"a.json": {"$ref": "#"}}],
    }
    return {name: random.choice(values) for name, values in possible.items() if random.random() < 0.15}


def patterns_of(schemas: list[Any]) -> list[str]:
    """The patterns in schemas, each once."""
    found: dict[str, None] = {}
    pending = list(schemas)
    while pending:
        inside = pending.pop()
        if isinstance(inside, dict):
            if isinstance(inside.get("pattern"), str):
                found[inside["pattern"]] = None
            if isinstance(inside.get("patternProperties"), dict):
                found.update(dict.fromkeys(inside["patternProperties"]))
        if isinstance(inside, (dict, list)):
            pending += inside.values() if isinstance(inside, dict) else inside
    return list(found)


def _give_definitions(random: Random, made: dict[str, Any]) -> None:
    if random.random() < 0.4:
        made[random.choice(["$defs", "definitions"])] = {name: tree(random, 2) for name in ("a", "b")}
    if random.random() < 0.2:
        made["$schema"] = random.choice(DRAFTS)


def _one(random: Random, depth: int) -> Any:
    return tree(random, max(depth, 0)) if depth > -2 else random.random() < 0.8


def _many(random: Random, depth: int) -> Any:
    return [_one(random, depth) for _ in range(random.choice([0, 1, 2, 2, 3]))]


def _named(random: Random, depth: int) -> Any:
    return {random.choice(NAMES): _one(random, depth) for _ in range(random.choice([0, 1, 2, 3]))}


def _patterned(random: Random, depth: int) -> Any:
    return {_pattern(random, depth): _one(random, depth) for _ in range(random.choice([1, 1, 2, 3]))}


def _pattern(random: Random, depth: int) -> str:
    return random.choice(["^", "", ""]) + alternation(random, 2, True) + random.choice(["$", "", ""])


def _size(random: Random, depth: int) -> Any:
    return size(random) if random.random() < 0.95 else number(random)


def _number(random: Random, depth: int) -> Any:
    return number(random)


def _choice(*values: Any) -> Callable[[Random, int], Any]:
    return lambda random, depth: random.choice(values)


def _values(random: Random, depth: int) -> Any:
    return [value(random) for _ in range(random.choice([0, 1, 2, 3, 5]))]


def _names(random: Random, depth: int) -> Any:
    return random.sample(NAMES, random.randint(0, 4))


KEYWORDS: dict[str, dict[str, Callable[[Random, int], Any]]] = {
    "object": {
        "properties": _named, "patternProperties": _patterned, "additionalProperties": _one, "required": _names,
        "minProperties": _size, "maxProperties": _size, "propertyNames": _one, "unevaluatedProperties": _one,
        "dependentSchemas": _named, "dependentRequired": lambda random, depth: {"a": _names(random, depth)},
        "dependencies": lambda random, depth: {"a": random.choice([_names, _one])(random, depth)},
    },
    "array": {
        "items": lambda random, depth: random.choice([_one, _one, _many])(random, depth), "prefixItems": _many,
        "additionalItems": _one, "contains": _one, "minContains": _size, "maxContains": _size, "minItems": _size,
        "maxItems": _size, "uniqueItems": _choice(True, False), "unevaluatedItems": _one,
    },
    "string": {
        "minLength": _size, "maxLength": _size, "pattern": _pattern, "format": _choice(*FORMATS),
        "contentEncoding": _choice("base64", "x"), "contentMediaType": _choice("application/json"),
        "contentSchema": _one,
    },
    "number": {
        "minimum": _number, "maximum": _number, "multipleOf": lambda random, depth: abs(number(random))
        if random.random() < 0.9 else number(random),
        "exclusiveMinimum": lambda random, depth: number(random) if random.random() < 0.9 else True,
        "exclusiveMaximum": lambda random, depth: number(random) if random.random() < 0.9 else False,
    },
    "any": {
        "enum": _values, "const": lambda random, depth: value(random), "allOf": _many, "anyOf": _many, "oneOf": _many,
        "not": _one, "if": _one, "then": _one, "else": _one, "$ref": _choice(*REFERENCES),
        "$dynamicRef": _choice(*REFERENCES), "$recursiveRef": _choice("#", "#a"), "$anchor": _choice("a", "b", ""),
        "$dynamicAnchor": _choice("a", "b"), "$recursiveAnchor": _choice(True, False), "$id": _choice("urn:a",
        "a.json", "#a"),
        "id": _choice("urn:a", "#a"), "$comment": _choice("x"), "title": _choice("x"), "default": _choice(1),
        "x-quote": _choice("c", 1),
        "type": lambda random, depth: random.choice([*TYPES, *TYPES, "any"]), "nullable": _choice(True),
    },
}  # fmt: skip
KEYWORDS["integer"] = KEYWORDS["number"]
ALL_KEYWORDS = {name: make for keywords in KEYWORDS.values() for name, make in keywords.items()}
ALL = list(ALL_KEYWORDS)
