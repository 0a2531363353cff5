"""Random schemas and values over a small world, so that values often meet schemas; from a seed."""

from __future__ import annotations

from random import Random
from typing import Any

NAMES = ["a", "b", "c", "ab"]
TYPES: list[Any] = ["null", "boolean", "number", "integer", "string", "array", "object"]
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
LEAVES = [*BOUNDS, *COUNTS, *["type"] * 3, "multipleOf", "pattern", "enum", "const", "uniqueItems", "required"]
ONE = ("items", "contains", "additionalProperties", "propertyNames", "not", "unevaluatedItems", "unevaluatedProperties")
SEVERAL = ("allOf", "anyOf", "oneOf", "prefixItems")
OTHERS = ("if", "minContains", "maxContains", "properties", "patternProperties", "dependentSchemas")
KEYWORDS = [*LEAVES, *ONE, *SEVERAL, *OTHERS, "dependentRequired", "properties", "properties", "items", "$ref"]


def random_value(random: Random, depth: int = 2) -> Any:
    """A JSON value with at most `depth` levels of arrays and objects."""
    kind = random.randrange(7 if depth else 4)
    if kind == 0:
        return random.choice([None, True, False])
    if kind <= 2:
        return random.choice([0, 1, 2, 3, -1, 4, 6, 12, 1.5, 2.5, 0.5, 1.0])
    if kind == 3:
        return random.choice(["", "a", "b", "ab", "abc", "aa", "x"])
    if kind == 4:
        return [random_value(random, depth - 1) for _ in range(random.randrange(4))]
    return {name: random_value(random, depth - 1) for name in random.sample(NAMES, random.randrange(4))}


def random_schema(random: Random, depth: int = 3) -> Any:
    """A schema of draft 2020-12 with references to `#/$defs/d`."""
    if random.random() < 0.06:
        return random.choice([True, False])
    schema: dict[str, Any] = {}
    for _ in range(random.choice([1, 1, 2, 2, 3])):
        keyword = random.choice(KEYWORDS if depth else LEAVES)
        schema.update(_keyword(random, keyword, depth - 1))
    return schema


def _keyword(random: Random, keyword: str, depth: int) -> dict[str, Any]:
    if keyword in ONE:
        return {keyword: random_schema(random, depth)}
    if keyword in SEVERAL:
        return {keyword: [random_schema(random, depth) for _ in range(random.randrange(1, 4))]}
    if keyword in BOUNDS:
        return {keyword: random.choice([-1, 0, 1, 2, 3, 1.5])}
    if keyword in COUNTS:
        return {keyword: random.randrange(4)}
    match keyword:
        case "type":
            return {"type": random.choice([*TYPES, ["string", "integer"], ["object", "array"]])}
        case "multipleOf":
            return {keyword: random.choice([1, 2, 3, 0.5, 1.5])}
        case "pattern":
            return {keyword: random.choice(["^a", "b$", "^a*$", "b", "^[a-z]{2}$"])}
        case "enum":
            return {keyword: [random_value(random, 1) for _ in range(random.randrange(1, 4))]}
        case "const":
            return {keyword: random_value(random, 1)}
        case "uniqueItems":
            return {keyword: True}
        case "required":
            return {keyword: random.sample(NAMES, random.randrange(1, 3))}
        case "if":
            return {key: random_schema(random, depth) for key in ("if", "then", "else")}
        case "minContains" | "maxContains":
            return {"contains": random_schema(random, depth), keyword: random.randrange(3)}
        case "patternProperties":
            chosen = random.sample(["^a", "b", "^[a-z]$"], random.randrange(1, 3))
            return {keyword: {pattern: random_schema(random, depth) for pattern in chosen}}
        case "dependentRequired":
            return {keyword: {random.choice(NAMES): random.sample(NAMES, random.randrange(3))}}
        case "$ref":
            return {keyword: "#/$defs/d"}
        case _:
            chosen = random.sample(NAMES, random.randrange(1, 4))
            return {keyword: {name: random_schema(random, depth) for name in chosen}}
