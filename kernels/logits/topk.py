"""Compiled kernel for beams: log-softmax and the best k over several rows x vocabulary, logits read once."""

from __future__ import annotations

import numpy as np

from ..jit.aliases import Bytes, Doubles, Float, Floats, Int, Ints, Longs
from ..jit.compiling import inner_njit, njit
from .blocks import (
    BLOCK,
    EMPTY,
    MINUS_INFINITY,
    NAN,
    NO_KEY,
    WORDS_PER_BLOCK,
    ZERO,
    bits_of,
    code_of,
    key_in,
    key_of,
    load,
    push,
    sort_heap,
    token_in,
    top_of,
)
from .scan import CHOSEN, CHOSEN_AND_RAW, add_block, add_raw, bad_number, mask_of, status_of


@inner_njit
def push_block(values: Ints, bases: Ints, count: Int, heap: Longs, taken: Int) -> Int:
    """Offer a block's values above -inf to a heap of codes: the new number of places taken."""
    floor = key_in(heap[0]) if taken == heap.size else key_of(MINUS_INFINITY)
    for index in range(count):
        key = key_of(values[index])
        if key > floor:
            taken = push(heap, taken, code_of(key, bases[index >> 5] + (index & 31)))
            if taken == heap.size:
                floor = key_in(heap[0])
    return taken


@inner_njit
def best_of_row(
    row: Ints, mask: Ints, much: Int, heap: Longs, values: Ints, bases: Ints, weights: Floats
) -> tuple[Int, Int, Float]:
    """The best codes of one row, sorted into `heap`: how many, the row's status, and its log-sum-exp."""
    top, total, taken, word = -np.inf, 0.0, ZERO, ZERO
    best, largest, unusable = NO_KEY, np.int32(0), False
    while word < (row.size + 31) >> 5:
        start = word
        count, word = load(row, mask, word, values, bases)
        key, magnitude = top_of(values, count)
        best, largest = max(best, key), max(largest, magnitude)
        if taken < heap.size or key > key_in(heap[0]):
            taken = push_block(values, bases, count, heap, taken)
        if much == CHOSEN or (much == CHOSEN_AND_RAW and mask.size == 0):
            top, total = add_block(values, count, key, top, total, weights)
        elif much == CHOSEN_AND_RAW:
            top, total, bad = add_raw(row, start << 5, word << 5, top, total, weights)
            unusable |= bad
    sort_heap(heap, taken)
    status = NAN if unusable else status_of(best, largest)
    return taken, status, top + np.log(total) if total > 0 else -np.inf


@inner_njit
def merge_row(
    row: Int, offset: Float, heap: Longs, taken: Int, scores: Doubles, rows: Ints, tokens: Ints, found: Int
) -> Int:
    """Merge one row's codes, best first, into a group's best so far: how many the group has now."""
    for place in range(taken):
        score = np.float64(np.int32(bits_of(key_in(heap[place]))).view(np.float32)) + offset
        if score == -np.inf or (found == scores.size and score <= scores[found - 1]):
            break
        if found < scores.size:
            found += 1
        index = found - 1
        while index > 0 and scores[index - 1] < score:
            scores[index], rows[index], tokens[index] = scores[index - 1], rows[index - 1], tokens[index - 1]
            index -= 1
        scores[index], rows[index], tokens[index] = score, row, token_in(heap[place])
    return found


@njit
def topk_kernel(
    bits: Ints,
    stride: Int,
    size: Int,
    words: Ints,
    numbers: Ints,
    much: Int,
    added: Doubles,
    best: Doubles,
    rows: Ints,
    tokens: Ints,
    normaliser: Doubles,
    status: Bytes,
) -> Int:
    """The best k of each group of rows by added[row] + logit - normaliser[row].

    `added` float64 [B]; a row with -inf is not read. `best` float64, `rows` and `tokens` int32 [groups, k],
    best first, the lower row and then token of equals; filled up with -inf, -1 and -1. `normaliser` float64
    [B], 0 if much == ARGMAX. Returns the index of the first bad row number, or -1.
    """
    wrong = bad_number(words, numbers)
    if wrong >= 0:
        return wrong
    values, bases = np.empty(BLOCK, np.int32), np.empty(WORDS_PER_BLOCK, np.int32)
    weights, heap = np.empty(BLOCK, np.float32), np.empty(min(best.shape[1], size), np.int64)
    best[:], rows[:], tokens[:] = -np.inf, -1, -1
    normaliser[:], status[:] = 0.0, EMPTY
    group = numbers.size // max(best.shape[0], 1)
    for number in range(best.shape[0]):
        found = ZERO
        for row in range(number * group, (number + 1) * group):
            if added[row] == -np.inf:
                continue
            logits = bits[row * stride : row * stride + size]
            mask = mask_of(words, numbers[row])
            taken, what, total = best_of_row(logits, mask, much, heap, values, bases, weights)
            status[row] = what
            if much >= CHOSEN:
                normaliser[row] = total
            if what != NAN and what != EMPTY:
                offset = added[row] - normaliser[row]
                found = merge_row(row, offset, heap, taken, best[number], rows[number], tokens[number], found)
    return wrong
