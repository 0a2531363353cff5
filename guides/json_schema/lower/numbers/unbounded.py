"""Numbers without a sign that nothing bounds, as syntax: the language of `numerals` where nothing is compared.

Finite floats decide the exponents: behind a mantissa with one whole digit they are at most 307, or 308 where it is no
more than that of the greatest float.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal as OneOf

from ....automata.dfa import Dfa
from ....chart.automaton import ChartAutomaton
from ....graph.graph import Graph
from ....graph.lowering import Lowering
from ....syntax import NOTHING, Chars, Literal, Node, Repeat, Sequence, Table
from .decimals import MOST_PADDED, MOST_WHOLE, MOST_ZEROS, SIGNIFICANT
from .literals import MINUS, OPTIONAL_PLUS, ZERO, ZERO_FRACTION, ZEROS, E, either
from .scientific import GREATEST_DIGITS, MOST_PLACES

Notation = OneOf["integer", "real"]


def _span(first: int, last: int) -> Chars:
    return Chars(((0x30 + first, 0x30 + last),))


DIGIT, NOT_ZERO, POINT = _span(0, 9), _span(1, 9), Literal(b".")
DIGITS = Repeat(DIGIT, 0, None)
POSITIVE_WHOLE = Sequence((NOT_ZERO, DIGITS))
WHOLE = either(ZERO, POSITIVE_WHOLE)
FRACTION = Sequence((POINT, Repeat(DIGIT, 1, None)))
POSITIVE_FRACTION = Sequence((Literal(b"0."), ZEROS, POSITIVE_WHOLE))
FROM_100 = Sequence((_span(1, 2), DIGIT, DIGIT))
FROM_300_TO_307 = Sequence((Literal(b"30"), _span(0, 7)))
FROM_300_TO_324 = either(Sequence((Literal(b"3"), _span(0, 1), DIGIT)), Sequence((Literal(b"32"), _span(0, 4))))
ONE_OR_TWO = Sequence((DIGIT, Repeat(DIGIT, 0, 1)))
UP_TO_99 = Sequence((ZEROS, ONE_OR_TWO))
UP_TO_307 = Sequence((ZEROS, either(ONE_OR_TWO, FROM_100, FROM_300_TO_307)))
MINUS_UP_TO_324 = Sequence((MINUS, ZEROS, either(ONE_OR_TWO, FROM_100, FROM_300_TO_324)))
EXPONENT = Sequence((E, either(Sequence((OPTIONAL_PLUS, UP_TO_99)), MINUS_UP_TO_324)))
SMALL_EXPONENT = Sequence((E, either(OPTIONAL_PLUS, MINUS), UP_TO_99))
LARGE_EXPONENT = Sequence((E, either(Sequence((OPTIONAL_PLUS, UP_TO_307)), MINUS_UP_TO_324)))
GREATEST_EXPONENT = Sequence((E, OPTIONAL_PLUS, ZEROS, Literal(b"308")))
MINUS_ZERO = Sequence((MINUS, Repeat(ZERO, 1, None)))
WHOLE_EXPONENT = Sequence((E, either(Sequence((OPTIONAL_PLUS, UP_TO_99)), MINUS_ZERO)))


def _at_least(least: int) -> Node:
    """The natural numbers from one below 20 up to 307, without zeros before them."""
    tens, ones = divmod(least, 10)
    same_tens = Sequence((Literal(b"1"), _span(ones, 9))) if tens else _span(ones, 9)
    return either(same_tens, Sequence((_span(tens + 1, 9), DIGIT)), FROM_100, FROM_300_TO_307)


PLAIN_EXPONENT = Sequence(
    (
        Literal(b"e"),
        either(
            Sequence((Literal(b"+"), _at_least(16))),
            Sequence((Literal(b"-0"), _span(5, 9))),
            Sequence((MINUS, either(Sequence((NOT_ZERO, DIGIT)), FROM_100, FROM_300_TO_324))),
        ),
    )
)


def tailed(whole: Node, fraction: Node, exponent: Node, notation: str | None) -> Node:
    """A whole number, with a fraction and an exponent as the notation has it."""
    if notation == "integer":
        return whole
    if notation == "real":
        return Sequence((whole, either(exponent, Sequence((fraction, Repeat(exponent, 0, 1))))))
    return Sequence((whole, Repeat(fraction, 0, 1), Repeat(exponent, 0, 1)))


@lru_cache(maxsize=16)
def unbounded(notation: Notation | None, positive: bool, whole: bool) -> Table:
    """All numbers, or those above 0, or whole ones, in any spelling, as a table."""
    first = POSITIVE_WHOLE if positive else WHOLE
    if notation == "integer":
        return _minimised(first)
    node = tailed(first, *((ZERO_FRACTION, WHOLE_EXPONENT) if whole else (FRACTION, EXPONENT)), notation)
    zero = () if positive else (Sequence((ZERO, Repeat(ZERO_FRACTION, 0, 1), LARGE_EXPONENT)),)
    small = (Sequence((POSITIVE_FRACTION, Repeat(SMALL_EXPONENT, 0, 1))),) if positive and not whole else ()
    return _minimised(either(node, *zero, *small, *(_whole_scientific() if whole else _scientific())))


def _scientific() -> Iterator[Node]:
    """Numbers with one whole digit that is not 0, and any exponent of a finite float."""
    yield Sequence((NOT_ZERO, Repeat(FRACTION, 0, 1), LARGE_EXPONENT))
    digits: Node = NOTHING
    for digit in map(int, reversed(GREATEST_DIGITS[1:])):
        after = ZEROS if digits is NOTHING else Repeat(digits, 0, 1)
        digits = either(Sequence((_span(0, digit - 1), DIGITS)), Sequence((_span(digit, digit), after)))
    yield Sequence((Literal(b"1"), Repeat(Sequence((POINT, digits)), 0, 1), GREATEST_EXPONENT))


def _whole_scientific() -> Iterator[Node]:
    """As `_scientific`, of whole numbers: exponents are no less than the places of the fraction."""
    digits: Node = NOTHING
    for place in range(MOST_PLACES, 0, -1):
        exponent = Sequence((E, OPTIONAL_PLUS, ZEROS, _at_least(place)))
        digits = either(Sequence((NOT_ZERO, exponent)), Sequence((DIGIT, digits)))
    yield Sequence((NOT_ZERO, POINT, digits))
    yield Sequence((NOT_ZERO, Repeat(ZERO_FRACTION, 0, 1), E, OPTIONAL_PLUS, UP_TO_307))
    fraction = either(ZERO_FRACTION, Sequence((POINT, _greatest_fraction())))
    yield Sequence((Literal(b"1"), Repeat(fraction, 0, 1), GREATEST_EXPONENT))


@lru_cache(maxsize=2)
def unbounded_floats(positive: bool) -> Table:
    """All numbers, or those above 0, as json.dumps writes floats, with a few more zeros at the end, as a table."""
    wholes: Node = NOTHING
    for count in range(MOST_WHOLE, 0, -1):
        places = SIGNIFICANT - count
        fraction = either(Repeat(DIGIT, 1, min(places, MOST_PADDED)), _ended(places))
        wholes = either(Sequence((POINT, fraction)), Sequence((DIGIT, wholes)))
    padded: Node = NOT_ZERO if positive else DIGIT
    for count in range(1, MOST_PADDED):
        begun = NOT_ZERO if positive else DIGIT
        padded = either(Sequence((begun, Repeat(DIGIT, 0, count))), Sequence((ZERO, padded)))
    small = Sequence((Repeat(ZERO, 0, MOST_ZEROS), NOT_ZERO, Repeat(_ended(SIGNIFICANT - 1), 0, 1)))
    mantissa = Sequence((NOT_ZERO, Repeat(Sequence((POINT, _ended(MOST_PLACES))), 0, 1)))
    greatest = Sequence((Literal(b"1"), Repeat(Sequence((POINT, _greatest_fraction())), 0, 1), Literal(b"e+308")))
    return _minimised(
        either(
            Sequence((Literal(b"0."), either(padded, small))),
            Sequence((NOT_ZERO, wholes)),
            Sequence((mantissa, PLAIN_EXPONENT)),
            greatest,
        )
    )


def _ended(most: int) -> Node:
    """Up to so many digits, the last of them not 0."""
    return Sequence((Repeat(DIGIT, 0, most - 1), NOT_ZERO)) if most else NOTHING


def _greatest_fraction() -> Node:
    """The places of a mantissa no greater than that of the greatest float, the last of them not 0."""
    digits: Node = NOTHING
    for left, text in enumerate(reversed(GREATEST_DIGITS[1:])):
        digit = int(text)
        lower = Sequence((_span(0, digit - 1), _ended(left)))
        digits = either(_span(1, digit), lower, Sequence((_span(digit, digit), digits)))
    return digits


def _minimised(node: Node) -> Table:
    graph = Graph()
    dfa = Dfa.of(ChartAutomaton(graph, Lowering(graph).rule(node))).minimised()
    return Table(dfa.transitions, dfa.accepting, dfa.start)
