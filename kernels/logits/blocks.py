"""Compiled pieces of the CPU kernels: loading allowed logits, block maxima, exponentials, a heap; and argmax.

Logits are int32, the bits of float32. `key_of` maps these to integers of the same order as the floats, so that maxima
vectorise without `fastmath` assumptions on NaN. A disallowed logit is loaded as -inf.

Kernels read each row of logits once. They take the fields of `contracts.Flat` first, and return the index of the first
bad row number, or -1.
"""

from __future__ import annotations

import numpy as np

from ..jit.aliases import Bytes, Doubles, Float, Floats, Int, Ints, Longs, Truth
from ..jit.compiling import inner_njit, njit

WORDS_PER_BLOCK = 32
BLOCK = 32 * WORDS_PER_BLOCK

MINUS_INFINITY = np.int32(-0x00800000)  # the bits of float32 -inf
INFINITE = np.int32(0x7F800000)  # the key of +inf; of -inf, its negative
NO_KEY = np.int32(-0x7FFFFFFF)  # below every key
_MAGNITUDE = np.int32(0x7FFFFFFF)
_LANES = np.array([1 << lane for lane in range(32)], np.uint32).view(np.int32)

# Start of loops. The type of a literal 0 differs, so callees would be compiled twice
ZERO = np.int64(0)

OK, NAN, EMPTY = 0, 1, 2  # statuses of a row; NAN includes +inf

# Minimax polynomial: 2 ** r = 1 + c1 r + ... + c5 r ** 5 for |r| <= 1/2, with a relative error of 2e-7 in float32
_P1, _P2, _P3, _P4, _P5 = (
    np.float32(0.693147),
    np.float32(0.24022242),
    np.float32(0.055507336),
    np.float32(0.009671513),
    np.float32(0.0013264727),
)
_ONE = np.float32(1)
_HALF = np.float32(0.5)
_ZERO = np.float32(0)
_LOWEST = np.float32(-125)
_BIAS = np.int32(127)
_MANTISSA = np.int32(23)
_FASTMATH = {"reassoc", "contract", "nsz"}
LOG2E = 1.4426950408889634


@inner_njit
def key_of(bits: Int) -> np.int32:
    """Return an integer that compares as the float32 with these bits; both zeros give 0."""
    magnitude = np.int32(bits & _MAGNITUDE)
    return magnitude if bits >= 0 else np.int32(-magnitude)


@inner_njit
def bits_of(key: Int) -> Int:
    """Return the bits of the float32 with this key."""
    return key if key >= 0 else np.int32(np.int32(-key) | np.int32(-0x80000000))


@inner_njit
def load(row: Ints, mask: Ints, word: Int, values: Ints, bases: Ints) -> tuple[Int, Int]:
    """Copy the logits of the next words that allow any token, at most a block of them.

    `mask` is int32 [W], or [0] if everything is allowed. Fills `values` int32 [BLOCK] and `bases` int32
    [WORDS_PER_BLOCK]: value j belongs to token bases[j // 32] + j % 32. Returns the number of values, a multiple of 32,
    and the next word to read.
    """
    words = (row.size + 31) >> 5
    if mask.size == 0:
        return _load_all(row, word, values, bases)
    if row.size - (word << 5) >= BLOCK and _is_filled(mask[word : word + WORDS_PER_BLOCK]):
        return _load_block(row, mask, word, values, bases)
    lanes = _LANES
    count = 0
    while word < words and count < WORDS_PER_BLOCK:
        allowed = mask[word]
        if allowed == 0:
            word += 1
            while word + 8 <= words and not _any_of_eight(mask, word):
                word += 8
            continue
        first = word << 5
        bases[count] = first
        target = values[count << 5 : (count + 1) << 5]
        source = row[first : first + 32]
        if source.size == 32:
            for lane in range(32):
                target[lane] = source[lane] if (allowed & lanes[lane]) != 0 else MINUS_INFINITY
        else:
            target[:] = MINUS_INFINITY
            for lane in range(source.size):
                target[lane] = source[lane] if (allowed & lanes[lane]) != 0 else MINUS_INFINITY
        count += 1
        word += 1
    return count << 5, word


@inner_njit
def _is_filled(words: Ints) -> bool:
    """Test whether too many words are non-zero for skipping zeros to pay."""
    count = 0
    for word in words:
        count += word != 0
    return 4 * count > WORDS_PER_BLOCK


@inner_njit
def _load_block(row: Ints, mask: Ints, word: Int, values: Ints, bases: Ints) -> tuple[Int, Int]:
    lanes = _LANES
    first = word << 5
    source = row[first : first + BLOCK].reshape(WORDS_PER_BLOCK, 32)
    target = values.reshape(WORDS_PER_BLOCK, 32)
    part = mask[word : word + WORDS_PER_BLOCK]
    for index in range(WORDS_PER_BLOCK):
        allowed = part[index]
        bases[index] = first + (index << 5)
        for lane in range(32):
            target[index, lane] = source[index, lane] if (allowed & lanes[lane]) != 0 else MINUS_INFINITY
    return BLOCK, word + WORDS_PER_BLOCK


@inner_njit
def _load_all(row: Ints, word: Int, values: Ints, bases: Ints) -> tuple[Int, Int]:
    first = word << 5
    source = row[first : first + BLOCK]
    words = (source.size + 31) >> 5
    for index in range(source.size):
        values[index] = source[index]
    for index in range(source.size, words << 5):
        values[index] = MINUS_INFINITY
    for index in range(words):
        bases[index] = first + (index << 5)
    return words << 5, word + words


@inner_njit
def _any_of_eight(mask: Ints, word: Int) -> bool:
    seen = np.int32(0)
    for offset in range(8):
        seen |= mask[word + offset]
    return seen != 0


@inner_njit
def top_of(values: Ints, count: Int) -> tuple[Int, Int]:
    """Return the largest key of the first `count` values, and their largest magnitude (above INFINITE for a NaN)."""
    top = NO_KEY
    largest = np.int32(0)
    for index in range(count):
        bits = values[index]
        magnitude = np.int32(bits & _MAGNITUDE)
        largest = max(largest, magnitude)
        top = max(top, magnitude if bits >= 0 else np.int32(-magnitude))
    return top, largest


@inner_njit(fastmath=_FASTMATH)
def weight_of(value: Float, top: Float, scale: Float) -> np.float32:
    """Return 2 ** ((value - top) * scale), or 0 where that is below 2 ** -125; float32.

    The relative error is below 4e-7, plus 1e-7 for every octave below 1.

    `top` must be finite and no smaller than `value`. The weight of NaN is 0.
    """
    exponent = (value - top) * scale
    bounded = exponent if exponent > _LOWEST else _LOWEST  # NaN too
    whole = np.floor(bounded + _HALF)
    part = bounded - whole
    power = _ONE + part * (_P1 + part * (_P2 + part * (_P3 + part * (_P4 + part * _P5))))
    two = np.int32((np.int32(whole) + _BIAS) << _MANTISSA).view(np.float32)
    return power * two if exponent > _LOWEST else _ZERO


@njit(fastmath=_FASTMATH)
def weigh(values: Floats, count: Int, top: Float, scale: Float, weights: Floats) -> np.float32:
    """Write the weights of the first `count` values. Return their sum."""
    total = _ZERO
    for index in range(count):
        weight = weight_of(values[index], top, scale)
        weights[index] = weight
        total += weight
    return total


@inner_njit
def merge_sums(top: Float, total: Float, other: Float, amount: Float) -> tuple[Float, Float]:
    """Add `amount` * exp(other) to `total` * exp(top), all float64. Return the new top and total."""
    if other == -np.inf:
        return top, total
    if other > top:
        return other, amount + total * np.exp(top - other)
    return top, total + amount * np.exp(other - top)


@inner_njit
def code_of(key: Int, token: Int) -> Int:
    """Return an int64 that orders candidates: by key, then the lower token first."""
    return (np.int64(key) << np.int64(32)) | np.int64(0x7FFFFFFF - token)


@inner_njit
def key_in(code: Int) -> np.int32:
    """Return the key of a code."""
    return np.int32(code >> np.int64(32))


@inner_njit
def token_in(code: Int) -> np.int32:
    """Return the token of a code."""
    return np.int32(0x7FFFFFFF - (code & np.int64(0x7FFFFFFF)))


@inner_njit
def sift_down(heap: Longs, size: Int, index: Int) -> None:
    """Restore the order of a min-heap of `size` codes below `index`."""
    code = heap[index]
    while 2 * index + 1 < size:
        child = 2 * index + 1
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= code:
            break
        heap[index] = heap[child]
        index = child
    heap[index] = code


@inner_njit
def push(heap: Longs, size: Int, code: Int) -> Int:
    """Offer a code to a heap of the largest codes, which has `size` codes. Return the new size."""
    if size == heap.size:
        if code > heap[0]:
            heap[0] = code
            sift_down(heap, size, ZERO)
        return size
    index = size
    while index > 0 and heap[(index - 1) >> 1] > code:
        heap[index] = heap[(index - 1) >> 1]
        index = (index - 1) >> 1
    heap[index] = code
    return size + 1


@inner_njit
def sort_heap(heap: Longs, size: Int) -> None:
    """Turn a min-heap into codes in descending order."""
    while size > 1:
        size -= 1
        smallest = heap[0]
        heap[0] = heap[size]
        heap[size] = smallest
        sift_down(heap, size, ZERO)


ARGMAX, CHOSEN, CHOSEN_AND_RAW = 0, 1, 2  # results of scan_kernel

_LOG2E = np.float32(LOG2E)


@inner_njit
def bad_number(words: Ints, numbers: Ints) -> Int:
    """Return the index of the first row number outside the table, or -1."""
    for index in range(numbers.size):
        if numbers[index] < -1 or numbers[index] >= words.shape[0]:
            return index
    return -1


@inner_njit
def mask_of(words: Ints, number: Int) -> Ints:
    """Return a mask by number; an empty array for -1, no mask."""
    return words[max(number, 0), : 0 if number < 0 else words.shape[1]]


@inner_njit
def status_of(top: Int, largest: Int) -> Int:
    """Return the status of a row, given the largest key and magnitude of its allowed logits."""
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
    """Add logits first ... last - 1, masked or not, to a log-sum-exp. Return top, total, whether any is unusable."""
    unusable = False
    for start in range(first, min(last, row.size), BLOCK):
        part = row[start : min(start + BLOCK, last, row.size)]
        key, largest = top_of(part, part.size)
        unusable |= largest > INFINITE or key == INFINITE
        top, total = add_block(part, part.size, key, top, total, weights)
    return top, total, unusable


@inner_njit
def locate(row: Ints, mask: Ints, word: Int, key: Int, values: Ints, bases: Ints) -> Int:
    """Return the lowest token with this key in the block that starts at `word`."""
    count, _ = load(row, mask, word, values, bases)
    for index in range(count):
        if key_of(values[index]) == key:
            return np.int32(bases[index >> 5] + (index & 31))
    return np.int32(-1)


@inner_njit
def scan_row(
    row: Ints, mask: Ints, much: Int, values: Ints, bases: Ints, weights: Floats
) -> tuple[Int, Int, Float, Float]:
    """Return a row's best token, status, and log-sum-exp over the allowed and over all logits."""
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
    """Write argmax int32 [B], status uint8 [B], and log-sum-exp float64 [B] over the allowed and over all logits."""
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
