"""Sets of numbers: laws of the algebra, on every number of a fine grid."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from ..support import ANY_NUMBER, Number, Rational, numbers

GRID = [numerator // 6 if numerator % 6 == 0 else Fraction(numerator, 6) for numerator in range(-60, 61)]
bounds = st.none() | st.sampled_from([value for value in GRID if abs(value) <= 4])
steps = st.sampled_from([1, 2, 3, Fraction(1, 2), Fraction(3, 2), Fraction(2, 3)])
few = st.frozensets(st.sampled_from(GRID), max_size=3)


@st.composite
def sets(draw: st.DrawFn) -> Number | None:
    if draw(st.booleans()) and draw(st.booleans()):
        return numbers.tidy(Number(values=draw(few)))
    return numbers.tidy(
        Number(
            draw(bounds),
            draw(bounds),
            draw(st.booleans()),
            draw(st.booleans()),
            draw(st.none() | steps),
            draw(st.frozensets(steps, max_size=2)),
            None,
            None,
            draw(few),
        )
    )


def inside(case: Number | None) -> set[Rational]:
    return set() if case is None else {value for value in GRID if numbers.contains(case, value)}


@settings(max_examples=300, derandomize=True, deadline=None)
@given(sets(), sets())
def test_intersection_and_complement(a: Number | None, b: Number | None) -> None:
    if a is None or b is None:
        return
    assert inside(numbers.intersect(a, b)) == inside(a) & inside(b)
    outside = [part for part in numbers.complement(a) if numbers.tidy(part) is not None]
    assert set(GRID) - inside(a) == set().union(*map(inside, outside))
    for part in outside:
        both = numbers.intersect(a, part)
        assert both is None or not inside(both)


@settings(max_examples=300, derandomize=True, deadline=None)
@given(sets())
def test_a_set_that_is_left_has_members(case: Number | None) -> None:
    if case is None:
        return
    assert numbers.contains(case, numbers.smallest(case))
    found = numbers.some(case, 20)
    assert found and len(set(found)) == len(found)
    assert all(numbers.contains(case, value) for value in found)
    if len(found) < 20:
        assert inside(case) <= set(found)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(bounds, bounds, st.booleans(), st.booleans(), st.none() | steps)
def test_tidying_keeps_the_set(
    low: Rational | None, high: Rational | None, open_low: bool, open_high: bool, step: Rational | None
) -> None:
    case = Number(low, high, open_low, open_high, step)
    assert inside(numbers.tidy(case)) == inside(case)


def test_decimals_are_exact() -> None:
    cents = Number(multiple_of=Fraction(1, 100))
    assert numbers.accepts(cents, 19.99)
    assert not numbers.accepts(cents, 19.995)
    assert numbers.accepts(ANY_NUMBER, 1e308)


def test_notation_tells_integers_of_draft_4() -> None:
    integers = Number(multiple_of=1, notation="integer")
    assert numbers.accepts(integers, 1)
    assert not numbers.accepts(integers, 1.0)
    outside = numbers.complement(integers)
    assert any(numbers.accepts(case, 1.0) for case in outside)
    assert any(numbers.accepts(case, 1.5) for case in outside)
    assert not any(numbers.accepts(case, 1) for case in outside)
