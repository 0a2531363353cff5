"""Values that have several spellings: dates, times, amounts and numbers; each with the one that normalising gives."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from random import Random
from typing import Any

from . import names
from .forms import is_held_out

MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_ONES = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
    *("ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("_", "_", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_FIRST_DAY = datetime.date(1950, 1, 1).toordinal()
_LAST_DAY = datetime.date(2039, 12, 31).toordinal()


@dataclass(frozen=True, slots=True)
class Value:
    """What stands in a place: as a passage writes it, and as JSON has it."""

    kind: str
    text: str
    json: Any


def in_words(number: int) -> str:
    """A number from 0 to 999,999 in English words."""
    if number < 20:
        return _ONES[number]
    if number < 100:
        return _TENS[number // 10] + (f"-{_ONES[number % 10]}" if number % 10 else "")
    if number < 1000:
        rest = number % 100
        return f"{_ONES[number // 100]} hundred" + (f" and {in_words(rest)}" if rest else "")
    rest = number % 1000
    joint = " and " if rest < 100 else " "
    return f"{in_words(number // 1000)} thousand" + (f"{joint}{in_words(rest)}" if rest else "")


def ordinal(day: int) -> str:
    """1st, 2nd, 3rd, 4th, ..."""
    return f"{day}{'th' if 10 <= day % 100 <= 20 else {1: 'st', 2: 'nd', 3: 'rd'}.get(day % 10, 'th')}"


def spell_date(day: datetime.date, random: Random) -> str:
    """One of seven ways to write a date."""
    month, number, year = MONTHS[day.month - 1], day.day, day.year
    way = random.randrange(9)
    if way < 2:
        return f"{number} {month} {year}"
    if way < 4:
        return f"{month} {number}, {year}"
    if way == 4:
        return f"the {ordinal(number)} of {month} {year}"
    if way == 5:
        return f"{month} {ordinal(number)}, {year}"
    if way == 6:
        return f"{number:02d}.{day.month:02d}.{year}"
    if way == 7:
        return f"{number} {month[:3]} {year}"
    return day.isoformat()


def spell_time(hour: int, minute: int, random: Random) -> str:
    """One of the ways to write a time of the day."""
    way = random.randrange(5)
    if way < 2:
        return f"{hour:02d}:{minute:02d}"
    short = (hour - 1) % 12 + 1
    if way < 4 or minute % 5:
        return f"{short}:{minute:02d} {'am' if hour < 12 else 'pm'}"
    part = "in the morning" if hour < 12 else "in the afternoon" if hour < 18 else "in the evening"
    following = in_words(hour % 12 + 1)
    if minute == 0:
        return f"{in_words(short)} o'clock {part}"
    past = {15: "a quarter", 30: "half", 45: "a quarter"}.get(minute)
    if minute <= 30:
        return f"{past or in_words(minute)} past {in_words(short)} {part}"
    return f"{past or in_words(60 - minute)} to {following} {part}"


def spell_amount(cents: int, random: Random) -> str:
    """An amount of money with its currency."""
    plain = f"{cents // 100:,}" if random.random() < 0.7 else str(cents // 100)
    number = plain if cents % 100 == 0 and random.random() < 0.8 else f"{plain}.{cents % 100:02d}"
    way = random.randrange(4)
    if way == 0:
        return f"${number}"
    if way == 1:
        return f"{number} {random.choice(('euros', 'dollars', 'pounds', 'crowns', 'francs'))}"
    return f"{random.choice(('EUR', 'USD', 'GBP', 'CHF'))} {number}" if way == 2 else f"£{number}"


def spell_number(number: int, random: Random) -> str:
    """A number in digits, with commas or not, or in words."""
    way = random.randrange(4)
    if way == 0 and number < 100_000:
        return in_words(number)
    return f"{number:,}" if way == 1 else str(number)


def make(kind: str, random: Random, held_out: bool) -> Value:
    """A value of a kind on one side of the split. Raises KeyError for a kind that there is not."""
    if kind.startswith("one:"):
        text = random.choice(kind[4:].split("|"))
        return Value(kind, text, text)
    if kind == "flag":
        return Value(kind, "", random.random() < 0.5)
    if kind == "people":
        several = [names.fresh(names.person, random, held_out) for _ in range(random.randrange(2, 5))]
        return Value(kind, f"{', '.join(several[:-1])} and {several[-1]}", several)
    if kind in _NAMES:
        text = names.fresh(_NAMES[kind], random, held_out)
        return Value(kind, text, text)
    while True:
        key, value = _MAKERS[kind](random)
        if is_held_out(key) == held_out:
            return value


def _date(random: Random) -> tuple[str, Value]:
    day = datetime.date.fromordinal(random.randrange(_FIRST_DAY, _LAST_DAY))
    return day.isoformat(), Value("date", spell_date(day, random), day.isoformat())


def _time(random: Random) -> tuple[str, Value]:
    hour, minute = (
        random.randrange(6, 23),
        random.choice((0, 15, 30, 45, 5 * random.randrange(12), random.randrange(60))),
    )
    return f"{hour:02d}:{minute:02d} o'clock", Value(
        "time", spell_time(hour, minute, random), f"{hour:02d}:{minute:02d}"
    )


def _amount(random: Random) -> tuple[str, Value]:
    whole = random.randrange(2, 10 ** random.randrange(2, 6))
    cents = whole * 100 + (random.randrange(100) if random.random() < 0.5 else 0)
    value = cents // 100 if cents % 100 == 0 else cents / 100
    return f"{cents} cents", Value("amount", spell_amount(cents, random), value)


def _count(random: Random) -> tuple[str, Value]:
    number = random.randrange(2, 100)
    text = in_words(number) if random.random() < 0.4 else str(number)
    # So few numbers are not split: who reads them has seen them all.
    return f"{number} {random.random()}", Value("count", text, number)


def _number(random: Random) -> tuple[str, Value]:
    number = random.randrange(100, 10 ** random.randrange(3, 7))
    return f"{number} in all", Value("number", spell_number(number, random), number)


def _year(random: Random) -> tuple[str, Value]:
    number = random.randrange(1800, 2040)
    return f"{number} {random.random()}", Value("year", str(number), number)


def _degrees(random: Random) -> tuple[str, Value]:
    number = random.randrange(-25, 42)
    text = f"minus {-number}" if number < 0 and random.random() < 0.5 else str(number)
    return f"{number} {random.random()}", Value("degrees", text, number)


_NAMES = {
    "person": names.person,
    "city": names.city,
    "company": names.company,
    "street": names.street,
    "product": names.product,
    "title": names.title,
    "code": names.code,
    "team": names.team,
}
_MAKERS = {
    "date": _date,
    "time": _time,
    "amount": _amount,
    "count": _count,
    "number": _number,
    "year": _year,
    "degrees": _degrees,
}
