"""Patterns of ECMA-262 that are no regular expressions, searched for by the library regex, for a limited time."""

from __future__ import annotations

import re
from functools import partial

import regex

from ..kept import kept

MOST_SECONDS = 0.25
_SPACE = r"\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_LINE_ENDS = r"\n\r\u2028\u2029"
_CLASSES = {"d": "0-9", "w": "A-Za-z0-9_", "s": _SPACE}

_PART = re.compile(
    r"""
    \\u\{(?P<code>[0-9A-Fa-f]+)\} | \\c(?P<control>[A-Za-z]) | \\k<(?P<name>\w+)> | \\(?P<number>[1-9][0-9]*)
    | \\(?P<letter>[dwsDWS]) | (?P<escape>\\.) | (?P<set>\[\^?\]?) | (?P<end>\]) | (?P<stop>\$) | (?P<dot>\.)
    """,
    re.VERBOSE | re.DOTALL,
)


class UnsearchableError(Exception):
    """A pattern that cannot be searched for, or not within the time."""


def found_in(pattern: str, text: str) -> bool:
    """Whether an ECMA-262 pattern is found in a text. Raises UnsearchableError."""
    expression = _expression(pattern)
    if expression is None:
        raise UnsearchableError
    try:
        return expression.search(text, timeout=MOST_SECONDS) is not None
    except TimeoutError:
        raise UnsearchableError from None


def is_regex(text: str) -> bool:
    """Whether a text is an ECMA-262 pattern that can be searched for."""
    return _expression(text) is not None


@kept(256, 16 << 20)
def _expression(pattern: str) -> regex.Pattern[str] | None:
    """The pattern as the library reads it; None if it does not."""
    try:
        return regex.compile(_PART.sub(partial(_translated, _Place()), pattern), regex.V0)
    except (regex.error, OverflowError, RecursionError, MemoryError):
        return None


class _Place:
    """Whether a part is inside a set of characters."""

    in_set = False


def _translated(place: _Place, part: re.Match[str]) -> str:
    """A part of a pattern as the library has it: classes are ASCII but for white space, an unset group is empty."""
    kind, text = str(part.lastgroup), part.group()
    value = part[kind]
    if kind == "code":
        return regex.escape(chr(int(value, 16)))
    if kind == "control":
        return regex.escape(chr(ord(value) % 32))
    if kind == "letter":
        inside = _CLASSES[value.lower()]
        if value.islower():
            return inside if place.in_set else f"[{inside}]"
        return text if place.in_set else f"[^{inside}]"
    if place.in_set:
        place.in_set = not text.endswith("]") or kind == "escape"
        return f"\\{text}" if kind == "set" else text
    if kind == "set":
        if text.endswith("]"):
            return "(?!)" if text == "[]" else r"[\s\S]"
        place.in_set = True
        return text
    if kind == "name":
        return f"(?({value})(?P={value}))"
    if kind == "number":
        return f"(?({value})\\{value})"
    return {"stop": r"\Z", "dot": f"[^{_LINE_ENDS}]"}.get(kind, text)
