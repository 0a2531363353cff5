"""KV cache in fewer bits than states, on a CPU: rounded when stored, and read as float32.

float16 is stored as uint16, since Numba has no float16 arrays. An int8 row holds the numbers of one head of a token,
padded, and then the row's scale, a float32 in the last four bytes.
"""

# Numba and llvmlite have no complete type stubs.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.core.imputils import impl_ret_borrowed
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array  # checked by insides.py
from numpy.typing import NDArray

from ..jit.aliases import Int
from ..jit.vectors import HAS

Function = TypeVar("Function", bound=Callable[..., Any])
Reals = NDArray[np.floating[Any]]
Stored = NDArray[Any]
"""Keys or values in the dtype of states, as bits of float16, or in int8 with scales."""
SCALE = 4
"""int8 elements that one float32 scale occupies."""

_BYTE, _SHORT, _WORD, _REAL, _HALF = *map(ir.IntType, (8, 16, 32)), ir.FloatType(), ir.HalfType()
_NARROW = types.uint16, types.int8
_LARGEST = np.float32(65504)
_MAX = 127.0
_PART = float(np.float32(1 / _MAX))
_LEAST = np.float32(2.0**-100)
"""Rows whose numbers are all smaller become zero: their scale would have no inverse."""


def widened(builder: Any, half: Any, converts: bool) -> Any:
    """Build the conversion of float16 bits to float32. converts: whether the processor has an instruction for it"""
    if converts:
        return builder.fpext(builder.bitcast(half, _HALF), _REAL)
    bits = builder.zext(half, _WORD)
    size = builder.shl(builder.and_(bits, _WORD(0x7FFF)), _WORD(13))
    # Subnormal numbers get a leading one of weight 2^-14, which is then subtracted.
    led = builder.bitcast(builder.add(size, _WORD(113 << 23)), _REAL)
    small = builder.bitcast(builder.fsub(led, _REAL(2.0**-14)), _WORD)
    found = builder.select(builder.icmp_unsigned("<", size, _WORD(1 << 23)), small, builder.add(size, _WORD(112 << 23)))
    is_finite = builder.icmp_unsigned("<", size, _WORD(31 << 23))
    found = builder.select(is_finite, found, builder.or_(size, _WORD(255 << 23)))
    sign = builder.shl(builder.and_(bits, _WORD(1 << 15)), _WORD(16))
    return builder.bitcast(builder.or_(found, sign), _REAL)


def narrowed(builder: Any, number: Any, converts: bool) -> Any:
    """Build the rounding of a float32 to float16 bits: to nearest, ties to even, saturating.

    NaN stays NaN. converts: see `widened`
    """
    bits = builder.bitcast(number, _WORD)
    size = builder.and_(bits, _WORD(0x7FFFFFFF))
    is_number = builder.icmp_unsigned("<=", size, _WORD(255 << 23))
    most = _WORD(int(_LARGEST.view(np.uint32)))
    size = builder.select(builder.icmp_unsigned("<", size, most), size, most)
    if converts:
        half = builder.bitcast(builder.fptrunc(builder.bitcast(size, _REAL), _HALF), _SHORT)
    else:
        # float32 from 1/2 to 1 has the spacing of subnormal float16, 2^-24, so adding 1/2 rounds to these.
        small = builder.bitcast(builder.fadd(builder.bitcast(size, _REAL), _REAL(0.5)), _WORD)
        odd = builder.and_(builder.lshr(size, _WORD(13)), _WORD(1))
        usual = builder.sub(builder.add(builder.add(size, _WORD(0xFFF)), odd), _WORD(112 << 23))
        is_small = builder.icmp_unsigned("<", size, _WORD(113 << 23))
        found = builder.select(is_small, builder.sub(small, _WORD(126 << 23)), builder.lshr(usual, _WORD(13)))
        half = builder.trunc(found, _SHORT)
    sign = builder.trunc(builder.lshr(builder.and_(bits, _WORD(1 << 31)), _WORD(16)), _SHORT)
    return builder.or_(builder.select(is_number, half, _SHORT(0x7E00)), sign)


_CONVERTS = bool(HAS.get("f16c"))


def _keep(context: Any, row: Any, numbers: Any) -> Any:
    def build(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        out, source = (make_array(signature.args[i])(target, builder, arguments[i]) for i in range(2))
        count = cgutils.unpack_tuple(builder, source.shape)[0]
        if row.dtype == types.int8:
            _round_row(builder, out.data, _place_of_scale(builder, out), source.data, count)
            return target.get_dummy_value()
        with cgutils.for_range(builder, count) as loop:
            number = builder.load(builder.gep(source.data, [loop.index]))
            converted = narrowed(builder, number, _CONVERTS) if row.dtype == types.uint16 else number
            builder.store(converted, builder.gep(out.data, [loop.index]))
        return target.get_dummy_value()

    return types.void(row, numbers), build


def _round_row(builder: Any, row: Any, place: Any, numbers: Any, count: Any) -> None:
    """Build the storing of numbers as int8 at one address, and of their scale at another."""
    top = cgutils.alloca_once_value(builder, _WORD(0))
    with cgutils.for_range(builder, count) as loop:
        bits = builder.bitcast(builder.load(builder.gep(numbers, [loop.index])), _WORD)
        size, before = builder.and_(bits, _WORD(0x7FFFFFFF)), builder.load(top)
        builder.store(builder.select(builder.icmp_unsigned(">", size, before), size, before), top)
    # Bits compare as their absolute values do, and those of NaN exceed those of infinity.
    bits = builder.load(top)
    is_large = builder.icmp_unsigned(">=", bits, _WORD(int(_LEAST.view(np.uint32))))
    is_finite = builder.icmp_unsigned("<", bits, _WORD(255 << 23))
    is_usual, most = builder.and_(is_large, is_finite), builder.bitcast(bits, _REAL)
    factor = builder.select(is_usual, builder.fdiv(_REAL(_MAX), most), _REAL(0.0))
    other = builder.select(is_finite, _REAL(0.0), _REAL(float("nan")))
    builder.store(builder.select(is_usual, builder.fmul(most, _REAL(_PART)), other), place)
    nearest = builder.module.declare_intrinsic("llvm.nearbyint", [_REAL])
    with cgutils.for_range(builder, count) as loop:
        number = builder.load(builder.gep(numbers, [loop.index]))
        rounded = builder.call(nearest, [builder.fmul(builder.select(is_usual, number, _REAL(0.0)), factor)])
        builder.store(builder.trunc(builder.fptosi(rounded, _WORD), _BYTE), builder.gep(row, [loop.index]))


def _place_of_scale(builder: Any, row: Any) -> Any:
    count = cgutils.unpack_tuple(builder, row.shape)[-1]
    return builder.bitcast(builder.gep(row.data, [builder.sub(count, count.type(SCALE))]), _REAL.as_pointer())


def _load(context: Any, numbers: Any, row: Any) -> Any:
    def build(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, out = (
            make_array(kind)(target, builder, each) for kind, each in zip(signature.args, arguments, strict=True)
        )
        count = cgutils.unpack_tuple(builder, source.shape)[0]
        _widen_row(builder, row.dtype, source.data, out.data, count, _place_of_scale(builder, out))
        return target.get_dummy_value()

    return types.void(numbers, row), build


def _widen_row(builder: Any, kind: Any, numbers: Any, row: Any, count: Any, scale: Any) -> None:
    """Build the conversion of a stored row to float32. kind: Numba's dtype of the stored numbers"""
    scale = builder.load(scale) if kind == types.int8 else None
    with cgutils.for_range(builder, count) as loop:
        found = builder.load(builder.gep(row, [loop.index]))
        if kind == types.uint16:
            found = widened(builder, found, _CONVERTS)
        if scale is not None:
            found = builder.fmul(builder.sitofp(found, _REAL), scale)
        builder.store(found, builder.gep(numbers, [loop.index]))


def _near_block(context: Any, block: Any, low: Any, high: Any, near: Any) -> Any:
    is_narrow = block.dtype in _NARROW
    kind = types.Array(types.float32, 2, "C") if is_narrow else block

    def build(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if not is_narrow:
            return impl_ret_borrowed(target, builder, kind, arguments[0])
        source, room = (make_array(signature.args[i])(target, builder, arguments[i]) for i in (0, 3))
        places, size = cgutils.unpack_tuple(builder, source.shape)
        count = builder.sub(size, size.type(SCALE)) if block.dtype == types.int8 else size
        data = builder.bitcast(room.data, _REAL.as_pointer())
        with cgutils.for_range_slice(builder, arguments[1], arguments[2], count.type(1)) as (at, _):
            row, out = (builder.gep(source.data, [builder.mul(at, size)]), builder.gep(data, [builder.mul(at, count)]))
            scale = builder.bitcast(builder.gep(row, [count]), _REAL.as_pointer())
            _widen_row(builder, block.dtype, out, row, count, scale)
        found = make_array(kind)(target, builder)
        strides = builder.mul(count, count.type(4)), count.type(4)
        populate_array(found, data, (places, count), strides, count.type(4), None)
        return found._getvalue()

    return kind(block, types.int64, types.int64, near), build


def _plain_keep(row: Stored, numbers: Reals) -> None:
    if row.dtype == np.uint16:
        row[:] = np.clip(numbers, -_LARGEST, _LARGEST).astype(np.float16).view(np.uint16)
    elif row.dtype == np.int8:
        most = np.abs(numbers).max()
        is_usual = _LEAST <= most < np.inf
        row[: numbers.size] = np.rint(numbers * (np.float32(_MAX) / most)) if is_usual else 0
        other = 0 if most < _LEAST else np.nan
        row[-SCALE:].view(np.float32)[0] = most * np.float32(_PART) if is_usual else other
    else:
        row[:] = numbers


def _plain_load(numbers: Reals, row: Stored) -> None:
    numbers[:] = widened_rows(row)[: numbers.size]


def _plain_near_block(block: Stored, low: Int, high: Int, near: Stored) -> Reals:
    return widened_rows(block)


def widened_rows(rows: Stored) -> Reals:
    """Return stored rows [..., n] in the dtype that kernels compute in, by NumPy."""
    if rows.dtype == np.uint16:
        return rows.view(np.float16).astype(np.float32)
    if rows.dtype == np.int8:
        return rows[..., :-SCALE] * np.ascontiguousarray(rows[..., -SCALE:]).view(np.float32)
    return rows


def row_length(size: int, kind: Any) -> int:
    """Return the length of a stored row, in elements of a dtype, for `size` numbers of a head."""
    return -(-size // SCALE) * SCALE + SCALE if kind == np.int8 else size


def _compiled(plain: Function, build: Callable[..., Any]) -> Function:
    kernel: Any = plain if cast("Any", config).DISABLE_JIT else intrinsic(build)
    return kernel


# keep(row, numbers): store numbers [size] of a head in a row of `row_length`. In int8 they become multiples of the
# scale, rounded to nearest, ties to even; if one is infinite or NaN, the scale is NaN, and with it all numbers.
keep: Callable[[Stored, Reals], None] = _compiled(_plain_keep, _keep)
# load(numbers, row): read such a row in the dtype that kernels compute in.
load: Callable[[Reals, Stored], None] = _compiled(_plain_load, _load)
# near_block(block, low, high, near): a view of a block [BLOCK, row length] in the dtype that kernels compute in. A
# narrow block is converted from place `low` to `high`, into the buffer `near` from `room_near`.
near_block: Callable[[Stored, Int, Int, Stored], Reals] = _compiled(_plain_near_block, _near_block)


def room_near(stored: Sequence[Stored], threads: int = 1) -> Stored:
    """Return a buffer for one head's block in float32 for each thread: [threads, elements]; empty where none is needed.

    Its dtype is that of the keys and values [blocks, heads, BLOCK, row length]; kernels are compiled by it.
    """
    kind = stored[0].dtype
    if kind != np.uint16 and kind != np.int8:
        return np.empty((threads, 0), kind)
    return np.empty((threads, 4 // kind.itemsize * max(math.prod(each.shape[2:]) for each in stored)), kind)
