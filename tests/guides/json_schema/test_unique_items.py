"""Items that must differ, out of more values than can be listed: what may be written, and what is left to write."""

from __future__ import annotations

import json
from itertools import permutations, product
from random import Random
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from trellm import Generator, Limits, Sample, Vocabulary, models
from trellm.errors import LimitError, OptionError, SchemaError
from trellm.guides import DEAD, GoalGuide, JSONGuide, laws, tokens_of

from ..support import WatchingJSONGuide, explain
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
ANYTHING = {"type": "array", "uniqueItems": True}
NAMED = {"type": "object", "properties": {"a": {"type": "boolean"}}, "additionalProperties": {"type": "integer"}}


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
        (ANYTHING, '[1,"1",true,"true",null,[1],["1"],{"1":1},[],{},[[]]]', True),
        (ANYTHING, "[[1],[1.0]]", False),
        (ANYTHING, "[[1,2],[2,1]]", True),
        (ANYTHING, '[{"a":1,"b":2},{"b":2.0, "a":1}]', False),
        (ANYTHING, '[{"a":1,"b":2},{"b":1,"a":2}]', True),
        (ANYTHING, '[{"a":1,"b":2},{"a":1}]', True),
        (ANYTHING, '[{"a":[{"b":[]}]},{"a":[{"b":[]}]}]', False),
        (ANYTHING, r'[{"a":0},{"\u0061":-0.0}]', False),
        (ANYTHING, "[{},{}]", False),
        (ANYTHING, "[[],[[]],[[[]]],[[[]]]]", False),
        (ANYTHING, "[[1,1],[[2],[2]]]", True),
        (ANYTHING, '[{"a":1,"a":2}]', False),
        (ANYTHING, '[{"a":1,"b":{"a":1}},{"a":1,"b":{"a":2}}]', True),
        ({**ANYTHING, "items": {"type": "array", "items": INTEGERS}}, "[[[1],[1]],[[1]]]", True),
        ({**ANYTHING, "items": {"type": "array", "items": INTEGERS}}, "[[[1],[2,2]]]", False),
        ({**ANYTHING, "items": {"type": "array", "items": INTEGERS, "uniqueItems": True}}, "[[[1],[1]]]", False),
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
    two = guide_of(
        {**STRINGS, "items": {"type": "string", "pattern": "^[ab]*$", "maxLength": 1, "minLength": 1}},
        whitespace="compact",
    )
    assert offers(two, '["a","') == {b"b"}
    assert offers(two, '["a","b"') == {b"]"}
    integers = guide_of(INTEGERS, whitespace="compact")
    assert b"0" in offers(integers, "[") and b"0" not in offers(integers, "[0,")
    assert b"." in offers(integers, "[1,1")  # as in 1.5e1
    digits = guide_of({**INTEGERS, "items": {"type": "integer", "minimum": 1, "maximum": 9}}, whitespace="compact")
    assert b"1" in offers(digits, "[") and not {b"1", b"12"} & offers(digits, "[1,")
    flags = guide_of({**SCALARS, "items": {"type": ["boolean", "string"]}}, whitespace="compact")
    assert {b"t", b"true", b"f"} <= offers(flags, "[") and not {b"t", b"true"} & offers(flags, "[true,")
    nested = guide_of(
        {**ANYTHING, "items": {"type": "array", "items": {"type": "boolean"}, "maxItems": 1}}, whitespace="compact"
    )
    assert offers(nested, "[[],[true],[") == {b"f"}
    assert offers(nested, "[[],[true],[false]") == {b"]"}
    one = {"type": "object", "properties": {"a": {"type": "boolean"}}, "additionalProperties": False}
    objects = guide_of({**ANYTHING, "items": one}, whitespace="compact")
    assert offers(objects, '[{},{"a":true},{') == {b'"'} and offers(objects, '[{},{"a":true},{"a":') == {b"f"}
    assert b"}" in offers(objects, "[{") and b"{}" not in offers(objects, "[{},")
    assert offers(objects, '[{},{"a":true},{"a":false}') == {b"]"}
    either = guide_of({**ANYTHING, "items": {"anyOf": [one, {"type": "null"}]}}, whitespace="compact")
    assert b"n" in offers(either, "[{},") and b"n" not in offers(either, "[null,{},")
    names = guide_of(
        {**ANYTHING, "items": {"type": "object", "patternProperties": {"^[xy]$": {}}, "additionalProperties": False}},
        whitespace="compact",
    )
    assert offers(names, '[{"x":1,"') == {b"y"} and offers(names, '[{"x":1,"y":2') & {b",", b"}"} == {b"}"}
    short = guide_of({**STRINGS, "items": {"type": "string", "maxLength": 2}}, whitespace="compact")
    assert b"b" in offers(short, '["a","a') and b"b" not in offers(short, '["ab","a')


def test_tokens_that_have_two_equal_items_in_them_are_refused() -> None:
    guide = guide_of(STRINGS, whitespace="compact")
    assert offers(guide, "") >= {b"["} and not offers(guide, "") & {b'["a","a"', b"[1,1"}
    assert not offers(guide, "[") & {b'"a","a"', b'"",""'}
    assert b'","a","' in offers(guide, '["b') and b'","a","' not in offers(guide, '["a')
    anyhow = guide_of(STRINGS, whitespace="compact", escapes="any")
    assert not offers(anyhow, r'["\u0061') & {b'","a","'} and b'","a","' in offers(anyhow, r'["\u0062')
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
    ANYTHING,
    {**ANYTHING, "items": NAMED},
    {**ANYTHING, "items": {**NAMED, "additionalProperties": False}, "minItems": 1},
    {**ANYTHING, "items": {"properties": {"a": INTEGERS}, "type": "object", "required": ["a"]}},
    {**ANYTHING, "items": {"properties": {"a": {**INTEGERS, "minItems": 2}}, "type": "object", "required": ["a"]}},
    {**ANYTHING, "items": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}, "contains": {"minItems": 1}},
    {**ANYTHING, "items": {"type": ["object", "array", "string"]}, "prefixItems": [{"type": "boolean"}]},
    {**ANYTHING, "minItems": 2},
    RECURSIVE,
    {**ANYTHING, "items": {**NAMED, "additionalProperties": False, "required": ["a"]}, "minItems": 2},
    {**ANYTHING, "items": {"type": "array", "items": {"type": "boolean"}, "maxItems": 1}, "minItems": 3},
]


def masks_lead_on(guide: JSONGuide, random: Random, texts: int, tokens: int) -> None:
    """The masks on the way of some texts are those tokens after which something may follow."""
    for _ in range(texts):
        state = guide.start
        for _ in range(tokens):
            allowed = tokens_of(guide.mask(state))
            assert allowed == [token for token in range(END + 1) if guide.advance(state, token) != DEAD]
            few = [each for each in allowed if set(VOCABULARY.tokens[each] or b"") <= set(b'ab01"[]{},:truefals')]
            token = random.choice(few or allowed)
            if token == END:
                break
            state = guide.advance(state, token)


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_masks_are_those_tokens_that_lead_on(number: int) -> None:
    guide = guide_of(SCHEMAS[number], whitespace=("compact", "flexible", "any")[number % 3])
    masks_lead_on(guide, Random(number), 3, 14)


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_laws(number: int) -> None:
    options: Any = {
        "whitespace": ("compact", "flexible", "pretty")[number % 3],
        "escapes": ("canonical", "any")[number % 2],
    }
    guide = guide_of(SCHEMAS[number], **options)
    laws.check(guide, seed=number, texts=1, tokens=12, sample=40)
    laws.knows_its_states(guide)


@pytest.mark.parametrize("schema", SCHEMAS[:2])
def test_what_is_said_does_not_depend_on_what_was_asked_before(schema: Any) -> None:
    seeds = iter(range(100))
    laws.does_not_remember(lambda: guide_of({**schema, "title": f"number {next(seeds)}"}), texts=4, tokens=8)


def item_schema(random: Random, depth: int) -> Any:
    kinds: list[Any] = [
        *({"type": "string"}, {"type": "string", "maxLength": 1}, {"type": "string", "pattern": "^(a|b|c*)$"}),
        *({"type": "integer"}, {"type": "number", "multipleOf": 0.5}, {"type": "boolean"}, {"enum": ["a", 1, [1]]}),
        *({"type": "integer", "minimum": 0, "maximum": 9}, {"type": ["string", "integer"]}),
    ]
    kind = random.random()
    if depth == 0 or kind < 0.4:
        return random.choice(kinds)
    if kind < 0.6:
        return {"type": "array", "items": item_schema(random, depth - 1), "uniqueItems": random.random() < 0.5}
    if kind < 0.7:
        return {"anyOf": [item_schema(random, depth - 1), item_schema(random, depth - 1)]}
    names = random.sample("abc", random.randint(1, 3))
    properties = {name: item_schema(random, depth - 1) for name in names}
    return {"type": "object", "properties": properties, "additionalProperties": False, "required": names[:1]}


def instance(random: Random, schema: Any) -> Any:
    """A value that often is one of the schema's, out of few."""
    if "anyOf" in schema:
        return instance(random, random.choice(schema["anyOf"]))
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
        case "array":
            return [instance(random, schema["items"]) for _ in range(random.randint(0, 4))]
        case _:
            members = random.sample(sorted(schema["properties"].items()), len(schema["properties"]))
            return {name: instance(random, part) for name, part in members if random.random() < 0.8}


def written(random: Random, value: Any) -> str:
    """One of the ways to write a value."""
    kind: object = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is list:
        return "[" + ", ".join(written(random, item) for item in value) + "]"
    if kind is dict:
        return "{" + ",".join(f"{json.dumps(name)}: {written(random, part)}" for name, part in value.items()) + "}"
    if kind is int:
        return random.choice([f"{value}", f"{value}.0", f"{value}.00"])
    return json.dumps(value, ensure_ascii=random.random() < 0.5)


@pytest.mark.parametrize("seed", range(12))
def test_texts_are_read_exactly_if_they_are_instances(seed: int) -> None:
    random = Random(seed)
    schema = {"type": "array", "items": item_schema(random, 2), "uniqueItems": True}
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
    least = {"minItems": seed % 3, "items": item_schema(random, 2)}
    schema = {"type": "array", "uniqueItems": True, **least}
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


@pytest.mark.parametrize("letters", ["a-yz", "b-za"])
def test_strings_whose_ends_are_far_take_few_steps_near_the_end_of_a_budget(letters: str) -> None:
    """However one looks for an end: the letter that leads to it comes last, or first, and behind it are 30 more."""
    others, mark = letters[:3], letters[3]
    item = {"type": "string", "pattern": f"^[{others}]*{mark}[{others}]{{30}}$"}
    guide = JSONGuide({"type": "array", "items": item, "uniqueItems": True, "minItems": 3, "maxItems": 4}, BYTES)
    word, state = f"bbbbb{mark}{30 * 'b'}", guide.start
    for byte in f'["{word}", "{word[:20]}'.encode():
        assert tokens_of(guide.mask_within(state, guide.distance(state) + 3))
        state = guide.advance(state, byte)


def test_the_room_that_items_take_does_not_grow_with_their_number() -> None:
    guide = guide_of({**STRINGS, "title": "room"}, whitespace="compact")
    state, held = guide.start, [0]
    for text in ["[", *(f'"item {number}",' for number in range(1, 801))]:
        state = guide.read(state, text.encode())
        held.append(guide.trail_bytes)
    assert held[801] - held[401] < 1.5 * (held[401] - held[1])


KINDS: list[Any] = [
    {**STRINGS, "contains": {"minLength": 1}, "minContains": 2},
    {**SCALARS, "contains": {"type": "string"}, "minContains": 2, "maxContains": 3, "minItems": 4},
    {**SCALARS, "contains": {"type": "boolean"}, "minContains": 2, "maxItems": 3},
    {**INTEGERS, "contains": {"minimum": 10}, "minContains": 0, "maxContains": 1, "minItems": 2},
    {**SCALARS, "items": {"type": ["boolean", "string"]}, "contains": {"const": True}, "minItems": 3},
    {**ANYTHING, "items": NAMED, "contains": {"required": ["a"]}, "minContains": 2},
]


@pytest.mark.parametrize("number", range(len(KINDS)))
def test_items_that_differ_are_counted(number: int) -> None:
    schema, random = KINDS[number], Random(number)
    guide = guide_of(schema, whitespace="compact")
    validator: Any = Draft202012Validator(schema)
    some: list[Any] = [True, False, None, 0, 1, 10, 11, 2.5, "", "a", "ab", {}, {"a": True}, {"a": False}, {"b": 1}]
    of_items: Any = Draft202012Validator(schema["items"])
    likely = [value for value in some if of_items.is_valid(value)]
    verdicts: set[bool] = set()
    for _ in range(300):
        value = [random.choice(likely) for _ in range(random.randint(0, 5))]
        expected = validator.is_valid(value)
        assert reads(guide, json.dumps(value, separators=(",", ":"))) == expected, value
        verdicts.add(expected)
    assert verdicts == {True, False}
    masks_lead_on(guide, random, 2, 14)
    laws.check(guide, seed=number, texts=2, tokens=14, sample=40)


OBJECTS = {**ANYTHING, "items": {"type": "object"}}
FEW: list[tuple[Any, str]] = [
    ({**OBJECTS, "contains": {"const": {}}, "minItems": 2}, "[{}"),
    ({**OBJECTS, "contains": {"const": {}}, "minContains": 0, "maxContains": 2, "minItems": 2}, "[{}"),
    ({**OBJECTS, "contains": {"minProperties": 1}, "minContains": 0, "maxContains": 2, "minItems": 2}, "[{}"),
    ({**ANYTHING, "items": {"type": "array"}, "contains": {"maxItems": 0}, "minItems": 3}, "[[],[[]]"),
    ({**ANYTHING, "items": {"type": ["object", "array"]}, "contains": {"enum": [{}, []]}, "minItems": 3}, "[{},[]"),
]


@pytest.mark.parametrize(("schema", "text"), FEW)
def test_distances_know_how_many_items_of_few_values_are_there(schema: Any, text: str) -> None:
    guide = guide_of(schema, whitespace="compact")
    for length in range(len(text) + 1):
        state = guide.read(guide.start, text[:length].encode())
        laws.distance_leads_to_the_end(guide, state, guide.mask(state))
    for budget in range(guide.distance(state), guide.distance(state) + 9):
        end = state
        for left in range(budget, 0, -1):
            end = guide.advance(end, tokens_of(guide.mask_within(end, left))[0])
        assert guide.is_accepting(end)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({**SCALARS, "contains": {"type": "boolean"}, "minContains": 3}, "no instance|contains"),
        ({**SCALARS, "contains": {"type": "string"}, "minContains": 2, "prefixItems": [{"const": 1}]}, "contains"),
        ({**SCALARS, "allOf": [{"contains": {"type": each}} for each in ("string", "null")]}, "contains"),
        ({**SCALARS, "prefixItems": [{"type": "string"}, {"const": "a"}], "minItems": 2}, "few values"),
        ({"type": "array", "not": STRINGS, "items": {"type": "string"}}, "two items"),
        (
            {**ANYTHING, "prefixItems": [{"type": "object", "maxProperties": 0}], "minItems": 2},
            "so many different ones",
        ),
    ],
)
def test_what_cannot_be_enforced_is_refused(schema: Any, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        JSONGuide(schema, VOCABULARY)


def test_arrays_with_equal_items_may_be_among_all_arrays() -> None:
    every: Any = {"type": "array"}
    for order in permutations((every, {**every, "minItems": 0}, {**every, "not": {"uniqueItems": True}})):
        assert JSONGuide({"anyOf": list(order)}, VOCABULARY).read(0, b"[1,1]") != DEAD


def test_too_many_items_that_must_be_there_are_refused() -> None:
    with pytest.raises(LimitError, match="minItems"):
        JSONGuide({**STRINGS, "minItems": 101}, VOCABULARY)


def test_too_few_values_for_the_items_that_must_be_there_are_refused() -> None:
    with pytest.raises(SchemaError, match="no value satisfies"):
        JSONGuide({**STRINGS, "items": {"type": "string", "pattern": "^[ab]$"}, "minItems": 3}, VOCABULARY)


BOOLEANS = {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}
FLAGS = {"properties": {"a": {"type": "boolean"}, "b": {"type": "boolean"}}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("item", "count"),
    [
        (BOOLEANS, 7),
        ({"type": "object", **FLAGS}, 9),
        ({"type": "object", **FLAGS, "required": ["a"]}, 6),
        ({"type": "array", "items": {**BOOLEANS, "maxItems": 1}, "maxItems": 2}, 13),
    ],
)
def test_as_many_objects_or_arrays_may_have_to_be_there_as_there_are(item: Any, count: int) -> None:
    guide = guide_of({**ANYTHING, "items": item, "minItems": count}, whitespace="compact")
    state, text = guide.start, b""
    while not guide.is_accepting(state):
        token = tokens_of(guide.mask_within(state, guide.distance(state)))[-1]
        state, text = guide.advance(state, token), text + (VOCABULARY.tokens[token] or b"")
    assert len({json.dumps(value, sort_keys=True) for value in json.loads(text)}) == count
    with pytest.raises(SchemaError, match="no value satisfies"):
        JSONGuide({**ANYTHING, "items": item, "minItems": count + 1}, VOCABULARY)


def test_a_vocabulary_without_some_bytes_is_refused() -> None:
    lacking = Vocabulary([bytes([byte]) for byte in range(128)] + [None], eos_ids=[128])
    with pytest.raises(SchemaError, match="all single bytes"):
        JSONGuide(STRINGS, lacking)


@pytest.mark.parametrize(
    ("schema", "texts"),
    [
        (INTEGERS, (b"", b"[", b"[1,", b"[1,1", b"[12,1", b"[0")),
        ({**ANYTHING, "items": NAMED}, (b'[{"a":true},{"', b'[{"b":1},{"b":2', b'[{"b":1},{"c":[]},{"a')),
    ],
)
def test_steps_by_bytes_and_by_tokens_agree(schema: Any, texts: tuple[bytes, ...]) -> None:
    guide = guide_of(schema, whitespace="compact")
    for text in texts:
        state = guide.start
        for byte in text:
            state = guide.advance(state, byte)
        by_bytes = guide.after_bytes(state)
        assert [guide.read(state, bytes([byte])) for byte in range(256)] == by_bytes.tolist()
        by_tokens = guide.after_tokens(state)
        trie = VOCABULARY.trie
        assert [guide.advance(state, token) for token in trie.ids.tolist()] == by_tokens.tolist()
        needed = guide.bytes_needed(by_bytes[by_bytes != DEAD])
        assert np.all(needed < 1000)


def test_what_is_certain_is_told_by_what_was_written() -> None:
    items = {"type": "string", "pattern": "^[ab]c*d$"}
    guide = guide_of({"type": "array", "uniqueItems": True, "items": items}, whitespace="compact")
    for text, certain in ((b'["ad', b'"'), (b'["ad","a', b"c"), (b'["acd","ac', b"c"), (b'["acd","bc', b"")):
        state = guide.read(guide.start, text)
        assert guide.certain_bytes(state, 64) == certain
        assert guide.certain_bytes(state, 0) == b""
        assert guide.after_each_token(state) is None


def test_one_item_differs_from_no_other() -> None:
    one = {"type": "array", "maxItems": 1, "uniqueItems": True, "contains": {"type": "integer"}}
    guide = JSONGuide({"prefixItems": [one]}, BYTES)
    assert reads(guide, "[[3]]") and not reads(guide, "[[]]") and not reads(guide, "[[3,4]]")


def test_items_that_hold_items_are_compared_as_deep_as_they_go() -> None:
    tree: Any = {"type": "array", "uniqueItems": True, "items": {"anyOf": [{"$ref": "#"}, {"type": "integer"}]}}
    guide = guide_of(tree, whitespace="compact")
    assert reads(guide, "[[[1],[]],[[1],[[]]],[1]]") and not reads(guide, "[[[1],[]],[2,2]]")
    deep = "[" * 2000 + "]" * 2000
    assert reads(guide, f"[{deep},[{deep}]]") and not reads(guide, f"[{deep},{deep}]")


def test_what_searches_take_is_counted() -> None:
    few = {**STRINGS, "items": {"type": "string", "pattern": "^[ab]{0,7}$"}, "title": "counted"}
    guide = guide_of(few, whitespace="compact", escapes="any", limits=Limits(work=400_000))
    words = ["".join(each) for length in range(8) for each in product("ab", repeat=length)]
    state = guide.start
    for part in ["[", *(f'"{word}",' for word in words[:-2]), f'"{words[-2]}"']:
        state = guide.read(state, part.encode())
    with pytest.raises(LimitError, match="steps of work"):
        guide.distance(guide.read(state, b","))
    assert guide.distance(state) == 1


def test_all_words_of_a_small_language_can_be_written() -> None:
    few = {**STRINGS, "items": {"type": "string", "pattern": "^[ab]{0,7}$"}, "title": "all of them"}
    guide = guide_of(few, whitespace="compact", limits=Limits(work=4_000_000))
    words = ["".join(each) for length in range(8) for each in product("ab", repeat=length)]
    Random(0).shuffle(words)
    state = guide.start
    for part in ["[", *(f'"{word}",' for word in words[:-1])]:
        state = guide.read(state, part.encode())
    last = f'"{words[-1]}"]'.encode()
    for at in range(len(last)):
        assert guide.distance(state) <= len(last) - at
        spelt = {VOCABULARY.tokens[token] for token in tokens_of(guide.mask(state))}
        assert spelt == {text for text in VOCABULARY.tokens if text and last[at:].startswith(text)}
        state = guide.advance(state, last[at])
    assert guide.is_accepting(state)


def test_numbers_of_any_length_are_compared() -> None:
    guide = guide_of({**INTEGERS, "items": {"type": "number"}}, whitespace="compact")
    long = "9" * 6000
    assert not reads(guide, f"[{long},{long}.0]") and reads(guide, f"[{long},1{long},-{long},{long}.1]")
    assert not reads(guide, f"[{long}0,{long}e1]") and not reads(guide, "[0e5,-0.0E+7]")


def test_guides_are_of_the_class_that_their_schema_takes() -> None:
    assert type(JSONGuide({"type": "string"}, VOCABULARY)) is JSONGuide
    first, again = guide_of(STRINGS), guide_of(STRINGS)
    assert first is again and first.held_bytes >= first.trail_bytes


def test_goals_are_not_joined_with_what_remembers_items() -> None:
    with pytest.raises(OptionError, match="cannot be joined with goals"):
        GoalGuide(guide_of(STRINGS), "ab")


def test_a_guide_that_has_given_out_many_states_gives_way_to_another() -> None:
    """They cannot be forgotten, and the next text must not find the memory full."""
    schema = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
    limits = Limits(memory=4 << 20)

    def written(guide: JSONGuide, number: int) -> None:
        state = guide.read(guide.start, b"[")
        for item in range(300):
            state = guide.read(state, b'"%d-%d",' % (number, item))

    first = JSONGuide(schema, BYTES, limits=limits)
    with pytest.raises(LimitError, match="memory"):
        for number in range(100):
            written(first, number)
    assert first.should_rebuild
    for number in range(100):  # each as a request makes its own
        guide = JSONGuide(schema, BYTES, limits=limits)
        assert not guide.should_rebuild
        written(guide, number)

    generator = Generator(models.from_function(lambda _: np.zeros(BYTES.size), BYTES), first)
    text = generator("Words: ", search=Sample(), seed=1, max_tokens=40)
    assert generator.guide is not first and isinstance(json.loads(text), list)


def test_masks_of_objects_with_many_members_take_no_search() -> None:
    """A string is to come that may make an object another one, however many members it may have before."""
    members = {f"p{number}": {"enum": ["red", "green"]} for number in range(40)}
    item = {"type": "object", "properties": {**members, "z": {"type": "string"}}, "additionalProperties": False}
    schema = {"type": "array", "items": {**item, "required": ["p0"]}, "uniqueItems": True}
    guide = JSONGuide(schema, VOCABULARY, whitespace="compact", limits=Limits(work=1_000_000))
    begin = dict.fromkeys(members, "red")
    text = json.dumps([begin, {**begin, "z": "a"}], separators=(",", ":")).encode()
    state = guide.start
    for number, byte in enumerate(text):
        if number % 5 == 0:
            assert guide.mask(state)[byte >> 5] >> (byte & 31) & 1
        state = guide.advance(state, byte)
    assert guide.is_accepting(state)


def test_masks_of_objects_that_differ_from_all_before_take_no_search() -> None:
    """Once a member makes an object another one, it does not matter what the members behind it may come to."""
    members = {f"p{number}": {"enum": ["red", "green"]} for number in range(30)}
    item = {"type": "object", "properties": {"id": {"type": "string"}, **members}, "additionalProperties": False}
    schema = {"type": "array", "items": item, "uniqueItems": True}
    guide = JSONGuide(schema, VOCABULARY, whitespace="compact", limits=Limits(work=1_000_000))
    few, others = ({name: "red" for name in list(members)[at::3]} for at in (0, 1))
    text = json.dumps([{"id": "a", **few}, {"id": "b", **others}], separators=(",", ":")).encode()
    different = text.index(b'"b"') + 3
    state = guide.start
    for number, byte in enumerate(text):
        if number >= different:
            assert guide.mask(state)[byte >> 5] >> (byte & 31) & 1
        state = guide.advance(state, byte)
    assert guide.is_accepting(state)


MEMBERS = {"id": {"type": "string"}, "n": {"type": "integer"}, "of": {"type": "object"}, "as": STRINGS}
DIFFERENT: list[Any] = [
    {"id": "a", "n": 1},
    {"id": "b", "n": 1, "of": {"x": 1, "y": [1, 1]}, "as": ["a", "b"]},
    {"id": "c", "of": {}, "more": [{"id": 1}]},
]


@pytest.mark.parametrize("is_open", [False, True])
def test_masks_in_items_that_differ_are_those_without_the_keyword(is_open: bool) -> None:
    """But for names that are there already, and for items of arrays that must differ in the item."""
    members = {**MEMBERS, "as": {"type": "array", "items": {"type": "string"}}}
    item = {"type": "object", "properties": members, "additionalProperties": is_open}
    values = DIFFERENT if is_open else DIFFERENT[:2]
    guide = guide_of({"type": "array", "items": item, "uniqueItems": True}, whitespace="compact")
    free = JSONGuide({"type": "array", "items": item}, VOCABULARY, whitespace="compact")
    text = json.dumps(values, separators=(",", ":")).encode()
    known = [text.index(each) for each in (b'"n":1},', b'},{"id":"b', b'"c"') if each in text]
    ends = [known[1], *(at for at in range(len(text)) if text[at : at + 3] == b"},{" and at > known[1]), len(text) - 2]
    state, other = guide.start, free.start
    for at, byte in enumerate(text):
        if known[0] <= at < ends[0] or text.index(b'"b"') + 3 <= at < ends[1]:
            lacking = set(tokens_of(free.mask(other))) - set(tokens_of(guide.mask(state)))
            assert not tokens_of(guide.mask(state) & ~free.mask(other))
            texts = [VOCABULARY.tokens[token] or b"" for token in lacking]
            assert all((is_open and b'"' in each) or each in (b'"a","a"', b'"",""') for each in texts), (at, texts)
        state, other = guide.advance(state, byte), free.advance(other, byte)
    assert guide.is_accepting(state)


def test_names_that_an_item_has_are_refused_however_its_tokens_are_cut() -> None:
    item = {"type": "object", "properties": {"id": {"type": "string"}}, "additionalProperties": {"type": "integer"}}
    guide = guide_of({"type": "array", "items": item, "uniqueItems": True}, whitespace="compact")
    begin = guide.read(guide.start, b'[{"id":"a"},{"id":"b","ab":1')
    assert begin != DEAD
    for rest, is_allowed in ((b',"a":1', True), (b',"ab":1', False), (b',"abab":1', True), (b',"b":1,"b":1', False)):
        for step in (1, 2, 3):
            state = begin
            for at in range(0, len(rest), step):
                piece = rest[at : at + step]
                token = next((t for t, text in enumerate(VOCABULARY.tokens) if text == piece), None)
                if state != DEAD:
                    guide.mask(state)
                    state = guide.read(state, piece) if token is None else guide.advance(state, token)
            assert (state != DEAD) is is_allowed, (rest, step)


def test_the_next_item_is_compared_with_items_whose_tokens_were_not_looked_at() -> None:
    """Their members may stand in any order, and numbers may be written in several ways."""
    item = {"type": "object", "properties": {"id": {"type": "string"}}, "additionalProperties": {"type": "number"}}
    guide = guide_of({"type": "array", "items": item, "uniqueItems": True}, whitespace="compact")
    state = guide.start
    for byte in b'[{"id":"x","p":10,"q":2},{"id":"y","q":2,"p":10},{"id":"x","q":2.0,"p":1e1':
        guide.mask(state)
        state = guide.advance(state, byte)
        assert state != DEAD
    allowed = {VOCABULARY.tokens[token] for token in tokens_of(guide.mask(state))}
    assert b"," in allowed and not allowed & {b"}", b"},", b"},{"}


@pytest.mark.parametrize("is_open", [False, True])
def test_the_laws_hold_of_objects_whose_members_are_equal_at_first(is_open: bool) -> None:
    """Enums and strings, required and not; a name of no bytes, which is one like others."""
    members = {"a": {"enum": ["a", "ab"]}, "": {"enum": [1, 10]}, "b": {"type": "string", "maxLength": 1}}
    item = {"type": "object", "properties": members, "required": ["b"]}
    more = {"type": "integer"} if is_open else False
    schema = {"type": "array", "items": {**item, "additionalProperties": more}, "uniqueItems": True}
    guide = JSONGuide(schema, VOCABULARY, whitespace="compact")
    laws.check(guide, texts=2, tokens=16, sample=40)
    same = b'[{"a":"a","b":"a"},{"b":"a","a":"a"'
    state = guide.read(guide.start, same)
    assert state == DEAD or not guide.mask(state)[ord("}") >> 5] >> (ord("}") & 31) & 1


@pytest.mark.parametrize("whitespace", ["compact", "flexible", "pretty", "any"])
@pytest.mark.parametrize(
    "values",
    [
        [[0], [1], [0, 1], [1, 0]],
        [{}, {"a": 0}, {"a": 1}, {"b": 0}, {"b": 1}, {"a": 0, "b": 0}, {"a": 0, "b": 1}, {"a": 1, "b": 0}],
    ],
)
def test_that_few_values_are_used_up_is_told_whatever_white_space_might_be_between(
    whitespace: Any, values: list[Any]
) -> None:
    """All values of the items but the last one, and all; arrays and objects are not listed."""
    few = {"enum": [0, 1]}
    item: Any = {"type": "array", "items": few, "uniqueItems": True, "minItems": 1}
    if values[0] == {}:
        values = [*values, {"a": 1, "b": 1}]
        item = {"type": "object", "properties": {"a": few, "b": few}, "additionalProperties": False}
    guide = guide_of({"type": "array", "items": item, "uniqueItems": True}, whitespace=whitespace)
    indent = 2 if whitespace == "pretty" else None
    for count in (len(values) - 1, len(values)):
        text = json.dumps(values[:count], indent=indent, separators=None if indent else (",", ":"))
        state = guide.read(guide.start, text[:-1].rstrip("\n").encode())
        allowed = bytes(token for token in tokens_of(guide.mask(state)) if token < 256)
        assert (b"," in allowed) == (count < len(values))
        assert (b"\n" if indent else b"]") in allowed


def unique(items: Any, **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, "uniqueItems": True, **more}


SHORT = unique({"type": "array", "items": {"type": "string"}, "maxItems": 1})
ENUMS = {"type": "object", "properties": {"b": {"enum": ["x", "y"]}}, "additionalProperties": False}
COUNTED = {"type": "object", "minProperties": 2}


@pytest.mark.parametrize("bytewise", [False, True])
@pytest.mark.parametrize(
    ("schema", "text", "token", "expected"),
    [
        (unique({"type": "integer"}), b"[1", b",1]", False),
        (unique({"type": "integer"}), b"[1", b",2]", True),
        (ANYTHING, b"[{},", b"{}]", False),
        (COUNTED, b'{"y":1', b',"y":2}', False),
        (STRINGS, b'["b","', b'c","c"', False),
        (STRINGS, b'["b","', b'c","d"', True),
        (unique(STRINGS), b'[["', b'b","b"', False),
        (SHORT, b'[["a"],[""', b'],["a"', False),
        (SHORT, b'[["a"],[""', b'],["b"', True),
        (unique(ENUMS), b'[{"b":"x', b'"},{"b":"x"', False),
        (unique({"type": "object"}), b'[{"q', b'":1,"q":2', False),
        (unique({"type": "object"}), b'[{"', b'q":1,"q":2', False),
        (unique({"type": "object"}), b'[{"r":1},{"r":2,"q', b'":1,"q":2', False),
        (unique({"type": "object"}), b'[{"r":1},{"r":2,"q', b'":1,"p":2', True),
        (COUNTED, b'{"x', b'":1,"x":2', False),
    ],
)
def test_what_a_token_has_twice_is_refused_by_masks_and_steps(
    schema: Any, text: bytes, token: bytes, expected: bool, bytewise: bool
) -> None:
    """Whole values behind the one in progress, before it, at the array's end, and behind that of another container."""
    vocabulary = Vocabulary([*(bytes([byte]) for byte in range(256)), token, None], eos_ids=[257])
    guide = JSONGuide(schema, vocabulary, whitespace="compact")
    state = guide.start
    for piece in [text[at : at + 1] for at in range(len(text))] if bytewise else [text]:
        state = guide.read(state, piece)
    assert (256 in tokens_of(guide.mask(state)), guide.advance(state, 256) != DEAD) == (expected, expected)


@pytest.mark.parametrize(
    ("items", "text", "token", "expected"),
    [
        ({"type": "string"}, b'["\\', b'\\"', True),
        ({"type": "string"}, b'["\\\\","\\', b'\\"', False),
        ({"type": "object"}, b'[{"\\', b'\\":', True),
        ({"type": "string"}, rb'["\ud83d', rb'\ude00"', True),
        ({"type": "string"}, "[\"\U0001f600\",\"\\ud83d".encode(), rb'\ude00"', False),
    ],
)  # fmt: skip
def test_tokens_behind_half_an_escape_are_read_as_what_they_end(
    items: Any, text: bytes, token: bytes, expected: bool
) -> None:
    vocabulary = Vocabulary([*(bytes([byte]) for byte in range(256)), token, None], eos_ids=[257])
    guide = JSONGuide(unique(items), vocabulary, whitespace="compact", escapes="any")
    state = guide.read(guide.start, text)
    assert (256 in tokens_of(guide.mask(state)), guide.advance(state, 256) != DEAD) == (expected, expected)


@pytest.mark.parametrize("text", [b'[{"a":true},{"b":1', b'[{"a":true},{"a":', b'[{"a', b"["])
def test_numbers_of_no_token_lead_nowhere(text: bytes) -> None:
    guide = guide_of(unique(NAMED), whitespace="compact")
    state = guide.start
    for byte in text:
        state = guide.advance(state, byte)
    for token in (VOCABULARY.size, VOCABULARY.size + 7, 2**31 - 1, 2**31, 2**40, -1):
        assert guide.advance(state, token) == DEAD


def test_numbers_of_no_token_lead_nowhere_among_words() -> None:
    guide = guide_of(INTEGERS, whitespace="compact")
    state = guide.start
    for byte in b"[1,22":
        state = guide.advance(state, byte)
    for token in (VOCABULARY.size, VOCABULARY.size + 7, 2**31 - 1, 2**31, 2**40, -1):
        assert guide.advance(state, token) == DEAD
