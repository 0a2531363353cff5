"""The types of the documentation's table: whatever their guides write is converted."""

from __future__ import annotations

import collections
import collections.abc
import dataclasses
import datetime
import decimal
import enum
import fractions
import ipaddress
import pathlib
import re
import typing
import uuid
import warnings
import zoneinfo
from datetime import date, timedelta
from decimal import Decimal
from random import Random
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
import pydantic
import pytest
from pydantic import BaseModel, Field, RootModel
from trellm import Vocabulary
from trellm.errors import OptionError
from trellm.guides import JSONGuide
from typing_extensions import TypedDict

from .support import structure_of

T = TypeVar("T")
BYTES = Vocabulary.from_bytes()
DOCUMENTATION = pathlib.Path(__file__).parents[2] / "docs" / "json.md"


class Colour(enum.Enum):
    RED = "red"
    TWO = 2
    HALF = 0.5


class Shade(enum.IntEnum):
    DARK = 1
    LIGHT = 2


@dataclasses.dataclass
class Point:
    x: int
    names: list[str] = dataclasses.field(default_factory=list)


class Pair(NamedTuple):
    a: int
    b: str = "x"


class Movie(TypedDict):
    year: int
    title: str


class Person(BaseModel):
    weight: Decimal
    born: date
    site: pydantic.HttpUrl | None = None
    rest: timedelta


class Numbers(RootModel[list[int]]):
    pass


class Box(BaseModel, Generic[T]):
    inside: T


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


MODULES = (
    typing,
    collections,
    datetime,
    decimal,
    fractions,
    ipaddress,
    pathlib,
    uuid,
    zoneinfo,
    collections.abc,
    pydantic,
)
HERE: dict[str, Any] = {name: value for module in MODULES for name, value in vars(module).items()}


def documented() -> list[str]:
    rows = DOCUMENTATION.read_text("utf-8").split("### Types")[1].split("\n\n")[2].splitlines()[2:]
    cells = [re.split(r"(?<!\\)\|", row)[1] for row in rows]
    return [name.replace("\\|", "|") for cell in cells for name in re.findall("`([^`]+)`", cell)]


def kind_of(name: str) -> Any:
    words = set(re.findall(r"\w+", name)) & set(pydantic.__all__)
    return eval(name, {**globals(), **HERE, **{word: getattr(pydantic, word) for word in words}})


def walk(guide: JSONGuide, random: Random, more: int) -> str:
    """A text of random characters, most of them of ASCII, within a budget."""
    state, text = guide.start, b""
    for left in range(guide.distance(state) + more, -1, -1):
        row = guide.mask_within(state, left)
        allowed = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist()
        assert allowed, f"a dead end after {text!r}"
        usual = [token for token in allowed if 32 <= token < 127 or token in BYTES.eos_ids]
        token = random.choice(usual or allowed)
        if token in BYTES.eos_ids:
            break
        text += BYTES.tokens[token] or b""
        state = guide.advance(state, token)
    return text.decode()


def guide_for(kind: Any) -> tuple[Any, JSONGuide]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pydantic.json_schema.PydanticJsonSchemaWarning)
        structure = structure_of(kind)
    return structure, JSONGuide(structure.schema, BYTES, order="schema", spelling="plain")


def test_the_table_is_there() -> None:
    assert len(documented()) > 100


@pytest.mark.parametrize("name", documented())
def test_what_is_written_is_converted(name: str) -> None:
    structure, guide = guide_for(kind_of(name))
    random = Random(name)
    for number in range(10):
        text = walk(guide, random, (0, 2, 5, 12, 30)[number % 5])
        structure.convert(text)


WRITTEN = [
    ("Decimal", "19.90"),
    ("timedelta", '"P1DT2H30M5S"'),
    ("timedelta", '"PT1.5S"'),
    ("datetime", '"2024-02-29T23:59:59.5+02:00"'),
    ("NaiveDatetime", '"2024-02-29T10:00:00"'),
    ("condate(gt=date(2020, 1, 1))", '"2020-01-02"'),
    ("Annotated[date, Field(ge=date(2020, 1, 1), le=date(2020, 1, 1))]", '"2020-01-01"'),
    ("time", '"10:30:00"'),
    ("HttpUrl", '"https://www.example.org:8080/a/b?c=d#e"'),
    ("PostgresDsn", '"postgresql://me:secret@db.example.org:5432/app"'),
    ("FileUrl", '"file:///etc/hosts"'),
    ("IPv4Network", '"192.168.0.0/24"'),
    ("IPv6Address", '"2001:db8::1"'),
    ("UUID4", '"123e4567-e89b-42d3-a456-426614174000"'),
    ("ByteSize", '"1.5 GiB"'),
    ("Base64Str", '"aGVsbG8h"'),
    ("set[int]", "[1, 2, 3]"),
    ("ZoneInfo", '"Europe/Vienna"'),
]


@pytest.mark.parametrize(("name", "text"), WRITTEN)
def test_what_people_write_is_accepted(name: str, text: str) -> None:
    structure, guide = guide_for(kind_of(name))
    state = guide.read(guide.start, text.encode())
    assert state >= 0 and guide.is_accepting(state)
    structure.convert(text)


def test_bounds_of_dates_hold_on_both_sides() -> None:
    _, guide = guide_for(Annotated[date, Field(gt=date(1999, 12, 31), le=date(2020, 10, 9))])
    texts = ("1999-12-31", "2000-01-01", "2020-10-09", "2020-10-10", "2020-11-01", "2020-09-30", "2021-01-01")
    states = [guide.read(guide.start, f'"{text}"'.encode()) for text in texts]
    assert [state >= 0 for state in states] == [False, True, True, False, False, True, False]


@pytest.mark.parametrize("kind", [pydantic.FilePath, pydantic.NewPath, pydantic.DirectoryPath, pydantic.ImportString])
def test_what_is_looked_up_outside_is_refused(kind: Any) -> None:
    with pytest.raises(OptionError, match="outside of the text"):
        structure_of(kind)


@pytest.mark.parametrize("pattern", ["(", "(?<=a)b"])
def test_patterns_that_pydantic_cannot_read_are_refused(pattern: str) -> None:
    with pytest.raises(OptionError, match="cannot write"):
        structure_of(Annotated[str, pydantic.Field(pattern=pattern)])


def test_what_json_cannot_say_is_refused() -> None:
    with pytest.raises(OptionError, match="use the Enum"):
        structure_of(Literal[Colour.RED])
    with pytest.raises(OptionError, match="JSON within a string"):
        structure_of(pydantic.Json[list[int]])
