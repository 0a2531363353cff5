"""The Triton kernels of slots against NumPy's: on a GPU if there is one, in Triton's interpreter otherwise."""

import os
from typing import Any

import numpy as np
import pytest
import torch
from trellm.engine.decode.randomness import uniform
from trellm.kernels.device_batch import layout as host
from trellm.kernels.device_batch.layout import (
    ATTEMPT,
    CLASSES,
    COUNT,
    DRAFTED,
    EMPTY,
    FREE,
    HEADER,
    KEY,
    ORIGIN,
    PROBES,
    RECORD,
    RESUME,
    START,
    TOKENS,
    UNKNOWN,
    WIDTH,
    SlotState,
    StateTables,
    home_of,
    room_of,
)

CUDA = torch.cuda.is_available()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if CUDA and not INTERPRETED else "cpu"
ROOM, RECORDS, VOCABULARY, CAPACITY, ROWS = 16, 9, 33, 64, 5

needs_triton = pytest.mark.skipif(not (CUDA or INTERPRETED), reason="no GPU; TRITON_INTERPRET=1 takes its place")


def moved(given: Any) -> Any:
    return type(given)(*(torch.from_numpy(each.copy()).to(DEVICE) for each in given))


def told(rng: Any, slots: int, width: int, most: int) -> np.ndarray:
    room = room_of(width)
    rows = np.zeros((slots, HEADER + room + most), np.int32)
    rows[:, RESUME] = rng.integers(0, 2, slots)
    rows[:, WIDTH] = rng.integers(0, width + 1, slots)
    rows[:, START] = rng.integers(0, most * ROOM - width, slots)
    rows[:, RECORD] = rng.integers(0, RECORDS, slots)
    rows[:, ORIGIN], rows[:, ATTEMPT] = rng.integers(0, 9, slots), rng.integers(0, 2, slots)
    rows[:, KEY : KEY + 2] = rng.integers(-(1 << 31), 1 << 31, (slots, 2))
    rows[:, DRAFTED] = np.where(rows[:, RESUME], rng.integers(0, room + 1, slots), 0)
    rows[:, HEADER : HEADER + room] = rng.integers(0, VOCABULARY, (slots, room))
    rows[:, HEADER + room :] = rng.integers(0, 99, (slots, most))
    return rows


def random_kept(rng: Any, slots: int, longest: int) -> SlotState:
    last, records = rng.integers(0, VOCABULARY, slots), rng.integers(-1, RECORDS, slots)
    return SlotState(*(each.astype(np.int32) for each in (last, records, rng.integers(0, longest, slots))))


def random_knowledge(rng: Any) -> StateTables:
    """Some transitions, more than fit; loops and charsets of few bits, so that some tokens loop; rows of some records.

    What rows say is all from RECORDS on, so that it is seen where it is taken.
    """
    keys, values = np.full(CAPACITY, EMPTY, np.int64), np.zeros(CAPACITY, np.int32)
    for _ in range(50):
        key = int(rng.integers(1, RECORDS)) << 32 | int(rng.integers(0, VOCABULARY))
        free = [p for i in range(PROBES) if keys[p := (home_of(key, CAPACITY) + i) & (CAPACITY - 1)] in (EMPTY, key)]
        if free:
            keys[free[0]], values[free[0]] = key, rng.integers(0, RECORDS)
    low, high, count = -(1 << 63), (1 << 63) - 1, 2 * RECORDS
    loops = rng.integers(low, high, (count, 3)) | rng.integers(low, high, (count, 3))
    charsets = np.int64(1) << rng.integers(0, 63, (VOCABULARY, 3))
    dense = rng.integers(UNKNOWN, ROWS, count).astype(np.int32)
    classes = rng.integers(0, CLASSES, (ROWS, VOCABULARY)).astype(np.uint8) * rng.integers(0, 2, (ROWS, 1), np.uint8)
    targets = rng.integers(RECORDS, 2 * RECORDS, (ROWS, CLASSES)).astype(np.int32)
    targets[:, 0] = UNKNOWN
    forced = np.where(rng.random(count) < 0.7, rng.integers(0, VOCABULARY, count), -1).astype(np.int32)
    forced[FREE] = -1
    return StateTables(np.zeros((count, 2), np.int32), forced, loops, charsets, keys, values, dense, classes, targets)


SHAPES = [(1, 1, 1), (3, 8, 130), (3, 1, 5), (257, 1, 2), (33, 4, 5), (65, 8, 3)]


@needs_triton
@pytest.mark.parametrize(("slots", "width", "most"), SHAPES)
def test_what_slots_read_and_where_they_go(slots: int, width: int, most: int) -> None:
    from trellm.kernels.device_batch import triton_batch

    rng = np.random.default_rng(slots * width + most)
    seen: set[Any] = set()
    for _ in range(4):
        rows, known = told(rng, slots, width, most), random_knowledge(rng)
        kept = random_kept(rng, slots, most * ROOM - width)
        # Drafts begin near where slots are, and some are right about their last tokens.
        shift = rng.integers(-1, room_of(width), slots)
        rows[:, START] = np.where(rows[:, RESUME], np.maximum(kept.ends - shift, 0), rows[:, START])
        for slot in np.flatnonzero((rows[:, RESUME] > 0) & (shift >= 0) & (rng.random(slots) < 0.8)):
            rows[slot, HEADER + kept.ends[slot] - rows[slot, START]] = kept.last[slot]
        begun = host.begin(rows, width, ROOM, known, kept)
        after, there = moved(kept), moved(known)
        found = triton_batch.begin(torch.from_numpy(rows).to(DEVICE), width, ROOM, there, after)
        for name, left, right in zip(begun._fields, begun, found, strict=True):
            np.testing.assert_array_equal(left, right.cpu().numpy(), err_msg=name)
        chosen = rng.integers(-1, VOCABULARY, slots * width).astype(np.int32)
        agree = rng.random(slots * width - 1) < 0.8
        chosen[:-1] = np.where(agree, begun.ids[1:], chosen[:-1])
        answer = triton_batch.advance(torch.from_numpy(chosen).to(DEVICE), found, there, after).cpu().numpy()
        expected = host.advance(chosen, begun, known, kept)
        np.testing.assert_array_equal(answer[:, COUNT], expected[:, COUNT])
        for count, one, other in zip(expected[:, COUNT], answer, expected, strict=True):
            for first in (TOKENS, TOKENS + width):
                np.testing.assert_array_equal(one[first : first + count], other[first : first + count])
            seen.add((bool(count), other[TOKENS + width + count - 1] >= RECORDS))
        for name, left, right in zip(kept._fields, kept, after, strict=True):
            np.testing.assert_array_equal(left, right.cpu().numpy(), err_msg=name)
        behind = np.arange(width) + 1 < begun.widths[:, None]
        seen.update(["drafted"] if (behind.ravel() & (begun.sure < 0)).any() else [])
        seen.update(["fell"] if (expected[:, COUNT] < begun.widths).any() else [])
        seen.update(["ran"] if width > 1 and (begun.widths > 2).any() and (rows[:, RESUME] != 0).any() else [])
        seen.update((2 + (kept.records == FREE)).tolist(), (4 + (kept.records == UNKNOWN)).tolist())
    assert slots < 33 or seen >= {(True, False), (True, True), 2, 3, 4, 5}
    assert slots < 33 or width == 1 or "ran" in seen
    assert slots < 33 or width == 1 or seen >= {"drafted", "fell"}


@needs_triton
@pytest.mark.parametrize("width", [1, 8])
def test_a_slot_that_is_far_before_its_drafts_reads_none(width: int) -> None:
    from trellm.kernels.device_batch import triton_batch

    rng = np.random.default_rng(0)
    rows, known = told(rng, 1, width, 5), random_knowledge(rng)
    rows[0, [RESUME, WIDTH, START, DRAFTED]] = 1, width, 60, room_of(width)
    kept = SlotState(*(np.array([number], np.int32) for number in (3, FREE, 2)))
    found = triton_batch.begin(torch.from_numpy(rows).to(DEVICE), width, ROOM, moved(known), moved(kept))
    assert found.widths.tolist() == host.begin(rows, width, ROOM, known, kept).widths.tolist() == [1]


def test_random_numbers_are_those_of_ordinary_steps() -> None:
    rng = np.random.default_rng(0)
    rows = told(rng, 40, 8, 3)
    keys = rows[:, KEY : KEY + 2].copy().view(np.uint64).ravel().tolist()
    begun = host.begin(rows, 8, ROOM, random_knowledge(rng), random_kept(rng, 40, 30))
    for slot, row in enumerate(rows):
        for place in range(8):
            step = int(begun.starts[slot]) + place + 1 - int(row[ORIGIN])
            if step >= 0:
                assert begun.draws[8 * slot + place] == uniform(keys[slot], step, int(row[ATTEMPT]))
