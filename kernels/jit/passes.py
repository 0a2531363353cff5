"""Numba's passes over a kernel before LLVM: only what these kernels need, and nothing that it has done before."""
# Numba says little of the types of what is inside it.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

from __future__ import annotations

from typing import Any

from numba.core.compiler import CompilerBase
from numba.core.compiler_machinery import PassManager
from numba.core.targetconfig import ConfigStack
from numba.core.types.functions import BaseFunction

from .insides import NEEDED, passes

_PASSES = [passes()[name] for name in NEEDED]


class Compiler(CompilerBase):
    """Numba's compiler for kernels."""

    def define_pipelines(self) -> list[PassManager]:
        manager = PassManager("kernels")
        for each in _PASSES:
            manager.add_pass(each, each.__name__)
        manager.finalize()
        return [manager]


class Signatures:
    """Remembers what operators give for what types, from `begin` to `end`.

    To find the type of `a + b` Numba tries the meanings of + one by one, a dozen of them, each time it comes to a +
    and once more when it makes code of it.
    """

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}
        self._find = BaseFunction.get_call_type

    def begin(self) -> None:
        """Answer from memory where possible; all compiling is under one lock of Numba's."""

        def find(function: Any, context: Any, args: Any, kws: Any) -> Any:
            flags = ConfigStack.top_or_none()
            if kws or flags is None:
                return self._find(function, context, args, kws)
            key = function, context, tuple(args), flags.nrt, str(flags.fastmath)
            known = self._known.get(key)
            if known is None:
                signature = self._find(function, context, args, kws)
                self._known[key] = signature, function._impl_keys[signature.args]
                return signature
            signature, function._impl_keys[signature.args] = known
            return signature

        BaseFunction.get_call_type = find

    def end(self) -> None:
        """Leave Numba as it was."""
        BaseFunction.get_call_type = self._find
