"""Exactly one of several alternatives, as `jsonschema` has it; a member that tells them apart spares their pairs."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from trellm import Limits
from trellm.guides import JSONGuide

from ...support import CompiledSchema, Meter
from ..test_guide_suite import BYTES

TAGS: list[Any] = ["a", "b", 1, 1.0, None, True, [1], {"a": 1}]


def told(random: Random) -> dict[str, Any]:
    """An alternative whose member `tag` is one of a few constants, written in one of several ways."""
    tags = random.sample(TAGS, random.randint(1, 2))
    ways: list[Any] = [
        {"enum": tags},
        {"const": tags[0]},
        {"enum": tags, "type": ["string", "integer", "null"]},
        {"pattern": "^(a|b)$", "type": "string"},
        {"pattern": "^b$"},
        {"type": "string"},
        {"$ref": "#/$defs/tag"},
        {"anyOf": [{"enum": tags}, {"const": "b"}]},
    ]
    found: dict[str, Any] = {"properties": {"tag": random.choice(ways)}}
    if random.random() < 0.7:
        found["properties"]["x"] = random.choice([{"type": "integer"}, {"const": 1}, {"type": "string"}, False])
    if random.random() < 0.3:
        found["required"] = random.choice([["tag"], ["x"], ["tag", "x"]])
    if random.random() < 0.3:
        found["type"] = random.choice(["object", ["object", "string"], ["object", "null", "array"]])
    if random.random() < 0.2:
        found["additionalProperties"] = False
    return found


def schema(random: Random) -> dict[str, Any]:
    choice: dict[str, Any] = {"oneOf": [told(random) for _ in range(random.randint(2, 4))]}
    context: list[dict[str, Any]] = [
        {"required": ["tag"]},
        {"required": ["tag"], "type": "object"},
        {"type": ["object", "string"]},
        {"oneOf": [told(random), told(random)]},
        {"anyOf": [{"required": ["tag"]}, {"type": "string"}]},
        {"not": {"properties": {"tag": {"const": "a"}}}},
    ]
    parts = random.sample(context, random.randint(1, 2))
    whole = {**choice, **parts[0]} if "oneOf" not in parts[0] else {"allOf": [choice, parts[0]]}
    whole = whole if len(parts) == 1 else {"allOf": [whole, parts[1]]}
    return {**whole, "$defs": {"tag": {"enum": ["b", 1]}}}


def values() -> list[Any]:
    found: list[Any] = [None, "a", 1, [], {}, {"x": 1}, {"x": "s"}]
    for tag in (*TAGS, "c", 2, False):
        found += [{"tag": tag}, *({"tag": tag, "x": x} for x in (1, 2, "s")), {"tag": tag, "y": 1}]
    return found


@pytest.mark.parametrize("seed", range(150))
def test_a_choice_is_that_of_the_oracle(seed: int) -> None:
    written = schema(Random(seed))
    compiled, oracle = CompiledSchema(written), Draft202012Validator(written)
    for value in values():
        assert compiled.accepts(compiled.root, value) == oracle.is_valid(value), (written, value)


@pytest.mark.parametrize("tag", [lambda n: {"const": f"kind {n}"}, lambda n: {"type": "string", "pattern": f"^k{n}$"}])
@pytest.mark.parametrize("is_outside", [True, False])
def test_what_a_member_tells_apart_is_not_compared_pair_by_pair(tag: Any, is_outside: bool) -> None:
    """Three hundred alternatives; that the member must be there is often said beside them, once for all."""
    required = {"required": ["tag"]}
    alternatives = [
        {"properties": {"tag": tag(n), f"x{n}": {"type": "integer"}}, **({} if is_outside else required)}
        for n in range(300)
    ]
    written = {"type": "object", "oneOf": alternatives, **(required if is_outside else {})}
    JSONGuide(written, BYTES, limits=Limits(work=30_000_000))


LISTS = {"type": "array", "items": {"type": "object", "additionalProperties": {"type": "integer"}}}


def beside(n: int, **more: Any) -> dict[str, Any]:
    """An alternative with a member of its own, beside members that all have, written in full each time."""
    own = {"type": "object", "properties": {"x": LISTS}, "required": ["x"]} if n % 2 else {"type": "integer"}
    return {"type": "object", "properties": {"a": LISTS, "b": {"items": LISTS}, f"own{n}": own}, **more}


def work(written: dict[str, Any]) -> int:
    with Meter(None) as meter:
        compiled = CompiledSchema(written)
        compiled.cases(compiled.root)
        return meter.spent


@pytest.mark.parametrize("is_closed", [True, False])
@pytest.mark.parametrize("must_come", [True, False])
def test_members_that_all_alternatives_have_are_refuted_in_none(is_closed: bool, must_come: bool) -> None:
    more: list[dict[str, Any]] = [
        {**({"required": [f"own{n}"]} if must_come else {}), **({"additionalProperties": False} if is_closed else {})}
        for n in range(9)
    ]
    alternatives = json.loads(json.dumps([beside(n, **each) for n, each in enumerate(more)]))  # nothing is shared
    compiled = CompiledSchema({"oneOf": alternatives})
    cases = compiled.cases(compiled.root).objects
    assert len(cases) == 9 and not any(case.either for case in cases)
    assert work({"oneOf": alternatives}) < 8 * work({"anyOf": alternatives})
