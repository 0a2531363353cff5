"""Compiled kernels that read each row of logits once: argmax with log-sum-exp, and the best k.

All take the fields of `contracts.Flat` first and return the index of the first bad row number, or -1.
"""

from __future__ import annotations

import numpy as np

from ..jit.aliases import Bytes, Doubles, Float, Floats, Int, Ints, Truth
from ..jit.compiling import inner_njit, njit
from .blocks import (
    BLOCK,
    EMPTY,
    INFINITE,
    LOG2E,
    NAN,
    NO_KEY,
    OK,
    WORDS_PER_BLOCK,
    ZERO,
    bits_of,
    key_of,
    load,
    merge_sums,
    top_of,
    weigh,
)

ARGMAX, CHOSEN, CHOSEN_AND_RAW = 0, 1, 2  # how much scan_kernel computes

_LOG2E = np.float32(LOG2E)


@inner_njit
def bad_number(words: Ints, numbers: Ints) -> Int:
    """The index of the first row number that is not in the table, or -1."""
    for index in range(numbers.size):
        if numbers[index] < -1 or numbers[index] >= words.shape[0]:
            return index
    return -1


@inner_njit
def mask_of(words: Ints, number: Int) -> Ints:
    """The mask with a number; an empty one for -1, no mask."""
    return words[max(number, 0), : 0 if number < 0 else words.shape[1]]


@inner_njit
def status_of(top: Int, largest: Int) -> Int:
    """The verdict on a row whose allowed logits have this largest key and largest magnitude."""
    if largest > INFINITE or top == INFINITE:
        return NAN
    return EMPTY if top <= -INFINITE else OK


@inner_njit
def add_block(values: Ints, count: Int, key: Int, top: Float, total: Float, weights: Floats) -> tuple[Float, Float]:
    """Add a block whose largest key is `key` to a log-sum-exp kept as (top, total)."""
    if key <= -INFINITE or key >= INFINITE:
        return top, total
    peak = np.int32(bits_of(key)).view(np.float32)
    amount = weigh(values.view(np.float32), count, peak, _LOG2E, weights)
    return merge_sums(top, total, np.float64(peak), np.float64(amount))


@inner_njit
def add_raw(row: Ints, first: Int, last: Int, top: Float, total: Float, weights: Floats) -> tuple[Float, Float, Truth]:
    """Add logits first..last, masked or not, to a log-sum-exp: top, total, and whether they are unusable."""
    unusable = False
    for start in range(first, min(last, row.size), BLOCK):
        part = row[start : min(start + BLOCK, last, row.size)]
        key, largest = top_of(part, part.size)
        unusable |= largest > INFINITE or key == INFINITE
        top, total = add_block(part, part.size, key, top, total, weights)
    return top, total, unusable


@inner_njit
def locate(row: Ints, mask: Ints, word: Int, key: Int, values: Ints, bases: Ints) -> Int:
    """The lowest token with this key in the block that starts at `word`."""
    count, _ = load(row, mask, word, values, bases)
    for index in range(count):
        if key_of(values[index]) == key:
            return np.int32(bases[index >> 5] + (index & 31))
    return np.int32(-1)


@inner_njit
def scan_row(
    row: Ints, mask: Ints, much: Int, values: Ints, bases: Ints, weights: Floats
) -> tuple[Int, Int, Float, Float]:
    """One row: the best token, its status, and log-sum-exp over the allowed and over all logits."""
    top, total, raw_top, raw_total = -np.inf, 0.0, -np.inf, 0.0
    best, largest, best_word, word = NO_KEY, np.int32(0), ZERO, ZERO
    unusable = False
    words = (row.size + 31) >> 5
    while word < words:
        start = word
        count, word = load(row, mask, word, values, bases)
        key, magnitude = top_of(values, count)
        largest = max(largest, magnitude)
        if key > best:
            best, best_word = key, start
        if much >= CHOSEN:
            top, total = add_block(values, count, key, top, total, weights)
        if much == CHOSEN_AND_RAW and mask.size > 0:
            raw_top, raw_total, bad = add_raw(row, start << 5, word << 5, raw_top, raw_total, weights)
            unusable |= bad
    status = NAN if unusable else status_of(best, largest)
    token = locate(row, mask, best_word, best, values, bases) if status == OK else np.int32(-1)
    chosen = top + np.log(total) if total > 0 else -np.inf
    raw = raw_top + np.log(raw_total) if raw_total > 0 else -np.inf
    return token, status, chosen, chosen if mask.size == 0 else raw


@njit
def scan_kernel(
    bits: Ints,
    stride: Int,
    size: Int,
    words: Ints,
    numbers: Ints,
    much: Int,
    tokens: Ints,
    status: Bytes,
    chosen: Doubles,
    raw: Doubles,
) -> Int:
    """Masked argmax int32 [B] and status uint8 [B]; log-sum-exp float64 [B] of allowed and of all logits."""
    wrong = bad_number(words, numbers)
    if wrong >= 0:
        return wrong
    values, bases = np.empty(BLOCK, np.int32), np.empty(WORDS_PER_BLOCK, np.int32)
    weights = np.empty(BLOCK, np.float32)
    for index in range(numbers.size):
        row = bits[index * stride : index * stride + size]
        mask = mask_of(words, numbers[index])
        token, what, one, other = scan_row(row, mask, much, values, bases, weights)
        tokens[index], status[index], chosen[index], raw[index] = token, what, one, other
    return wrong
