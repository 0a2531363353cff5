"""Guides of real schemas: right verdicts, walks that end in valid instances, the same for every segmentation."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from jsonschema.validators import validator_for
from trellm import Vocabulary
from trellm.errors import LimitError, SchemaError
from trellm.guides import JSONGuide, tokens_of

from ..support import Meter
from .test_guide_suite import BYTES, guide_of, reads
from .test_maskbench import WITHOUT_INSTANCE

PIECES = [
    "abc",
    "the ",
    '"}',
    '{"',
    '": "',
    '",',
    '", "',
    "},",
    "]}",
    "12",
    "00",
    "0.",
    "e-",
    "true",
    "null",
    "\\n",
    "é",
    "2024-",
]
VOCABULARY = Vocabulary(
    [*(bytes([byte]) for byte in range(256)), *(piece.encode() for piece in PIECES), None], eos_ids=[256 + len(PIECES)]
)
END = 256 + len(PIECES)
DECLARED = {"uniqueItems", "max_cases"}
"""What errors may name; nothing else is refused."""


@pytest.fixture(scope="module")
def records(shared_data: Path) -> list[dict[str, Any]]:
    with gzip.open(shared_data / "maskbench-dev.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.mark.parametrize("every", [52, pytest.param(13, marks=pytest.mark.slow)])
def test_verdicts_on_real_schemas(records: list[dict[str, Any]], every: int) -> None:
    wrong: list[str] = []
    refused: list[str] = []
    for record in records[::every]:
        guide = guide_of(record["schema"])
        if isinstance(guide, str):
            declared = record["id"] in WITHOUT_INSTANCE or any(word in guide for word in DECLARED)
            assert declared, (record["id"], guide)
            refused.append(record["id"])
            continue
        if [reads(guide, json.dumps(test["data"])) for test in record["tests"]] != [
            test["valid"] for test in record["tests"]
        ]:
            wrong.append(record["id"])
    assert wrong == []
    assert len(refused) < 0.03 * len(records[::every])


def walk(guide: JSONGuide, random: Random, budget: int) -> bytes:
    """A text out of random tokens, all that leave room to complete it equally likely."""
    state, text = guide.start, b""
    for left in range(budget, -1, -1):
        row = guide.mask_within(state, left)
        allowed = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
        assert len(allowed), f"a dead end after {text[-200:]!r}"
        token = int(random.choice(allowed.tolist()))
        if token == END:
            return text
        text += VOCABULARY.tokens[token] or b""
        state = guide.advance(state, token)
    raise AssertionError(f"{budget} tokens were not enough: {text[-200:]!r}")


def number(text: str) -> float | int:
    """A number with fraction or exponent; one beyond a float's range is a whole number that stands for it."""
    value = float(text)
    return value if math.isfinite(value) else int(math.copysign(10**300, value)) * 10**9


def test_random_walks_end_in_valid_instances(records: list[dict[str, Any]]) -> None:
    ended = 0
    for index, record in enumerate(records[::28]):
        schema = record["schema"]
        try:
            guide = JSONGuide(schema, VOCABULARY, order="schema" if index % 2 else "any")
        except (SchemaError, LimitError):
            continue
        kind = validator_for(schema, default=Draft202012Validator)
        validator = kind(schema, format_checker=kind.FORMAT_CHECKER)
        random = Random(index)
        shortest = guide.distance(guide.start)
        for most in (shortest, shortest + 5, shortest + 40):
            value = json.loads(walk(guide, random, most), parse_float=number)
            assert validator.is_valid(value), (record["id"], value)
            ended += 1
    assert ended > 150


NESTS: list[dict[str, Any]] = [
    {
        "type": "array",
        "minItems": 2,
        "items": {"type": "array", "minItems": 3, "items": {"enum": [[1, [2]], {"a": 2}]}},
    },
    {
        "type": "object",
        "properties": {"next": {"$ref": "#"}, "v": {"type": "array", "minItems": 2, "items": {"const": {"a": [1]}}}},
        "required": ["v"],
    },
    {
        "type": "array",
        "minItems": 1,
        "contains": {"type": "object", "required": ["q"], "properties": {"q": {"type": "array", "minItems": 2}}},
        "items": {"anyOf": [{"$ref": "#"}, {"type": "object", "minProperties": 1}]},
    },
]


@pytest.mark.parametrize("schema", NESTS)
@pytest.mark.parametrize(
    "options",
    [{}, {"whitespace": "compact", "order": "schema"}, {"whitespace": "pretty", "indent": 3},
     {"whitespace": "pretty", "indent": 0}, {"whitespace": "any", "escapes": "any"}],
)  # fmt: skip
def test_nested_values_end_in_time_however_they_are_written(schema: dict[str, Any], options: dict[str, Any]) -> None:
    guide = JSONGuide(schema, VOCABULARY, **options)
    shortest = guide.distance(guide.start)
    for seed, more in enumerate((0, 0, 1, 2, 9)):
        text = walk(guide, Random(seed), shortest + more)
        assert Draft202012Validator(schema).is_valid(json.loads(text, parse_float=number)), text


def test_arrays_of_some_length_take_as_many_tokens_as_they_need() -> None:
    guide = JSONGuide({"type": "array", "minItems": 2, "items": {"type": "array", "minItems": 2}}, BYTES)
    assert guide.distance(guide.start) == len("[[1,1],[1,1]]")
    pretty = JSONGuide(
        {"type": "array", "minItems": 2, "items": {"type": "array", "minItems": 2}}, BYTES, whitespace="pretty"
    )
    assert pretty.distance(pretty.start) == len("[\n  [\n    1,\n    1\n  ],\n  [\n    1,\n    1\n  ]\n]")
    assert pretty.mask_within(pretty.start, pretty.distance(pretty.start)).any()


def segmented(text: bytes, random: Random) -> list[int]:
    """The text in tokens, each chosen at random among those that fit."""
    ids: list[int] = []
    while text:
        fitting = [token for token, data in enumerate(VOCABULARY.tokens) if data and text.startswith(data)]
        ids.append(random.choice(fitting))
        text = text[len(VOCABULARY.tokens[ids[-1]] or b"") :]
    return ids


def verdict(guide: JSONGuide, tokens: list[int]) -> bool:
    """Whether the tokens are allowed one after the other, and then EOS."""
    state = guide.start
    for token in [*tokens, guide.vocabulary.eos_ids[0]]:
        allowed = bool(int(guide.mask(state)[token >> 5]) >> (token & 31) & 1)
        state = guide.advance(state, token)
        assert allowed == (state >= 0)
        if not allowed:
            return False
    return True


def test_every_segmentation_gets_the_same_verdict(records: list[dict[str, Any]], shared_data: Path) -> None:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    path = shared_data / "tokenizers" / "gpt2" / "tokenizer.json"
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_file(str(path)), eos_token="<|endoftext|>")
    real = Vocabulary.from_tokenizer(tokenizer)
    random = Random(7)
    seen: set[bool] = set()
    for record in records[5::85]:
        try:
            guide, in_tokens = (JSONGuide(record["schema"], vocabulary) for vocabulary in (VOCABULARY, real))
        except (SchemaError, LimitError):
            continue
        in_bytes = guide_of(record["schema"])
        assert isinstance(in_bytes, JSONGuide)
        for test in record["tests"][:6]:
            text = json.dumps(test["data"], ensure_ascii=False)
            expected = reads(in_bytes, text)
            seen.add(expected)
            assert verdict(guide, segmented(text.encode(), random)) == expected, record["id"]
            assert verdict(in_tokens, tokenizer.encode(text, add_special_tokens=False)) == expected, record["id"]
    assert seen == {True, False}


NESTED: dict[str, Any] = {"type": "integer"}
for _ in range(10_000):
    NESTED = {"items": NESTED}
OPTIONAL = {f"p{number}": {"type": "integer"} for number in range(50_000)}


@pytest.mark.parametrize(
    ("schema", "said", "pointer"),
    [
        (5, "a schema is an object, true or false", "#"),
        ("[1", "no JSON", "#"),
        ({"properties": {"a": {"type": "strin"}}}, "strin", "#/properties/a/type"),
        ({"properties": {"a": {"$ref": "#/$defs/no"}}}, "no", "#/properties/a/$ref"),
        ({"items": {"$ref": "https://example.com/s.json"}}, "resources", "#/items/$ref"),
        ({"$schema": "https://example.com/draft"}, "https://example.com/draft", "#/$schema"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "no value", "#"),
        ({"not": True}, "no value", "#"),
        ({"items": {"const": [10**5000]}}, "numbers of at most 1000 digits", "#/items/const"),
        ({"enum": [1, float("nan")]}, "numbers of at most 1000 digits", "#/enum"),
        ({"const": {"a": {1}}}, "JSON values", "#/const"),
        ({"const": {1: 2}}, "strings as names", "#/const"),
        ({"type": "integer", "minimum": -(10**5000)}, "a number of at most 1000 digits", "#/minimum"),
        ({"multipleOf": 10**5000}, "a number above 0, of at most 1000 digits", "#/multipleOf"),
        ('{"enum": [' + "1" * 5000 + "]}", "the limit is 1000", "#"),
        ({"items": {"pattern": "a(b"}}, "pattern", "#/items/pattern"),
        ({"items": {"pattern": r"(a)\1"}}, "pattern", "#/items/pattern"),
        ({"$ref": "#"}, "without progress", "#"),
        (
            {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}},
            "without progress",
            "#",
        ),
    ],
)
def test_bad_schemas_are_refused_with_their_place(schema: Any, said: str, pointer: str) -> None:
    with pytest.raises(SchemaError) as caught:
        JSONGuide(schema, BYTES)
    assert said in str(caught.value)
    assert caught.value.pointer.startswith(pointer)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "string", "minLength": 10**9}, "work="),
        ({"type": "array", "minItems": 10**9}, "work="),
        ({"type": "object", "minProperties": 10**9}, "work="),
    ],
)
def test_what_must_be_very_long_is_a_limit_error(schema: Any, said: str) -> None:
    with Meter(), pytest.raises(LimitError, match=said):
        JSONGuide(schema, BYTES)


@pytest.mark.parametrize("keyword", ["maxLength", "maxItems", "maxProperties"])
def test_a_greatest_count_beyond_reach_is_none(keyword: str) -> None:
    guide = JSONGuide({keyword: 2**53 - 1}, BYTES)
    assert reads(guide, '{"a": ["b"]}')


@pytest.mark.parametrize("spelling", ["plain", "any"])
@pytest.mark.parametrize(
    "schema",
    [
        {"const": {"a": 1e300}},
        {"enum": [[0.1, 1e300, "aa"]]},
        {"type": "object", "properties": {"a": {"type": "number", "minimum": 1e80}}, "required": ["a"]},
        {
            "type": "object",
            "properties": {"a": {"type": "integer", "multipleOf": 3, "minimum": 1e17}},
            "required": ["a"],
        },
        {"type": "array", "items": {"type": "number", "exclusiveMaximum": -99.5}, "minItems": 2},
    ],
    ids=str,
)
def test_every_budget_from_the_shortest_on_has_a_way_to_the_end(schema: Any, spelling: Any) -> None:
    """What a number takes at least is what its shortest text takes, in the spelling that is asked for."""
    guide = JSONGuide(schema, VOCABULARY, spelling=spelling)
    shortest = guide.distance(guide.start)
    random = Random(3)
    for budget in range(shortest, shortest + 60):
        assert json.loads(walk(guide, random, budget)) is not None
        assert len(np.flatnonzero(guide.mask_within(guide.start, budget)))


def test_a_loop_that_is_found_in_use_is_named() -> None:
    schema = {"oneOf": [{"enum": [""]}, {"$recursiveRef": "#"}]}
    with pytest.raises(SchemaError, match="back to itself") as caught:
        JSONGuide({"$schema": "https://json-schema.org/draft/2019-09/schema", **schema}, BYTES)
    assert caught.value.pointer == "#/oneOf/1"


@pytest.mark.parametrize(
    "definition",
    [{"$ref": "#/$defs/a"}, {"anyOf": [{"$ref": "#/$defs/b"}]}, {"not": {"allOf": [{"$ref": "#/$defs/a"}]}}],
    ids=str,
)
def test_only_what_is_reached_may_not_lead_round(definition: Any) -> None:
    both = {"a": definition, "b": {"$ref": "#/$defs/a"}}
    assert reads(JSONGuide({"type": "integer", "$defs": both}, BYTES), "3")
    for use in (
        {"items": {"$ref": "#/$defs/a"}},
        {"properties": {"x": {"dependentSchemas": {"y": {"$ref": "#/$defs/a"}}}}},
    ):
        with pytest.raises(SchemaError, match="without progress"):
            JSONGuide({**use, "$defs": both}, BYTES)


def test_a_zero_escape_ends_before_what_is_no_digit_of_ascii() -> None:
    guide = JSONGuide({"type": "string", "pattern": "^\\0\u0663$"}, BYTES)
    assert reads(guide, '"\\u0000\u0663"')
    with pytest.raises(SchemaError, match="pattern"):
        JSONGuide({"type": "string", "pattern": "^\\03$"}, BYTES)


def test_standards_with_two_readings() -> None:
    dates = JSONGuide({"type": "string", "format": "date"}, BYTES)
    texts = ("0000-01-01", "0000-02-29", "0100-02-29", "2024-02-29", "1900-02-29")
    assert [reads(dates, f'"{text}"') for text in texts] == [True, True, False, True, False]
    templates = JSONGuide({"type": "string", "format": "uri-template"}, BYTES)
    assert [reads(templates, f'"{{{operator}x}}"') for operator in "+=,!@|"] == [True] + [False] * 5
    new, old = (
        JSONGuide(
            {"$schema": f"http://json-schema.org/draft-0{draft}/schema#", "type": "string", "format": "hostname"}, BYTES
        )
        for draft in (7, 6)
    )
    assert [reads(guide, '"ab--cd.org"') for guide in (new, old)] == [False, True]


def test_constants_keep_the_notation_of_integers_in_draft_4() -> None:
    draft = {"$schema": "http://json-schema.org/draft-04/schema#"}
    few: dict[str, Any] = {"enum": [3, 2.5, "a"], "type": ["integer", "string"]}
    guide = JSONGuide({**draft, **few}, BYTES)
    assert [reads(guide, text) for text in ("3", "3.0", "2.5", '"a"')] == [True, False, False, True]
    others = JSONGuide({**draft, "not": few, "type": "number"}, BYTES)
    assert [reads(others, text) for text in ("3", "3.0", "2.5", "4", "4.0")] == [False, True, True, True, True]
    guide = JSONGuide(few, BYTES)
    assert [reads(guide, text) for text in ("3", "3.0", "2.5")] == [True, True, False]


def test_names_whose_members_have_no_value_are_not_offered() -> None:
    impossible = {"type": "object", "additionalProperties": False, "required": ["b"]}
    for keyword in ({"patternProperties": {"^[0-9]+$": impossible}}, {"additionalProperties": impossible}):
        guide = JSONGuide({"type": "object", "properties": {"a": {}}, **keyword}, BYTES)
        state = guide.automaton.read(guide.start, b'{"1')
        assert state < 0 or guide.automaton.step(state, ord('"')) < 0
        assert reads(guide, '{"a": 1}')


def test_deep_schemas_work_or_hit_a_limit() -> None:
    try:
        guide = JSONGuide(NESTED, BYTES)
    except LimitError as error:
        assert "nested" in str(error)
    else:
        assert reads(guide, "[" * 200 + "]" * 200)
    with pytest.raises(LimitError, match="nested"):
        JSONGuide('{"items":' * 100_000 + "1" + "}" * 100_000, BYTES)


def test_fifty_thousand_properties() -> None:
    guide = JSONGuide({"properties": OPTIONAL, "required": ["p7"], "additionalProperties": False}, BYTES)
    assert reads(guide, '{"p7": 1}')
    assert not reads(guide, '{"p7": "a"}')
    assert not reads(guide, '{"p50000": 4')


def test_the_way_to_the_end_meets_rules_and_brings_required_members() -> None:
    """One member can only do one of both, so that neither count alone says what is nearer to the end."""
    some_x = {"not": {"propertyNames": {"not": {"pattern": "x"}}}}
    guide = JSONGuide({"type": "object", "required": ["abcd"], **some_x}, BYTES)
    fitting = guide.distance(guide.start)
    # A name that must differ from others promises up to 8 bytes more than the shortest, which may be there already.
    assert len('{"abcd":0,"x":0}') <= fitting <= len('{"abcd":0,"x":0}') + 2 * 8


def test_patterns_that_no_name_meets_together_do_not_multiply() -> None:
    patterns = {f"^kind{index}:(en|nl)$": {"const": index} for index in range(30)}
    named = {"kind3:en": {"const": "named"}}
    guide = JSONGuide({"properties": named, "patternProperties": patterns, "additionalProperties": False}, BYTES)
    assert reads(guide, '{"kind7:en":7,"kind29:nl":29,"kind3:nl":3}')
    assert not reads(guide, '{"kind7:en":8}')
    assert not reads(guide, '{"kind3:en":3}')
    assert not reads(guide, '{"kind7:pt":7}')


def test_products_without_end_are_read_on_demand() -> None:
    """Exactly one of ten things that any member may get wrong: whatever is left out on the way, they multiply."""
    kinds = [{"properties": {f"{kind}{at}": {"const": at} for at in range(6)}} for kind in "abcdefghij"]
    guide = JSONGuide({"type": "object", "oneOf": kinds}, BYTES)
    wrong = ",".join(f'"{kind}0":1' for kind in "abcdefghi")
    assert reads(guide, "{" + wrong + "}") and reads(guide, "{" + wrong + ',"j5":5}')
    assert not reads(guide, "{" + wrong + ',"j5":4}') and not reads(guide, "{}")


def test_products_that_counts_take_part_in_are_refused_soon() -> None:
    kinds = [{"properties": {f"{kind}{at}": {"const": at} for at in range(6)}} for kind in "abcdefghij"]
    with pytest.raises(LimitError, match=r"max_cases|work="):
        JSONGuide({"type": "object", "maxProperties": 20, "oneOf": kinds}, BYTES)


def test_the_way_to_the_end_does_not_go_round_in_white_space() -> None:
    """A string under a pattern with a least length promises less than it takes when every escape is allowed."""
    name = {"type": "string", "minLength": 3, "maxLength": 80, "pattern": "^(?:@[0-9a-z]+/)?[a-z][0-9a-z]*$"}
    schema = {"type": "object", "required": ["name"], "properties": {"name": name}}
    guide = JSONGuide(schema, BYTES, whitespace="any", escapes="any")
    assert guide.distance(guide.start) <= len('{"name"  :  "aaaaa"}')
    assert guide.distance(guide.read(guide.start, b'{"name"\t')) <= len('  :  "aaaaa"}')


@pytest.mark.parametrize("order", ["schema", "any"])
@pytest.mark.parametrize("whitespace", ["flexible", "compact", "pretty", "any"])
def test_some_byte_leads_nearer_to_the_end(order: Any, whitespace: Any) -> None:
    """What a set's missing members weigh counts from the colon before it to its end."""
    inner = {"type": "object", "properties": {"z": {"type": "string", "minLength": 2}}, "required": ["z"]}
    outer = {"type": "object", "properties": {"x": {"type": "integer"}, "y": inner}, "required": ["x", "y"]}
    schema = {
        "type": "object",
        "properties": {"a": outer, "b": {"type": "array", "items": outer, "minItems": 1}, "c": {"enum": ["p", "qq"]}},
        "required": ["a", "b", "c"],
    }
    guide = JSONGuide(schema, Vocabulary.from_bytes(), order=order, whitespace=whitespace)
    one = {"x": 1, "y": {"z": "ab"}}
    value = {"a": one, "b": [one], "c": "p"}
    indent, separators = (2, None) if whitespace == "pretty" else (None, (",", ":"))
    state = guide.start
    text = json.dumps(value, indent=indent, separators=separators).encode()
    for left in range(len(text), 0, -1):
        assert guide.distance(state) == left
        token = int(np.flatnonzero(np.unpackbits(guide.mask_within(state, left).view(np.uint8), bitorder="little"))[0])
        assert guide.distance(guide.advance(state, token)) == left - 1
        state = guide.advance(state, text[len(text) - left])
    assert guide.is_accepting(state)


@pytest.mark.parametrize("least", [1, 2, 3, 8, 60])
def test_budgets_of_strings_whose_characters_are_counted(least: int) -> None:
    """What an object is promised to take counts its strings as the nodes that count their characters do."""
    name = {"type": "string", "minLength": least, "maxLength": 80, "pattern": r"^(?:@[a-z]+\/)?[a-z][0-9a-z]*$"}
    guide = JSONGuide({"type": "object", "properties": {"name": name}, "required": ["name"]}, Vocabulary.from_bytes())
    for seed in range(20):
        random, state = Random(seed), guide.start
        for left in range(guide.distance(state), 0, -1):
            tokens = tokens_of(guide.mask_within(state, left))
            assert tokens, (seed, left)
            token = random.choice(tokens)
            if token == 256:
                break
            state = guide.advance(state, token)
        assert guide.is_accepting(state)


def test_schemas_that_share_their_parts_or_lead_round() -> None:
    """A part that is there twice is read once, however often that doubles; one within itself is a recursive schema."""
    shared: dict[str, object] = {"type": "integer"}
    for _ in range(40):
        shared = {"anyOf": [shared, {"type": "array", "items": shared}]}
    guide = JSONGuide(shared, BYTES)
    assert guide.read(guide.start, b"[[[3") >= 0 and guide.read(guide.start, b'["') == -1
    within: dict[str, object] = {"type": "object", "additionalProperties": False}
    within["properties"] = {"a": within}
    guide = JSONGuide(within, BYTES)
    assert guide.is_accepting(guide.read(guide.start, b'{"a":{"a":{}}}'))
    assert guide.read(guide.start, b'{"b') == -1
