"""Python types as patterns of their text, conversions back, and patterns for formats that JSON Schema does not
define."""

from __future__ import annotations

import datetime
import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import EnumMeta
from functools import partial
from typing import Any, Literal, cast, get_args, get_origin

from ..errors import OptionError

DATE = (
    # Every year: 28 days in all months, the 29th and 30th in all but February, the 31st in seven.
    "((000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})-"
    "((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)"
    # Leap years: divisible by 4, and not by 100 unless by 400.
    "|([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29)"
)
TIME = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{6})?"
INTEGER = "-?(0|[1-9][0-9]*)"


@dataclass(frozen=True)
class NaturalSpelling:
    """Spellings of values in sentences, as people write them.

    pattern: of these texts, each for one value; written: converts one to the format's own spelling
    """

    pattern: str
    written: Callable[[str], str]


@dataclass(frozen=True)
class TypeFormat:
    """A regular expression or a list of choices, and the conversion from text to value."""

    pattern: str | None
    choices: tuple[str, ...]
    convert: Callable[[str], Any]
    natural: NaturalSpelling | None = None


def _to_int(text: str) -> int:
    return int(Decimal(text))  # int() refuses more than 4,300 digits


_PATTERNS: dict[Any, tuple[str, Callable[[str], Any]]] = {
    int: (INTEGER, _to_int),
    float: (INTEGER + r"(\.[0-9]+)?([eE][+-]?[0-9]{1,2})?", float),
    datetime.date: (DATE, datetime.date.fromisoformat),
    datetime.time: (TIME, datetime.time.fromisoformat),
    datetime.datetime: (
        f"{DATE}T{TIME}(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])?",
        datetime.datetime.fromisoformat,
    ),
    uuid.UUID: ("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", uuid.UUID),
}


_MONTHS = tuple(
    "January February March April May June July August September October November December".split()  # noqa: SIM905
)
_YEAR = "[1-9][0-9]{3}"
_LEAP_YEAR = "([1-9][0-9](0[48]|[2468][048]|[13579][26])|([2468][048]|[13579][26])00)"
_LAST_DAYS = {28: (2,), 30: (4, 6, 9, 11), 31: (1, 3, 5, 7, 8, 10, 12)}
_DAYS = {28: "(0?[1-9]|1[0-9]|2[0-8])", 30: "(0?[1-9]|[12][0-9]|30)", 31: "(0?[1-9]|[12][0-9]|3[01])"}
_SIGN = "(-|\u2212|[Mm]inus |[Nn]egative )?[$\u20ac\u00a3]?"
_GROUPED = "(0|[1-9][0-9]*|[1-9][0-9]{0,2}(,[0-9]{3})+)"
_SCALES = {"thousand": 3, "million": 6, "billion": 9}
_SCALED = f"( ({'|'.join(_SCALES)}))"
_NOON = {"noon": "12:00:00", "midnight": "00:00:00"}
_HALF_DAY = "([AaPp]\\.?[Mm]\\.?)"
_CLOCK_OF_TWELVE = f"(0?[1-9]|1[0-2])(:[0-5][0-9])? ?{_HALF_DAY}"
_PART_OF_DAY = " in the (morning|afternoon|evening)"


def _dates(form: str, spelt: Callable[[int], str]) -> str:
    """Return a pattern of valid dates. form: has places for {month}, {day} and {year}; spelt: spells each month"""
    forms = [
        form.format(month=f"({'|'.join(map(spelt, months))})", day=_DAYS[last], year=_YEAR)
        for last, months in _LAST_DAYS.items()
    ]
    return "|".join([*forms, form.format(month=f"({spelt(2)})", day="29", year=_LEAP_YEAR)])


def _month_name_pattern(number: int) -> str:
    """Return a pattern of a month's name, its abbreviation with or without a full stop, and both in capitals."""
    name = _MONTHS[number - 1]
    both = [name, name[:3] + "\\.?"] + (["Sept\\.?"] if number == 9 else [])
    return "|".join([*both, *(each.upper() for each in both)])


def _month_number_pattern(number: int) -> str:
    """Return a pattern of a month's number."""
    return f"0?{number}" if number < 10 else str(number)


def _number(text: str) -> str:
    """Return the decimal digits of a number with sign, digit groups and a scale word."""
    digits = "".join(re.findall(r"[0-9.]|[eE][+-]?(?=[0-9])", text.replace(",", "")))
    sign = "-" if re.match("[-\u2212MmNn]", text) else ""
    scale = next((power for name, power in _SCALES.items() if text.endswith(name)), 0)
    if scale:
        digits = f"{Decimal(digits).scaleb(scale):f}"
        digits = digits.rstrip("0").rstrip(".") if "." in digits else digits
    return f"{sign}{'0' if digits.startswith('.') else ''}{digits}"


def _truth(text: str) -> str:
    return str(text.lower() in ("true", "yes"))


def _iso_date(text: str) -> str:
    """Return a date in ISO 8601, from words, digits with the day first, or ISO 8601."""
    numbers = re.findall("[0-9]+", text)
    if len(numbers) == 3:
        year, month, day = numbers if len(numbers[0]) == 4 else reversed(numbers)
        return f"{year}-{int(month):02}-{int(day):02}"
    month = next(place for place, name in enumerate(_MONTHS, 1) if name[:3].lower() in text.lower())
    day, year = numbers
    return f"{year}-{month:02}-{int(day):02}"


def _iso_time(text: str) -> str:
    """Return a time in ISO 8601, from a 12-hour clock or a 24-hour clock with or without seconds."""
    if text.lower() in _NOON:
        return _NOON[text.lower()]
    hour, *others = re.findall("[0-9]+", text)
    minute, *seconds = others or ["00"]
    clock = text.lower().replace(".", "")
    if clock.endswith(("am", "pm", "morning", "afternoon", "evening")):
        is_late = clock.endswith(("pm", "afternoon", "evening"))
        return f"{int(hour) % 12 + 12 * is_late:02}:{minute}:00"
    return text if seconds else f"{int(hour):02}:{minute}:00"


_WRITTEN_DATES = (
    DATE,
    _dates("{month} {day}(st|nd|rd|th)?,? {year}", _month_name_pattern),
    _dates("{day}(st|nd|rd|th)?( of|-)?[ -]?{month}(,|-)?[ -]?{year}", _month_name_pattern),
    _dates(r"{day}\.{month}\.{year}", _month_number_pattern),
    _dates("{year}/{month}/{day}", _month_number_pattern),
)
_NATURAL: dict[Any, NaturalSpelling] = {
    int: NaturalSpelling(
        rf"{_SIGN}({_GROUPED}|{_GROUPED}{_SCALED}|[0-9]{{1,3}}\.[0-9]{{1,3}} (million|billion))", _number
    ),
    float: NaturalSpelling(rf"{_SIGN}({_GROUPED}(\.[0-9]+)?([eE][+-]?[0-9]{{1,2}}|{_SCALED})?|\.[0-9]+)", _number),
    datetime.date: NaturalSpelling("|".join(_WRITTEN_DATES), _iso_date),
    datetime.time: NaturalSpelling(
        f"{TIME}|([01]?[0-9]|2[0-3]):[0-5][0-9]|{_CLOCK_OF_TWELVE}|(0?[1-9]|1[0-2])(:[0-5][0-9])?{_PART_OF_DAY}"
        "|[Nn]oon|[Mm]idnight",
        _iso_time,
    ),
    bool: NaturalSpelling("[Tt]rue|[Ff]alse|[Yy]es|[Nn]o|TRUE|FALSE|YES|NO", _truth),
}


def natural_of(schema: Any) -> NaturalSpelling | None:
    """Return natural spellings for a schema of only an integer, a number or a date; None for others.

    Booleans are excluded, since they are more accurate without a sentence: see docs/answers.md.
    """
    if not isinstance(schema, Mapping):
        return None
    members = cast("Mapping[str, Any]", schema).items()
    keywords = {name: value for name, value in members if name not in ("title", "description", "$schema")}
    kinds: tuple[tuple[dict[str, Any], Any, Callable[[str], str]], ...] = (
        ({"type": "integer"}, int, str),
        ({"type": "number"}, float, str),
        ({"type": "string", "format": "date"}, datetime.date, json.dumps),
        ({"type": "string", "pattern": f"^{DATE}$"}, datetime.date, json.dumps),
    )
    for wanted, kind, spelt in kinds:
        if keywords == wanted:
            return NaturalSpelling(_NATURAL[kind].pattern, partial(_spelt, _NATURAL[kind].written, spelt))
    return None


def _spelt(written: Callable[[str], str], spelt: Callable[[str], str], text: str) -> str:
    return spelt(written(text))


def format_of(kind: Any) -> TypeFormat:
    """Return the format of a Python type. Raises OptionError for unsupported types.

    int, float: decimal; bool: True or False; date, time, datetime: ISO 8601; UUID: lower case with hyphens;
    Enum: `str` of each member's value; Literal: `str` of each value.
    """
    if kind is bool:
        return replace(_choices({"True": True, "False": False}), natural=_NATURAL[bool])
    if (values := values_of_type(kind)) is not None:
        return _choices(values)
    try:
        pattern, convert = _PATTERNS[kind]
    except (KeyError, TypeError):
        raise OptionError(
            f"generate.format cannot write {kind!r}; it knows int, float, bool, date, time, datetime, UUID, "
            "Enum classes and Literal[...]; for structures use generate.json"
        ) from None
    return TypeFormat(pattern, (), convert, _NATURAL.get(kind))


def values_of_type(kind: Any) -> dict[str, Any] | None:
    """Return the members of an Enum class or the values of a Literal by text; None for other types.

    Raises OptionError if there are no values, or if two have the same text.
    """
    if isinstance(kind, EnumMeta):
        return values_by_text(kind.__name__, [(member.value, member) for member in list[Any](kind)])
    if get_origin(kind) is Literal:
        return values_by_text(str(kind), [(value, value) for value in get_args(kind)])
    return None


def values_by_text(name: str, values: Sequence[tuple[Any, Any]]) -> dict[str, Any]:
    """Return the results by the text of their values. Raises OptionError as `values_of_type` does."""
    texts: dict[str, Any] = {}
    if not values:
        raise OptionError(f"{name} has no values to choose from")
    for value, result in values:
        if texts.setdefault(str(value), result) is not result:
            raise OptionError(f"{name}: two of its values are written {str(value)!r}; they could not be told apart")
    return texts


def _choices(values: dict[str, Any]) -> TypeFormat:
    return TypeFormat(None, tuple(values), values.__getitem__)


_CLOCK = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
CLOCK_TIME = rf"{_CLOCK}:[0-5][0-9](?:\.[0-9]{{1,6}})?"
ZONE = f"(?:Z|[+-]{_CLOCK})"
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_H16 = "[0-9a-f]{1,4}"
_IPV6 = f"(?:(?:{_H16}:){{7}}{_H16}|(?:{_H16}:){{1,4}}(?::{_H16}){{1,3}}|::(?:{_H16})?)"
_HEX = "[0-9a-fA-F]"
# single addresses, and networks that end in whole bytes
_NETWORK4 = (
    rf"(?:{_IPV4}(?:/32)?|{_OCTET}(?:\.{_OCTET}){{2}}\.0/24|{_OCTET}\.{_OCTET}\.0\.0/16|{_OCTET}\.0\.0\.0/8"
    r"|0\.0\.0\.0/0)"
)
_NETWORK6 = rf"(?:{_IPV6}(?:/128)?|(?:{_H16}:){{4}}:/64|(?:{_H16}:){{3}}:/48|(?:{_H16}:){{2}}:/32|::/0)"
_INTERFACE4 = f"{_IPV4}(?:/(?:3[0-2]|[12]?[0-9]))?"
_INTERFACE6 = f"{_IPV6}(?:/(?:12[0-8]|1[01][0-9]|[1-9]?[0-9]))?"


def _base64(alphabet: str) -> str:
    """Return a pattern of base64 groups of three ASCII characters, which decode to valid text."""
    first, third = alphabet[:32], "".join(letter for code, letter in enumerate(alphabet) if not code & 2)
    second = "".join(letter for code, letter in enumerate(alphabet) if not code & 8)
    groups = (letters.replace("-", r"\-") for letters in (first, second, third, alphabet))
    return "(?:" + "".join(f"[{letters}]" for letters in groups) + ")*"


_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_SCALAR = r"""(?:true|false|null|-?(?:0|[1-9][0-9]{0,15})(?:\.[0-9]{1,9})?|"[^"\\\u0000-\u001f]*")"""
_MEMBER = rf'"[^"\\\u0000-\u001f]*": ?{_SCALAR}'

_REPEATS = r"(?:[*+?]\??|\{[0-9]{1,2}\})?"
_ESCAPED = r"\\[dDwWsSfnrtv^$.*+?()\[\]{}|\\]"
_CLASS = rf"\[\^?(?:[A-Za-z0-9_ ]|[a-f]-[g-z]|[A-F]-[G-Z]|[0-4]-[5-9]|{_ESCAPED})+\]"
_PIECE = rf"(?:(?:[^\\^$.*+?()\[\]{{}}|]|\.|{_ESCAPED}|{_CLASS}){_REPEATS}|\\[bB]|[\^$])"
_GROUP = rf"\((?:\?:)?{_PIECE}*(?:\|{_PIECE}*)*\){_REPEATS}"
_REGEX = rf"(?:{_PIECE}|{_GROUP}|\|)*"

OF_FORMATS = {
    name: f"^{pattern}$"
    for name, pattern in {
        **{
            f"uuid{version}": f"{_HEX}{{8}}-{_HEX}{{4}}-{version}{_HEX}{{3}}-[89abAB]{_HEX}{{3}}-{_HEX}{{12}}"
            for version in range(1, 9)
        },
        "ipv4network": _NETWORK4,
        "ipv6network": _NETWORK6,
        "ipvanynetwork": f"(?:{_NETWORK4}|{_NETWORK6})",
        "ipv4interface": _INTERFACE4,
        "ipv6interface": _INTERFACE6,
        "ipvanyinterface": f"(?:{_INTERFACE4}|{_INTERFACE6})",
        "ipvanyaddress": f"(?:{_IPV4}|{_IPV6})",
        "base64": _base64(_LETTERS + "+/"),
        "base64url": _base64(_LETTERS + "-_"),
        "regex": _REGEX,
        "fraction": "-?[0-9]{1,15}(?:/[1-9][0-9]{0,14})?",
    }.items()
}
"""Patterns by pydantic's format names. Of many accepted spellings they contain the common ones."""

FLAT_JSON = rf"^(?:{_SCALAR}|\[(?:{_SCALAR}(?:, ?{_SCALAR})*)?\]|\{{(?:{_MEMBER}(?:, ?{_MEMBER})*)?\}})$"
"""JSON without nested containers."""

COMPLEX = r"^-?[0-9]{1,15}(?:\.[0-9]{1,15})?(?:[+-][0-9]{1,15}(?:\.[0-9]{1,15})?j)?$"
BYTE_SIZE = r"^[0-9]{1,9}(?:\.[0-9]{1,3})? ?(?:[KMGTP]?B|[KMGTP]iB)?$"
DURATION = (
    "^P(?:[0-9]{1,6}D(?:T(?:[0-9]{1,6}H)?(?:[0-9]{1,6}M)?[0-9]{1,6}S)?|[0-9]{1,5}W"
    r"|T(?:[0-9]{1,6}H(?:[0-9]{1,6}M)?(?:[0-9]{1,6}S)?|[0-9]{1,6}M(?:[0-9]{1,6}S)?|[0-9]{1,6}(?:\.[0-9]{1,6})?S))$"
)
KEYS = {
    "integer": "^-?(?:0|[1-9][0-9]{0,17})$",
    "number": r"^-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,6})?$",
    "boolean": "^(?:true|false)$",
}
"""Patterns of numbers and booleans as member names."""


def date_pattern() -> str:
    """Return the pattern of dates that Python supports."""
    return f"^{DATE}$"


def moment_pattern(zone: bool | None) -> str:
    """Return the pattern of dates with times. zone: True if a time zone is required, False if forbidden, None if
    optional"""
    return f"^{DATE}[T ]{_zoned(zone)}$"


def time_pattern(zone: bool | None) -> str:
    """Return the pattern of times of a day. zone: as for `moment_pattern`"""
    return f"^{_zoned(zone)}$"


def _zoned(zone: bool | None) -> str:
    return CLOCK_TIME if zone is False else CLOCK_TIME + (ZONE if zone else f"{ZONE}?")


def compared(bound: str, above: bool) -> str:
    """Return a pattern of prefixes greater or less than `bound`, digit by digit. Equal ones do not match."""
    return f"^(?:{'|'.join(_beginnings(bound, above))})"


def _beginnings(bound: str, above: bool) -> Iterator[str]:
    for at, digit in enumerate(bound):
        if digit.isdigit() and digit != ("9" if above else "0"):
            digits = f"[{int(digit) + 1}-9]" if above else f"[0-{int(digit) - 1}]"
            yield bound[:at].replace("T", "[T ]") + digits


def written(moment: datetime.date | datetime.time) -> str:
    """Return a bound as the first characters of its type's texts, to the second."""
    if isinstance(moment, datetime.datetime):
        if moment.tzinfo is not None:
            moment = moment.astimezone(datetime.UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%S").zfill(19)
    return moment.strftime("%H:%M:%S") if isinstance(moment, datetime.time) else moment.isoformat()


_LABEL = "[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*"
_HOST = rf"(?:(?:{_LABEL}\.)*[A-Za-z][A-Za-z0-9]*(?:-[A-Za-z0-9]+)*|{_IPV4})"
_PORT = "(?::(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}))?"
_USER = "(?:[A-Za-z0-9._~-]+(?::[A-Za-z0-9._~-]+)?@)?"
_CHAR = f"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%{_HEX}{{2}})"
_REST = rf"(?:/{_CHAR}*)*(?:\?(?:{_CHAR}|[/?])*)?(?:#(?:{_CHAR}|[/?])*)?"


def url_pattern(schemes: list[str] | None, several: bool = False) -> str:
    """Return the pattern of URLs with one of the schemes, or with any. several: allows several hosts"""
    if schemes == ["file"]:
        return f"^file://(?:/{_CHAR}+)+$"
    scheme = (
        "(?:" + "|".join(one.replace("+", r"\+").replace(".", r"\.") for one in schemes or ["[a-z][a-z0-9]*"]) + ")"
    )
    hosts = f"{_HOST}{_PORT}(?:,{_HOST}{_PORT})*" if several else f"{_HOST}{_PORT}"
    return f"^{scheme}://{_USER}{hosts}{_REST}$"
