"""Numbers as people write them: integers as digits, other numbers as json.dumps writes floats.

    integers        0, or digits without a leading 0; up to as many as Python reads, or where any number may stand,
                    as keep it a finite float; multiples have any number of digits
    other numbers   from 1e-4 up to below 1e16 with a point, up to 17 digits that count; only a fraction of up to
                    MOST_PADDED places may end in 0, as %f writes it (19.90 is fine, 1.0000000000 is not)
                    else one digit, perhaps a fraction that does not end in 0, and e+16 ... e+308 or e-05 ... e-324
    constants       as the schema writes them

Where a set asks for integers they are digits; elsewhere 5 and 5.0 are both fine. 0 has no sign, 0.0 may have one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from ....automata.dfa import Dfa
from ....chart.automaton import ChartAutomaton
from ....graph.graph import Graph
from ....graph.lowering import Lowering
from ....kept import kept
from ....syntax import NOTHING, Literal, Node, Repeat, Sequence, Table
from ...algebra.cases import Number, Rational
from ...algebra.numbers import leaves
from ...read.dialects import is_real
from ...read.patterns import parse
from .magnitudes import Magnitude
from .multiples import decimal_places, decimal_step
from .notation import MINUS, NOT_ZERO, either, magnitude_node, side
from .products import intersection
from .whole_numbers import DIGIT

MOST_DIGITS = 4300
"""Up to how many digits int() reads by default; what is longer json.loads refuses."""
FLOAT_DIGITS = 308
"""Whole numbers of so many digits are finite floats."""
SIGNIFICANT, MOST_WHOLE, MOST_ZEROS, MOST_PADDED = 17, 16, 3, 6
LEAST_PLAIN, MOST_PLAIN = -4, 15
LARGE = r"\+(?:1[6-9]|[2-9][0-9]|[12][0-9]{2}|30[0-8])"
SMALL = "-(?:0[5-9]|[1-9][0-9]|[12][0-9]{2}|3[01][0-9]|32[0-4])"


@kept(4096, 32 << 20)
def plain_node(case: Number) -> Node:
    """The plain texts of the numbers in a set; NOTHING if there are none.

    Raises LimitError if multipleOf needs too large an automaton.
    """
    if case.values is not None:
        return either(*(Literal(text.encode()) for text in sorted(_constants(case, case.values))))
    if case.either:
        return either(*(node for node in map(plain_node, leaves(case)) if node is not NOTHING))
    nodes: list[Node] = []
    whole = case.notation != "real" and case.multiple_of is not None and not decimal_step(case.multiple_of)[1]
    if case.notation != "real":
        most = MOST_DIGITS if whole or case.notation == "integer" else FLOAT_DIGITS
        for minus, magnitude in _signs(replace(case, notation="integer")):
            nodes.append(_signed(minus, _digits(magnitude, most)))
    if case.notation != "integer" and not whole:
        for minus, magnitude in _signs(replace(case, notation="real")):
            table = _table(magnitude_node(magnitude))
            floats = None if table is None else intersection(table, float_texts())
            nodes.append(NOTHING if floats is None else _signed(minus, floats))
    return either(*(node for node in nodes if node is not NOTHING))


def number_text(value: Rational, real: bool) -> str:
    """A decimal number as json.dumps writes it: an integer as digits, or as a float if it is `real`.

    What no float is has all its digits.
    """
    if value.denominator == 1 and not real:
        return str(int(value))
    places = decimal_places(value)
    assert places is not None, "it is a decimal number"
    digits = str(abs(int(value * 10**places)))
    exponent = len(digits) - places - 1
    digits = digits.rstrip("0") or "0"
    sign = "-" if value < 0 else ""
    if value == 0 or LEAST_PLAIN <= exponent <= MOST_PLAIN:
        if exponent < 0:
            digits, exponent = "0" * -exponent + digits, 0
        digits = digits.ljust(exponent + 2, "0")
        return f"{sign}{digits[: exponent + 1]}.{digits[exponent + 1 :]}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{exponent:+03d}"


def _constants(case: Number, values: frozenset[Rational]) -> Iterator[str]:
    """Constants as the schema writes them; as digits and as a float where it does not, or not in the notation asked."""
    own = [text for text in case.texts if case.notation in (None, "real" if is_real(text) else "integer")]
    yield from own
    for value in values - set(map(Fraction, own)):
        if decimal_places(value) is None:
            continue
        if value.denominator == 1 and case.notation != "real":
            yield number_text(value, False)
        if case.notation != "integer":
            yield number_text(value, True)


def _signs(case: Number) -> Iterator[tuple[bool, Magnitude]]:
    """The members without and with a minus; an integer that is 0 has none."""
    above = side(case, case.minimum, case.exclusive_minimum, case.maximum, case.exclusive_maximum, 1)
    below = side(case, case.maximum, case.exclusive_maximum, case.minimum, case.exclusive_minimum, -1)
    if above is not None:
        yield False, above
    if below is not None and case.notation == "integer" and below.low == 0:
        below = None if below.high == 0 else replace(below, low_open=True)
    if below is not None:
        yield True, below


def _signed(minus: bool, node: Node) -> Node:
    return Sequence((MINUS, node)) if minus and node is not NOTHING else node


def _digits(magnitude: Magnitude, most: int) -> Node:
    """Integers without a sign, of at most `most` digits where nothing else bounds them; multiples of any length."""
    if magnitude.high is not None or magnitude.step != 1 or magnitude.not_steps:
        return magnitude_node(magnitude)
    told = [int(value) for value in (magnitude.low, *magnitude.excluded) if value >= 1]
    length = min(len(str(max(told))), most) if told else 0
    greatest = 10**length - 1
    nodes: list[Node] = []
    if not told:
        nodes = [] if magnitude.low > 0 or magnitude.low_open else [Literal(b"0")]
    elif magnitude.low <= greatest:
        nodes = [node for node in (magnitude_node(replace(magnitude, high=greatest)),) if node is not NOTHING]
    if length < most:
        nodes.append(Sequence((NOT_ZERO, Repeat(DIGIT, length, most - 1))))
    return either(*nodes)


def _table(node: Node) -> Table | None:
    """Syntax as a table; None if no text is in it."""
    if node is NOTHING:
        return None
    if isinstance(node, Table):
        return node
    graph = Graph()
    dfa = Dfa.of(ChartAutomaton(graph, Lowering(graph).rule(node))).minimised()
    return Table(dfa.transitions, dfa.accepting, dfa.start)


@lru_cache(maxsize=1)
def float_texts() -> Table:
    """The texts that a float without its sign may have, whatever its value, as a table."""
    padded = f"[0-9]{{1,{MOST_PADDED}}}"
    parts = [rf"0\.(?:{padded}|0{{0,{MOST_ZEROS}}}[1-9](?:[0-9]{{0,{SIGNIFICANT - 2}}}[1-9])?)"]
    for whole in range(1, MOST_WHOLE + 1):
        left = SIGNIFICANT - whole
        fraction = f"[0-9]{{1,{min(left, MOST_PADDED)}}}|[0-9]{{0,{left - 1}}}[1-9]"
        parts.append(rf"[1-9][0-9]{{{whole - 1}}}\.(?:{fraction})")
    parts.append(rf"[1-9](?:\.[0-9]{{0,{SIGNIFICANT - 2}}}[1-9])?e(?:{LARGE}|{SMALL})")
    table = _table(parse(f"^(?:{'|'.join(parts)})$"))
    assert table is not None, "there are floats"
    return table
