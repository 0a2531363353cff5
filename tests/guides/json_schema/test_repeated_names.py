"""Names that a schema does not mention: once only where a second one could stand for a member that must be there."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from trellm.errors import SchemaError
from trellm.guides import DEAD, JSONGuide, laws, tokens_of

from ..support import WatchingJSONGuide
from .support import String, examples
from .test_unique_items import END, VOCABULARY, guide_of, reads

THREE = {"type": "object", "minProperties": 3}
SOME_OTHER = {"type": "object", "not": {"additionalProperties": {"type": "integer"}}}
LISTED = {"propertyNames": {"pattern": "^[a-c]$"}, **THREE}
PATTERNED = {"propertyNames": {"pattern": "^(ab)+$"}, "additionalProperties": {"enum": [1, 22]}, **THREE}
NUMBERED = {"propertyNames": {"pattern": "^[0-9]{2}$"}, "additionalProperties": {"const": 0}, **THREE}
REQUIRED = {"properties": {"a": {"const": 0}}, "required": ["a"], **THREE}
NESTED = {"properties": {"a": {**THREE, "additionalProperties": {"type": "boolean"}}}, "additionalProperties": False}
ITEMS = {"type": "array", "items": {"additionalProperties": {"enum": [1, 2]}, **THREE}, "uniqueItems": True}
ENFORCED = [THREE, SOME_OTHER, PATTERNED, NUMBERED, REQUIRED, NESTED, {**ITEMS, "minItems": 2}]


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        (THREE, '{"a":1,"b":2,"c":3}', True),
        (THREE, '{"a":1,"b":2,"a":3}', False),
        (THREE, '{"a":1,"b":2,"c":3,"a":4}', False),
        (THREE, '{"":0,"b":2,"":0}', False),
        (THREE, r'{"a":1,"b":2,"\u0061":3}', False),
        (THREE, '{ "a":1 , "b":{"a":1} , "c":[{"a":1},{"a":1}] }', True),
        (SOME_OTHER, '{"a":"x","a":2}', False),
        (SOME_OTHER, '{"a":2,"b":"x"}', True),
        (REQUIRED, '{"b":1,"a":0,"b":1}', False),
        (REQUIRED, '{"b":1,"a":0,"c":1}', True),
        (NESTED, '{"a":{"x":true,"y":true,"x":true}}', False),
        (NESTED, '{"a":{"x":true,"y":true,"z":true}}', True),
        ({"items": THREE}, '[{"a":1,"b":2,"c":3},{"a":1,"b":2,"c":3}]', True),
        ({"items": THREE}, '[{"a":1,"b":2,"c":3},{"a":1,"b":2,"b":3}]', False),
        ({**ITEMS, "minItems": 2}, '[{"a":1,"b":2,"c":1},{"a":1,"b":2,"d":1}]', True),
        ({**ITEMS, "minItems": 2}, '[{"a":1,"b":2,"c":1},{"a":1,"b":2,"b":1}]', False),
    ],
)
def test_names_that_count_are_there_once(schema: Any, text: str, expected: bool) -> None:
    assert reads(guide_of(schema, whitespace="any", escapes="any"), text) == expected


@pytest.mark.parametrize(
    "schema", [{"type": "object"}, {**THREE, "minProperties": 1}, {**REQUIRED, "minProperties": 2}]
)
def test_names_that_do_not_count_are_not_remembered(schema: Any) -> None:
    assert not isinstance(JSONGuide(schema, VOCABULARY), WatchingJSONGuide)


def test_few_names_are_a_list() -> None:
    guide = JSONGuide(LISTED, VOCABULARY)
    assert not isinstance(guide, WatchingJSONGuide)
    assert reads(guide, '{"c":0,"a":0,"b":0}') and not reads(guide, '{"c":0,"a":0,"a":0}')


@pytest.mark.parametrize(
    ("number", "options"),
    [
        pytest.param(number, options, marks=pytest.mark.slow if place and number not in (2, 3) else [])
        for place, options in enumerate([{"whitespace": "compact"}, {"escapes": "any", "order": "schema"}])
        for number in range(len(ENFORCED))
    ],
)
def test_guides_keep_the_laws(number: int, options: Any) -> None:
    guide = guide_of(ENFORCED[number], **options)
    laws.check(guide, seed=number, texts=1, tokens=10, sample=20)
    laws.knows_its_states(guide)


@pytest.mark.parametrize("schema", ENFORCED)
def test_what_is_written_within_a_budget_is_valid_as_it_is_parsed(schema: Any) -> None:
    guide, random = guide_of(schema, whitespace="compact"), Random(1)
    validator: Any = Draft202012Validator(schema)
    tokens = guide.vocabulary.tokens
    # Few letters, so that names are often begun that are there
    likely = [token for token, text in enumerate(tokens) if text and set(text) <= set(b'"{}[]:,ab012 tr')]
    wanted = np.zeros(len(tokens) + 31 & ~31, np.bool_)
    wanted[[*likely, END]] = True
    usual = np.packbits(wanted, bitorder="little").view(np.uint32)
    for spare in (0, 0, 1, 3, 10, 40):
        state, text = guide.start, b""
        for left in range(guide.distance(guide.start) + spare, -1, -1):
            allowed = guide.mask_within(state, left)
            token = random.choice(tokens_of(allowed & usual if (allowed & usual).any() else allowed))
            if token == END:
                break
            state, text = guide.advance(state, token), text + (tokens[token] or b"")
        assert guide.is_accepting(state), text
        assert validator.is_valid(json.loads(text)), text


def test_what_a_token_has_twice_is_not_offered() -> None:
    guide = guide_of(PATTERNED, whitespace="compact")
    start = guide.read(guide.start, b'{"ab":1')
    assert guide.read(start, b',"abab":1') != DEAD
    assert guide.read(start, b',"ab":1') == DEAD == guide.read(guide.start, b'{"ab":1,"ab":')
    offered = {VOCABULARY.tokens[token] or b"" for token in tokens_of(guide.mask(guide.read(start, b',"ab')))}
    assert b"ab" in offered and not any(b'"' in text for text in offered)


def test_names_without_end_are_refused() -> None:
    long = {"propertyNames": {"pattern": "^(a{600})+$"}, **THREE}
    with pytest.raises(SchemaError, match="names that must be there"):
        JSONGuide(long, VOCABULARY)


@pytest.mark.parametrize(
    ("case", "size"),
    [
        (String(patterns=frozenset(("^..$", "a", "c"))), 2),
        (String(patterns=frozenset(("^[ab]{1,2}$",)), excluded=frozenset(("a", "x"))), 5),
        (String(patterns=frozenset(("^(a|bc|é)?$",))), 4),
        (String(patterns=frozenset(("^[a-c]*$",)), max_length=2, min_length=1), 12),
        (String(not_patterns=frozenset((".{2}", "[^a\n]", "\n"))), 2),
        (String(patterns=frozenset(("^(ab)+$",))), None),
        (String(patterns=frozenset(("^.$",))), None),
    ],
)
def test_sets_are_counted(case: String, size: int | None) -> None:
    for most in range(14):
        found = examples(case, most)
        assert len(set(found)) == len(found) == (most if size is None else min(most, size))
