"""Arrays whose items must differ beside others that may have equal ones: an equal item leaves only the others."""

from __future__ import annotations

import json
from itertools import product
from random import Random
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.validators import validator_for
from trellm import Vocabulary
from trellm.guides import DEAD, JSONGuide, laws, tokens_of

from ..support import WatchingJSONGuide
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
    "the others are longer": {"anyOf": [STRINGS, {**TEXTS, "minItems": 3}]},
    "both must have some": {
        "anyOf": [{**ANYTHING, "minItems": 2}, {"type": "array", "items": {"type": ["string", "null"]}, "minItems": 2}]
    },
    "a constant with equal items": {"anyOf": [STRINGS, {"const": ["a", "a"]}]},
    "a list of constants": {
        "anyOf": [{**ANYTHING, "items": {"type": "array"}}, {"enum": [[[n]] * 2 for n in range(20)] + [["a", "a"]]}]
    },
    "some item": {"contains": {"type": "array", "items": {"type": ["string", "null"]}, "uniqueItems": True}},
    "arrays of arrays that are longer": {
        "anyOf": [
            {"type": "array", "items": {"type": "array"}, "minItems": 3},
            {**ANYTHING, "items": {"type": "array", "items": TEXTS}},
        ]
    },
    "the first is a number": {
        "anyOf": [TEXTS, {"prefixItems": [{"type": "integer"}], "items": {"type": "string"}, **ANYTHING}]
    },
    "in one the items, in the other those within": {
        "anyOf": [
            {"type": "array", "items": {"type": "array"}, "uniqueItems": True},
            {"type": "array", "items": {"type": "array", "uniqueItems": True}, "maxItems": 3},
        ]
    },
    "integers differ, numbers need not": {
        "anyOf": [INTEGERS, {"type": "array", "items": {"type": "number", "minimum": 0}, "maxItems": 3}]
    },
    "as a tree": {
        "$defs": {
            "tree": {
                "anyOf": [
                    {"type": "array", "items": {"$ref": "#/$defs/tree"}, "uniqueItems": True},
                    {"type": "array", "items": {"type": ["integer", "string"]}, "minItems": 2},
                    {"type": ["integer", "null"]},
                ]
            }
        },
        "$ref": "#/$defs/tree",
    },
    "a member, or another": {"anyOf": [{"properties": {"a": STRINGS}, "required": ["a"]}, {"required": ["b"]}]},
    "if there are two": {
        "type": "array",
        "if": {"maxItems": 2},
        "then": {"uniqueItems": True},
        "else": {"items": {"type": ["integer", "string"]}},
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
def test_texts_are_read_exactly_if_they_are_instances(name: str) -> None:
    random = Random(name)
    loose, dense = (guide_of(SCHEMAS[name], whitespace=each, escapes="any") for each in ("any", "compact"))
    validator: Any = Draft202012Validator(SCHEMAS[name])
    verdicts = {True: 0, False: 0}
    for value in values(random):
        text = written(random, value)
        expected = validator.is_valid(value)
        verdicts[expected] += 1
        assert reads(loose, text) == expected
        assert reads(dense, text.replace(", ", ",").replace(": ", ":")) == expected
    assert min(verdicts.values()) > 5


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_masks_are_those_tokens_that_lead_on(number: int) -> None:
    guide = guide_of([*SCHEMAS.values()][number], whitespace=("compact", "flexible", "any")[number % 3])
    masks_lead_on(guide, Random(number), 4, 16)


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_laws(number: int) -> None:
    guide = guide_of([*SCHEMAS.values()][number], whitespace=("compact", "flexible", "pretty")[number % 3])
    laws.check(guide, seed=number, texts=2, tokens=12, sample=60)
    laws.knows_its_states(guide)


NAMES: dict[str, Any] = {"type": "array", "items": {"type": "string"}, "minItems": 1, "uniqueItems": True}
PATHS: dict[str, Any] = {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
# As people write them: a list of names, each once, under some condition or in one of several forms
USUAL: dict[str, tuple[Any, list[Any]]] = {
    "draft-04's lists of strings": (
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "anyOf": [
                {"$ref": "http://json-schema.org/draft-04/schema#/definitions/stringArray"},
                {"type": "array", "items": {"$ref": "http://json-schema.org/draft-04/schema#"}},
            ],
        },
        [["a"], ["a", "a"], [], [{}, {}], [{"required": ["a", "a"]}], [{"type": ["string", "string"]}]],
    ),
    "files of a project": (
        {
            "type": "object",
            "allOf": [
                {"properties": {"files": {"type": "array", "items": {"type": "string"}, "uniqueItems": True}}},
                {"anyOf": [{"properties": {"files": {"type": "array"}}, "required": ["files"]}, {"required": ["b"]}]},
                {"anyOf": [{"properties": {"b": {"uniqueItems": True}}}, {"properties": {"b": {"maxItems": 2}}}]},
            ],
        },
        [{"files": ["a"]}, {"files": ["a", "a"]}, {"b": [1, 1]}, {"b": [1, 1, 1]}, {"b": [1, 2, 3]}, {}],
    ),
    "a task": (
        {
            "type": "object",
            "additionalProperties": {
                "anyOf": [
                    {"type": "object", "properties": {"src": PATHS, "dest": {"type": "string"}}, "required": ["dest"]},
                    {"type": "object", "properties": {"src": {"anyOf": [{"type": "string"}, NAMES]}}},
                ]
            },
        },
        [
            {"x": {"src": ["a", "a"]}},
            {"x": {"src": ["a", "a"], "dest": "b"}},
            {"x": {"src": ["a"]}},
            {"x": {"src": []}},
        ],
    ),
    "a map of sources": (
        {
            "type": "object",
            "anyOf": [
                {"properties": {"names": NAMES, "sections": False}, "required": ["names"]},
                {
                    "properties": {"sections": {"items": {"properties": {"names": {"type": "array"}}}}, "names": {}},
                    "required": ["sections"],
                },
            ],
        },
        [{"names": ["a"]}, {"names": ["a", "a"]}, {"names": 1}, {"sections": [{"names": [1, 1]}], "names": ["a", "a"]}],
    ),
    "a kind and its list": (
        {
            "type": "object",
            "properties": {"kind": {"enum": ["set", "list"]}, "values": {"type": "array", "items": {}}},
            "if": {"properties": {"kind": {"const": "set"}}, "required": ["kind"]},
            "then": {"properties": {"values": {"uniqueItems": True}}},
        },
        [
            {"kind": "set", "values": [1, 1]},
            {"values": [{"a": [1, 1]}, 2, 2], "kind": "set"},
            {"values": [1, 1], "kind": "list"},
            {"values": [1, 2], "kind": "set"},
            {"values": [1, 1]},
        ],
    ),
    "what depends": (
        {
            "type": "object",
            "properties": {"tags": {"type": "array", "items": {"type": ["string", "integer"]}}, "strict": {}},
            "dependentSchemas": {"strict": {"properties": {"tags": {"uniqueItems": True}}}},
        },
        [{"tags": [1, 1]}, {"tags": [1, 1], "strict": 1}, {"strict": 1, "tags": [1, 1.0]}, {"strict": 1, "tags": [1]}],
    ),
    "fields or their groups": (
        {
            "type": "object",
            "patternProperties": {
                "^[a-z]+$": {
                    "anyOf": [
                        {"type": "array", "items": {"type": "object"}, "uniqueItems": True},
                        {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "null"}}}},
                    ]
                }
            },
        },
        [{"x": [{"a": 1}, {"a": 2}]}, {"x": [{"a": 1}, {"a": 1}]}, {"x": [{"a": None}] * 2}, {"x": [{}, {}, {"a": 1}]}],
    ),
}


@pytest.mark.parametrize("name", USUAL)
def test_schemas_as_people_write_them(name: str) -> None:
    schema, instances = USUAL[name]
    guide = guide_of(schema)
    validator: Any = validator_for(schema, default=Draft202012Validator)(schema)
    verdicts = {validator.is_valid(value) for value in instances}
    assert verdicts == {True, False}
    for value in instances:
        assert reads(guide, json.dumps(value)) == validator.is_valid(value), value
    masks_lead_on(guide_of(schema, order="schema"), Random(name), 2, 16)


def random_arrays(random: Random, depth: int) -> dict[str, Any]:
    """A schema of arrays; half of them have items that must differ."""
    scalar = random.choice(
        [{"type": "string"}, {"type": ["integer", "string", "null"]}, {"enum": ["a", 1, ["a", "a"]]}]
    )
    inner = {"type": "object", "properties": {"a": scalar}, "additionalProperties": False}
    item = random.choice([scalar, scalar, {}, inner, random_arrays(random, depth + 1)] if depth < 2 else [scalar])
    found: dict[str, Any] = {"type": "array", "items": item, "uniqueItems": random.random() < 0.5}
    for keyword in ("minItems", "maxItems"):
        if random.random() < 0.2:
            found[keyword] = random.randint(1, 4)
    return found


def random_schema(random: Random) -> dict[str, Any]:
    parts = [random_arrays(random, 0) for _ in range(random.randint(2, 3))]
    match random.randrange(4):
        case 0:
            return {"type": "object", "anyOf": [{"properties": {"a": each}, "required": ["a"]} for each in parts]}
        case 1:
            return {"type": "array", "items": {"anyOf": parts}, "uniqueItems": random.random() < 0.5}
        case 2:
            return {"type": "array", "if": {"minItems": random.randint(2, 3)}, "then": parts[0], "else": parts[1]}
        case _:
            return {"anyOf": parts}


@pytest.mark.parametrize("first", range(0, 40, 20))
def test_random_schemas(first: int) -> None:
    watched = 0
    verdicts = {True: 0, False: 0}
    for seed in range(first, first + 20):
        random = Random(seed)
        schema = random_schema(random)
        whitespace, escapes = random.choice([("any", "any"), ("compact", "canonical"), ("flexible", "canonical")])
        guide = JSONGuide(schema, VOCABULARY, whitespace=whitespace, escapes=escapes)
        if not isinstance(guide, WatchingJSONGuide):
            continue
        watched += 1
        read = JSONGuide(schema, VOCABULARY, whitespace="any", escapes="any")
        validator: Any = Draft202012Validator(schema)
        for value in random.sample(values(random), 60):
            if "true" in (text := written(random, value)) and "1" in text:
                continue  # jsonschema compares neighbours in an order in which these are equal
            expected = validator.is_valid(value)
            verdicts[expected] += 1
            assert reads(read, text) == expected, (schema, value)
        masks_lead_on(guide, random, 2, 12)
        laws.check(guide, seed=seed, texts=1, tokens=12, sample=40)
    assert watched >= 8 and min(verdicts.values()) > 50


def test_a_long_list_beside_a_set_is_not_remembered() -> None:
    """Behind two equal items, or an item that the set does not have: there the states are the chart's own again."""
    guide = guide_of({"anyOf": [STRINGS, {"type": "array", "items": {"type": ["string", "null"]}, "minItems": 2}]})
    for text in ('["a","a"', '["a",null,"b"'):
        state, held = guide.read(guide.start, text.encode()), guide.trail_bytes
        for number in range(50):
            state = guide.read(state, f',"{number}"'.encode())
        assert state != DEAD and guide.trail_bytes == held


def test_bytes_of_no_text_are_never_allowed() -> None:
    """The graph has one of them, which leads past equal items."""
    pieces = [b"\xff", b"1\xff", b"\xff,", b'"\xff', b",\xff1"]
    vocabulary = Vocabulary([*(bytes([byte]) for byte in range(256)), *pieces, None], eos_ids=[256 + len(pieces)])
    guide = JSONGuide({"anyOf": [INTEGERS, {**ANYTHING, "uniqueItems": False}]}, vocabulary)
    state = guide.start
    for text in ("[", "1", ",", "1", ",", "2"):
        state = guide.read(state, text.encode())
        allowed = [vocabulary.tokens[token] or b"" for token in tokens_of(guide.mask(state))]
        assert allowed and not any(b"\xff" in each for each in allowed)
        assert guide.read(state, b"\xff") == DEAD and guide.after_bytes(state)[0xFF] == DEAD
        assert not any(guide.after_tokens(state)[vocabulary.trie.ids == 255 + number] != DEAD for number in range(6))


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
