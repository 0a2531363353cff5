"""Rows of packed masks, written into bitmasks of others.

Most masks have a bit in very few of their words: after most bytes of JSON three or four of 128,000 tokens may follow.
So for each row of a table of masks it is listed which words are not 0, where they are few; such a row is written by
clearing, which takes half as long as copying. A place that holds such a mask is cleared by its words alone.

    few         int32 [rows, LISTED]: FEW_COUNT, how many words are not 0, or MANY; from FEW_PLACES on where they are,
                ascending, and from FEW_WORDS on the words. A table without lists has few[0, LISTED]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..jit.aliases import Int, Ints, Longs, Words
from ..jit.calling import call
from ..jit.compiling import inner_njit, njit
from ..jit.copying import clear_bytes, copy_bytes

FEW = 15
FEW_COUNT, FEW_PLACES, FEW_WORDS, LISTED = 0, 1, 1 + FEW, 32
MANY = -1
LEAST_LISTED = 256
"""Rows of so many words or more are worth a list."""
BLOCK = 128
"""So many words are looked at together: a loop that counts is done by vectors, one that may stop is not."""


def keep_row(words: Ints, few: Ints, row: int, mask: NDArray[np.uint32]) -> None:
    """Write a mask uint32 [W] to a row of masks, seen as int32 [R, W], and list its words in that row of `few`, if any.

    What `few` says of the row before must be true, as it is of zeros beside zeros. Raises ValueError for a row that is
    not there, and for a mask of another length.
    """
    if call(keep_kernel, words, few, row, mask) < 0:
        raise ValueError(f"a mask of {mask.size} words cannot be row {row} of {words.shape}")


def copy_rows(
    masks: NDArray[np.uint32], few: Ints, rows: Ints, bits: Ints, places: Ints, stride: int, span: int
) -> None:
    """Copy rows of masks uint32 [R, W] into memory seen as int32 [n]: row p is the `span` words from p * `stride`.

    `few` lists the words of the masks; `rows` int32 [k] numbers the masks, `places` int32 [k] where they go; with a
    span above W the rest of it is cleared. Raises ValueError for what is out of range; then nothing is written. The
    interpreter's lock is not held.
    """
    wrong = call(copy_kernel, masks.view(np.int32), few, rows, bits, places, stride, span)
    if wrong >= 0:
        raise _not_there(rows, places, wrong)


def renew_rows(
    masks: NDArray[np.uint32],
    few: Ints,
    versions: Longs,
    rows: Ints,
    bits: Ints,
    places: Ints,
    stride: int,
    span: int,
    lies: Longs,
    held: Ints,
) -> None:
    """The same as `copy_rows` where what the memory has is known: what is there already is not written again.

    `versions` int64 [R] numbers what the masks are, from 1 on; `lies` int64 [P] and `held` int32 [P, LISTED], of each
    place, are the version that was written there, 0 for what is not known, and its words; both are kept up.
    """
    words = masks.view(np.int32)
    wrong = call(renew_kernel, words, few, versions, rows, bits, places, stride, span, lies, held)
    if wrong >= 0:
        raise _not_there(rows, places, wrong)


def _not_there(rows: Ints, places: Ints, index: int) -> ValueError:
    return ValueError(f"mask row {rows[index]} cannot be copied to row {places[index]}: one of them is not there")


@njit
def keep_kernel(words: Ints, few: Ints, row: Int, mask: Words) -> Int:
    """Write a mask to a row, and list its words that are not 0; -1 for one that is out of range.

    Where few words are in the place of few, no others are touched: the row is in no cache, and the mask mostly is.
    """
    if row < 0 or row >= words.shape[0] or mask.size != words.shape[1] or 0 < few.shape[0] <= row:
        return -1
    width = mask.size
    target, source = words.ctypes.data + 4 * row * width, mask.ctypes.data
    if few.shape[0] == 0:
        copy_bytes(target, source, 4 * width)
        return 0
    before = few[row, FEW_COUNT]
    for word in range(before):
        words[row, few[row, FEW_PLACES + word]] = 0
    count = _list_places(mask, few, row)
    if count == MANY:
        copy_bytes(target, source, 4 * width)
    elif before == MANY:
        clear_bytes(target, 4 * width)
    for word in range(count):
        place = np.int64(few[row, FEW_PLACES + word])
        copy_bytes(target + 4 * place, source + 4 * place, 4)
        few[row, FEW_WORDS + word] = words[row, place]
    few[row, FEW_COUNT] = count
    return 0


@inner_njit
def _list_places(mask: Words, few: Ints, row: Int) -> Int:
    """Write to a row of `few` where a mask has words that are not 0; how many, or MANY. Most are passed in blocks."""
    count, whole = 0, mask.size // BLOCK * BLOCK
    for begin in range(0, whole, BLOCK):
        more = 0
        for place in range(begin, begin + BLOCK):
            more += mask[place] != 0
        if count + more > FEW:
            return MANY
        if more:
            count = _list_some(mask, begin, begin + BLOCK, few, row, count)
    return _list_some(mask, whole, mask.size, few, row, count)


@inner_njit
def _list_some(mask: Words, begin: Int, end: Int, few: Ints, row: Int, count: Int) -> Int:
    """Add where mask[begin:end] is not 0 to the places that are listed; how many there are then, or MANY."""
    for place in range(begin, end):
        if mask[place] != 0:
            if count == FEW:
                return MANY
            few[row, FEW_PLACES + count] = place
            count += 1
    return count


@njit
def copy_kernel(words: Ints, few: Ints, numbers: Ints, bits: Ints, places: Ints, stride: Int, span: Int) -> Int:
    """Copy rows; the index of the first that is out of range, or -1."""
    wrong = _out_of_range(words, few, numbers, bits, places, stride, span)
    if wrong >= 0:
        return wrong
    for index in range(numbers.size):
        _write(words, few, np.int64(numbers[index]), bits, np.int64(places[index]) * stride, span)
    return -1


@njit
def renew_kernel(
    words: Ints,
    few: Ints,
    versions: Longs,
    numbers: Ints,
    bits: Ints,
    places: Ints,
    stride: Int,
    span: Int,
    lies: Longs,
    held: Ints,
) -> Int:
    """Copy rows where something else lies; the index of the first that is out of range, or -1."""
    wrong = _out_of_range(words, few, numbers, bits, places, stride, span)
    if wrong >= 0:
        return wrong
    for index in range(numbers.size):
        if numbers[index] >= versions.size or places[index] >= lies.size or places[index] >= held.shape[0]:
            return index
    for index in range(numbers.size):
        number, place = np.int64(numbers[index]), np.int64(places[index])
        if lies[place] == versions[number]:
            continue
        begin = place * stride
        count = few[number, FEW_COUNT] if few.shape[0] > 0 else MANY
        if count != MANY and held[place, FEW_COUNT] != MANY:
            for word in range(held[place, FEW_COUNT]):
                bits[begin + held[place, FEW_PLACES + word]] = 0
            _write_few(few, number, bits, begin)
        else:
            _write(words, few, number, bits, begin, span)
        held[place, FEW_COUNT] = count
        for word in range(count):
            held[place, FEW_PLACES + word] = few[number, FEW_PLACES + word]
        lies[place] = versions[number]
    return -1


@inner_njit
def _out_of_range(words: Ints, few: Ints, numbers: Ints, bits: Ints, places: Ints, stride: Int, span: Int) -> Int:
    """The index of the first row that is not there, or of a place; -1 if all are there."""
    for index in range(numbers.size):
        place = places[index]
        if numbers[index] < 0 or numbers[index] >= words.shape[0] or words.shape[1] > span:
            return index
        if place < 0 or place * stride + span > bits.size or 0 < few.shape[0] <= numbers[index]:
            return index
    return -1


@inner_njit
def _write(words: Ints, few: Ints, number: Int, bits: Ints, begin: Int, span: Int) -> None:
    """Write a row, whatever is there."""
    target, width = bits.ctypes.data + 4 * begin, words.shape[1]
    if few.shape[0] > 0 and few[number, FEW_COUNT] != MANY:
        clear_bytes(target, 4 * span)
        _write_few(few, number, bits, begin)
        return
    copy_bytes(target, words.ctypes.data + 4 * number * width, 4 * width)
    clear_bytes(target + 4 * width, 4 * (span - width))


@inner_njit
def _write_few(few: Ints, number: Int, bits: Ints, begin: Int) -> None:
    """Write the words of a row that are listed, where the others are 0."""
    for word in range(few[number, FEW_COUNT]):
        bits[begin + few[number, FEW_PLACES + word]] = few[number, FEW_WORDS + word]
