"""Keys and values in float16 and int8: each as NumPy rounds it, and what is put into blocks."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
import pytest
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray
from trellm.kernels.attention.paged import AttentionRows, attend_blocks, write_blocks
from trellm.kernels.attention.stored import narrowed, room_near, row_length, widened, widened_rows

Bits = NDArray[np.uint16]
ALL: Bits = np.arange(1 << 16, dtype=np.uint16)
LARGEST = 65504.0
HOST: Any = llvm.get_host_cpu_features()
BOTH = pytest.mark.parametrize("converts", [False, True], ids=["by bits", "by instruction"])


def conversions(converts: bool) -> tuple[Callable[..., None], Callable[..., None]]:
    """Loops that fill `out`: floats from bits, and bits from floats."""
    if numba.config.DISABLE_JIT:
        pytest.skip("these are nothing but what is compiled")
    if converts and not HOST.get("f16c"):
        pytest.skip("the processor has no instruction for it")

    def widen(context: Any, bits: Any) -> Any:
        return types.float32(types.uint16), lambda target, builder, kinds, given: widened(builder, given[0], converts)

    def narrow(context: Any, number: Any) -> Any:
        return types.uint16(types.float32), lambda target, builder, kinds, given: narrowed(builder, given[0], converts)

    def loop(one: Any) -> Any:
        @numba.njit(fastmath={"contract", "reassoc", "nsz", "arcp"}, error_model="numpy")
        def fill(out: Any, numbers: Any) -> None:
            for i in range(out.size):
                out[i] = one(numbers[i])

        return fill

    return loop(intrinsic(widen)), loop(intrinsic(narrow))


def rounded(numbers: NDArray[np.float32]) -> Bits:
    """As NumPy rounds them, the largest in place of what is beyond it."""
    return np.clip(numbers, -LARGEST, LARGEST).astype(np.float16).view(np.uint16)


def same(found: Bits, expected: Bits) -> bool:
    """Whether numbers are the same, their signs too, and NaN is where it should be."""
    are_nan = np.isnan(found.view(np.float16)), np.isnan(expected.view(np.float16))
    return bool(np.array_equal(*are_nan) and np.array_equal(found[~are_nan[0]], expected[~are_nan[1]]))


def hard() -> NDArray[np.float32]:
    """Any bits, every float16, what lies in the middle of two of them, and what lies beside that."""
    random = np.random.default_rng(0).integers(0, 1 << 32, 1 << 20, np.uint32).view(np.float32)
    halves = np.sort(ALL.view(np.float16)[np.isfinite(ALL.view(np.float16))].astype(np.float32))
    middles = (halves[1:] + halves[:-1]) / np.float32(2)  # exact
    beside = [np.nextafter(middles, np.float32(end)) for end in (-np.inf, np.inf)]
    ends = np.array([65503, 65504, 65519.996, 65520, 1e9, 3e38, np.inf, np.nan, 0, 1e-8, 1e-45], np.float32)
    return np.concatenate([random, halves, middles, *beside, ends, -ends])


@BOTH
def test_every_half_is_read_as_numpy_reads_it(converts: bool) -> None:
    widen, narrow = conversions(converts)
    found, again = np.empty(len(ALL), np.float32), np.empty_like(ALL)
    widen(found, ALL)
    expected = ALL.view(np.float16).astype(np.float32)
    is_nan = np.isnan(expected)
    assert np.array_equal(np.isnan(found), is_nan)
    assert np.array_equal(found.view(np.uint32)[~is_nan], expected.view(np.uint32)[~is_nan])
    narrow(again, found)
    assert same(again, rounded(expected))


@BOTH
def test_floats_are_rounded_to_the_nearest_and_ties_to_even(converts: bool) -> None:
    _, narrow = conversions(converts)
    numbers = hard()
    found = np.empty(len(numbers), np.uint16)
    narrow(found, numbers)
    assert same(found, rounded(numbers))
    assert not np.isinf(found.view(np.float16)).any()


@pytest.mark.parametrize("size", [1, 20, 32, 64, 80, 128])
def test_blocks_have_what_was_written_rounded(size: int) -> None:
    numbers = hard()[-35 * 2 * size :].reshape(35, 2, size)
    stored = np.zeros((3, 2, 16, size), np.uint16)
    slots = np.random.default_rng(0).permutation(48)[:35].astype(np.int32)
    write_blocks(stored, numbers, slots)
    found = stored.transpose(0, 2, 1, 3).reshape(48, 2, size)[slots]
    assert same(found.ravel(), rounded(numbers.ravel()))


@pytest.mark.parametrize("size", [20, 32, 64, 80, 128])
def test_the_smallest_and_the_largest_are_attended_to(size: int) -> None:
    """One token alone is what it gets: its value as it is kept, zeros with their signs among them."""
    value = np.resize(np.array([0.0, -0.0, 6e-8, -6e-5, 6.2e-5, LARGEST, -1e30, 1.0], np.float32), (1, 1, size))
    keys, values = np.zeros((2, 1, 1, 16, size), np.uint16)
    write_blocks(values, value, np.zeros(1, np.int32))
    zero, one = np.zeros(1, np.int32), np.ones(1, np.int32)
    out, none = np.empty((1, 1, size), np.float32), np.empty(0, np.float32)
    rows, (near,) = AttentionRows(zero, zero, zero, one, zero), room_near([keys, values])
    settings, scratch = np.array([1, 0], np.float32), np.empty((1, 1), np.float32)
    attend_blocks(out, value, keys, values, rows, 0, 1, 0, 0, none, settings, scratch, near)
    assert np.array_equal(out.ravel(), rounded(value.ravel()).view(np.float16).astype(np.float32))


def in_bytes(numbers: NDArray[np.float32]) -> NDArray[np.int8]:
    """Rows in int8 with their scales, in NumPy."""
    most = np.abs(numbers).max(-1, keepdims=True)
    is_usual = (most >= 2.0**-100) & (most < np.inf)
    with np.errstate(all="ignore"):
        whole = np.where(is_usual, np.rint(numbers * (np.float32(127) / most)), 0).astype(np.int8)
    scales = np.where(is_usual, most * np.float32(1 / 127), np.where(most < 1, 0, np.nan)).astype(np.float32)
    filled = np.zeros((*whole.shape[:-1], -(-whole.shape[-1] // 4) * 4), np.int8)
    filled[..., : whole.shape[-1]] = whole
    return np.concatenate([filled, scales.view(np.int8)], -1)


@pytest.mark.parametrize("size", [1, 20, 30, 64, 80, 128])
def test_rows_of_int8_are_the_nearest_multiples_of_their_scale(size: int) -> None:
    random = np.random.default_rng(size)
    numbers = random.standard_normal((35, 2, size)).astype(np.float32)
    numbers[:20] *= (10.0 ** random.integers(-37, 38, (20, 2, 1))).astype(np.float32)
    numbers[20:24] = random.integers(-127, 128, (4, 2, size)) / np.float32(2)  # ties, where 63.5 is the largest
    numbers[20:24, :, -1] = 63.5
    for row, strange in enumerate((np.nan, np.inf, -np.inf, 3e-40, -0.0)):
        numbers[24 + row] = 1e-39
        numbers[24 + row, :, size // 2] = strange
    stored = np.zeros((3, 2, 16, row_length(size, np.int8)), np.int8)
    slots = random.permutation(48)[:35].astype(np.int32)
    write_blocks(stored, numbers, slots)
    found = stored.transpose(0, 2, 1, 3).reshape(48, 2, -1)[slots]
    expected = in_bytes(numbers)
    are_nan = np.isnan(np.ascontiguousarray(expected[..., -4:]).view(np.float32))
    assert np.array_equal(found[..., :-4], expected[..., :-4])
    assert np.array_equal(found[~are_nan[..., 0]], expected[~are_nan[..., 0]])
    read = widened_rows(found)[..., :size]
    assert np.array_equal(np.isnan(read), np.broadcast_to(are_nan, read.shape))
    usual = ~are_nan & np.isfinite(numbers)
    step = np.abs(numbers).max(-1, keepdims=True) / 127
    assert (np.abs(read - numbers) <= 0.50001 * step + 2.0**-100)[usual].all()


def test_room_is_for_narrow_numbers_alone() -> None:
    keys, values = np.zeros((2, 3, 16, 20), np.uint16), np.zeros((2, 3, 16, 32), np.uint16)
    assert room_near([keys, values], 3).shape == (3, 2 * 16 * 32)
    assert room_near([keys.astype(np.int8), values.astype(np.int8)], 3).shape == (3, 4 * 16 * 32)
    assert room_near([keys.astype(np.float32)]).shape == (1, 0)
