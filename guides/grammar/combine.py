"""Construction of nodes for all grammar front ends."""

from __future__ import annotations

from collections.abc import Iterable

from ..syntax import Alternation, Chars, Node, Sequence

LAST_CHARACTER = 0x10FFFF
FIRST_SURROGATE = 0xD800
LAST_SURROGATE = 0xDFFF


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
    return code <= LAST_CHARACTER and not FIRST_SURROGATE <= code <= LAST_SURROGATE


def characters(spans: Iterable[tuple[int, int]], *, negated: bool = False) -> Chars:
    """Return the characters in any of the spans (ends included), or in none of them; never a surrogate."""
    out: list[tuple[int, int]] = []
    if negated:
        next_free = 0
        for low, high in _merged([*spans, (FIRST_SURROGATE, LAST_SURROGATE)]):
            if low > next_free:
                out.append((next_free, low - 1))
            next_free = high + 1
        if next_free <= LAST_CHARACTER:
            out.append((next_free, LAST_CHARACTER))
        return Chars(tuple(out))
    for low, high in _merged(spans):
        pieces = ((low, min(high, FIRST_SURROGATE - 1)), (max(low, LAST_SURROGATE + 1), high))
        out += [piece for piece in pieces if piece[0] <= piece[1]]
    return Chars(tuple(out))


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the same characters as sorted spans with gaps between them."""
    out: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        if out and low <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(out[-1][1], high))
        else:
            out.append((low, high))
    return out
