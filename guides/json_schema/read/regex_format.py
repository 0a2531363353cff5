"""The format `regex`: regular expressions that ECMA-262 and Python read alike, as a rule and as a pattern."""

from __future__ import annotations

import string

from ...syntax import Alternation, Chars, Literal, Node, Reference, Repeat, Sequence
from .patterns import parse

_HEX = "[0-9A-Fa-f]"
_ESCAPED = r"\\[dDwWsSfnrtv0^$.*+?()\[\]{}|/\\-]"
_QUANTIFIER = r"(?:(?:[*+?]|\{[0-9]{1,2}(?:,(?:[1-9][0-9]{2})?)?\})\??)?"


def _single(ranges: str) -> str:
    """One character or class, with what is allowed for ranges in classes, and its quantifier."""
    kinds = (
        r"[^\\^$.*+?()\[\]{}|]",
        r"\.",
        _ESCAPED,
        r"\\[bB]",
        rf"\\x{_HEX}{{2}}",
        rf"\\u{_HEX}{{4}}",
        rf"\[\^?(?:[^\\\[\]^&|~-]|{_ESCAPED}|{ranges})+\]",
    )
    return f"(?:{'|'.join(kinds)}){_QUANTIFIER}"


_FEW_RANGES = "[a-f]-[g-z]|[A-F]-[G-Z]|[0-4]-[5-9]"
_RANGES = "|".join(
    f"{low}-[{low}-{characters[-1]}]"
    for characters in (string.ascii_lowercase, string.ascii_uppercase, string.digits)
    for low in characters
)

INSIDE = "inside"
"""The rule of what follows the opening of a group, to its closing bracket."""


def nested(depth: int) -> str:
    """Regular expressions with `depth` levels of groups, as a pattern; it repeats them often, so with fewer ranges."""
    single = _single(_FEW_RANGES)
    branch = f"(?:{single})*"
    for _ in range(depth):
        inside = rf"{branch}(?:\|{branch})*\)"
        branch = rf"(?:{single}|\((?:\?:)?{inside}{_QUANTIFIER}|\(\?[=!]{inside})*"
    return rf"\^?{branch}\$?(?:\|\^?{branch}\$?)*"


def rules() -> tuple[Node, Node]:
    """Regular expressions with any number of levels of groups, and the rule INSIDE."""
    single, quantifier = (parse(f"^(?:{pattern})$") for pattern in (_single(_RANGES), _QUANTIFIER))
    inside = Reference(INSIDE)
    group = Sequence((Literal(b"("), _perhaps(Literal(b"?:")), inside, quantifier))
    ahead = Sequence((Literal(b"(?"), Chars(((0x21, 0x21), (0x3D, 0x3D))), inside))
    branch = Repeat(Alternation((single, group, ahead)), 0, None)
    whole = Sequence((_perhaps(Literal(b"^")), branch, _perhaps(Literal(b"$"))))
    return _listed(whole), Sequence((_listed(branch), Literal(b")")))


def _perhaps(node: Node) -> Node:
    return Repeat(node, 0, 1)


def _listed(branch: Node) -> Node:
    """One or more branches."""
    return Sequence((branch, Repeat(Sequence((Literal(b"|"), branch)), 0, None)))
