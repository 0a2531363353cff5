"""Arrays of a kernel's by addresses that it is handed as numbers: of as many layers as a model has, in one argument."""

# Numba says little of the types of what it takes.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeStubs=false

from __future__ import annotations

import ctypes
import math
from typing import Any, cast

import numba
import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

from .aliases import Int

Shape = tuple[Int, ...]
_array: Any = cast("Any", numba).carray


def array_at(address: Int, shape: Shape, like: NDArray[Any]) -> NDArray[Any]:
    """The array at an address: in C's order, of this shape, and of the type of `like`.

    Whoever hands the address on keeps what lies there. An array of nothing may lie anywhere.
    """
    if math.prod(shape) == 0:
        return np.empty(shape, like.dtype)
    return _array(ctypes.c_void_p(int(address)), shape, like.dtype)


def _typed(context: Any, address: Any) -> Any:
    """An address as Numba's own functions take it."""

    def build(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), build


_pointer: Any = intrinsic(_typed)


@overload(array_at)
def _compiled(address: Any, shape: Any, like: Any) -> Any:
    def made(address: Any, shape: Any, like: Any) -> Any:
        return _array(_pointer(address), shape, like.dtype)

    return made
