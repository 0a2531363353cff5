"""Keys and values in float16 on a CPU: stored as uint16, since Numba has no arrays of float16, and read as float32."""

# Numba and llvmlite say little of the types of what is inside them.
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
from numba.np.arrayobj import make_array, populate_array  # what insides.py looks for
from numpy.typing import NDArray

from ..jit.aliases import Int
from ..jit.vectors import HAS

Function = TypeVar("Function", bound=Callable[..., Any])
Reals = NDArray[np.floating[Any]]
Stored = NDArray[Any]
"""Keys or values, in the type of states or as the bits of float16."""

_SHORT, _WORD, _REAL, _HALF = ir.IntType(16), ir.IntType(32), ir.FloatType(), ir.HalfType()
_LARGEST = np.float32(65504)


def widened(builder: Any, half: Any, converts: bool) -> Any:
    """Builds a float of the bits of a float16. converts: whether there is an instruction for it"""
    if converts:
        return builder.fpext(builder.bitcast(half, _HALF), _REAL)
    bits = builder.zext(half, _WORD)
    size = builder.shl(builder.and_(bits, _WORD(0x7FFF)), _WORD(13))
    # Numbers without a leading one get one, of 2^-14, which is then taken off.
    led = builder.bitcast(builder.add(size, _WORD(113 << 23)), _REAL)
    small = builder.bitcast(builder.fsub(led, _REAL(2.0**-14)), _WORD)
    found = builder.select(builder.icmp_unsigned("<", size, _WORD(1 << 23)), small, builder.add(size, _WORD(112 << 23)))
    is_finite = builder.icmp_unsigned("<", size, _WORD(31 << 23))
    found = builder.select(is_finite, found, builder.or_(size, _WORD(255 << 23)))
    sign = builder.shl(builder.and_(bits, _WORD(1 << 15)), _WORD(16))
    return builder.bitcast(builder.or_(found, sign), _REAL)


def narrowed(builder: Any, number: Any, converts: bool) -> Any:
    """Builds the bits of the float16 that is nearest to a float, even ones of two; the largest for what is beyond it.

    NaN stays NaN. converts: as `widened` has it
    """
    bits = builder.bitcast(number, _WORD)
    size = builder.and_(bits, _WORD(0x7FFFFFFF))
    is_number = builder.icmp_unsigned("<=", size, _WORD(255 << 23))
    most = _WORD(int(_LARGEST.view(np.uint32)))
    size = builder.select(builder.icmp_unsigned("<", size, most), size, most)
    if converts:
        half = builder.bitcast(builder.fptrunc(builder.bitcast(size, _REAL), _HALF), _SHORT)
    else:
        # The last bit of what is between 1/2 and 1 has the weight of the last one of the smallest float16.
        small = builder.bitcast(builder.fadd(builder.bitcast(size, _REAL), _REAL(0.5)), _WORD)
        odd = builder.and_(builder.lshr(size, _WORD(13)), _WORD(1))
        usual = builder.sub(builder.add(builder.add(size, _WORD(0xFFF)), odd), _WORD(112 << 23))
        is_small = builder.icmp_unsigned("<", size, _WORD(113 << 23))
        found = builder.select(is_small, builder.sub(small, _WORD(126 << 23)), builder.lshr(usual, _WORD(13)))
        half = builder.trunc(found, _SHORT)
    sign = builder.trunc(builder.lshr(builder.and_(bits, _WORD(1 << 31)), _WORD(16)), _SHORT)
    return builder.or_(builder.select(is_number, half, _SHORT(0x7E00)), sign)


_CONVERTS = bool(HAS.get("f16c"))


def _kept(context: Any, number: Any, stored: Any) -> Any:
    is_half = stored.dtype == types.uint16

    def build(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return narrowed(builder, arguments[0], _CONVERTS) if is_half else arguments[0]

    return types.uint16(types.float32, stored) if is_half else number(number, stored), build


def _loaded(context: Any, number: Any) -> Any:
    is_half = number == types.uint16

    def build(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return widened(builder, arguments[0], _CONVERTS) if is_half else arguments[0]

    return types.float32(number) if is_half else number(number), build


def _near_block(context: Any, block: Any, low: Any, high: Any, near: Any) -> Any:
    is_half = block.dtype == types.uint16
    kind = types.Array(types.float32, 2, "C") if is_half else block

    def build(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if not is_half:
            return impl_ret_borrowed(target, builder, kind, arguments[0])
        source, room = (make_array(signature.args[i])(target, builder, arguments[i]) for i in (0, 3))
        shape = cgutils.unpack_tuple(builder, source.shape)
        data = builder.bitcast(room.data, _REAL.as_pointer())
        first, last = (builder.mul(place, shape[1]) for place in arguments[1:3])
        with cgutils.for_range_slice(builder, first, last, first.type(1)) as (at, _):
            half = builder.load(builder.gep(source.data, [at]))
            builder.store(widened(builder, half, _CONVERTS), builder.gep(data, [at]))
        found = make_array(kind)(target, builder)
        strides = builder.mul(shape[1], shape[1].type(4)), shape[1].type(4)
        populate_array(found, data, shape, strides, shape[1].type(4), None)
        return found._getvalue()

    return kind(block, types.int64, types.int64, near), build


def _plain_kept(number: Any, stored: Stored) -> Any:
    if stored.dtype != np.uint16:
        return number
    return np.float16(np.clip(number, -_LARGEST, _LARGEST)).view(np.uint16)


def _plain_loaded(number: Any) -> Any:
    return np.float32(number.view(np.float16)) if number.dtype == np.uint16 else number


def _plain_near_block(block: Stored, low: Int, high: Int, near: Stored) -> Reals:
    return block.view(np.float16).astype(np.float32) if block.dtype == np.uint16 else block


def _compiled(plain: Function, build: Callable[..., Any]) -> Function:
    made: Any = plain if cast("Any", config).DISABLE_JIT else intrinsic(build)
    return made


# kept(number, stored): a number as it is put into `stored`.
kept: Callable[[Any, Stored], Any] = _compiled(_plain_kept, _kept)
# loaded(number): a stored number as kernels compute with it.
loaded: Callable[[Any], Any] = _compiled(_plain_loaded, _loaded)
# near_block(block, low, high, near): a block [BLOCK, size] as kernels compute with it, of one in float16 the places
# from `low` to `high`, in the room `near` of `room_near`.
near_block: Callable[[Stored, Int, Int, Stored], Reals] = _compiled(_plain_near_block, _near_block)


def room_near(stored: Sequence[Stored], threads: int = 1) -> Stored:
    """Room for each thread for a block of one head in float32, where it is in float16: [threads, 2 BLOCK size] or none.

    It has the type of these keys and values [blocks, heads, BLOCK, size], by which kernels know that.
    """
    kind = stored[0].dtype
    if kind != np.uint16:
        return np.empty((threads, 0), kind)
    return np.empty((threads, 2 * max(math.prod(each.shape[2:]) for each in stored)), kind)
