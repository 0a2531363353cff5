"""Calls of compiled kernels without Numba's look at the types of their arguments.

The dispatcher derives the type of every array, and of every array in a tuple, at every call; with the
chart's arrays that takes longer than most walks. The kernels behind `call` are always called with arguments
of the same types, so what the first call found out holds for all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .insides import PORTABLE

_compiled: dict[Any, Callable[..., Any]] = {}


def call(kernel: Any, *arguments: Any) -> Any:
    """Call a kernel; from the second call on its compiled code directly, unless kernels are portable."""
    known = _compiled.get(kernel)
    if known is not None:
        return known(*arguments)
    answer = kernel(*arguments)
    overloads = [] if PORTABLE else list(getattr(kernel, "overloads", {}).values())
    if len(overloads) == 1:
        _compiled[kernel] = overloads[0].entry_point
    return answer
