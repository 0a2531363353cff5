"""The texts of numbers against exact arithmetic on every short text, and on texts near the bounds."""

from __future__ import annotations

import json
import math
import random
import re
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trellm import Limits
from trellm.guides import DEAD

from ...support import NOTHING, ChartAutomaton, Graph, Lowering, Meter, Node, Table
from ..support import (
    Number,
    Rational,
    Spelling,
    number_fragment,
    number_rule,
    numbers,
    numerals,
    spelt_numbers,
    unbounded,
)

JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
NORMALISED = re.compile(r"-?(?:[1-9](?:\.[0-9]+)?|0(?:\.0+)?)[eE][+-]?[0-9]+")
WHOLE_MANTISSA = re.compile(r"-?[1-9](?:\.0+)?[eE]\+?[0-9]+")

F = Fraction


def exact(text: str) -> Rational:
    value = Fraction(text)
    return value.numerator if value.denominator == 1 else value


def spelt_as(text: str) -> str:
    return "integer" if text.lstrip("-").isdigit() else "real"


class Texts:
    """Texts, with the numbers they denote (None: not a JSON number)."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts
        self.values = [exact(text) if JSON_NUMBER.fullmatch(text) else None for text in texts]

    def members(self, case: Number) -> np.ndarray:
        pairs = zip(self.values, self.texts, strict=True)
        return np.array([v is not None and numbers.contains(case, v, spelt_as(t)) for v, t in pairs])

    def accepted(self, case: Number) -> np.ndarray:
        return np.array(accepted(case, self.texts, "any"))


def accepted(case: Number, texts: list[str], spelling: Spelling) -> list[bool]:
    if spelt_numbers(case, spelling) == NOTHING:
        return [False] * len(texts)
    automaton = automaton_of(case, spelling)
    states = [automaton.read(automaton.start, text.encode()) for text in texts]
    return [state >= 0 and automaton.is_accepting(state) for state in states]


def automaton_of(case: Number, spelling: Spelling) -> ChartAutomaton:
    def making() -> tuple[Graph, int]:
        graph = Graph()
        return graph, number_rule(Lowering(graph), case, spelling)

    return ChartAutomaton(making, meter=Meter(Limits(work=10**10)))


def short_texts() -> list[str]:
    texts = ["".join(letters) for length in range(1, 5) for letters in product("-0125.e+", repeat=length)]
    unsigned = ["".join(letters) for length in (5, 6) for letters in product("0125.e", repeat=length)]
    texts += [text for text in unsigned if JSON_NUMBER.fullmatch(text)]
    signed = ["-" + text for text in texts if JSON_NUMBER.fullmatch("-" + text)]
    longer = ["1E5", "1E-2", "01", "1e+", "+1", "-", "-+1", "1e+05", "1e-005", "1.0E+00"]
    return random.Random(0).sample(texts, 6000) + random.Random(1).sample(signed, 2000) + longer


SHORT = Texts(short_texts())


def near(case: Number) -> list[str]:
    """Texts of the bounds and of numbers a little beside them, in several notations."""
    values = {F(0), *map(F, case.excluded), *map(F, case.values or ())}
    values |= {F(bound) for bound in (case.minimum, case.maximum) if bound is not None}
    step = F(case.multiple_of or 1)
    values |= {value + sign * step for value in values for sign in (-1, 1)}
    texts: set[str] = set()
    for value in values:
        for digits in (0, 1, 2, 5, 12):
            scaled = value * 10**digits // 1
            for moved in (scaled - 1, scaled, scaled + 1):
                texts |= {decimal(moved, digits), decimal(moved, digits) + ("0" if digits else ".0")}
                texts |= scientific(moved, -digits)
        for number in (
            float(value),
            float(np.nextafter(float(value), np.inf)),
            float(value) * 1e16,
            float(value) / 1e9,
        ):
            texts.add(json.dumps(number))
        texts.add(json.dumps(int(value)))
    large = (1e16, 2.5e16, 1e22, 1.2345678901234567e16, 3e22, 1.5e300, 1e308, 1.75e308, 1.7976931348623157e308)
    small = (1e-5, 2.5e-7, 4.5e-08, 7.5e-07, 1e-9, 1.25e-320, 5e-324)
    texts |= {json.dumps(sign * value) for value in (*large, *small) for sign in (1, -1)}
    return sorted(texts)


def decimal(scaled: int, places: int) -> str:
    digits = str(abs(scaled)).zfill(places + 1)
    sign = "-" if scaled < 0 else ""
    return f"{sign}{digits[: len(digits) - places]}" + (f".{digits[-places:]}" if places else "")


def scientific(scaled: int, exponent: int) -> set[str]:
    if not scaled:
        return {"0e5", "-0.0E-3", "0e+0"}
    digits = str(abs(scaled))
    mantissa = ("-" if scaled < 0 else "") + digits[0] + (f".{digits[1:]}" if len(digits) > 1 else "")
    power = exponent + len(digits) - 1
    return {f"{mantissa}e{power:+03d}", f"{mantissa}E{power}", f"{mantissa}e{power + 1}", f"{mantissa}e{power - 1}"}


def remainders(case: Number) -> int:
    """How many remainders digits have by all factors, where zeros behind them are no digits."""
    found = 1
    for step in (*case.not_multiple_of, *(() if case.multiple_of is None else (case.multiple_of,))):
        whole = F(step)
        while whole.denominator % 2 == 0 or whole.denominator % 5 == 0:
            whole *= 10
        found *= int(re.sub("0+$", "", str(whole.numerator)))
    return found


def is_promised(case: Number, text: str) -> bool:
    """Whether the documentation promises that a member is accepted in this notation."""
    if not re.search("[eE]", text):
        return True
    if "." in text and remainders(case) > 128:
        return False
    if json.dumps(float(text)) == text:
        return case.notation != "integer"
    mantissa, exponent = re.split("[eE]", text)
    least, most = (-324, 307) if re.match(r"-?[1-9]($|\.)", mantissa) else (-99, 99)
    if case.values is not None or case.not_multiple_of or not least <= int(exponent) <= most:
        return False
    bounded = {case.minimum, case.maximum} - {None, 0} or case.excluded - {0}
    if case.multiple_of is None:
        return not bounded or NORMALISED.fullmatch(text) is not None
    free = case.maximum is None if not text.startswith("-") else case.minimum is None
    return case.multiple_of == 1 and free and WHOLE_MANTISSA.fullmatch(text) is not None


def check(case: Number) -> None:
    """Exactly the members among the texts without exponent; with exponent no others, and those promised."""
    for texts in (SHORT, Texts(near(case))):
        members, accepted = texts.members(case), texts.accepted(case)
        wrong = [texts.texts[index] for index in np.flatnonzero(accepted & ~members)]
        assert not wrong, f"accepted: {wrong[:9]}"
        refused = [texts.texts[index] for index in np.flatnonzero(members & ~accepted)]
        refused = [text for text in refused if is_promised(case, text)]
        assert not refused, f"refused: {refused[:9]}"


NAMED = [
    Number(),
    Number(multiple_of=1),
    Number(notation="integer"),
    Number(notation="real"),
    Number(multiple_of=1, notation="real"),
    Number(minimum=0),
    Number(minimum=0, exclusive_minimum=True),
    Number(maximum=0),
    Number(maximum=0, exclusive_maximum=True),
    Number(excluded=frozenset((0,))),
    Number(minimum=0, multiple_of=1),
    Number(minimum=1, multiple_of=1),
    Number(minimum=0, exclusive_minimum=True, multiple_of=1),
    Number(minimum=0, maximum=0),
    Number(minimum=0, maximum=0, exclusive_minimum=True),
    Number(minimum=0, maximum=150, multiple_of=1),
    Number(minimum=-12, maximum=5021, multiple_of=1, notation="integer"),
    Number(minimum=-12, maximum=5021, notation="real", multiple_of=1),
    Number(minimum=F(-5, 2), maximum=F(5, 2), multiple_of=1, exclusive_maximum=True),
    Number(minimum=0, maximum=100_000, multiple_of=1),
    Number(minimum=0, exclusive_minimum=True, maximum=199_999, multiple_of=1, notation="integer"),
    Number(minimum=-2_110_205, maximum=550_000, multiple_of=1, notation="real"),
    Number(minimum=1, maximum=2**31 - 1, multiple_of=1),
    Number(minimum=1000, maximum=10**9, multiple_of=1),
    Number(minimum=2, multiple_of=1),
    Number(maximum=-3, multiple_of=1),
    Number(minimum=0, maximum=2**64 - 1, multiple_of=1),
    Number(minimum=0, maximum=10**21 + 7, multiple_of=1),
    Number(minimum=-90, maximum=90),
    Number(minimum=0, maximum=1, exclusive_maximum=True),
    Number(minimum=F(9999999999999, -100), maximum=F(9999999999999, 100)),
    Number(minimum=F(1, 10), maximum=500),
    Number(minimum=F(3, 8), maximum=F(22, 625)),
    Number(minimum=F(22, 625), maximum=F(3, 8)),
    Number(minimum=F(1, 1000), exclusive_minimum=True, maximum=F(5, 100)),
    Number(minimum=F(1, 10**6)),
    Number(maximum=10**17, exclusive_maximum=True),
    Number(minimum=5, maximum=5, notation="real"),
    Number(multiple_of=F(1, 100)),
    Number(multiple_of=F(1, 100), minimum=0),
    Number(multiple_of=F(1, 100), minimum=0, maximum=F(9999999999999998, 100)),
    Number(multiple_of=F(5, 2), minimum=F(5, 2)),
    Number(multiple_of=F(3, 2)),
    Number(multiple_of=F(1, 2), notation="integer"),
    Number(multiple_of=7, minimum=7),
    Number(multiple_of=11, minimum=110),
    Number(multiple_of=100),
    Number(multiple_of=10**9),
    Number(multiple_of=F(1, 10**9)),
    Number(multiple_of=F(3, 10**7), maximum=1),
    Number(multiple_of=128, minimum=10**16),
    Number(not_multiple_of=frozenset((3,))),
    Number(minimum=1, maximum=2**63 - 1, multiple_of=1),
    Number(multiple_of=250, minimum=-1000, maximum=10**7),
    Number(multiple_of=F(1, 4), minimum=0, maximum=100),
    Number(multiple_of=5, minimum=0, maximum=100, excluded=frozenset((5, 50))),
    Number(not_multiple_of=frozenset((1,))),
    Number(not_multiple_of=frozenset((1,)), notation="integer"),
    Number(not_multiple_of=frozenset((2, F(5, 100))), minimum=1),
    Number(multiple_of=F(5, 10), not_multiple_of=frozenset((F(5, 2),)), maximum=52),
    Number(excluded=frozenset((5, F(1, 2), 12, -1))),
    Number(excluded=frozenset((0, 1)), multiple_of=1),
    Number(excluded=frozenset((0, 1)), notation="integer"),
    Number(values=frozenset((0,))),
    Number(values=frozenset((1, 2, -5, F(1, 2), F(-125, 1000), 10**22, F(1, 10**7), F(1, 3)))),
    Number(values=frozenset()),
]


@pytest.mark.parametrize("case", NAMED, ids=str)
def test_named_cases(case: Number) -> None:
    check(case)


SMALL = st.builds(F, st.integers(-530, 530), st.sampled_from((1, 1, 10, 100, 4)))
STEPS = st.sampled_from((1, 2, 5, 10, F(1, 10), F(1, 4), F(5, 2), F(3, 5), F(12, 100), 25, 12, F(3, 8), 1000))


def simple(value: Fraction | int) -> Rational:
    return exact(str(value))


CASES = st.builds(
    Number,
    minimum=st.none() | SMALL.map(simple),
    maximum=st.none() | SMALL.map(simple),
    exclusive_minimum=st.booleans(),
    exclusive_maximum=st.booleans(),
    multiple_of=st.none() | STEPS.map(simple),
    not_multiple_of=st.just(frozenset()) | st.frozensets(STEPS.map(simple), max_size=1),
    notation=st.sampled_from((None, None, "integer", "real")),
    excluded=st.frozensets(SMALL.map(simple), max_size=2) | st.just(frozenset((0, 1, F(1, 2)))),
)


@settings(max_examples=35, deadline=None, derandomize=True)
@given(CASES)
def test_any_case(case: Number) -> None:
    check(case)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.integers(0, 99999), st.integers(-3, 12), st.integers(0, 99999), st.integers(-3, 12), st.booleans())
def test_any_bounds(low: int, low_power: int, high: int, high_power: int, is_open: bool) -> None:
    bounds = [simple(F(number) * F(10) ** power) for number, power in ((low, low_power), (high, high_power))]
    check(Number(-bounds[0], bounds[1], is_open, not is_open))
    check(Number(bounds[0], bounds[1], is_open, not is_open))


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(0, 10, exclude_min=True))
def test_python_writes_no_number_that_is_refused(value: float, factor: float) -> None:
    number = exact(repr(value))
    scaled = exact(repr(value * factor)) if abs(value * factor) < 1e300 else number
    text = Texts([json.dumps(value), json.dumps(value).replace("e+", "e").upper()])
    for case in (
        Number(),
        Number(minimum=number),
        Number(maximum=number),
        Number(minimum=number, exclusive_minimum=True),
        Number(maximum=number, exclusive_maximum=True),
        Number(minimum=scaled),
        Number(maximum=scaled),
        Number(excluded=frozenset((number, scaled))),
        Number(values=frozenset((number, scaled))),
    ):
        assert text.accepted(case).tolist() == text.members(case).tolist(), case


FLOATS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.builds(lambda digits, power: float(f"{digits}e{power}"), st.integers(-(10**6), 10**6), st.integers(-30, 40)),
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(CASES, st.lists(FLOATS, min_size=20, max_size=20))
def test_a_float_is_accepted_as_python_writes_it_iff_it_is_a_member(case: Number, values: list[float]) -> None:
    """But for fractions with exponents: of multiples with many remainders these may be refused."""
    written = [json.dumps(value) for value in values]
    texts = Texts(written)
    members, accepted = texts.members(case), texts.accepted(case)
    assert not (accepted & ~members).any()
    has_steps = case.multiple_of is not None or bool(case.not_multiple_of)
    told = np.array([not (has_steps and "e" in text and "." in text) for text in written])
    assert (accepted == members)[told].all()


def tables(node: Node | None) -> list[Table]:
    if isinstance(node, Table):
        return [node]
    parts = getattr(node, "items", None) or ((node.item,) if hasattr(node, "item") else ())
    return [table for part in parts for table in tables(part)]


@pytest.mark.parametrize("case", NAMED, ids=str)
def test_tables_are_trimmed(case: Number) -> None:
    for table in tables(spelt_numbers(case, "any")):
        alive = set(np.flatnonzero(table.accepting).tolist())
        while True:
            leads_there = np.isin(table.transitions, list(alive)).any(axis=1)
            grown = alive | set(np.flatnonzero(leads_there).tolist())
            if grown == alive:
                break
            alive = grown
        assert len(alive) == len(table.transitions)


def test_common_cases_need_no_large_table() -> None:
    values = frozenset((1, 2, F(1, 2)))
    for case in (Number(multiple_of=1, minimum=1, maximum=150), Number(values=values)):
        assert sum(len(table.transitions) for table in tables(spelt_numbers(case, "any"))) < 20
    for case in (Number(), Number(minimum=0), Number(minimum=0, exclusive_minimum=True), Number(multiple_of=1)):
        (table,) = tables(spelt_numbers(case, "any"))
        assert len(table.transitions) < 500
        assert tables(spelt_numbers(replace(case, exclusive_maximum=True), "any"))[0] is table


@pytest.mark.parametrize(
    "case", [Number(), Number(multiple_of=1), Number(minimum=5), Number(maximum=-2, multiple_of=1)]
)
def test_exponents_are_those_of_finite_floats(case: Number) -> None:
    sign = "-" if case.maximum else ""
    large = [
        f"{sign}{text}" for text in ("9e307", "9.9E+0307", "123456e99", "9e308", "9e309", "10e308", "99e400", "1e999")
    ]
    accepted = Texts(large).accepted(case).tolist()
    assert accepted[:2] == [True, True]
    assert accepted[4:] == [False] * 4
    for text, was in zip(large, accepted, strict=True):
        assert not was or math.isfinite(float(text)), text


def test_constants_keep_to_their_notation() -> None:
    texts = Texts(["1", "1.0", "-1", "0", "-0", "0.0", "0.5", "1e22", "0e1", "1" + "0" * 22])
    for notation in ("integer", "real"):
        case = Number(values=frozenset((0, 1, 10**22, F(1, 2))), notation=notation)
        spelling = np.array([spelt_as(text) == notation for text in texts.texts])
        assert texts.accepted(case).tolist() == (texts.members(case) & spelling).tolist()


def test_equal_cases_share_their_fragment() -> None:
    fragment = number_fragment(Number(minimum=0), "any")
    assert fragment is not None and fragment is number_fragment(Number(minimum=F(0)), "any")


@pytest.mark.parametrize("step", [1000003, F(1000003, 1000)])
def test_large_steps_are_told_on_demand_in_either_spelling(step: Rational) -> None:
    case = Number(multiple_of=step)
    value = 12345 * step
    texts = Texts([written for number in (value, value + step / 1000003) for written in (str(float(number)), "0.0")])
    for spelling in ("any", "plain"):
        assert spelt_numbers(case, spelling) is None
        is_real = spelling == "any" or step % 1 != 0
        assert accepted(case, texts.texts, spelling) == [is_real, is_real, False, is_real]


def test_few_multiples_of_a_large_step_are_listed() -> None:
    case = Number(minimum=0, maximum=5 * 1000003, multiple_of=1000003)
    texts = Texts(["0", "1000003", "2000006.0", "5000015", "6000018", "1000004", "-0"])
    assert texts.accepted(case).tolist() == texts.members(case).tolist()


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("step", [None, 1])
def test_numbers_without_bounds_are_those_of_the_automaton_of_bounds(step: int | None, is_open: bool) -> None:
    """Both are walked through all their states from behind one whole digit, which is not 0."""
    read = numerals(Number(0, exclusive_minimum=is_open, multiple_of=step, notation="real"))
    table = unbounded("real", is_open, step == 1)

    def after(pair: tuple[int, int], byte: int) -> tuple[int, int]:
        syntax, other = pair
        runs = [] if other == DEAD else read.runs(other)
        return (
            DEAD if syntax == DEAD else int(table.transitions[syntax, byte]),
            next((target for first, last, target in runs if first <= byte <= last), DEAD),
        )

    digits = [after((table.start, read.start), byte) for byte in b"123456789"]
    waiting = [after(pair, byte) for pair in digits for byte in b".eE"]
    known = set(waiting)
    for pair in waiting:
        syntax, other = pair
        assert (syntax != DEAD and bool(table.accepting[syntax])) == (other != DEAD and read.is_accepting(other))
        new = {after(pair, byte) for byte in b"0123456789.eE+-"} - known
        known |= new
        waiting += new
    assert len(known) > 30
