"""Linking of compiled kernels, so that LLVM optimises and translates no kernel more often than needed.

Numba copies all callees of a kernel into it, transitively; then it optimises the whole and generates machine code. A
kernel in the middle of a call graph is translated again with each caller. Here there are two kinds instead:

- An *inner* kernel is only a part of its callers. It is copied into them and optimised with them, and has no machine
  code of its own.
- Any other kernel has machine code once. Callers refer to its symbol, as with a library of C.

A kernel from the disk must find the symbols that it refers to; LLVM ends the process if one is missing. So the file
lists these kernels (Numba's reload_init), and they are loaded first.

Before Numba loads a kernel, it prepares for compilation: it imports its implementations of Python and NumPy, and
compiles the runtime of reference counting. Cached kernels contain all of that but for some functions in C. So they are
loaded without it, and the preparation happens when a first kernel is compiled.
"""
# Numba has no complete type stubs.
# pyright: reportAttributeAccessIssue=false, reportMissingTypeStubs=false, reportOptionalMemberAccess=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import MethodType
from typing import Any, cast

import llvmlite.binding as llvm
from numba.core import types
from numba.core.caching import Cache
from numba.core.compiler import CompilerBase
from numba.core.compiler_machinery import PassManager
from numba.core.runtime import nrt
from numba.core.targetconfig import ConfigStack
from numba.core.types.functions import BaseFunction

from .insides import NEEDED, passes

_helpers: dict[str, int] = cast("Any", nrt)._nrt.c_helpers
for _name, _place in _helpers.items():  # under the names that Numba's runtime uses
    llvm.add_symbol(_name if _name.startswith("_") else f"NRT_{_name}", _place)


def make_wide(kernel: Any) -> None:
    """Have a dispatcher compile for int64 where its callers have narrower or literal integers."""
    template = kernel.get_call_template
    kernel.get_call_template = lambda args, kws: template([_widened(each) for each in args], kws)


def _widened(kind: Any) -> Any:
    plain = types.unliteral(kind)
    return types.int64 if plain in (types.int32, types.uint8) else plain


def make_inner(kernel: Any) -> None:
    """Make a dispatcher's code a part of its callers. Calls from Python run the Python function."""
    flags = kernel._compiler._customize_flags

    def without_machine_code(options: Any) -> Any:
        options = flags(options)
        options.no_compile = True
        return options

    def add_overload(self: Any, result: Any) -> None:
        result.library.finalize = MethodType(_only_link, result.library)
        # Callers look the code up by this key, in place of an address.
        result = result._replace(entry_point=object())
        self.targetctx.insert_user_function(result.entry_point, result.fndesc, [result.library])
        self.overloads[tuple(result.signature.args)] = result

    kernel._compiler._customize_flags = without_machine_code
    kernel.add_overload = MethodType(add_overload, kernel)
    _interpret(kernel)


def make_shared(kernel: Any, from_python: bool) -> None:
    """Have callers refer to a dispatcher's machine code by symbol. from_python: whether Python calls it too"""
    compile_or_load, load, add = kernel.compile, _loader_of(kernel._cache), kernel.add_overload

    def add_overload(result: Any) -> None:
        # Callers copy this module. A later process also learns from it which symbol is defined.
        result.library._shared_module = _module(result, f"define void {_quoted(result)}() {{ ret void }}")
        result.reload_init.extend(_needed_by(result.library))
        if from_python:
            add(result)
        else:
            kernel.overloads[tuple(result.signature.args)] = result

    def compile(signature: Any) -> Any:
        known = len(kernel.overloads)
        entry_point = compile_or_load(signature)
        if len(kernel.overloads) > known:
            arguments, result = list(kernel.overloads.items())[-1]
            result.library._shared_module = _module(result, "")
            result.library.needed = _Needed.of(kernel, arguments)
        return entry_point

    def load_overload(signature: Any, context: Any) -> Any:
        try:
            return load(signature, context)
        except _OutOfDateError:
            return None

    kernel.add_overload, kernel.compile, kernel._cache.load_overload = add_overload, compile, load_overload
    if not from_python:
        _interpret(kernel)


def _loader_of(cache: Any) -> Callable[[Any, Any], Any]:
    """Return `Cache.load_overload` without the preparation for compilation."""

    def load(signature: Any, context: Any) -> Any:
        with cache._guard_against_spurious_io_errors():
            return cache._load_overload(signature, context)

    return load if isinstance(cache, Cache) else cache.load_overload


class _OutOfDateError(Exception):
    """A cached kernel refers to a symbol that the cache no longer has; two processes compiled at once."""


@dataclass(frozen=True)
class _Needed:
    """A kernel that another one refers to. Called before the other one is loaded from disk."""

    module: str
    name: str
    arguments: tuple[Any, ...]
    symbol: str

    @classmethod
    def of(cls, kernel: Any, arguments: tuple[Any, ...]) -> _Needed:
        symbol = kernel.overloads[arguments].fndesc.mangled_name
        return cls(kernel.py_func.__module__, kernel.py_func.__name__, arguments, symbol)

    def __call__(self) -> None:
        kernel = getattr(import_module(self.module), self.name)
        kernel.compile(self.arguments)
        if kernel.overloads[self.arguments].fndesc.mangled_name != self.symbol:
            raise _OutOfDateError


def _needed_by(library: Any) -> set[_Needed]:
    """Return the kernels that a library refers to, directly or through inner kernels."""
    found: set[_Needed] = set()
    for other in library._linking_libraries:
        needed = getattr(other, "needed", None)
        found |= _needed_by(other) if needed is None else {needed}
    return found


def _interpret(kernel: Any) -> None:
    """Have calls from Python run the Python function."""
    function: Callable[..., Any] = kernel.py_func
    kernel._compile_for_args = lambda *arguments, **named: function


def _only_link(library: Any) -> None:
    """Finalise an inner kernel's library: link its callees in, and generate no machine code."""
    for other in dict.fromkeys(library._linking_libraries):
        library._final_module.link_in(other._get_module_for_linking(), preserve=True)
    library._finalized = True


def _module(result: Any, text: str) -> Any:
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = result.library._final_module.triple, result.library._final_module.data_layout
    return module


def _quoted(result: Any) -> str:
    return f'@"{result.fndesc.llvm_cpython_wrapper_name}"'


_PASSES = [passes()[name] for name in NEEDED]


class Compiler(CompilerBase):
    """Numba's compiler with the passes that kernels need."""

    def define_pipelines(self) -> list[PassManager]:
        manager = PassManager("kernels")
        for each in _PASSES:
            manager.add_pass(each, each.__name__)
        manager.finalize()
        return [manager]


class Signatures:
    """Memo of operator signatures by argument types, active from `begin` to `end`.

    To type `a + b` Numba tries about a dozen signatures of + in turn, at every occurrence and again at lowering.
    """

    def __init__(self) -> None:
        self._memo: dict[Any, Any] = {}
        self._find = BaseFunction.get_call_type

    def begin(self) -> None:
        """Replace Numba's look-up by the memo. Numba compiles under one global lock."""

        def find(function: Any, context: Any, args: Any, kws: Any) -> Any:
            flags = ConfigStack.top_or_none()
            if kws or flags is None:
                return self._find(function, context, args, kws)
            key = function, context, tuple(args), flags.nrt, str(flags.fastmath)
            known = self._memo.get(key)
            if known is None:
                signature = self._find(function, context, args, kws)
                self._memo[key] = signature, function._impl_keys[signature.args]
                return signature
            signature, function._impl_keys[signature.args] = known
            return signature

        BaseFunction.get_call_type = find

    def end(self) -> None:
        """Restore Numba's look-up."""
        BaseFunction.get_call_type = self._find
