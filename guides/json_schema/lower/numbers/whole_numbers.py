"""Ranges of whole numbers from 0 or 1, or short ones, without exponents: built at once, as they are the most common."""

from __future__ import annotations

import numpy as np

from ....syntax import Alternation, Chars, Literal, Node, Repeat, Sequence, Table

SHORT = 99_999

DIGIT = Chars(((0x30, 0x39),))
ZERO_FRACTION = Sequence((Literal(b"."), Repeat(Literal(b"0"), 1, None)))


def whole_range(least: int, most: int, notation: str | None) -> Node | None:
    """The texts of the whole numbers from `least` to `most`; None for a range that is not of the common form."""
    if most > SHORT:
        return _range_table(least == 0, str(most), notation) if least <= 1 else None
    first, last = str(least), str(most)
    nodes: list[Node] = []
    for length in range(len(first), len(last) + 1):
        low = first if length == len(first) else "1" + "0" * (length - 1)
        nodes.append(_same_length(low, last if length == len(last) else "9" * length))
    whole = nodes[0] if len(nodes) == 1 else Alternation(tuple(nodes))
    if notation == "integer":
        return whole
    return Sequence((whole, ZERO_FRACTION if notation == "real" else Repeat(ZERO_FRACTION, 0, 1)))


def _same_length(low: str, high: str) -> Node:
    """The digit strings between two of the same length."""
    if low == high:
        return Literal(low.encode())
    rest = len(low) - 1
    if not low.strip("0") and not high.strip("9"):
        return Sequence((DIGIT,) * len(low)) if rest else DIGIT
    if low[0] == high[0]:
        return Sequence((Literal(low[0].encode()), _same_length(low[1:], high[1:])))
    first, last = ord(low[0]), ord(high[0])
    if not rest:
        return Chars(((first, last),))
    nodes: list[Node] = []
    if low[1:].strip("0"):
        nodes.append(Sequence((Literal(low[:1].encode()), _same_length(low[1:], "9" * rest))))
        first += 1
    if high[1:].strip("9"):
        nodes.append(Sequence((Literal(high[:1].encode()), _same_length("0" * rest, high[1:]))))
        last -= 1
    if first <= last:
        nodes.append(Sequence((Chars(((first, last),)), *(DIGIT,) * rest)))
    return nodes[0] if len(nodes) == 1 else Alternation(tuple(nodes))


def _range_table(with_zero: bool, most: str, notation: str | None) -> Table:
    """The numbers from 0 or 1 up to `most`, as a table.

    State 0 is the start. State 1 + r allows up to r more digits, any of them. State n + i has read the first
    i of the n digits of `most`. The last two states are behind the point.
    """
    count = len(most)
    point = 2 * count
    table = np.full((point + 2, 256), -1, np.int32)
    for position, character in enumerate(most):
        row = table[count + position if position else 0]
        digit = ord(character)
        row[0x30 if position else 0x31 : digit] = count - position
        row[digit] = count + position + 1 if position + 1 < count else 1
        if position + 1 < count:
            row[digit + 1 : 0x3A] = count - position - 1
    if with_zero:
        table[0, 0x30] = 1
    table[2 : count + 1, 0x30:0x3A] = np.arange(1, count)[:, None]
    accepting = np.ones(point + 2, np.bool_)
    accepting[0] = accepting[point] = False
    if notation == "integer":
        return Table(table[:point], accepting[:point])
    table[1:point, 0x2E] = point
    table[point:, 0x30] = point + 1
    if notation == "real":
        accepting[:point] = False
    return Table(table, accepting)
