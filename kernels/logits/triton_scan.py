"""Triton kernels that read each logit once: block by block, then over the blocks of each row."""
# What Triton compiles has types that Python cannot say; and it is there only where there is a GPU.
# pyright: basic, reportOperatorIssue=false, reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from .triton_mask import BLOCK, MaskRows, allowed_at, on

INFINITE = tl.constexpr(0x7F800000)  # the key of float32 +inf; of -inf, its negative
_STATUS_OK, _STATUS_NAN, _STATUS_EMPTY = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
_BAD_CHOICE, _BAD_ROW = tl.constexpr(1), tl.constexpr(2)


class Scan(NamedTuple):
    """One row each: `tokens` int32, `status` uint8, `peaks` float32, log-sum-exp `masked` and `raw` float64."""

    tokens: Any
    status: Any
    peaks: Any
    masked: Any
    raw: Any
    codes: Any


@triton.jit
def key_of(values):
    """The integer whose order is that of the float32; both zeros give 0."""
    bits = values.to(tl.int32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    return tl.where(bits < 0, -magnitude, magnitude)


@triton.jit
def value_of(key):
    """The float32 with this key."""
    bits = tl.where(key < 0, (-key) | -0x80000000, key)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def sum_above(values, counted):
    """The largest of the counted values and the sum of exp(value - largest); (-inf, 0) if all are -inf."""
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
    """One block of one row: its best codes int64 [B, blocks, KEEP] and its shares of both log-sum-exps."""
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
    """Log-sum-exp, float64, of blocks given as the largest value and the sum relative to it."""
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
    """One row from its blocks: token, status, largest logit, both log-sum-exps. SLOTS: power of 2 >= blocks."""
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


def scan(given: MaskRows, with_raw: bool, keep: int = 1) -> Scan:
    """Scan all rows; `codes` int64 [B, blocks, keep] are the best of each block (keep: a power of 2)."""
    batch, device = given.logits.shape[0], given.logits.device
    blocks = triton.cdiv(given.size, BLOCK)

    def room(dtype: Any, *shape: int) -> Any:
        return torch.empty((batch, *shape), dtype=dtype, device=device)

    codes = room(torch.int64, blocks, keep)
    parts = (codes, *(room(torch.float32, blocks) for _ in range(4)), room(torch.int32, blocks))
    rows = (room(torch.int32), room(torch.uint8), room(torch.float32), room(torch.float64), room(torch.float64))
    if batch:
        with on(given.logits):
            scan_blocks[(batch, blocks)](
                *given[:3], given.width, given.count, given.numbers, given.size, *parts, BLOCK=BLOCK, KEEP=keep
            )
            slots = triton.next_power_of_2(blocks)
            finish_rows[(batch,)](*parts, *rows, blocks, WITH_RAW=with_raw, SLOTS=slots, KEEP=keep)
    return Scan(*rows, codes)
