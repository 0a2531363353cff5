"""The length of a value's text, as a number: of what json.dumps writes, with numbers as short as they are here."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from trellm.guides.json_schema.lower.rules import MAX_LENGTH, Measures


def any_value(random: Random, depth: int) -> Any:
    kind = random.randrange(9 if depth else 6)
    scalars = (
        None,
        random.random() < 0.5,
        random.randrange(-(10**9), 10**9),
        Fraction(random.randrange(1, 99), random.choice((3, 10, 8))),
        "".join(random.choice('aé"\n\x00日𝄞\\') for _ in range(random.randrange(5))),
        random.random() * 10.0 ** random.randrange(-9, 20),
    )
    if kind < 6:
        return scalars[kind]
    parts = [any_value(random, depth - 1) for _ in range(random.randrange(4))]
    return parts if kind == 6 else {f"{number}é": part for number, part in enumerate(parts)}


def shortest(token: str) -> str:
    """A number in the shortest of the ways that a constant may be written; a string as it is."""
    if token.startswith('"'):
        return token
    sign, given, exponent = Decimal(token).as_tuple()
    digits = "".join(map(str, given)).strip("0")
    if not digits:
        return "0"
    plain = format(Decimal(token), "f").lstrip("-")
    plain = plain.rstrip("0").rstrip(".") if "." in plain else plain
    assert isinstance(exponent, int)
    last = exponent + len("".join(map(str, given))) - len("".join(map(str, given)).rstrip("0"))
    ways = [plain] + [
        f"{digits[:place]}{'.' * (place < len(digits))}{digits[place:]}e{last + len(digits) - place}"
        for place in range(1, len(digits) + 1)
    ]
    return "-" * sign + min(ways, key=len)


@pytest.mark.parametrize("indent", [None, 0, 2, 3])
def test_measures_are_those_of_the_text(indent: int | None) -> None:
    random = Random(1)
    separators = (",", ":") if indent is None else None
    for _ in range(1000):
        value = any_value(random, 4)
        text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, default=float)
        text = re.sub(r'"(?:[^"\\]|\\.)*"|[-\d][-+.\deE]*', lambda found: shortest(found[0]), text)
        assert Measures(indent).of(value) == (len(text.encode()), text.count("\n"))


def test_parts_that_are_shared_are_measured_once() -> None:
    value: list[Any] = [1]
    for _ in range(20):
        value = [value, value]
    assert Measures(None).of(value).length == 3 * 2**20 + 3 * (2**20 - 1)
    for _ in range(100_000):
        value = [value, value]
    assert Measures(None).of(value).length == MAX_LENGTH
