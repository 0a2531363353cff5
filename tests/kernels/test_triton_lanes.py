"""The Triton kernels of lanes against NumPy's: on a GPU if there is one, in Triton's interpreter otherwise."""

import os
from typing import Any

import numpy as np
import pytest
import torch
from trellm.kernels.lanes import host
from trellm.kernels.lanes.layout import (
    CLASSES,
    EMPTY,
    FREE,
    HEADER,
    PROBES,
    RECORD,
    RESUME,
    START,
    UNKNOWN,
    WIDTH,
    Kept,
    Known,
    home_of,
)

CUDA = torch.cuda.is_available()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if CUDA and not INTERPRETED else "cpu"
ROOM, RECORDS, VOCABULARY, CAPACITY, ROWS = 16, 9, 33, 64, 5

needs_triton = pytest.mark.skipif(not (CUDA or INTERPRETED), reason="no GPU; TRITON_INTERPRET=1 takes its place")


def moved(given: Any) -> Any:
    return type(given)(*(torch.from_numpy(each.copy()).to(DEVICE) for each in given))


def told(rng: Any, lanes: int, width: int, most: int) -> np.ndarray:
    rows = np.zeros((lanes, HEADER + width + most), np.int32)
    rows[:, RESUME] = rng.integers(0, 2, lanes)
    rows[:, WIDTH] = np.where(rows[:, RESUME], rng.integers(0, 2, lanes), rng.integers(0, width + 1, lanes))
    rows[:, START] = rng.integers(0, most * ROOM - width, lanes)
    rows[:, RECORD] = rng.integers(0, RECORDS, lanes)
    rows[:, HEADER : HEADER + width] = rng.integers(0, VOCABULARY, (lanes, width))
    rows[:, HEADER + width :] = rng.integers(0, 99, (lanes, most))
    return rows


@needs_triton
@pytest.mark.parametrize(("lanes", "width", "most"), [(1, 1, 1), (3, 8, 130), (3, 1, 5), (257, 1, 2), (33, 4, 5)])
def test_what_lanes_read(lanes: int, width: int, most: int) -> None:
    from trellm.kernels.lanes import triton_lanes

    rng = np.random.default_rng(lanes * width + most)
    rows = told(rng, lanes, width, most)
    last = rng.integers(0, VOCABULARY, lanes).astype(np.int32)
    kept = Kept(last, rng.integers(-1, RECORDS, lanes).astype(np.int32))
    expected = host.begin(rows, width, ROOM, kept)
    found = triton_lanes.begin(torch.from_numpy(rows).to(DEVICE), width, ROOM, moved(kept))
    assert expected.widths.any() or lanes == 1
    for name, left, right in zip(expected._fields, expected, found, strict=True):
        np.testing.assert_array_equal(left, right.cpu().numpy(), err_msg=name)


def random_knowledge(rng: Any) -> Known:
    """Some transitions, more than fit; loops and charsets of few bits, so that some tokens loop; rows of some records.

    What rows say is all above RECORDS, so that it is seen where it is taken.
    """
    keys, values = np.full(CAPACITY, EMPTY, np.int64), np.zeros(CAPACITY, np.int32)
    for _ in range(50):
        key = int(rng.integers(1, RECORDS)) << 32 | int(rng.integers(0, VOCABULARY))
        free = [p for i in range(PROBES) if keys[p := (home_of(key, CAPACITY) + i) & (CAPACITY - 1)] in (EMPTY, key)]
        if free:
            keys[free[0]], values[free[0]] = key, rng.integers(0, RECORDS)
    loops = rng.integers(-(1 << 63), (1 << 63) - 1, (RECORDS, 3)) | rng.integers(
        -(1 << 63), (1 << 63) - 1, (RECORDS, 3)
    )
    charsets = np.int64(1) << rng.integers(0, 63, (VOCABULARY, 3))
    dense = rng.integers(UNKNOWN, ROWS, RECORDS).astype(np.int32)
    classes = rng.integers(0, CLASSES, (ROWS, VOCABULARY)).astype(np.uint8) * rng.integers(0, 2, (ROWS, 1), np.uint8)
    targets = rng.integers(RECORDS, 2 * RECORDS, (ROWS, CLASSES)).astype(np.int32)
    targets[:, 0] = UNKNOWN
    return Known(np.zeros((RECORDS, 2), np.int32), loops, charsets, keys, values, dense, classes, targets)


@needs_triton
@pytest.mark.parametrize("lanes", [1, 33, 129])
def test_where_lanes_go(lanes: int) -> None:
    from trellm.kernels.lanes import triton_lanes

    rng = np.random.default_rng(lanes)
    seen: set[int] = set()
    for _ in range(4):
        known = random_knowledge(rng)
        kept = Kept(np.zeros(lanes, np.int32), rng.integers(-1, RECORDS, lanes).astype(np.int32))
        begun = host.begin(told(rng, lanes, 1, 3), 1, ROOM, kept)
        tokens = rng.integers(-1, VOCABULARY, lanes).astype(np.int32)
        after = moved(kept)
        found = triton_lanes.advance(torch.from_numpy(tokens).to(DEVICE), moved(begun), moved(known), after)
        expected = host.advance(tokens, begun, known, kept)
        np.testing.assert_array_equal(found.cpu().numpy(), expected)
        np.testing.assert_array_equal(after.last.cpu().numpy(), kept.last)
        np.testing.assert_array_equal(after.records.cpu().numpy(), kept.records)
        seen.update((kept.records == begun.records).tolist(), (2 + (kept.records == FREE)).tolist())
        seen.update((4 + (kept.records >= RECORDS)).tolist())
    assert lanes == 1 or seen == {False, True, 2, 3, 4, 5}
