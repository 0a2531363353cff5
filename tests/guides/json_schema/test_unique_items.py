"""Items that must differ, out of more values than can be listed: what may be written, and what is left to write."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from trellm import Vocabulary
from trellm.errors import LimitError, OptionError, SchemaError
from trellm.guides import GoalGuide, JSONGuide
from trellm.guides.explain.explain import explain
from trellm.guides.json_guide import WatchingJSONGuide
from trellm.guides.laws import check, does_not_remember, knows_its_states
from trellm.guides.protocol import DEAD, tokens_of

from .test_guide_suite import BYTES

PIECES = (
    *(
        '["',
        '","',
        '"]',
        '",',
        '", "',
        '":',
        '{"',
        '":1',
        '"},',
        "},",
        "},{",
        "],[",
        "[]",
        "{}",
        "ab",
        'a"',
        "1,",
        "12",
    ),
    # Some have whole values in them.
    *("00", "0.", "e-", "true", "null", "1,1", "[1,1", '["a","a"', '"a","a"', '"",""', '","a","', ' "a","a",'),
)
VOCABULARY = Vocabulary(
    [*(bytes([byte]) for byte in range(256)), *(piece.encode() for piece in PIECES), None], eos_ids=[256 + len(PIECES)]
)
END = 256 + len(PIECES)
STRINGS = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
SCALARS = {"type": "array", "items": {"type": ["string", "number", "boolean", "null"]}, "uniqueItems": True}
INTEGERS = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}


RECURSIVE = {
    "type": "array",
    "items": {"anyOf": [{"$ref": "#"}, {"type": "integer"}]},
    "uniqueItems": True,
    "minItems": 2,
}


def guide_of(schema: Any, **options: Any) -> WatchingJSONGuide:
    guide = JSONGuide(schema, VOCABULARY, **options)
    assert isinstance(guide, WatchingJSONGuide)
    return guide


def reads(guide: JSONGuide, text: str) -> bool:
    state = guide.read(guide.start, text.encode())
    return state != DEAD and guide.is_accepting(state)


@pytest.mark.parametrize(
    ("schema", "resources"),
    [
        ({"$ref": "https://a.example/strings"}, {"https://a.example/strings": STRINGS}),
        ({"$ref": "https://a.example/any#/strings"}, {"https://a.example/any": {"strings": STRINGS}}),
        ({"$ref": "http://json-schema.org/draft-07/schema#/definitions/stringArray"}, {}),
    ],
)
def test_what_lies_in_other_documents_is_watched(schema: Any, resources: Any) -> None:
    guide = guide_of(schema, resources=resources)
    assert reads(guide, '["a","b"]') and not reads(guide, '["a","a"]')


def test_what_stands_at_several_places_is_watched_at_each() -> None:
    many = {f"a{number}": {"type": "integer"} for number in range(3)}
    part = {"properties": {**many, "items": STRINGS}, "additionalProperties": {"type": "null"}}
    guide = guide_of({"properties": {"first": {"properties": {"in": part}}, "second": {"items": part}, **many}})
    for text in ('{"first":{"in":{"items":["a",%s]}}}', '{"second":[{"items":["a",%s]}]}'):
        assert reads(guide, text % '"b"') and not reads(guide, text % '"a"')


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        (STRINGS, '["a","b",""]', True),
        (STRINGS, '["a","b","a"]', False),
        (STRINGS, '["",""]', False),
        (STRINGS, r'["a","\u0061"]', False),
        (STRINGS, r'["\ud83d\ude00","😀"]', False),
        (STRINGS, r'["\ud83d\ude00","\ud83d\ude01"]', True),
        (STRINGS, r'["\\","\\\\","\"","\\\""]', True),
        (STRINGS, r'["/","\/"]', False),
        (INTEGERS, "[1,10,100,-1,0]", True),
        (INTEGERS, "[1,1.0]", False),
        (INTEGERS, "[100,1e2]", False),
        (INTEGERS, "[0,-0]", False),
        (INTEGERS, "[0,-0.0]", False),
        ({**SCALARS, "items": {"type": "number"}}, "[1e1,10e-1,0.1,1e-2]", True),
        ({**SCALARS, "items": {"type": "number"}}, "[1,10e-1]", False),
        (SCALARS, '[1,"1",true,"true",null]', True),
        (SCALARS, "[true,false,true]", False),
        ({"properties": {"x": STRINGS, "y": {"items": {"type": "string"}}}}, '{"x":["a"],"y":["a","a"]}', True),
        ({"properties": {"x": STRINGS}}, '{"x":["a","b","b"]}', False),
        ({"items": STRINGS}, '[["a"],["a"]]', True),
        ({"items": STRINGS}, '[["a","a"]]', False),
    ],
)
def test_equal_items_are_refused_however_they_are_written(schema: Any, text: str, expected: bool) -> None:
    guide = guide_of(schema, whitespace="any", escapes="any")
    assert reads(guide, text) == expected
    assert explain(guide, text).matches == expected


def offers(guide: WatchingJSONGuide, text: str) -> set[bytes]:
    """The tokens that may come after a text."""
    mask = guide.mask(guide.read(guide.start, text.encode()))
    return {guide.vocabulary.tokens[token] or b"" for token in tokens_of(mask)}


def test_nothing_is_begun_that_can_only_end_in_what_is_there() -> None:
    few = guide_of({**STRINGS, "items": {"type": "string", "pattern": "^(a|b|cc*)$"}}, whitespace="compact")
    assert offers(few, '["a","') == {b"b", b"c"}
    assert offers(few, '["a","c') == {b"c", b'"', b'"]', b'",', b'","'}
    two = guide_of({**STRINGS, "items": {"type": "string", "pattern": "^[ab]$"}}, whitespace="compact")
    assert offers(two, '["a","') == {b"b"}
    assert offers(two, '["a","b"') == {b"]"}
    integers = guide_of(INTEGERS, whitespace="compact")
    assert b"0" in offers(integers, "[") and b"0" not in offers(integers, "[0,")
    assert b"." in offers(integers, "[1,1")  # as in 1.5e1
    digits = guide_of({**INTEGERS, "items": {"type": "integer", "minimum": 1, "maximum": 9}}, whitespace="compact")
    assert b"1" in offers(digits, "[") and not {b"1", b"12"} & offers(digits, "[1,")
    flags = guide_of({**SCALARS, "items": {"type": ["boolean", "string"]}}, whitespace="compact")
    assert {b"t", b"true", b"f"} <= offers(flags, "[") and not {b"t", b"true"} & offers(flags, "[true,")
    short = guide_of({**STRINGS, "items": {"type": "string", "maxLength": 2}}, whitespace="compact")
    assert b"b" in offers(short, '["a","a') and b"b" not in offers(short, '["ab","a')


def test_tokens_that_have_two_equal_items_in_them_are_refused() -> None:
    guide = guide_of(STRINGS, whitespace="compact")
    assert offers(guide, "") >= {b"["} and not offers(guide, "") & {b'["a","a"', b"[1,1"}
    assert not offers(guide, "[") & {b'"a","a"', b'"",""'}
    assert b'","a","' in offers(guide, '["b') and b'","a","' not in offers(guide, '["a')
    assert b'a"' in offers(guide, '["a","b') and b'a"' not in offers(guide, '["ba","b')


SCHEMAS: list[Any] = [
    STRINGS,
    INTEGERS,
    SCALARS,
    {**STRINGS, "items": {"type": "string", "maxLength": 2}, "minItems": 3},
    {**STRINGS, "items": {"type": "string", "pattern": "^(a|b|c*)$"}, "minItems": 3},
    {**STRINGS, "items": {"type": "string", "maxLength": 0}},
    {**SCALARS, "contains": {"type": "string"}},
    {**SCALARS, "items": {"type": ["number", "boolean"], "multipleOf": 0.5}, "minItems": 2},
]


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_laws(number: int) -> None:
    options: Any = {
        "whitespace": ("compact", "flexible", "pretty")[number % 3],
        "escapes": ("canonical", "any")[number % 2],
    }
    guide = guide_of(SCHEMAS[number], **options)
    check(guide, seed=number, texts=2, tokens=12, sample=60)
    knows_its_states(guide)


@pytest.mark.parametrize("schema", SCHEMAS[:2])
def test_what_is_said_does_not_depend_on_what_was_asked_before(schema: Any) -> None:
    seeds = iter(range(100))
    does_not_remember(lambda: guide_of({**schema, "title": f"number {next(seeds)}"}), texts=4, tokens=8)


def item_schema(random: Random) -> Any:
    kinds: list[Any] = [
        *({"type": "string"}, {"type": "string", "maxLength": 1}, {"type": "string", "pattern": "^(a|b|c*)$"}),
        *({"type": "integer"}, {"type": "number", "multipleOf": 0.5}, {"type": "boolean"}, {"enum": ["a", 1, [1]]}),
        *({"type": "integer", "minimum": 0, "maximum": 9}, {"type": ["string", "integer"]}),
    ]
    return random.choice(kinds)


def instance(random: Random, schema: Any) -> Any:
    """A value that often is one of the schema's, out of few."""
    if "enum" in schema:
        return random.choice(schema["enum"])
    kind = schema["type"] if isinstance(schema["type"], str) else random.choice(schema["type"])
    match kind:
        case "string":
            return random.choice(["", "a", "b", "c", "cc", "ü"])
        case "integer" | "number":
            return random.choice([0, 1, 2, 10, 1.5, -1])
        case "boolean":
            return random.random() < 0.5
        case _:
            return [instance(random, schema["items"]) for _ in range(random.randint(0, 4))]


def written(random: Random, value: Any) -> str:
    """One of the ways to write a value."""
    kind: object = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is list:
        return "[" + ", ".join(written(random, item) for item in value) + "]"
    if kind is int:
        return random.choice([f"{value}", f"{value}.0", f"{value}.00"])
    return json.dumps(value, ensure_ascii=random.random() < 0.5)


@pytest.mark.parametrize("seed", range(12))
def test_texts_are_read_exactly_if_they_are_instances(seed: int) -> None:
    random = Random(seed)
    schema = {"type": "array", "items": item_schema(random), "uniqueItems": True}
    guide = JSONGuide(schema, VOCABULARY, escapes="any")
    validator: Any = Draft202012Validator(schema)
    verdicts: set[bool] = set()
    for _ in range(80):
        value = instance(random, schema)
        expected = validator.is_valid(value)
        assert reads(guide, written(random, value)) == expected, value
        verdicts.add(expected)
    assert verdicts == {True, False}


@pytest.mark.parametrize("seed", range(12))
def test_random_texts_of_few_letters_end_within_their_budget_and_are_instances(seed: int) -> None:
    random = Random(seed)
    schema = {"type": "array", "items": item_schema(random), "uniqueItems": True, "minItems": seed % 3}
    guide = JSONGuide(schema, VOCABULARY, whitespace="compact")
    validator: Any = Draft202012Validator(schema)
    shortest = guide.distance(guide.start)
    for budget in (shortest, shortest + 3, shortest + 30):
        state, text = guide.start, b""
        for left in range(budget, -1, -1):
            allowed = tokens_of(guide.mask_within(state, left))
            assert allowed, (text, left)
            few = [each for each in allowed if set(VOCABULARY.tokens[each] or b"") <= set(b'abc01"[]{},:.truefals')]
            token = random.choice(few or allowed)
            if token == END:
                break
            text += VOCABULARY.tokens[token] or b""
            state = guide.advance(state, token)
        assert validator.is_valid(json.loads(text)), text


def test_a_shortest_text_has_nothing_twice() -> None:
    guide = guide_of({**STRINGS, "minItems": 4}, whitespace="compact")
    state, text = guide.start, b""
    while not guide.is_accepting(state):
        token = tokens_of(guide.mask_within(state, guide.distance(state)))[0]
        state, text = guide.advance(state, token), text + (VOCABULARY.tokens[token] or b"")
    assert len(set(json.loads(text))) == 4


def test_the_room_that_items_take_does_not_grow_with_their_number() -> None:
    guide = guide_of({**STRINGS, "title": "room"}, whitespace="compact")
    state, held = guide.start, [0]
    for text in ["[", *(f'"item {number}",' for number in range(1, 801))]:
        state = guide.read(state, text.encode())
        held.append(guide.trail_bytes)
    assert held[801] - held[401] < 1.5 * (held[401] - held[1])


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"anyOf": [STRINGS, {"type": "array", "items": {"type": "string"}, "minItems": 3}]}, "another alternative"),
        ({"anyOf": [STRINGS, {"const": ["a", "a"]}]}, "another alternative"),
        ({"contains": SCALARS}, "another alternative"),
        ({"anyOf": [{"properties": {"a": STRINGS}}, {"required": ["b"]}]}, "another alternative"),
        ({**STRINGS, "contains": {"minLength": 1}, "minContains": 2}, "contains"),
        ({**SCALARS, "prefixItems": [{"type": "string"}, {"const": "a"}], "minItems": 2}, "few values"),
        ({"type": "array", "not": STRINGS, "items": {"type": "string"}}, "two items"),
        ({"type": "array", "uniqueItems": True}, "no objects and arrays"),
        ({"items": {**STRINGS, "items": {"type": "object"}}}, "no objects and arrays"),
        (RECURSIVE, "no objects and arrays"),
    ],
)
def test_what_cannot_be_enforced_is_refused(schema: Any, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        JSONGuide(schema, VOCABULARY)


def test_too_many_items_that_must_be_there_are_refused() -> None:
    with pytest.raises(LimitError, match="minItems"):
        JSONGuide({**STRINGS, "minItems": 101}, VOCABULARY)


def test_too_few_values_for_the_items_that_must_be_there_are_refused() -> None:
    with pytest.raises(SchemaError, match="no value satisfies"):
        JSONGuide({**STRINGS, "items": {"type": "string", "pattern": "^[ab]$"}, "minItems": 3}, VOCABULARY)


def test_a_vocabulary_without_some_bytes_is_refused() -> None:
    lacking = Vocabulary([bytes([byte]) for byte in range(128)] + [None], eos_ids=[128])
    with pytest.raises(SchemaError, match="all single bytes"):
        JSONGuide(STRINGS, lacking)


def test_steps_by_bytes_and_by_tokens_agree() -> None:
    guide = guide_of(INTEGERS, whitespace="compact")
    for text in (b"", b"[", b"[1,", b"[1,1", b"[12,1", b"[0"):
        state = guide.read(guide.start, text)
        by_bytes = guide.after_bytes(state)
        assert [guide.read(state, bytes([byte])) for byte in range(256)] == by_bytes.tolist()
        by_tokens = guide.after_tokens(state)
        trie = VOCABULARY.trie
        assert [guide.advance(state, token) for token in trie.ids.tolist()] == by_tokens.tolist()
        needed = guide.bytes_needed(by_bytes[by_bytes != DEAD])
        assert np.all(needed < 1000)


def test_one_item_differs_from_no_other() -> None:
    one = {"type": "array", "maxItems": 1, "uniqueItems": True, "contains": {"type": "integer"}}
    guide = JSONGuide({"prefixItems": [one]}, BYTES)
    assert reads(guide, "[[3]]") and not reads(guide, "[[]]") and not reads(guide, "[[3,4]]")


def test_goals_are_not_joined_with_what_remembers_items() -> None:
    with pytest.raises(OptionError, match="cannot be joined with goals"):
        GoalGuide(guide_of(STRINGS), "ab")
