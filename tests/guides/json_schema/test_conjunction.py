"""Conditions read side by side, their states made when reached, are the language that is worked out up front."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from trellm.errors import SchemaError
from trellm.guides import JSONGuide

from ...thresholds import thresholds
from ..support import Dfa
from .support import forget_strings, patterns
from .test_guide_suite import BYTES, reads

PATTERNS = ["a", "^a", "b$", "ab", "^[ab]*$", "^.{0,2}$", "c|é", "^a{2,3}$", "(ab)+$"]


def guide_of(schema: dict[str, Any], **options: Any) -> JSONGuide:
    forget_strings()
    return JSONGuide(schema, BYTES, whitespace="compact", **options)


def same(one: JSONGuide, other: JSONGuide) -> None:
    ones, others = Dfa.of(one.automaton).minimised(), Dfa.of(other.automaton).minimised()
    assert np.array_equal(ones.transitions, others.transitions)
    assert np.array_equal(ones.accepting, others.accepting)


@pytest.mark.parametrize("escapes", ["canonical", "any"])
def test_strings_under_several_conditions(escapes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(5)
    compared = 0
    for turn in range(12):
        parts: list[Any] = [{"pattern": one} for one in random.sample(PATTERNS, 2)]
        parts += [{"not": {"pattern": one}} for one in random.sample(PATTERNS, random.randrange(2))]
        schema = {"type": "string", "allOf": parts, "minLength": random.randrange(3), "not": {"const": "ab"}}
        if random.random() < 0.7:
            schema["maxLength"] = random.randrange(2, 6)
        guides: list[JSONGuide] = []
        for most in (0, 500):
            thresholds(monkeypatch, joint_conditions=1, joint_states=most)
            try:
                guides.append(guide_of({**schema, "$comment": f"{turn} {most} {escapes}"}, escapes=escapes))
            except SchemaError:
                continue
        assert len(guides) in (0, 2)
        if guides:
            same(*guides)
            compared += 1
    assert compared >= 4


def test_automata_of_too_many_states_are_made_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(9)
    compared = 0
    thresholds(monkeypatch, joint_conditions=1, joint_states=0)
    for turn in range(12):
        schema: dict[str, Any] = {
            "type": "string",
            "allOf": [{"pattern": one} for one in random.sample(PATTERNS, 2)],
            "not": {"pattern": random.choice(PATTERNS)},
            "maxLength": random.randrange(3, 6),
        }
        guides: list[JSONGuide] = []
        for most in (8_000, 2):
            thresholds(monkeypatch, subsets_at_once=most)
            try:
                guides.append(guide_of({**schema, "$comment": f"demand {turn} {most}"}))
            except SchemaError:
                continue
        assert len(guides) in (0, 2)
        if guides:
            same(*guides)
            compared += 1
    assert compared >= 4


@pytest.mark.parametrize(
    ("schema", "texts", "others"),
    [
        ({"not": {"pattern": "a.{20}b"}}, ["", "a" * 30, "b" * 30], ["a" + "c" * 20 + "b", "a" * 30 + "b"]),
        ({"pattern": "a.{20}b", "maxLength": 40}, ["a" * 22 + "b"], ["a" * 22, "a" * 30 + "b" * 11]),
        (
            {"pattern": "a.{12}b", "not": {"pattern": "c.{12}d"}},
            ["a" + "c" * 12 + "b"],
            ["a" + "c" * 12 + "b" + "d" * 12, "a" * 13 + "d"],
        ),
        (
            {"format": "email", "pattern": "@(one|two)[.]org$", "not": {"pattern": "^admin"}, "maxLength": 40},
            ["a@one.org"],
            ["admin@one.org", "a@three.org", "a" * 40 + "@one.org"],
        ),
        (
            {"pattern": r"^(?!.*(admin|root|[)]).{0,10}(x|y))(?!.*\.\.)(?=.*(b.{9}){2})(?![.])[a-z.()]{1,60}(?<!\.)$"},
            ["b" + "c" * 9 + "b" + "d" * 9],
            [
                ".b" + "c" * 9 + "b" + "d" * 9,
                "b..c" + "c" * 7 + "b" + "d" * 9,
                "adminx" + "b" * 20,
                "b" * 19 + ".",
                "b",
            ],
        ),
    ],
)
def test_conditions_that_would_take_too_many_states(schema: Any, texts: list[str], others: list[str]) -> None:
    guide = JSONGuide({"type": "string", **schema}, BYTES)
    assert [reads(guide, f'"{text}"') for text in (*texts, *others)] == [True] * len(texts) + [False] * len(others)


@pytest.mark.parametrize(
    ("pattern", "found", "absent"),
    [
        ("^(?=a|b)(?!c(d))e$", {"^(?:a|b)", "^e$"}, {"^(?:c(d))"}),
        (r"^(?=[(]\))x(?=y)", {r"^(?:[(]\))", "^x(?=y)"}, set[str]()),
    ],
)
def test_looking_ahead_from_the_start_is_a_condition_of_its_own(pattern: str, found: Any, absent: Any) -> None:
    assert patterns.looks_apart(pattern) == (found, absent)


@pytest.mark.parametrize("pattern", ["(?=a)b", "^(?=a)b|c", "^(?=a)*b", "^(?=a", "^a(?=b)", "^(?=a)(?!b)+c"])
def test_other_looking_is_not_taken_apart(pattern: str) -> None:
    assert patterns.looks_apart(pattern) is None


@pytest.mark.parametrize("order", ["any", "schema"])
def test_names_under_several_patterns(order: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(7)
    for turn in range(8):
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {"ab": {"enum": [1, 2]}, "zzz": {"const": 3}},
            "patternProperties": {
                one: random.choice([{"enum": [1, 4]}, {"enum": [1, 5]}, {"const": 1}, False])
                for one in random.sample(PATTERNS, 3)
            },
            "additionalProperties": random.choice([False, {"const": 6}]),
            "required": random.choice([[], ["zzz"]]),
        }
        guides: list[JSONGuide] = []
        for many in (1, 100):
            thresholds(monkeypatch, rules_of_names=many)
            guides.append(guide_of({**schema, "$comment": f"{turn} {many}"}, order=order))
        same(*guides)
