"""Random schemas and values over a small world, so that values often meet schemas; from a seed."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

NAMES = ["a", "b", "c", "ab"]
TYPES: list[Any] = ["null", "boolean", "number", "integer", "string", "array", "object"]
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
LEAVES = (*BOUNDS, *COUNTS, *["type"] * 3, "multipleOf", "pattern", "enum", "uniqueItems", "required", "format")
ONE = ("items", "contains", "additionalProperties", "propertyNames", "not", "unevaluatedItems", "unevaluatedProperties")
SEVERAL = ("allOf", "anyOf", "oneOf", "prefixItems")
OTHERS = ("if", "minContains", "maxContains", "properties", "patternProperties", "dependentSchemas")
MORE = (*ONE, *SEVERAL, *OTHERS, "dependentRequired", "properties", "properties", "items", "$ref")
FORMATS = ("date", "ipv4", "uuid", "colour")
STRINGS = ("", "a", "b", "ab", "abc", "aa", "x")
FORMATTED = ("2024-02-29", "2023-02-29", "1.2.3.4", "1.2.3.256", "01234567-89ab-cdef-0123-456789abcdef")


class Draft(NamedTuple):
    """What random schemas of a draft say.

    definitions: where what is referred to stands; leaves: the keywords that hold no schemas
    """

    uri: str
    definitions: str
    leaves: tuple[str, ...]
    keywords: tuple[str, ...]


def _draft(uri: str, definitions: str, gone: tuple[str, ...], more: tuple[str, ...]) -> Draft:
    leaves = tuple(key for key in (*LEAVES, "const") if key not in gone)
    inner = tuple(key for key in MORE if key not in gone)
    return Draft(uri, definitions, leaves, (*leaves, *inner, *more))


OLD_ITEMS = ("additionalItems", "several items")
# jsonschema's 2019-09 takes items for evaluated that `contains` finds, which came with 2020-12, and members for not
# evaluated that `additionalProperties` has.
NOT_IN_2019 = ("prefixItems", "unevaluatedItems", "unevaluatedProperties")
NOT_IN_7 = (*NOT_IN_2019, "minContains", "maxContains", "dependentSchemas", "dependentRequired")
NOT_IN_6 = (*NOT_IN_7, "if")
NOT_IN_4 = (*NOT_IN_6, "const", "contains", "propertyNames")
OLD = "http://json-schema.org/draft-0"
DRAFTS = {
    "2020-12": _draft("https://json-schema.org/draft/2020-12/schema", "$defs", (), ()),
    "2019-09": _draft("https://json-schema.org/draft/2019-09/schema", "$defs", NOT_IN_2019, OLD_ITEMS),
    "7": _draft(OLD + "7/schema#", "definitions", NOT_IN_7, (*OLD_ITEMS, "dependencies")),
    "6": _draft(OLD + "6/schema#", "definitions", NOT_IN_6, (*OLD_ITEMS, "dependencies")),
    "4": _draft(OLD + "4/schema#", "definitions", NOT_IN_4, (*OLD_ITEMS, "dependencies")),
}
LATEST = DRAFTS["2020-12"]


def random_value(random: Random, depth: int = 2) -> Any:
    """A JSON value with at most `depth` levels of arrays and objects."""
    kind = random.randrange(7 if depth else 4)
    if kind == 0:
        return random.choice([None, True, False])
    if kind <= 2:
        return random.choice([0, 1, 2, 3, -1, 4, 6, 12, 1.5, 2.5, 0.5, 1.0])
    if kind == 3:
        return random.choice(FORMATTED if random.random() < 0.1 else STRINGS)
    if kind == 4:
        return [random_value(random, depth - 1) for _ in range(random.randrange(4))]
    return {name: random_value(random, depth - 1) for name in random.sample(NAMES, random.randrange(4))}


def random_document(random: Random, draft: Draft = LATEST) -> dict[str, Any] | None:
    """A schema with its draft and what it refers to; None for true and false."""
    schema = random_schema(random, 3, draft)
    if isinstance(schema, bool):
        return None
    schema[draft.definitions] = {"d": random_schema(random, 2, draft)}
    return schema if draft is LATEST else {"$schema": draft.uri, **schema}


def random_schema(random: Random, depth: int = 3, draft: Draft = LATEST) -> Any:
    """A schema with references to `d` among the definitions."""
    if random.random() < 0.06:
        chosen = random.choice([True, False])
        return chosen if "const" in draft.leaves else {} if chosen else {"not": {}}
    schema: dict[str, Any] = {}
    for _ in range(random.choice([1, 1, 2, 2, 3])):
        keyword = random.choice(draft.keywords if depth else draft.leaves)
        schema.update(_keyword(random, keyword, depth - 1, draft))
    if isinstance(schema.get("items"), bool):
        schema.pop("additionalItems", None)  # by which jsonschema is thrown, though it asks for nothing there
    return schema


def _keyword(random: Random, keyword: str, depth: int, draft: Draft) -> dict[str, Any]:
    def one() -> Any:
        return random_schema(random, depth, draft)

    if keyword in ONE or keyword == "additionalItems":
        return {keyword: one()}
    if keyword in SEVERAL:
        return {keyword: [one() for _ in range(random.choice([1, 1, 2, 2, 3, 3, 4, 6]))]}
    if keyword in BOUNDS:
        bound = random.choice([-1, 0, 1, 2, 3, 1.5])
        if "const" not in draft.leaves and keyword.startswith("exclusive"):
            return {keyword: random.random() < 0.7, keyword.removeprefix("exclusive").lower(): bound}
        return {keyword: bound}
    if keyword in COUNTS:
        return {keyword: random.randrange(4)}
    match keyword:
        case "if":
            return {key: one() for key in ("if", "then", "else")}
        case "several items":
            return {"items": [one() for _ in range(random.randrange(1, 4))], "additionalItems": one()}
        case "minContains" | "maxContains":
            return {"contains": one(), keyword: random.randrange(3)}
        case "patternProperties":
            chosen = random.sample(["^a", "b", "^[a-z]$"], random.randrange(1, 3))
            return {keyword: {pattern: one() for pattern in chosen}}
        case "dependencies":
            names = random.sample(NAMES, random.randrange(1, 3))
            return {keyword: {name: one() if random.random() < 0.5 else random.sample(NAMES, 2) for name in names}}
        case "properties" | "dependentSchemas":
            return {keyword: {name: one() for name in random.sample(NAMES, random.randrange(1, 4))}}
        case "$ref":
            return {keyword: f"#/{draft.definitions}/d"}
        case _:
            return {keyword: _content(random, keyword)}


def _content(random: Random, keyword: str) -> Any:
    """What a keyword says that holds no schemas."""
    match keyword:
        case "type":
            return random.choice([*TYPES, ["string", "integer"], ["object", "array"]])
        case "multipleOf":
            return random.choice([1, 2, 3, 0.5, 1.5])
        case "pattern":
            return random.choice(["^a", "b$", "^a*$", "b", "^[a-z]{2}$"])
        case "format":
            return random.choice(FORMATS)
        case "enum":
            return [random_value(random, 1) for _ in range(random.randrange(1, 4))]
        case "const":
            return random_value(random, 1)
        case "uniqueItems":
            return random.random() < 0.8
        case "required":
            return random.sample(NAMES, random.randrange(1, 3))
        case _:
            return {random.choice(NAMES): random.sample(NAMES, random.randrange(3))}
