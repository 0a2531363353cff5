"""The C library's copying and clearing of memory, for kernels: for rows of some kilobytes twice as fast as a loop."""
# Numba says little of the types of what is inside it.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic


def _copy_in_python(target: int, source: int, count: int) -> None:
    ctypes.memmove(int(target), int(source), int(count))


def _clear_in_python(target: int, count: int) -> None:
    ctypes.memset(int(target), 0, int(count))


def _copy_in_kernels(typing: Any, target: Any, source: Any, count: Any) -> Any:
    def write(context: Any, builder: Any, signature: Any, words: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        to, of = (builder.inttoptr(word, pointer) for word in words[:2])
        cgutils.raw_memcpy(builder, to, of, words[2], ir.IntType(64)(1))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), write


def _clear_in_kernels(typing: Any, target: Any, count: Any) -> Any:
    def write(context: Any, builder: Any, signature: Any, words: Any) -> Any:
        cgutils.memset(builder, builder.inttoptr(words[0], ir.IntType(8).as_pointer()), words[1], 0)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), write


_is_compiled = not cast("Any", config).DISABLE_JIT
copy_bytes: Callable[[Any, Any, Any], None] = (
    cast("Any", intrinsic(_copy_in_kernels)) if _is_compiled else _copy_in_python
)
"""Copy bytes to an address from another, so many; the two places do not overlap."""
clear_bytes: Callable[[Any, Any], None] = (
    cast("Any", intrinsic(_clear_in_kernels)) if _is_compiled else _clear_in_python
)
"""Set bytes from an address on to 0, so many."""
