"""Triton kernels that read each logit once, by blocks and then rows; and cuts of top-k, top-p and min-p.

Cuts need no sorting. The k-th largest logit, and the logit at which the cumulative probability reaches a share, are
found four bits at a time, by radix search over integers that compare as the logits: each pass sums what lies at and
above sixteen evenly spaced integers, and the next one refines the interval between two of them. Sums of blocks are
added in order, so equal rows get equal cuts in any batch.
"""
# Triton code has no Python types, and Triton may not be installed.
# pyright: basic, reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false, reportMissingImports=false, reportOperatorIssue=false

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from .triton_mask import BLOCK, MaskRows, allowed_at, on

INFINITE = tl.constexpr(0x7F800000)  # the key of float32 +inf; of -inf, its negative
_STATUS_OK, _STATUS_NAN, _STATUS_EMPTY = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
_BAD_CHOICE, _BAD_ROW = tl.constexpr(1), tl.constexpr(2)


class ScanResults(NamedTuple):
    """Results for each row: `tokens` int32, `status` uint8, `peaks` float32, log-sum-exp `masked` and `raw` float64."""

    tokens: Any
    status: Any
    peaks: Any
    masked: Any
    raw: Any
    codes: Any


@triton.jit
def key_of(values):
    """Return an integer that compares as the float32; both zeros give 0."""
    bits = values.to(tl.int32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    return tl.where(bits < 0, -magnitude, magnitude)


@triton.jit
def value_of(key):
    """Return the float32 with this key."""
    bits = tl.where(key < 0, (-key) | -0x80000000, key)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def sum_above(values, counted):
    """Return the largest counted value and the sum of exp(value - largest); (-inf, 0) if all are -inf."""
    values = tl.where(counted, values, float("-inf"))
    top = tl.max(values, axis=0)
    safe = tl.where(top > float("-inf"), top, 0.0)
    return top, tl.sum(tl.exp(values - safe), axis=0)


@triton.jit
def scan_blocks(
    logits, stride, words, width, count, numbers, size,
    codes, peaks, sums, raw_peaks, raw_sums, flags,
    BLOCK: tl.constexpr, KEEP: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Scan one block of one row: its best codes int64 [B, blocks, KEEP], and its parts of both log-sum-exps."""
    row, block = tl.program_id(0), tl.program_id(1)
    tokens = block * BLOCK + tl.arange(0, BLOCK)
    allowed = allowed_at(words, width, count, tl.load(numbers + row), tokens, size)
    inside = tokens < size
    place = logits + row.to(tl.int64) * stride + tokens
    values = tl.load(place, mask=inside, other=float("-inf")).to(tl.float32)
    keys = key_of(values)
    bad = (values != values) | (keys == INFINITE)
    one = row * tl.num_programs(1) + block
    spoiled = tl.max((bad & allowed).to(tl.int32), axis=0) * _BAD_CHOICE
    tl.store(flags + one, spoiled + tl.max((bad & inside).to(tl.int32), axis=0) * _BAD_ROW)
    ranked = (keys.to(tl.int64) << 32) | (0x7FFFFFFF - tokens).to(tl.int64)
    ranked = tl.where(allowed, ranked, -0x7FFFFFFFFFFFFFFF)
    if KEEP == 1:
        tl.store(codes + one, tl.max(ranked, axis=0))
    else:
        tl.store(codes + one * KEEP + tl.arange(0, KEEP), tl.topk(ranked, KEEP))
    sane = tl.where(bad, float("-inf"), values)
    peak, total = sum_above(sane, allowed)
    tl.store(peaks + one, peak)
    tl.store(sums + one, total)
    peak, total = sum_above(sane, inside)
    tl.store(raw_peaks + one, peak)
    tl.store(raw_sums + one, total)


@triton.jit
def log_total(peaks, sums, places, present):
    """Return the log-sum-exp, float64, of blocks given by largest values and sums relative to these."""
    tops = tl.load(peaks + places, mask=present, other=float("-inf")).to(tl.float64)
    amounts = tl.load(sums + places, mask=present, other=0.0).to(tl.float64)
    top = tl.max(tops, axis=0)
    safe = tl.where(top > float("-inf"), top, 0.0)
    total = tl.sum(tl.where(amounts > 0, amounts * tl.exp(tops - safe), 0.0), axis=0)
    return tl.where(total > 0, safe + tl.log(tl.where(total > 0, total, 1.0)), float("-inf"))


@triton.jit
def finish_rows(
    codes, peaks, sums, raw_peaks, raw_sums, flags,
    tokens, status, tops, masked, raw, blocks,
    WITH_RAW: tl.constexpr, SLOTS: tl.constexpr, KEEP: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Combine the blocks of one row: token, status, largest logit, both log-sum-exps. SLOTS: power of 2 >= blocks."""
    row = tl.program_id(0)
    places = row * blocks + tl.arange(0, SLOTS)
    present = tl.arange(0, SLOTS) < blocks
    best = tl.max(tl.load(codes + places * KEEP, mask=present, other=-0x7FFFFFFFFFFFFFFF), axis=0)
    seen = tl.load(flags + places, mask=present, other=0)
    spoiled = tl.max(seen & _BAD_CHOICE, axis=0) > 0
    if WITH_RAW:
        spoiled = spoiled | (tl.max(seen & _BAD_ROW, axis=0) > 0)
    key = (best >> 32).to(tl.int32)
    empty = key <= -INFINITE
    what = tl.where(spoiled, _STATUS_NAN, tl.where(empty, _STATUS_EMPTY, _STATUS_OK))
    token = (0x7FFFFFFF - (best & 0x7FFFFFFF)).to(tl.int32)
    tl.store(tokens + row, tl.where(what == _STATUS_OK, token, -1))
    tl.store(status + row, what.to(tl.uint8))
    tl.store(tops + row, value_of(tl.where(what == _STATUS_OK, key, 0)))
    tl.store(masked + row, log_total(peaks, sums, places, present))
    tl.store(raw + row, log_total(raw_peaks, raw_sums, places, present))


def scan(inputs: MaskRows, with_raw: bool, keep: int = 1) -> ScanResults:
    """Scan all rows; `codes` int64 [B, blocks, keep] are the best codes of each block (keep: a power of 2)."""
    batch, device = inputs.logits.shape[0], inputs.logits.device
    blocks = triton.cdiv(inputs.size, BLOCK)

    def room(dtype: Any, *shape: int) -> Any:
        return torch.empty((batch, *shape), dtype=dtype, device=device)

    codes = room(torch.int64, blocks, keep)
    parts = (codes, *(room(torch.float32, blocks) for _ in range(4)), room(torch.int32, blocks))
    rows = (room(torch.int32), room(torch.uint8), room(torch.float32), room(torch.float64), room(torch.float64))
    if batch:
        with on(inputs.logits):
            scan_blocks[(batch, blocks)](*inputs, *parts, BLOCK=BLOCK, KEEP=keep)
            slots = triton.next_power_of_2(blocks)
            finish_rows[(batch,)](*parts, *rows, blocks, WITH_RAW=with_raw, SLOTS=slots, KEEP=keep)
    return ScanResults(*rows, codes)


CUT_BLOCK = 4096
LAST_TOKEN = tl.constexpr(0x7FFFFFFF)
_LOWEST = tl.constexpr(-125.0)
_LOG2E = tl.constexpr(1.4426950408889634)
_STEEPEST = tl.constexpr(3e38)
_TEMPERATURE, _TOP_K, _TOP_P, _MIN_P = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2), tl.constexpr(3)
_ORIGIN = tl.constexpr(1 << 31)
_BITS = {torch.bfloat16: 16, torch.float16: 20}
"""Leading bits in which keys of a dtype differ; 32 for other dtypes."""


@triton.jit
def setting(settings, which, batch, row):
    """Load one setting of a row."""
    return tl.load(settings + which * batch + row)


@triton.jit
def scale_of(settings, batch, row):
    """Return the factor from logits to exponents of 2, float32. Rows with temperature 0 are not drawn."""
    temperature = setting(settings, _TEMPERATURE, batch, row)
    return tl.minimum(_LOG2E / tl.where(temperature > 0, temperature, 1.0), _STEEPEST).to(tl.float32)


@triton.jit
def weight_of(values, peak, scale):
    """Return the weights float32 of logits relative to the row's largest."""
    exponents = (values - peak) * scale
    return tl.where(exponents > _LOWEST, tl.exp2(exponents), 0.0)


@triton.jit
def narrowed(partial, found, reached, goals, goal, row, batch, blocks,
             PASS: tl.constexpr, MASS: tl.constexpr, SLOTS: tl.constexpr):  # noqa: N803  # fmt: skip
    """Return the state after PASS passes: the integer so far, the amount above it, and the goal."""
    slots = tl.arange(0, SLOTS)
    lanes = tl.arange(0, 16)
    lines = (((PASS - 1) % 2) * batch + row) * blocks + slots
    amounts = tl.load(partial + lines[:, None] * 16 + lanes[None, :], mask=(slots < blocks)[:, None], other=0.0)
    totals = tl.sum(amounts.to(tl.float64), 0)
    before = (PASS - 1) * batch + row
    if MASS:
        goal = goal * tl.sum(tl.where(lanes == 0, totals, 0.0), 0) if PASS == 1 else tl.load(goals + row)
    digit = tl.max(tl.where((totals >= goal) & (lanes > 0), lanes, 0), 0)
    above = tl.sum(tl.where(lanes == digit + 1, totals, 0.0), 0)
    number = digit.to(tl.int64) << (32 - 4 * PASS)
    if PASS > 1:
        number += tl.load(found + before)
        above = tl.where(digit == 15, tl.load(reached + before), above)
    return number, above, goal


@triton.jit
def kth_of(partial, found, reached, goals, settings, size, row, batch, blocks,
           PASSES: tl.constexpr, SLOTS: tl.constexpr):  # noqa: N803  # fmt: skip
    """Return the row's top_k-th largest logit, after all passes; -inf if all are kept."""
    wanted = setting(settings, _TOP_K, batch, row)
    cut = row * 0 - INFINITE
    if wanted < size:
        number, _, _ = narrowed(partial, found, reached, goals, wanted, row, batch, blocks, PASSES, False, SLOTS)
        cut = tl.maximum((number - _ORIGIN).to(tl.int32), cut)
    return value_of(cut)


@triton.jit
def tally_blocks(
    logits, stride, words, width, count, numbers, size, peaks, settings, cuts,
    partial, found, reached, goals, k_partial, k_found, batch,
    PASS: tl.constexpr, PASSES: tl.constexpr, MASS: tl.constexpr, BLOCK: tl.constexpr, SLOTS: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Run one pass over one block of one row: the number or weight of tokens at and above each of sixteen integers."""
    row, block = tl.program_id(0), tl.program_id(1)
    blocks = tl.num_programs(1)
    if MASS:
        goal = setting(settings, _TOP_P, batch, row)
        if PASS == 0:
            cut = kth_of(k_partial, k_found, reached, goals, settings, size, row, batch, blocks, PASSES, SLOTS)
            if block == 0:
                tl.store(cuts + row, cut)
        else:
            cut = tl.load(cuts + row)
        if goal >= 1:
            return
    else:
        goal = setting(settings, _TOP_K, batch, row)
        if goal >= size:
            return
    number = (row * 0).to(tl.int64)
    if PASS > 0:
        number, above, goal = narrowed(partial, found, reached, goals, goal, row, batch, blocks, PASS, MASS, SLOTS)
        if block == 0:
            tl.store(found + PASS * batch + row, number)
            if MASS:
                tl.store(reached + PASS * batch + row, above)
                if PASS == 1:
                    tl.store(goals + row, goal)
    tokens = block * BLOCK + tl.arange(0, BLOCK)
    allowed = allowed_at(words, width, count, tl.load(numbers + row), tokens, size)
    place = logits + row.to(tl.int64) * stride + tokens
    values = tl.load(place, mask=allowed, other=float("-inf")).to(tl.float32)
    keys = tl.where(allowed, key_of(values), -0x7FFFFFFF)
    if MASS:
        weights = weight_of(values, tl.load(peaks + row), scale_of(settings, batch, row))
        amounts = tl.where(allowed & (values >= cut), weights, 0.0)
    else:
        amounts = allowed.to(tl.float32)
    line = ((PASS % 2) * batch + row) * blocks + block
    for digit in tl.static_range(16):
        least = number + (digit << (28 - 4 * PASS)) - _ORIGIN
        total = tl.sum(tl.where(keys >= least.to(tl.int32), amounts, 0.0), 0)
        tl.store(partial + line * 16 + digit, total)


@triton.jit
def count_equals(
    logits, stride, words, width, count, numbers, size, settings, cuts, partial, found, reached, goals, equals, batch,
    PASSES: tl.constexpr, BLOCK: tl.constexpr, SLOTS: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Count the tokens of one block of one row that equal the logit at which top-p cuts: int32 [B, blocks]."""
    row, block = tl.program_id(0), tl.program_id(1)
    blocks = tl.num_programs(1)
    share = setting(settings, _TOP_P, batch, row)
    if share >= 1:
        return
    number, above, _ = narrowed(partial, found, reached, goals, share, row, batch, blocks, PASSES, True, SLOTS)
    if block == 0:
        tl.store(found + PASSES * batch + row, number)
        tl.store(reached + PASSES * batch + row, above)
    tokens = block * BLOCK + tl.arange(0, BLOCK)
    allowed = allowed_at(words, width, count, tl.load(numbers + row), tokens, size)
    place = logits + row.to(tl.int64) * stride + tokens
    keys = key_of(tl.load(place, mask=allowed, other=0.0).to(tl.float32))
    same = allowed & (keys == (number - _ORIGIN).to(tl.int32))
    tl.store(equals + row * blocks + block, tl.sum(same.to(tl.int32), 0))


@triton.jit
def finish_cuts(
    logits, stride, words, width, count, numbers, size, peaks, settings, cuts, cut_tokens,
    found, reached, goals, equals, batch, blocks,
    PASSES: tl.constexpr, BLOCK: tl.constexpr, SLOTS: tl.constexpr, FILTERED: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Write a row's cut: a logit float32, and the last token int32 that is kept among those equal to it."""
    row = tl.program_id(0)
    peak = tl.load(peaks + row)
    last = row * 0 + LAST_TOKEN
    if FILTERED:
        cut = tl.load(cuts + row)
        if setting(settings, _TOP_P, batch, row) < 1:
            key = (tl.load(found + PASSES * batch + row) - _ORIGIN).to(tl.int32)
            cut = value_of(tl.maximum(key, -INFINITE))
            each = weight_of(cut, peak, scale_of(settings, batch, row)).to(tl.float64)
            lacking = tl.load(goals + row) - tl.load(reached + PASSES * batch + row)
            slots = tl.arange(0, SLOTS)
            counts = tl.load(equals + row * blocks + slots, mask=slots < blocks, other=0)
            sums = tl.cumsum(counts, 0)
            wanted = tl.ceil(lacking / tl.where(each > 0, each, 1.0))
            wanted = tl.minimum(tl.maximum(wanted, 1.0), tl.sum(counts, 0).to(tl.float64)).to(tl.int32)
            block = tl.min(tl.where(sums >= wanted, slots, SLOTS - 1), 0)
            rest = wanted - tl.sum(tl.where(slots < block, counts, 0), 0)
            tokens = block * BLOCK + tl.arange(0, BLOCK)
            allowed = allowed_at(words, width, count, tl.load(numbers + row), tokens, size)
            place = logits + row.to(tl.int64) * stride + tokens
            keys = key_of(tl.load(place, mask=allowed, other=0.0).to(tl.float32))
            same = allowed & (keys == key)
            last = tl.min(tl.where(same & (tl.cumsum(same.to(tl.int32), 0) == rest), tokens, LAST_TOKEN), 0)
    else:
        cut = float("-inf")
    share = setting(settings, _MIN_P, batch, row)
    drop = setting(settings, _TEMPERATURE, batch, row) * tl.log(tl.where(share > 0, share, 1.0))
    floor = tl.where(share > 0, peak.to(tl.float64) + drop, float("-inf")).to(tl.float32)
    tl.store(cut_tokens + row, tl.where(floor > cut, LAST_TOKEN, last))
    tl.store(cuts + row, tl.maximum(floor, cut))


def cut_rows(inputs: MaskRows, settings: Any, peaks: Any, filtered: bool) -> tuple[Any, Any]:
    """Return the cut of each row: a logit float32 [B], and the last token kept among those equal to it, int32 [B].

    settings: float64 [4, B], contiguous, on the device: temperature, top_k, top_p and min_p as for `sample_rows`
    peaks: float32 [B], the largest allowed logits
    filtered: whether top_k or top_p of some row may exclude tokens
    """
    batch, device = inputs.logits.shape[0], inputs.logits.device
    blocks = triton.cdiv(inputs.size, CUT_BLOCK)
    passes = (_BITS.get(inputs.logits.dtype, 32) + 3) // 4

    def room(dtype: Any, *shape: int) -> Any:
        return torch.empty(shape, dtype=dtype, device=device)

    cuts, cut_tokens = torch.empty_like(peaks), room(torch.int32, batch)
    if not batch:
        return cuts, cut_tokens
    partial = room(torch.float32, 2, 2, batch, blocks, 16) if filtered else (peaks, peaks)
    found, reached = (room(dtype, 2, passes + 1, batch) for dtype in (torch.int64, torch.float64))
    goals, equals = room(torch.float64, batch), room(torch.int32, batch, blocks)
    how = {"PASSES": passes, "BLOCK": CUT_BLOCK, "SLOTS": triton.next_power_of_2(blocks)}
    with on(inputs.logits):
        if filtered:
            for mass in (False, True):
                sums = (partial[int(mass)], found[int(mass)], reached[int(mass)], goals, partial[0], found[0], batch)
                for number in range(passes):
                    tally_blocks[(batch, blocks)](*inputs, peaks, settings, cuts, *sums, PASS=number, MASS=mass, **how)
            count_equals[(batch, blocks)](
                *inputs, settings, cuts, partial[1], found[1], reached[1], goals, equals, batch, **how
            )
        finish_cuts[(batch,)](
            *(*inputs, peaks, settings, cuts, cut_tokens, found[1], reached[1], goals, equals, batch, blocks),
            FILTERED=filtered,
            **how,
        )
    return cuts, cut_tokens
