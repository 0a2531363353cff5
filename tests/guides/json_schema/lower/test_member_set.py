"""Objects told by a set of bits and objects told by places are the same language, equally far from its end."""

from __future__ import annotations

import itertools
import json
from random import Random
from typing import Any

import numpy as np
import pytest
from trellm.guides import JSONGuide

from ....thresholds import thresholds
from ...support import Dfa, bounds_of
from ..test_guide_suite import BYTES

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
    thresholds(monkeypatch, names_in_a_set=-1)
    by_place = JSONGuide(
        {"type": "object", "$comment": "by place", **SCHEMAS[name]}, BYTES, order=order, whitespace=whitespace
    )
    ones, others = Dfa.of(by_set.automaton).minimised(), Dfa.of(by_place.automaton).minimised()
    assert np.array_equal(ones.transitions, others.transitions)
    assert np.array_equal(ones.accepting, others.accepting)
    assert by_set.distance(by_set.start) == by_place.distance(by_place.start)


@pytest.mark.parametrize("name", SCHEMAS)
def test_large_sets_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    by_set = guide_of(name, "any", "pretty")
    thresholds(monkeypatch, bits_of_a_member_set=-1)
    by_large_set = JSONGuide(
        {"type": "object", "$comment": "by large set", **SCHEMAS[name]}, BYTES, order="any", whitespace="pretty"
    )
    ones, others = Dfa.of(by_set.automaton), Dfa.of(by_large_set.automaton)
    assert np.array_equal(ones.transitions, others.transitions)
    assert np.array_equal(ones.accepting, others.accepting)
    assert all(by_set.distance(state) == by_large_set.distance(state) for state in range(len(ones)))


ALIKE: dict[str, dict[str, Any]] = {
    "all alike": {"propertyNames": {"enum": ["ab", "ac", "bc"]}, "additionalProperties": ONE},
    "one required": {
        "propertyNames": {"enum": ["ab", "ac", "b", "bc"]},
        "additionalProperties": ONE,
        "required": ["b"],
    },
    "two lengths": {"properties": dict.fromkeys(("a", "b", "aa", "ab"), ONE), **CLOSED},
    "two formulas": {"properties": {"aa": ONE, "ab": ONE, "ba": TWO, "bb": TWO}, "required": ["ba"], **CLOSED},
    "open": {"properties": {"aa": ONE, "ab": ONE}, "additionalProperties": TWO},
    "one required alike": {"properties": {"aa": TWO, "ab": TWO, "ac": TWO}, "required": ["aa"], **CLOSED},
}


@pytest.mark.parametrize("name", ALIKE)
def test_names_told_apart_in_a_trie_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against names that each have a guard of their own: byte by byte to every state, and as far from the end."""
    schema = {"type": "object", **ALIKE[name]}
    alone = JSONGuide({**schema, "$comment": "alone"}, BYTES, order="any", whitespace="compact")
    thresholds(monkeypatch, bits_of_a_member_set=-1, names_alike=2)
    alike = JSONGuide({**schema, "$comment": "alike"}, BYTES, order="any", whitespace="compact")
    todo, seen = [(alone.start, alike.start)], {(alone.start, alike.start)}
    while todo:
        one, other = todo.pop()
        assert alone.distance(one) == alike.distance(other)
        assert alone.is_accepting(one) == alike.is_accepting(other)
        ones, others = alone.after_bytes(one), alike.after_bytes(other)
        assert ((ones < 0) == (others < 0)).all()
        found = {pair for pair in zip(ones.tolist(), others.tolist(), strict=True) if pair[0] >= 0} - seen
        assert len(seen) < 5000
        seen |= found
        todo += found
    assert len(seen) > 30


def test_many_alike_names_come_once_each_in_few_items() -> None:
    """Beyond a word of bits, at random; what is left is at most what was there, and no state has an item for each."""
    names = [f"{length * '-'}{index:03}" for length in range(3) for index in range(200)]
    guide = JSONGuide({"properties": dict.fromkeys(names, ONE), "type": "object", **CLOSED}, BYTES, order="any")
    random, state = Random(3), guide.read(guide.start, b'{"')
    left = set(names)
    while len(left) > 3:
        came = random.choice(sorted(left))
        left.remove(came)
        state = guide.read(state, f'{came}": 1, "'.encode())
        assert state >= 0 and guide.read(state, f'{came}"'.encode()) < 0
        begin = came[: random.randrange(len(came) + 1)]
        assert (guide.read(state, begin.encode()) >= 0) == any(each.startswith(begin) for each in left)
    words, (lo, hi) = guide.automaton.chart.words, bounds_of(guide.automaton, state)
    assert hi - lo < 100 and len(words) >= hi
    assert all(guide.read(state, each.encode()) >= 0 for each in left)


def test_many_names_leave_few_nodes() -> None:
    """Every name at most once, and the required ones: the graph does not grow with what has come."""
    names = [f"name {index}" for index in range(100)]
    guide = JSONGuide(
        {"properties": dict.fromkeys(names, ONE), "required": names[30:95], "type": "object", **CLOSED}, BYTES
    )
    state = guide.read(guide.start, b"{" + b",".join(f'"{name}":1'.encode() for name in names[94:10:-1]))
    nodes = guide.automaton.graph.node_count
    assert guide.distance(state) == len("}")
    assert guide.read(state, b',"name 50"') < 0
    states = [guide.read(state, f',"{name}":1'.encode()) for name in names[:11]]
    assert all(state >= 0 and guide.distance(state) == 1 for state in states)
    automaton = guide.automaton
    kept = automaton.collect()
    assert kept.states[states].all()
    assert not kept.states.all()
    ends = [guide.read(state, f',"{name}":1}}'.encode()) for name, state in zip(names[1:12], states, strict=True)]
    assert all(guide.is_accepting(end) for end in ends[:10])
    assert ends[10] < 0, "name 11 has come before"
    assert automaton.graph.node_count == nodes


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
