"""Checks of arguments, once before dispatch, for all backends.

Arrays are NumPy arrays or torch tensors. The module does not import torch; it recognises tensors by their attributes.
"""

from __future__ import annotations

from functools import cache
from operator import index
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]

LOGITS = ("float32", "float16", "bfloat16")
WORDS = ("uint32", "int32")
NUMBERS = ("int32", "int64")

_NO_WORDS: Ints = np.zeros((1, 0), np.int32)


class CallProperties(NamedTuple):
    """Properties of a call's arguments, after the checks."""

    batch: int
    width: int
    size: int
    dtype: str
    device: str


class KernelArguments(NamedTuple):
    """CPU arguments of compiled kernels, as views; only 16-bit logits are copied.

    `bits` int32 [n]: the logits' bits, row b at `bits[b * stride : b * stride + size]`. `words` int32 [R, W]:
    mask words. `numbers` int32 [B]: the row of `words` for each row of logits, -1 for no mask.
    """

    bits: Ints
    stride: int
    size: int
    words: Ints
    numbers: Ints


def check(logits: Any, masks: Any = None, rows: Any = None, size: int | None = None) -> CallProperties:
    """Check logits [B, V], masks [R, W], row numbers [B] and the vocabulary's size for consistency.

    Raises TypeError for a wrong kind or dtype, ValueError for a wrong shape, stride, size or device.
    """
    dtype, device = _dtype(logits, "logits", LOGITS), _device(logits)
    _shape(logits, "logits", 2, "[rows, vocabulary]")
    if device == "meta":
        raise ValueError("logits: on meta, whose tensors have no values")
    batch, width = int(logits.shape[0]), int(logits.shape[1])
    if batch and width > 1 and _step(logits, 1) != 1:
        raise ValueError("logits: the values of a row must be contiguous; call .contiguous() first")
    if width == 0 or (batch > 1 and _step(logits, 0) < width):
        raise ValueError("logits: rows must be distinct and not empty; copy an expanded tensor first")
    if masks is None:
        if rows is not None:
            raise ValueError("rows: row numbers need masks, which are missing")
        limit = width
    else:
        limit = _check_masks(masks, rows, batch, width, device)
    if size is None:
        return CallProperties(batch, width, limit, dtype, device)
    size = whole(size, "size")
    if not 0 < size <= width:
        raise ValueError(f"size: the vocabulary has {size} tokens, but a row of logits has {width} values")
    if masks is not None and (size + 31) // 32 != int(masks.shape[1]):
        raise ValueError(
            f"masks: {size} tokens need rows of {(size + 31) // 32} words, these have {int(masks.shape[1])}"
        )
    return CallProperties(batch, width, size, dtype, device)


def flatten(logits: Any, masks: Any, rows: Any, contract: CallProperties) -> KernelArguments:
    """View checked CPU arguments as arrays of compiled kernels; 16-bit logits are widened."""
    if contract.dtype != "float32":
        logits = logits.astype(np.float32) if _is_numpy(logits) else logits.float()
    bits, stride = flat_bits(logits, contract, np.int32)
    words, numbers = mask_rows(masks, rows, contract.batch)
    return KernelArguments(bits, stride, contract.size, words, numbers)


def flat_bits(logits: Any, contract: CallProperties, integer: type[np.signedinteger[Any]]) -> tuple[Any, int]:
    """Return the memory of checked CPU logits as a flat integer view, and the step between rows."""
    batch, width = contract.batch, contract.width
    stride = _step(logits, 0) if batch > 1 else width
    if not _is_numpy(logits):
        logits = logits.detach()
        if stride != width:
            logits = logits.as_strided(((batch - 1) * stride + width,), (1,))
        if integer is np.int16:  # NumPy has no bfloat16
            logits = logits.view(_torch().int16)
        return logits.numpy().reshape(-1).view(integer), stride
    if stride != width:
        step = logits.itemsize
        logits = np.lib.stride_tricks.as_strided(logits, ((batch - 1) * stride + width,), (step,))
    return logits.reshape(-1).view(integer), stride


def mask_rows(masks: Any, rows: Any, batch: int) -> tuple[Ints, Ints]:
    """Return checked masks as int32 words [R, W] and row numbers int32 [B]; without masks every number is -1."""
    if masks is None:
        return _NO_WORDS, np.full(batch, -1, np.int32)
    words = masks if _is_numpy(masks) else masks.numpy()
    if rows is None:
        return words.view(np.int32), np.arange(batch, dtype=np.int32)
    numbers = rows if _is_numpy(rows) else rows.numpy()
    return words.view(np.int32), np.ascontiguousarray(numbers, np.int32)


def check_mask(mask: Any, size: int | None) -> tuple[Ints, int]:
    """Return a packed mask on the CPU as int32 words [W], and its number of tokens."""
    _dtype(mask, "mask", WORDS)
    _shape(mask, "mask", 1, "[words]")
    size = None if size is None else whole(size, "size")
    if _device(mask) != "cpu" or (mask.shape[0] > 1 and _step(mask, 0) != 1):
        raise ValueError("mask: the words must be contiguous in CPU memory")
    tokens = 32 * int(mask.shape[0])
    if size is not None and (size < 0 or (size + 31) // 32 != int(mask.shape[0])):
        raise ValueError(f"mask: {size} tokens need {(size + 31) // 32} words, this mask has {int(mask.shape[0])}")
    words = mask if _is_numpy(mask) else mask.numpy()
    return words.view(np.int32), tokens if size is None else size


def check_table(masks: Any) -> Ints:
    """Return packed masks on the CPU as contiguous int32 words [R, W]."""
    _dtype(masks, "masks", WORDS)
    _shape(masks, "masks", 2, "[rows, words]")
    if _device(masks) != "cpu":
        raise ValueError("masks: they must lie in CPU memory")
    return np.ascontiguousarray(masks if _is_numpy(masks) else masks.numpy()).view(np.int32)


def whole(value: Any, name: str) -> int:
    """Return a whole number as int, also one of NumPy's. Raises TypeError for other types."""
    try:
        return index(value)
    except TypeError:
        raise TypeError(f"{name}: a whole number is needed, not {type(value).__name__}") from None


def bad_row(number: int, rows: int) -> ValueError:
    """Return the error for a row number outside the mask table."""
    return ValueError(f"rows: mask row {number} is not in the table of {rows} rows (-1 means no mask)")


def per_row(value: Any, batch: int, name: str) -> NDArray[np.float64]:
    """Return a number, or one for each row, as float64 [B]. Raises TypeError, and ValueError for bad shapes and NaN."""
    if _is_tensor(value):
        if _device(value) == "meta":
            raise ValueError(f"{name}: on meta, whose tensors have no values")
        value = value.detach().cpu().numpy()
    numbers = np.asarray(value)
    if numbers.dtype.kind not in "fiub":
        raise TypeError(f"{name}: numbers are needed, not {type(value).__name__}")
    numbers = numbers.astype(np.float64)
    if numbers.ndim == 0:
        numbers = np.full(batch, numbers)
    if numbers.shape != (batch,):
        raise ValueError(f"{name}: a number for each of {batch} rows is needed, not shape {numbers.shape}")
    if np.isnan(numbers).any():
        raise ValueError(f"{name}: NaN is not a number that can be used")
    return np.ascontiguousarray(numbers)


def _check_masks(masks: Any, rows: Any, batch: int, width: int, device: str) -> int:
    _dtype(masks, "masks", WORDS)
    _shape(masks, "masks", 2, "[rows, words]")
    count, words = int(masks.shape[0]), int(masks.shape[1])
    if _device(masks) != device:
        raise ValueError(f"masks: on {_device(masks)}, but the logits are on {device}")
    if (words > 1 and _step(masks, 1) != 1) or (count > 1 and _step(masks, 0) != words):
        raise ValueError("masks: the table must be contiguous, row after row")
    if not 0 < words <= (width + 31) // 32:
        raise ValueError(f"masks: {words} words a row do not fit logits of {width} values ({(width + 31) // 32} words)")
    if rows is None:
        if count != batch:
            raise ValueError(f"masks: {count} masks for {batch} rows of logits; pass `rows` to number them")
    else:
        _dtype(rows, "rows", NUMBERS)
        _shape(rows, "rows", 1, "[rows]")
        if int(rows.shape[0]) != batch:
            raise ValueError(f"rows: {int(rows.shape[0])} row numbers for {batch} rows of logits")
        if _device(rows) != device:
            raise ValueError(f"rows: on {_device(rows)}, but the logits are on {device}")
    return min(width, 32 * words)


def _dtype(array: Any, name: str, possible: tuple[str, ...]) -> str:
    if not _is_numpy(array) and not _is_tensor(array):
        raise TypeError(f"{name}: a NumPy array or torch tensor (no sparse one) is needed, not {type(array).__name__}")
    dtype = array.dtype
    found = _dtype_name(dtype)
    if found not in possible:
        raise TypeError(f"{name}: dtype {found}; possible are {', '.join(possible)}")
    return found


@cache
def _dtype_name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _is_numpy(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def _is_tensor(value: Any) -> bool:
    """Test whether a value is a dense torch tensor."""
    is_tensor = hasattr(value, "layout") and hasattr(value, "stride") and hasattr(value, "device")
    return is_tensor and str(value.layout) == "torch.strided"


def _shape(array: Any, name: str, dimensions: int, meaning: str) -> None:
    if len(array.shape) != dimensions:
        raise ValueError(f"{name}: shape {tuple(array.shape)}, but {meaning} is needed")


def _step(array: Any, axis: int) -> int:
    """Return the distance between neighbours along an axis, in elements."""
    if _is_numpy(array):
        return int(array.strides[axis] // array.itemsize)
    return int(array.stride(axis))


def _device(array: Any) -> str:
    return "cpu" if _is_numpy(array) else str(array.device.type)


def _torch() -> Any:
    import torch

    return torch
