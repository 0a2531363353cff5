"""The texts of single numbers: constants of a schema, and members of small sets.

Sets of numbers from 0 up are intervals in units of the last place that matters (`Units`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from math import lcm
from typing import NamedTuple

from ....cached import cached
from ....limits import spend
from ....syntax import EMPTY, NOTHING, Alternation, Chars, Literal, Node, Repeat, Sequence
from ...algebra.cases import Number, Rational
from ...read.dialects import is_real


class Units(NamedTuple):
    """The members of a `Number` from 0 up, in units of 10^-places.

    low, high: bounds, inclusive; step: members are its multiples; refused: members are no multiples of these
    values: the only candidates, if not None; excluded: never members; groups: a member is in at least one set of each
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
    """Return the number of decimal places that decide membership: one more than the set's own numbers have.

    The additional digit separates a number from its neighbours where only bounds matter.
    """
    steps = (step for one in parts(case) for step in (one.multiple_of, *one.not_multiple_of) if step is not None)
    places = (*(decimal_places(value) or 0 for value in compared(case)), *(decimal_step(step)[1] for step in steps))
    return 1 + max(places, default=0)


def parts(case: Number) -> Iterator[Number]:
    """Yield a set and all those in its groups."""
    yield case
    for group in case.either:
        for one in group:
            yield from parts(one)


def compared(case: Number) -> Iterator[Rational]:
    """Yield the decimal numbers with which members are compared."""
    for one in parts(case):
        values: Iterable[Rational | None] = (one.minimum, one.maximum, *one.excluded, *(one.values or ()))
        yield from (value for value in values if value is not None and decimal_places(value) is not None)


def in_units(case: Number, places: int) -> Units:
    """Return the members of a set from 0 up, in units of 10^-places."""
    unit = 10**places
    low, high = case.minimum, case.maximum
    step = 1 if case.multiple_of is None else _step(case.multiple_of, places)
    return Units(
        0 if low is None else int(low * unit) + case.exclusive_minimum,
        None if high is None else int(high * unit) - case.exclusive_maximum,
        lcm(step, unit) if case.notation == "integer" else step,
        tuple(_step(factor, places) for factor in case.not_multiple_of),
        frozenset(_in_integers(case.excluded, unit)),
        None if case.values is None else tuple(sorted(_in_integers(case.values, unit))),
        case.notation,
        tuple(tuple(in_units(one, places) for one in group) for group in case.either),
    )


def _step(step: Rational, places: int) -> int:
    mantissa, own_places = decimal_step(step)
    return mantissa * 10 ** (places - own_places)


def _in_integers(values: Iterable[Rational], factor: int) -> Iterator[int]:
    """Yield the decimal numbers among the values, in units."""
    return (int(value * factor) for value in values if decimal_places(value) is not None)


def factors(case: Number, places: int) -> set[int]:
    """Return all factors and refused factors, in units of 10^-places."""
    found = (in_units(one, places) for one in parts(case))
    return {factor for one in found for factor in (one.step, *one.refused)}


def greatest(one: Units) -> int | None:
    """Return an upper bound of the members; None if there is none."""
    highs: list[int | None] = [one.high] if one.values is None else [max(one.values, default=-1)]
    for group in one.groups:
        inner = [greatest(other) for other in group]
        bounded = [high for high in inner if high is not None]
        highs.append(max(bounded) if len(bounded) == len(inner) else None)
    return min((high for high in highs if high is not None), default=None)


def member_within(one: Units, low: int, high: int, step: int, *, real: bool) -> int | None:
    """Return a member from `low` to `high` that is a multiple of `step`; None if there is none.

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
    """Return `member_within` of a set, and of one set of each group, chosen recursively."""
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
    if groups and one.values is None:
        spend(50)
        found = (_member(other, groups[1:], low, high, step, refused, excluded, notation) for other in groups[0])
        return next((value for value in found if value is not None), None)
    # No factor divides the step, so one of the next few multiples is a member.
    candidates = range(-(-low // step) * step, high + 1, step) if one.values is None else one.values
    for value in candidates:
        spend(20)
        if value < low or value > high or value % step or value in excluded:
            continue
        if all(map(value.__mod__, refused)) and all(_is_in_group(group, value, notation) for group in groups):
            return value
    return None


def _is_in_group(group: tuple[Units, ...], value: int, notation: str) -> bool:
    return any(_member(one, (), value, value, 1, (), frozenset(), notation) is not None for one in group)


@cached(1024, 1 << 20)
def decimal_step(step: Rational) -> tuple[int, int]:
    """Return P and m of a step P / 10^m."""
    places = decimal_places(step)
    assert places is not None, "steps are decimal numbers"
    return int(step * 10**places), places


@cached(4096, 1 << 20)
def decimal_places(value: Rational) -> int | None:
    """Return the number of decimal places of a number; None if it is no decimal number."""
    twos, rest = _power(value.denominator, 2)
    fives, rest = _power(rest, 5)
    return max(twos, fives) if rest == 1 else None


def _power(number: int, prime: int) -> tuple[int, int]:
    """Return the exponent of a prime in a number, and the cofactor."""
    count = 0
    while number % prime == 0:
        number //= prime
        count += 1
    return count, number


MAX_POINTS = 32
"""Maximum number of positions for the point of a constant."""
MIN_PLAIN, MAX_PLAIN = -4, 15
"""json.dumps writes no exponent if it is in this range, inclusive."""

Places = Callable[[int, int], Iterable[int]]
"""Positions of a number's point, given the number of significant digits and its position without exponent."""

MINUS = Literal(b"-")
E = Chars(((0x45, 0x45), (0x65, 0x65)))
ZERO = Literal(b"0")
ZEROS = Repeat(ZERO, 0, None)
ZERO_FRACTION = Sequence((Literal(b"."), Repeat(ZERO, 1, None)))
OPTIONAL_PLUS = Repeat(Literal(b"+"), 0, 1)


def either(*nodes: Node) -> Node:
    """Return the choice of some alternatives."""
    if not nodes:
        return NOTHING
    return nodes[0] if len(nodes) == 1 else Alternation(nodes)


def spelt_constants(values: Iterable[Rational], notation: str | None, places: Places) -> list[Node]:
    """Return the texts of nonzero numbers as alternatives, grouped by what follows the mantissa."""
    texts: dict[tuple[int, bool], list[Node]] = {}
    for value in sorted(values):
        for mantissa, exponent in spellings(value, places):
            texts.setdefault((exponent, "." in mantissa), []).append(Literal(mantissa.encode()))
    tails = ((tail(*kind, notation), nodes) for kind, nodes in texts.items())
    return [Sequence((either(*nodes), after)) for after, nodes in tails if after is not NOTHING]


def spellings(value: Rational, places: Places) -> Iterator[tuple[str, int]]:
    """Yield the mantissas of a nonzero decimal number, each with its exponent.

    places: positions of the point
    """
    behind = decimal_places(value)
    if behind is None:
        return
    text = str(abs(int(value * 10**behind)))
    digits, sign = text.rstrip("0"), "-" if value < 0 else ""
    spend(50 * len(text))
    for place in places(len(digits), len(text) - behind):
        integer, fraction = digits[: max(place, 0)].ljust(place, "0") or "0", "0" * -place + digits[max(place, 0) :]
        yield f"{sign}{integer}{fraction and '.'}{fraction}", len(text) - behind - place


def places_of_points(count: int, plain: int, exponents: Iterable[int] = ()) -> Iterable[int]:
    """Return the numbers of digits before the point for a constant with `count` significant digits.

    plain: position of the point without an exponent; exponents: exponents that the schema writes
    """
    first, last = min(plain, 0), max(plain, count)
    usual = range(first, last + 1) if last - first < MAX_POINTS else (1, count, plain)
    return {*usual, *(plain - exponent for exponent in exponents)}


def places_of_serialisers(count: int, plain: int) -> Iterable[int]:
    """Return positions as `places_of_points`, for a number that the schema does not write."""
    return (plain,) if MIN_PLAIN < plain <= MAX_PLAIN + 1 else {1, plain}


def written_exponents(texts: Iterable[str]) -> frozenset[int]:
    """Return the exponents with which numbers are written."""
    return frozenset(int(exponent) for _, _, exponent in (text.lower().partition("e") for text in texts) if exponent)


@cached(1024, 1 << 20)
def tail(exponent: int, has_point: bool, notation: str | None) -> Node:
    """Return what follows a mantissa: zeros of its fraction, and the exponent; NOTHING if the notation forbids it."""
    if notation == "integer":
        return NOTHING if has_point or exponent else EMPTY
    sign = either(OPTIONAL_PLUS, MINUS) if not exponent else MINUS if exponent < 0 else OPTIONAL_PLUS
    power = Sequence((E, sign, ZEROS, Literal(b"%d" % abs(exponent))))
    if has_point:
        return Sequence((ZEROS, power if exponent else Repeat(power, 0, 1)))
    if exponent:
        return Sequence((Repeat(ZERO_FRACTION, 0, 1), power))
    if notation == "real":
        return either(Sequence((ZERO_FRACTION, Repeat(power, 0, 1))), power)
    return Sequence((Repeat(ZERO_FRACTION, 0, 1), Repeat(power, 0, 1)))


def plain_constants(case: Number) -> list[str]:
    """Return constants as the schema writes them; else, or in another notation, as digits and as a float."""
    assert case.values is not None
    texts = {text for text in case.texts if case.notation in (None, "real" if is_real(text) else "integer")}
    for value in case.values - set(map(Fraction, texts)):
        if decimal_places(value) is not None:
            if value.denominator == 1 and case.notation != "real":
                texts.add(number_text(value, False))
            if case.notation != "integer":
                texts.add(number_text(value, True))
    return sorted(texts)


def number_text(value: Rational, real: bool) -> str:
    """Write a decimal number like json.dumps: an integer as digits, or as a float if `real`.

    A number that is no float keeps all its digits.
    """
    if value.denominator == 1 and not real:
        return str(int(value))
    places = decimal_places(value)
    assert places is not None, "it is a decimal number"
    digits = str(abs(int(value * 10**places)))
    exponent = len(digits) - places - 1
    digits = digits.rstrip("0") or "0"
    sign = "-" if value < 0 else ""
    if value == 0 or MIN_PLAIN <= exponent <= MAX_PLAIN:
        if exponent < 0:
            digits, exponent = "0" * -exponent + digits, 0
        digits = digits.ljust(exponent + 2, "0")
        return f"{sign}{digits[: exponent + 1]}.{digits[exponent + 1 :]}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{exponent:+03d}"
