"""Arrays whose items must differ beside others: the first byte of the first item tells which an array is."""

from __future__ import annotations

import json
from itertools import product
from random import Random
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from trellm.errors import SchemaError
from trellm.guides import JSONGuide
from trellm.guides.laws import check, knows_its_states

from .test_unique_items import (
    ANYTHING,
    INTEGERS,
    NAMED,
    STRINGS,
    VOCABULARY,
    guide_of,
    masks_lead_on,
    reads,
    written,
)

TEXTS = {"type": "array", "items": {"type": "string"}}
OBJECTS = {**ANYTHING, "items": NAMED, "minItems": 1}
NULL_FIRST = {"type": "array", "prefixItems": [{"type": "null"}], "items": {"type": "number"}, "minItems": 1}
TEXT_FIRST = {**NULL_FIRST, "prefixItems": [{"type": "string"}]}

SCHEMAS: dict[str, Any] = {
    "objects differ, texts need not": {"oneOf": [TEXTS, OBJECTS, {"type": "boolean"}]},
    "what an array begins with": {"anyOf": [{**NULL_FIRST, "uniqueItems": True}, TEXT_FIRST]},
    "texts differ, anything else need not": {
        "anyOf": [STRINGS, {"type": "array", "items": {"type": ["number", "array", "null"]}}]
    },
    "arrays within differ": {
        "$defs": {
            "tree": {
                "anyOf": [
                    TEXTS,
                    {"type": "array", "minItems": 1, "uniqueItems": True, "items": {"$ref": "#/$defs/tree"}},
                ]
            }
        },
        "$ref": "#/$defs/tree",
    },
    "arrays of arrays that differ, and of others": {
        "anyOf": [
            {"type": "array", "items": {**STRINGS, "minItems": 1}, "uniqueItems": True},
            {"type": "array", "items": {"type": ["null", "number"]}},
        ]
    },
    "within members": {
        "properties": {"a": {"anyOf": [TEXTS, OBJECTS]}, "b": INTEGERS},
        "type": "object",
        "additionalProperties": False,
    },
    "names tell them apart": {
        "type": "object",
        "anyOf": [
            {"patternProperties": {"^a": STRINGS}, "additionalProperties": False},
            {"patternProperties": {"^b": TEXTS}, "additionalProperties": False},
        ],
    },
    "some member must be there, of any value": {
        "type": "object",
        "patternProperties": {"^a": STRINGS, "^x-": {}},
        "additionalProperties": False,
        "not": {"patternProperties": {"^x-": {}}, "additionalProperties": False},
    },
    "that must be there": {"anyOf": [TEXTS, {**ANYTHING, "items": {"enum": [True, [1]]}, "minItems": 2}, OBJECTS]},
}
SCALARS: list[Any] = [None, True, 0, 1, "", "a"]
FLAT: list[Any] = [*([one] for one in SCALARS), *map(list, product(SCALARS, repeat=2)), [], {}, {"a": True}, {"b": 1}]


def values(random: Random) -> list[Any]:
    """Arrays of scalars, and of what these are in, with many that have equal items."""
    inner = [*SCALARS, *FLAT]
    nested = [[random.choice(inner) for _ in range(random.randint(1, 3))] for _ in range(150)]
    alike = [[one] * 2 for one in FLAT] + [[*one, *one] for one in nested if random.random() < 0.3]
    found = [*FLAT, *nested, *alike]
    return [
        *found,
        *({"a": one} for one in found),
        *([one, one] for one in random.sample(nested, 20)),
    ]


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("whitespace", ["compact", "any"])
def test_texts_are_read_exactly_if_they_are_instances(name: str, whitespace: Any) -> None:
    random = Random(name)
    guide = guide_of(SCHEMAS[name], whitespace=whitespace, escapes="any")
    validator: Any = Draft202012Validator(SCHEMAS[name])
    verdicts = {True: 0, False: 0}
    for value in values(random):
        text = written(random, value)
        expected = validator.is_valid(value)
        verdicts[expected] += 1
        assert reads(guide, text.replace(", ", ",").replace(": ", ":") if whitespace == "compact" else text) == expected
    assert min(verdicts.values()) > 5


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_masks_are_those_tokens_that_lead_on(number: int) -> None:
    guide = guide_of([*SCHEMAS.values()][number], whitespace=("compact", "flexible", "any")[number % 3])
    masks_lead_on(guide, Random(number), 4, 16)


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_laws(number: int) -> None:
    guide = guide_of([*SCHEMAS.values()][number], whitespace=("compact", "flexible", "pretty")[number % 3])
    check(guide, seed=number, texts=2, tokens=12, sample=60)
    knows_its_states(guide)


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{**TEXTS, "minItems": 3}, STRINGS]},
        {
            "anyOf": [
                {"type": "array", "items": {"type": "array"}, "minItems": 3},
                {**ANYTHING, "items": {"type": "array", "items": TEXTS}},
            ]
        },
        # The number may be complete with its first byte, and what comes then looks alike.
        {"anyOf": [TEXTS, {"prefixItems": [{"type": "integer"}], "items": {"type": "string"}, **ANYTHING}]},
    ],
)
def test_what_the_first_byte_does_not_tell_is_refused(schema: Any) -> None:
    with pytest.raises(SchemaError, match="another alternative"):
        JSONGuide(schema, VOCABULARY)


def test_where_it_is_not_told_is_said_alike_each_time() -> None:
    """Of a member that one alternative speaks of, and another leaves open."""
    kinds = [{"properties": {"kind": {"const": kind}}, "required": ["kind"]} for kind in (1, 2)]
    for number in range(20):
        first = {**kinds[0], "properties": {**kinds[0]["properties"], "a": {**STRINGS, "title": f"{number}"}}}
        with pytest.raises(SchemaError) as caught:
            JSONGuide({"type": "object", "oneOf": [first, kinds[1]]}, VOCABULARY)
        assert caught.value.pointer == "#/oneOf/0/properties/a"


def test_arrays_of_items_of_different_types_are_apart() -> None:
    """So that one of them is none of the others whatever its items are: nothing need be equal in it."""
    things = {**OBJECTS, "items": {**NAMED, "required": ["a"]}}
    guide = JSONGuide({"oneOf": [{"$ref": "#/$defs/texts"}, things], "$defs": {"texts": TEXTS}}, VOCABULARY)
    for text, expected in (('["a","a"]', True), ('[{"a":true},{"a":true}]', False), ("[]", True), ("[1]", False)):
        assert reads(guide, text) == expected


@pytest.mark.parametrize("free", [TEXTS, {"type": "array"}, {"type": "array", "items": {"type": ["string", "null"]}}])
@pytest.mark.parametrize("more", [{}, {"minItems": 2}, {"prefixItems": [{"const": "a"}]}])
def test_arrays_that_another_alternative_has_all_need_not_differ(free: Any, more: Any) -> None:
    schema: Any = {"anyOf": [{**STRINGS, **more}, free]}
    guide = JSONGuide(schema, VOCABULARY)
    validator: Any = Draft202012Validator(schema)
    for value in values(Random(1)):
        assert reads(guide, json.dumps(value)) == validator.is_valid(value)


def test_responses_of_which_one_must_be_there() -> None:
    """As Swagger 2.0 has them: what must be there is no more than the rule on its name says of it."""
    parts: Any = {"type": "object", "additionalProperties": False}
    schema: Any = {
        **parts,
        "patternProperties": {
            "^[0-9]{3}$": {
                "oneOf": [
                    {**parts, "properties": {"required": STRINGS, "examples": {}}, "required": ["examples"]},
                    {**parts, "properties": {"$ref": {"type": "string"}}, "required": ["$ref"]},
                ]
            },
            "^x-": {},
        },
        "not": {**parts, "patternProperties": {"^x-": {}}},
    }
    guide = JSONGuide(schema, VOCABULARY)
    instances: list[Any] = [
        {"200": {"required": ["a", "b"], "examples": ["a", "a"]}},
        {"200": {"required": ["a", "a"], "examples": 1}},
        {"x-a": ["a", "a"], "404": {"$ref": "a"}},
        {"x-a": ["a", "a"]},
        {"404": {"$ref": "a", "required": []}},
    ]
    validator: Any = Draft202012Validator(schema)
    for value in instances:
        assert reads(guide, json.dumps(value)) == validator.is_valid(value)
