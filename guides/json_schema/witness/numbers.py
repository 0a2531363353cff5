"""Numbers that stand for a whole set of numbers: whoever measures a text may take any other of the set."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Protocol, runtime_checkable

from ..algebra import numbers
from ..algebra.cases import Number


@runtime_checkable
class Standing(Protocol):
    """A number that is one of those in `case`."""

    case: Number


class _Integer(int):
    case: Number


class _Fraction(Fraction):
    case: Number


class _Float(float):
    case: Number


def of_number(case: Number) -> Any:
    """A number of the set as a JSON value: int, float where the notation asks for it, else a Fraction.

    Where it has several digits there may be others with fewer: it tells which set it is of.
    """
    value = numbers.smallest(case)
    whole = value == value // 1
    if whole and 0 <= value <= 9 and case.notation != "real" and case.values is None:
        return int(value)
    kind = _Float if whole and case.notation == "real" else _Integer if whole else _Fraction
    found = kind(value)
    found.case = case
    return found
