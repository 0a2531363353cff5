"""Compiled kernel for sampling: temperature, top-k, top-p, min-p, then inverse of the distribution function.

What the filters leave is described by a cut: a token is kept if its logit is above `cut`, or equal to it and
the token is not above `cut_token`.
"""

from __future__ import annotations

import numpy as np

from ..jit.aliases import Bytes, Doubles, Float, Floats, Int, Ints
from ..jit.compiling import inner_njit, njit
from .blocks import (
    BLOCK,
    LOG2E,
    NO_KEY,
    OK,
    WORDS_PER_BLOCK,
    ZERO,
    bits_of,
    code_of,
    key_in,
    key_of,
    load,
    push,
    sift_down,
    token_in,
    top_of,
    weigh,
    weight_of,
)
from .scan import bad_number, mask_of, status_of
from .topk import push_block

_BINS = 2048
_BINS_PER_OCTAVE = np.float32(40)
_LAST_BIN = np.float32(_BINS - 1)
_NOTHING = np.float32(-np.inf)
_STEEPEST = 3e38
_LAST_TOKEN = np.int32(0x7FFFFFFF)


@inner_njit
def peak_of_row(row: Ints, mask: Ints, values: Ints, bases: Ints) -> tuple[Int, Int]:
    """The largest key among the allowed logits and the row's status."""
    best, largest, word = NO_KEY, np.int32(0), ZERO
    while word < (row.size + 31) >> 5:
        count, word = load(row, mask, word, values, bases)
        key, magnitude = top_of(values, count)
        best, largest = max(best, key), max(largest, magnitude)
    return best, status_of(best, largest)


@inner_njit
def kth_largest(row: Ints, mask: Ints, k: Int, values: Ints, bases: Ints) -> np.float32:
    """The k-th largest allowed logit, -inf if fewer are above -inf."""
    heap = np.empty(k, np.int64)
    taken, word = ZERO, ZERO
    while word < (row.size + 31) >> 5:
        count, word = load(row, mask, word, values, bases)
        key, _ = top_of(values, count)
        if taken < k or key > key_in(heap[0]):
            taken = push_block(values, bases, count, heap, taken)
    return np.int32(bits_of(key_in(heap[0]))).view(np.float32) if taken == k else _NOTHING


@inner_njit
def apply_cut(logits: Floats, bases: Ints, count: Int, cut: Float, cut_token: Int) -> None:
    """Set the logits of a block that are not kept to -inf."""
    for place in range(count >> 5):
        part = logits[place << 5 : (place + 1) << 5]
        room = cut_token - bases[place]
        for lane in range(part.size):
            value = part[lane]
            part[lane] = value if value > cut or (value == cut and lane <= room) else _NOTHING


@inner_njit
def bin_of(value: Float, peak: Float, scale: Float) -> Int:
    """The histogram bin of a logit; larger logits have lower bins."""
    return np.int32(min((peak - value) * scale * _BINS_PER_OCTAVE, _LAST_BIN))


@inner_njit
def nucleus_bin(
    row: Ints, mask: Ints, p: Float, peak: Float, scale: Float, cut: Float, values: Ints, bases: Ints, weights: Floats
) -> tuple[Int, Int, Float]:
    """The bin in which the mass of the best tokens reaches `p` of the mass above the cut.

    Returns the bin, how many tokens it holds, and how much mass is still wanted from it.
    """
    logits = values.view(np.float32)
    masses, counts = np.zeros(_BINS), np.zeros(_BINS, np.int64)
    word = ZERO
    while word < (row.size + 31) >> 5:
        count, word = load(row, mask, word, values, bases)
        apply_cut(logits, bases, count, cut, _LAST_TOKEN)
        weigh(logits, count, peak, scale, weights)
        for index in range(count):
            place = bin_of(logits[index], peak, scale)
            masses[place] += weights[index]
            counts[place] += 1
    wanted = p * masses.sum()
    place = 0
    while place < _BINS - 1 and masses[place] < wanted:
        wanted -= masses[place]
        place += 1
    return place, counts[place], wanted


@inner_njit
def nucleus_cut(
    row: Ints, mask: Ints, p: Float, peak: Float, scale: Float, cut: Float, values: Ints, bases: Ints, weights: Floats
) -> tuple[Float, Int]:
    """Narrow a cut to the fewest best tokens that have at least `p` of the mass: cut and cut_token."""
    chosen, size, wanted = nucleus_bin(row, mask, p, peak, scale, cut, values, bases, weights)
    logits = values.view(np.float32)
    heap = np.empty(max(size, 1), np.int64)
    taken, word = ZERO, ZERO
    while word < (row.size + 31) >> 5:
        count, word = load(row, mask, word, values, bases)
        apply_cut(logits, bases, count, cut, _LAST_TOKEN)
        for index in range(count):
            if bin_of(logits[index], peak, scale) == chosen:
                token = bases[index >> 5] + (index & 31)
                taken = push(heap, taken, -code_of(key_of(values[index]), token))
    cut_token = _LAST_TOKEN
    while taken > 0:
        code = -heap[0]
        cut = np.int32(bits_of(key_in(code))).view(np.float32)
        cut_token = token_in(code)
        wanted -= weight_of(cut, peak, scale)
        if wanted <= 0:
            break
        taken -= 1
        heap[0] = heap[taken]
        sift_down(heap, taken, ZERO)
    return cut, cut_token


@inner_njit
def pick(
    row: Ints,
    mask: Ints,
    uniform: Float,
    peak: Float,
    scale: Float,
    cut: Float,
    cut_token: Int,
    values: Ints,
    bases: Ints,
    weights: Floats,
) -> Int:
    """The first kept token, in order of tokens, at which the distribution function exceeds `uniform`."""
    logits = values.view(np.float32)
    words = (row.size + 31) >> 5
    masses = np.empty((words + WORDS_PER_BLOCK - 1) // WORDS_PER_BLOCK)
    starts = np.empty(masses.size, np.int64)
    blocks, word = ZERO, ZERO
    while word < words:
        starts[blocks] = word
        count, word = load(row, mask, word, values, bases)
        apply_cut(logits, bases, count, cut, cut_token)
        masses[blocks] = weigh(logits, count, peak, scale, weights)
        blocks += 1
    rest = uniform * masses[:blocks].sum()
    chosen = 0
    while chosen < blocks - 1 and rest >= masses[chosen]:
        rest -= masses[chosen]
        chosen += 1
    while masses[chosen] == 0:  # rounding can carry past the last block that has mass
        chosen -= 1
        rest = np.inf
    count, _ = load(row, mask, starts[chosen], values, bases)
    apply_cut(logits, bases, count, cut, cut_token)
    weigh(logits, count, peak, scale, weights)
    token = np.int32(-1)
    for index in range(count):
        if weights[index] > 0:
            token = np.int32(bases[index >> 5] + (index & 31))
            rest -= weights[index]
            if rest < 0:
                break
    return token


@njit
def draw_kernel(
    bits: Ints,
    stride: Int,
    size: Int,
    words: Ints,
    numbers: Ints,
    uniforms: Doubles,
    settings: Doubles,
    tokens: Ints,
    status: Bytes,
) -> Int:
    """Draw one token for each row: int32 [B], -1 unless its status uint8 [B] is OK.

    `uniforms` float64 [B] in [0, 1); `settings` float64 [4, B]: temperature > 0, top_k >= 1, top_p, min_p.
    Returns the index of the first bad row number, or -1.
    """
    wrong = bad_number(words, numbers)
    if wrong >= 0:
        return wrong
    values, bases = np.empty(BLOCK, np.int32), np.empty(WORDS_PER_BLOCK, np.int32)
    weights = np.empty(BLOCK, np.float32)
    for index in range(numbers.size):
        row = bits[index * stride : index * stride + size]
        mask = mask_of(words, numbers[index])
        temperature, top_k, top_p, min_p = settings[:, index]
        key, status[index] = peak_of_row(row, mask, values, bases)
        tokens[index] = -1
        if status[index] != OK:
            continue
        peak = np.int32(bits_of(key)).view(np.float32)
        scale = np.float32(min(LOG2E / temperature, _STEEPEST))
        cut, cut_token = _NOTHING, _LAST_TOKEN
        if top_k < size:
            cut = kth_largest(row, mask, np.int64(top_k), values, bases)
        if top_p < 1:
            cut, cut_token = nucleus_cut(row, mask, top_p, peak, scale, cut, values, bases, weights)
        if min_p > 0:
            floor = np.float32(peak + temperature * np.log(min_p))
            if floor > cut:
                cut, cut_token = floor, _LAST_TOKEN
        tokens[index] = pick(row, mask, uniforms[index], peak, scale, cut, cut_token, values, bases, weights)
    return wrong
