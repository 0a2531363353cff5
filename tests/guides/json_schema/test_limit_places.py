"""What is too large is refused with its place in the schema: as it is read, checked, or reached by a text."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from trellm import Limits
from trellm.errors import LimitError, SchemaError
from trellm.guides import CFGGuide, JSONGuide

from ...thresholds import thresholds
from ..support import EPSILON, Graph
from .test_guide_suite import BYTES

LISTS = [{"type": "array", "prefixItems": [{"minimum": i, "maximum": 9 + i}] * (i + 1)} for i in range(5)]
OTHERS = [{"type": "array", "prefixItems": [{"minimum": 3 * i, "maximum": 40}] * (i + 1)} for i in range(5)]
PRODUCT = {"allOf": [{"anyOf": LISTS}, {"anyOf": OTHERS}]}
BRANCHES = [{"prefixItems": [True] * i} for i in range(1, 6)]
ENDINGS = {f"{letter}$": {"minimum": ord(letter)} for letter in "abcd"}
AROUND = "(?=[ab]*a[ab]{30}c)[ab]*b[ab]{30}c"
FEW_CASES: dict[str, Any] = {"max_cases": 4}
NESTED: Any = 1
for _ in range(20_000):
    NESTED = [NESTED]

MADE: dict[str, tuple[Any, dict[str, Any], str]] = {
    "alternatives": ({"type": "array", "items": PRODUCT, "minItems": 1}, FEW_CASES, "/items"),
    "branches": ({"unevaluatedItems": False, "anyOf": BRANCHES}, FEW_CASES, ""),
    "branches with patterns": (
        {"unevaluatedProperties": False, "anyOf": [{"patternProperties": {f"^{letter}": True}} for letter in "abcde"]},
        FEW_CASES,
        "",
    ),
    "pairs of branches": (
        {"unevaluatedItems": False, "allOf": [{"oneOf": BRANCHES[:3]}, {"oneOf": BRANCHES[2:]}]},
        FEW_CASES,
        "",
    ),
    "sets of names": ({"patternProperties": ENDINGS, "minProperties": 1, "type": "object"}, FEW_CASES, ""),
    "one pattern": ({"type": "string", "pattern": AROUND}, {}, "/pattern"),
    "one pattern of names": ({"patternProperties": {AROUND: True}}, {}, f"/patternProperties/{AROUND}"),
    "unique items": ({"uniqueItems": True, "items": {"type": "number"}, "minItems": 101}, {}, "/uniqueItems"),
    "constant": ({"const": NESTED}, {}, ""),
    "work": ({"items": {"enum": [[i] for i in range(10**5)]}}, {"limits": Limits(work=5_000_000)}, "/items"),
}
"""Schemas of a required member `a`, options, and where in it they are too large."""


@pytest.mark.parametrize("name", MADE)
def test_where_it_is_when_the_guide_is_made(name: str) -> None:
    schema, options, where = MADE[name]
    with pytest.raises(LimitError) as caught:
        JSONGuide({"type": "object", "required": ["a"], "properties": {"a": schema, "b": True}}, BYTES, **options)
    assert caught.value.pointer == f"#/properties/a{where}"
    assert str(caught.value) == f"{caught.value.reason} (at {caught.value.pointer})"


REACHED: dict[str, tuple[Any, dict[str, Any], str, str]] = {
    "alternatives": ({"items": PRODUCT}, FEW_CASES, "[", "/items"),
    "ways to read a member": (
        {
            "type": "object",
            "allOf": [
                {"anyOf": [{"properties": {"x": {"pattern": letter}}}, {"required": [letter]}]} for letter in "abcdef"
            ],
        },
        {},
        "{",
        "",
    ),
}
"""Schemas of a member `a`, options, the beginning of the member's value, and where in its schema it is too large."""


@pytest.mark.parametrize("name", REACHED)
def test_where_it_is_when_a_text_gets_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    thresholds(monkeypatch, ways_through_an_object=8)
    schema, options, begun, where = REACHED[name]
    guide = JSONGuide({"properties": {"b": True, "a": schema}}, BYTES, whitespace="compact", **options)
    state = guide.start
    with pytest.raises(LimitError) as caught:
        for byte in ('{"a":' + begun).encode():
            state = guide.advance(state, byte)
            guide.mask(state)
    assert caught.value.pointer == f"#/properties/a{where}"


class Somewhere:
    """A rule whose body, and a node of one that is made for it, are too large."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.inner = -1

    def define(self, start: int) -> None:
        with self.graph.new_rule():
            self.inner = self.graph.lazy_node(self.refuse, self.promise, -1)
        self.graph.define(start, links=((EPSILON, self.inner, 0),))

    def refuse(self, node: int) -> None:
        raise LimitError("too much")

    def promise(self) -> int:
        raise LimitError("too much")

    def name(self) -> str:
        return "here"

    def pointer(self) -> str:
        return "#/items"


def test_a_rule_within_another_is_where_that_is() -> None:
    graph = Graph()
    here = Somewhere(graph)
    start = graph.lazy(here.define, lambda: 1)
    graph.names[start] = here
    with pytest.raises(LimitError) as expanded:
        graph.expand([start])
    with pytest.raises(LimitError) as promised:
        graph.promises(here.inner, here.inner + 1)
    assert expanded.value.pointer == promised.value.pointer == "#/items"


def test_the_place_stays_when_an_error_is_sent_to_another_process() -> None:
    error = LimitError("too much", "#/items")
    for one in (pickle.loads(pickle.dumps(error)), error):
        assert (str(one), one.reason, one.pointer) == ("too much (at #/items)", "too much", "#/items")
    error.locate("#")
    assert error.pointer == "#/items"
    bare = pickle.loads(pickle.dumps(LimitError("too much")))
    assert (str(bare), bare.pointer) == ("too much", None)


def test_a_grammar_has_no_such_place() -> None:
    with pytest.raises(LimitError) as caught:
        CFGGuide('start: "a" /[ab]{10000}[ab]{10000}c/', BYTES, limits=Limits(work=1000))
    assert caught.value.pointer is None


@pytest.mark.parametrize("name", ["one pattern", "unique items"])
def test_what_can_be_left_out_is_told_with_its_reason(name: str) -> None:
    schema, options, where = MADE[name]
    guide = JSONGuide({"items": schema}, BYTES, unenforced="allow", **options)
    left = [one for one in guide.coverage if one.status == "refused"]
    assert [one.pointer for one in left] == [f"#/items{where}"]
    with pytest.raises(LimitError) as caught:
        JSONGuide({"items": schema}, BYTES, **options)
    assert left[0].reason == caught.value.reason


@pytest.mark.parametrize("name", ["pattern", "minItems", "not"])
def test_a_member_that_is_called_like_a_keyword_is_not_left_out(name: str) -> None:
    """As it was where no value satisfied what such a member must be."""
    impossible = {"type": "object", "properties": {name: {"type": "string", "minLength": 5, "maxLength": 3}}}
    with pytest.raises(SchemaError) as caught:
        JSONGuide({**impossible, "required": [name]}, BYTES, unenforced="allow")
    assert caught.value.pointer == f"#/properties/{name}"
