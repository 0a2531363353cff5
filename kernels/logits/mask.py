"""Packed token masks on the CPU: bit t % 32 of word t // 32 is set if token t is allowed.

Rows of a table of masks are copied into bitmasks of hosts. Most masks have very few non-zero words: after most bytes of
JSON three or four of 128,000 tokens are allowed. So the table lists the non-zero words of each row that has few. Such a
row is written by clearing, which takes half as long as copying; where the place holds such a mask, only its words are
cleared.

    few         int32 [rows, LISTED]: FEW_COUNT, the number of non-zero words, or MANY; from FEW_PLACES on their
                places, ascending, and from FEW_WORDS on the words. Without lists, few is [0, LISTED]
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..jit.addresses import clear_bytes, copy_bytes
from ..jit.aliases import Int, Ints, Longs, Words
from ..jit.compiling import call, inner_njit, njit
from .contracts import bad_row, check, check_mask, check_table, flat_bits, mask_rows, whole

_LANES = np.array([1 << lane for lane in range(32)], np.uint32).view(np.int32)
_ALL = np.int32(-1)

# Integers with the bits of -inf, by dtype of the logits
_MINUS_INFINITY: dict[str, np.signedinteger[Any]] = {
    "float32": np.int32(-0x00800000),
    "float16": np.int16(-0x0400),
    "bfloat16": np.int16(-0x0080),
}


def words_for(size: int) -> int:
    """Return the number of 32-bit words of the mask of a vocabulary of `size` tokens."""
    return (size + 31) // 32


def pack_mask(allowed: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """Pack booleans [..., V] into mask words uint32 [..., ceil(V / 32)]; bits past V are clear. Raises TypeError."""
    if not isinstance(allowed, np.ndarray) or allowed.dtype != np.bool_ or not allowed.ndim:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError("allowed: a NumPy array of booleans [..., vocabulary] is needed")
    size = allowed.shape[-1]
    padded = np.zeros((*allowed.shape[:-1], 32 * words_for(size)), np.bool_)
    padded[..., :size] = allowed
    return np.packbits(padded, axis=-1, bitorder="little").view("<u4").astype(np.uint32, copy=False)


def unpack_mask(masks: NDArray[np.uint32], size: int) -> NDArray[np.bool_]:
    """Unpack mask words uint32 [..., W] into booleans [..., size]. Raises TypeError and ValueError."""
    if not isinstance(masks, np.ndarray) or masks.dtype not in (np.uint32, np.int32) or not masks.ndim:  # pyright: ignore[reportUnnecessaryIsInstance, reportUnnecessaryContains]
        raise TypeError("masks: a NumPy array of mask words, uint32 [..., words], is needed")
    if not 0 <= whole(size, "size") <= 32 * masks.shape[-1]:
        raise ValueError(f"size: {size}, but {masks.shape[-1]} words are masks of up to {32 * masks.shape[-1]} tokens")
    octets = np.ascontiguousarray(masks.view(np.uint32), "<u4").view(np.uint8)
    return np.unpackbits(octets, axis=-1, bitorder="little", count=size).astype(np.bool_)


def apply_mask(logits: Any, masks: Any = None, rows: Any = None, size: int | None = None) -> None:
    """Set the logits of disallowed tokens, and of those beyond the vocabulary, to -inf, in place.

    `logits` float32, float16 or bfloat16 [B, V] with any stride between rows; `masks` uint32 [R, W]; `rows` int32 [B],
    the mask of each row, -1 for none; None for mask b of row b. Raises TypeError and ValueError.
    """
    contract = check(logits, masks, rows, size)
    if contract.device != "cpu":
        from .triton_mask import apply_mask as on_device

        on_device(logits, masks, rows, contract)
        return
    if isinstance(logits, np.ndarray) and not logits.flags.writeable:
        raise ValueError("logits: the array is read-only, but the mask is applied in place")
    integer = np.int32 if contract.dtype == "float32" else np.int16
    bits, stride = flat_bits(logits, contract, integer)
    words, numbers = mask_rows(masks, rows, contract.batch)
    wrong = mask_kernel(bits, stride, contract.width, contract.size, words, numbers, _MINUS_INFINITY[contract.dtype])
    if wrong >= 0:
        raise bad_row(int(numbers[wrong]), len(words))


def popcount(masks: Any) -> NDArray[np.int64]:
    """Count the bits set in each CPU mask: uint32 [R, W] -> int64 [R]. Raises TypeError and ValueError."""
    return count_kernel(check_table(masks))


def allowed_ids(mask: Any, size: int | None = None) -> NDArray[np.int32]:
    """Return the tokens below `size` that a mask uint32 [W] allows, ascending: int32 [n]."""
    words, limit = check_mask(mask, size)
    return ids_kernel(words, limit)


@njit
def mask_kernel(
    bits: NDArray[np.signedinteger[Any]],
    stride: Int,
    width: Int,
    size: Int,
    words: Ints,
    numbers: Ints,
    minus_infinity: Int,
) -> Int:
    """Mask rows of logits given as integers. Return the index of the first bad row number, or -1."""
    for index in range(numbers.size):
        if numbers[index] < -1 or numbers[index] >= words.shape[0]:
            return index
    for index in range(numbers.size):
        row = bits[index * stride : index * stride + width]
        row[size:] = minus_infinity
        if numbers[index] >= 0:
            _mask_row(row, size, words[numbers[index]], minus_infinity)
    return -1


@inner_njit
def _mask_row(row: NDArray[np.signedinteger[Any]], size: Int, mask: Ints, minus_infinity: Int) -> None:
    lanes = _LANES
    for word in range((size + 31) >> 5):
        allowed = mask[word]
        target = row[word << 5 : min((word + 1) << 5, size)]
        if allowed == 0:
            target[:] = minus_infinity
        elif allowed != _ALL and target.size == 32:
            for lane in range(32):
                target[lane] = target[lane] if (allowed & lanes[lane]) != 0 else minus_infinity
        elif allowed != _ALL:
            for lane in range(target.size):
                target[lane] = target[lane] if (allowed & lanes[lane]) != 0 else minus_infinity


@inner_njit
def _count_bits(word: Int) -> Int:
    """Count the set bits of 32, by pairs, fours and eights. Source: H. S. Warren, Hacker's Delight (2012), 5-1."""
    bits = np.int64(word) & np.int64(0xFFFFFFFF)
    bits -= (bits >> 1) & np.int64(0x55555555)
    bits = (bits & np.int64(0x33333333)) + ((bits >> 2) & np.int64(0x33333333))
    bits = (bits + (bits >> 4)) & np.int64(0x0F0F0F0F)
    bits += bits >> 8
    return (bits + (bits >> 16)) & np.int64(63)


@inner_njit
def sum_bits(words: Ints) -> Int:
    """Count the set bits of several words."""
    count = np.int64(0)
    for word in range(words.size):
        count += _count_bits(words[word])
    return count


@njit
def count_kernel(masks: Ints) -> Longs:
    """Count the set bits of each row: int64 [R]."""
    counts = np.zeros(masks.shape[0], np.int64)
    for index in range(masks.shape[0]):
        counts[index] = sum_bits(masks[index])
    return counts


@njit
def ids_kernel(words: Ints, size: Int) -> Ints:
    """Return the positions of set bits below `size`: int32 [n]."""
    lanes = _LANES
    # The count includes bits from `size` on, which are not listed below.
    found = np.empty(sum_bits(words), np.int32)
    count = 0
    for word in range(words.size):
        if words[word] != 0:
            for lane in range(min(32, size - (word << 5))):
                if (words[word] & lanes[lane]) != 0:
                    found[count] = (word << 5) + lane
                    count += 1
    return found[:count]


FEW = 15
FEW_COUNT, FEW_PLACES, FEW_WORDS, LISTED = 0, 1, 1 + FEW, 32
MANY = -1
MIN_LISTED = 256
"""Rows of at least this many words have lists."""
BLOCK = 128
"""Words that are tested together: LLVM vectorises a loop that counts, but not one with an early exit."""


def keep_row(words: Ints, few: Ints, row: int, mask: NDArray[np.uint32]) -> None:
    """Write a mask uint32 [W] to a row of masks, viewed as int32 [R, W], and list its words in the same row of `few`.

    `few` must describe the previous contents of the row; zeros describe a row of zeros. Raises ValueError for a row
    outside the table, and for a mask of another length.
    """
    if call(keep_kernel, words, few, row, mask) < 0:
        raise ValueError(f"a mask of {mask.size} words cannot be row {row} of {words.shape}")


def copy_rows(
    masks: NDArray[np.uint32], few: Ints, rows: Ints, bits: Ints, places: Ints, stride: int, span: int
) -> None:
    """Copy rows of masks uint32 [R, W] into memory viewed as int32 [n]: row p is the `span` words from p * `stride`.

    `few` lists the words of the masks; `rows` int32 [k] are the masks' numbers, `places` int32 [k] the rows to write;
    words from W to `span` are cleared. Raises ValueError, before writing, for numbers out of range. Releases the GIL.
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
    """`copy_rows` into memory with known contents: rows that are already there are not written again.

    `versions` int64 [R] number the contents of masks, from 1 on; `lies` int64 [P] and `held` int32 [P, LISTED] are, for
    each place, the version last written there, 0 for unknown, and its listed words; both are updated.
    """
    words = masks.view(np.int32)
    wrong = call(renew_kernel, words, few, versions, rows, bits, places, stride, span, lies, held)
    if wrong >= 0:
        raise _not_there(rows, places, wrong)


def _not_there(rows: Ints, places: Ints, index: int) -> ValueError:
    return ValueError(f"mask row {rows[index]} cannot be copied to row {places[index]}: one of them does not exist")


@njit
def keep_kernel(words: Ints, few: Ints, row: Int, mask: Words) -> Int:
    """Write a mask to a row, and list its non-zero words. Return 0, or -1 for arguments out of range.

    Where few words replace few, only these are written: the row is rarely in the cache, and the mask mostly is.
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
    """List the places of a mask's non-zero words in a row of `few`, block by block. Return their number, or MANY."""
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
    """Append the places of non-zero words in mask[begin:end]. Return the number listed, or MANY."""
    for place in range(begin, end):
        if mask[place] != 0:
            if count == FEW:
                return MANY
            few[row, FEW_PLACES + count] = place
            count += 1
    return count


@njit
def copy_kernel(words: Ints, few: Ints, numbers: Ints, bits: Ints, places: Ints, stride: Int, span: Int) -> Int:
    """Copy rows. Return the index of the first that is out of range, or -1."""
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
    """Copy rows whose place holds another version. Return the index of the first that is out of range, or -1."""
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
    """Return the index of the first row or place out of range; -1 if there is none."""
    for index in range(numbers.size):
        place = places[index]
        if numbers[index] < 0 or numbers[index] >= words.shape[0] or words.shape[1] > span:
            return index
        if place < 0 or place * stride + span > bits.size or 0 < few.shape[0] <= numbers[index]:
            return index
    return -1


@inner_njit
def _write(words: Ints, few: Ints, number: Int, bits: Ints, begin: Int, span: Int) -> None:
    """Write a row over any contents."""
    target, width = bits.ctypes.data + 4 * begin, words.shape[1]
    if few.shape[0] > 0 and few[number, FEW_COUNT] != MANY:
        clear_bytes(target, 4 * span)
        _write_few(few, number, bits, begin)
        return
    copy_bytes(target, words.ctypes.data + 4 * number * width, 4 * width)
    clear_bytes(target + 4 * width, 4 * (span - width))


@inner_njit
def _write_few(few: Ints, number: Int, bits: Ints, begin: Int) -> None:
    """Write the listed words of a row over zeros."""
    for word in range(few[number, FEW_COUNT]):
        bits[begin + few[number, FEW_PLACES + word]] = few[number, FEW_WORDS + word]
