"""The texts of numbers, in either spelling.

"any" spelling accepts every JSON notation of a `Number`'s members, as far as these are a regular language. Exact: texts
without an exponent, with or without a fraction, of any length, under any conditions; -0 is 0. Exponents keep the number
a finite float: -324 to 308 after one whole digit, up to 99 after more. If more than the sign is bounded, some texts of
members are refused, because comparing digits with an exponent is not regular:

- Under other bounds and exclusions an exponent follows a mantissa with one whole digit that is not 0 (or a mantissa of
  zeros), as serialisers write it: 1.5e4 and 5e2 are accepted, 15e3 and 0.5e3 are not.
- The same holds for integers, multiples and negated multiples, with up to 16 fraction digits, the last of them not 0
  (or all of them). Multiples that are all below 1e16, with at most 4 places, have no exponent. If the factors have more
  than 128 relevant remainders, or the number must be in one of several sets, the fraction before an exponent is zeros
  only.
- Constants have an exponent with every position of the point: before, between and after the significant digits, and up
  to its position without exponent (0.15e4, 1.5e3, 15e2, 1500e0). If these are more than 32, only after the first or
  last digit, or as the schema writes it.

The text that json.dumps writes for a member is always accepted, except where fractions must be zeros.

"plain" spelling is that of people and of json.dumps. Sets of integers have digits only; elsewhere both 5 and 5.0 are
accepted. 0 has no sign, 0.0 may have one.

    integers        0, or digits without a leading 0; up to Python's limit, or where the set has other numbers too
                    up to the digits of a finite float; multiples have any number of digits
    other numbers   from 1e-4 to below 1e16 with a point, up to 17 significant digits; only a fraction of up to
                    MAX_PADDED places may end in 0, as in %f (19.90 is accepted, 1.0000000000 is not);
                    else one digit, an optional fraction that does not end in 0, and e+16 ... e+308 or e-05 ... e-324
    constants       as the schema writes them

Numbers from 0 up are `numerals`, the texts without and with an exponent read in parallel. Without comparisons an
exponent of up to two digits may follow any mantissa (`unbounded`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache, partial
from typing import Literal as OneOf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .....kernels.answers import DEAD, NEVER
from .....kernels.chart.layout import EPSILON
from ....automata.dfa import Dfa, StateNumbering, minimise
from ....cached import cached, cached_growing
from ....chart.automaton import ChartAutomaton
from ....graph.graph import Graph
from ....graph.lowering import Lowering
from ....limits import spend
from ....locks import new_lock
from ....syntax import EMPTY, NOTHING, Chars, Literal, Node, Repeat, Sequence, Table
from ...algebra.cases import Number, Rational
from ...algebra.numbers import contains, least_common_multiple, leaves
from ...automata.spelling import fewest_bytes
from ..form import Spelling
from .decimals import MAX_PADDED, Decimals
from .literals import (
    MINUS,
    OPTIONAL_PLUS,
    ZERO,
    ZERO_FRACTION,
    ZEROS,
    E,
    decimal_places,
    decimal_step,
    either,
    number_text,
    places_of_points,
    places_of_serialisers,
    plain_constants,
    spelt_constants,
    written_exponents,
)
from .scientific import Scientific, has_exponents

Run = tuple[int, int, int]
"""First and last byte that lead to a state, and the state."""


class NumeralAutomaton:
    """The texts of a set of numbers from 0 up, as an automaton whose states are made on demand.

    plain: as json.dumps writes floats, plus optional final zeros
    """

    def __init__(self, case: Number, *, plain: bool = False) -> None:
        self._readers = [Decimals(case, plain=plain), *([Scientific(case, plain=plain)] if has_exponents(case) else ())]
        self._numbers: StateNumbering[tuple[int, ...]] = StateNumbering()
        self._runs: list[list[Run] | None] = []
        self._lock = new_lock()
        self.start = self._numbers[tuple(reader.start for reader in self._readers)]

    @property
    def held_bytes(self) -> int:
        """Approximate memory of the states made so far."""
        return 4000 + 3000 * len(self._numbers)

    def runs(self, state: int) -> list[Run]:
        """Return the transitions of a state from which a member is reachable, as byte ranges."""
        with self._lock:
            self._runs += [None] * (state + 1 - len(self._runs))
            known = self._runs[state]
            if known is None:
                known = self._runs[state] = self._compute_runs(self._numbers.states[state])
            return known

    def _compute_runs(self, places: tuple[int, ...]) -> list[Run]:
        spend(3000)
        moves = [{} if at == DEAD else reader.moves(at) for reader, at in zip(self._readers, places, strict=True)]
        runs: list[Run] = []
        for byte in sorted({byte for each in moves for byte in each}):
            after = self._numbers[tuple([each.get(byte, DEAD) for each in moves])]
            if runs and runs[-1][1:] == (byte - 1, after):
                runs[-1] = (runs[-1][0], byte, after)
            else:
                runs.append((byte, byte, after))
        return runs

    def is_accepting(self, state: int) -> bool:
        """Test whether a text may end in a state."""
        with self._lock:
            both = zip(self._readers, self._numbers.states[state], strict=True)
            return any(at != DEAD and reader.is_accepting(at) for reader, at in both)

    def needed(self, state: int) -> int:
        """Return the bytes from a state to the end of a short text; NEVER if there is none."""
        with self._lock:
            both = zip(self._readers, self._numbers.states[state], strict=True)
            return min((reader.needed(at) for reader, at in both if at != DEAD), default=NEVER)

    def table(self) -> Table:
        """Return all states as a minimised table; for small sets."""
        rows: list[NDArray[np.int32]] = []
        while len(rows) < len(self._numbers):
            row = np.full(256, DEAD, np.int32)
            for first, last, after in self.runs(len(rows)):
                row[first : last + 1] = after
            rows.append(row)
        accepting = np.array([self.is_accepting(state) for state in range(len(rows))])
        return Table(*minimise(np.stack(rows), accepting))


@cached_growing(256, 16 << 20)
def numerals(case: Number, plain: bool = False) -> NumeralAutomaton:
    """Return the automaton of a set, cached with its states."""
    return NumeralAutomaton(case, plain=plain)


class NumeralNodes:
    """Adds numerals to the current rule of a graph, before the node `end`."""

    def __init__(self, lowering: Lowering, numerals: NumeralAutomaton, end: int) -> None:
        self._graph = lowering.graph
        self._numerals = numerals
        self._end = end
        self._nodes: dict[int, int] = {}

    def entry(self) -> int:
        """Return the node before the first digit."""
        return self._node(self._numerals.start)

    def _node(self, state: int) -> int:
        node = self._nodes.get(state)
        if node is None:
            node = self._nodes[state] = self._graph.lazy_node(
                lambda node: self._define(node, state), lambda: self._numerals.needed(state), self._end
            )
        return node

    def _define(self, node: int, state: int) -> None:
        edges = [(first, last, self._node(after)) for first, last, after in self._numerals.runs(state)]
        links = ((EPSILON, self._end, 0),) if self._numerals.is_accepting(state) else ()
        self._graph.define(node, edges, links)


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


def tailed(integer: Node, fraction: Node, exponent: Node, notation: str | None) -> Node:
    """Return a whole number with the optional fraction and exponent of a notation."""
    if notation == "integer":
        return integer
    if notation == "real":
        return Sequence((integer, either(exponent, Sequence((fraction, Repeat(exponent, 0, 1))))))
    return Sequence((integer, Repeat(fraction, 0, 1), Repeat(exponent, 0, 1)))


@lru_cache(maxsize=16)
def unbounded(notation: Notation | None, positive: bool, integers_only: bool) -> Table:
    """Return a table of all numbers from 0 up (or all above 0; or all whole ones) in "any" spelling."""
    node = tailed(
        POSITIVE_WHOLE if positive else WHOLE,
        *((ZERO_FRACTION, WHOLE_EXPONENT) if integers_only else (FRACTION, EXPONENT)),
        notation,
    )
    if notation != "integer":
        case = Number(0, exclusive_minimum=positive, multiple_of=1 if integers_only else None, notation=notation)
        small = (Sequence((POSITIVE_FRACTION, Repeat(SMALL_EXPONENT, 0, 1))),) if positive and not integers_only else ()
        node = either(node, *small, NumeralAutomaton(case).table())
    graph = Graph()
    dfa = Dfa.of(ChartAutomaton(graph, Lowering(graph).rule(node))).minimised()
    return Table(dfa.transitions, dfa.accepting, dfa.start)


@lru_cache(maxsize=2)
def unbounded_floats(positive: bool) -> Table:
    """Return a table of all numbers from 0 up (or above 0), written as by json.dumps plus optional final zeros."""
    return NumeralAutomaton(Number(0, exclusive_minimum=positive, notation="real"), plain=True).table()


def float_texts(value: Rational) -> Iterator[str]:
    """Yield the float texts of a number from 0 up, plus optional final zeros."""
    places = decimal_places(value)
    if places is None:
        return
    text = str(int(value * 10**places)).rjust(places + 1, "0")
    integer, fraction = text[: len(text) - places], text[len(text) - places :]
    padded = (fraction.ljust(count, "0") for count in range(max(places, 1), MAX_PADDED + 1))
    texts = dict.fromkeys((*(f"{integer}.{each}" for each in (fraction, *padded)), number_text(value, True)))
    yield from filter(_is_float, texts)


def _is_float(text: str) -> bool:
    """Test whether a text is that of a float from 0 up."""
    table = unbounded_floats(False)
    state = table.start
    for byte in text.encode():
        state = table.transitions.item(state, byte)
        if state == DEAD:
            return False
    return table.accepting.item(state)


MAX_DIGITS = 4300
"""Default limit on digits of int(), and so of json.loads."""
FLOAT_DIGITS = 308
"""Whole numbers with up to this many digits are finite floats."""
MAX_LISTED, MAX_LARGE_LISTED, LARGE_STEP = 64, 4096, 1000
"""Maximum number of multiples within bounds that are listed one by one; the second for steps from LARGE_STEP on."""

OPTIONAL_MINUS = Repeat(MINUS, 0, 1)
ZERO_TEXTS = {notation: tailed(ZERO, ZERO_FRACTION, EXPONENT, notation) for notation in (None, "integer", "real")}


class LazyNumbers(NamedTuple):
    """Numbers from 0 up whose automaton states are made on demand, because they may be many.

    plain: as json.dumps writes floats
    """

    case: Number
    plain: bool


class SignedTexts(NamedTuple):
    """A part of a set's texts: a sign or none, and the rest."""

    sign: Node
    digits: Node | LazyNumbers


def number_rule(lowering: Lowering, case: Number, spelling: Spelling) -> int:
    """Return the start node of a new rule for a set of numbers of any size."""
    graph = lowering.graph
    with graph.new_rule() as start:
        end = graph.final()
        links: list[tuple[int, int, int]] = []
        for sign, digits in _parts(case, spelling):
            if isinstance(digits, LazyNumbers):
                nodes = NumeralNodes(lowering, numerals(digits.case, digits.plain), end)
                entry = lowering.lower(sign, nodes.entry())
            else:
                entry = lowering.lower(Sequence((sign, digits)), end)
            assert entry is not None, "there are such numbers"
            links.append((EPSILON, entry, 0))
        graph.define(start, links=links)
    return start


def spelt_numbers(case: Number, spelling: Spelling) -> Node | None:
    """Return the texts of a set as syntax; NOTHING if there are none, None if some are `LazyNumbers`."""
    found: list[Node] = []
    for sign, digits in _parts(case, spelling):
        if isinstance(digits, LazyNumbers):
            return None
        found.append(digits if sign is EMPTY else Sequence((sign, digits)))
    return either(*found)


@cached(4096, 8 << 20)
def fewest_number_bytes(case: Number, spelling: Spelling) -> int:
    """Return the length of the shortest text of a nonempty set."""
    return min((sign is MINUS) + _fewest(digits) for sign, digits in _parts(case, spelling))


def _fewest(digits: Node | LazyNumbers) -> int:
    if not isinstance(digits, LazyNumbers):
        return fewest_bytes(digits)
    read = numerals(digits.case, digits.plain)
    return read.needed(read.start)


def _parts(case: Number, spelling: Spelling) -> list[SignedTexts]:
    """Return the texts of a set as nonempty alternatives."""
    found = _in_any_spelling(case) if spelling == "any" else _plain(case)
    return [part for part in found if part.digits is not NOTHING]


def _in_any_spelling(case: Number) -> Iterator[SignedTexts]:
    if case.values is not None:
        places = partial(places_of_points, exponents=written_exponents(case.texts))
        yield from (SignedTexts(EMPTY, node) for node in spelt_constants(case.values - {0}, case.notation, places))
        if 0 in case.values:
            yield SignedTexts(OPTIONAL_MINUS, ZERO_TEXTS[case.notation])
        return
    above, below = _from_0(case), _from_0(_negated(case))
    if above is not None:
        yield SignedTexts(OPTIONAL_MINUS if above == below else EMPTY, _unsigned(above))
    if below is not None and above != below:
        yield SignedTexts(MINUS, _unsigned(below))


def _plain(case: Number) -> Iterator[SignedTexts]:
    if case.values is not None:
        yield SignedTexts(EMPTY, either(*(Literal(text.encode()) for text in plain_constants(case))))
        return
    is_integer = case.notation != "real" and case.multiple_of is not None and not decimal_step(case.multiple_of)[1]
    if case.either and not is_integer:
        for leaf in leaves(case):
            yield from _plain(leaf)
        return
    if case.notation != "real":
        most = MAX_DIGITS if is_integer or case.notation == "integer" else FLOAT_DIGITS
        for sign, side in _signs(replace(case, notation="integer")):
            yield from (SignedTexts(sign, digits) for digits in _integer_digits(side, most))
    if case.notation != "integer" and not is_integer:
        for sign, side in _signs(replace(case, notation="real")):
            yield SignedTexts(sign, _floats(side))


def _signs(case: Number) -> Iterator[tuple[Node, Number]]:
    """Yield the members without and with a minus; an integer 0 has none."""
    above, below = _from_0(case), _from_0(_negated(case))
    if above is not None:
        yield EMPTY, above
    if below is not None and case.notation == "integer" and below.minimum == 0:
        below = None if below.maximum == 0 else replace(below, exclusive_minimum=True)
    if below is not None:
        yield MINUS, below


def _negated(case: Number) -> Number:
    """Return the set of negated members."""
    return replace(
        case,
        minimum=None if case.maximum is None else -case.maximum,
        maximum=None if case.minimum is None else -case.minimum,
        exclusive_minimum=case.exclusive_maximum,
        exclusive_maximum=case.exclusive_minimum,
        values=None if case.values is None else frozenset(-value for value in case.values),
        excluded=frozenset(-value for value in case.excluded),
        texts=frozenset(),
        either=tuple(tuple(map(_negated, group)) for group in case.either),
    )


def _from_0(case: Number) -> Number | None:
    """Return the members from 0 up of a set without `values`, simplified; None if the bounds exclude all."""
    low, low_open = case.minimum, case.exclusive_minimum
    high, high_open = case.maximum, case.exclusive_maximum
    if low is None or low < 0:
        low, low_open = 0, False
    if low == 0:
        low_open = low_open or 0 in case.excluded or bool(case.not_multiple_of)
    if high is not None and (low > high or (low == high and (low_open or high_open))):
        return None
    if high == 0 and case.either:  # the groups of a set with one number are decided here
        return _zero_in_groups(case)
    step = case.multiple_of
    if case.notation == "integer":
        step = 1 if step is None else least_common_multiple(step, 1)
    excluded = frozenset(value for value in case.excluded if value > 0 and value >= low)
    return Number(
        low,
        high,
        low_open,
        high is not None and high_open,
        step,
        case.not_multiple_of,
        case.notation,
        excluded=frozenset(value for value in excluded if high is None or value <= high),
        either=case.either,
    )


def _zero_in_groups(case: Number) -> Number | None:
    """Return the set of 0 in the notations that all groups allow; None if there is none."""
    groups = Number(notation=case.notation, either=case.either)
    as_integer, as_real = contains(groups, 0, "integer"), contains(groups, 0, "real")
    if not (as_integer or as_real):
        return None
    if as_integer and as_real:
        return Number(0, 0, notation=case.notation)
    return Number(0, 0, notation="integer" if as_integer else "real")


def _unsigned(case: Number) -> Node | LazyNumbers:
    """Return the texts of numbers from 0 up, in "any" spelling."""
    high, notation, step = case.maximum, case.notation, case.multiple_of
    if high == 0:
        return ZERO_TEXTS[notation]
    if _is_unbounded(case):
        return unbounded(notation, case.exclusive_minimum or case.minimum != 0, step == 1)
    is_range = step == 1 and not (case.not_multiple_of or case.excluded) and not has_exponents(case)
    if not is_range and is_listed(case):
        members = _members(case)
        nodes = spelt_constants(members - {0}, notation, places_of_serialisers)
        return either(*nodes, *((ZERO_TEXTS[notation],) if 0 in members else ()))
    return _numerals(case, plain=False)


def _is_unbounded(case: Number) -> bool:
    """Test whether only sign, notation and wholeness matter."""
    if case.maximum is not None or case.not_multiple_of or case.excluded or case.either:
        return False
    return case.minimum == 0 if case.multiple_of is None else case.multiple_of == 1 and _least(case) <= 1


def _least(case: Number) -> int:
    """Return the least integer within the lower bound; 1 for an open bound of 0."""
    assert case.minimum is not None
    return int(case.minimum // 1 + 1 if case.exclusive_minimum else -(-case.minimum // 1))


def _numerals(case: Number, *, plain: bool) -> Node | LazyNumbers:
    read = numerals(case, plain)
    return NOTHING if read.needed(read.start) == NEVER else LazyNumbers(case, plain)


def is_listed(case: Number) -> bool:
    """Test whether the members are few enough to be listed."""
    if case.multiple_of is None or case.maximum is None or case.either:
        return False
    first, last = _steps_within(case)
    return last - first < (MAX_LISTED if decimal_step(case.multiple_of)[0] < LARGE_STEP else MAX_LARGE_LISTED)


def _steps_within(case: Number) -> tuple[int, int]:
    """Return the first and last multiple within the bounds, as multiples of the step."""
    assert case.multiple_of is not None and case.maximum is not None and case.minimum is not None
    return int(-(-case.minimum // case.multiple_of)), int(case.maximum // case.multiple_of)


def _members(case: Number) -> frozenset[Rational]:
    """Return the members among the multiples within the bounds."""
    step = case.multiple_of
    assert step is not None
    first, last = _steps_within(case)
    return frozenset(value for value in (index * step for index in range(first, last + 1)) if contains(case, value))


def _integer_digits(case: Number, most: int) -> Iterator[Node | LazyNumbers]:
    """Yield unsigned integers, with at most `most` digits if nothing else bounds them; multiples of any length."""
    if case.maximum is not None or case.multiple_of != 1 or case.not_multiple_of or case.either:
        yield _unsigned(case)
        return
    bounds = [int(value) for value in (case.minimum, *case.excluded) if value is not None and value >= 1]
    length = min(len(str(max(bounds))), most) if bounds else 0
    greatest = 10**length - 1
    if not bounds and not case.minimum and not case.exclusive_minimum:
        yield ZERO
    elif bounds and (case.minimum is None or case.minimum <= greatest):
        yield _unsigned(replace(case, maximum=greatest))
    if length < most:
        yield Sequence((NOT_ZERO, Repeat(DIGIT, length, most - 1)))


def _floats(case: Number) -> Node | LazyNumbers:
    """Return numbers from 0 up as json.dumps writes floats."""
    if case.maximum == 0 or is_listed(case):
        members = _members(case) if case.maximum else (0,)
        return either(*(Literal(text.encode()) for value in sorted(members) for text in float_texts(value)))
    if case.multiple_of is None and _is_unbounded(case):
        return unbounded_floats(case.exclusive_minimum)
    return _numerals(case, plain=True)
