"""Numbers without a sign that nothing bounds, as tables: those that `numerals` has, and in any spelling more.

Where nothing is compared, an exponent of at most two digits may follow any mantissa: finite floats decide no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal as OneOf

from .....kernels.answers import DEAD
from ....automata.dfa import Dfa
from ....chart.automaton import ChartAutomaton
from ....graph.graph import Graph
from ....graph.lowering import Lowering
from ....syntax import Chars, Literal, Node, Repeat, Sequence, Table
from ...algebra.cases import Number, Rational
from .decimals import MOST_PADDED
from .literals import MINUS, OPTIONAL_PLUS, ZERO, ZERO_FRACTION, ZEROS, E, either, number_text
from .numerals import Numerals
from .units import decimal_places

Notation = OneOf["integer", "real"]


def _span(first: int, last: int) -> Chars:
    return Chars(((0x30 + first, 0x30 + last),))


DIGIT, NOT_ZERO, POINT = _span(0, 9), _span(1, 9), Literal(b".")
POSITIVE_WHOLE = Sequence((NOT_ZERO, Repeat(DIGIT, 0, None)))
WHOLE = either(ZERO, POSITIVE_WHOLE)
FRACTION = Sequence((POINT, Repeat(DIGIT, 1, None)))
POSITIVE_FRACTION = Sequence((Literal(b"0."), ZEROS, POSITIVE_WHOLE))
FROM_100 = Sequence((_span(1, 2), DIGIT, DIGIT))
FROM_300_TO_324 = either(Sequence((Literal(b"3"), _span(0, 1), DIGIT)), Sequence((Literal(b"32"), _span(0, 4))))
ONE_OR_TWO = Sequence((DIGIT, Repeat(DIGIT, 0, 1)))
UP_TO_99 = Sequence((ZEROS, ONE_OR_TWO))
MINUS_UP_TO_324 = Sequence((MINUS, ZEROS, either(ONE_OR_TWO, FROM_100, FROM_300_TO_324)))
EXPONENT = Sequence((E, either(Sequence((OPTIONAL_PLUS, UP_TO_99)), MINUS_UP_TO_324)))
SMALL_EXPONENT = Sequence((E, either(OPTIONAL_PLUS, MINUS), UP_TO_99))
MINUS_ZERO = Sequence((MINUS, Repeat(ZERO, 1, None)))
WHOLE_EXPONENT = Sequence((E, either(Sequence((OPTIONAL_PLUS, UP_TO_99)), MINUS_ZERO)))


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
    node = tailed(
        POSITIVE_WHOLE if positive else WHOLE,
        *((ZERO_FRACTION, WHOLE_EXPONENT) if whole else (FRACTION, EXPONENT)),
        notation,
    )
    if notation != "integer":
        case = Number(0, exclusive_minimum=positive, multiple_of=1 if whole else None, notation=notation)
        small = (Sequence((POSITIVE_FRACTION, Repeat(SMALL_EXPONENT, 0, 1))),) if positive and not whole else ()
        node = either(node, *small, Numerals(case).table())
    graph = Graph()
    dfa = Dfa.of(ChartAutomaton(graph, Lowering(graph).rule(node))).minimised()
    return Table(dfa.transitions, dfa.accepting, dfa.start)


@lru_cache(maxsize=2)
def unbounded_floats(positive: bool) -> Table:
    """All numbers, or those above 0, as json.dumps writes floats, with a few more zeros at the end, as a table."""
    return Numerals(Number(0, exclusive_minimum=positive, notation="real"), plain=True).table()


def float_texts(value: Rational) -> Iterator[str]:
    """The texts of a number from 0 up that are those of a float, with a few zeros behind it."""
    places = decimal_places(value)
    if places is None:
        return
    text = str(int(value * 10**places)).rjust(places + 1, "0")
    whole, fraction = text[: len(text) - places], text[len(text) - places :]
    padded = (fraction.ljust(count, "0") for count in range(max(places, 1), MOST_PADDED + 1))
    texts = dict.fromkeys((*(f"{whole}.{each}" for each in (fraction, *padded)), number_text(value, True)))
    yield from filter(_is_float, texts)


def _is_float(text: str) -> bool:
    """Tell whether a text is that of a float from 0 up."""
    table = unbounded_floats(False)
    state = table.start
    for byte in text.encode():
        state = table.transitions.item(state, byte)
        if state == DEAD:
            return False
    return table.accepting.item(state)
