"""Choosing tokens from logits under masks: argmax, log-sum-exp, sampling, and the best k for beam search.

Sampling applies temperature, top-k, top-p and min-p, then inverts the cumulative distribution. A cut describes the
result of the filters: a token is kept if its logit is above `cut`, or equal to it and the token is at most `cut_token`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..jit.aliases import Bytes, Doubles, Float, Floats, Int, Ints, Longs
from ..jit.compiling import inner_njit, njit
from .blocks import (
    ARGMAX,
    BLOCK,
    CHOSEN,
    CHOSEN_AND_RAW,
    EMPTY,
    LOG2E,
    MINUS_INFINITY,
    NAN,
    NO_KEY,
    OK,
    WORDS_PER_BLOCK,
    ZERO,
    add_block,
    add_raw,
    bad_number,
    bits_of,
    code_of,
    key_in,
    key_of,
    load,
    mask_of,
    push,
    scan_kernel,
    sift_down,
    sort_heap,
    status_of,
    token_in,
    top_of,
    weigh,
    weight_of,
)
from .contracts import CallProperties, KernelArguments, bad_row, check, flatten, per_row, whole


@inner_njit
def push_block(values: Ints, bases: Ints, count: Int, heap: Longs, filled: Int) -> Int:
    """Offer a block's values above -inf to a heap of codes. Return its new size."""
    floor = key_in(heap[0]) if filled == heap.size else key_of(MINUS_INFINITY)
    for index in range(count):
        key = key_of(values[index])
        if key > floor:
            filled = push(heap, filled, code_of(key, bases[index >> 5] + (index & 31)))
            if filled == heap.size:
                floor = key_in(heap[0])
    return filled


@inner_njit
def best_of_row(
    row: Ints, mask: Ints, much: Int, heap: Longs, values: Ints, bases: Ints, weights: Floats
) -> tuple[Int, Int, Float]:
    """Write the best codes of one row, sorted, to `heap`. Return their number, the row's status and log-sum-exp."""
    top, total, filled, word = -np.inf, 0.0, ZERO, ZERO
    best, largest, unusable = NO_KEY, np.int32(0), False
    while word < (row.size + 31) >> 5:
        start = word
        count, word = load(row, mask, word, values, bases)
        key, magnitude = top_of(values, count)
        best, largest = max(best, key), max(largest, magnitude)
        if filled < heap.size or key > key_in(heap[0]):
            filled = push_block(values, bases, count, heap, filled)
        if much == CHOSEN or (much == CHOSEN_AND_RAW and mask.size == 0):
            top, total = add_block(values, count, key, top, total, weights)
        elif much == CHOSEN_AND_RAW:
            top, total, bad = add_raw(row, start << 5, word << 5, top, total, weights)
            unusable |= bad
    sort_heap(heap, filled)
    status = NAN if unusable else status_of(best, largest)
    return filled, status, top + np.log(total) if total > 0 else -np.inf


@inner_njit
def merge_row(
    row: Int, offset: Float, heap: Longs, filled: Int, scores: Doubles, rows: Ints, tokens: Ints, found: Int
) -> Int:
    """Merge one row's codes, best first, into a group's best so far. Return the group's new number."""
    for place in range(filled):
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
    """Find the best k of each group of rows by added[row] + logit - normaliser[row].

    `added` float64 [B]; rows with -inf are not read. `best` float64, `rows` and `tokens` int32 [groups, k]: best first,
    ties by lower row and then token; padded with -inf, -1 and -1. `normaliser` float64 [B], 0 if much == ARGMAX.
    Returns the index of the first bad row number, or -1.
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
            filled, what, total = best_of_row(logits, mask, much, heap, values, bases, weights)
            status[row] = what
            if much >= CHOSEN:
                normaliser[row] = total
            if what != NAN and what != EMPTY:
                offset = added[row] - normaliser[row]
                found = merge_row(row, offset, heap, filled, best[number], rows[number], tokens[number], found)
    return wrong


_BINS = 2048
_BINS_PER_OCTAVE = np.float32(40)
_LAST_BIN = np.float32(_BINS - 1)
_MASKED = np.float32(-np.inf)
_STEEPEST = 3e38
_LAST_TOKEN = np.int32(0x7FFFFFFF)


@inner_njit
def peak_of_row(row: Ints, mask: Ints, values: Ints, bases: Ints) -> tuple[Int, Int]:
    """Return the largest key of the allowed logits, and the row's status."""
    best, largest, word = NO_KEY, np.int32(0), ZERO
    while word < (row.size + 31) >> 5:
        count, word = load(row, mask, word, values, bases)
        key, magnitude = top_of(values, count)
        best, largest = max(best, key), max(largest, magnitude)
    return best, status_of(best, largest)


@inner_njit
def kth_largest(row: Ints, mask: Ints, k: Int, values: Ints, bases: Ints) -> np.float32:
    """Return the k-th largest allowed logit, -inf if fewer are above -inf."""
    heap = np.empty(k, np.int64)
    filled, word = ZERO, ZERO
    while word < (row.size + 31) >> 5:
        count, word = load(row, mask, word, values, bases)
        key, _ = top_of(values, count)
        if filled < k or key > key_in(heap[0]):
            filled = push_block(values, bases, count, heap, filled)
    return np.int32(bits_of(key_in(heap[0]))).view(np.float32) if filled == k else _MASKED


@inner_njit
def apply_cut(logits: Floats, bases: Ints, count: Int, cut: Float, cut_token: Int) -> None:
    """Set the logits of a block that are not kept to -inf."""
    for place in range(count >> 5):
        part = logits[place << 5 : (place + 1) << 5]
        room = cut_token - bases[place]
        for lane in range(part.size):
            value = part[lane]
            part[lane] = value if value > cut or (value == cut and lane <= room) else _MASKED


@inner_njit
def bin_of(value: Float, peak: Float, scale: Float) -> Int:
    """Return the histogram bin of a logit; larger logits have lower bins."""
    return np.int32(min((peak - value) * scale * _BINS_PER_OCTAVE, _LAST_BIN))


@inner_njit
def nucleus_bin(
    row: Ints, mask: Ints, p: Float, peak: Float, scale: Float, cut: Float, values: Ints, bases: Ints, weights: Floats
) -> tuple[Int, Int, Float]:
    """Find the bin in which the mass of the best tokens reaches `p` of the mass above the cut.

    Returns the bin, its number of tokens, and the mass still needed from it.
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
    """Narrow a cut to the fewest best tokens with at least `p` of the mass. Return cut and cut_token."""
    chosen, size, wanted = nucleus_bin(row, mask, p, peak, scale, cut, values, bases, weights)
    logits = values.view(np.float32)
    heap = np.empty(max(size, 1), np.int64)
    filled, word = ZERO, ZERO
    while word < (row.size + 31) >> 5:
        count, word = load(row, mask, word, values, bases)
        apply_cut(logits, bases, count, cut, _LAST_TOKEN)
        for index in range(count):
            if bin_of(logits[index], peak, scale) == chosen:
                token = bases[index >> 5] + (index & 31)
                filled = push(heap, filled, -code_of(key_of(values[index]), token))
    cut_token = _LAST_TOKEN
    while filled > 0:
        code = -heap[0]
        cut = np.int32(bits_of(key_in(code))).view(np.float32)
        cut_token = token_in(code)
        wanted -= weight_of(cut, peak, scale)
        if wanted <= 0:
            break
        filled -= 1
        heap[0] = heap[filled]
        sift_down(heap, filled, ZERO)
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
    """Return the first kept token, by token id, at which the cumulative distribution exceeds `uniform`."""
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
    while masses[chosen] == 0:  # rounding can go past the last block with mass
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
        cut, cut_token = _MASKED, _LAST_TOKEN
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


__all__ = [
    "EMPTY",
    "NAN",
    "OK",
    "Best",
    "Chosen",
    "LogitSums",
    "logsumexp",
    "masked_argmax",
    "masked_sample",
    "masked_topk",
    "token_logprobs",
]


class Chosen(NamedTuple):
    """One token for each row.

    `tokens` int32 [B], -1 unless the status is OK; `status` uint8 [B]; `logprobs` and `raw_logprobs` float64
    [B], the token's log-probability among the allowed and among all tokens at temperature 1, or None.
    """

    tokens: Any
    status: Any
    logprobs: Any = None
    raw_logprobs: Any = None


class LogitSums(NamedTuple):
    """Log-sum-exp of each row, float64 [B], over the allowed and over all tokens; `status` uint8 [B]."""

    masked: Any
    raw: Any
    status: Any


class Best(NamedTuple):
    """The best candidates of each group of rows, best first, ties by lower row and then token.

    `scores` float64, `rows` and `tokens` int32 [B / group, k], padded with -inf, -1, -1; `normaliser` float64 [B],
    subtracted from a row's logits; `status` uint8 [B], EMPTY for rows that were not read.
    """

    scores: Any
    rows: Any
    tokens: Any
    normaliser: Any
    status: Any


_MUCH = {"raw": CHOSEN_AND_RAW, "masked": CHOSEN, "none": ARGMAX}


def masked_argmax(
    logits: Any, masks: Any = None, rows: Any = None, size: int | None = None, *, logprobs: bool = False
) -> Chosen:
    """Return the allowed token with the largest logit in each row, the lowest of equals.

    Logits are read once; without `logprobs` only allowed ones. Raises TypeError and ValueError.
    """
    contract = check(logits, masks, rows, size)
    if contract.device != "cpu":
        from .triton_select import masked_argmax as on_device

        return Chosen(*on_device(logits, masks, rows, contract, logprobs))
    flat = flatten(logits, masks, rows, contract)
    tokens, status, masked, raw = _scan(flat, contract, CHOSEN_AND_RAW if logprobs else ARGMAX)
    if not logprobs:
        return Chosen(tokens, status)
    return Chosen(tokens, status, *_logprobs(flat, tokens, masked, raw))


def logsumexp(
    logits: Any, masks: Any = None, rows: Any = None, size: int | None = None, *, raw: bool = True
) -> LogitSums:
    """Return the log-sum-exp of each row's allowed logits and, from the same pass, of all logits.

    With `raw=False`, the raw sums of rows with a mask are -inf. Sums are -inf where nothing is allowed.
    """
    contract = check(logits, masks, rows, size)
    if contract.device != "cpu":
        from .triton_select import logsumexp as on_device

        return LogitSums(*on_device(logits, masks, rows, contract, raw))
    flat = flatten(logits, masks, rows, contract)
    _, status, masked, everything = _scan(flat, contract, CHOSEN_AND_RAW if raw else CHOSEN)
    return LogitSums(masked, everything, status)


def masked_sample(
    logits: Any,
    uniforms: Any,
    masks: Any = None,
    rows: Any = None,
    size: int | None = None,
    *,
    temperature: Any = 1.0,
    top_k: Any = 0,
    top_p: Any = 1.0,
    min_p: Any = 0.0,
    logprobs: bool = False,
) -> Chosen:
    """Draw a token for each row from its allowed tokens; filters apply in the order of transformers.

    `uniforms` float64 [B] in [0, 1): the result is the first token, by id, at which the cumulative distribution exceeds
    it. Filters are numbers, or one for each row: `temperature` > 0; `top_k`, 0 = off, keeps ties with the k-th logit;
    `top_p` keeps the fewest best tokens with at least that mass, ties by lower id; `min_p` keeps tokens with at least
    that share of the best one's probability. Tokens below 2 ** -125 of the best one's probability are never drawn.
    Raises TypeError and ValueError.
    """
    contract = check(logits, masks, rows, size)
    uniforms, settings = _sampling(contract, uniforms, temperature, top_k, top_p, min_p)
    if contract.device != "cpu":
        from .triton_select import masked_sample as on_device

        return Chosen(*on_device(logits, masks, rows, contract, uniforms, settings, logprobs))
    flat = flatten(logits, masks, rows, contract)
    tokens, status = np.empty(contract.batch, np.int32), np.empty(contract.batch, np.uint8)
    _raise_if_bad(flat, draw_kernel(*flat, uniforms, settings, tokens, status))
    if not logprobs:
        return Chosen(tokens, status)
    _, seen, masked, raw = _scan(flat, contract, CHOSEN_AND_RAW)
    tokens[seen != OK] = -1
    return Chosen(tokens, seen, *_logprobs(flat, tokens, masked, raw))


def masked_topk(
    logits: Any,
    k: int,
    masks: Any = None,
    rows: Any = None,
    size: int | None = None,
    *,
    scores: Any = None,
    group: int = 1,
    normalise: str = "raw",
) -> Best:
    """Return the best k of beams x vocabulary, for every `group` of consecutive rows; logits are read once.

    A candidate's score is `scores[row]` (float64 [B], default 0; rows with -inf are not read) plus its logit minus the
    row's log-sum-exp over all tokens ("raw": log-softmax, then the mask), over the allowed ones ("masked") or 0
    ("none").
    Raises TypeError and ValueError.
    """
    contract = check(logits, masks, rows, size)
    if not isinstance(normalise, str) or normalise not in _MUCH:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"normalise: {normalise!r}; possible are {', '.join(map(repr, _MUCH))}")
    k, group = whole(k, "k"), whole(group, "group")
    if group < 1 or contract.batch % group:
        raise ValueError(f"group: {contract.batch} rows cannot be divided into groups of {group}")
    if not 0 < k <= group * contract.size:
        raise ValueError(f"k: {k}; possible are 1 to {group * contract.size}, all tokens of a group's rows")
    added = per_row(0.0 if scores is None else scores, contract.batch, "scores")
    if contract.device != "cpu":
        from .triton_select import masked_topk as on_device

        return Best(*on_device(logits, masks, rows, contract, k, added, group, normalise))
    flat = flatten(logits, masks, rows, contract)
    shape = (contract.batch // group, k)
    best = (np.empty(shape), np.empty(shape, np.int32), np.empty(shape, np.int32))
    normaliser, status = np.empty(contract.batch), np.empty(contract.batch, np.uint8)
    _raise_if_bad(flat, topk_kernel(*flat, _MUCH[normalise], added, *best, normaliser, status))
    return Best(*best, normaliser, status)


def token_logprobs(logits: Any, tokens: Any, masks: Any = None, rows: Any = None, size: int | None = None) -> Chosen:
    """Return log-probabilities of given tokens int32 [B] among the allowed and among all tokens; NaN for token -1."""
    contract = check(logits, masks, rows, size)
    ids = per_row(tokens, contract.batch, "tokens")
    if ((ids < -1) | (ids >= contract.size) | (ids != np.floor(ids))).any():
        raise ValueError(f"tokens: ids must lie in -1 ... {contract.size - 1} and be whole, found {ids.tolist()}")
    wanted = ids.astype(np.int32)
    if contract.device != "cpu":
        from .triton_select import token_logprobs as on_device

        return Chosen(*on_device(logits, wanted, masks, rows, contract))
    flat = flatten(logits, masks, rows, contract)
    _, status, masked, raw = _scan(flat, contract, CHOSEN_AND_RAW)
    return Chosen(wanted, status, *_logprobs(flat, wanted, masked, raw))


def _sampling(
    contract: CallProperties, uniforms: Any, temperature: Any, top_k: Any, top_p: Any, min_p: Any
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Check the numbers for sampling. Return uniforms float64 [B] and settings float64 [4, B]."""
    batch = contract.batch
    uniforms = per_row(uniforms, batch, "uniforms")
    settings = np.empty((4, batch))
    settings[0] = per_row(temperature, batch, "temperature")
    settings[1] = per_row(top_k, batch, "top_k")
    settings[2] = per_row(top_p, batch, "top_p")
    settings[3] = per_row(min_p, batch, "min_p")
    if ((uniforms < 0) | (uniforms >= 1)).any():
        raise ValueError("uniforms: numbers must lie in [0, 1)")
    if not (settings[0] > 0).all() or np.isinf(settings[0]).any():
        raise ValueError("temperature: must be finite and above 0; masked_argmax is the limit at 0")
    if (settings[1] < 0).any() or (settings[1] != np.floor(settings[1])).any():
        raise ValueError("top_k: must be a whole number, 0 for all tokens")
    if ((settings[2] <= 0) | (settings[2] > 1)).any():
        raise ValueError("top_p: must lie in (0, 1], 1 for all tokens")
    if ((settings[3] < 0) | (settings[3] > 1)).any():
        raise ValueError("min_p: must lie in [0, 1], 0 for all tokens")
    settings[1, (settings[1] == 0) | (settings[1] > contract.size)] = contract.size
    return uniforms, settings


def _raise_if_bad(flat: KernelArguments, wrong: Int) -> None:
    if wrong >= 0:
        raise bad_row(int(flat.numbers[wrong]), len(flat.words))


def _scan(flat: KernelArguments, contract: CallProperties, much: int) -> tuple[Any, Any, Any, Any]:
    batch = contract.batch
    results = (np.empty(batch, np.int32), np.empty(batch, np.uint8), np.empty(batch), np.empty(batch))
    _raise_if_bad(flat, scan_kernel(*flat, much, *results))
    return results


def _logprobs(flat: KernelArguments, tokens: Any, masked: Any, raw: Any) -> tuple[Any, Any]:
    """Return the log-probabilities of chosen tokens; NaN where none was chosen."""
    places = np.arange(len(tokens)) * flat.stride + np.maximum(tokens, 0)
    chosen = np.where(tokens < 0, np.nan, flat.bits[places].view(np.float32).astype(np.float64))
    return chosen - masked, chosen - raw
