"""The ends of a step of lanes in NumPy: what runs without a GPU, and what the kernels of one are compared with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..jit.aliases import Ints
from .layout import FREE, HEADER, INACTIVE, PROBES, RECORD, RESUME, START, UNKNOWN, WIDTH, Begun, Kept, Known, home_of


def begin(rows: Ints, width: int, room: int, kept: Kept) -> Begun:
    """What lanes read, as rows int32 [B, HEADER + width + most] tell; room: tokens in a block.

    A lane that is to go on where the record is not known reads nothing.
    """
    count = len(rows)
    resumed = rows[:, RESUME] != 0
    records = np.where(resumed, kept.records[:count], rows[:, RECORD]).astype(np.int32)
    widths = np.where(resumed & (records == UNKNOWN), 0, rows[:, WIDTH]).astype(np.int32)
    tables = rows[:, HEADER + width :].copy()
    ids = np.zeros((count, width), np.int64)
    positions = np.zeros((count, width), np.int64)
    slots = np.full((count, width), -1, np.int32)
    for lane in range(count):
        for place in range(widths[lane]):
            at = rows[lane, START] + place
            ids[lane, place] = kept.last[lane] if resumed[lane] else rows[lane, HEADER + place]
            positions[lane, place] = at
            slots[lane, place] = tables[lane, at // room] * room + at % room
    firsts = np.arange(count, dtype=np.int32) * np.int32(width)
    ends = firsts.astype(np.int64) + np.maximum(widths - 1, 0)
    starts = rows[:, START].copy()
    return Begun(ids.ravel(), positions.ravel(), slots.ravel(), firsts, widths, starts, records, ends, tables)


def advance(tokens: Ints, begun: Begun, known: Known, kept: Kept) -> NDArray[np.int32]:
    """Keep the chosen tokens int32 [B], UNUSABLE for none, and the records after them; the answer int32 [B, 2]."""
    answer = np.zeros((len(tokens), 2), np.int32)
    for lane, token in enumerate(tokens.tolist()):
        is_active = begun.widths[lane] > 0
        after = _after(int(begun.records[lane]), token, known) if is_active and token >= 0 else UNKNOWN
        kept.last[lane] = token
        kept.records[lane] = after
        answer[lane] = token if is_active else INACTIVE, after
    return answer


def _after(record: int, token: int, known: Known) -> int:
    """The record after a token, or UNKNOWN."""
    if record == FREE:
        return FREE
    if not (known.charsets[token] & ~known.loops[record]).any():
        return record
    key = record << 32 | token
    capacity = len(known.keys)
    for probe in range(PROBES):
        place = (home_of(key, capacity) + probe) & (capacity - 1)
        if known.keys[place] == key:
            return int(known.values[place])
    row = int(known.dense[record])
    return UNKNOWN if row == UNKNOWN else int(known.targets[row, known.classes[row, token]])
