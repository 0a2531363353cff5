r"""Ranges in the classes of the format `regex`, of which one tells that the first character is not behind the second.

They are syntax and no pattern: alternatives that begin alike are written with their beginning once, so that few of them
are open at a time, and hundreds need not be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from ...automata.charsets import intersect, normalise
from ...syntax import Alternation, Chars, Literal, Node, Ranges, Sequence
from .patterns import parse

SYNTAX = "^$\\.*+?()[]{}|/-"
HEX = "[0-9A-Fa-f]"

_DIGITS = "0123456789abcdef"
_HEX = Chars(((0x30, 0x39), (0x41, 0x46), (0x61, 0x66)))
_BEYOND = rf"\\x[89A-Fa-f]{HEX}|\\u(?:00[89A-Fa-f]{HEX}|0[1-9A-Fa-f]{HEX}{{2}}|[1-9A-Fa-f]{HEX}{{3}})"
_LOW = rf"(?:\\x|\\u00)[01]{HEX}"
_MARKS = (
    *(
        *range(0x80, 0x100, 0x10),
        0x100,
        0x180,
        0x250,
        0x370,
        *range(0x390, 0x460, 0x10),
        0x530,
        0x5E0,
        0x640,
        0x700,
        0x900,
    ),
    *(0xE40, 0x1000, 0x1E80, 0x2010, 0x3000, 0x3080, 0x30D0, 0x8000, 0xA000, 0xC000, 0xD7FF),
)
"""Between two characters beyond ASCII there is one of these, or the range is not accepted."""

_HYPHEN = Literal(b"-")
_BACKSLASH = Literal(b"\\")


_WIDE = rf"(?:[\u007f-\uFFFF]|{_BEYOND})"
"""The end of a range that is no ASCII character; without the flag `u` one beyond U+FFFF is two."""


def ranges() -> Node:
    """A range that does not begin with a hyphen or a caret."""
    escaped = Alternation(
        (
            *_printable(_OF_SYNTAX),
            Sequence((Literal(b"x"), Alternation((_rising("x", "", 1), _rising("x", "0", 0), _rising("x", "1", 0))))),
            Sequence((Literal(b"u"), Alternation(_rising_by_four()))),
        )
    )
    return Alternation(
        (
            *_printable(_PLAIN_BUT_CARET),
            Sequence((_BACKSLASH, escaped)),
            *(
                Sequence((Chars(((low, high - 1),)), _HYPHEN, Chars(((high, 0xD7FF),))))
                for low, high in pairwise(_MARKS)
            ),
            Sequence((_among(_PLAIN_BUT_CARET, _OF_SYNTAX), parse(f"^-{_WIDE}$"))),
            Sequence(
                (parse(f"^{_LOW}-$"), Alternation((_from(0x20), parse(rf"^(?:(?:\\x|\\u00)[2-7]{HEX}|{_WIDE})$"))))
            ),
            Sequence((parse(r"^\\x20-$"), _from(0x20))),
            parse(rf"^\\x{HEX}{{2}}-\\u(?:0[1-9A-Fa-f]|[1-9A-Fa-f]{HEX}){HEX}{{2}}$"),
        )
    )


def ranges_from_hyphen() -> Node:
    """A range that begins with a hyphen."""
    return Sequence((Literal(b"--"), Alternation((_from(ord("-")), parse(f"^{_WIDE}$")))))


def ranges_from_caret() -> Node:
    """A range that begins with a caret, which is not the first character of a class."""
    return Alternation((*_printable(((ord("^"), ord("^")),)), Sequence((Literal(b"^"), parse(f"^-{_WIDE}$")))))


def _of(codes: Iterable[int]) -> Ranges:
    return normalise((code, code) for code in codes)


def _printable(lows: Ranges) -> list[Node]:
    """Ranges of ASCII characters that can be printed, from one of these; a backslash before it is not told.

    What may stand behind a backslash at the end is the same for many of them.
    """
    found: list[Node] = [
        Sequence((Chars(((code, code),)), _HYPHEN, Chars(_from_on(_PLAIN_OR_HYPHEN, code))))
        for low, high in lows
        for code in range(low, high + 1)
    ]
    last = -1
    for code in sorted(map(ord, SYNTAX)):
        begin = intersect(lows, ((last + 1, code),))
        if begin:
            found.append(Sequence((Chars(begin), Literal(b"-\\"), Chars(_from_on(_OF_SYNTAX, code)))))
        last = code
    return found


def _from_on(ranges: Ranges, first: int) -> Ranges:
    """The characters of a set from one on."""
    return tuple((max(low, first), high) for low, high in ranges if high >= first)


def _from(low: int) -> Alternation:
    """The end of a range that begins with an ASCII character, but for characters beyond; a hyphen, too."""
    return _among(_from_on(_PLAIN_OR_HYPHEN, low), _from_on(_OF_SYNTAX, low))


def _among(plain: Ranges, escaped: Ranges) -> Alternation:
    """Characters that stand for themselves, and others behind a backslash."""
    return Alternation((Chars(plain), Sequence((_BACKSLASH, Chars(escaped)))))


def _rising_by_four() -> tuple[Node, ...]:
    """Behind `\\u`, ranges between numbers of four digits that differ early."""
    # With the flag `u` half of a surrogate pair is one character together with the half before it.
    first = _rising("u", "", 3, but="d")
    low = (_rising("u", "0", 2), _rising("u", "00", 1), _rising("u", "000", 0), _rising("u", "001", 0))
    return (first, *low, *(_rising("u", "20", 1), _rising("u", "30", 1), _rising("u", "f", 2), _rising("u", "ff", 1)))


def _rising(kind: str, begin: str, more: int, but: str = "") -> Node:
    """Behind `\\x` or `\\u`, ranges between such that begin alike and differ in a digit, before `more` others."""
    common, again = _digits(begin), (Literal(b"-\\" + kind.encode()), *_digits(begin))
    if begin.isdecimal():
        common, again = (Literal(begin.encode()),), (Literal(b"-\\" + f"{kind}{begin}".encode()),)
    ways = [
        Sequence((_LOW_DIGITS[at], *more * (_HEX,), *again, _HIGHER_DIGITS[at]))
        for at, digit in enumerate(_DIGITS[:-1])
        if digit not in but
    ]
    return Sequence((*common, Alternation(tuple(ways)), *more * (_HEX,)))


def _digits(text: str) -> tuple[Node, ...]:
    return tuple(Chars(_in_both_cases(digit)) for digit in text)


def _in_both_cases(digits: str) -> Ranges:
    return _of(map(ord, {*digits, *digits.upper()}))


_LOW_DIGITS = [Chars(_in_both_cases(digit)) for digit in _DIGITS]
_HIGHER_DIGITS = [Chars(_in_both_cases(_DIGITS[at + 1 :])) for at in range(15)]
_PLAIN: Ranges = ((0x20, 0x2C), (0x2E, 0x5B), (0x5E, 0x7E))
"""The characters of ASCII that can be printed and stand for themselves in a class, but for the hyphen."""
_PLAIN_BUT_CARET: Ranges = ((0x20, 0x2C), (0x2E, 0x5B), (0x5F, 0x7E))
_PLAIN_OR_HYPHEN: Ranges = ((0x20, 0x5B), (0x5E, 0x7E))
_OF_SYNTAX = _of(map(ord, SYNTAX))
