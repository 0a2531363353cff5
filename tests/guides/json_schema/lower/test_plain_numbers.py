"""Plain numbers against what json.dumps writes, and both spellings against jsonschema with exact numbers."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.validators import extend
from trellm.guides import DEAD, JSONGuide

from ...support import NOTHING
from ..support import Number, fewest_number_bytes, number_text, spelt_numbers
from ..test_guide_suite import BYTES, reads
from .test_number_texts import CASES, FLOATS, NAMED, SHORT, accepted, automaton_of, exact, near
from .test_number_texts import Texts as Matrix

DIGITS = re.compile("-?(?:0|[1-9][0-9]*)")
SCIENTIFIC = re.compile(r"-?[1-9](?:\.[0-9]*[1-9])?e(?:\+|-)(?:0[1-9]|[1-9][0-9]{1,2})")
F = Fraction


def exactly(value: Any) -> Any:
    """A value with its numbers as fractions, which jsonschema then compares without rounding."""
    if isinstance(value, dict):
        return {key: exactly(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [exactly(inner) for inner in value]
    return F(repr(value)) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


CHECKER = Draft202012Validator.TYPE_CHECKER.redefine_many(
    {
        "number": lambda _, value: isinstance(value, Fraction),
        "integer": lambda _, value: isinstance(value, Fraction) and value.denominator == 1,
    }
)
Exact: Any = extend(Draft202012Validator, type_checker=CHECKER)


@cache
def whole(case: Number) -> bool:
    """Whether a set asks for integers: every multiple with finitely many digits is one."""
    step = F(case.multiple_of or F(1, 10))
    return case.notation != "real" and all(F(str(number)) % 1 == 0 for number in multiples(step))


def multiples(step: Fraction) -> list[Fraction]:
    """Some multiples of a step, all that are decimal among the first."""
    return [step * index for index in range(1, 200) if not 10**30 % (step * index).denominator]


def is_plain(case: Number, text: str) -> bool:
    """Whether a text is one that the documentation calls plain."""
    if DIGITS.fullmatch(text):
        longest = 4300 if whole(case) or case.notation == "integer" else 308
        return text != "-0" and len(text.lstrip("-")) <= longest
    if whole(case) or case.notation == "integer":
        return False
    if SCIENTIFIC.fullmatch(text):
        exponent = int(text.partition("e")[2])
        return len(re.sub("[^0-9]", "", text.partition("e")[0])) <= 17 and (exponent >= 16 or exponent <= -5)
    short = re.fullmatch(r"-?([0-9]+)\.([0-9]*[1-9])", text)
    if short and len((short[1] + short[2]).lstrip("0")) <= 17 and abs(F(text)) >= F(1, 10**4) and len(short[1]) <= 16:
        return True
    padded = re.fullmatch(r"-?([0-9]+)\.([0-9]{1,6})", text)
    return padded is not None and len((padded[1] + padded[2]).lstrip("0")) <= 17 and len(padded[1]) <= 16


def check(case: Number, texts: list[str]) -> None:
    """Members that are written plainly, and no others."""
    numbers = [text for text in texts if DIGITS.match(text) and exact_or_none(text) is not None]
    members = Matrix(numbers).members(case)
    for text, member, found in zip(numbers, members, accepted(case, numbers, "plain"), strict=True):
        if case.values is None:
            assert found == (member and is_plain(case, text)), (case, text)
        else:
            assert not found or member, (case, text)


def exact_or_none(text: str) -> Any:
    return exact(text) if re.fullmatch(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", text) else None


@pytest.mark.parametrize("case", NAMED, ids=str)
def test_named_cases(case: Number) -> None:
    check(case, [*SHORT.texts[::9], *near(case)[::3], "-0", "-0.0", "0.0", "19.90", "1.0000000", "0.000001", "1e-06"])


@settings(max_examples=30, deadline=None, derandomize=True)
@given(CASES, st.lists(FLOATS.map(json.dumps) | st.integers(-(10**20), 10**20).map(str), min_size=30, max_size=30))
def test_any_case(case: Number, texts: list[str]) -> None:
    check(case, texts)


def test_digits_are_as_many_as_python_reads() -> None:
    for case, most in ((Number(multiple_of=1), 4300), (Number(multiple_of=1, minimum=F(1, 2)), 4300), (Number(), 308)):
        texts = [sign + "7" * length for sign in ("", "-") for length in (most, most + 1)]
        assert accepted(case, texts, "plain") == [True, False, case.minimum is None, False]
    texts = ["-1" + "0" * 400, "-1" + "0" * 401]
    assert accepted(Number(multiple_of=1, minimum=-(10**400)), texts, "plain") == [True, False]


@settings(max_examples=80, deadline=None, derandomize=True)
@given(FLOATS)
def test_constants_are_written_as_python_writes_them(value: float) -> None:
    assert number_text(exact(repr(value)), True) == json.dumps(value + 0.0 if value else 0.0)
    guide = JSONGuide({"enum": [value, "a"]}, BYTES, spelling="plain")
    assert reads(guide, json.dumps(value))


def test_constants_keep_what_the_schema_writes() -> None:
    schema = {"enum": [1, 2.0, 10**22, 1e22 + 2e21, {"a": [3, 4.0]}]}
    for spelling, wrong in (("plain", False), ("any", True)):
        guide = JSONGuide(schema, BYTES, spelling=spelling)
        for value in schema["enum"]:
            assert reads(guide, json.dumps(value))
        for text in ("1.0", "1.0000000000", "2", "-0", '{"a":[3.0,4.0]}'):
            assert reads(guide, text) == (wrong and text != "-0"), text


NUMBERS = st.sampled_from(
    [0, 1, 2, -1, 10, 100, 0.5, 1.5, 2.5, -0.25, 1e-9, 3e-7, 1e16, 2.5e16, 1e22, 1e23, 7, 3, 1e300]
)
STEPS = st.sampled_from([1, 2, 3, 5, 7, 10, 100, 0.5, 0.1, 0.01, 1e-9, 2.5, 1e16])
SCHEMAS = st.recursive(
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["number", "integer", ["integer", "null"]]),
            "minimum": NUMBERS,
            "maximum": NUMBERS,
            "exclusiveMinimum": NUMBERS,
            "exclusiveMaximum": NUMBERS,
            "multipleOf": STEPS,
            "enum": st.lists(NUMBERS, min_size=1, max_size=3),
        },
    ),
    lambda inner: st.one_of(
        st.builds(lambda part: {"not": part}, inner),
        st.builds(lambda parts: {"anyOf": parts}, st.lists(inner, min_size=1, max_size=2)),
        st.builds(lambda parts: {"allOf": parts}, st.lists(inner, min_size=1, max_size=2)),
    ),
    max_leaves=3,
)
VALUES = st.lists(FLOATS | NUMBERS | st.integers(-(10**30), 10**30), min_size=15, max_size=15)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(SCHEMAS, VALUES)
def test_what_python_writes_is_accepted_iff_it_is_valid(schema: dict[str, Any], values: list[Any]) -> None:
    """In plain spelling integers are digits: no more than what is valid, and every integer that is."""
    validator = Exact(exactly(schema))
    valid = [validator.is_valid(exactly(value)) for value in values]
    if not any(valid):
        return
    guide = JSONGuide(schema, BYTES, spelling="any")
    assert [reads(guide, json.dumps(value)) for value in values] == valid
    plain = JSONGuide(schema, BYTES, spelling="plain")
    for value, fine in zip(values, valid, strict=True):
        number = exact(repr(value))
        forms = {json.dumps(value), *([str(number)] if isinstance(number, int) else [])}
        found = [reads(plain, form) for form in forms]
        assert any(found) == fine, (value, fine)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(CASES, st.sampled_from(["plain", "any"]))
def test_the_shortest_text_is_as_long_as_it_is_said_to_be(case: Number, spelling: Any) -> None:
    if spelt_numbers(case, spelling) == NOTHING:
        return
    automaton = automaton_of(case, spelling)
    level, length = {automaton.start}, 0
    while not any(map(automaton.is_accepting, level)):
        level = {after for state in level for after in automaton.transitions(state).tolist() if after >= 0}
        length += 1
    assert fewest_number_bytes(case, spelling) == length


@pytest.mark.parametrize("least", [1.5e306, 1.5e307, 1e308, 1.7e308])
@pytest.mark.parametrize("sign", [1, -1])
def test_bounds_near_the_greatest_float_leave_finite_numbers(least: float, sign: int) -> None:
    schema = {"type": "number", **({"minimum": least} if sign > 0 else {"maximum": -least})}
    guide = JSONGuide(schema, BYTES, spelling="plain")
    minus = "-" if sign < 0 else ""
    state = guide.read(guide.start, (minus + "1" * 307).encode())
    assert state == DEAD or guide.mask_within(state, guide.distance(state)).any()
    assert reads(guide, json.dumps(sign * 1.75e308))
    assert not reads(guide, minus + "5" * 309)
