"""Schemas for records of scenes: names of fields, types, nesting; and the values that belong into them."""

from __future__ import annotations

import json
from random import Random
from typing import Any, cast

from .forms import expand, is_held_out, side
from .scenes import Domain, Scene
from .values import Value

TIME = "^[0-2][0-9]:[0-5][0-9]$"
_GROUPS = ("details", "info", "data", "main", "more", "about", "record", "basics", "entry", "summary")
_LISTS = ("items", "entries", "records", "list", "results", "rows")
_STYLES = ("_", "_", "_", "", " ", "-")

Pair = tuple[dict[str, Any], Any]
"""A schema and the value that it asks for."""


def field_name(random: Random, domain: Domain, slot: str, held_out: bool) -> str:
    """A name for a slot in words, on one side of the split."""
    return random.choice(side(domain.fields[slot], held_out))


def has_held_out_name(domain: Domain, slot: str) -> bool:
    """Whether some name of the slot's fields is held out."""
    return any(map(is_held_out, expand(domain.fields[slot])))


def styled(name: str, joint: str) -> str:
    """The words of a name as one: order_date, orderDate, order date or order-date."""
    if joint:
        return name.replace(" ", joint)
    first, *others = name.split(" ")
    return first + "".join(word.capitalize() for word in others)


def typed(random: Random, value: Value) -> Pair:
    """A schema for one value, and what it is under that schema: normalised, or as the passage has it."""
    kind = value.kind
    if kind == "flag":
        return {"type": "boolean"}, value.json
    if kind in ("count", "number", "year", "degrees"):
        return {"type": "integer"}, value.json
    if kind == "amount":
        return {"type": "number"}, value.json
    if kind == "people":
        return {"type": "array", "items": {"type": "string"}}, value.json
    if kind in ("date", "time") and random.random() < 0.8:
        return {"type": "string", **({"format": "date"} if kind == "date" else {"pattern": TIME})}, value.json
    if kind.startswith("one:") and random.random() < 0.6:
        several = kind[4:].split("|")
        options = random.sample(several, random.randrange(2, min(5, len(several)) + 1))
        if value.text not in options:
            options[random.randrange(len(options))] = value.text
        return {"enum": options}, value.text
    return {"type": "string"}, value.text


def closed(properties: dict[str, Any]) -> dict[str, Any]:
    """An object with exactly these members."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def record(random: Random, scene: Scene, unseen: bool) -> Pair:
    """A schema for some of what a scene tells, and the record.

    unseen: with none but names of fields that are held out, of slots that have any; the schema may have no fields
    """
    second = scene.second
    told = [slot for slot in scene.values if not unseen or has_held_out_name(scene.domain, slot)]
    if second is not None and random.random() < 0.5:
        shared = [slot for slot in told if slot in second.values and scene.domain.kinds[slot] != "people"]
        if shared:
            return _listed(random, scene, second, shared, unseen)
    slots = random.sample(told, random.randrange(min(1, len(told)), len(told) + 1))
    members = _members(random, scene, slots, unseen)
    if random.random() < 0.08 and not unseen:
        members[f"{random.choice(_GROUPS)}_{random.choice(('note', 'remark', 'comment'))}"] = (
            {"type": ["string", "null"]},
            None,
        )
    if len(members) > 2 and random.random() < 0.25:
        inner = dict(list(members.items())[random.randrange(1, len(members) - 1) :])
        outer = {name: pair for name, pair in members.items() if name not in inner}
        group = random.choice([name for name in _GROUPS if name not in members])
        members = {**outer, group: _object(inner)}
    return _object(members)


def _listed(random: Random, first: Scene, second: Scene, slots: list[str], unseen: bool) -> Pair:
    """A list of two records."""
    members = _members(random, first, slots, unseen)
    schemas = {name: schema for name, (schema, _) in members.items()}
    values: list[dict[str, Any]] = []
    for scene in (first, second):
        values.append({})
        for slot, (name, schema) in zip(slots, schemas.items(), strict=True):
            value = scene.values[slot]
            if "enum" in schema and value.text not in schema["enum"]:
                schema["enum"].append(value.text)
            is_normal = (
                "format" in schema or "pattern" in schema or schema.get("type") in ("integer", "number", "boolean")
            )
            values[-1][name] = value.json if is_normal else value.text
    array = {"type": "array", "items": closed(schemas)}
    name = random.choice(_LISTS)
    return closed({name: array}), {name: values}


def _members(random: Random, scene: Scene, slots: list[str], unseen: bool) -> dict[str, Pair]:
    joint = random.choice(_STYLES)
    members: dict[str, Pair] = {}
    for slot in slots:
        name = styled(field_name(random, scene.domain, slot, unseen), joint)
        # Two slots may have fields of one name, as two dates have.
        members[name if name not in members else f"{name}{joint}2"] = typed(random, scene.values[slot])
    return members


def _object(members: dict[str, Pair]) -> Pair:
    return closed({name: pair[0] for name, pair in members.items()}), {name: pair[1] for name, pair in members.items()}


def described(random: Random, schema: dict[str, Any]) -> tuple[str, bool]:
    """The schema as a prompt shows it, and whether the record is to be written without spaces."""
    way = random.random()
    is_compact = random.random() < 0.12
    separators = (",", ":") if is_compact else (", ", ": ")
    if way < 0.3:
        return f"Schema: {json.dumps(schema, separators=separators)}", is_compact
    if way < 0.5:
        return f"Properties: {json.dumps(_bare(schema), separators=separators)}", is_compact
    if way < 0.7:
        return f"Template: {json.dumps(_skeleton(schema), separators=separators)}", is_compact
    return f"Fields: {_listing(schema)}", False


def _bare(schema: dict[str, Any]) -> Any:
    """The properties alone."""
    if "properties" in schema:
        return {name: _bare(inner) for name, inner in schema["properties"].items()}
    return [_bare(schema["items"])] if "items" in schema else schema


def _kind(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(schema["enum"])
    if "format" in schema:
        return "date"
    return "time" if "pattern" in schema else "text or null" if isinstance(schema["type"], list) else schema["type"]


def _skeleton(schema: dict[str, Any]) -> Any:
    """The form of the record with kinds in place of values."""
    if "properties" in schema:
        return {name: _skeleton(inner) for name, inner in schema["properties"].items()}
    return [_skeleton(schema["items"])] if "items" in schema else _kind(schema)


def _listing(schema: dict[str, Any]) -> str:
    """The fields in a line: order_date (date), buyer (string)."""
    texts: list[str] = []
    for name, inner in schema["properties"].items():
        if "properties" in inner:
            texts.append(f"{name} ({_listing(inner)})")
        elif "items" in inner:
            of = inner["items"]
            texts.append(f"{name} (list of {f'({_listing(of)})' if 'properties' in of else _kind(of)})")
        else:
            texts.append(f"{name} ({_kind(inner)})")
    return ", ".join(texts)


def fields_of(value: Any, path: str = "") -> dict[str, Any]:
    """The fields of a record, those within others too, by where they stand: {"order/date": ..., "guests": [...]}."""
    if isinstance(value, dict):
        members = cast(dict[str, Any], value)
        inner = [fields_of(each, f"{path}/{name}") for name, each in members.items()]
    elif isinstance(value, list) and any(isinstance(each, dict) for each in cast(list[Any], value)):
        inner = [fields_of(each, f"{path}/{number}") for number, each in enumerate(cast(list[Any], value))]
    else:
        return {path: value}
    return {name: each for several in inner for name, each in several.items()}
