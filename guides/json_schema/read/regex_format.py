r"""The format `regex`: regular expressions of ECMA-262, as rules and as a pattern.

What is accepted is so with the flag `u` and without it, but for `\-` outside of classes, which only the latter allows.
That is less than ECMA-262 has: no references back, one named group at most, and of ranges between characters beyond
ASCII, or between their numbers, those that a few comparisons tell to be in order.
"""

from __future__ import annotations

import string
from itertools import pairwise

from ...syntax import Alternation, Literal, Node, Reference, Repeat, Sequence
from .patterns import parse

_HEX = "[0-9A-Fa-f]"
_CODE = rf"\\x{_HEX}{{2}}|\\u{_HEX}{{4}}|\\c[A-Za-z]"
_SYNTAX = "^$\\.*+?()[]{}|/-"
_CLASSES = r"\\[dDsSwW]"
_ASSERTION = r"[\^$]|\\[bB]"
_ZERO = r"\\0"
_NAMED = r"\(\?<[A-Za-z_$][A-Za-z0-9_$]*>"


def _escaped(characters: str) -> str:
    """A backslash and one of these."""
    return rf"\\[{''.join(chr(92) + char for char in characters)}]" if characters else "[]"


_CONTROL = r"\\[fnrtv]"
_ONE = rf"[^\\\]-]|{_CONTROL}|{_escaped(_SYNTAX)}|\\b|{_CODE}"
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
"""What stands in the braces of a quantifier: a count, or two of which the second is not smaller."""


def _quantifier(counts: str) -> str:
    return rf"(?:(?:[*+?]|\{{(?:{counts})\}})\??)"


def _class(ranges: str, from_hyphen: str) -> str:
    """A class: a hyphen stands for itself at the begin, at the end and behind a range, or begins a range there."""
    items = rf"(?:{from_hyphen})*-?(?:{_ONE}|{_CLASSES})*"
    return rf"\[\^?{items}(?:(?:{ranges}){items})*-?\]"


def _single(of_class: str, quantifier: str) -> str:
    r"""One character or class with its quantifier, or an assertion, which has none.

    `\0` must have a quantifier, so that no digit follows it.
    """
    return rf"(?:(?:{_quantified(of_class)}){quantifier}?|{_ZERO}{quantifier}|{_ASSERTION})"


def _quantified(of_class: str) -> str:
    """One character or class, which may have a quantifier."""
    return "|".join((r"[^\\^$.*+?()\[\]{}|]", r"\.", _CONTROL, _escaped(_SYNTAX), _CLASSES, _CODE, of_class))


# Ranges in a class

_DIGITS = "0123456789abcdef"
_BEYOND = rf"\\x[89A-Fa-f]{_HEX}|\\u(?:00[89A-Fa-f]{_HEX}|0[1-9A-Fa-f]{_HEX}{{2}}|[1-9A-Fa-f]{_HEX}{{3}})"
_LOW = rf"(?:\\x|\\u00)[01]{_HEX}"
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


def _of_ascii(low: int, high: int = 0x7E) -> str:
    """An ASCII character that can be printed, within bounds."""
    plain = "".join(
        rf"\u{max(low, first):04x}-\u{min(high, last):04x}"
        for first, last in ((0, 0x2C), (0x2E, 0x5B), (0x5E, 0x7F))  # all but the hyphen, the backslash and "]"
        if low <= last and first <= high
    )
    return rf"(?:[{plain}]|{_escaped(''.join(char for char in _SYNTAX if low <= ord(char) <= high))})"


def _from(low: int) -> str:
    """The end of a range that begins with an ASCII character, but for characters beyond; a hyphen, too."""
    return f"(?:{_of_ascii(low)}|-)" if low <= ord("-") else _of_ascii(low)


def _digit(digits: str) -> str:
    return f"[{digits}{digits.upper()}]"


def _rising(begin: str, more: int, but: str = "") -> list[str]:
    """Ranges between numbers of characters that begin alike and differ in the next digit, before `more` others."""
    tail = rf"{_HEX}{{{more}}}"
    return [
        f"{begin}{_digit(digit)}{tail}-{begin}{_digit(_DIGITS[_DIGITS.index(digit) + 1 :])}{tail}"
        for digit in _DIGITS[:-1]
        if digit not in but
    ]


_FROM_HYPHEN = rf"--(?:{_from(ord('-'))}|[\u007f-\u{{10FFFF}}]|{_BEYOND})"
_RANGES = "|".join(
    (
        *(f"{_of_ascii(low, low)}-{_from(low)}" for low in range(0x20, 0x7F)),
        rf"(?:{_of_ascii(0x20)}|{_LOW})-(?:[\u007f-\u{{10FFFF}}]|{_BEYOND})",
        *(rf"[\u{low:04x}-\u{high - 1:04x}]-[\u{high:04x}-\ud7ff]" for low, high in pairwise(_MARKS)),
        *(f"{_LOW}-{_from(0x20)}", rf"{_LOW}-(?:\\x|\\u00)[2-7]{_HEX}", rf"\\x20-{_from(0x20)}"),
        *(rf"\\x{_HEX}{{2}}-\\u(?:0[1-9A-Fa-f]|[1-9A-Fa-f]{_HEX}){_HEX}{{2}}",),
        *(*_rising(r"\\x", 1), *_rising(r"\\x0", 0), *_rising(r"\\x1", 0)),
        # With the flag `u` half of a surrogate pair is one character together with the half before it.
        *(*_rising(r"\\u", 3, but="d"), *_rising(r"\\u0", 2), *_rising(r"\\u00", 1), *_rising(r"\\u000", 0)),
        *(*_rising(r"\\u001", 0), *_rising(r"\\u20", 1)),
        *(*_rising(r"\\u30", 1), *_rising(r"\\u[fF]", 2), *_rising(r"\\u[fF][fF]", 1)),
    )
)
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


def rules() -> dict[str, Node]:
    """The rules of regular expressions with any number of levels of groups.

    WHOLE: the first; BRANCH: what stands between bars; INSIDE: what follows the opening of a group, to its closing
    bracket; NAMED: the same with the one group that has a name; QUANTIFIER: how often what stands before it may come
    """
    texts = (_quantified(_class(_RANGES, _FROM_HYPHEN)), _ZERO, _ASSERTION, _quantifier(_COUNTS), _NAMED)
    quantified, zero, assertion, many, name = (parse(f"^(?:{text})$") for text in texts)
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
    }


def _perhaps(node: Node) -> Node:
    return Repeat(node, 0, 1)
