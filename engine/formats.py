"""Python types as constraints: the texts that stand for their values, and the way back."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import EnumMeta
from typing import Any, Literal, get_args, get_origin

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
class Format:
    """Either a regular expression or a list of choices, and the function from text to value."""

    pattern: str | None
    choices: tuple[str, ...]
    convert: Callable[[str], Any]


def _whole(text: str) -> int:
    return int(Decimal(text))  # because int() refuses texts of more than 4,300 digits


_PATTERNS: dict[Any, tuple[str, Callable[[str], Any]]] = {
    int: (INTEGER, _whole),
    float: (INTEGER + r"(\.[0-9]+)?([eE][+-]?[0-9]{1,2})?", float),
    datetime.date: (DATE, datetime.date.fromisoformat),
    datetime.time: (TIME, datetime.time.fromisoformat),
    datetime.datetime: (
        f"{DATE}T{TIME}(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])?",
        datetime.datetime.fromisoformat,
    ),
    uuid.UUID: ("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", uuid.UUID),
}


def format_of(kind: Any) -> Format:
    """How values of a Python type are written. Raises OptionError for a type that has no format here.

    int, float: decimal; bool: True or False; date, time, datetime: ISO 8601; UUID: lower case with hyphens;
    Enum: `str` of each member's value; Literal: `str` of each value.
    """
    if kind is bool:
        return _choices({"True": True, "False": False})
    if (values := values_of_type(kind)) is not None:
        return _choices(values)
    try:
        pattern, convert = _PATTERNS[kind]
    except (KeyError, TypeError):
        raise OptionError(
            f"generate.format cannot write {kind!r}; it knows int, float, bool, date, time, datetime, UUID, "
            "Enum classes and Literal[...]; for structures use generate.json"
        ) from None
    return Format(pattern, (), convert)


def values_of_type(kind: Any) -> dict[str, Any] | None:
    """The members of an Enum class, or the values of a Literal, by their texts; None for anything else.

    Raises OptionError for one without values, or with two that are written alike.
    """
    if isinstance(kind, EnumMeta):
        return _texts(kind.__name__, [(member.value, member) for member in list[Any](kind)])
    if get_origin(kind) is Literal:
        return _texts(str(kind), [(value, value) for value in get_args(kind)])
    return None


def _texts(name: str, values: Sequence[tuple[Any, Any]]) -> dict[str, Any]:
    """The results by the text of their values."""
    texts: dict[str, Any] = {}
    if not values:
        raise OptionError(f"{name} has no values to choose from")
    for value, result in values:
        if texts.setdefault(str(value), result) is not result:
            raise OptionError(f"{name}: two of its values are written {str(value)!r}; they could not be told apart")
    return texts


def _choices(values: dict[str, Any]) -> Format:
    return Format(None, tuple(values), values.__getitem__)
