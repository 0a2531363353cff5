"""Sets of characters in words."""

from __future__ import annotations

from functools import cache

from ..automata.charsets import intersect, negate
from ..regex import parse
from ..syntax import Chars, Ranges

MAX_PARTS = 12

# From the largest to the smallest: what a set is made of is looked for in this order.
_CLASSES = (
    (r"\w", r"a letter, digit or _ of any script (\w)"),
    (r"\p{L}", "a letter of any script"),
    (r"\d", r"a digit of any script (\d)"),
    ("[A-Za-z]", "a letter A-Z or a-z"),
    ("[a-z]", "a letter a-z"),
    ("[A-Z]", "a letter A-Z"),
    ("[0-9]", "a digit 0-9"),
    (r"\s", r"white space (\s)"),
)
_NAMES = {0x09: "a tab", 0x0A: "a newline", 0x0D: "a carriage return", 0x20: "a space", 0x22: "'\"'"}


def describe(ranges: Ranges) -> str:
    """A set of characters (inclusive code point ranges, sorted, disjoint) as a phrase: "a digit 0-9 or '.'"."""
    return either(_parts(ranges))


def either(parts: list[str]) -> str:
    """The phrases with commas and an "or"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} or {parts[-1]}"


def describe_character(code: int) -> str:
    """One character: its name if it cannot be seen, else itself in quotes."""
    if code in _NAMES:
        return _NAMES[code]
    character = chr(code)
    if not character.isprintable():
        return f"U+{code:04X}"
    return f'"{character}"'


def _parts(ranges: Ranges) -> list[str]:
    left_out = negate(ranges)
    if not left_out:
        return ["any character"]
    if size(left_out) < size(ranges):
        return [f"any character but {describe(left_out)}"]
    parts: list[str] = []
    for pattern, name in _CLASSES:
        members = _class(pattern)
        if intersect(members, ranges) == members:
            parts.append(name)
            ranges = intersect(ranges, negate(members))
    for number, (low, high) in enumerate(ranges):
        if len(parts) >= MAX_PARTS and (others := size(ranges[number:])) > 1:
            parts.append(f"one of {others:,} other characters")
            break
        parts.append(_span(low, high))
    return parts


def _span(low: int, high: int) -> str:
    if low == high:
        return describe_character(low)
    return f"{describe_character(low)}{' or ' if low + 1 == high else ' to '}{describe_character(high)}"


@cache
def _class(pattern: str) -> Ranges:
    node = parse(pattern)
    assert isinstance(node, Chars)
    return node.ranges


def size(ranges: Ranges) -> int:
    """The number of characters."""
    return sum(high - low + 1 for low, high in ranges)
