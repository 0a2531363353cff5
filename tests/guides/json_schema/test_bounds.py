"""Schemas of a few hundred bytes that used to explode: they work, or are refused by the work that they take."""

from __future__ import annotations

import json
import string
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from trellm import Limits
from trellm.errors import LimitError, SchemaError
from trellm.guides import JSONGuide, tokens_of

from ..support import CompiledSchema, Meter
from .test_guide_suite import BYTES, reads

LETTERS = string.ascii_lowercase[:20]
DEFAULT = Limits().work


def within(schema: Any, work: int = DEFAULT, **options: Any) -> JSONGuide:
    """A guide that is made, and used at some places, with so much work for each call."""
    guide = JSONGuide(schema, BYTES, limits=Limits(work=work), **options)
    state = guide.start
    for turn in range(12):
        tokens = [token for token in tokens_of(guide.mask(state)) if token not in BYTES.eos_ids]
        if not tokens:
            break
        state = guide.advance(state, tokens[turn % len(tokens)])
    return guide


def nested(count: int, inner: Any, wrap: Callable[[Any], Any]) -> Any:
    for _ in range(count):
        inner = wrap(inner)
    return inner


def chain(count: int, wrap: Callable[[dict[str, Any]], Any], last: Any) -> dict[str, Any]:
    """Definitions, each of which speaks of the next."""
    definitions = {f"d{number}": wrap({"$ref": f"#/$defs/d{number + 1}"}) for number in range(count)}
    return {"$defs": {**definitions, f"d{count}": last}, "$ref": "#/$defs/d0"}


@pytest.mark.parametrize("others", [True, False])
def test_twenty_patterns_of_names(others: bool) -> None:
    patterns = {letter: {"minimum": number} for number, letter in enumerate(LETTERS)}
    schema = {"type": "object", "patternProperties": patterns, "additionalProperties": others}
    guide = within(schema)
    assert reads(guide, '{"a": 0, "bc": 2, "t": "x"}')
    assert not reads(guide, '{"bc": 1}')
    assert reads(guide, '{"z": 1}') is others


def test_names_that_take_gigabytes_to_list() -> None:
    schema = {"patternProperties": {"^x+$": {}}, "additionalProperties": False}
    assert reads(within({**schema, "minProperties": 3}), '{"x": 0, "xx": 1, "xxx": 2}')
    with pytest.raises(LimitError, match="512 MiB"):
        within({**schema, "minProperties": 65536})


def test_twenty_patterns_of_a_string() -> None:
    guide = within({"type": "string", "allOf": [{"pattern": letter} for letter in LETTERS]})
    assert reads(guide, f'"{LETTERS[::-1]}"')
    assert not reads(guide, f'"{LETTERS[1:]}"')
    assert reads(guide, f'"é{LETTERS}\\n"')


def test_thirty_patterns_that_must_not_be_found() -> None:
    guide = within({"type": "string", "allOf": [{"not": {"pattern": f"{letter}x?y"}} for letter in LETTERS]})
    assert reads(guide, '"xya"') and reads(guide, '"axx"')
    assert not reads(guide, '"_cxy_"')


def test_twenty_contains() -> None:
    guide = within({"type": "array", "allOf": [{"contains": {"const": letter}} for letter in LETTERS]})
    items = ", ".join(f'"{letter}"' for letter in LETTERS)
    assert reads(guide, f"[1, {items}, null]")
    assert not reads(guide, f"[{items[5:]}]")


@pytest.mark.parametrize(("size", "least"), [(40, 30), (30, 30)])
def test_unique_items_out_of_many(size: int, least: int) -> None:
    guide = within({"type": "array", "items": {"enum": list(range(size))}, "uniqueItems": True, "minItems": least})
    assert not reads(guide, str([*range(least - 1)]))
    assert reads(guide, str([*range(size - least, size)]))
    assert not reads(guide, str([*range(least), 0]))


def test_unique_items_that_contain_one() -> None:
    guide = within(
        {"items": {"enum": list(range(60))}, "uniqueItems": True, "contains": {"const": 59}, "type": "array"}
    )
    assert reads(guide, "[3, 59]") and not reads(guide, "[3, 5]")


def test_the_work_for_constants_grows_with_their_number() -> None:
    spent: list[int] = []
    for count in (2_000, 4_000):
        guide = within({"enum": [{"a": number, "b": [str(number)]} for number in range(count)]})
        state = guide.automaton.read(guide.start, b'{"b":["')
        with guide.automaton.meter:
            guide.mask(state)
        spent.append(guide.automaton.meter.spent + guide.automaton.graph.node_count)
        assert reads(guide, '{"a": 1234, "b": ["1234"]}') and not reads(guide, '{"a": 1234, "b": ["1235"]}')
    assert spent[1] <= 2.3 * spent[0]


@pytest.mark.parametrize("order", ["any", "schema"])
def test_ten_thousand_required_members(order: Any) -> None:
    names = [f"n{number}" for number in range(10_000)]
    guide = within(
        {"type": "object", "properties": {name: {"type": "null"} for name in names}, "required": names}, order=order
    )
    text = "{" + ", ".join(f'"{name}":null' for name in names[:5])
    assert guide.automaton.read(guide.start, text.encode()) >= 0
    assert not reads(guide, text + "}")


@pytest.mark.parametrize("also", [{}, {"minimum": 0}])
def test_five_thousand_references_in_a_row(also: dict[str, Any]) -> None:
    guide = within(chain(5_000, lambda reference: {**reference, **also}, {"type": "integer"}))
    assert reads(guide, "3") and reads(guide, "-3") is not bool(also)


@pytest.mark.parametrize("keyword", ["not", "items", "additionalProperties"])
def test_schemas_nested_thousands_deep(keyword: str) -> None:
    within(nested(4_000, {"type": "integer"}, lambda inner: {keyword: inner}))


def test_dicts_that_are_shared_are_read_once() -> None:
    shared = nested(60, {"type": "integer"}, lambda inner: {"properties": {"a": inner, "b": inner}})
    meter = Meter(Limits(work=10**6))
    with meter:
        compiled = CompiledSchema(shared)
        compiled.check_has_instance()
        assert not compiled.documents.mentions(frozenset(("contains",)))
    assert compiled.accepts(compiled.root, {"a": {"b": {}}})


@pytest.mark.parametrize(
    "constant", [nested(60, [], lambda inner: [inner, inner]), nested(3_000, [], lambda inner: [inner])]
)
def test_constants_that_are_shared_or_deep_are_limited(constant: Any) -> None:
    with Meter(), pytest.raises(LimitError):
        CompiledSchema({"const": constant}).check_has_instance()


@pytest.mark.parametrize("spelling", ["any", "plain"])
@pytest.mark.parametrize("also", [{"not": {"multipleOf": 1e-9}}, {"oneOf": [{}, {"multipleOf": 1e-9}]}])
def test_numbers_that_are_no_multiples_of_a_small_step(also: dict[str, Any], spelling: Any) -> None:
    """A member is found without going through all multiples, of which there are a thousand million below 1."""
    guide = JSONGuide(json.dumps({"type": "number", **also}), BYTES, spelling=spelling, limits=Limits(work=4_000_000))
    ends = {text: guide.is_accepting(guide.read(guide.start, text)) for text in (b"0.1234567891", b"0.123456789")}
    assert ends == {b"0.1234567891": True, b"0.123456789": False}
    assert guide.distance(guide.start) == 5  # 1e-10


@pytest.mark.parametrize(
    "also", [{}, {"minimum": 0}, {"minimum": 0, "maximum": 10**12}, {"minimum": 0, "maximum": 801}]
)
def test_numbers_that_are_excluded_one_by_one(also: dict[str, Any]) -> None:
    refused = [{"not": {"const": number}} for number in range(800)]
    guide = within({"type": "integer", **also, "allOf": refused}, spelling="plain")
    assert reads(guide, "800") and not reads(guide, "799")


def test_the_shortest_text_is_a_number() -> None:
    pair = {"type": "array", "minItems": 2, "maxItems": 2}
    within(chain(40, lambda reference: {**pair, "items": reference}, {"type": "integer"}))
    many = {"type": "array", "minItems": 10_000}
    within({**many, "items": {**many, "items": many}})


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "minLength": 10**9},
        {"type": "array", "minItems": 10**30},
        {"type": "object", "minProperties": 10**9},
        {"type": "array", "allOf": [{"contains": {"pattern": letter}} for letter in LETTERS]},
        {"type": "string", "format": "regex", "minLength": 1_000_000},
    ],
)
def test_what_takes_too_much_work_is_refused(schema: Any) -> None:
    with pytest.raises(LimitError, match="work="):
        JSONGuide(schema, BYTES)


@pytest.mark.parametrize("also", [{}, {"maxLength": 50_000}, {"pattern": "a$"}])
def test_a_long_minimum_beside_a_condition(also: dict[str, Any]) -> None:
    guide = within({"type": "string", "format": "regex", "minLength": 50_000, **also})
    assert reads(guide, json.dumps("(b|d)" + 49_995 * "a")) and not reads(guide, json.dumps("(b|d)" + 49_994 * "a"))


def test_twelve_branches_that_evaluate_members() -> None:
    branches = [{"properties": {name: {"type": "null"}}, "required": [name]} for name in LETTERS[:12]]
    guide = within({"type": "object", "anyOf": branches, "unevaluatedProperties": False})
    assert reads(guide, '{"c": null, "a": null}') and not reads(guide, "{}")
    assert not reads(guide, '{"c": null, "a": 1}') and not reads(guide, '{"c": null, "z": null}')


def test_a_condition_on_each_letter() -> None:
    conditions = [{"if": {"required": [name]}, "then": {"minimum": 1}, "else": {"required": ["x"]}} for name in LETTERS]
    guide = within({"allOf": conditions})
    everything = {name: 0 for name in LETTERS}
    assert reads(guide, json.dumps(everything)) and reads(guide, '{"a": 0, "x": 1}') and reads(guide, "1")
    assert not reads(guide, '{"a": 0}') and not reads(guide, "0")


def in_member(random: Random, number: int) -> dict[str, Any]:
    """A choice of what one member has, in several forms."""
    own, other = {"properties": {f"p{number}": {"type": "integer"}}}, {"required": [f"p{number + 1}"]}
    inner = random.choice([own, {**own, "required": [f"p{number}"]}, {"properties": {f"p{number}": {"const": "x"}}}])
    match random.randrange(3):
        case 0:
            return {"anyOf": [{"properties": {"in": inner}}, {"properties": {"in": other}}]}
        case 1:
            return {"if": {"properties": {"in": inner}}, "then": {"properties": {"in": other}}}
        case _:
            required = {"properties": {"in": inner}, "required": ["in"]}
            return {"anyOf": [required, {"properties": {"in": other}, "required": random.choice([[], ["in"]])}]}


@pytest.mark.parametrize("seed", range(4))
def test_choices_that_speak_of_one_member_are_choices_of_that_member(seed: int) -> None:
    random = Random(seed)
    schema: Any = {"type": "object", "allOf": [in_member(random, number) for number in range(14)]}
    guide = within(schema)
    validator: Any = Draft202012Validator(schema)
    verdicts = {True: 0, False: 0}
    for _ in range(200):
        share = random.random()
        inner = {f"p{number}": random.choice([1, "x", "y"]) for number in range(15) if random.random() < share}
        value: Any = random.choice([{}, {"a": 1}, *[{"in": each} for each in (inner, inner, inner, 1, {})]])
        expected = validator.is_valid(value)
        verdicts[expected] += 1
        assert reads(guide, json.dumps(value)) == expected, value
    assert min(verdicts.values()) > 5


def test_choices_of_single_strings_do_not_multiply() -> None:
    """As a task that has one of many names, and conditions on some of them."""
    names = [f"task{number}@1" for number in range(300)]
    tasks = {"anyOf": [{"enum": [name], "description": name} for name in names]}
    schemas = [
        {"properties": {"task": {"allOf": [tasks, {"anyOf": [{"const": names[number]}, {"pattern": "@1$"}]}]}}}
        for number in range(40)
    ]
    guide = within({"type": "object", "allOf": schemas})
    assert reads(guide, '{"task": "task7@1"}') and not reads(guide, '{"task": "task7@2"}')


def test_more_work_may_be_allowed() -> None:
    schema = {"type": "array", "items": {"enum": list(range(40))}, "uniqueItems": True, "minItems": 39}
    with pytest.raises(LimitError, match="work="):
        JSONGuide(schema, BYTES, limits=Limits(work=100))
    within(schema, 10**7)


def test_what_cannot_be_enforced_below_is_refused_up_front() -> None:
    with pytest.raises(SchemaError, match="two items"):
        JSONGuide({"items": {"not": {"uniqueItems": True}}}, BYTES)


def test_more_than_any_text_has_is_no_bound() -> None:
    guide = within({"oneOf": [True, {"minLength": 2**32}]})
    assert reads(guide, '"a"')
    assert reads(within({"type": "string", "maxLength": 2**40}), '"a"')


def test_thousands_of_members_that_must_be_there_are_found_once_each() -> None:
    members: dict[str, Any] = {f"m{number}": {"enum": [number]} for number in range(3000)}
    members |= {f"n{number}": {"type": "object", "required": [f"x{number}"]} for number in range(1000)}
    schema = {"type": "object", "properties": members, "required": list(members)}
    compiled = CompiledSchema(schema)
    with Meter(Limits(work=20_000_000)):
        assert compiled.has_instance(compiled.root)
        assert list(compiled.minimal_instance(compiled.root)) == list(members)
    members["n999"] = {"type": "object", "required": ["x"], "maxProperties": 0}
    compiled = CompiledSchema(schema)
    with Meter(Limits(work=20_000_000)):
        assert not compiled.has_instance(compiled.root)
