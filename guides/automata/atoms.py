"""Characters that no set of an expression tells apart: one atom, which automata over characters read as a symbol."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as ListOf
from itertools import pairwise

from ..limits import spend
from ..syntax import Alternation, Chars, Literal, Node, Ranges, Repeat, Sequence, Table
from .character_rows import character_rows
from .charsets import ALL, single

STEPS_PER_BOUND, STEPS_PER_SET = 50, 10

Segments = list[tuple[int, int, int]]


def sets_of(node: Node, found: set[Ranges]) -> None:
    """Add all sets of characters of a node without references to `found`."""
    match node:
        case Chars(ranges):
            found.add(ranges)
        case Literal(data):
            found.update(single(ord(char)) for char in data.decode())
        case Sequence(items) | Alternation(items):
            for item in items:
                sets_of(item, found)
        case Repeat(item, _, _):
            sets_of(item, found)
        case Table():
            for row in character_rows(node).values():
                found.update(row.values())
        case _:
            raise AssertionError("patterns refer to no rules")


def partition(sets: Iterable[Ranges]) -> tuple[list[Ranges], dict[Ranges, int]]:
    """All characters in atoms, and each set as the bits of its atoms; it has an atom wholly or not at all."""
    ordered = sorted(sets)
    marks: dict[int, int] = {}
    for index, ranges in enumerate((ALL, *ordered)):
        for low, high in ranges:
            marks[low] = marks.get(low, 0) ^ 1 << index
            marks[high + 1] = marks.get(high + 1, 0) ^ 1 << index
    spend(len(marks) * (STEPS_PER_BOUND + STEPS_PER_SET * len(ordered)))
    pieces: dict[int, list[tuple[int, int]]] = {}
    inside = 0
    for low, end in pairwise(sorted(marks)):
        inside ^= marks[low]
        if inside & 1:
            pieces.setdefault(inside, []).append((low, end - 1))
    classes = dict.fromkeys(ordered, 0)
    for number, inside in enumerate(pieces):
        for index in bits(inside >> 1):
            classes[ordered[index]] |= 1 << number
    return [tuple(ranges) for ranges in pieces.values()], classes


def segments_of(atoms: ListOf[Ranges]) -> Segments:
    """The ranges of all atoms in the order of their characters: (first, last, number of the atom)."""
    return sorted((low, high, number) for number, ranges in enumerate(atoms) for low, high in ranges)


def bits(value: int) -> Iterable[int]:
    """The numbers of the bits that are set."""
    while value:
        lowest = value & -value
        yield lowest.bit_length() - 1
        value ^= lowest
