"""The texts of single numbers: constants of a schema, and members of sets that have few."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction

from ....kept import kept
from ....limits import spend
from ....syntax import EMPTY, NOTHING, Alternation, Chars, Literal, Node, Repeat, Sequence
from ...algebra.cases import Number, Rational
from ...read.dialects import is_real
from .units import decimal_places

MOST_POINTS = 32
"""At up to how many places the point of a constant may stand."""
LEAST_PLAIN, MOST_PLAIN = -4, 15
"""The least and the greatest exponent that json.dumps does not write."""

Places = Callable[[int, int], Iterable[int]]
"""Where the point of a number may stand: from how many digits count, and where it stands without an exponent."""

MINUS = Literal(b"-")
E = Chars(((0x45, 0x45), (0x65, 0x65)))
ZERO = Literal(b"0")
ZEROS = Repeat(ZERO, 0, None)
ZERO_FRACTION = Sequence((Literal(b"."), Repeat(ZERO, 1, None)))
OPTIONAL_PLUS = Repeat(Literal(b"+"), 0, 1)


def either(*nodes: Node) -> Node:
    """Any of some alternatives."""
    if not nodes:
        return NOTHING
    return nodes[0] if len(nodes) == 1 else Alternation(nodes)


def spelt_constants(values: Iterable[Rational], notation: str | None, places: Places) -> list[Node]:
    """The texts of single numbers, none of them 0, as alternatives: together what the same tail follows."""
    texts: dict[tuple[int, bool], list[Node]] = {}
    for value in sorted(values):
        for mantissa, exponent in spellings(value, places):
            texts.setdefault((exponent, "." in mantissa), []).append(Literal(mantissa.encode()))
    tails = ((tail(*kind, notation), nodes) for kind, nodes in texts.items())
    return [Sequence((either(*nodes), after)) for after, nodes in tails if after is not NOTHING]


def spellings(value: Rational, places: Places) -> Iterator[tuple[str, int]]:
    """Mantissas of a number that is not 0, each with its exponent; none for one that is no decimal number.

    places: where the point may stand
    """
    behind = decimal_places(value)
    if behind is None:
        return
    text = str(abs(int(value * 10**behind)))
    digits, sign = text.rstrip("0"), "-" if value < 0 else ""
    spend(50 * len(text))
    for place in places(len(digits), len(text) - behind):
        whole, fraction = digits[: max(place, 0)].ljust(place, "0") or "0", "0" * -place + digits[max(place, 0) :]
        yield f"{sign}{whole}{fraction and '.'}{fraction}", len(text) - behind - place


def places_of_points(count: int, plain: int, own: Iterable[int] = ()) -> Iterable[int]:
    """The numbers of digits before the point that a constant may have, with so many that count.

    plain: where it stands without an exponent; own: exponents that the schema writes
    """
    first, last = min(plain, 0), max(plain, count)
    near = range(first, last + 1) if last - first < MOST_POINTS else (1, count, plain)
    return {*near, *(plain - exponent for exponent in own)}


def places_of_serialisers(count: int, plain: int) -> Iterable[int]:
    """As `places_of_points`, of a number that the schema does not write."""
    return (plain,) if LEAST_PLAIN < plain <= MOST_PLAIN + 1 else {1, plain}


def written_exponents(texts: Iterable[str]) -> frozenset[int]:
    """The exponents with which numbers are written."""
    return frozenset(int(exponent) for _, _, exponent in (text.lower().partition("e") for text in texts) if exponent)


@kept(1024, 1 << 20)
def tail(exponent: int, has_point: bool, notation: str | None) -> Node:
    """The end behind a mantissa: zeros of its fraction, and the exponent; NOTHING where the notation allows none."""
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
    """Constants as the schema writes them; as digits and as a float where it does not, or not in the notation asked."""
    assert case.values is not None
    own = {text for text in case.texts if case.notation in (None, "real" if is_real(text) else "integer")}
    for value in case.values - set(map(Fraction, own)):
        if decimal_places(value) is not None:
            if value.denominator == 1 and case.notation != "real":
                own.add(number_text(value, False))
            if case.notation != "integer":
                own.add(number_text(value, True))
    return sorted(own)


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
