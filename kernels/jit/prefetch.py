"""Having memory brought near that will be read soon, where the hardware cannot foresee it."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportMissingTypeStubs=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic
from numba.np.arrayobj import make_array  # what insides.py looks for

from .compiling import inner_njit
from .insides import PORTABLE

LINE = 64
"""Bytes that are brought at once."""


def _hint(context: Any, table: Any, row: Any, column: Any) -> Any:
    def build(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        array = make_array(kind)(target, builder, arguments[0])
        place = cgutils.get_item_pointer(target, builder, kind, array, list(arguments[1:]), wraparound=False)
        address = builder.bitcast(place, ir.IntType(8).as_pointer())
        flag = ir.IntType(32)
        kinds = ir.FunctionType(ir.VoidType(), [address.type, flag, flag, flag])
        hint = builder.module.declare_intrinsic("llvm.prefetch", [address.type], kinds)
        builder.call(hint, [address, flag(0), flag(3), flag(1)])  # to read, into all caches, data
        return target.get_dummy_value()

    return types.void(table, row, column), build


def _nothing(table: Any, row: Any, column: Any) -> None:
    """Without the hint."""


# prefetch(table, row, column): have that number brought near, and those on its line. A hint, which changes nothing.
prefetch: Callable[[Any, Any, Any], None] = (
    inner_njit(_nothing) if PORTABLE or cast("Any", config).DISABLE_JIT else cast("Any", intrinsic(_hint))
)
