"""The format `regex`: regular expressions that ECMA-262 and Python read alike, as a rule and as a pattern."""

from __future__ import annotations

import string

from ...syntax import Alternation, Chars, Literal, Node, Reference, Repeat, Sequence
from .patterns import parse

_HEX = "[0-9A-Fa-f]"
_ESCAPED = r"\\[dDwWsSfnrtv0^$.*+?()\[\]{}|/\\-]"
_ASSERTION = r"[\^$]|\\[bB]"
_CODE = rf"\\x{_HEX}{{2}}|\\u{_HEX}{{4}}"


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
    return rf"(?:(?:[*+?]|\{{(?:{counts})\}})\??)?"


_PLAIN = rf"[^\\\[\]^&|~-]|{_ESCAPED}"


def _single(items: str, ends: str, quantifier: str) -> str:
    """One character or class with its quantifier, or an assertion, which has none.

    In a class a hyphen stands at the begin, at the end, which `ends` are, or where the items have one.
    """
    of_class = rf"\[\^?(?:-|-?(?:{items})+[{ends}]?)\]"
    kinds = (r"[^\\^$.*+?()\[\]{}|]", r"\.", _ESCAPED, _CODE, of_class)
    return f"(?:(?:{'|'.join(kinds)}){quantifier}|{_ASSERTION})"


_OF_CODES = "|".join(
    rf"\\{letter}{low}{rest}-\\{letter}{high}{rest}"
    for letter, rest in (("x", _HEX), ("u", _HEX * 3))
    for low, high in (("0", "[1-9A-Fa-f]"), ("[0-7]", "[89A-Fa-f]"), ("[0-9]", "[A-Fa-f]"))
)
_ACROSS = "[0-9]-[A-Za-z]|[A-Z]-[a-z]|[ !]-[0-9A-Za-z~]"
_FEW_ITEMS = f"{_PLAIN}|[a-f]-[g-z]|[A-F]-[G-Z]|[0-4]-[5-9]"
_EVERY_RANGE = "|".join(
    f"{low}-[{low}-{characters[-1]}]"
    for characters in (string.ascii_lowercase, string.ascii_uppercase, string.digits)
    for low in characters
)
# A hyphen may stand behind a range. Two in a row of & | ~ are an operator in newer dialects, and Python warns of them.
_ITEMS = f"(?:{_EVERY_RANGE}|{_ACROSS}|{_OF_CODES})(?:-(?:{_PLAIN}|{_CODE}))?|[&|~^]?(?:{_PLAIN}|{_CODE})"

INSIDE = "inside"
"""The rule of what follows the opening of a group, to its closing bracket."""


def nested(depth: int) -> str:
    """Regular expressions with `depth` levels of groups, as a pattern: long, so with fewer ranges and counts."""
    quantifier = _quantifier(_FEW_COUNTS)
    single = _single(_FEW_ITEMS, "-", quantifier)
    branch = f"(?:{single})*"
    for _ in range(depth):
        inside = rf"{branch}(?:\|{branch})*\)"
        branch = rf"(?:{single}|\((?:\?:)?{inside}{quantifier}|\(\?[=!]{inside})*"
    return rf"{branch}(?:\|{branch})*"


def rules() -> tuple[Node, Node]:
    """Regular expressions with any number of levels of groups, and the rule INSIDE."""
    quantifiers = _quantifier(_COUNTS)
    single, quantifier = (parse(f"^(?:{pattern})$") for pattern in (_single(_ITEMS, "&|~^-", quantifiers), quantifiers))
    inside = Reference(INSIDE)
    group = Sequence((Literal(b"("), _perhaps(Literal(b"?:")), inside, quantifier))
    ahead = Sequence((Literal(b"(?"), Chars(((0x21, 0x21), (0x3D, 0x3D))), inside))
    branch = Repeat(Alternation((single, group, ahead)), 0, None)
    return _listed(branch), Sequence((_listed(branch), Literal(b")")))


def _perhaps(node: Node) -> Node:
    return Repeat(node, 0, 1)


def _listed(branch: Node) -> Node:
    """One or more branches."""
    return Sequence((branch, Repeat(Sequence((Literal(b"|"), branch)), 0, None)))
