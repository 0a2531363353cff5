"""Prefixes of markers in free text: the automaton of A. Aho and M. Corasick (1975).

A state is the longest prefix of a marker that the text so far ends with. Transitions are computed on demand, since
a text meets few of hundreds of markers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from ...errors import OptionError
from ...kernels.chart.rows import FIRST_LEAD
from ...kernels.utf8 import FIRST_NEXT, FORMS, LAST_LEAD, LAST_NEXT, LAST_SECOND, LEAD, MORE, SECOND
from ...tokenizers_adapter.marked import MARK
from ..automata.charsets import LAST
from ..cached import cached
from ..graph.array_graph import Span, span_of
from ..limits import spend

STEPS_PER_BYTE = 20
LONGEST = 1000
"""The most bytes of a marker."""

_FORMS: list[list[int]] = FORMS.tolist()


class Markers:
    """Nonempty markers by number. Raises OptionError where one contains another."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        self.texts = texts
        self.numbers: dict[bytes, list[int]] = {}
        self._next: dict[bytes, set[int]] = {b"": set()}
        for number, text in enumerate(texts):
            if len(text) > LONGEST:
                raise OptionError(f"marker {number} has {len(text):,} bytes; the limit is {LONGEST:,}")
            spend(STEPS_PER_BYTE * len(text))
            self.numbers.setdefault(text, []).append(number)
            for end in range(len(text)):
                self._next.setdefault(text[:end], set()).add(text[end])
        self._ordered = sorted(self.numbers)
        for text, longer in pairwise(self._ordered):
            if longer.startswith(text):
                raise _containment_error(text, longer)
        for text in self._ordered:
            self._check_alone(text)

    def targets(self, prefix: bytes) -> dict[int, bytes]:
        """Return the bytes after which a text that ends with `prefix` ends with a prefix of a marker, with the prefix.

        Whole markers are included.
        """
        spend(STEPS_PER_BYTE * (1 + len(prefix)))
        found: dict[int, bytes] = {}
        for start in range(len(prefix) + 1):
            border = prefix[start:]
            for byte in self._next.get(border, ()):
                found.setdefault(byte, border + bytes((byte,)))
        return found

    def loop(self) -> Span:
        """Return the span of ASCII bytes and lead bytes that no marker begins with."""
        low, high, leads = span_of(((0, LAST),))
        for byte in self._next[b""]:
            if byte < 64:
                low &= ~(1 << byte)
            elif byte < FIRST_NEXT:
                high &= ~(1 << (byte - 64))
            elif byte != MARK:
                leads &= ~(1 << (byte - FIRST_LEAD))
        return low, high, leads

    def below(self, prefix: bytes) -> list[bytes]:
        """Return the markers with this prefix."""
        first = bisect_left(self._ordered, prefix)
        last = first
        while last < len(self._ordered) and self._ordered[last].startswith(prefix):
            last += 1
        return self._ordered[first:last]

    def _check_alone(self, text: bytes) -> None:
        """Raise OptionError for a marker inside another, not at its start."""
        first = self._next[b""]
        for start in range(1, len(text)):
            if text[start] not in first:
                continue
            end = start + 1
            while end < len(text) and text[start:end] in self._next:
                end += 1
            spend(STEPS_PER_BYTE * (end - start))
            if text[start:end] in self.numbers:
                raise _containment_error(text[start:end], text)


@cached(64, 1 << 20)
def markers_of(texts: tuple[bytes, ...]) -> Markers:
    """Return the cached `Markers` of some texts."""
    return Markers(texts)


def _containment_error(text: bytes, longer: bytes) -> OptionError:
    """Return the error for a marker inside another: the inner one would match first."""
    return OptionError(
        f"the marker {_label(longer)} contains the marker {_label(text)}, which would begin its part first; let the "
        "constraint read what they do not have in common"
    )


def place_of(prefix: bytes) -> int:
    """Return the position inside a character after a prefix of a marker, as in `utf8_step`; -1 for invalid UTF-8."""
    place = 0
    for byte in prefix:
        place = next((after for first, last, after in ways(place) if first <= byte <= last), -1)
        if place < 0:
            break
    return place


def ways(place: int) -> list[tuple[int, int, int]]:
    """Return the bytes that may follow at a position in a character: (first byte, last byte, position after)."""
    if place == 0:
        return [(0, FIRST_NEXT - 1, 0), *((form[LEAD], form[LAST_LEAD], 1 + at) for at, form in enumerate(_FORMS))]
    if place <= len(_FORMS):
        form = _FORMS[place - 1]
        return [(form[SECOND], form[LAST_SECOND], 0 if form[MORE] == 0 else len(_FORMS) + form[MORE])]
    return [(FIRST_NEXT, LAST_NEXT, place - 1 if place > len(_FORMS) + 1 else 0)]


def bytes_left(place: int) -> int:
    """Return the number of bytes left in a character from a position on."""
    if place == 0:
        return 0
    return _FORMS[place - 1][MORE] + 1 if place <= len(_FORMS) else place - len(_FORMS)


def _label(text: bytes) -> str:
    return "of a token" if text[0] == MARK else repr(text.decode(errors="replace"))
