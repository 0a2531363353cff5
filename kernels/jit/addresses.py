"""Memory by address in kernels: the arrays of all layers of a model as one argument, and fast copies.

memcpy and memset of rows of some kilobytes are twice as fast as a loop.
"""
# Numba has no complete type stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownParameterType=false, reportUnknownVariableType=false

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any, cast

import numba
import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

from .aliases import Int

Shape = tuple[Int, ...]
_array: Any = cast("Any", numba).carray


def array_at(address: Int, shape: Shape, like: NDArray[Any]) -> NDArray[Any]:
    """Return a view of the memory at an address: C-contiguous, with a shape, and the dtype of `like`.

    The caller keeps the memory alive. The address of an empty array does not matter.
    """
    if math.prod(shape) == 0:
        return np.empty(shape, like.dtype)
    return _array(ctypes.c_void_p(int(address)), shape, like.dtype)


def _typed(context: Any, address: Any) -> Any:
    """Cast an integer to the pointer type that Numba's `carray` takes."""

    def build(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), build


_pointer: Any = intrinsic(_typed)


@overload(array_at)
def _compiled(address: Any, shape: Any, like: Any) -> Any:
    def view(address: Any, shape: Any, like: Any) -> Any:
        return _array(_pointer(address), shape, like.dtype)

    return view


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
"""Copy `count` bytes from the address `source` to `target`. The ranges do not overlap."""
clear_bytes: Callable[[Any, Any], None] = (
    cast("Any", intrinsic(_clear_in_kernels)) if _is_compiled else _clear_in_python
)
"""Set `count` bytes from the address `target` on to 0."""
