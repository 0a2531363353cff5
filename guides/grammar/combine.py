"""Construction of nodes for all grammar front ends."""

from __future__ import annotations

from ..automata.charsets import LAST, single
from ..syntax import Alternation, Node, Sequence

REPEATS: dict[str, tuple[int, int | None]] = {"?": (0, 1), "*": (0, None), "+": (1, None)}
"""The least and greatest counts of the operators of repetition."""
COUNT_DIGITS = 9
"""The most digits of a count."""


def series(items: list[Node]) -> Node:
    """Return the items in sequence; nested sequences are flattened."""
    flat: list[Node] = []
    for item in items:
        flat.extend(item.items if isinstance(item, Sequence) else (item,))
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat))


def choice(items: list[Node]) -> Node:
    """Return one of the items; nested alternations are flattened."""
    flat: list[Node] = []
    for item in items:
        flat.extend(item.items if isinstance(item, Alternation) else (item,))
    return flat[0] if len(flat) == 1 else Alternation(tuple(flat))


def is_character(code: int) -> bool:
    """Test whether a code point is a character, not a surrogate."""
    return code <= LAST and bool(single(code))
