"""Strings under many choices: what is left of each is read side by side, and their product is not worked out."""

from __future__ import annotations

import json
from itertools import pairwise, product
from random import Random
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from trellm.errors import SchemaError
from trellm.guides import JSONGuide, laws

from ...thresholds import thresholds
from ..support import CompiledSchema
from .test_guide_suite import BYTES, reads

TEXTS = ["".join(chars) for length in range(6) for chars in product("abc", repeat=length)]
SINGLE: list[Any] = [
    *({"pattern": one} for one in ("^a", "b$", "aa", "^[ab]*$", "c", "^b.a", "(ab)+$", "^.{3}$")),
    *({"not": {"pattern": one}} for one in ("^b", "a$", "bb", "c.c")),
    *({"minLength": 3}, {"maxLength": 2}, {"minLength": 2, "maxLength": 4}),
    *({"enum": ["", "ab", "cab", 1]}, {"const": "bbb"}, {"not": {"enum": ["a", "abc"]}}, {"format": "uuid"}),
]


def choice(random: Random, depth: int = 1) -> Any:
    """Some alternatives, now and then with choices within."""
    parts = random.sample(SINGLE, random.randint(2, 4))
    if random.random() < 0.3:
        parts[0] = {"allOf": [parts[0], *random.sample(SINGLE, 1)]}
    if depth and random.random() < 0.3:
        parts.append({"allOf": [choice(random, 0), choice(random, 0)]})
    if random.random() < 0.2:
        return {"not": {"allOf": [{"not": part} for part in parts]}}
    return {random.choice(["anyOf", "anyOf", "oneOf"]): parts}


def schemas(count: int) -> list[Any]:
    random = Random(11)
    found: list[Any] = []
    for turn in range(count):
        schema: dict[str, Any] = {"allOf": [choice(random) for _ in range(random.randint(2, 5))], "type": "string"}
        if random.random() < 0.3:
            schema = {"not": schema, "type": "string"}
        if random.random() < 0.4:
            schema["maxLength"] = random.randrange(2, 6)
        found.append({**schema, "$comment": str(turn)})
    return found


def is_valid(schema: Any, text: str) -> bool:
    validator: Any = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    return validator.is_valid(text)


@pytest.mark.parametrize("most", [1, None])
def test_choices_are_those_of_jsonschema(most: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """In groups wherever there are two, and where there are many."""
    thresholds(monkeypatch, multiplied_strings=most)
    empty = 0
    for schema in schemas(12):
        expected = [text for text in TEXTS if is_valid(schema, text)]
        try:
            guide = JSONGuide(schema, BYTES, whitespace="compact")
        except SchemaError:
            assert expected == []
            empty += 1
            continue
        compiled = CompiledSchema(schema)
        assert [text for text in TEXTS if compiled.accepts(compiled.root, text)] == expected, schema
        assert [text for text in TEXTS if reads(guide, json.dumps(text))] == expected, schema
    assert empty < 6


def test_no_text_comes_to_a_dead_end(monkeypatch: pytest.MonkeyPatch) -> None:
    thresholds(monkeypatch, multiplied_strings=1)
    for schema in schemas(10):
        try:
            guide = JSONGuide(schema, BYTES, whitespace="compact")
        except SchemaError:
            continue
        laws.check(guide, texts=2, tokens=10, sample=40)


LETTERS = "abcdefghijklmnopqrstuvwxyz"
PREFIXES = [{"pattern": f"^{letter}"} for letter in LETTERS[:5]]
ENDS = [{"not": {"pattern": "^[a-e]"}}, *({"pattern": f"{letter}$"} for letter in "xyz")]


def runs(number: int) -> Any:
    """A run of one of three digits, or what clashes with ENDS: it looks near in every text and never is."""
    apart = {"allOf": [{"not": {"pattern": "^[abc]"}}, {"not": {"pattern": "[xyz]$"}}]}
    return {"anyOf": [apart, *({"pattern": str((number + more) % 10) * (5 + more)} for more in range(3))]}


WORDS = "|".join("".join(parts) for parts in product(LETTERS[:13], "aeiou", "xyz"))
MANY: dict[str, Any] = {
    "alternatives of the start, of the end, and of runs between": {
        "allOf": [{"anyOf": PREFIXES}, {"anyOf": ENDS}, *map(runs, range(8)), {"minLength": 10}, {"maxLength": 100}]
    },
    "choices of what is somewhere": {
        "allOf": [
            {"anyOf": [{"pattern": f"{one}{other}"}, {"pattern": f"{one}$"}, {"not": {"pattern": f"[^{one}]"}}]}
            for one, other in zip(LETTERS, LETTERS[1:] + "a", strict=True)
        ]
    },
    "lengths and patterns": {
        "allOf": [
            {"anyOf": [{"minLength": 3 * n}, {"maxLength": 2 * n}, {"pattern": f"^[a-{LETTERS[n]}]*$"}]}
            for n in range(25)
        ]
    },
    "negated conjunctions": {
        "allOf": [
            {"not": {"allOf": [{"pattern": f"^{one}"}, {"minLength": 3}, {"pattern": other}]}}
            for one, other in zip(LETTERS, LETTERS[3:] + "abc", strict=True)
        ]
    },
    "exactly one of two": {
        "allOf": [{"oneOf": [{"pattern": one}, {"pattern": f"{other}$"}]} for one, other in pairwise(LETTERS[:13])]
    },
    "lengths that a format does not have": {
        "allOf": [
            *({"not": {"pattern": one}} for one in (r"^(\w+\s){2,6}\w+$", "(ab|cd|ef){2,5}", "^https?://")),
            {"not": {"format": "hostname"}},
            {"format": "ipv6"},
            {"pattern": "[A-Z]{2,4}[0-9]{2,6}"},
            {"anyOf": [{"not": {"pattern": "^https?://"}}, {"maxLength": 19}]},
        ]
    },
    "patterns that rule each other out": {
        "allOf": [
            {"pattern": r"^(\w+\s){2,6}\w+$"},
            {"pattern": "x.{5}y"},
            *(
                {"not": {"pattern": one}}
                for one in ("[0-9]{3}", "(ab|cd|ef){2,5}", "(red|green|blue|white|cyan|black)")
            ),
            {"anyOf": [{"pattern": "^.*(a.{8}|b.{9})$"}, {"pattern": "(.)*@"}]},
            {"anyOf": [{"maxLength": 16}, {"pattern": "@.*@"}]},
            {"maxLength": 30},
        ]
    },
    "hundreds of words": {
        "allOf": [
            {"pattern": f"^({WORDS}).*"},
            {"pattern": r"\.(com|org|net|io)$"},
            {"pattern": "[A-Z]{2,4}[0-9]{2,6}"},
            {"anyOf": [{"pattern": "b$"}, {"not": {"pattern": "^.*(a.{8}|b.{9})$"}}]},
            {"not": {"format": "email"}},
            {"minLength": 14},
            {"maxLength": 20},
        ]
    },
    "constants beside": {
        "allOf": [
            {"anyOf": [{"enum": [other * 3 for other in LETTERS if other != one]}, {"pattern": f"{one}{one}"}]}
            for one in LETTERS[:20]
        ]
    },
}


@pytest.mark.parametrize("name", MANY)
def test_many_choices_are_not_multiplied_out(name: str) -> None:
    """Two alternatives in each of 20 choices are a million together; a text must be found, written and refused."""
    schema = {"type": "string", **MANY[name]}
    guide = JSONGuide(schema, BYTES, whitespace="compact")
    random = Random(3)
    for _ in range(2):
        *_, (state, _) = laws.walk(guide, random, 30)
        assert guide.mask(state).any() and guide.distance(state) < 1000
    compiled = CompiledSchema(schema)
    found = compiled.minimal_instance(compiled.root)
    assert is_valid(schema, found) and reads(guide, json.dumps(found))
    for at in range(0, len(found), 5):
        for other in (found[:at] + found[at + 1 :], f"{found[:at]}q{found[at + 1 :]}", f"{found[:at]}0{found[at:]}"):
            assert reads(guide, json.dumps(other)) == is_valid(schema, other)
