"""The only access to the regular expression front end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from ....errors import LimitError
from ...cached import cached
from ...limits import spend
from ...regex import parse as parse_regex
from ...syntax import Alternation, Chars, Literal, Node, Sequence

MAX_TEXTS = 32
"""Maximum number of texts of a pattern that is read as a list of them."""


@cached(1024, 16 << 20)
def parse(pattern: str) -> Node:
    """Return the strings in which an ECMA-262 pattern matches. Raises PatternError."""
    return parse_regex(pattern, dialect="ecma", search=True)


class Conditions(NamedTuple):
    """Patterns that must match in a string, and patterns that must not."""

    found: frozenset[str]
    absent: frozenset[str]


@cached(1024, 4 << 20)
def conditions(pattern: str) -> Conditions:
    """Return the conditions of a pattern: several if it is too large and begins with lookaheads, else itself.

    Raises PatternError, and LimitError where one of the patterns is too large.
    """
    undivided = Conditions(frozenset((pattern,)), frozenset())
    try:
        parse(pattern)
    except LimitError:
        spend(0)  # raises again if the limits of the whole call are exceeded
        apart = looks_apart(pattern)
        if apart is None:
            raise
        for part in (*apart.found, *apart.absent):
            parse(part)
        return apart
    return undivided


_PIECE = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|.", re.DOTALL)


def looks_apart(pattern: str) -> Conditions | None:
    """Split `^(?=a)(?!b)c` into `^(?:a)`, `^c`, and not `^(?:b)`; None if the pattern has no such beginning."""
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
    """Yield characters, escapes and classes from an offset: (end, number of open groups there, text)."""
    depth = 0
    for piece in _PIECE.finditer(pattern, at):
        depth += (piece[0] == "(") - (piece[0] == ")")
        yield piece.end(), depth, piece[0]


@cached(1024, 4 << 20)
def few_texts(pattern: str) -> frozenset[str] | None:
    """Return all strings in which a pattern matches, if its syntax shows that they are few. Raises PatternError."""
    return _texts(parse(pattern))


@cached(1024, 1 << 20)
def beginning(pattern: str) -> bytes:
    """Return the common literal beginning of all strings in which a pattern matches. Raises PatternError."""
    node = parse(pattern)
    first = node.items[0] if isinstance(node, Sequence) and node.items else node
    return first.data if isinstance(first, Literal) else b""


def _texts(node: Node) -> frozenset[str] | None:
    spend(50)
    match node:
        case Literal(data):
            return frozenset((data.decode(),))
        case Chars(ranges) if sum(high - low + 1 for low, high in ranges) <= MAX_TEXTS:
            return frozenset(chr(code) for low, high in ranges for code in range(low, high + 1))
        case Alternation(items) if len(items) <= MAX_TEXTS:
            parts = [_texts(item) for item in items]
            known = [part for part in parts if part is not None]
            found = frozenset(chain.from_iterable(known))
            return found if len(known) == len(items) and len(found) <= MAX_TEXTS else None
        case Sequence(items):
            found = frozenset(("",))
            for item in items:
                part = _texts(item)
                if part is None or len(found) * len(part) > MAX_TEXTS:
                    return None
                found = frozenset(before + after for before in found for after in part)
            return found
        case _:
            return None
