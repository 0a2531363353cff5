"""Raises an exception at the Nth place where Python may do so inside trellm: an interrupt, or memory that is refused.

A signal's handler runs where the interpreter looks for it: when a function of Python is entered, after a call of one
that is not in Python, and at the end of a loop's body. An exception raised anywhere else, as at each line, would show
what cannot happen: between a lock's release and the end of its `with`, say.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from inspect import CO_GENERATOR
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

import numpy as np

GROWING = ("empty", "zeros", "full", "concatenate", "empty_like", "zeros_like", "stack", "append")
"""Functions of NumPy that ask for memory."""
CALLS = {"CALL", "CALL_KW", "CALL_FUNCTION_EX"}
_ROOT = str(Path(__file__).resolve().parents[2])


class Interrupter:
    """Counts places inside a `with` block, and raises at one of them.

    at: which place; None only counts. kind: what is raised. arrays: whether places are those where memory is asked for.
    """

    def __init__(self, at: int | None, kind: type[BaseException], arrays: bool = False) -> None:
        self.count = 0
        self.where = ""
        self._at = at
        self._kind = kind
        self._arrays = arrays
        self._called: set[int] = set()  # frames whose call at work entered a function of Python

    def __enter__(self) -> Interrupter:
        if self._arrays:
            self._patched = _patched(self._growing)
            self._patched.__enter__()
        else:
            sys.settrace(self._enter)
        return self

    def __exit__(self, *exception: object) -> None:
        sys.settrace(None)
        if self._arrays:
            self._patched.__exit__(None, None, None)

    def _place(self, frame: FrameType) -> None:
        self.count += 1
        if self.count - 1 == self._at:
            sys.settrace(None)
            self.where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} in {frame.f_code.co_qualname}"
            raise self._kind

    def _growing(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self._place(sys._getframe(1))
            return function(*arguments, **named)

        return call

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_back is not None:
            self._called.add(id(frame.f_back))
        if not _is_ours(frame.f_code):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if not frame.f_code.co_flags & CO_GENERATOR:  # which is also entered to be closed, where nobody looks
            self._place(frame)
        return self._step

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode":
            after_call = _places(frame.f_code).get(frame.f_lasti)
            if after_call is not None:
                entered = id(frame) in self._called
                self._called.discard(id(frame))
                if not (after_call and entered):
                    self._place(frame)
        return self._step


@cache
def _is_ours(code: CodeType) -> bool:
    name = code.co_filename
    if code.co_name == "__del__" or not name.endswith(".py"):
        return False
    return str(Path(name).resolve()).startswith(_ROOT) and "benchmarks" not in name


@cache
def _places(code: CodeType) -> dict[int, bool]:
    """Offsets of instructions before which a signal is looked for, and whether a call is before them."""
    found: dict[int, bool] = {}
    before = None
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("JUMP_BACKWARD", "POP_JUMP_BACKWARD_IF_TRUE", "POP_JUMP_BACKWARD_IF_FALSE"):
            found[instruction.offset] = False
        elif before is not None and before.opname in CALLS and _same_handler(code, before.offset, instruction.offset):
            found[instruction.offset] = True
        before = instruction
    return found


@cache
def _handlers(code: CodeType) -> list[tuple[int, int, int]]:
    parse: Any = dis._parse_exception_table  # type: ignore[attr-defined]
    return [(entry.start, entry.end, entry.target) for entry in parse(code)]


def _same_handler(code: CodeType, *offsets: int) -> bool:
    """Whether the same is around instructions: what is raised after a call is caught by what is around the call."""
    found = [next((target for start, end, target in _handlers(code) if start <= at < end), -1) for at in offsets]
    return len(set(found)) == 1


@contextmanager
def _patched(wrapped: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Generator[None]:
    """NumPy as trellm's modules know it, with other functions for what grows; kernels keep the real one."""
    other = ModuleType("numpy")
    other.__dict__.update(vars(np))
    other.__getattr__ = lambda name: getattr(np, name)  # type: ignore[method-assign]
    for name in GROWING:
        setattr(other, name, wrapped(getattr(np, name)))
    modules = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("trellm.") and not name.startswith("trellm.kernels") and getattr(module, "np", None) is np
    ]
    for module in modules:
        module.np = other  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module in modules:
            module.np = np  # type: ignore[attr-defined]
