"""Many constants read together are the language of each on its own, equally far from its end."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest
from trellm.guides import DEAD, JSONGuide

from ....thresholds import thresholds
from ...support import Dfa
from ..random_schemas import random_value
from ..test_guide_suite import BYTES


@pytest.mark.parametrize("order", ["any", "schema"])
@pytest.mark.parametrize("whitespace", ["compact", "pretty"])
@pytest.mark.parametrize("escapes", ["canonical", "any"])
def test_together_and_alone_are_the_same(
    order: Any, whitespace: Any, escapes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(3)
    for turn in range(6):
        values = [random_value(random, 2 + turn % 2) for _ in range(random.randrange(2, 9))]
        guides: list[JSONGuide] = []
        for few in (-1, 1000):
            thresholds(monkeypatch, constants_apart=few)
            given = {"enum": values, "$comment": f"{turn} {few}"}
            guides.append(JSONGuide(given, BYTES, order=order, whitespace=whitespace, escapes=escapes))
        ones, others = (Dfa.of(guide.automaton).minimised() for guide in guides)
        assert np.array_equal(ones.transitions, others.transitions)
        assert np.array_equal(ones.accepting, others.accepting)
        assert guides[0].distance(guides[0].start) == guides[1].distance(guides[1].start)


NUMBERS = [
    *("0", "-0.0", "0e5", "1", "-7", "100", "100.0", "1E+2", "10e1", "0.1e3", "1e02", "1.50", "15e-1", "0.15E1"),
    *("0.1", "1e-1", "0.10", "-2.5e-7", "0.00000025", "123456789012345678901234567890", "12345678901234567890e10"),
    *("1e16", "10000000000000000", "1.0e16", "1e400", "0.0001e-3", "1e-300", "9.75", "975e-2", "101"),
]


@pytest.mark.parametrize("written", NUMBERS)
@pytest.mark.parametrize("place", ["%s", "[%s]", '{"a":%s}', '{"b":[3,{"a":%s}]}'])
def test_a_constant_is_read_as_the_schema_writes_it_and_as_any_number_that_is_equal(written: str, place: str) -> None:
    """Under spelling="any" whichever text has the value; under "plain" only the schema's own."""
    for schema in (f'{{"const": {place % written}}}', f'{{"enum": ["x", {place % written}]}}'):
        loose, plain = (JSONGuide(schema, BYTES, spelling=spelling) for spelling in ("any", "plain"))
        for text in NUMBERS:
            equal = Fraction(text) == Fraction(written)
            assert reads(loose, place % text) == equal, text
            assert reads(plain, place % text) == (text == written), text


@pytest.mark.parametrize("value", [100, 1.5, -0.0, 0.1, 100.0, 1e22, 5e-324, 10**30, [1e2, {"a": 1.50}]])
def test_constants_of_python_are_written_as_json_dumps_writes_them(value: Any) -> None:
    guides = [JSONGuide({"const": value}, BYTES, spelling=spelling) for spelling in ("any", "plain")]
    assert all(reads(guide, json.dumps(value)) for guide in guides)


@pytest.mark.parametrize("value", [100, 120000, 1.5, 0.000025, -30, 7e20])
@pytest.mark.parametrize("place", ["%s", "[%s]"])
def test_the_point_of_a_constant_stands_anywhere_with_the_exponent_for_it(value: float, place: str) -> None:
    guide = JSONGuide(f'{{"const": {place % json.dumps(value)}}}', BYTES)
    digits = repr(abs(value)).partition("e")[0].replace(".", "").strip("0")
    sign, power = "-" * (value < 0), math.floor(math.log10(abs(value)))
    texts = [
        f"{sign}{digits}e{power + 1 - len(digits)}",
        f"{sign}0.{digits}E{power + 1:+d}",
        f"{sign}0.{digits}0e{power + 1}",
    ]
    texts += [
        f"{sign}{digits[0]}.{digits[1:]}0e{power}",
        f"{sign}{Fraction(abs(value)).limit_denominator(10**9)}e-0" * (value == value // 1),
    ]
    for text in filter(None, texts):
        assert json.loads(text) == pytest.approx(value, rel=1e-15)
        assert reads(guide, place % text), text
        assert not reads(guide, place % f"{text}1"), text


@pytest.mark.parametrize("written", ["150000e-5", "0.000012e+9", "12e-0005", "1E400", "5" * 40, "0." + "5" * 40])
def test_the_schema_s_own_spelling_is_read_however_odd(written: str) -> None:
    for spelling in ("any", "plain"):
        for place in ("%s", "[%s]"):
            guide = JSONGuide(f'{{"const": {place % written}}}', BYTES, spelling=spelling)
            assert reads(guide, place % written)
            assert not reads(guide, place % f"{written}1")


@pytest.mark.parametrize("spelling", ["any", "plain"])
def test_a_real_number_of_draft_4_is_read_as_the_integer_that_it_equals(spelling: Any) -> None:
    """As 1.0 it would be no integer there."""
    dialect = "http://json-schema.org/draft-04/schema#"
    for number, integer in (("1.0", "1"), ("1e2", "100")):
        schema = f'{{"$schema": "{dialect}", "type": "integer", "enum": [{number}, 2.5]}}'
        guide = JSONGuide(schema, BYTES, spelling=spelling)
        assert reads(guide, integer)
        assert not reads(guide, number) and not reads(guide, "2")


def reads(guide: JSONGuide, text: str) -> bool:
    state = guide.read(guide.start, text.encode())
    return state != DEAD and guide.is_accepting(state)


def test_a_constant_that_is_left_with_others_out_keeps_its_spelling() -> None:
    schema = '{"properties": {"a": {"const": 1.50}, "b": {"type": "string", "pattern": "(a)\\\\1"}}}'
    guide = JSONGuide(schema, BYTES, spelling="plain", unenforced="allow")
    assert reads(guide, '{"a":1.50}') and not reads(guide, '{"a":1.5}')
