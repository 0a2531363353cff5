"""Lengths of the texts of values, as numbers: parts that a value has several times are measured once.

A value may be a few lists that hold one another twenty times over: its text has millions of bytes, and is never made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

from ...limits import spend
from ..algebra.cases import String
from ..automata.spelling import spelt
from ..read.dialects import as_written, is_array, is_object
from ..witness.instances import Standing
from ..witness.strings import StandingText
from .form import Spelling
from .numbers.literals import places_of_points, spellings, written_exponents
from .numbers.texts import fewest_number_bytes

MOST = 2**28
"""The greatest number that is told; whatever takes more is out of every budget's reach."""


class Measure(NamedTuple):
    """The bytes of a text that begins in the first column, and how many line breaks are in it."""

    length: int
    lines: int


EMPTY = Measure(2, 0)


class Measures:
    """Measures the texts that json.dumps writes: without any white space, or with so many blanks for each level.

    But for numbers, which are written as the spelling has it; one that stands for a set as the shortest of the set.
    of_strings: the bytes that nodes which count characters say of a string that stands for a set; it may have fewer
    uniform: whether every item counts as long as the longest of its array, where nobody knows which of them are left
    spare: how many bytes more a name counts, where nobody knows which of them are left
    """

    def __init__(
        self,
        indent: int | None,
        spelling: Spelling = "any",
        *,
        uniform: bool = False,
        spare: int = 0,
        of_strings: Callable[[String], int] | None = None,
    ) -> None:
        self._indent = indent
        self._of_strings = of_strings
        self._uniform = uniform
        self._spare = spare
        self._spelling: Spelling = spelling
        # The containers themselves are kept, so that their numbers stay theirs.
        self._known: dict[int, tuple[Any, Measure]] = {}

    def of(self, value: Any) -> Measure:
        """The measure of a value's text."""
        waiting = [value]
        while waiting:
            part = waiting[-1]
            if not (is_object(part) or is_array(part)) or id(part) in self._known:
                waiting.pop()
                continue
            inner: Iterable[Any] = part.values() if is_object(part) else part
            spend(50 + 20 * len(part))
            unknown = [one for one in inner if (is_object(one) or is_array(one)) and one and id(one) not in self._known]
            if unknown:
                waiting += unknown
            else:
                self._known[id(part)] = (part, self._container(part))
                waiting.pop()
        return self._told(value)

    def _told(self, value: Any) -> Measure:
        if is_object(value) or is_array(value):
            return self._known[id(value)][1] if value else EMPTY
        return Measure(self._scalar(value), 0)

    def _container(self, value: Any) -> Measure:
        if not value:
            return EMPTY
        colon = 1 if self._indent is None else 2
        names = [len(spelt(name)) + colon + self._spare for name in value] if is_object(value) else [0] * len(value)
        parts = [self._told(part) for part in (value.values() if is_object(value) else value)]
        if self._uniform and is_array(value):
            parts = [Measure(max(part.length for part in parts), max(part.lines for part in parts))] * len(parts)
        length = 1 + len(parts) + sum(names) + sum(part.length for part in parts)
        if self._indent is None:
            return Measure(min(length, MOST), 0)
        lines = sum(part.lines for part in parts) + len(parts) + 1
        # Each line of a part begins a level deeper; the last one, of the closing bracket, does not.
        return Measure(min(length + len(parts) + 1 + self._indent * (lines - 1), MOST), min(lines, MOST))

    def _scalar(self, value: Any) -> int:
        """The bytes of a value that is no container."""
        if isinstance(value, StandingText) and self._of_strings is not None:
            return min(self._of_strings(value.case), MOST)
        if isinstance(value, str):
            return len(spelt(value))
        if value is None or isinstance(value, bool):
            return 5 if value is False else 4
        if isinstance(value, Standing):
            return min(fewest_number_bytes(value.case, self._spelling), MOST)
        if self._spelling == "plain":
            return len(as_written(value))
        text = as_written(value)
        number, places = Fraction(text), partial(places_of_points, own=written_exponents((text,)))
        if not number:
            return 1
        return min(
            len(mantissa) + len(f"e{exponent}" if exponent else "") for mantissa, exponent in spellings(number, places)
        )
