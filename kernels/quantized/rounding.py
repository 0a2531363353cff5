"""Rounding of states to int8 with a scale for 32 of them, in vectors."""

# llvmlite has no type stubs.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportMissingTypeStubs=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .formats import BYTE, GROUP, LONG, REAL, WORD, Registers

_REALS, _WORDS = ir.VectorType(REAL, GROUP), ir.VectorType(WORD, GROUP)
_MAX = 127.0
_LEAST = 2.0**-100
"""Groups whose states are all smaller become zero: their scale would have no inverse."""
_WHOLE = 1.5 * 2.0**23
"""float32 of this size have no fractional bits: adding it rounds to nearest, ties to even."""


def _round_at(context: Any, numbers: Any, scales: Any, totals: Any, states: Any, groups: Any) -> Any:
    def build(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        registers = Registers(builder, {})
        *places, groups = arguments
        numbers, scales, totals, states = (builder.inttoptr(each, BYTE.as_pointer()) for each in places)
        with cgutils.for_range(builder, groups) as loop:
            group = builder.mul(loop.index, LONG(4))
            found = registers.load(states, _REALS, builder.mul(group, LONG(GROUP)))
            rounded, scale = _rounded(registers, found)
            registers.store(builder.trunc(rounded, ir.VectorType(BYTE, GROUP)), numbers, builder.mul(group, LONG(8)))
            registers.store(scale, scales, group)
            for half in range(2):
                sixteen = registers.chosen(rounded, range(16 * half, 16 * half + 16))
                total = builder.sitofp(registers.call("llvm.vector.reduce.add.v16i32", WORD, sixteen), REAL)
                at = builder.add(builder.mul(group, LONG(2)), LONG(4 * half))
                registers.store(builder.fmul(scale, total), totals, at)
        return target.get_dummy_value()

    return types.void(*[types.int64] * 5), build


def _rounded(registers: Registers, states: Any) -> tuple[Any, Any]:
    """Return 32 states as int32 from -127 to 127, and their scale."""
    builder = registers.builder
    bits = builder.bitcast(states, _WORDS)
    sizes = builder.and_(bits, registers.several(bits, 0x7FFFFFFF))
    # Bits compare as their absolute values do, and those of NaN exceed those of infinity.
    most = builder.bitcast(registers.call("llvm.vector.reduce.umax.v32i32", WORD, sizes), REAL)
    is_large, is_finite = (
        builder.fcmp_ordered(sign, most, REAL(bound)) for sign, bound in ((">=", _LEAST), ("<", float("inf")))
    )
    is_small = builder.fcmp_ordered("<", most, REAL(_LEAST))
    is_usual = builder.and_(is_large, is_finite)
    factor = registers.spread(builder.fdiv(REAL(_MAX), most), _REALS)
    moved = builder.fadd(builder.fmul(states, factor), ir.Constant(_REALS, [_WHOLE] * GROUP))
    none = ir.Constant(_REALS, [0.0] * GROUP)
    rounded = builder.select(is_usual, builder.fsub(moved, ir.Constant(_REALS, [_WHOLE] * GROUP)), none)
    other = builder.select(is_small, REAL(0.0), REAL(float("nan")))
    return builder.fptosi(rounded, _WORDS), builder.select(is_usual, builder.fdiv(most, REAL(_MAX)), other)


# round_at(numbers, scales, totals, states, groups): round float32 [groups, 32] at address `states` to int8 of the
# same shape, with scales float32 [groups] and totals float32 [groups, 2], see `round_row`. All arrays by address.
round_at: Callable[..., None] = cast("Any", intrinsic(_round_at))
