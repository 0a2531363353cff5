"""The C library's way of copying memory, for kernels: for rows of some kilobytes twice as fast as a loop."""
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


def _in_python(target: int, source: int, count: int) -> None:
    ctypes.memmove(int(target), int(source), int(count))


def _in_kernels(typing: Any, target: Any, source: Any, count: Any) -> Any:
    def write(context: Any, builder: Any, signature: Any, words: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        to, of = (builder.inttoptr(word, pointer) for word in words[:2])
        cgutils.raw_memcpy(builder, to, of, words[2], ir.IntType(64)(1))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), write


_is_compiled = not cast("Any", config).DISABLE_JIT
copy_bytes: Callable[[Any, Any, Any], None] = cast("Any", intrinsic(_in_kernels)) if _is_compiled else _in_python
"""Copy bytes to an address from another, so many; the two places do not overlap."""
