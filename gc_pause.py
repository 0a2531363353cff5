"""Keeps Python's cyclic garbage collector out of what makes many objects that stay.

Growing a constraint, which should take microseconds, sets off full collections, each of which takes as long as a
thousand masks; and of the time that importing torch and transformers takes they are a fifth. While a function runs that
is `paused` they are put off. Threads may overlap: the last one that found the collector running starts it again. Ctrl-C
comes after a call, not before one: so the collector is stopped inside the `try` that starts it again.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def paused(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """The function, without collections while it runs."""

    @wraps(function)
    def run(*arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
        was_running = gc.isenabled()
        try:
            gc.disable()
            return function(*arguments, **named)
        finally:
            if was_running:
                gc.enable()

    return run
