"""Keeps Python's cyclic garbage collector out of what should take microseconds.

Growing a constraint makes many objects that stay; that sets off full collections, each of which takes as long as
a thousand masks. Between `pause` and `resume` they are put off. Threads may overlap: the last one that found the
collector running starts it again. Neither call makes an object, which by itself could set off a collection.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def pause() -> bool:
    """Stop collections; what to give to `resume`."""
    was_running = gc.isenabled()
    gc.disable()
    return was_running


def resume(was_running: bool) -> None:
    """Let collections go on if they did before."""
    if was_running:
        gc.enable()


def paused(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """The function, without collections while it runs."""

    @wraps(function)
    def run(*arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
        was_running = pause()
        try:
            return function(*arguments, **named)
        finally:
            resume(was_running)

    return run
