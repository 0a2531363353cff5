"""The functions of layout.py on a GPU, without synchronising with the host."""
# Triton code has no Python types, and Triton may not be installed.
# pyright: basic, reportOperatorIssue=false, reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportMissingImports=false, reportGeneralTypeIssues=false

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ..logits.triton_mask import on
from .layout import (
    ATTEMPT,
    CLASSES,
    COUNT,
    DRAFTED,
    HEADER,
    KEY,
    ORIGIN,
    PROBES,
    RECORD,
    RESUME,
    START,
    TOKENS,
    WIDTH,
    LaunchState,
    SlotState,
    StateTables,
    room_of,
)

_RESUME, _WIDTH, _START, _RECORD = tl.constexpr(RESUME), tl.constexpr(WIDTH), tl.constexpr(START), tl.constexpr(RECORD)
_ORIGIN, _ATTEMPT, _KEY, _HEADER = tl.constexpr(ORIGIN), tl.constexpr(ATTEMPT), tl.constexpr(KEY), tl.constexpr(HEADER)
_DRAFTED, _COUNT, _TOKENS = tl.constexpr(DRAFTED), tl.constexpr(COUNT), tl.constexpr(TOKENS)
_CLASSES, _PROBES = tl.constexpr(CLASSES), tl.constexpr(PROBES)
_FACTOR = tl.constexpr(0x1E3779B97F4A7C15)
_COPIED = tl.constexpr(128)


@triton.jit
def mixed(value):
    """Mix uint64 by SplitMix64 (Steele, Lea, Flood 2014)."""
    value = value + 0x9E3779B97F4A7C15
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB
    return value ^ (value >> 31)


@triton.jit
def after_token(record, token, wanted, charsets, loops, keys, values, capacity, dense, classes, size, targets):
    """Return the record after a token, -1 if unknown; all scalars. wanted: whether to look it up"""
    source = tl.maximum(record, 0).to(tl.int64)
    read = tl.maximum(token, 0).to(tl.int64)
    strange = tl.load(charsets + read * 3, mask=wanted, other=0) & ~tl.load(loops + source * 3, mask=wanted, other=0)
    for word in tl.static_range(1, 3):
        more = tl.load(charsets + read * 3 + word, mask=wanted, other=0)
        strange |= more & ~tl.load(loops + source * 3 + word, mask=wanted, other=0)
    key = (source << 32) | read
    home = ((key * _FACTOR) >> 33) & (capacity - 1)
    probes = tl.arange(0, _PROBES)
    places = (home + probes) & (capacity - 1)
    probed = probes < tl.where(wanted, _PROBES, 0)
    found = tl.load(keys + places, mask=probed, other=-1) == key
    target = tl.max(tl.where(found, tl.load(values + places, mask=probed, other=-1), -1), axis=0)
    row = tl.load(dense + source, mask=wanted, other=-1)
    place = tl.maximum(row, 0).to(tl.int64)
    kind = tl.load(classes + place * size + read, mask=wanted, other=0).to(tl.int64)
    aim = tl.load(targets + place * _CLASSES + kind, mask=wanted, other=-1)
    target = tl.where((target < 0) & (row >= 0), aim, target)
    after = tl.where(source == 0, 0, tl.where(strange == 0, source.to(tl.int32), target))
    return tl.where(wanted & (token >= 0) & (record >= 0), after, -1)


@triton.jit
def begin_rows(
    rows, stride,
    forced, charsets, loops, keys, values, capacity, dense, classes, size, targets,
    last, kept_records, kept_ends,
    ids, positions, slot_mapping, records, sure, draws, firsts, widths, starts, tables, most, room,
    WIDTH: tl.constexpr, ROOM: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Process one slot of `begin`."""
    slot = tl.program_id(0)
    slot_row = rows + slot.to(tl.int64) * stride
    resumed = tl.load(slot_row + _RESUME) != 0
    limit = tl.load(slot_row + _WIDTH)
    record = tl.load(kept_records + slot)
    start = tl.where(resumed, tl.load(kept_ends + slot), tl.load(slot_row + _START))
    places = tl.arange(0, WIDTH)
    told_count = tl.where(resumed, 0, limit)
    listed = tl.load(slot_row + _HEADER + places, mask=places < told_count, other=0)
    tokens = tl.where(places == tl.where(resumed, 0, -1), tl.load(last + slot), listed)
    path = tl.where(
        places == tl.where(resumed, 0, limit - 1), tl.where(resumed, record, tl.load(slot_row + _RECORD)), -1
    )
    going = resumed & (record >= 0) & (limit > 0)
    width = tl.where(resumed, going.to(tl.int32), limit)
    # Drafts count only if the one at the last token's position equals that token.
    ahead = start - tl.load(slot_row + _START)
    drafted = tl.where(resumed & (ahead >= 0), tl.load(slot_row + _DRAFTED), 0)
    shift = tl.maximum(ahead, 0)
    first = tl.load(slot_row + _HEADER + shift, mask=shift < drafted, other=-1)
    drafted = tl.where((first >= 0) & (first == tl.load(last + slot)), drafted, 0)
    for place in tl.static_range(1, WIDTH):
        going = going & (place < limit)
        token = tl.load(forced + tl.maximum(record, 0), mask=going, other=-1)
        draft = tl.load(slot_row + _HEADER + shift + place, mask=shift + place < drafted, other=-1)
        token = tl.where(token < 0, draft, token)
        drafted = tl.where(draft == token, drafted, 0)
        after = after_token(
            record, token, going & (token >= 0), charsets, loops, keys, values, capacity, dense, classes, size, targets
        )
        going = going & (after >= 0)
        record = tl.where(going, after, record)
        is_place = places == tl.where(going, place, -1)
        tokens, path = tl.where(is_place, token, tokens), tl.where(is_place, after, path)
        width += going.to(tl.int32)
    inside = places < width
    path = tl.where(inside, path, -1)
    behind = tl.load(slot_row + _HEADER + 1 + places, mask=places + 1 < told_count, other=-1)
    at = start + places
    blocks = slot_row + _HEADER + ROOM
    block = tl.load(blocks + at // room, mask=inside, other=0)
    out = slot * WIDTH + places
    tl.store(ids + out, tl.where(inside, tokens, 0).to(tl.int64))
    tl.store(positions + out, tl.where(inside, at, 0).to(tl.int64))
    tl.store(slot_mapping + out, tl.where(inside, block * room + at % room, -1))
    tl.store(records + out, path)
    tl.store(sure + out, tl.where(path < 0, behind, tl.load(forced + tl.maximum(path, 0), mask=path >= 0, other=-1)))
    low = tl.load(slot_row + _KEY).to(tl.uint32, bitcast=True).to(tl.uint64)
    high = tl.load(slot_row + _KEY + 1).to(tl.uint32, bitcast=True).to(tl.uint64)
    step = (at + 1 - tl.load(slot_row + _ORIGIN)).to(tl.int64).to(tl.uint64, bitcast=True)
    attempt = tl.load(slot_row + _ATTEMPT).to(tl.uint32, bitcast=True).to(tl.uint64)
    number = mixed(mixed(((high << 32) | low) ^ mixed(step)) ^ attempt)
    tl.store(draws + out, (number >> 11).to(tl.int64, bitcast=True).to(tl.float64) * 1.1102230246251565e-16)
    tl.store(firsts + slot, slot * WIDTH)
    tl.store(widths + slot, width)
    tl.store(starts + slot, start)
    for first in range(0, most, _COPIED):
        columns = first + tl.arange(0, _COPIED)
        numbers = tl.load(blocks + columns, mask=columns < most, other=0)
        tl.store(tables + slot.to(tl.int64) * most + columns, numbers, mask=columns < most)


@triton.jit
def advance_rows(
    chosen, ids, records, sure, widths, starts,
    charsets, loops, keys, values, capacity, dense, classes, size, targets,
    last, kept_records, kept_ends, answer,
    WIDTH: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Process one slot of `advance`."""
    slot = tl.program_id(0)
    width = tl.load(widths + slot)
    is_active = width > 0
    places = tl.arange(0, WIDTH)
    fixed = tl.load(sure + slot * WIDTH + places, mask=places < width, other=-1)
    picked = tl.load(chosen + slot * WIDTH + places, mask=places < width, other=-1)
    picked = tl.where(fixed < 0, picked, fixed)
    read = tl.load(ids + slot * WIDTH + places + 1, mask=places + 1 < width, other=-1).to(tl.int32)
    differs = (places + 1 < width) & (picked != read)
    width = tl.minimum(width, tl.min(tl.where(differs, places + 1, WIDTH), axis=0))
    token = tl.sum(tl.where(places == width - 1, picked, 0), axis=0)
    inner = places + 1 < width
    record = tl.load(records + slot * WIDTH + tl.maximum(width - 1, 0))
    token = tl.where(is_active, token, -1)
    wanted = is_active & (token >= 0) & (record >= 0)
    after = after_token(record, token, wanted, charsets, loops, keys, values, capacity, dense, classes, size, targets)
    tokens = tl.load(ids + slot * WIDTH + places + 1, mask=inner, other=-1).to(tl.int32)
    after_records = tl.load(records + slot * WIDTH + places + 1, mask=inner, other=-1)
    is_last = places == width - 1
    out = answer + slot * (_TOKENS + 2 * WIDTH)
    tl.store(out + _COUNT, width)
    tl.store(out + _TOKENS + places, tl.where(is_last, token, tokens))
    tl.store(out + _TOKENS + WIDTH + places, tl.where(is_last, after, after_records))
    tl.store(last + slot, token)
    tl.store(kept_records + slot, after)
    tl.store(kept_ends + slot, tl.load(starts + slot) + width, mask=is_active)


def begin(rows: Any, width: int, room: int, known: StateTables, slots: SlotState) -> LaunchState:
    """`layout.begin` for tensors on a GPU; width is a power of 2."""
    count, most, device = len(rows), rows.shape[1] - HEADER - room_of(width), rows.device

    def empty(*shape: int, dtype: Any = torch.int32) -> Any:
        return torch.empty(shape, dtype=dtype, device=device)

    wide = count * width
    launch = LaunchState(
        ids=empty(wide, dtype=torch.int64),
        positions=empty(wide, dtype=torch.int64),
        slot_mapping=empty(wide),
        records=empty(wide),
        sure=empty(wide),
        draws=empty(wide, dtype=torch.float64),
        firsts=empty(count),
        widths=empty(count),
        starts=empty(count),
        tables=empty(count, most),
    )
    with on(rows):
        begin_rows[(count,)](
            *(rows, rows.stride(0), known.forced, *_transitions(known), *slots, *launch, most, room),
            WIDTH=width,
            ROOM=room_of(width),
        )
    return launch


def advance(chosen: Any, launch: LaunchState, known: StateTables, slots: SlotState) -> Any:
    """`layout.advance` for tensors on a GPU."""
    count = len(launch.widths)
    width = len(launch.ids) // count
    answer = torch.empty((count, TOKENS + 2 * width), dtype=torch.int32, device=chosen.device)
    with on(chosen):
        advance_rows[(count,)](
            *(chosen, launch.ids, launch.records, launch.sure, launch.widths, launch.starts),
            *(*_transitions(known), *slots, answer),
            WIDTH=width,
        )
    return answer


def _transitions(known: StateTables) -> tuple[Any, ...]:
    """Return the arguments of `after_token` that describe transitions."""
    size = known.classes.shape[1]
    charsets, loops, dense, classes = known.charsets, known.loops, known.dense, known.classes
    return charsets, loops, known.keys, known.values, len(known.keys), dense, classes, size, known.targets
