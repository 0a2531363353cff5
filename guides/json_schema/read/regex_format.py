r"""The format `regex`: regular expressions of ECMA-262, as rules and as a pattern.

What is accepted is so with the flag `u` and without it, but for `\-` outside of classes, which only the latter allows.
That is less than ECMA-262 has: no references back, one named group at most, and of ranges between characters beyond
ASCII, or between their numbers, those that a few comparisons tell to be in order.
"""

from __future__ import annotations

import string
from collections.abc import Iterable
from itertools import pairwise

from ...automata.charsets import intersect, normalise
from ...syntax import Alternation, Chars, Literal, Node, Ranges, Reference, Repeat, Sequence
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
    """A range that does not begin with a hyphen or a caret, and of which one tells that it is in order.

    It is syntax and no pattern: alternatives that begin alike are written with their beginning once, so that few of
    them are open at a time, and hundreds need not be read.
    """
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


_CODE = rf"\\x{HEX}{{2}}|\\u{HEX}{{4}}|\\c[A-Za-z]"
_CLASSES = r"\\[dDsSwW]"
_ASSERTION = r"[\^$]|\\[bB]"
_ZERO = r"\\0"
_NAMED = r"\(\?<[A-Za-z_$][A-Za-z0-9_$]*>"


def _escaped(characters: str) -> str:
    """A backslash and one of these."""
    return rf"\\[{''.join(chr(92) + char for char in characters)}]" if characters else "[]"


_CONTROL = r"\\[fnrtv]"
_NO_CARET = rf"[^\\\]^-]|{_CONTROL}|{_escaped(SYNTAX)}|\\b|{_CODE}"
_ONE = rf"\^|{_NO_CARET}"
"""A character in a class, but for the hyphen."""

_FEW_COUNTS = "[0-9](?:[0-9]?(?:,(?:[1-9][0-9]{2})?)?|,[1-9][0-9])"
_COUNTS = "|".join(
    (
        "[0-9]{1,3},?|[0-9],[1-9][0-9]{1,2}|[1-9][0-9],[1-9][0-9]{2}",
        *(f"{low},[{low}-9]" for low in string.digits),
        *(f"{ten}[0-9],[{int(ten) + 1}-9][0-9]" for ten in string.digits[1:-1]),
        *(f"{ten}{low},{ten}[{low}-9]" for ten in string.digits[1:] for low in string.digits),
    )
)
"""The content of the braces of a quantifier: a count, or two of which the second is not smaller."""


def _quantifier(counts: str) -> str:
    return rf"(?:(?:[*+?]|\{{(?:{counts})\}})\??)"


def _single(of_class: str, quantifier: str) -> str:
    r"""One character or class with its quantifier, or an assertion, which has none.

    `\0` must have a quantifier, so that no digit follows it.
    """
    return rf"(?:(?:{_CHARACTER}|{of_class}){quantifier}?|{_ZERO}{quantifier}|{_ASSERTION})"


_CHARACTER = "|".join((r"[^\\^$.*+?()\[\]{}|]", r"\.", _CONTROL, _escaped(SYNTAX), _CLASSES, _CODE))
"""One character, or a class with a letter, which may have a quantifier."""


def _class() -> Node:
    """A class. A caret stands for itself where it is not the first character."""
    negated = Sequence((Literal(b"^"), Reference(BEHIND_RANGE)))
    return Sequence((Literal(b"["), Alternation((negated, _from_hyphen(), Reference(FIRST_IN_CLASS)))))


def _class_rules() -> dict[str, Node]:
    """The content of a class, with its closing bracket: behind a range or a caret, at first, and elsewhere.

    A hyphen stands for itself at the begin, at the end and behind a range, or begins a range there.
    """
    one, more, behind = parse(f"^(?:{_NO_CARET}|{_CLASSES})$"), Reference(IN_CLASS), Reference(BEHIND_RANGE)
    first = (Sequence((one, more)), Sequence((ranges(), behind)), Literal(b"-]"), Literal(b"]"))
    caret = (Sequence((ranges_from_caret(), behind)), Sequence((Literal(b"^"), more)))
    return {
        BEHIND_RANGE: Alternation((_from_hyphen(), more)),
        IN_CLASS: Alternation((*caret, Reference(FIRST_IN_CLASS))),
        FIRST_IN_CLASS: Alternation(first),
    }


def _from_hyphen() -> Node:
    """Syntax that begins with a hyphen that stands for itself or begins a range."""
    begun = Sequence((ranges_from_hyphen(), Reference(BEHIND_RANGE)))
    return Alternation((begun, Sequence((Literal(b"-"), Reference(IN_CLASS)))))


_FEW_RANGES = "[a-f]-[g-z]|[A-F]-[G-Z]|[0-4]-[5-9]"


def nested(depth: int) -> str:
    """Regular expressions with `depth` levels of groups, as a pattern: long, so with fewer ranges and counts."""
    quantifier = _quantifier(_FEW_COUNTS)
    single = _single(rf"\[\^?-?(?:{_FEW_RANGES}|{_ONE}|{_CLASSES})*-?\]", quantifier)
    branch = f"(?:{single})*"
    for _ in range(depth):
        inside = rf"{branch}(?:\|{branch})*\)"
        branch = rf"(?:{single}|\((?:\?:)?{inside}{quantifier}?|\(\?<?[=!]{inside})*"
    return rf"{branch}(?:\|{branch})*"


WHOLE, BRANCH, INSIDE, NAMED, QUANTIFIER = "whole", "branch", "inside", "named", "quantifier"
BEHIND_RANGE, FIRST_IN_CLASS, IN_CLASS = "behind range", "first in class", "in class"


def rules() -> dict[str, Node]:
    """The rules of regular expressions with any number of levels of groups.

    WHOLE: the first; BRANCH: what stands between bars; INSIDE: what follows the opening of a group, to its closing
    bracket; NAMED: the same with the one group that has a name; QUANTIFIER: how often what stands before it may come
    """
    texts = (_CHARACTER, _ZERO, _ASSERTION, _quantifier(_COUNTS), _NAMED)
    single, zero, assertion, many, name = (parse(f"^(?:{text})$") for text in texts)
    quantified = Alternation((single, _class()))
    branch, inside, quantifier = Reference(BRANCH), Reference(INSIDE), _perhaps(Reference(QUANTIFIER))
    singles = (Sequence((quantified, quantifier)), Sequence((zero, Reference(QUANTIFIER))), assertion)
    kind = _perhaps(Literal(b"?:"))
    looking = (Literal(b"(?"), _perhaps(Literal(b"<")), parse("^[=!]$"))
    groups = (Sequence((Literal(b"("), kind, inside, quantifier)), Sequence((*looking, inside)))
    listed = Sequence((branch, Repeat(Sequence((Literal(b"|"), branch)), 0, None)))
    holder = Alternation(
        (
            Sequence((name, inside, quantifier)),
            Sequence((Literal(b"("), kind, Reference(NAMED), quantifier)),
            Sequence((*looking, Reference(NAMED))),
        )
    )
    with_name = Sequence((Repeat(Sequence((branch, Literal(b"|"))), 0, None), branch, holder, listed))
    return {
        WHOLE: Alternation((listed, with_name)),
        BRANCH: Repeat(Alternation((*singles, *groups)), 0, None),
        INSIDE: Sequence((listed, Literal(b")"))),
        NAMED: Sequence((with_name, Literal(b")"))),
        QUANTIFIER: many,
        **_class_rules(),
    }


def _perhaps(node: Node) -> Node:
    return Repeat(node, 0, 1)
