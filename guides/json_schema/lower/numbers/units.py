"""Sets of numbers from 0 up in units of the last place that matters: whole numbers, in intervals of which to look."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import lcm
from typing import NamedTuple

from ....kept import kept
from ....limits import spend
from ...algebra.cases import Number, Rational


class Units(NamedTuple):
    """The members of a `Number` from 0 up, in units of 10^-places.

    low, high: the least and the greatest one may be; step: all are multiples of it, refused: of none of these
    values: only these; excluded: none of these; groups: of each, a member is in at least one set
    """

    low: int
    high: int | None
    step: int
    refused: tuple[int, ...]
    excluded: frozenset[int]
    values: tuple[int, ...] | None
    notation: str | None
    groups: tuple[tuple[Units, ...], ...]


def places_of(case: Number) -> int:
    """The number of digits behind the point that tell whether a number is in a set: one more than those of its words.

    The digit more tells a number from those beside it, where nothing but bounds matters.
    """
    return 1 + max((places for one in parts(case) for places in _places(one)), default=0)


def parts(case: Number) -> Iterator[Number]:
    """A set and all those in its groups."""
    yield case
    for group in case.either:
        for one in group:
            yield from parts(one)


def _places(case: Number) -> Iterator[int]:
    values = (case.minimum, case.maximum, *case.excluded, *(case.values or ()))
    yield from (decimal_places(value) or 0 for value in values if value is not None)
    yield from (decimal_step(step)[1] for step in (case.multiple_of, *case.not_multiple_of) if step is not None)


def in_units(case: Number, places: int) -> Units:
    """The members of a set from 0 up, in units of 10^-places."""
    unit = 10**places
    low, high = case.minimum, case.maximum
    step = 1 if case.multiple_of is None else _step(case.multiple_of, places)
    return Units(
        0 if low is None else int(low * unit) + case.exclusive_minimum,
        None if high is None else int(high * unit) - case.exclusive_maximum,
        lcm(step, unit) if case.notation == "integer" else step,
        tuple(_step(factor, places) for factor in case.not_multiple_of),
        frozenset(_whole(case.excluded, unit)),
        None if case.values is None else tuple(sorted(_whole(case.values, unit))),
        case.notation,
        tuple(tuple(in_units(one, places) for one in group) for group in case.either),
    )


def _step(step: Rational, places: int) -> int:
    whole, own = decimal_step(step)
    return whole * 10 ** (places - own)


def _whole(values: Iterable[Rational], factor: int) -> Iterator[int]:
    """The values that are decimal numbers, in units."""
    return (int(value * factor) for value in values if decimal_places(value) is not None)


def bounds_of(one: Units) -> Iterator[int]:
    """All numbers that members are compared with."""
    yield one.low
    if one.high is not None:
        yield one.high
    yield from one.excluded
    yield from one.values or ()
    for group in one.groups:
        for other in group:
            yield from bounds_of(other)


def factors_of(one: Units) -> Iterator[int]:
    """All numbers of which members are multiples, or must not be."""
    yield one.step
    yield from one.refused
    for group in one.groups:
        for other in group:
            yield from factors_of(other)


def greatest(one: Units) -> int | None:
    """Up to where there may be members; None without end."""
    highs: list[int | None] = [one.high] if one.values is None else [max(one.values, default=-1)]
    for group in one.groups:
        inner = [greatest(other) for other in group]
        told = [high for high in inner if high is not None]
        highs.append(max(told) if len(told) == len(inner) else None)
    return min((high for high in highs if high is not None), default=None)


def member_within(one: Units, low: int, high: int, step: int, *, real: bool) -> int | None:
    """A member from `low` to `high` that is a multiple of `step`; None if there is none.

    real: whether it is written with a point
    """
    return _member(one, (), low, high, step, (), frozenset(), "real" if real else "integer")


def _member(
    one: Units,
    groups: tuple[tuple[Units, ...], ...],
    low: int,
    high: int,
    step: int,
    refused: tuple[int, ...],
    excluded: frozenset[int],
    notation: str,
) -> int | None:
    """As `member_within`, of a set and one of each of some groups, chosen one after the other."""
    if one.notation is not None and one.notation != notation:
        return None
    low = max(low, one.low)
    if one.high is not None:
        high = min(high, one.high)
    if one.step != 1:
        step = lcm(step, one.step)
    if -(-low // step) * step > high:
        return None
    if one.refused:
        refused += one.refused
    if any(step % factor == 0 for factor in refused):
        return None
    if one.excluded:
        excluded |= one.excluded
    groups = one.groups + groups
    if one.values is not None:
        values = (value for value in one.values if low <= value <= high and value % step == 0)
        left = (value for value in values if value not in excluded and all(value % factor for factor in refused))
        return next((value for value in left if all(_is_in_group(group, value, notation) for group in groups)), None)
    if groups:
        spend(50)
        found = (_member(other, groups[1:], low, high, step, refused, excluded, notation) for other in groups[0])
        return next((value for value in found if value is not None), None)
    # No factor divides the step, so there is a member after a few, whatever they are.
    for value in range(-(-low // step) * step, high + 1, step):
        spend(20)
        if value not in excluded and all(value % factor for factor in refused):
            return value
    return None


def _is_in_group(group: tuple[Units, ...], value: int, notation: str) -> bool:
    return any(_member(one, (), value, value, 1, (), frozenset(), notation) is not None for one in group)


@kept(1024, 1 << 20)
def decimal_step(step: Rational) -> tuple[int, int]:
    """P and m of a step P / 10^m, as every one is that JSON can write."""
    places = decimal_places(step)
    assert places is not None, "steps are decimal numbers"
    return int(step * 10**places), places


@kept(4096, 1 << 20)
def decimal_places(value: Rational) -> int | None:
    """The digits after the point that a number needs; None if no count of them is enough."""
    twos, rest = _power(value.denominator, 2)
    fives, rest = _power(rest, 5)
    return max(twos, fives) if rest == 1 else None


def _power(number: int, prime: int) -> tuple[int, int]:
    """The exponent of a prime in a number, and the rest of the number."""
    count = 0
    while number % prime == 0:
        number //= prime
        count += 1
    return count, number
