"""Sets of numbers: intersection, complement, emptiness and membership of `Number`, in exact arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from itertools import count, islice
from math import gcd, lcm
from typing import Any

from ...limits import spend
from ..read.dialects import exact
from .cases import ANY_NUMBER, NO_NUMBERS, GroupKind, Number, Rational

MAX_MULTIPLIED = 8
"""Maximum number of number cases; each takes an automaton of its own."""
FEW_REMAINDERS = 2000
"""Maximum number of remainders of alternatives with automata of their own."""

_MAX_OF_PLACES = 256
"""Number of candidates with some decimal places before more places are tried."""

Group = tuple[Number, ...]


def least_common_multiple(a: Rational, b: Rational) -> Rational:
    """Return the smallest positive common multiple."""
    if isinstance(a, int) and isinstance(b, int):
        return lcm(a, b)
    common = Fraction(lcm(a.numerator, b.numerator), gcd(a.denominator, b.denominator))
    return common.numerator if common.denominator == 1 else common


def contains(case: Number, value: Rational, notation: str | None = None) -> bool:
    """Test whether a number is in the set; notation: how it is written, if known."""
    if case.notation is not None and notation is not None and case.notation != notation:
        return False
    if case.values is not None:
        return value in case.values
    if case.minimum is not None and (value < case.minimum or (case.exclusive_minimum and value == case.minimum)):
        return False
    if case.maximum is not None and (value > case.maximum or (case.exclusive_maximum and value == case.maximum)):
        return False
    if case.multiple_of is not None and value % case.multiple_of:
        return False
    if value in case.excluded or not all(value % factor for factor in case.not_multiple_of):
        return False
    return all(any(contains(one, value, notation) for one in group) for group in case.either)


def has_many_remainders(case: Number) -> bool:
    """Test whether the factors of a set have so many remainders that its alternatives are read as one set."""
    common: Rational = 1
    for factor in (case.multiple_of, *case.not_multiple_of):
        if factor is not None and factor != 1:
            common = least_common_multiple(common, factor)
    remainders = common.numerator
    while remainders % 10 == 0:
        remainders //= 10
    return bool(case.either) or remainders > FEW_REMAINDERS


def together(cases: Group) -> Group:
    """Return the cases, those with many remainders merged: separate automata would multiply the states."""
    many = tuple(case for case in cases if case.notation is None and has_many_remainders(case))
    if len(many) < 2:
        return cases
    are_integers = all(case.multiple_of is not None and case.multiple_of % 1 == 0 for case in many)
    others = (case for case in cases if case not in many)
    return (*others, Number(multiple_of=1 if are_integers else None, either=(many,)))


def accepts(case: Number, literal: Any) -> bool:
    """Test whether a JSON number, as Python reads it, is in the set."""
    return contains(case, exact(literal), "integer" if isinstance(literal, int) else "real")


def tidy(case: Number) -> Number | None:
    """Return the same set with attained bounds, as constants if few are left; None if it is empty."""
    if case.values is not None:
        return case if case.values else None
    step = case.multiple_of
    if step is not None:
        case = _on_multiples(case, step)
    low, high = case.minimum, case.maximum
    if low is not None and high is not None:
        if low > high or (low == high and (case.exclusive_minimum or case.exclusive_maximum)):
            return None
        if low == high and case.notation is None:
            return Number(values=frozenset((low,))) if contains(case, low) else None
        if low == high and not contains(case, low):
            return None
    if step is None or not (case.not_multiple_of or case.excluded):
        return case
    if any(step % factor == 0 for factor in case.not_multiple_of):
        return None
    if low is None or high is None:
        return case
    # Each period has a member, unless that is excluded; of few periods, the search looks at each multiple.
    period = reduce(least_common_multiple, case.not_multiple_of, step)
    is_wide = (high - low) // period > len(case.excluded)
    return case if is_wide or any(contains(case, value) for value in _candidates(case)) else None


def _on_multiples(case: Number, step: Rational) -> Number:
    low, high = case.minimum, case.maximum
    if low is not None and (low % step or case.exclusive_minimum):
        low = (low // step + 1) * step
    if high is not None and (high % step or case.exclusive_maximum):
        high = (high // step - (high % step == 0)) * step
    if low is case.minimum and high is case.maximum:
        return case
    return replace(case, minimum=low, maximum=high, exclusive_minimum=False, exclusive_maximum=False)


def smallest(case: Number) -> Rational:
    """Return a member with a short text. The set must not be empty."""
    if case.values is not None:
        return min(case.values, key=lambda value: (len(str(value)), value))
    for value in (0, 1):
        if contains(case, value):
            return value
    if case.either:
        return smallest(next(leaves(case)))
    return next(value for value in _candidates(case) if contains(case, value))


def some(case: Number, wanted: int) -> list[Rational]:
    """Return up to `wanted` different members; fewer only if there are no more. The set must not be empty."""
    if case.values is not None:
        return sorted(case.values)[:wanted]
    if case.either:
        found: dict[Rational, None] = {}
        for leaf in leaves(case):
            found.update(dict.fromkeys(some(leaf, wanted)))
            if len(found) >= wanted:
                break
        return list(found)[:wanted]
    return list(islice((value for value in _candidates(case) if contains(case, value)), wanted))


def _candidates(case: Number) -> Iterator[Rational]:
    """Yield every multiple of the step within the bounds; without a step, numbers of ever more decimal places."""
    low, high, step = case.minimum, case.maximum, case.multiple_of
    if low is not None and low == high:
        yield low
        return
    for places in count() if step is None else (0,):
        grid = Fraction(1, 10**places) if step is None else step
        first = None if low is None else -(-low // grid)
        last = None if high is None else high // grid
        begin = first if first is not None else last if last is not None else 0
        limits = [_MAX_OF_PLACES] if step is None else []
        limits += [int(last - first) + 1] if first is not None and last is not None else []
        for index in range(min(limits)) if limits else count():
            for at in dict.fromkeys((begin + index, begin - index)):
                is_new = places == 0 or at % 10 != 0
                if is_new and (first is None or at >= first) and (last is None or at <= last):
                    spend(200)
                    yield at * grid


def intersect(a: Number, b: Number) -> Number | None:
    """Return the intersection of two sets; None if it is empty."""
    if a is ANY_NUMBER:
        return b
    if b is ANY_NUMBER:
        return a
    bare = _intersect_bounds(a, b)
    if bare is None or bare.values is not None or not (a.either or b.either):
        return bare
    found = _KIND.within(bare, (*a.either, *b.either))
    return None if found is None or (found.either and next(leaves(found), None) is None) else found


def leaves(case: Number) -> Iterator[Number]:
    """Yield the nonempty sets without groups whose union is the set: one for each choice of alternatives."""
    if not case.either:
        yield case
        return
    (group, *others), bare = case.either, replace(case, either=())
    for one in group:
        spend(300)
        narrowed = _intersect_bounds(bare, one)
        if narrowed is not None and narrowed.values is None:
            yield from leaves(replace(narrowed, either=(*one.either, *others)))
        elif narrowed is not None:
            leaf = _intersect_bounds(narrowed, Number(either=(*one.either, *others)))
            if leaf is not None:
                yield leaf


def product(a: Group, b: Group, multiply: Callable[[Group, Group, int | None], Group]) -> Group:
    """Return the intersection of two unions; many alternatives without a notation are held in groups.

    multiply: returns all pairs of alternatives; raises ManyError for more than its limit
    """
    if any(case.notation is not None for case in (*a, *b)):
        return multiply(a, b, None)
    return _KIND.product(a, b, multiply, _grouped, MAX_MULTIPLIED)


def _grouped(a: Group, b: Group) -> list[Number]:
    """Return the intersection of two unions as few sets: constants apart, other alternatives of each as a group."""
    constants = (
        intersect(few, other)
        for few, others in (*((case, b) for case in a), *((case, a) for case in b))
        if few.values is not None
        for other in others
    )
    found = dict.fromkeys(case for case in constants if case is not None)
    others = ([case for case in side if case.values is None] for side in (a, b))
    return [*found, *_KIND.both_groups(*others)]


def covers(wide: Number, narrow: Number) -> bool:
    """Test whether a syntactic comparison finds `narrow` to lie within `wide`."""
    if wide == narrow:
        return True
    if wide.notation not in (None, narrow.notation):
        return False
    if narrow.values is not None:
        return all(contains(wide, value, narrow.notation) for value in narrow.values)
    if wide.values is not None or not wide.excluded <= narrow.excluded:
        return False
    if wide.multiple_of is not None and (narrow.multiple_of is None or narrow.multiple_of % wide.multiple_of):
        return False
    if not (wide.not_multiple_of <= narrow.not_multiple_of and all(group in narrow.either for group in wide.either)):
        return False
    low = _tighter(wide.minimum, wide.exclusive_minimum, narrow.minimum, narrow.exclusive_minimum, 1)
    high = _tighter(wide.maximum, wide.exclusive_maximum, narrow.maximum, narrow.exclusive_maximum, -1)
    return low == (narrow.minimum, narrow.exclusive_minimum) and high == (narrow.maximum, narrow.exclusive_maximum)


def _intersect_bounds(a: Number, b: Number) -> Number | None:
    """Return the intersection of two sets, ignoring groups unless one has constants."""
    if a.notation and b.notation and a.notation != b.notation:
        return None
    if a.values is not None or b.values is not None:
        return _listed(a, b) if a.values is not None else _listed(b, a)
    minimum, exclusive_minimum = _tighter(a.minimum, a.exclusive_minimum, b.minimum, b.exclusive_minimum, 1)
    maximum, exclusive_maximum = _tighter(a.maximum, a.exclusive_maximum, b.maximum, b.exclusive_maximum, -1)
    if a.multiple_of is None or b.multiple_of is None:
        multiple_of = a.multiple_of if b.multiple_of is None else b.multiple_of
    else:
        multiple_of = least_common_multiple(a.multiple_of, b.multiple_of)
    return tidy(
        Number(
            minimum,
            maximum,
            exclusive_minimum,
            exclusive_maximum,
            multiple_of,
            a.not_multiple_of | b.not_multiple_of,
            a.notation or b.notation,
            None,
            a.excluded | b.excluded,
        )
    )


def _listed(few: Number, other: Number) -> Number | None:
    """Return the intersection of constants with other numbers of a compatible notation."""
    assert few.values is not None
    values = frozenset(value for value in few.values if contains(other, value))
    notation = few.notation or other.notation
    if notation == "integer":
        values = frozenset(value for value in values if value % 1 == 0)
    texts = few.texts or other.texts
    if len(values) < len(texts):
        texts = frozenset(text for text in texts if Fraction(text) in values)
    return Number(values=values, notation=notation, texts=texts) if values else None


def _tighter(
    a: Rational | None, a_open: bool, b: Rational | None, b_open: bool, sign: int
) -> tuple[Rational | None, bool]:
    if a is None or b is None:
        return (b, b_open) if a is None else (a, a_open)
    if a == b:
        return a, a_open or b_open
    return (a, a_open) if (a - b) * sign > 0 else (b, b_open)


def complement(case: Number) -> list[Number]:
    """Return the numbers that are not in the set, as alternatives."""
    if case.values is not None:
        others = [Number(excluded=case.values)]
        if case.notation is not None:
            others.append(Number(values=case.values, notation="real" if case.notation == "integer" else "integer"))
        return others
    parts: list[Number] = []
    if case.minimum is not None:
        parts.append(Number(maximum=case.minimum, exclusive_maximum=not case.exclusive_minimum))
    if case.maximum is not None:
        parts.append(Number(minimum=case.maximum, exclusive_minimum=not case.exclusive_maximum))
    if case.notation == "integer":
        parts.append(Number(notation="real"))
        if case.multiple_of not in (None, 1):
            parts.append(Number(not_multiple_of=frozenset((case.multiple_of,))))
    else:
        if case.multiple_of is not None:
            parts.append(Number(not_multiple_of=frozenset((case.multiple_of,))))
        if case.notation == "real":
            parts.append(Number(notation="integer", multiple_of=1))
    parts.extend(Number(multiple_of=factor) for factor in sorted(case.not_multiple_of))
    if case.excluded != NO_NUMBERS:
        parts.append(Number(values=case.excluded))
    for group in case.either:
        outside = (_KIND.absorbed(complement(one)) for one in group)
        refuted = intersect(Number(), Number(either=tuple(map(tuple, outside))))
        if refuted is not None:
            parts.append(refuted)
    return parts


_KIND = GroupKind(intersect, covers, lambda groups: Number(either=tuple(groups)))
