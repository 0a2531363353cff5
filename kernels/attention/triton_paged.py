"""Attention of new tokens of many sequences over a KV cache in blocks, on a GPU.

One kernel serves single tokens and long chunks. A tile is a range of tokens of a sequence with all query heads that
share a key head, so keys and values are read once for all of them. Softmax is online: T. Dao, FlashAttention-2: Faster
Attention with Better Parallelism and Work Partitioning (2023). If there are fewer tiles than the GPU can run at once,
each sequence is split into parts (T. Dao et al., Flash-Decoding, 2023), and a second kernel merges them. The split does
not depend on values on the device, so a CUDA graph can capture the launch.
"""
# Triton code has no Python types, and Triton may not be installed.
# pyright: basic, reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false, reportIndexIssue=false, reportMissingImports=false, reportOperatorIssue=false

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from ..logits.triton_mask import on

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""Dtypes of queries, keys and values; all three are equal."""

_LOG2E = tl.constexpr(1.4426950408889634)
_MIN_PART = 128
_MAX_PARTS = 64


class Tiles(NamedTuple):
    """The split of the work.

    tokens, rows: of a tile; rows are (token, query head) pairs, rounded up to a power of two
    keys: tokens whose keys are read at once; parts: of each sequence
    stages: software pipelining of the reads; warps: of a program
    """

    tokens: int
    rows: int
    keys: int
    parts: int
    stages: int
    warps: int


class DeviceProperties(NamedTuple):
    """Properties of a GPU: the number of multiprocessors, and bytes of shared memory that a tile may use."""

    processors: int
    shared: int


@triton.jit
def seen_from(position, window, chunk):
    """Return the first token that the token at a position attends to."""
    begin = position * 0
    if window > 0:
        begin = tl.maximum(begin, position - window + 1)
    if chunk > 0:
        begin = tl.maximum(begin, position // chunk * chunk)
    return begin


@triton.jit(do_not_specialize=["tables", "firsts", "widths", "starts", "window", "chunk", "most", "tiles"])
def attend_tiles(
    out, queries, keys, values, tables, firsts, widths, starts, sinks, partial, peaks, sums,
    window, chunk, most, tiles,
    out_token, out_head, query_token, query_head,
    key_block, key_head, key_place, value_block, value_head, value_place,
    GROUP: tl.constexpr, KEY_SIZE: tl.constexpr, VALUE_SIZE: tl.constexpr, BLOCK: tl.constexpr,  # noqa: N803
    TOKENS: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, PARTS: tl.constexpr,  # noqa: N803
    KEY_LANES: tl.constexpr, VALUE_LANES: tl.constexpr, SCALE: tl.constexpr, CAP: tl.constexpr,  # noqa: N803
    WITH_SINKS: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Compute one part of one tile for one key head. Grid: sequences x tiles, key heads, parts.

    With one part the results go to `out`. Else the undivided float32 results go to `partial` [tokens, query heads,
    parts, size], and the largest scores and sums of weights to `peaks` and `sums`.
    """
    text = tl.program_id(0) // tiles
    tile = tiles - 1 - tl.program_id(0) % tiles  # the last tiles of a chunk have the most keys, so they start first
    head = tl.program_id(1)
    part = tl.program_id(2)
    width = tl.load(widths + text)
    first = tile * TOKENS
    if first >= width:
        return
    start = tl.load(starts + text)
    rows = tl.arange(0, ROWS)
    steps = first + rows // GROUP
    real = (rows < TOKENS * GROUP) & (steps < width)
    positions = start + steps
    heads = head * GROUP + rows % GROUP
    tokens = (tl.load(firsts + text) + steps).to(tl.int64)
    key_lanes = tl.arange(0, KEY_LANES)
    value_lanes = tl.arange(0, VALUE_LANES)
    own = tl.load(
        queries + (tokens * query_token + heads * query_head)[:, None] + key_lanes[None, :],
        mask=real[:, None] & (key_lanes < KEY_SIZE)[None, :],
        other=0.0,
    )
    EXACT: tl.constexpr = tl.float64 if own.dtype == tl.float64 else tl.float32  # noqa: N806
    begins = seen_from(positions, window, chunk)
    least = seen_from(start + first, window, chunk)
    end = start + tl.minimum(first + TOKENS, width)
    origin = least // BLOCK * BLOCK
    each = tl.cdiv(tl.cdiv(end - origin, KEYS), PARTS) * KEYS
    low = origin + part * each
    high = tl.minimum(low + each, end)
    numbers = tables + text.to(tl.int64) * most
    key_base = keys + head.to(tl.int64) * key_head
    value_base = values + head.to(tl.int64) * value_head
    top = tl.full((ROWS,), float("-inf"), EXACT)
    total = tl.zeros((ROWS,), EXACT)
    mixed = tl.zeros((ROWS, VALUE_LANES), EXACT)
    for at in range(low, high, KEYS):
        there = at + tl.arange(0, KEYS)
        read = (there >= least) & (there < high)
        block = tl.load(numbers + there // BLOCK, mask=read, other=0).to(tl.int64)
        place = there % BLOCK
        those = tl.load(
            key_base + (block * key_block + place * key_place)[:, None] + key_lanes[None, :],
            mask=read[:, None] & (key_lanes < KEY_SIZE)[None, :],
            other=0.0,
        )
        scores = tl.dot(own, tl.trans(those), input_precision="ieee", out_dtype=EXACT) * SCALE
        if CAP > 0:
            # tanh by one exponential; its overflow and underflow give 1 and -1.
            scores = CAP * (1.0 - 2.0 / (tl.exp2(scores * (2.0 * _LOG2E / CAP)) + 1.0))
        scores = scores * _LOG2E
        seen = (there[None, :] <= positions[:, None]) & (there[None, :] >= begins[:, None]) & read[None, :]
        scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        safe = tl.where(higher > float("-inf"), higher, 0.0)
        weights = tl.exp2(scores - safe[:, None])
        fading = tl.exp2(top - safe)
        top = higher
        total = total * fading + tl.sum(weights, 1)
        those = tl.load(
            value_base + (block * value_block + place * value_place)[:, None] + value_lanes[None, :],
            mask=read[:, None] & (value_lanes < VALUE_SIZE)[None, :],
            other=0.0,
        )
        mixed = mixed * fading[:, None]
        mixed += tl.dot(weights.to(those.dtype), those, input_precision="ieee", out_dtype=EXACT)
    stored = real[:, None] & (value_lanes < VALUE_SIZE)[None, :]
    if PARTS == 1:
        if WITH_SINKS:
            beside = tl.load(sinks + heads, mask=real, other=0.0).to(EXACT) * _LOG2E
            higher = tl.maximum(top, beside)
            fading = tl.exp2(top - higher)
            total = total * fading + tl.exp2(beside - higher)
            mixed = mixed * fading[:, None]
        mixed = mixed / tl.where(real, total, 1.0)[:, None]
        to = out + (tokens * out_token + heads * out_head)[:, None] + value_lanes[None, :]
        tl.store(to, mixed.to(out.dtype.element_ty), mask=stored)
    else:
        lines = (tokens * (tl.num_programs(1) * GROUP) + heads) * PARTS + part
        tl.store(peaks + lines, top, mask=real)
        tl.store(sums + lines, total, mask=real)
        to = partial + (lines * VALUE_SIZE)[:, None] + value_lanes[None, :]
        tl.store(to, mixed, mask=stored & (total != 0)[:, None])


@triton.jit(do_not_specialize=["firsts", "widths", "widest"])
def merge_parts(
    out, firsts, widths, sinks, partial, peaks, sums, widest, out_token, out_head,
    VALUE_SIZE: tl.constexpr, PARTS: tl.constexpr, PART_LANES: tl.constexpr,  # noqa: N803
    VALUE_LANES: tl.constexpr, WITH_SINKS: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Merge the parts of one token and query head. Grid: sequences x widest, query heads."""
    text = tl.program_id(0) // widest
    step = tl.program_id(0) % widest
    head = tl.program_id(1)
    if step >= tl.load(widths + text):
        return
    token = (tl.load(firsts + text) + step).to(tl.int64)
    line = (token * tl.num_programs(1) + head) * PARTS
    parts = tl.arange(0, PART_LANES)
    lanes = tl.arange(0, VALUE_LANES)
    tops = tl.load(peaks + line + parts, mask=parts < PARTS, other=float("-inf"))
    totals = tl.load(sums + line + parts, mask=parts < PARTS, other=0.0)
    top = tl.max(tops, 0)
    if WITH_SINKS:
        beside = tl.load(sinks + head).to(tops.dtype) * _LOG2E
        top = tl.maximum(top, beside)
    safe = tl.where(top > float("-inf"), top, 0.0)
    shares = tl.exp2(tops - safe)
    total = tl.sum(totals * shares, 0)
    if WITH_SINKS:
        total += tl.exp2(beside - safe)
    mixed = tl.load(
        partial + ((line + parts) * VALUE_SIZE)[:, None] + lanes[None, :],
        mask=(totals != 0)[:, None] & (lanes < VALUE_SIZE)[None, :],  # parts without visible tokens wrote nothing
        other=0.0,
    )
    mixed = tl.sum(mixed * shares[:, None], 0) / total
    tl.store(out + token * out_token + head * out_head + lanes, mixed.to(out.dtype.element_ty), mask=lanes < VALUE_SIZE)


def attend_paged(
    out: Any,
    queries: Any,
    keys: Any,
    values: Any,
    tables: Any,
    firsts: Any,
    widths: Any,
    starts: Any,
    *,
    scale: float,
    window: int = 0,
    chunk: int = 0,
    cap: float = 0.0,
    sinks: Any = None,
    longest: int,
    widest: int,
    parts: int | None = None,
) -> None:
    """Compute attention of the tokens of each row over its sequence up to themselves. A CUDA graph can capture this.

    Row r reads widths[r] tokens of the step from firsts[r] on, at positions from starts[r] on. The blocks already hold
    their keys and values. A row of width 0 reads and writes nothing.

    out, queries: [tokens, query heads, size of values] and [tokens, query heads, size of keys]
    keys, values: [blocks, heads, BLOCK, size], of the queries' dtype, one of DTYPES
    tables: int32 [rows, most], the block tables; entries before a window are not read
    firsts, widths, starts: int32 [rows]
    window, chunk: number of tokens a token attends to, including itself, and size of the chunks that it stays in; 0 for
        no limit
    cap: scores become cap * tanh(score / cap), unless 0
    sinks: [query heads], an extra score in the softmax, with a value of zero
    longest, widest: upper bounds of sequence lengths and widths; they determine the split of the work
    parts: number of parts of each sequence; None to choose
    """
    if not (tables.shape[0] and queries.shape[0] and widest):
        return
    tokens, query_heads, key_size = queries.shape
    heads, block, value_size = keys.shape[1], keys.shape[2], values.shape[3]
    group = query_heads // heads
    reach = min([longest, *(limit for limit in (window, chunk) if limit)])
    cut = cut_work(
        machine_of(queries.device), tables.shape[0], heads, group, widest, reach, (key_size, value_size),
        queries.element_size(), parts,
    )  # fmt: skip
    tiles = triton.cdiv(widest, cut.tokens)
    key_lanes, value_lanes = lanes_of(key_size), lanes_of(value_size)
    exact = torch.float64 if queries.dtype == torch.float64 else torch.float32
    if cut.parts == 1:
        room = [queries.new_empty(1, dtype=exact)] * 3
    else:
        lines = tokens * query_heads * cut.parts
        room = [queries.new_empty(size, dtype=exact) for size in (lines * value_size, lines, lines)]
    beside = room[1] if sinks is None else sinks
    with on(queries):
        attend_tiles[(tables.shape[0] * tiles, heads, cut.parts)](
            *(out, queries, keys, values, tables, firsts, widths, starts, beside, *room),
            *(window, chunk, tables.stride(0), tiles),
            *(out.stride(0), out.stride(1), queries.stride(0), queries.stride(1), *keys.stride()[:3]),
            *values.stride()[:3],
            GROUP=group, KEY_SIZE=key_size, VALUE_SIZE=value_size, BLOCK=block,
            TOKENS=cut.tokens, ROWS=cut.rows, KEYS=cut.keys, PARTS=cut.parts,
            KEY_LANES=key_lanes, VALUE_LANES=value_lanes, SCALE=scale, CAP=cap, WITH_SINKS=sinks is not None,
            num_stages=cut.stages, num_warps=cut.warps,
        )  # fmt: skip
        if cut.parts > 1:
            merge_parts[(tables.shape[0] * widest, query_heads)](
                *(out, firsts, widths, beside, *room, widest, out.stride(0), out.stride(1)),
                VALUE_SIZE=value_size, PARTS=cut.parts, PART_LANES=triton.next_power_of_2(cut.parts),
                VALUE_LANES=value_lanes, WITH_SINKS=sinks is not None,
                num_warps=4,
            )  # fmt: skip


def cut_work(
    machine: DeviceProperties,
    texts: int,
    heads: int,
    group: int,
    widest: int,
    reach: int,
    sizes: tuple[int, int],
    bytes_each: int,
    parts: int | None,
) -> Tiles:
    """Choose the split of a launch. reach: upper bound of tokens that a token attends to; sizes: of keys and values

    Products of 16-bit numbers run on tensor cores, which prefer large tiles; others stay in registers.
    """
    narrow = bytes_each == 2
    rows = max(min(triton.next_power_of_2(widest * group), 128 if narrow else 32), triton.next_power_of_2(group), 16)
    lanes = sum(lanes_of(size) for size in sizes)
    keys = (128 if rows <= 32 else 64) if narrow else 32
    room = machine.shared - rows * lanes_of(sizes[0]) * bytes_each
    while keys > 16 and 2 * keys * lanes * bytes_each > room:
        keys //= 2
    stages = max(min(room // (keys * lanes * bytes_each), 3), 1)
    tokens = rows // group
    tiles = triton.cdiv(widest, tokens) * texts * heads
    if parts is None:
        parts = min(2 * machine.processors // tiles, (reach + tokens) // _MIN_PART, _MAX_PARTS)
    return Tiles(tokens, rows, keys, max(parts, 1), stages, 8 if rows > 64 else 4)


@cache
def machine_of(device: torch.device) -> DeviceProperties:
    """Return the properties of a GPU; those of an H100 for other devices, as in Triton's interpreter."""
    if device.type != "cuda":
        return DeviceProperties(132, 160 << 10)
    found = torch.cuda.get_device_properties(device)
    return DeviceProperties(found.multi_processor_count, found.shared_memory_per_block_optin * 3 // 4)


def lanes_of(size: int) -> int:
    """Return the lanes of a tile dimension of a size: `tl.dot` takes powers of two from 16 on."""
    return max(triton.next_power_of_2(size), 16)


_MAX = 4096


@triton.jit
def put(
    stored, new, slot, token, heads, inside, step_block, step_head, step_place, new_token, new_head,
    SIZE: tl.constexpr, BLOCK: tl.constexpr, LANES: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Copy some heads of one token to its slot."""
    lanes = tl.arange(0, LANES)
    mask = inside[:, None] & (lanes < SIZE)[None, :]
    given = tl.load(new + token * new_token + (heads * new_head)[:, None] + lanes[None, :], mask=mask)
    to = stored + (slot // BLOCK) * step_block + (slot % BLOCK) * step_place
    tl.store(to + (heads * step_head)[:, None] + lanes[None, :], given, mask=mask)


@triton.jit(do_not_specialize=["slots"])
def write_tokens(
    keys, values, new_keys, new_values, slots,
    key_block, key_head, key_place, value_block, value_head, value_place,
    new_key_token, new_key_head, new_value_token, new_value_head, heads,
    KEY_SIZE: tl.constexpr, VALUE_SIZE: tl.constexpr, BLOCK: tl.constexpr, HEADS: tl.constexpr,  # noqa: N803
    KEY_LANES: tl.constexpr, VALUE_LANES: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Store some heads of one token. Grid: tokens, groups of HEADS heads."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token).to(tl.int64)
    if slot < 0:
        return
    those = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    inside = those < heads
    put(keys, new_keys, slot, token, those, inside, key_block, key_head, key_place, new_key_token, new_key_head,
        KEY_SIZE, BLOCK, KEY_LANES)  # fmt: skip
    put(values, new_values, slot, token, those, inside, value_block, value_head, value_place, new_value_token,
        new_value_head, VALUE_SIZE, BLOCK, VALUE_LANES)  # fmt: skip


def write_paged(keys: Any, values: Any, new_keys: Any, new_values: Any, slots: Any) -> None:
    """Store the keys and values of new tokens. A CUDA graph can capture this.

    keys, values: [blocks, heads, BLOCK, size]
    new_keys, new_values: [tokens, heads, size]
    slots: int32 [tokens], block * BLOCK + place in the block; -1 for tokens that are not stored
    """
    if not slots.shape[0]:
        return
    heads, block, key_size, value_size = *keys.shape[1:], values.shape[3]
    lanes = lanes_of(key_size), lanes_of(value_size)
    portion = min(triton.next_power_of_2(heads), max(_MAX // max(lanes), 1))
    with on(keys):
        write_tokens[(slots.shape[0], triton.cdiv(heads, portion))](
            *(keys, values, new_keys, new_values, slots, *keys.stride()[:3], *values.stride()[:3]),
            *(*new_keys.stride()[:2], *new_values.stride()[:2], heads),
            KEY_SIZE=key_size, VALUE_SIZE=value_size, BLOCK=block, HEADS=portion,
            KEY_LANES=lanes[0], VALUE_LANES=lanes[1],
        )  # fmt: skip
