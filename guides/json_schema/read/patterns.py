"""The one door to the regular expression front end."""

from __future__ import annotations

from itertools import chain

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


@kept(1024, 4 << 20)
def few_texts(pattern: str) -> frozenset[str] | None:
    """All strings in which a pattern is found, if they are a few that its syntax tells. Raises PatternError."""
    return _texts(parse(pattern))


@kept(1024, 1 << 20)
def beginning(pattern: str) -> bytes:
    """What all strings begin with in which a pattern is found, as far as its syntax tells. Raises PatternError."""
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
