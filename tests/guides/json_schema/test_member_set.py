"""Objects told by a set of bits and objects told by places are the same language, equally far from its end."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest
from trellm.guides.dfa import Dfa
from trellm.guides.json_guide import JSONGuide
from trellm.guides.json_schema import member_set

from .test_guide_suite import BYTES

ONE, TWO = {"const": 1}, {"enum": [2, 20]}
CLOSED = {"additionalProperties": False}
SCHEMAS: dict[str, dict[str, Any]] = {
    "optional": {"properties": {"a": ONE, "b": TWO}, **CLOSED},
    "required": {"properties": {"a": ONE, "ab": TWO, "c": ONE}, "required": ["ab"], **CLOSED},
    "all required": {"properties": {"a": ONE, "b": TWO, "c": ONE}, "required": ["c", "a", "b"], **CLOSED},
    "required and unlisted": {"properties": {"a": ONE}, "required": ["z"], "additionalProperties": TWO},
    "open": {"properties": {"a": ONE, "b": TWO}, "required": ["b"], "additionalProperties": {"const": 3}},
    "regions": {"properties": {"a": ONE}, "patternProperties": {"^x": TWO}, "required": ["a"], **CLOSED},
    "names": {"propertyNames": {"enum": ["p", "q"]}, "additionalProperties": ONE, "required": ["q"]},
    "nested": {
        "properties": {"a": {"type": "object", "properties": {"b": ONE}, "required": ["b"], **CLOSED}, "b": TWO},
        **CLOSED,
    },
    "empty": {"properties": {}, **CLOSED},
}
WITH_PLACES_TOO = [
    (name, order, space) for name in SCHEMAS for order in ("any", "schema") for space in ("compact", "pretty")
]


def guide_of(name: str, order: Any, whitespace: Any) -> JSONGuide:
    return JSONGuide({"type": "object", **SCHEMAS[name]}, BYTES, order=order, whitespace=whitespace)


@pytest.mark.parametrize(("name", "order", "whitespace"), WITH_PLACES_TOO)
def test_sets_and_places_are_the_same(name: str, order: Any, whitespace: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    by_set = guide_of(name, order, whitespace)
    monkeypatch.setattr(member_set, "MAX_NAMES", -1)
    by_place = JSONGuide(
        {"type": "object", "$comment": "by place", **SCHEMAS[name]}, BYTES, order=order, whitespace=whitespace
    )
    ones, others = Dfa.of(by_set.automaton).minimised(), Dfa.of(by_place.automaton).minimised()
    assert np.array_equal(ones.transitions, others.transitions)
    assert np.array_equal(ones.accepting, others.accepting)
    assert by_set.distance(by_set.start) == by_place.distance(by_place.start)


@pytest.mark.parametrize("order", ["any", "schema"])
def test_every_order_and_choice_of_members(order: Any) -> None:
    guide = guide_of("required", order, "compact")
    members = {"a": 1, "ab": 20, "c": 1}
    for count in range(4):
        for names in itertools.permutations(members, count):
            text = json.dumps({name: members[name] for name in names}, separators=(",", ":")).encode()
            state = guide.read(guide.start, text)
            fine = "ab" in names and (order == "any" or list(names) == sorted(names))
            assert (state >= 0 and guide.is_accepting(state)) == fine
    assert guide.read(guide.start, b'{"ab":2,"ab"') < 0


@pytest.mark.parametrize("name", SCHEMAS)
def test_distances_are_those_of_the_shortest_texts(name: str) -> None:
    """Breadth first over all states by bytes, with a vocabulary of single bytes: nothing is shorter or longer."""
    guide = guide_of(name, "any", "compact")
    dfa = Dfa.of(guide.automaton)
    fewest = np.where(dfa.accepting, 0, 1 << 20)
    for _ in range(len(dfa)):
        after = np.where(dfa.transitions >= 0, fewest[dfa.transitions], 1 << 20).min(axis=1)
        better = np.minimum(fewest, after + 1)
        if np.array_equal(better, fewest):
            break
        fewest = better
    assert guide.distance(guide.start) == fewest[guide.start]
    assert all(guide.distance(state) >= fewest[state] for state in range(len(dfa)))
