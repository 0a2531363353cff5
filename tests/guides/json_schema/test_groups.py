"""Alternatives of objects that are held in groups say the same as their product, and as `jsonschema`."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator, FormatChecker
from trellm.guides import JSONGuide, laws

from ...thresholds import thresholds
from ..support import CompiledSchema, Dfa
from .random_schemas import random_schema, random_value
from .test_guide_suite import BYTES, reads

VALUES = [1, 2, "a"]


def when(name: str, then: Any, other: Any) -> dict[str, Any]:
    return {"if": {"properties": {name: {"const": 1}}, "required": [name]}, "then": then, "else": other}


SCHEMAS: dict[str, dict[str, Any]] = {
    "conditions": {"allOf": [when("a", {"required": ["b"]}, {"properties": {"b": {"const": 2}}}), when("c", {}, {})]},
    "conditions on one member": {
        "allOf": [when("a", {"required": ["b"]}, {}), {"if": {"properties": {"a": {"const": 2}}}, "then": False}]
    },
    "dependent": {"dependentSchemas": {"a": {"required": ["b"]}, "b": {"properties": {"c": {"const": 1}}}}},
    "one of": {"oneOf": [{"properties": {"a": {"const": 1}}}, {"properties": {"b": {"type": "integer"}}}]},
    "any of, twice": {
        "allOf": [
            {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            {"anyOf": [{"properties": {"a": {"const": 1}}}, {"required": ["c"]}]},
        ]
    },
    "patterns": {"allOf": [{"anyOf": [{"patternProperties": {"^[ab]": {"const": n}}}, {"maxProperties": 1}]}
    for n in (1, 2)]},
    "patterns alone": {"allOf": [{"anyOf": [{"patternProperties": {"^[ab]": {"const": n}}}, {"required": ["c"]}]}
    for n in (1, 2)]},
    "not": {"not": {"anyOf": [{"required": ["a", "b"]}, {"properties": {"c": {"const": 1}}, "required": ["c"]}]}},
    "nothing left": {"allOf": [when("a", {"maxProperties": 0}, {}), when("b", {}, {"required": ["a"]})]},
    "circle": {"dependentRequired": {"a": ["b"], "b": ["c"], "c": ["a"]}},
    "not closed": {"not": {"anyOf": [
        {"properties": {"a": True, "b": {"const": 1}}, "additionalProperties": False},
        {"properties": {"b": True, "c": {"type": "integer"}}, "additionalProperties": False, "required": ["b"]},
        {"properties": {"a": True}, "additionalProperties": False},
    ]}},
    "nested": {"anyOf": [{"properties": {"a": {"properties": {"a": {"const": 1}}}}}, {"required": ["b"]}],
    "oneOf": [{"required": ["a"]}, {"required": ["c"]}]},
}  # fmt: skip
NAMES = {name: {"enum": VALUES} for name in "abc"}


def closed(name: str) -> dict[str, Any]:
    return {"type": "object", "properties": NAMES, "additionalProperties": False, "allOf": [SCHEMAS[name]]}


def instances() -> Iterator[dict[str, Any]]:
    for count in range(4):
        for names in itertools.combinations("abc", count):
            for values in itertools.product(VALUES, repeat=count):
                yield dict(zip(names, values, strict=True))


def held(schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch, **options: Any) -> JSONGuide:
    thresholds(monkeypatch, multiplied_schemas=1)
    return JSONGuide({**schema, "$comment": "held"}, BYTES, whitespace="compact", **options)


@pytest.mark.parametrize("name", SCHEMAS)
def test_groups_are_the_same_as_their_product(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    thresholds(monkeypatch, multiplied_schemas=1 << 20)
    multiplied = JSONGuide({**closed(name), "$comment": "multiplied"}, BYTES, whitespace="compact")
    ones, others = (Dfa.of(guide.automaton).minimised() for guide in (multiplied, held(closed(name), monkeypatch)))
    assert np.array_equal(ones.transitions, others.transitions)
    assert np.array_equal(ones.accepting, others.accepting)


@pytest.mark.parametrize("order", ["any", "schema"])
@pytest.mark.parametrize("name", SCHEMAS)
def test_groups_say_what_jsonschema_says(name: str, order: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    guide, validator = held(closed(name), monkeypatch, order=order), Draft202012Validator(closed(name))
    for instance in instances():
        orders = itertools.permutations(instance.items())
        texts = [json.dumps(dict(items), separators=(",", ":")) for items in orders]
        read = [reads(guide, text) for text in texts]
        assert any(read) == validator.is_valid(instance), instance
        assert order == "schema" or all(read) == any(read)


@pytest.mark.parametrize("name", ["conditions", "one of", "patterns alone", "circle", "not closed", "nested"])
def test_groups_obey_the_laws(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    laws.check(held(closed(name), monkeypatch), texts=4, tokens=20)


def test_twenty_conditions_on_different_members() -> None:
    conditions = [
        when(f"m{n}", {"required": [f"r{n}"]}, {"properties": {f"r{n}": {"type": "string"}}}) for n in range(20)
    ]
    schema = {"type": "object", "allOf": conditions}
    guide, validator = JSONGuide(schema, BYTES), Draft202012Validator(schema)
    random = Random(0)
    seen: set[bool] = set()
    for _ in range(200):
        names = random.sample([f"{kind}{n}" for n in range(4) for kind in "mr"], 4)
        instance = {name: random.choice([1, 2, "a"]) for name in names}
        seen.add(validator.is_valid(instance))
        assert reads(guide, json.dumps(instance)) == validator.is_valid(instance), instance
    assert seen == {True, False}
    other = JSONGuide({**schema, "$comment": "distances"}, BYTES)
    state = other.automaton.read(other.start, b'{"m3": 1, ')
    assert other.distance(state) == len('"r3":0}')


def told_apart(name: str, count: int) -> dict[str, Any]:
    """One of many objects that a member tells apart."""
    return {
        "oneOf": [
            {"properties": {name: {"const": f"{name}{n}"}, f"{name}{n}": {"type": "integer"}}, "required": [name]}
            for n in range(count)
        ]
    }


def test_alternatives_told_apart_by_members_are_not_multiplied() -> None:
    """27,000 combinations, of which none is worked out before a member tells."""
    guide = JSONGuide({"type": "object", "allOf": [told_apart(name, 30) for name in ("kind", "mode", "type")]}, BYTES)
    kinds = {"kind": "kind3", "mode": "mode29", "type": "type0"}
    assert reads(guide, json.dumps({**kinds, "kind3": 1, "mode29": 2}))
    assert reads(guide, json.dumps({"kind4": "a", **kinds}))
    assert not reads(guide, json.dumps({"kind3": "a", **kinds}))
    assert not reads(guide, json.dumps({**kinds, "mode29": "a"}))
    assert not reads(guide, json.dumps({"kind": "kind3", "mode": "mode29"}))
    assert not reads(guide, json.dumps({**kinds, "type": "type30"}))


def test_members_that_require_each_other_in_a_circle() -> None:
    """What must come follows from what came; to leave a member out before that is known leads to dead ends only."""
    count = 40
    schema = {"type": "object", "dependentRequired": {f"a{n}": [f"a{(n + 1) % count}"] for n in range(count)}}
    guide = JSONGuide(schema, BYTES)
    assert reads(guide, "{}")
    assert reads(guide, json.dumps({f"a{n * 7 % count}": n for n in range(count)}))
    assert not reads(guide, json.dumps({f"a{n}": n for n in range(count - 1)}))


def test_random_schemas_with_groups_accept_what_jsonschema_accepts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As tests/guides/json_schema/test_random_schemas.py, with all that can be held in groups held in groups."""
    thresholds(monkeypatch, multiplied_schemas=1)
    with_groups = 0
    for seed in range(400):
        random = Random(seed)
        parts = [random_schema(random, 2) for _ in range(3)]
        schema = {
            "$defs": {"d": True},
            "type": "object",
            "allOf": [{"anyOf": parts}, {"oneOf": parts}, {"not": parts[0]}],
        }
        compiled, validator = CompiledSchema(schema), Draft202012Validator(schema, format_checker=FormatChecker())
        with_groups += any(case.either for case in compiled.normal(compiled.root).objects)
        for _ in range(20):
            value = random_value(random)
            if isinstance(value, dict):
                assert compiled.accepts(compiled.root, value) == validator.is_valid(value), (seed, schema, value)
        if compiled.has_instance(compiled.root):
            assert validator.is_valid(compiled.minimal_instance(compiled.root)), (seed, schema)
    assert with_groups > 20


@pytest.mark.parametrize("tail", ["$", "-[a-z]*$"])
def test_patterns_tell_alternatives_apart(tail: str) -> None:
    """One of many objects that overlap in all but a member with a pattern; each negates all others."""
    members = {"a": {"type": "integer"}, "b": {"type": "string"}}
    cases: list[dict[str, Any]] = [
        {"properties": {"kind": {"type": "string", "pattern": f"^{kind}{tail}"}, kind: True, **members}}
        for kind in (f"k{number:02}" for number in range(40))
    ]
    schema = {"type": "object", "oneOf": [{**case, "required": ["kind"]} for case in cases]}
    guide = JSONGuide(schema, BYTES)
    end = "" if tail == "$" else "-x"
    assert reads(guide, json.dumps({"a": 1, "kind": f"k07{end}", "k07": None}))
    assert not reads(guide, json.dumps({"kind": f"k40{end}"}))
    assert not reads(guide, json.dumps({"kind": f"k07{end}", "b": 1}))


def none_of_closed(random: Random, count: int) -> dict[str, Any]:
    """Objects that are none of some which may have no other members than theirs."""
    names = [f"k{number}" for number in range(12)]
    kinds: list[Any] = [
        {"type": "string"},
        {"type": "integer"},
        {"enum": ["a", "b"]},
        {"minimum": 0, "maximum": 9},
        True,
    ]
    parts: list[dict[str, Any]] = []
    for _ in range(count):
        own = random.sample(names, random.randrange(1, 6))
        part: dict[str, Any] = {
            "properties": {name: random.choice(kinds) for name in own},
            "required": random.sample(own, random.randrange(0, len(own) + 1)),
            "additionalProperties": False,
        }
        parts.append(part)
    outer: dict[str, Any] = {"properties": {"k0": {"type": ["string", "integer"]}}}
    if count <= 10 and random.random() < 0.3:
        outer |= {"properties": dict.fromkeys(names[:6], True), "additionalProperties": False}
    if random.random() < 0.3:
        outer["required"] = ["k1"]
    return {"type": "object", **outer, "not": {"anyOf": parts}}


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 6))])
def test_none_of_many_closed_objects(seed: int) -> None:
    """Each of which some member with another name refutes: that would multiply."""
    random = Random(seed)
    schema = none_of_closed(random, (3, 10, 30)[seed % 3])
    guide = JSONGuide(schema, BYTES, whitespace="compact")
    validator: Any = Draft202012Validator(schema)
    seen = {True: 0, False: 0}
    parts = schema["not"]["anyOf"]
    for _ in range(200):
        part = random.choice(parts)["properties"]
        names = random.sample(sorted(part), random.randrange(len(part) + 1)) + random.choice(
            [[], ["k0"], ["k1", "x"], ["y"]]
        )
        value = {name: random.choice(["a", "c", 3, 12, None]) for name in names}
        expected = validator.is_valid(value)
        seen[expected] += 1
        assert expected == reads(guide, json.dumps(value, separators=(",", ":"))), value
    assert seen[True] > 5


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 4))])
def test_objects_with_some_member_obey_the_laws(seed: int) -> None:
    schema = none_of_closed(Random(seed), 12)
    guide = JSONGuide(schema, BYTES, order=("any", "schema")[seed % 2])
    laws.check(guide, seed=seed, texts=3)
    validator: Any = Draft202012Validator(schema)
    assert validator.is_valid(guide.schema.minimal_instance(guide.schema.root))
