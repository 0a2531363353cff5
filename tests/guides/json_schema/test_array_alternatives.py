"""Choices among many arrays: what their items are tells most combinations apart, or makes them one."""

from __future__ import annotations

import json
from itertools import product
from random import Random
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from trellm import Limits
from trellm.guides import JSONGuide, laws

from ..support import CompiledSchema
from .test_guide_suite import BYTES, reads


def between(least: int, most: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": most}


def lists(random: Random, kind: str) -> dict[str, Any]:
    """Arrays of numbers, or of objects with one, in a range that overlaps with others."""
    least = random.randrange(0, 50, 5)
    item = between(least, least + random.randrange(6, 30))
    match kind:
        case "items":
            return {"type": "array", "items": item}
        case "enough items":
            return {"type": "array", "items": item, "minItems": random.randrange(3)}
        case "members":
            return {"type": "array", "items": {"type": "object", "properties": {"x": item}, "required": ["x"]}}
        case "counted":
            return {"type": "array", "items": between(0, 60), "contains": item, "minContains": random.randrange(1, 3)}
        case _:
            return lists(random, random.choice(["items", "enough items", "members"]))


def choices(random: Random, kind: str, keyword: str, count: int, width: int) -> dict[str, Any]:
    return {"allOf": [{keyword: [lists(random, kind) for _ in range(width)]} for _ in range(count)]}


def value(random: Random) -> Any:
    numbers = [random.choice([0, 10, 14, 15, 20, 25, 29, 30, 35, 40, 45, 55, 69]) for _ in range(random.randrange(5))]
    if random.random() < 0.4:
        numbers = [random.randrange(80)]
    elif numbers and random.random() < 0.5:
        numbers = [*numbers[:1], *[random.choice(numbers[:2])] * random.randrange(3)]
    return numbers if random.random() < 0.5 else [{"x": number} for number in numbers]


@pytest.mark.parametrize(
    ("kind", "keyword", "count", "width"),
    [
        pytest.param(kind, *each, marks=pytest.mark.slow if place and kind != "mixed" else [])
        for kind in ("items", "enough items", "members", "mixed")
        for place, each in enumerate([("oneOf", 3, 5), ("oneOf", 2, 2), ("anyOf", 3, 5)])
    ],
)
def test_texts_are_read_exactly_if_they_are_instances(kind: str, keyword: str, count: int, width: int) -> None:
    seen = {True: 0, False: 0}
    for seed in range(5):
        random = Random(f"{kind} {keyword} {count} {seed}")
        schema = choices(random, kind, keyword, count, width)
        validator: Any = Draft202012Validator(schema)
        compiled = CompiledSchema(schema)
        guide = JSONGuide(schema, BYTES) if compiled.has_instance(compiled.root) else None
        for _ in range(200):
            one = value(random)
            expected = validator.is_valid(one)
            seen[expected] += 1
            assert (guide is not None and reads(guide, json.dumps(one))) == expected, (seed, one)
    assert seen[True] > 2 and seen[False] > 50


@pytest.mark.parametrize("seed", range(8))
def test_what_is_counted_is_counted_where_it_says_something(seed: int) -> None:
    random = Random(seed)
    parts = [lists(random, random.choice(["counted", "items"])) for _ in range(3)]
    schema = {"allOf": parts[:1], "anyOf": parts[1:], "not": lists(random, "counted")}
    validator: Any = Draft202012Validator(schema)
    compiled = CompiledSchema(schema)
    for _ in range(200):
        one = value(random)
        assert compiled.accepts(compiled.root, one) == validator.is_valid(one), one
    if compiled.has_instance(compiled.root):
        assert validator.is_valid(compiled.minimal_instance(compiled.root))


def test_laws() -> None:
    laws.check(JSONGuide(choices(Random(1), "items", "oneOf", 3, 5), BYTES), texts=3)


def test_arrays_whose_items_differ_in_type_have_the_empty_one_in_common() -> None:
    texts, numbers = ({"type": "array", "items": {"type": kind}} for kind in ("string", "number"))
    compiled = CompiledSchema({"allOf": [texts, numbers]})
    (case,) = compiled.normal(compiled.root).arrays
    assert case.max_items == 0
    none = CompiledSchema({"allOf": [texts, {**numbers, "minItems": 1}]})
    assert none.normal(none.root).is_empty


def test_what_follows_is_not_counted() -> None:
    small = {"type": "array", "items": between(0, 5)}
    for other, counted in ((between(9, 12), 0), (between(3, 9), 1), (between(0, 9), None)):
        compiled = CompiledSchema({**small, "not": {"items": other}})
        arrays = compiled.normal(compiled.root).arrays
        assert [len(case.contains) for case in arrays] == ([] if counted is None else [counted])
    nested = CompiledSchema({**small, "contains": between(2, 4), "allOf": [{"contains": between(1, 5)}]})
    assert [len(case.contains) for case in nested.normal(nested.root).arrays] == [1]


@pytest.mark.parametrize(
    ("count", "beside", "work"), [(8, {"minItems": 1}, 45), (30, {}, 30), (30, {"minContains": 0}, 30)]
)
def test_branches_that_evaluate_items_by_their_values(count: int, beside: dict[str, Any], work: int) -> None:
    """Each set of branches that ask for more than an item is an alternative, not multiplied by the branches."""
    schema = {
        "anyOf": [{"contains": {"const": i}, **beside} for i in range(count)],
        "unevaluatedItems": {"type": "string"},
    }
    guide = JSONGuide(schema, BYTES, whitespace="compact", limits=Limits(work=work * 10**6))
    validator = Draft202012Validator({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
    for items in (list(items) for size in range(4) for items in product([0, 3, 7, "a"], repeat=size)):
        assert reads(guide, json.dumps(items, separators=(",", ":"))) == validator.is_valid(items), items


def test_conditions_that_evaluate_items_by_their_values() -> None:
    condition: dict[str, Any] = {"if": {"contains": {"const": 1}}, "then": {"contains": {"const": 2}}}
    schema = {
        "oneOf": [{"contains": {"const": 3}, "minContains": 2}, {"contains": {"type": "null"}}, condition],
        "unevaluatedItems": {"type": "string"},
    }
    guide = JSONGuide(schema, BYTES, whitespace="compact")
    validator = Draft202012Validator({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
    for items in (list(items) for size in range(5) for items in product([1, 2, 3, "a", None], repeat=size)):
        assert reads(guide, json.dumps(items, separators=(",", ":"))) == validator.is_valid(items), items
