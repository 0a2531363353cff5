"""Sets of characters as sorted, disjoint, inclusive code point ranges without surrogates.

An atom is a class of characters that no set of an expression separates; automata over characters read atoms as
symbols. `CharacterRows` derives transitions over characters from those over bytes (`Row`).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from collections.abc import Sequence as ListOf
from functools import lru_cache
from itertools import pairwise

import numpy as np

from ..cached import cached, cached_growing
from ..graph.utf8 import CONTINUATION, LEADS
from ..limits import spend
from ..syntax import Alternation, Chars, Literal, Node, Ranges, Repeat, Sequence, Table

LAST = 0x10FFFF
STEPS_PER_RANGE = 40
ALL: Ranges = ((0, 0xD7FF), (0xE000, LAST))
NOT_NEWLINE: Ranges = ((0, 9), (11, 0xD7FF), (0xE000, LAST))
ASCII_DIGIT: Ranges = ((48, 57),)
ASCII_WORD: Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
ASCII_SPACE: Ranges = ((9, 13), (32, 32))


def normalise(pairs: Iterable[tuple[int, int]]) -> Ranges:
    """Sort and merge inclusive pairs, and remove the surrogates."""
    merged: list[tuple[int, int]] = []
    end = -2
    ordered = sorted(pairs)
    spend(STEPS_PER_RANGE * len(ordered))
    for low, high in ordered:
        if low <= end + 1:
            if high > end:
                end = high
                merged[-1] = (merged[-1][0], high)
        else:
            merged.append((low, high))
            end = high
    for low, high in merged:
        if low <= 0xDFFF and high >= 0xD800:
            return tuple(_without_surrogates(merged))
    return tuple(merged)


def _without_surrogates(merged: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    for low, high in merged:
        if high < 0xD800 or low > 0xDFFF:
            yield low, high
            continue
        if low < 0xD800:
            yield low, 0xD7FF
        if high > 0xDFFF:
            yield 0xE000, high


@cached(256, 8 << 20)
def negate(ranges: Ranges) -> Ranges:
    """Return the complement."""
    gaps: list[tuple[int, int]] = []
    start = 0
    for low, high in ranges:
        if low > start:
            gaps.append((start, low - 1))
        start = high + 1
    if start <= LAST:
        gaps.append((start, LAST))
    return normalise(gaps)


def intersect(left: Ranges, right: Ranges) -> Ranges:
    """Return the intersection."""
    if left == ALL:
        return right
    if right == ALL:
        return left
    return _intersect(left, right)


@cached(256, 8 << 20)
def _intersect(left: Ranges, right: Ranges) -> Ranges:
    spend(STEPS_PER_RANGE * (len(left) + len(right)))
    found: list[tuple[int, int]] = []
    i = j = 0
    while i < len(left) and j < len(right):
        low, high = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if low <= high:
            found.append((low, high))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


def union(left: Ranges, right: Ranges) -> Ranges:
    """Return the union."""
    if not left or left == right:
        return right
    if not right:
        return left
    return _union(left, right)


@cached(256, 8 << 20)
def _union(left: Ranges, right: Ranges) -> Ranges:
    return normalise(left + right)


def contains(ranges: Ranges, char: str) -> bool:
    """Test whether a character is in a set."""
    at = bisect_right(ranges, (ord(char), LAST + 1))
    return at > 0 and ord(char) <= ranges[at - 1][1]


def single(code: int) -> Ranges:
    """Return the set of one character; empty for a surrogate, which occurs in no text."""
    return () if 0xD800 <= code <= 0xDFFF else ((code, code),)


@lru_cache(maxsize=16)
def unicode_class(letter: str) -> Ranges:
    r"""Return the set of `\d`, `\s`, `\w` (and `\D`, `\S`, `\W`) in a Unicode pattern of the running `re`."""
    if letter.isupper():
        return negate(unicode_class(letter.lower()))
    # Letters end with plane 3, decimal digits and white space with plane 1; later variation selectors are neither.
    codes = text_of_codes(0x40000 if letter == "w" else 0x20000)
    spans = (match.span() for match in re.finditer(rf"\{letter}+", codes))
    return normalise((begin, end - 1) for begin, end in spans)


def text_of_codes(count: int) -> str:
    """Return the first `count` code points, surrogates too, so that an index is a code point."""
    return np.arange(count, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")


@lru_cache(maxsize=16)
def ascii_class(letter: str) -> Ranges:
    r"""Return the set of `\d`, `\s`, `\w` (and `\D`, `\S`, `\W`) in an ASCII pattern."""
    if letter.isupper():
        return negate(ascii_class(letter.lower()))
    return {"d": ASCII_DIGIT, "s": ASCII_SPACE, "w": ASCII_WORD}[letter]


Row = Callable[[int], ListOf[int]]
"""Maps a state to the state after each byte, below 0 where there is none."""
Runs = list[tuple[int, int]]


class CharacterRows:
    """Transitions over characters of an automaton over bytes.

    row: maps a state to the state after each byte, below 0 where there is none
    """

    def __init__(self, row: Row) -> None:
        self._row = row
        self._held = 0
        self._cache: dict[int, dict[int, Ranges]] = {}
        self._run_cache: dict[tuple[int, int], Runs] = {}

    @property
    def held_bytes(self) -> int:
        """Estimated bytes of the cached transitions."""
        return self._held

    def of(self, state: int) -> dict[int, Ranges]:
        """Return the characters that lead from a state between characters to each other state."""
        known = self._cache.get(state)
        if known is None:
            known = self._cache[state] = {target: normalise(pairs) for target, pairs in self._pairs(state).items()}
            self._held += 500 + 200 * sum(map(len, known.values()))
        return known

    def _pairs(self, state: int) -> dict[int, Runs]:
        targets = self._row(state)
        pairs: dict[int, Runs] = {}
        for byte, target in enumerate(targets[: CONTINUATION.start]):
            if target >= 0:
                pairs.setdefault(target, []).append((byte, byte))
        for lead in LEADS:
            width = 64**lead.follow
            for byte in range(lead.first, lead.last + 1):
                if targets[byte] < 0:
                    continue
                base = (byte - lead.offset) * width
                runs = self._runs(targets[byte], lead.follow)
                ends = [*(begin for begin, _ in runs[1:]), width]
                for (begin, target), end in zip(runs, ends, strict=True):
                    if target >= 0:
                        pairs.setdefault(target, []).append((base + begin, base + end - 1))
        return pairs

    def _runs(self, state: int, follow: int) -> Runs:
        """Return the states after the next `follow` bytes as runs: (offset at which the target changes, target)."""
        runs = self._run_cache.get((state, follow))
        if runs is None:
            runs = self._run_cache[state, follow] = []
            width = 64 ** (follow - 1)
            for index, target in enumerate(self._row(state)[CONTINUATION.start : CONTINUATION.stop]):
                below = [(0, target)] if follow == 1 or target < 0 else self._runs(target, follow - 1)
                for begin, end in below:
                    if not runs or runs[-1][1] != end:
                        runs.append((index * width + begin, end))
        return runs


@cached_growing(64, 64 << 20)
def rows_of(table: Table) -> CharacterRows:
    """Return the cached character transitions of a table."""

    def row(state: int) -> list[int]:
        return table.transitions[state].tolist()

    return CharacterRows(row)


def character_rows(table: Table) -> dict[int, dict[int, Ranges]]:
    """Return, for each state reachable from the start over characters, the characters that lead to each next state."""
    rows: dict[int, dict[int, Ranges]] = {}
    queue = [table.start]
    for state in queue:
        if state not in rows:
            rows[state] = rows_of(table).of(state)
            queue += rows[state]
    return rows


STEPS_PER_BOUND, STEPS_PER_SET = 50, 10

Segments = list[tuple[int, int, int]]


def sets_of(node: Node, found: set[Ranges]) -> None:
    """Add all character sets of a node without references to `found`."""
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
    """Partition all characters into atoms, and return each set as the bits of its atoms."""
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
    """Return the ranges of all atoms in the order of their characters: (first, last, number of the atom)."""
    return sorted((low, high, number) for number, ranges in enumerate(atoms) for low, high in ranges)


def bits(value: int) -> Iterable[int]:
    """Yield the indices of the set bits in ascending order."""
    while value:
        lowest = value & -value
        yield lowest.bit_length() - 1
        value ^= lowest
