"""Automaton of numbers with an exponent: one whole digit, an optional fraction, and the exponent.

The exponents that may follow a mantissa depend on its comparison with the digits of all bounds, and on when zeros make
it a multiple. A state is the relevant part of a mantissa; the set of exponents is computed when `e` is read. With
digits M, `places` of them after the point, and the exponent e, a number is M * 10^(e - places). If M does not end in 0,
it is a multiple of P / 10^m iff e - places + m is at least the number of zeros that make M a multiple of P.

A set of exponents is an integer with bit `exponent - MIN_EXPONENT` set for each member. Leading zeros and `+` do not
matter. States within exponents: `(E, members)` after the `e`; `(FIRST, natural, ends)` before the first nonzero digit,
where bit n of `natural` stands for the number n; `(FURTHER, ends, tens, hundreds)` after it, with bits for the next
digit, and for the next two.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from heapq import heappop, heappush
from itertools import count, pairwise
from math import lcm
from typing import Any

from .....kernels.answers import NEVER
from ....automata.dfa import StateNumbering
from ....cached import cached
from ....limits import spend
from ...algebra.cases import Number, Rational
from ...algebra.numbers import contains
from .literals import compared, decimal_places, decimal_step, parts

MIN_EXPONENT, GREATEST_EXPONENT = -324, 308
"""Range of the exponents of finite floats."""
E, FIRST, FURTHER = range(10, 13)
PLUS_BYTE, MINUS_BYTE, ZERO_BYTE = b"+-0"

Come = tuple[int, ...]


def between(least: int, greatest: int) -> int:
    """Return the set of exponents from `least` to `greatest`, clipped to those of floats."""
    low, high = max(least, MIN_EXPONENT), min(greatest, GREATEST_EXPONENT)
    return 0 if low > high else (1 << (high + 1 - MIN_EXPONENT)) - (1 << (low - MIN_EXPONENT))


PLAIN_EXPONENTS = between(16, GREATEST_EXPONENT) | between(MIN_EXPONENT, -5)
"""Exponents that json.dumps writes, with a sign and two or three digits."""


def _natural(members: int) -> int:
    """Return the members from 0 up: bit n is set for n."""
    return members >> -MIN_EXPONENT


def _mirrored(members: int) -> int:
    """Return the members from 0 down, negated: bit n is set for -n."""
    width = 1 - MIN_EXPONENT
    return int(f"{members & ((1 << width) - 1):0{width}b}"[::-1], 2)


@cached(4096, 1 << 20)
def exponent_moves(come: Come, *, plain: bool) -> tuple[tuple[int, Come], ...]:
    """Return the live transitions of a state as (byte, state). plain: as json.dumps writes exponents"""
    digits = ((ZERO_BYTE + digit, _after(come, digit, plain)) for digit in range(10))
    found = [*digits] if come[0] != E or not plain else []
    if come[0] == E:
        found += [
            (PLUS_BYTE, (FIRST, _natural(come[1]), 0)),
            (MINUS_BYTE, (FIRST, _mirrored(come[1]), 0)),
        ]
    return tuple((byte, after) for byte, after in found if exponent_bytes(after, plain=plain) < NEVER)


def _after(come: Come, digit: int, plain: bool) -> Come:
    if come[0] == FURTHER:
        return FURTHER, come[2] >> digit & 1, come[3] >> 10 * digit & 0x3FF, 0
    members = _natural(come[1]) if come[0] == E else come[1]
    if not digit and not plain:
        return FIRST, members, members & 1
    ends, tens, hundreds = members >> digit & 1, members >> 10 * digit & 0x3FF, members >> 100 * digit & (1 << 100) - 1
    return (FURTHER, 0, tens, hundreds if digit else 0) if plain else (FURTHER, ends, tens, hundreds)


def exponent_ends(come: Come) -> bool:
    """Test whether a text may end in a state."""
    return come[0] in (FIRST, FURTHER) and bool(come[2 if come[0] == FIRST else 1])


def exponent_bytes(come: Come, *, plain: bool) -> int:
    """Return the bytes to the end of a shortest text; NEVER if there is none."""
    least = 2 if plain else 1
    if come[0] == FURTHER:
        return next((count for count, bits in enumerate(come[1:]) if bits), NEVER)
    if come[0] == FIRST:
        return 0 if come[2] else max(least, _fewest_digits(come[1])) if come[1] else NEVER
    plus, minus = _natural(come[1]), _mirrored(come[1])
    signed = [1 + max(least, _fewest_digits(members)) for members in (plus, minus) if members]
    return min([*signed, *((_fewest_digits(plus),) if plus and not plain else ())], default=NEVER)


def _fewest_digits(natural: int) -> int:
    """Return the number of digits of the least of some natural numbers."""
    return len(str((natural & -natural).bit_length() - 1))


START, ZERO, ZERO_POINT, ZERO_FRACTION, MANTISSA, POINT, FRACTION = range(7)
POINT_BYTE = 0x2E
GREATEST_DIGITS = "17976931348623157"
"""Digits of the greatest float."""
MAX_PLACES = 16
"""Maximum number of fraction digits that json.dumps writes before an exponent."""
MAX_REMAINDERS = 128
"""Maximum number of remainders tracked in fractions; beyond it, exponents follow whole digits only."""
EXPONENTS_FROM = 10**16
"""json.dumps writes floats from here on with an exponent. Sets of smaller multiples have no exponents."""
MAX_WRITTEN_OUT = 4
"""json.dumps writes numbers below 1 with up to this many decimal places without an exponent."""

Beginning = tuple[Any, ...]
"""A state: a phase; for a nonzero mantissa also its digits, how many follow the point, and how they compare with the
digits of each bound, over the shorter length; or the state of an exponent."""


def has_exponents(case: Number) -> bool:
    """Test whether exponents may follow the members' mantissas."""
    if case.notation == "integer":
        return False
    if case.multiple_of is None:
        return True
    is_large = case.maximum is None or case.maximum >= EXPONENTS_FROM
    return is_large or decimal_step(case.multiple_of)[1] > MAX_WRITTEN_OUT


def remainders(case: Number) -> Iterator[int]:
    """Yield the number of relevant remainders for each factor of a set, where trailing zeros are no digits."""
    for one in parts(case):
        for factor in (one.multiple_of, *one.not_multiple_of):
            number = 1 if factor is None else decimal_step(factor)[0]
            while number % 10 == 0:
                number //= 10
            yield number


def fraction_places(case: Number) -> int | None:
    """Return the maximum number of fraction digits, without final zeros; None for any number."""
    if case.multiple_of is None and not case.not_multiple_of and not case.either:
        return None
    product = 1
    for number in remainders(case):
        product *= number
    return 0 if case.either or product > MAX_REMAINDERS else MAX_PLACES


class Scientific:
    """The texts with an exponent of the members of a set from 0 up.

    plain: as json.dumps writes floats
    """

    def __init__(self, case: Number, *, plain: bool = False) -> None:
        self._case = case
        self._plain = plain
        most = fraction_places(case)
        self._most_places = MAX_PLACES if plain and most is None else most
        self._remainders = 1 if most is None else lcm(*remainders(case))
        self._marks = sorted({GREATEST_DIGITS, *(digits_of(value)[0] for value in compared(case) if value > 0)})
        self._longest = max(map(len, self._marks))
        self._has_zero = not plain and contains(case, 0, "real")
        self._numbers: StateNumbering[tuple[object, ...]] = StateNumbering()
        self._beginnings: dict[int, Beginning] = {}
        self._goes_on: dict[int, dict[int, int]] = {}
        self._exponents: dict[int, int] = {}
        self._needed: dict[int, int] = {}
        self.start = self._state((START,))

    def moves(self, state: int) -> dict[int, int]:
        """Return the live transitions of a state."""
        prefix = self._beginnings[state]
        if prefix[0] >= E:
            return {byte: self._state(after) for byte, after in exponent_moves(prefix, plain=self._plain)}
        found = {byte: after for byte, after in self._mantissas(state).items() if self.needed(after) < NEVER}
        members = self._members(state)
        if members:
            found.update(dict.fromkeys(b"e" if self._plain else b"Ee", self._state((E, members))))
        return found

    def _mantissas(self, state: int) -> dict[int, int]:
        """Return the transitions of a mantissa, dead ones included."""
        found = self._goes_on.get(state)
        if found is None:
            found = self._goes_on[state] = self._found(self._beginnings[state])
        return found

    def _found(self, prefix: Beginning) -> dict[int, int]:
        if prefix[0] in (ZERO, MANTISSA):
            return {POINT_BYTE: self._state((ZERO_POINT,) if prefix[0] == ZERO else (POINT, *prefix[1:]))}
        found: dict[int, int] = {}
        for first, end in pairwise(self._alike(prefix)):
            after = self._after(prefix, first)
            if after is not None:
                found.update(dict.fromkeys(range(ZERO_BYTE + first, ZERO_BYTE + end), self._state(after)))
        return found

    def _alike(self, prefix: Beginning) -> list[int]:
        """Return the starts of ranges of digits with the same successor, and 10 at the end."""
        if self._remainders > 1:
            return list(range(11))
        count = len(str(prefix[1])) if prefix[0] in (POINT, FRACTION) else 0
        relations = prefix[3] if count else [0] * len(self._marks)
        equal = (
            int(mark[count : count + 1] or 0)
            for mark, relation in zip(self._marks, relations, strict=True)
            if not relation
        )
        return sorted({0, 1, 10, *(cut for digit in equal for cut in (digit, digit + 1))})

    def _after(self, prefix: Beginning, digit: int) -> Beginning | None:
        """Return the state after one more mantissa digit; None if it is refused."""
        phase = prefix[0]
        if phase == START and not digit:
            return (ZERO,) if self._has_zero else None
        if phase in (ZERO_POINT, ZERO_FRACTION):
            return None if digit else (ZERO_FRACTION,)
        if phase == START:
            _, digits, places, relations = MANTISSA, 0, -1, (0,) * len(self._marks)
        else:
            _, digits, places, relations = prefix
        if places == self._most_places:
            is_same = not digit and not self._plain and _has_only_zeros(prefix)
            return (FRACTION, digits, places, relations) if is_same else None
        compared = (
            relation or _compared(digit, int(mark[places + 1 : places + 2] or 0))
            for mark, relation in zip(self._marks, relations, strict=True)
        )
        return (MANTISSA if phase == START else FRACTION, 10 * digits + digit, places + 1, tuple(compared))

    def _state(self, prefix: Beginning) -> int:
        state = self._numbers[self._key(prefix) if prefix[0] in (MANTISSA, POINT, FRACTION) else prefix]
        self._beginnings.setdefault(state, prefix)
        return state

    def _key(self, prefix: Beginning) -> tuple[object, ...]:
        """Return the part of a mantissa that decides its continuations."""
        phase, digits, places, relations = prefix
        position = min(places, self._longest) if 0 in relations else 0
        if self._most_places is None:
            return phase, position, relations
        only_zeros = _has_only_zeros(prefix)
        rest = (digits // 10**places if only_zeros else digits) % self._remainders
        return phase, position, places, only_zeros, digits % 10 == 0, rest, relations

    def _members(self, state: int) -> int:
        """Return the exponents that may follow a mantissa; the empty set if none may."""
        known = self._exponents.get(state)
        if known is None:
            known = self._exponents[state] = self._following(self._beginnings[state])
        return known

    def _following(self, prefix: Beginning) -> int:
        phase = prefix[0]
        if phase in (ZERO, ZERO_FRACTION):
            return between(MIN_EXPONENT, GREATEST_EXPONENT - 1)
        if phase not in (MANTISSA, FRACTION):
            return 0
        digits = prefix[1]
        may_end_in_0 = not self._plain and (self._most_places is None or _has_only_zeros(prefix))
        if phase == FRACTION and digits % 10 == 0 and not may_end_in_0:
            return 0
        text = str(digits).rstrip("0")
        members = between(MIN_EXPONENT, GREATEST_EXPONENT - (text > GREATEST_DIGITS))
        members &= exponents_of(self._case, text)
        return members & PLAIN_EXPONENTS if self._plain else members

    def is_accepting(self, state: int) -> bool:
        """Test whether a text may end in a state."""
        return exponent_ends(self._beginnings[state])

    def needed(self, state: int) -> int:
        """Return the bytes from a state to the end of a shortest text; NEVER if there is none."""
        known = self._needed.get(state)
        if known is None:
            prefix = self._beginnings[state]
            is_exponent = prefix[0] >= E
            known = exponent_bytes(prefix, plain=self._plain) if is_exponent else self._search(state)
            self._needed[state] = known
        return known

    def _search(self, state: int) -> int:
        """Return the fewest bytes from a mantissa to the end of an exponent, by best-first search."""
        fewest, best, order = NEVER, state, count()
        waiting = [(self._least(state), next(order), state)]
        ways = {state: (0, state)}  # number of digits on the path, and the previous state
        while waiting and waiting[0][0] < fewest:
            spend(300)
            _, _, one = heappop(waiting)
            depth, known = ways[one][0], self._needed.get(one)
            if known is None:
                members = self._members(one)
                known = 1 + exponent_bytes((E, members), plain=self._plain) if members else NEVER
                for after in {*self._mantissas(one).values()} if known > 3 else ():
                    if after not in ways:
                        ways[after] = depth + 1, one
                        heappush(waiting, (depth + 1 + self._least(after), next(order), after))
            if depth + known < fewest:
                fewest, best = depth + known, one
        while best != state and fewest < NEVER:
            depth, before = ways[best]
            self._needed.setdefault(best, fewest - depth)
            best = before
        return min(fewest, NEVER)

    def _least(self, state: int) -> int:
        """Return a lower bound on the bytes from a mantissa to the end of an exponent; NEVER if bounds exclude all."""
        known = self._needed.get(state)
        if known is not None:
            return known
        prefix = self._beginnings[state]
        if prefix[0] in (START, ZERO, ZERO_POINT, ZERO_FRACTION):
            return 2
        _, digits, _, relations = prefix
        low, high = self._range
        least = low[1] + (low[0] >= 0 and relations[low[0]] < 0)
        most = high[1] - (high[0] >= 0 and relations[high[0]] > 0)
        members = between(least, most)
        if not (members & PLAIN_EXPONENTS if self._plain else members):
            return NEVER
        missing = self._missing
        return 2 + missing[int(digits) % len(missing)]

    @cached_property
    def _range(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """For the lower and upper bound: index of its digits in the marks (-1 for none), and its exponent."""
        low, high = (-1, MIN_EXPONENT), (-1, GREATEST_EXPONENT)
        if self._case.values is None and self._case.minimum is not None and self._case.minimum > 0:
            digits, exponent = digits_of(self._case.minimum)
            low = self._marks.index(digits), exponent
        if self._case.values is None and self._case.maximum is not None and self._case.maximum > 0:
            digits, exponent = digits_of(self._case.maximum)
            high = self._marks.index(digits), exponent
        return low, high

    @cached_property
    def _missing(self) -> list[int]:
        """For each remainder of a mantissa, the fewest digits that make it a multiple, up to trailing zeros."""
        step = self._case.multiple_of
        modulus = 1 if step is None or not self._most_places else _coprime(decimal_step(step)[0])
        missing, far = [-1] * modulus, 0
        missing[0] = 0
        while -1 in missing:
            far += 1
            new = [
                rest
                for rest in range(modulus)
                if missing[rest] < 0 and any(missing[(10 * rest + digit) % modulus] == far - 1 for digit in range(10))
            ]
            for rest in new:
                missing[rest] = far
        return missing


def _has_only_zeros(prefix: Beginning) -> bool:
    return prefix[1] % 10 ** prefix[2] == 0


def _compared(digit: int, other: int) -> int:
    return (digit > other) - (digit < other)


@cached(4096, 1 << 20)
def digits_of(value: Rational) -> tuple[str, int]:
    """Return the digits of a positive decimal number without trailing zeros, and its exponent."""
    places = decimal_places(value)
    assert places is not None, "bounds are decimal numbers"
    text = str(int(value * 10**places))
    return text.rstrip("0"), len(text) - places - 1


def exponents_of(case: Number, text: str) -> int:
    """Return the exponents that make some digits a member of a set; one digit is before the point."""
    if case.notation == "integer":
        return 0
    members = between(MIN_EXPONENT, GREATEST_EXPONENT)
    if case.values is not None:
        values = [digits_of(value) for value in case.values if value > 0 and decimal_places(value) is not None]
        return sum(between(exponent, exponent) for digits, exponent in values if digits == text)
    if case.minimum is not None and case.minimum > 0:
        digits, exponent = digits_of(case.minimum)
        is_less = text < digits or (case.exclusive_minimum and text == digits)
        members &= between(exponent + is_less, GREATEST_EXPONENT)
    if case.maximum is not None:
        if case.maximum <= 0:
            return 0
        digits, exponent = digits_of(case.maximum)
        is_more = text > digits or (case.exclusive_maximum and text == digits)
        members &= between(MIN_EXPONENT, exponent - is_more)
    if case.multiple_of is not None:
        members &= _multiples(case.multiple_of, text)
    for factor in case.not_multiple_of:
        members &= ~_multiples(factor, text)
    for value in case.excluded:
        digits, exponent = digits_of(value) if value > 0 else ("", 0)
        if digits == text:
            members &= ~between(exponent, exponent)
    for group in case.either:
        some = 0
        for one in group:
            some |= exponents_of(one, text)
        members &= some
    return members


def _multiples(factor: Rational, text: str) -> int:
    """Return the exponents that make some digits a multiple, one digit before the point."""
    mantissa, places = decimal_step(factor)
    digits, zeros = int(text), 0
    if digits % _coprime(mantissa):
        return 0
    while digits * 10**zeros % mantissa:
        zeros += 1
    return between(zeros - places + len(text) - 1, GREATEST_EXPONENT)


@cached(1024, 1 << 20)
def _coprime(number: int) -> int:
    """Return a number without its factors 2 and 5."""
    for prime in (2, 5):
        while number % prime == 0:
            number //= prime
    return number
