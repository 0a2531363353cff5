"""Numbers told on demand: the same texts as exact arithmetic says, and no text that cannot be completed."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from trellm.guides import JSONGuide, laws

from ...support import NEVER, LiftedGuide
from ..support import Number, numbers
from ..test_guide_suite import BYTES, reads
from .test_number_texts import CASES, NAMED, SHORT, Texts, automaton_of, exact, near, spelt_as

F = Fraction
FEW = Texts(Random(4).sample(SHORT.texts, 800))


def guide_of(case: Number) -> LiftedGuide:
    return LiftedGuide(automaton_of(case, "any"), BYTES)


def check_texts(case: Number) -> None:
    """Exactly the members among texts without an exponent, and no others with one; no state is a dead end."""
    guide = guide_of(case)
    for texts in (FEW, Texts(near(case))):
        members = texts.members(case).tolist()
        for text, is_member in zip(texts.texts, members, strict=True):
            has_exponent = re.search("[eE]", text) is not None
            state = guide.read(guide.start, text.encode())
            read = state >= 0 and guide.is_accepting(state)
            assert read <= is_member if has_exponent else read == is_member, text
    for text in FEW.texts[:200]:
        for end in range(len(text)):
            state = guide.read(guide.start, text[:end].encode())
            assert state < 0 or guide.distance(state) < NEVER, text[:end]


def tidied(case: Number) -> Number | None:
    """The set as the algebra makes it of a schema; None if it is empty or has constants."""
    if case.notation == "integer":
        case = replace(case, multiple_of=numbers.least_common_multiple(case.multiple_of or 1, 1))
    found = numbers.tidy(case)
    return None if found is None or found.values is not None else found


@pytest.mark.parametrize("case", NAMED, ids=str)
def test_named_cases(case: Number) -> None:
    found = tidied(case)
    if found is not None:
        check_texts(found)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(CASES)
def test_any_case(case: Number) -> None:
    found = tidied(case)
    if found is not None:
        check_texts(found)


NOT_0 = Number(excluded=frozenset((0, 1)))
PLAIN = CASES.map(lambda case: tidied(replace(case, notation=None)) or Number(values=frozenset((1, F(5, 2), 20))))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(CASES, st.lists(st.lists(PLAIN, min_size=2, max_size=3), min_size=1, max_size=3))
@example(Number(maximum=0), [[NOT_0, NOT_0]])
@example(Number(maximum=0), [[NOT_0, Number(multiple_of=2, notation="real")]])
def test_any_groups(case: Number, groups: list[list[Number]]) -> None:
    """A set and one of each of some groups, told by members and by texts."""
    bare = tidied(case)
    if bare is None:
        return
    either = tuple(map(tuple, groups))
    held, both = replace(bare, either=either), numbers.intersect(bare, Number(either=either))
    for text in FEW.texts:
        if re.fullmatch(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?", text):
            value, notation = exact(text), spelt_as(text)
            is_member = numbers.contains(held, value, notation)
            assert is_member == (both is not None and numbers.contains(both, value, notation)), text
            if both is not None:
                outside = numbers.complement(both)
                assert is_member != any(numbers.contains(one, value, notation) for one in outside), text
    if both is not None:
        assert numbers.contains(both, numbers.smallest(both))
        assert all(numbers.contains(both, value) for value in numbers.some(both, 5))
        if both.values is None:
            check_texts(both)


def multiples(*groups: tuple[Any, ...], **more: Any) -> dict[str, Any]:
    return {
        "type": "number",
        "allOf": [{"anyOf": [{"multipleOf": step} for step in group]} for group in groups],
        **more,
    }


LARGE: dict[str, dict[str, Any]] = {
    "a large step": {"multipleOf": 8721},
    "a large step within bounds": {"type": "number", "multipleOf": 8721, "minimum": -3 * 10**6, "maximum": 10**9},
    "a prime of ten digits": {"type": "integer", "multipleOf": 2147483647},
    "a large step with places": {"type": "number", "multipleOf": 8721.5, "exclusiveMinimum": 0},
    "many digits within close bounds": {"type": "number", "multipleOf": 3.0007, "minimum": 10**9, "maximum": 1.2e12},
    "several steps": {"type": "integer", "allOf": [{"multipleOf": step} for step in (7, 11, 13, 17, 19, 23)]},
    "no multiples of several": {"allOf": [{"not": {"multipleOf": step}} for step in (0.7, 1.1, 1.3, 1.7)]},
    "exactly one of several": {"type": "number", "oneOf": [{"multipleOf": step} for step in (3, 5, 7, 11, 13, 97)]},
    "choices of steps": multiples((2, 3, 5), (7, 11, 13), (17, 19, 23), (29, 31, 37)),
    "choices of steps within bounds": multiples((2.5, 3), (0.7, 1.1), (13, 1.7), (4, 6), maximum=50_000, minimum=-9),
    "choices of steps and bounds": {
        "type": "number",
        "allOf": [
            {"anyOf": [{"multipleOf": n}, {"minimum": 100 * n, "not": {"multipleOf": n + 4}}, {"maximum": -n}]}
            for n in range(3, 11)
        ],
    },
    "negated choices": {
        "type": "number",
        "not": {"anyOf": [{"multipleOf": n, "minimum": 5 * n, "maximum": 900 * n} for n in range(2, 12)]},
    },
    "constants beside choices": {"allOf": [{"anyOf": [{"enum": [n, 91, "a"]}, {"multipleOf": n + 1}]}
    for n in range(5, 14)]},
}  # fmt: skip


def exact_validator(schema: Any) -> Any:
    """A validator that takes decimal numbers for what they say, and not for the floats that are nearest."""
    return Draft202012Validator(json.loads(json.dumps(schema), parse_float=F))


def some_texts(schema: Any, random: Random) -> list[str]:
    """Numbers of all sizes, and multiples of what the schema has, and some beside these."""
    words = [F(word) for word in re.findall(r"-?[0-9]+(?:\.[0-9]+)?", json.dumps(schema))]
    found: list[str] = []
    for _ in range(100):
        value = F(random.randrange(-(10 ** random.randrange(1, 13)), 10 ** random.randrange(1, 13)))
        for word in random.sample(words, min(len(words), 3)):
            value = (value // word) * word if word and random.random() < 0.7 else value
        scaled = int(value * 10**6) + random.choice([0, 0, 0, 1, 10**5, 10**6])
        text = f"{'-' if scaled < 0 else ''}{abs(scaled) // 10**6}.{abs(scaled) % 10**6:06}"
        found += [text, text.rstrip("0").rstrip(".")]
    return found


@pytest.mark.parametrize("name", LARGE)
def test_large_sets_are_those_of_jsonschema(name: str) -> None:
    """Each would take more states than there may be, or more cases than a second is enough for."""
    schema = LARGE[name]
    guide, validator, random = JSONGuide(schema, BYTES), exact_validator(schema), Random(2)
    seen: set[bool] = set()
    for text in some_texts(schema, random):
        expected = validator.is_valid(exact(text))
        seen.add(expected)
        assert reads(guide, text) == expected, text
    assert seen == {True, False}


@pytest.mark.parametrize("name", LARGE)
def test_large_sets_come_to_no_dead_end(name: str) -> None:
    guide = JSONGuide(LARGE[name], BYTES)
    laws.check(guide, texts=1, tokens=6, sample=4)
    *_, (state, _) = laws.walk(guide, Random(5), 30)
    assert guide.distance(state) < 60


def test_large_steps_in_arrays_that_differ() -> None:
    schema = {"type": "array", "items": {"type": "integer", "multipleOf": 8721}, "uniqueItems": True, "minItems": 2}
    guide, validator = JSONGuide(schema, BYTES), exact_validator(schema)
    for value in ([8721, 17442], [8721, 8721], [8721, 17443], [0, 8721, 26163], [0, 8721, 0]):
        assert reads(guide, json.dumps(value)) == validator.is_valid(value)


def test_exponents_of_large_steps() -> None:
    guide = JSONGuide({"type": "number", "multipleOf": 3 * 10**9}, BYTES)
    for text, is_member in {
        "3e9": True,
        "3E+09": True,
        "6.00e9": True,
        "3e8": False,
        "4e30": False,
        "9e300": True,
    }.items():
        assert reads(guide, text) == is_member


def test_plain_numbers_of_large_steps() -> None:
    guide = JSONGuide({"type": "number", "multipleOf": 8721}, BYTES, spelling="plain")
    texts = {"8721": True, "-17442": True, "0": True, "-0": False, "8721.0": False, "8722": False, "8721e1": False}
    assert {text: reads(guide, text) for text in texts} == texts
