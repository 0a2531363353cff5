"""The ends of a step of lanes on a GPU: what host.py says, without a word from the host."""
# What Triton compiles has types that Python cannot say; and it is there only where there is a GPU.
# pyright: basic, reportOperatorIssue=false, reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ..logits.triton_mask import on
from .layout import CLASSES, HEADER, INACTIVE, PROBES, RECORD, RESUME, START, WIDTH, Begun, Kept, Known

_RESUME, _WIDTH, _START, _RECORD = tl.constexpr(RESUME), tl.constexpr(WIDTH), tl.constexpr(START), tl.constexpr(RECORD)
_HEADER, _INACTIVE, _CLASSES = tl.constexpr(HEADER), tl.constexpr(INACTIVE), tl.constexpr(CLASSES)
_FACTOR = tl.constexpr(0x1E3779B97F4A7C15)
_COPIED = tl.constexpr(128)


@triton.jit
def begin_rows(
    rows, stride, last, kept_records,
    ids, positions, slots, firsts, widths, starts, records, ends, tables, most, room,
    WIDTH: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """One lane of `begin`."""
    lane = tl.program_id(0)
    told = rows + lane.to(tl.int64) * stride
    resumed = tl.load(told + _RESUME) != 0
    kept = tl.load(kept_records + lane)
    start = tl.load(told + _START)
    width = tl.where(resumed & (kept < 0), 0, tl.load(told + _WIDTH))
    places = tl.arange(0, WIDTH)
    inside = places < width
    given = tl.load(told + _HEADER + places, mask=inside, other=0)
    tokens = tl.where(resumed, tl.load(last + lane), given)
    at = start + places
    blocks = told + _HEADER + WIDTH
    block = tl.load(blocks + at // room, mask=inside, other=0)
    out = lane * WIDTH + places
    tl.store(ids + out, tl.where(inside, tokens, 0).to(tl.int64))
    tl.store(positions + out, tl.where(inside, at, 0).to(tl.int64))
    tl.store(slots + out, tl.where(inside, block * room + at % room, -1))
    tl.store(firsts + lane, lane * WIDTH)
    tl.store(widths + lane, width)
    tl.store(starts + lane, start)
    tl.store(records + lane, tl.where(resumed, kept, tl.load(told + _RECORD)))
    tl.store(ends + lane, (lane * WIDTH + tl.maximum(width - 1, 0)).to(tl.int64))
    for first in range(0, most, _COPIED):
        columns = first + tl.arange(0, _COPIED)
        numbers = tl.load(blocks + columns, mask=columns < most, other=0)
        tl.store(tables + lane.to(tl.int64) * most + columns, numbers, mask=columns < most)


@triton.jit
def advance_rows(
    tokens, widths, records, charsets, loops, keys, values, capacity, dense, classes, size, targets,
    last, kept_records, answer,
    PROBES: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """One lane of `advance`."""
    lane = tl.program_id(0)
    token = tl.load(tokens + lane)
    is_active = tl.load(widths + lane) > 0
    record = tl.maximum(tl.load(records + lane), 0).to(tl.int64)
    read = tl.maximum(token, 0).to(tl.int64)
    strange = tl.load(charsets + read * 3) & ~tl.load(loops + record * 3)
    strange |= tl.load(charsets + read * 3 + 1) & ~tl.load(loops + record * 3 + 1)
    strange |= tl.load(charsets + read * 3 + 2) & ~tl.load(loops + record * 3 + 2)
    key = (record << 32) | read
    home = ((key * _FACTOR) >> 33) & (capacity - 1)
    places = (home + tl.arange(0, PROBES)) & (capacity - 1)
    found = tl.load(keys + places) == key
    met = tl.max(tl.where(found, tl.load(values + places), -1), axis=0)
    row = tl.load(dense + record)
    kept_row = tl.maximum(row, 0).to(tl.int64)
    kind = tl.load(classes + kept_row * size + read).to(tl.int64)
    aim = tl.load(targets + kept_row * _CLASSES + kind)
    met = tl.where((met < 0) & (row >= 0), aim, met)
    after = tl.where(record == 0, 0, tl.where(strange == 0, record.to(tl.int32), met))
    after = tl.where(is_active & (token >= 0), after, -1)
    tl.store(last + lane, token)
    tl.store(kept_records + lane, after)
    tl.store(answer + lane * 2, tl.where(is_active, token, _INACTIVE))
    tl.store(answer + lane * 2 + 1, after)


def begin(rows: Any, width: int, room: int, kept: Kept) -> Begun:
    """As `host.begin`, of tensors on a GPU; width is a power of 2."""
    count, most, device = len(rows), rows.shape[1] - HEADER - width, rows.device

    def empty(*shape: int, dtype: Any = torch.int32) -> Any:
        return torch.empty(shape, dtype=dtype, device=device)

    wide = count * width
    begun = Begun(
        ids=empty(wide, dtype=torch.int64),
        positions=empty(wide, dtype=torch.int64),
        slots=empty(wide),
        firsts=empty(count),
        widths=empty(count),
        starts=empty(count),
        records=empty(count),
        ends=empty(count, dtype=torch.int64),
        tables=empty(count, most),
    )
    with on(rows):
        begin_rows[(count,)](rows, rows.stride(0), *kept, *begun, most, room, WIDTH=width)
    return begun


def advance(tokens: Any, begun: Begun, known: Known, kept: Kept) -> Any:
    """As `host.advance`, of tensors on a GPU."""
    answer = torch.empty((len(tokens), 2), dtype=torch.int32, device=tokens.device)
    with on(tokens):
        advance_rows[(len(tokens),)](
            *(tokens, begun.widths, begun.records, known.charsets, known.loops, known.keys, known.values),
            *(len(known.keys), known.dense, known.classes, known.classes.shape[1], known.targets, *kept, answer),
            PROBES=PROBES,
        )
    return answer
