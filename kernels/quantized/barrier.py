"""A barrier for the threads of a step, which all run the same kernel and meet between its products."""

# llvmlite has no type stubs.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportMissingTypeStubs=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..jit.aliases import Int

_LONG, _NOTHING = ir.IntType(64), ir.VoidType()
_SPINS = 4096
"""Polls before a thread yields its core."""
GIVEN_UP = 1 << 62
"""Value of the counter after a thread has failed: nobody waits any more."""


def _meet(context: Any, counter: Any, target: Any) -> Any:

    def build(target_context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], _LONG.as_pointer())
        builder.atomic_rmw("add", place, _LONG(1), "acq_rel")
        before = builder.block
        look, wait, rest, done = (builder.append_basic_block(name) for name in ("look", "wait", "rest", "done"))
        builder.branch(look)
        builder.position_at_end(look)
        spins = builder.phi(_LONG)
        spins.add_incoming(_LONG(0), before)
        seen = builder.load_atomic(place, "acquire", 8)
        builder.cbranch(builder.icmp_signed(">=", seen, arguments[1]), done, wait)
        builder.position_at_end(wait)
        _pause(builder)
        more = builder.add(spins, _LONG(1))
        spins.add_incoming(more, wait)
        builder.cbranch(builder.icmp_signed("<", more, _LONG(_SPINS)), look, rest)
        builder.position_at_end(rest)
        _let_others(builder)
        spins.add_incoming(_LONG(0), rest)
        builder.branch(look)
        builder.position_at_end(done)
        return target_context.get_dummy_value()

    return types.void(types.int64, types.int64), build


# meet(counter, target): add 1 to the counter, an int64 at an address, and wait until it is at least `target`. The
# counter begins at 0 and is not reset between meetings, so targets grow.
meet: Callable[[Int, Int], None] = cast("Any", intrinsic(_meet))


def _pause(builder: Any) -> None:
    """Emit the processor's hint for spin loops, where LLVM has one."""
    name = {"x86_64": "llvm.x86.sse2.pause", "AMD64": "llvm.x86.sse2.pause"}.get(platform.machine())
    if name is not None:
        _call(builder, name, _NOTHING)


def _let_others(builder: Any) -> None:
    if os.name == "posix":
        _call(builder, "sched_yield", ir.IntType(32))


def _call(builder: Any, name: str, returned: Any) -> None:
    function = builder.module.globals.get(name)
    builder.call(function or ir.Function(builder.module, ir.FunctionType(returned, []), name), [])
