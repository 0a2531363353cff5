"""The one door to the regular expression front end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from ....errors import LimitError
from ...kept import kept
from ...limits import spend
from ...regex import parse as parse_regex
from ...syntax import Alternation, Chars, Literal, Node, Sequence

MOST_TEXTS = 32
"""Up to how many texts a pattern may have to be taken for a list of them."""


@kept(1024, 16 << 20)
def parse(pattern: str) -> Node:
    """The strings in which an ECMA-262 pattern is found. Raises PatternError."""
    return parse_regex(pattern, dialect="ecma", search=True)


class Conditions(NamedTuple):
    """Patterns that are found in a string, and patterns that are not."""

    found: frozenset[str]
    absent: frozenset[str]


@kept(1024, 4 << 20)
def conditions(pattern: str) -> Conditions:
    """The conditions of a pattern, as several patterns where it looks ahead from the start and is too large as one.

    Raises PatternError, and LimitError where one of the patterns is too large.
    """
    whole = Conditions(frozenset((pattern,)), frozenset())
    try:
        parse(pattern)
    except LimitError:
        spend(0)  # raises the error again where it is the call that takes too much
        apart = looks_apart(pattern)
        if apart is None:
            raise
        for part in (*apart.found, *apart.absent):
            parse(part)
        return apart
    return whole


_PIECE = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|.", re.DOTALL)


def looks_apart(pattern: str) -> Conditions | None:
    """`^(?=a)(?!b)c` as `^(?:a)`, `^c`, and not `^(?:b)`; None where the pattern does not begin so."""
    found: list[str] = []
    absent: list[str] = []
    at = 1
    while pattern.startswith(("(?=", "(?!"), at):
        end = next((end for end, depth, _ in _pieces(pattern, at) if depth == 0), None)
        if end is None:
            return None
        (found if pattern[at + 2] == "=" else absent).append(f"^(?:{pattern[at + 3 : end - 1]})")
        at = end
    rest = pattern[at:]
    one_way = not any(piece == "|" and depth == 0 for _, depth, piece in _pieces(rest, 0))
    if at == 1 or not pattern.startswith("^") or rest.startswith(tuple("*+?{")) or not one_way:
        return None
    return Conditions(frozenset((*found, f"^{rest}")), frozenset(absent))


def _pieces(pattern: str, at: int) -> Iterator[tuple[int, int, str]]:
    """Characters, escapes and classes from a place on: where each ends, how many groups are open there, the piece."""
    depth = 0
    for piece in _PIECE.finditer(pattern, at):
        depth += (piece[0] == "(") - (piece[0] == ")")
        yield piece.end(), depth, piece[0]


@kept(1024, 4 << 20)
def few_texts(pattern: str) -> frozenset[str] | None:
    """All strings in which a pattern is found, if they are a few that its syntax tells. Raises PatternError."""
    return _texts(parse(pattern))


@kept(1024, 1 << 20)
def beginning(pattern: str) -> bytes:
    """The beginning of all strings in which a pattern is found, as far as its syntax tells. Raises PatternError."""
    node = parse(pattern)
    first = node.items[0] if isinstance(node, Sequence) and node.items else node
    return first.data if isinstance(first, Literal) else b""


def _texts(node: Node) -> frozenset[str] | None:
    spend(50)
    match node:
        case Literal(data):
            return frozenset((data.decode(),))
        case Chars(ranges) if sum(high - low + 1 for low, high in ranges) <= MOST_TEXTS:
            return frozenset(chr(code) for low, high in ranges for code in range(low, high + 1))
        case Alternation(items) if len(items) <= MOST_TEXTS:
            parts = [_texts(item) for item in items]
            known = [part for part in parts if part is not None]
            found = frozenset(chain.from_iterable(known))
            return found if len(known) == len(items) and len(found) <= MOST_TEXTS else None
        case Sequence(items):
            found = frozenset(("",))
            for item in items:
                part = _texts(item)
                if part is None or len(found) * len(part) > MOST_TEXTS:
                    return None
                found = frozenset(before + after for before in found for after in part)
            return found
        case _:
            return None
