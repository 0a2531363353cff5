"""The texts of numbers: every JSON notation of a `Number`'s members, as far as they are a regular language.

Exact: numbers without a fraction or with one, in plain notation, of any length, under any conditions; -0 is 0.
Exponents are those of finite floats, so that whoever reads a text as one gets a number: after one whole digit -324
to 308, up to 99 after more. Where more than the sign is bounded fewer texts are accepted than members have, because
the comparison of digits with an exponent is not regular:

- Under other bounds and exclusions an exponent follows a mantissa with one whole digit that is not 0 (or a
  mantissa of zeros), which is how serialisers write; 15e3 and 0.5e3 are refused where 1.5e4 and 5e2 are not.
- So it does for integers, multiples and negated multiples, after up to 16 digits behind the point, the last of
  them not 0 (or after zeros alone). Multiples that are all below 1e16, and have at most 4 places, take no exponent.
  Where the numerator of a factor has more than 128 remainders that matter it follows a fraction of zeros only.
- Constants take an exponent wherever their point may stand: before, between and behind the digits that count, and up to
  where it stands without one (0.15e4, 1.5e3, 15e2, 1500e0). Beyond 32 such places it is behind the first digit or the
  last, or where the schema has it.

What json.dumps writes of a member is always among them, but for those of such large factors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import lru_cache, partial

from ....automata.dfa import Dfa
from ....chart.automaton import ChartAutomaton
from ....graph.graph import Graph
from ....graph.lowering import Lowering
from ....kept import kept
from ....limits import spend
from ....syntax import NOTHING, Alternation, Chars, Literal, Node, Repeat, Sequence, Table
from ...algebra.cases import Number, Rational
from ...algebra.numbers import least_common_multiple
from .magnitudes import EXPONENTS_FROM, Magnitude, magnitude_table
from .multiples import decimal_places, decimal_step
from .products import union
from .whole_numbers import DIGIT, ZERO_FRACTION, whole_range

MAX_LISTED = 64
MAX_LARGE_LISTED = 4096
LARGE_STEP = 1000
MOST_PLACES = 32
LEAST_PLAIN, MOST_PLAIN = -4, 15

Places = Callable[[int, int], Iterable[int]]
"""Where the point of a number may stand: from how many digits count, and where it stands without an exponent."""

NOT_ZERO = Chars(((0x31, 0x39),))
MINUS = Literal(b"-")
POINT = Literal(b".")
E = Chars(((0x45, 0x45), (0x65, 0x65)))
DIGITS = Repeat(DIGIT, 0, None)
ZEROS = Repeat(Literal(b"0"), 0, None)


def _optional(node: Node) -> Node:
    return Repeat(node, 0, 1)


def _sequence(*nodes: Node) -> Node:
    return Sequence(nodes)


def either(*nodes: Node) -> Node:
    if not nodes:
        return NOTHING
    return nodes[0] if len(nodes) == 1 else Alternation(nodes)


OPTIONAL_MINUS = _optional(MINUS)
OPTIONAL_PLUS = _optional(Literal(b"+"))
POSITIVE_WHOLE = _sequence(NOT_ZERO, DIGITS)
WHOLE = either(Literal(b"0"), POSITIVE_WHOLE)
FRACTION = _sequence(POINT, Repeat(DIGIT, 1, None))
POSITIVE_FRACTION = _sequence(Literal(b"0."), ZEROS, POSITIVE_WHOLE)
UP_TO_99 = _sequence(ZEROS, DIGIT, _optional(DIGIT))
BELOW_300 = _sequence(_optional(Chars(((0x31, 0x32),))), DIGIT, _optional(DIGIT))
UP_TO_324 = _sequence(
    ZEROS,
    either(
        BELOW_300,
        _sequence(Literal(b"3"), Chars(((0x30, 0x31),)), DIGIT),
        _sequence(Literal(b"32"), Chars(((0x30, 0x34),))),
    ),
)
EXPONENT = _sequence(E, either(_sequence(OPTIONAL_PLUS, UP_TO_99), _sequence(MINUS, UP_TO_324)))
SMALL_EXPONENT = _sequence(E, either(OPTIONAL_PLUS, MINUS), UP_TO_99)
WHOLE_EXPONENT = _sequence(
    E,
    either(
        _sequence(OPTIONAL_PLUS, UP_TO_99),
        _sequence(MINUS, Repeat(Literal(b"0"), 1, None)),
    ),
)


def _tailed(whole: Node, fraction: Node, exponent: Node, notation: str | None) -> Node:
    """A whole number, with a fraction and an exponent as the notation has it."""
    if notation == "integer":
        return whole
    if notation == "real":
        return _sequence(whole, either(exponent, _sequence(fraction, _optional(exponent))))
    return _sequence(whole, _optional(fraction), _optional(exponent))


NOTATIONS = (None, "integer", "real")
ZERO_TEXTS = {notation: _tailed(Literal(b"0"), ZERO_FRACTION, EXPONENT, notation) for notation in NOTATIONS}


@lru_cache(maxsize=16)
def unbounded(notation: str | None, positive: bool, whole: bool) -> Table:
    """Numbers without sign that nothing bounds, all or those above 0 or whole ones, as a table."""
    first = POSITIVE_WHOLE if positive else WHOLE
    node = _tailed(first, *((ZERO_FRACTION, WHOLE_EXPONENT) if whole else (FRACTION, EXPONENT)), notation)
    if positive and not whole and notation != "integer":
        node = either(node, _sequence(POSITIVE_FRACTION, _optional(SMALL_EXPONENT)))
    dfa = Dfa.of(ChartAutomaton(*_graph(node))).minimised()
    assert dfa.start == 0, "minimised automata are numbered from the start"
    table = Table(dfa.transitions, dfa.accepting)
    if notation == "integer":
        return table
    # Exponents of any size follow one digit; with which fractions they make whole numbers is for the automaton.
    one_digit = magnitude_table(Magnitude(0, positive, step=1 if whole else None, notation=notation))
    assert one_digit is not None, "there are such numbers"
    return union(table, one_digit)


def _graph(node: Node) -> tuple[Graph, int]:
    graph = Graph()
    return graph, Lowering(graph).rule(node)


@kept(4096, 32 << 20)
def number_node(case: Number) -> Node:
    """The JSON texts of the numbers in a set; NOTHING if there are none. Equal sets give the same node.

    Raises LimitError if multipleOf needs too large an automaton.
    """
    if case.values is not None:
        zero = Sequence((OPTIONAL_MINUS, ZERO_TEXTS[case.notation]))
        nodes = _constants(case.values - {0}, case.notation, partial(places_of_points, own=exponents_of(case.texts)))
        return either(*nodes, *((zero,) if 0 in case.values else ()))
    above = side(case, case.minimum, case.exclusive_minimum, case.maximum, case.exclusive_maximum, 1)
    below = side(case, case.maximum, case.exclusive_maximum, case.minimum, case.exclusive_minimum, -1)
    if above == below:
        node = NOTHING if above is None else magnitude_node(above)
        return NOTHING if node is NOTHING else Sequence((OPTIONAL_MINUS, node))
    positive = NOTHING if above is None else magnitude_node(above)
    negative = NOTHING if below is None else magnitude_node(below)
    if negative is NOTHING:
        return positive
    negative = Sequence((MINUS, negative))
    return negative if positive is NOTHING else Alternation((positive, negative))


def side(
    case: Number, low: Rational | None, low_open: bool, high: Rational | None, high_open: bool, sign: int
) -> Magnitude | None:
    """The members of one sign, or zero, without their sign; None if there are none by the bounds."""
    low = -1 if low is None else low * sign
    high = None if high is None else high * sign
    if low < 0:
        low, low_open = 0, False
    if low == 0:
        low_open = low_open or 0 in case.excluded or bool(case.not_multiple_of)
    if high is not None and (low > high or (low == high and (low_open or high_open))):
        return None
    step = case.multiple_of
    if case.notation == "integer":
        step = 1 if step is None else least_common_multiple(step, 1)
    if step is not None:
        whole, places = decimal_step(step)
        step = Fraction(whole, 10**places) if places else whole
    excluded = (value * sign for value in case.excluded)
    kept = frozenset(value for value in excluded if value > 0 and value >= low and (high is None or value <= high))
    return Magnitude(
        low, low_open, high, high is not None and high_open, step, case.not_multiple_of, kept, case.notation
    )


@kept(4096, 32 << 20)
def magnitude_node(magnitude: Magnitude) -> Node:
    """The texts of a set of numbers without sign: syntax where it is small, else a table."""
    low, high, notation = magnitude.low, magnitude.high, magnitude.notation
    if high == 0:
        return ZERO_TEXTS[notation]
    if not magnitude.not_steps and not magnitude.excluded:
        if high is None and low == 0 and magnitude.step is None:
            return unbounded(notation, magnitude.low_open, False)
        if magnitude.step == 1:
            least, most = _whole_bounds(magnitude)
            if most is None and least <= 1:
                return unbounded(notation, least > 0, True)
            if most is not None and most < EXPONENTS_FROM:
                node = NOTHING if least > most else whole_range(least, most, notation)
                if node is not None:
                    return node
    if is_listed(magnitude):
        members = _members(magnitude)
        nodes = _constants(members - {0}, notation, _places_of_serialisers)
        return either(*nodes, *((ZERO_TEXTS[notation],) if 0 in members else ()))
    table = magnitude_table(magnitude)
    return NOTHING if table is None else table


def _whole_bounds(magnitude: Magnitude) -> tuple[int, int | None]:
    """The least and greatest whole number within the bounds."""
    low, high = magnitude.low, magnitude.high
    least = low // 1 + 1 if magnitude.low_open else -(-low // 1)
    if high is None:
        return int(least), None
    return int(least), int(-(-high // 1) - 1 if magnitude.high_open else high // 1)


def is_listed(magnitude: Magnitude) -> bool:
    """Whether the members are so few that each is written out."""
    if magnitude.step is None or magnitude.high is None:
        return False
    first, last = _steps_within(magnitude)
    return last - first < (MAX_LISTED if decimal_step(magnitude.step)[0] < LARGE_STEP else MAX_LARGE_LISTED)


def _steps_within(magnitude: Magnitude) -> tuple[int, int]:
    """The first and the last step within the bounds."""
    step, high = magnitude.step, magnitude.high
    assert step is not None and high is not None
    return int(-(-magnitude.low // step)), int(high // step)


def _members(magnitude: Magnitude) -> frozenset[Rational]:
    """The members among the steps within the bounds."""
    step, low, high = magnitude.step, magnitude.low, magnitude.high
    assert step is not None
    first, last = _steps_within(magnitude)
    members: set[Rational] = set()
    for index in range(first, last + 1):
        value = index * step
        outside = (magnitude.low_open and value == low) or (magnitude.high_open and value == high)
        if not outside and value not in magnitude.excluded and all(value % other for other in magnitude.not_steps):
            members.add(value)
    return frozenset(members)


def _constants(values: frozenset[Rational], notation: str | None, places: Places) -> list[Node]:
    """The texts of single numbers, none of them 0, as alternatives: together what the same tail follows."""
    texts: dict[tuple[int, bool], list[Node]] = {}
    for value in sorted(values):
        for mantissa, exponent in spellings(value, places):
            texts.setdefault((exponent, "." in mantissa), []).append(Literal(mantissa.encode()))
    tails = ((tail(*kind, notation), nodes) for kind, nodes in texts.items())
    return [_sequence(either(*nodes), after) for after, nodes in tails if after is not NOTHING]


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
    """How many digits may be before the point of a constant with so many that count.

    plain: where it stands without an exponent; own: exponents that the schema writes
    """
    first, last = min(plain, 0), max(plain, count)
    near = range(first, last + 1) if last - first < MOST_PLACES else (1, count, plain)
    return {*near, *(plain - exponent for exponent in own)}


def exponents_of(texts: Iterable[str]) -> frozenset[int]:
    """The exponents with which numbers are written."""
    return frozenset(int(exponent) for _, _, exponent in (text.lower().partition("e") for text in texts) if exponent)


def _places_of_serialisers(count: int, plain: int) -> Iterable[int]:
    return (plain,) if LEAST_PLAIN < plain <= MOST_PLAIN + 1 else {1, plain}


@kept(1024, 1 << 20)
def tail(exponent: int, has_point: bool, notation: str | None) -> Node:
    """What follows a mantissa: zeros of its fraction, and the exponent; NOTHING where the notation allows none."""
    if notation == "integer":
        return NOTHING if has_point or exponent else Literal(b"")
    sign = either(OPTIONAL_PLUS, MINUS) if not exponent else MINUS if exponent < 0 else OPTIONAL_PLUS
    power = _sequence(E, sign, ZEROS, Literal(b"%d" % abs(exponent)))
    if has_point:
        return _sequence(ZEROS, power if exponent else _optional(power))
    if exponent:
        return _sequence(_optional(ZERO_FRACTION), power)
    if notation == "real":
        return either(_sequence(ZERO_FRACTION, _optional(power)), power)
    return _sequence(_optional(ZERO_FRACTION), _optional(power))
