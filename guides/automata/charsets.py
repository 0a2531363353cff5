"""Sets of characters as sorted, disjoint, inclusive code point ranges; surrogates are in none of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from ..kept import kept
from ..limits import spend
from ..syntax import Ranges

LAST = 0x10FFFF
STEPS_PER_RANGE = 40
ALL: Ranges = ((0, 0xD7FF), (0xE000, LAST))
NOT_NEWLINE: Ranges = ((0, 9), (11, 0xD7FF), (0xE000, LAST))
ASCII_DIGIT: Ranges = ((48, 57),)
ASCII_WORD: Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
ASCII_SPACE: Ranges = ((9, 13), (32, 32))


def normalise(pairs: Iterable[tuple[int, int]]) -> Ranges:
    """Sorts and merges inclusive pairs, and takes the surrogates out."""
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


@kept(256, 8 << 20)
def negate(ranges: Ranges) -> Ranges:
    """Every character that is not in `ranges`."""
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
    """The characters in both."""
    if left == ALL:
        return right
    if right == ALL:
        return left
    return _intersect(left, right)


@kept(256, 8 << 20)
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
    """The characters in either."""
    if not left or left == right:
        return right
    if not right:
        return left
    return _union(left, right)


@kept(256, 8 << 20)
def _union(left: Ranges, right: Ranges) -> Ranges:
    return normalise(left + right)


def single(code: int) -> Ranges:
    """The set of one character; empty for a surrogate, which no text holds."""
    return () if 0xD800 <= code <= 0xDFFF else ((code, code),)


@lru_cache(maxsize=16)
def unicode_class(letter: str) -> Ranges:
    r"""The set of `\d`, `\s`, `\w` (and `\D`, `\S`, `\W`) in a Unicode pattern of the running `re`."""
    if letter.isupper():
        return negate(unicode_class(letter.lower()))
    # Letters end with plane 3, decimal digits and white space with plane 1; variation selectors are neither.
    codes = text_of_codes(0x40000 if letter == "w" else 0x20000)
    spans = (match.span() for match in re.finditer(rf"\{letter}+", codes))
    return normalise((begin, end - 1) for begin, end in spans)


def text_of_codes(count: int) -> str:
    """The first `count` code points, surrogates too, so that an index is a code point."""
    return np.arange(count, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")


@lru_cache(maxsize=16)
def ascii_class(letter: str) -> Ranges:
    r"""The set of `\d`, `\s`, `\w` (and `\D`, `\S`, `\W`) in an ASCII pattern."""
    if letter.isupper():
        return negate(ascii_class(letter.lower()))
    return {"d": ASCII_DIGIT, "s": ASCII_SPACE, "w": ASCII_WORD}[letter]
