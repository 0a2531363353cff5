"""Common definitions of the witness builders.

Some numbers stand for a whole set; the measured text may have any other number of the set.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final

from ..algebra import numbers
from ..algebra.cases import Number
from ..algebra.formula import Formula


class _NoInstance:
    """The absence of a witness."""

    def __bool__(self) -> bool:
        raise TypeError("compare with NO_INSTANCE by identity: witnesses may be false themselves")


NO_INSTANCE: Final = _NoInstance()
Ask = Callable[[Formula], Any]
"""Returns the witness of a formula, or NO_INSTANCE if none is known (yet)."""
Several = Callable[[Formula, int, Ask], list[Any]]
"""Returns up to so many different instances of a formula."""


class _Integer(int):
    case: Number


class _Fraction(Fraction):
    case: Number


class _Float(float):
    case: Number


StandInNumber = _Integer | _Fraction | _Float
"""A number that stands for the set `case`."""


def of_number(case: Number) -> Any:
    """Return a number of the set as a JSON value: int, float where the notation asks for it, else a Fraction.

    A number of several digits may be longer than others of its set, so it carries the set.
    """
    value = numbers.smallest(case)
    is_integer = value == value // 1
    if is_integer and 0 <= value <= 9 and case.notation != "real" and case.values is None:
        return int(value)
    kind = _Float if is_integer and case.notation == "real" else _Integer if is_integer else _Fraction
    found = kind(value)
    found.case = case
    return found
