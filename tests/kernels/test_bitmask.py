"""Writing rows of masks into bitmasks, compared with plain assignment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from trellm.kernels.logits.mask import (
    BLOCK,
    FEW,
    FEW_PLACES,
    FEW_WORDS,
    LISTED,
    MANY,
    copy_rows,
    keep_row,
    renew_rows,
)

WORDS = BLOCK + 40


def some_masks(random: np.random.Generator, rows: int) -> np.ndarray:
    """Masks with no words that are not 0, with one, a few, as many as are listed, one more, and all."""
    found = np.zeros((rows, WORDS), np.uint32)
    for row in range(rows):
        count = [0, 1, 3, FEW, FEW + 1, WORDS][row % 6]
        found[row, random.permutation(WORDS)[:count]] = random.integers(1, 2**32, count, np.uint32)
    return found


def listed(masks: np.ndarray) -> np.ndarray:
    """The lists of masks, by their definition."""
    found = np.zeros((len(masks), LISTED), np.int32)
    for few, mask in zip(found, masks.view(np.int32), strict=True):
        places = np.flatnonzero(mask)
        few[0] = len(places) if len(places) <= FEW else MANY
        if few[0] != MANY:
            few[FEW_PLACES : FEW_PLACES + len(places)] = places
            few[FEW_WORDS : FEW_WORDS + len(places)] = mask[places]
    return found


def test_rows_are_kept_and_their_words_listed() -> None:
    """In the place of zeros, and of all kinds of masks."""
    random = np.random.default_rng(0)
    masks = some_masks(random, 24)
    found, rows = np.zeros((24, LISTED), np.int32), np.zeros_like(masks)
    for _ in range(8):
        for row, mask in enumerate(masks):
            keep_row(rows.view(np.int32), found, row, mask)
        np.testing.assert_array_equal(rows, masks)
        for few, expected in zip(found, listed(masks), strict=True):
            count = few[0]
            assert count == expected[0]
            for begin in (FEW_PLACES, FEW_WORDS):
                places = slice(begin, begin + max(count, 0))
                np.testing.assert_array_equal(few[places], expected[places])
        random.shuffle(masks)
    for row, mask in ((24, masks[0]), (-1, masks[0]), (0, masks[0, 1:])):
        with pytest.raises(ValueError, match="cannot be row"):
            keep_row(rows.view(np.int32), found, row, mask)


def test_long_rows_are_listed_wherever_their_words_are() -> None:
    """Of words in the first block and the last, at ends of blocks, and beyond whole blocks."""
    for width in (3 * BLOCK, 3 * BLOCK + 7):
        rows, found = np.zeros((1, width), np.uint32), np.zeros((1, LISTED), np.int32)
        places = [0, BLOCK - 1, BLOCK, 2 * BLOCK + 5, 3 * BLOCK - 1, width - 1]
        for chosen in ([each] for each in places):
            mask = np.zeros(width, np.uint32)
            mask[chosen] = 2**32 - 1
            keep_row(rows.view(np.int32), found, 0, mask)
            np.testing.assert_array_equal(rows[0], mask)
            assert found[0, 0] == 1 and found[0, FEW_PLACES] == chosen[0] and found[0, FEW_WORDS] == -1
        mask[:] = 1
        keep_row(rows.view(np.int32), found, 0, mask)
        np.testing.assert_array_equal(rows[0], mask)
        assert found[0, 0] == MANY


def written(masks: np.ndarray, memory: np.ndarray, rows: Any, places: Any, stride: int, span: int) -> None:
    """What is to be in the memory."""
    for row, place in zip(rows, places, strict=True):
        memory[place * stride : place * stride + span] = 0
        memory[place * stride : place * stride + WORDS] = masks[row].view(np.int32)


@pytest.mark.parametrize("span", [WORDS, WORDS + 2])
@pytest.mark.parametrize("has_lists", [True, False])
def test_rows_are_copied_to_their_places(span: int, has_lists: bool) -> None:
    masks = some_masks(np.random.default_rng(span), 12)
    few = listed(masks) if has_lists else np.zeros((0, LISTED), np.int32)
    stride = span + 2
    rows, places = np.array([5, 0, 5, 2, 9, 10], np.int32), np.array([3, 1, 0, 4, 6, 5], np.int32)
    memory = np.full(6 * stride + span, 9, np.int32)
    expected = memory.copy()
    written(masks, expected, rows, places, stride, span)
    copy_rows(masks, few, rows, memory, places, stride, span)
    np.testing.assert_array_equal(memory, expected)
    for bad in ({"rows": rows + 2}, {"rows": rows - 1}, {"places": places + 1}, {"places": places - 1}, {"span": 2}):
        given = {"rows": rows, "places": places, "span": span, **bad}
        with pytest.raises(ValueError, match="cannot be copied"):
            copy_rows(masks, few, given["rows"], memory, given["places"], stride, given["span"])
    with pytest.raises(ValueError, match="cannot be copied"):
        copy_rows(masks, listed(masks)[:5], rows, memory, places, stride, span)
    np.testing.assert_array_equal(memory, expected)


@pytest.mark.parametrize("has_lists", [True, False])
def test_rows_are_renewed(has_lists: bool) -> None:
    """Step by step, with masks that are given away, places more than once in a step, and words of others."""
    random = np.random.default_rng(int(has_lists))
    masks = some_masks(random, 30)
    few = listed(masks) if has_lists else np.zeros((0, LISTED), np.int32)
    versions = np.arange(1, 31)
    span, stride, count = WORDS + 3, WORDS + 5, 8
    memory = np.full(count * stride, 9, np.int32)
    expected = memory.copy()
    lies, held = np.zeros(count, np.int64), np.full((count, LISTED), MANY, np.int32)
    for step in range(60):
        rows = random.integers(0, 30, 6).astype(np.int32)
        places = random.integers(0, count, 6).astype(np.int32)
        renew_rows(masks, few, versions, rows, memory, places, stride, span, lies, held)
        written(masks, expected, rows, places, stride, span)
        np.testing.assert_array_equal(memory, expected)
        if step % 3 == 0:  # another mask takes a row
            row = random.integers(30)
            masks[row] = some_masks(random, 6)[random.integers(6)]
            if has_lists:
                few[row] = listed(masks[row : row + 1])[0]
            versions[row] = 31 + step
        if step % 7 == 0:  # somebody else writes to a place, and says so
            place = random.integers(count)
            memory[place * stride : place * stride + span] = expected[place * stride : place * stride + span] = step
            lies[place], held[place] = 0, MANY


def test_what_is_known_to_be_there_is_not_written() -> None:
    masks = some_masks(np.random.default_rng(3), 6)
    versions, rows = np.arange(1, 7), np.arange(6, dtype=np.int32)
    memory = np.zeros(6 * WORDS, np.int32)
    lies, held = np.array([1, 2, 3, 4, 5, 7]), np.full((6, LISTED), MANY, np.int32)
    renew_rows(masks, listed(masks), versions, rows, memory, rows, WORDS, WORDS, lies, held)
    assert not memory[: 5 * WORDS].any()
    np.testing.assert_array_equal(memory[5 * WORDS :], masks[5].view(np.int32))
    assert lies.tolist() == versions.tolist()
    before = memory.copy()
    for short in ({"versions": versions[:5]}, {"lies": lies[:5]}, {"held": held[:5]}):
        given = {"versions": versions, "lies": np.zeros(6, np.int64), "held": held, **short}
        with pytest.raises(ValueError, match="mask row 5 cannot be copied to row 5"):
            renew_rows(masks, listed(masks), given["versions"], rows, memory, rows, WORDS, WORDS,
                       given["lies"], given["held"])  # fmt: skip
    np.testing.assert_array_equal(memory, before)
