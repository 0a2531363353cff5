"""Kinds of JSON schemas that people write, made from a seed: the same on every machine."""

from __future__ import annotations

import datetime
import decimal
import enum
import random
from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal

from .instances import WORDS, Schema, words

Kind = Callable[[random.Random], Schema]

FORMATS = ("date", "date-time", "email", "uri", "uuid", "ipv4", "time", "hostname")
PATTERNS = ("^[a-z][a-z0-9-]*$", r"^\d{4}-\d{2}$", "^[A-Z]{2,5}$", r"^v?\d+\.\d+\.\d+$", "^(x-|_)", "^#[0-9a-fA-F]{6}$")
DRAFT7 = "http://json-schema.org/draft-07/schema#"
KINDS: dict[str, Kind] = {}


def kind(make: Kind) -> Kind:
    """Register a kind of schemas by the name of what makes them."""
    KINDS[make.__name__] = make
    return make


# Parts of schemas


def scalar(rng: random.Random) -> Schema:
    """A string, number or boolean, plain most of the time."""
    match rng.randrange(11):
        case 0 | 1 | 2:
            return {"type": "string"}
        case 3:
            return {"type": "string", "minLength": 1, "maxLength": rng.choice((16, 63, 128, 255))}
        case 4:
            return {"type": "string", "pattern": rng.choice(PATTERNS)}
        case 5:
            return {"type": "string", "format": rng.choice(FORMATS)}
        case 6:
            return {"enum": words(rng, 2, 6)}
        case 7:
            return {"type": "integer", "minimum": rng.choice((0, 1)), "maximum": rng.choice((10, 100, 65535))}
        case 8:
            return {"type": "number", "minimum": 0}
        case 9:
            return {"type": ["string", "null"], "description": "May be left out."}
        case _:
            return {"type": "boolean", "default": False}


def value(rng: random.Random, depth: int) -> Schema:
    """A scalar, list, object or map."""
    chosen = rng.random()
    if depth <= 0 or chosen < 0.55:
        return scalar(rng)
    if chosen < 0.7:
        return {"type": "array", "items": value(rng, depth - 1)}
    if chosen < 0.8:
        return {"type": "object", "additionalProperties": value(rng, depth - 1)}
    return record(rng, depth - 1)


def record(rng: random.Random, depth: int, least: int = 2, most: int = 7) -> Schema:
    """An object, closed or open."""
    named = words(rng, least, most)
    found: Schema = {"type": "object", "properties": {name: value(rng, depth) for name in named}}
    found["required"] = named[: rng.randint(0, len(named))]
    if rng.random() < 0.5:
        found["additionalProperties"] = False
    return found


def described(rng: random.Random, schema: Schema) -> Schema:
    """A whole document."""
    return {"$schema": DRAFT7, "title": rng.choice(WORDS), **schema}


# Unions


def geometries(rng: random.Random) -> list[Schema]:
    """The geometries of GeoJSON, some of them."""
    position: Schema = {"type": "array", "minItems": 2, "items": {"type": "number"}}
    line: Schema = {"type": "array", "minItems": 2, "items": position}
    ring: Schema = {"type": "array", "minItems": 4, "items": position}
    many = {"type": "array", "items": position}
    coordinates = {
        "Point": position,
        "LineString": line,
        "Polygon": {"type": "array", "items": ring},
        "MultiPoint": many,
        "MultiLineString": {"type": "array", "items": line},
        "MultiPolygon": {"type": "array", "items": {"type": "array", "items": ring}},
    }
    found: list[Schema] = []
    for name in rng.sample(list(coordinates), rng.randint(2, 6)):
        one: Schema = {"title": f"GeoJSON {name}", "type": "object", "required": ["type", "coordinates"]}
        one["properties"] = {"type": {"type": "string", "enum": [name]}, "coordinates": coordinates[name]}
        one["properties"]["bbox"] = {"type": "array", "minItems": 4, "items": {"type": "number"}}
        found.append(one)
    return found


def geojson(rng: random.Random, union: str) -> Schema:
    """A geometry, feature or collection of features of GeoJSON."""
    any_geometry = {union: geometries(rng)}
    feature: Schema = {"type": "object", "required": ["type", "properties", "geometry"]}
    feature["properties"] = {
        "type": {"type": "string", "enum": ["Feature"]},
        "id": {"oneOf": [{"type": "number"}, {"type": "string"}]},
        "properties": {"oneOf": [{"type": "null"}, {"type": "object"}]},
        "geometry": {union: [{"type": "null"}, *any_geometry[union]]},
    }
    collection: Schema = {"type": "object", "required": ["type", "features"]}
    collection["properties"] = {
        "type": {"enum": ["FeatureCollection"]},
        "features": {"type": "array", "items": feature},
    }
    return described(rng, rng.choice((any_geometry, feature, collection, {union: [feature, *any_geometry[union]]})))


@kind
def geojson_one_of(rng: random.Random) -> Schema:
    """GeoJSON as its authors wrote it."""
    return geojson(rng, "oneOf")


@kind
def geojson_any_of(rng: random.Random) -> Schema:
    """GeoJSON with anyOf in place of oneOf."""
    return geojson(rng, "anyOf")


def overlapping(rng: random.Random, union: str) -> Schema:
    """Objects that share names, with or without a member that tells them apart."""
    shared = {name: value(rng, 1) for name in words(rng, 1, 4)}
    tag = rng.choice((None, "type", "kind"))
    closed = rng.random() < 0.5
    cases: list[Schema] = []
    for index, own in enumerate(words(rng, 2, 8)):
        one: Schema = {"type": "object", "properties": {**shared, own: value(rng, 1)}, "required": [own]}
        if tag is not None:
            one["properties"] = {**one["properties"], tag: {"enum": [f"{own}{index}"]}}
            one["required"] = [tag, *one["required"]]
        if closed:
            one["additionalProperties"] = False
        cases.append(one)
    return described(rng, rng.choice(({union: cases}, {"type": "array", "items": {union: cases}})))


@kind
def objects_one_of(rng: random.Random) -> Schema:
    """oneOf of objects that share names."""
    return overlapping(rng, "oneOf")


@kind
def objects_any_of(rng: random.Random) -> Schema:
    """anyOf of objects that share names."""
    return overlapping(rng, "anyOf")


@kind
def types_one_of(rng: random.Random) -> Schema:
    """Members that are a text, a list or an object, as configurations have them."""

    def either() -> Schema:
        text = scalar(rng)
        listed = {"type": "array", "items": text, "minItems": rng.randint(0, 1)}
        return {rng.choice(("oneOf", "anyOf")): [text, listed, record(rng, 1)][: rng.randint(2, 3)]}

    named = words(rng, 3, 9)
    return described(rng, {"type": "object", "properties": {name: either() for name in named}})


# Pydantic


def field_of(rng: random.Random, models: list[Any]) -> Any:
    """The type of a field of a Pydantic model."""
    from pydantic import Field

    plain: list[Any] = [
        *(str, int, float, bool, datetime.date, datetime.datetime, decimal.Decimal),
        Annotated[str, Field(min_length=1, max_length=40)],
        Annotated[str, Field(pattern=r"^[A-Z]{2,5}$")],
        Annotated[int, Field(ge=0, le=120)],
        Annotated[float, Field(gt=0)],
        Literal["low", "medium", "high"],
        enum.Enum("Colour", {"red": "red", "green": "green", "blue": "blue"}),
        *models[-3:],
    ]
    one = rng.choice(plain)
    match rng.randrange(10):
        case 0 | 1 | 2 | 3:
            return one
        case 4 | 5:
            return one | None
        case 6:
            return list[one]
        case 7:
            return dict[str, one]
        case 8:
            return one | rng.choice(plain) | None
        case _:
            return tuple[one, rng.choice(plain)]


def model_of(rng: random.Random, models: list[Any], **fields: Any) -> Any:
    """A Pydantic model with fields of all kinds besides those that are given."""
    from pydantic import ConfigDict, create_model

    own: dict[str, Any] = {}
    for name in words(rng, 2, 7):
        type_ = field_of(rng, models)
        own[name] = (type_, None) if rng.random() < 0.3 else (type_, ...)
    name = f"{rng.choice(WORDS).title()}{len(models)}"
    config = ConfigDict(extra="forbid") if rng.random() < 0.5 else None
    made = create_model(name, __config__=config, **{**own, **fields})
    models.append(made)
    return made


@kind
def pydantic_models(rng: random.Random) -> Schema:
    """Models within models."""
    models: list[Any] = []
    for _ in range(rng.randint(1, 5)):
        model_of(rng, models)
    return models[-1].model_json_schema()


def pydantic_unions(rng: random.Random, discriminated: bool) -> Schema:
    """A list of a union of models, besides other fields."""
    from pydantic import Field

    models: list[Any] = []
    for _ in range(rng.randint(0, 2)):
        model_of(rng, models)
    cases: list[Any] = []
    for name in words(rng, 2, 6):
        tag: dict[str, Any] = {"kind": (Literal[name], ...)} if discriminated else {}
        cases.append(model_of(rng, list(models), **tag))
    union: Any = reduce(or_, cases)
    if discriminated:
        union = Annotated[union, Field(discriminator="kind")]
    return model_of(rng, models, parts=(list[union], ...)).model_json_schema()


@kind
def pydantic_unions_discriminated(rng: random.Random) -> Schema:
    """Lists of models that a member tells apart: oneOf."""
    return pydantic_unions(rng, True)


@kind
def pydantic_unions_plain(rng: random.Random) -> Schema:
    """Lists of models that nothing tells apart: anyOf."""
    return pydantic_unions(rng, False)


@kind
def pydantic_recursive(rng: random.Random) -> Schema:
    """A model that has children of its own kind, and links back to it."""
    models: list[Any] = []
    inner = model_of(rng, models).model_json_schema()
    definitions = inner.pop("$defs", {})
    inner["properties"] = {
        **inner["properties"],
        "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
        "parent": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}], "default": None},
    }
    return {"$defs": {**definitions, "Node": inner}, "$ref": "#/$defs/Node"}


# Configurations


@kind
def pattern_properties(rng: random.Random) -> Schema:
    """Names by patterns, beside names and others."""
    found = record(rng, 1)
    found["patternProperties"] = {each: value(rng, 1) for each in rng.sample(PATTERNS, rng.randint(1, 4))}
    found["additionalProperties"] = rng.choice((False, True, {"type": "string"}))
    return described(rng, {"type": "object", "properties": {"all": found, "each": {"type": "array", "items": found}}})


@kind
def unique_tags(rng: random.Random) -> Schema:
    """Lists of items that must differ."""
    items = rng.choice(({"type": "string"}, scalar(rng), {"enum": words(rng, 4, 9)}))
    tags = {"type": "array", "uniqueItems": True, "items": items, "minItems": rng.randint(0, 2)}
    found = record(rng, 1)
    found["properties"]["tags"] = tags
    found["properties"]["groups"] = {"type": "array", "items": {"type": "object", "properties": {"tags": tags}}}
    return described(rng, found)


@kind
def big_definitions(rng: random.Random) -> Schema:
    """A configuration of many definitions that refer to one another."""
    names = [f"{word}{index}" for index, word in enumerate(rng.choices(WORDS, k=rng.randint(20, 120)))]
    definitions: Schema = {}
    for name in names:
        one = record(rng, 1, 2, 12)
        for member in words(rng, 1, 4):
            other: Schema = {"$ref": f"#/definitions/{rng.choice(names)}"}
            listed = {"type": "array", "items": other}
            one["properties"][member] = rng.choice((other, listed, {"anyOf": [other, listed, {"type": "string"}]}))
        one["required"] = one["required"][:2] if "required" in one else []
        one["required"] = [name for name in one["required"] if "$ref" not in one["properties"][name]]
        definitions[name] = one
    top = {name: {"$ref": f"#/definitions/{name}"} for name in rng.sample(names, rng.randint(5, 20))}
    return described(rng, {"definitions": definitions, "type": "object", "properties": top})


@kind
def conditions(rng: random.Random) -> Schema:
    """allOf of if, then and else, by a member that says what the others are."""
    found = record(rng, 1)
    kinds = words(rng, 2, 6)
    found["properties"]["kind"] = {"enum": kinds}
    found["required"] = ["kind"]
    found.pop("additionalProperties", None)
    found["allOf"] = []
    for name in kinds:
        asked = words(rng, 1, 3)
        then: Schema = {"required": asked, "properties": {each: scalar(rng) for each in asked[:1]}}
        one: Schema = {"if": {"properties": {"kind": {"const": name}}}, "then": then}
        if rng.random() < 0.3:
            one["else"] = {"not": {"required": [rng.choice(WORDS)]}}
        found["allOf"].append(one)
    return described(rng, found)


@kind
def all_of_records(rng: random.Random) -> Schema:
    """allOf of a base and what extends it, by reference."""
    base, more = record(rng, 1), record(rng, 1)
    for one in (base, more):
        one.pop("additionalProperties", None)
    extended = {"allOf": [{"$ref": "#/definitions/base"}, more]}
    members = {"first": extended, "others": {"type": "array", "items": extended}}
    return described(rng, {"definitions": {"base": base}, "type": "object", "properties": members})


@kind
def reference_cycles(rng: random.Random) -> Schema:
    """Expressions and trees that contain themselves."""
    operators = [
        {"type": "object", "properties": {name: {"type": "array", "items": {"$ref": "#/definitions/expr"}}}}
        for name in words(rng, 2, 5)
    ]
    for one in operators:
        one["required"], one["additionalProperties"] = list(one["properties"]), False
    leaf = rng.choice(({"type": "string"}, {"type": ["number", "boolean"]}))
    expression = {rng.choice(("oneOf", "anyOf")): [leaf, *operators]}
    node = record(rng, 1)
    node["properties"]["when"] = {"$ref": "#/definitions/expr"}
    node["properties"]["children"] = {"type": "array", "items": {"$ref": "#/definitions/node"}}
    return described(rng, {"definitions": {"expr": expression, "node": node}, "$ref": "#/definitions/node"})


@kind
def kubernetes(rng: random.Random) -> Schema:
    """A custom resource, with quantities, ports that are numbers or names, and maps of labels."""
    int_or_string = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
    pattern = r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
    quantity = {"anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": pattern}
    labels = {"type": "object", "additionalProperties": {"type": "string"}}
    port = {
        "type": "object",
        "required": ["containerPort"],
        "properties": {
            "containerPort": {"type": "integer", "format": "int32"},
            "name": {"type": "string"},
            "target": int_or_string,
        },
    }
    container = {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string"},
            "image": {"type": "string"},
            "command": {"type": "array", "items": {"type": "string"}},
            "ports": {"type": "array", "items": port},
            "resources": {
                "type": "object",
                "properties": {"limits": {"type": "object", "additionalProperties": quantity}},
            },
            **record(rng, 2)["properties"],
        },
    }
    spec = record(rng, 2, 4, 12)
    spec.pop("additionalProperties", None)
    spec["properties"].update({"containers": {"type": "array", "items": container}, "replicas": {"type": "integer"}})
    expressions = {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["key", "operator"],
            "properties": {
                "key": {"type": "string"},
                "operator": {"type": "string"},
                "values": {"type": "array", "items": {"type": "string"}},
            },
        },
    }
    spec["properties"]["selector"] = {
        "type": "object",
        "properties": {"matchLabels": labels, "matchExpressions": expressions},
    }
    metadata = {"type": "object", "properties": {"name": {"type": "string"}, "labels": labels, "annotations": labels}}
    members = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": metadata,
        "spec": spec,
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    }
    return {"type": "object", "required": ["spec"], "properties": members}


@kind
def workflows(rng: random.Random) -> Schema:
    """Jobs by name, of steps that run or use something, as services for builds have them."""
    name = r"^[_a-zA-Z][a-zA-Z0-9_-]*$"
    env = {
        "oneOf": [
            {
                "type": "object",
                "additionalProperties": {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]},
            },
            {"type": "string"},
        ]
    }
    step: Schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "name": {"type": "string"},
            "uses": {"type": "string"},
            "run": {"type": "string"},
            "env": env,
            "with": {"type": "object", "additionalProperties": scalar(rng)},
            **record(rng, 1)["properties"],
        },
    }
    step[rng.choice(("oneOf", "anyOf"))] = [{"required": ["uses"]}, {"required": ["run"]}]
    needs = {
        "oneOf": [
            {"type": "array", "items": {"type": "string", "pattern": name}, "minItems": 1},
            {"type": "string", "pattern": name},
        ]
    }
    job = {
        "type": "object",
        "additionalProperties": False,
        "required": ["steps"],
        "properties": {"needs": needs, "env": env, "steps": {"type": "array", "minItems": 1, "items": step}},
    }
    events = {"enum": words(rng, 5, 12)}
    on = {
        "oneOf": [
            events,
            {"type": "array", "items": events, "minItems": 1},
            {"type": "object", "properties": {each: {"type": ["object", "null"]} for each in events["enum"]}},
        ]
    }
    jobs = {"type": "object", "patternProperties": {name: job}, "minProperties": 1, "additionalProperties": False}
    return described(
        rng,
        {
            "type": "object",
            "required": ["on", "jobs"],
            "properties": {"name": {"type": "string"}, "on": on, "env": env, "jobs": jobs},
        },
    )


# Small and odd ones


@kind
def handwritten(rng: random.Random) -> Schema:
    """One thing at a time: anything, texts of bounds, numbers, tuples."""
    low = rng.randint(0, 20)
    choices: list[Schema] = [
        {"type": "object", "properties": {name: {} for name in words(rng, 1, 4)}, "required": ["name"]},
        {"allOf": [{}, {"anyOf": [{}, {"type": "string"}]}]},
        {"type": "object", "properties": {"a": {"type": "string", "minLength": low, "maxLength": low + 20}}},
        {"type": "array", "items": {"type": "string", "maxLength": 10}, "minItems": 1, "maxItems": 5},
        {"type": "array", "items": {"type": "integer", "minimum": -low, "maximum": 10 * low}},
        {"type": "array", "items": {"type": "number", "multipleOf": 0.01, "exclusiveMinimum": 0}},
        {"type": "array", "items": [scalar(rng), scalar(rng), scalar(rng)], "additionalItems": False},
        {"type": "array", "items": {"type": "string", "pattern": rng.choice(PATTERNS)}},
        {"type": "array", "items": {"type": "string", "format": rng.choice(FORMATS)}},
        {"type": "array", "contains": {"type": "number"}},
        {"enum": [*words(rng, 2, 5), 1, None, {"a": [1, 2]}]},
        {"type": "object", "minProperties": 1, "maxProperties": 4, "additionalProperties": scalar(rng)},
        {"type": "object", "propertyNames": {"pattern": "^[a-z]+$"}, "additionalProperties": scalar(rng)},
    ]
    return described(rng, {"type": "object", "properties": {"it": rng.choice(choices)}, "required": ["it"]})


@kind
def dependencies(rng: random.Random) -> Schema:
    """Members that ask for others, or for one of several groups of others."""
    found = record(rng, 1, 5, 9)
    named = list(found["properties"])
    found["dependencies"] = {named[0]: [named[1]], named[2]: {"required": [named[3]]}}
    found["anyOf"] = [{"required": [each]} for each in rng.sample(named, rng.randint(2, 3))]
    if rng.random() < 0.3:
        found["not"] = {"required": named[-2:]}
    found["required"] = []
    return described(rng, found)
