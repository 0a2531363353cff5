"""Rules that are defined before they are reached change no mask, and cost nobody what is never reached."""

import random
import string

import numpy as np
import pytest
from trellm import Vocabulary
from trellm.errors import LimitError
from trellm.guides import JSONGuide
from trellm.guides.graph import graph as graphs
from trellm.guides.graph.graph import HEAVY, NamedRule
from trellm.guides.json_schema.compiled import CompiledSchema
from trellm.guides.json_schema.lower.form import Form
from trellm.guides.json_schema.lower.formulas import SchemaLowering, weight_of

from ..support import Graph

BYTES = Vocabulary.from_bytes()
SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string", "minLength": 1}},
        "kind": {"enum": ["a", "b"]},
        "code": {"type": "string", "pattern": "^[a-f]{3}$"},
        "inner": {
            "type": "object",
            "properties": {"x": {"type": "number"}, "y": {"type": ["boolean", "null"]}, "next": {"$ref": "#"}},
            "required": ["y"],
            "additionalProperties": False,
        },
    },
    "required": ["id", "inner"],
}


class Rule(NamedRule):
    """A rule of a weight, or one whose weight is too much to find out."""

    def __init__(self, weight, has_siblings=True):
        self.has_siblings = has_siblings
        self._weight = weight

    def name(self):
        return "a rule"

    def weight(self):
        if self._weight is None:
            raise LimitError("too large")
        return self._weight


def graph_of(weights, defined, has_siblings=True):
    """A graph of lazy rules of these weights, and the starts of those."""
    graph = Graph()

    def define(start):
        defined.append(start)
        graph.define(start, links=())

    starts = [graph.lazy(define, lambda: 1, Rule(weight, has_siblings)) for weight in weights]
    return graph, starts


def walk(guide, seed):
    """The masks on a random way through a guide, and the text."""
    choose = random.Random(seed)
    state, masks, text = guide.start, [], []
    for _ in range(80):
        mask = guide.mask(state)
        masks.append(mask.copy())
        allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()
        usual = [token for token in allowed if chr(token) in string.ascii_letters + '"{}:,']
        if not allowed:
            break
        token = choose.choice(usual or allowed)
        text.append(token)
        state = guide.advance(state, token)
    return masks, text


@pytest.mark.parametrize("seed", range(8))
def test_the_masks_are_the_same(seed, monkeypatch):
    masks, text = walk(JSONGuide(SCHEMA, BYTES), seed)
    monkeypatch.setattr(graphs, "chosen_early", lambda *_: ())
    others, same = walk(JSONGuide(SCHEMA, BYTES), seed)
    assert text == same
    assert len(masks) == len(others)
    assert all(np.array_equal(mask, other) for mask, other in zip(masks, others, strict=True))


def test_siblings_are_defined_as_far_as_they_weigh_little():
    defined = []
    graph, starts = graph_of([1, 3, HEAVY, 9, 9, 1, 1, 1], defined)
    assert graph.expand(starts[1:2]) == (starts[3], starts[5], starts[6], starts[7], starts[0])
    assert defined == [starts[1], starts[3], starts[5], starts[6], starts[7], starts[0]]


def test_rules_without_siblings_come_alone():
    defined = []
    graph, starts = graph_of([1, 1, 1], defined, has_siblings=False)
    assert graph.expand(starts[1:2]) == ()
    assert defined == starts[1:2]


def test_what_is_too_large_is_left_until_it_is_reached():
    defined = []
    graph, starts = graph_of([1, 1, None, 1], defined)
    assert graph.expand(starts[:1]) == (starts[1],)
    assert defined == starts[:2]


def test_what_was_chosen_is_repeated():
    defined = []
    graph, starts = graph_of([1] * 4, defined)
    assert graph.expand(starts[:1], ()) == ()
    assert graph.expand(starts[1:2], starts[3:]) == (starts[3],)
    assert defined == [starts[0], starts[1], starts[3]]


@pytest.mark.parametrize(
    ("schema", "weight"),
    [
        ({"type": "string"}, 1),
        ({"type": "integer", "minimum": 0.5}, 1),
        ({"enum": ["a", "b"]}, 1),
        ({"type": "array", "items": {"type": "null"}}, 2),
        ({"type": "object", "properties": {name: {} for name in "abcd"}}, 4),
        ({"type": "string", "pattern": "a"}, HEAVY),
        ({"type": "string", "maxLength": 9}, HEAVY),
        ({"type": "string", "format": "regex"}, HEAVY),
        ({"enum": [str(number) for number in range(40)]}, HEAVY),
        ({"enum": ["a" * 2000]}, HEAVY),
        ({"enum": [[1]]}, HEAVY),
        ({"type": "number", "multipleOf": 0.7}, HEAVY),
        ({"type": "number", "minimum": 1e300}, HEAVY),
        ({"type": "object", "properties": {str(number): {} for number in range(40)}}, HEAVY),
        ({"type": "object", "patternProperties": {"a": False}}, HEAVY),
        ({"type": "object", "patternProperties": {"a": True}, "additionalProperties": False}, HEAVY),
        ({"type": "object", "maxProperties": 3}, HEAVY),
        ({"type": "object", "additionalProperties": {"type": "string"}}, 3),
        ({"type": "object", "properties": {"a": {}}, "additionalProperties": False}, 3),
        ({"type": "object", "propertyNames": {"enum": ["a", "b"]}}, 3),
        ({"type": "object", "propertyNames": {"enum": [str(number) for number in range(40)]}}, HEAVY),
        ({"type": "object", "propertyNames": {"not": {"const": "a" * 2000}}}, HEAVY),
        ({"type": "object", "propertyNames": {"maxLength": 300}}, HEAVY),
        ({"oneOf": [{"type": "object", "required": [name]} for name in "ab"]}, HEAVY),
    ],
)
def test_what_is_small(schema, weight):
    compiled = CompiledSchema(schema)
    assert weight_of(compiled.cases(compiled.root)) == weight


def test_items_are_defined_with_their_array():
    schema = {"type": "object", "properties": {
        "short": {"type": "array", "items": {"type": "integer"}},
        "long": {"type": "array", "items": {"type": "string", "pattern": "^a{3}$"}},
        "nested": {"type": "array", "items": {"type": "array", "items": {"type": "string", "pattern": "^b{3}$"}}},
    }}  # fmt: skip
    compiled = CompiledSchema(schema)
    lowering = SchemaLowering(compiled, Form())
    (case,) = compiled.cases(compiled.root).objects
    weights = [lowering.weight_of(formula) for formula in case.properties.values()]
    # Items of an array within an array are not defined with it.
    assert weights == [3, HEAVY, 4]


NO_FEWER = {"allOf": [{"anyOf": [{"required": [f"{part}{name}"]} for name in "abcd"]} for part in range(4)]}


@pytest.mark.parametrize(
    "other",
    [
        {"type": "array", "items": {"type": "array", "minItems": 1 << 35}},
        {"type": "object", "properties": {"x": {"type": "array", "minItems": 1 << 35}}},
        {"type": "object", "additionalProperties": {"type": "array", "minItems": 1 << 35}},
        {"type": "object", "properties": {"x": NO_FEWER}},
        {"type": "object", "additionalProperties": NO_FEWER},
        {"type": "object", "properties": {"y": {}}, "additionalProperties": NO_FEWER},
    ],
)
def test_a_member_beside_one_that_is_too_large_is_written(other):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": other}, "required": ["a"]}
    guide = JSONGuide(schema, BYTES, max_cases=8)
    state = guide.start
    for byte in b'{"a": 1':
        assert guide.mask(state)[byte >> 5] >> (byte & 31) & 1
        state = guide.advance(state, byte)
    with pytest.raises(LimitError):
        for byte in b', "b": {"x": ' + b"[" * 40:
            guide.mask(state)
            state = guide.advance(state, byte)
