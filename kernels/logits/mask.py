"""Packed token masks on the CPU: bit t % 32 of word t // 32 says whether token t is allowed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..jit.aliases import Int, Ints, Longs
from ..jit.compiling import inner_njit, njit
from .contracts import bad_row, check, check_mask, check_table, flat_bits, mask_rows, whole

_LANES = np.array([1 << lane for lane in range(32)], np.uint32).view(np.int32)
_ALL = np.int32(-1)

# The integer that has the bits of -inf, by dtype of the logits
_MINUS_INFINITY: dict[str, np.signedinteger[Any]] = {
    "float32": np.int32(-0x00800000),
    "float16": np.int16(-0x0400),
    "bfloat16": np.int16(-0x0080),
}


def words_for(size: int) -> int:
    """The number of 32-bit words that hold the mask of a vocabulary of `size` tokens."""
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
    """Set the logits of disallowed tokens, and those beyond the vocabulary, to -inf, in place.

    `logits` float32, float16 or bfloat16 [B, V], rows may lie apart; `masks` uint32 [R, W]; `rows` int32 [B]
    numbers the mask of each row, -1 for none; without it row b has mask b. Raises TypeError and ValueError.
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
    """The number of bits set in each CPU mask: uint32 [R, W] -> int64 [R]. Raises TypeError and ValueError."""
    return count_kernel(check_table(masks))


def allowed_ids(mask: Any, size: int | None = None) -> NDArray[np.int32]:
    """The tokens that a mask uint32 [W] allows, ascending: int32 [n]; none at or past `size`."""
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
    """Mask rows of logits given as integers; the index of the first bad row number, or -1."""
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
    """Set bits among 32: of pairs, of fours, of eights at once. Source: H. S. Warren, Hacker's Delight (2012), 5-1."""
    bits = np.int64(word) & np.int64(0xFFFFFFFF)
    bits -= (bits >> 1) & np.int64(0x55555555)
    bits = (bits & np.int64(0x33333333)) + ((bits >> 2) & np.int64(0x33333333))
    bits = (bits + (bits >> 4)) & np.int64(0x0F0F0F0F)
    bits += bits >> 8
    return (bits + (bits >> 16)) & np.int64(63)


@inner_njit
def sum_bits(words: Ints) -> Int:
    """Set bits of several words."""
    count = np.int64(0)
    for word in range(words.size):
        count += _count_bits(words[word])
    return count


@njit
def count_kernel(masks: Ints) -> Longs:
    """Set bits in each row: int64 [R]."""
    counts = np.zeros(masks.shape[0], np.int64)
    for index in range(masks.shape[0]):
        counts[index] = sum_bits(masks[index])
    return counts


@njit
def ids_kernel(words: Ints, size: Int) -> Ints:
    """The positions of the set bits below `size`: int32 [n]."""
    lanes = _LANES
    # What is set from `size` on is counted here, and not listed below.
    found = np.empty(sum_bits(words), np.int32)
    count = 0
    for word in range(words.size):
        if words[word] != 0:
            for lane in range(min(32, size - (word << 5))):
                if (words[word] & lanes[lane]) != 0:
                    found[count] = (word << 5) + lane
                    count += 1
    return found[:count]
