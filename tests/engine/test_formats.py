"""The texts that stand for values of Python types: exactly those that convert, and back again."""

from __future__ import annotations

import datetime
import re
import uuid
from enum import Enum
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trellm import Beam, OptionError, TrellmError, generate, models

from .support import format_of


def matches(kind: Any, text: str) -> bool:
    pattern = format_of(kind).pattern
    assert pattern is not None
    return re.fullmatch(pattern, text) is not None


@given(st.dates())
@settings(max_examples=300, derandomize=True)
def test_every_date_is_written(date: datetime.date) -> None:
    assert matches(datetime.date, date.isoformat())


@pytest.mark.parametrize("year", [1, 4, 96, 100, 400, 1900, 1996, 1999, 2000, 2100, 2400, 9996, 9999])
def test_dates_are_those_of_the_calendar(year: int) -> None:
    for month in range(14):
        for day in range(33):
            text = f"{year:04}-{month:02}-{day:02}"
            try:
                expected = datetime.date(year, month, day)
            except ValueError:
                assert not matches(datetime.date, text)
            else:
                assert matches(datetime.date, text)
                assert format_of(datetime.date).convert(text) == expected


def test_there_is_no_year_0() -> None:
    assert not matches(datetime.date, "0000-01-01") and not matches(datetime.date, "0000-02-29")


@pytest.mark.parametrize(
    ("kind", "strategy", "write"),
    [
        (int, st.integers(), str),
        (float, st.floats(-1e9, 1e9).filter(lambda x: x == 0 or abs(x) > 1e-9), repr),
        (datetime.time, st.times(), datetime.time.isoformat),
        (datetime.datetime, st.datetimes(), datetime.datetime.isoformat),
        (uuid.UUID, st.uuids(), str),
    ],
)
def test_values_come_back(kind: Any, strategy: Any, write: Any) -> None:
    written = format_of(kind)

    @given(strategy)
    @settings(max_examples=100, derandomize=True)
    def check(value: Any) -> None:
        assert matches(kind, write(value))
        assert written.convert(write(value)) == value

    check()


@pytest.mark.parametrize("kind", [int, float, datetime.date, datetime.time, datetime.datetime, uuid.UUID])
def test_every_text_of_a_format_converts(kind: Any) -> None:
    written = format_of(kind)

    @given(st.from_regex(re.compile(written.pattern or "", re.ASCII), fullmatch=True))
    @settings(max_examples=50, derandomize=True, deadline=None)
    def check(text: str) -> None:
        assert isinstance(written.convert(text), kind)

    check()


def test_long_numbers_convert() -> None:
    assert format_of(int).convert("-" + "9" * 6000) == 1 - 10**6000


class Mood(Enum):
    GOOD = "good"
    BAD = -1


class Twin(Enum):
    ONE = 1
    TEXT = "1"


def test_choices() -> None:
    mood = format_of(Mood)
    assert {text: mood.convert(text) for text in mood.choices} == {"good": Mood.GOOD, "-1": Mood.BAD}
    literal = format_of(Literal["a", 1, True, None])
    assert [literal.convert(text) for text in literal.choices] == ["a", 1, True, None]
    assert literal.choices == ("a", "1", "True", "None")
    assert {text: format_of(bool).convert(text) for text in format_of(bool).choices} == {"True": True, "False": False}


def choosing(*order: str) -> Any:
    """A model that likes texts in this order."""
    model = models.ziplm("x")
    first = {ord(text[0]): -place for place, text in enumerate(order)}
    characters = [None if token is None else token.decode() for token in model.vocabulary.tokens]
    return models.from_function(
        lambda ids: [float(first.get(ord(each), -99)) if each else -99.0 for each in characters], model.vocabulary
    )


def test_choices_stand_for_values() -> None:
    model, marker = choosing("n", "y", "g", "-", "1", "T"), object()
    assert generate.choice(model, {"yes": True, "no": marker})("x") is marker
    assert generate.choice(model, {"yes": [1], "maybe": 2})(["x"]) == [[1]]
    found = generate.choice(model, Mood).run("x")
    assert (found.value, found.text) == (Mood.GOOD, "good")
    assert set(generate.choice(model, Mood)("x", search=Beam(2, n=2))) == {Mood.GOOD, Mood.BAD}
    assert generate.choice(model, Literal[1, True])("x") == 1
    assert generate.choice(model, ["yes", "no"])("x") == generate.choice(model, {"yes", "no"})("x") == "no"
    values = {"no": 1}
    assert generate.choice(model, values.keys())("x") == "no"
    generator = generate.choice(model, values)
    values.clear()
    assert generator("x") == 1


@pytest.mark.parametrize(
    ("choices", "said"),
    [({}, "no choices|at least one"), ({1: "a"}, "choice 0 must be a text"), (Twin, "two of its values"),
     (Enum("Empty", []), "no values"), (int, "a text or a list of texts"), (Literal["1", 1], "two of its values")],
)  # fmt: skip
def test_choices_that_are_refused(choices: Any, said: str) -> None:
    with pytest.raises(TrellmError, match=said):
        generate.choice(models.ziplm("x"), choices)


@pytest.mark.parametrize(
    ("kind", "message"),
    [(str, "cannot write"), ([int], "cannot write"), ("int", "cannot write"), (Twin, "two of its values"),
     (Literal["1", 1], "two of its values"), (Enum("Empty", []), "no values")],
)  # fmt: skip
def test_other_types_are_refused(kind: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        format_of(kind)
