r"""The format `regex`: regular expressions of ECMA-262, as rules and as a pattern.

What is accepted is so with the flag `u` and without it, but for `\-` outside of classes, which only the latter allows.
That is less than ECMA-262 has: no references back, one named group at most, and of ranges between characters beyond
ASCII, or between their numbers, those that a few comparisons tell to be in order.
"""

from __future__ import annotations

import string

from ...syntax import Alternation, Literal, Node, Reference, Repeat, Sequence
from .patterns import parse
from .regex_ranges import HEX, SYNTAX, ranges, ranges_from_caret, ranges_from_hyphen

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
"""What stands in the braces of a quantifier: a count, or two of which the second is not smaller."""


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
    """What may stand in a class, with its closing bracket: behind a range or a caret, at first, and elsewhere.

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
    """What begins with a hyphen that stands for itself or begins a range."""
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
