"""Linking of compiled kernels, so that no kernel is optimised and translated more often than needed.

Numba copies everything that a kernel calls into it, and what that calls as well; then it optimises the whole and
makes machine code of it. A kernel in the middle of many is translated with each of them again. Here there are two
kinds instead:

- An *inner* kernel is a part of its callers, and nothing but that: it is copied into them, so that they are optimised
  together, and has no machine code of its own.
- Any other has machine code, once. Callers refer to it by its symbol, as in a library of C.

What Numba loads from the disk has to find the symbols it refers to, because LLVM ends the process where one is missing.
So it is kept with a list of those kernels (Numba calls that reload_init), and is loaded after them.

Before Numba loads anything it makes ready what compiling needs: it imports what it knows of Python and NumPy, and
compiles the counting of references. Kernels on the disk have that in them, but for some functions in C; so they are
loaded without it, and it is made ready when a first kernel is compiled.
"""
# Numba says little of the types of what is inside it.
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
for _name, _place in _helpers.items():  # as Numba's runtime itself calls them
    llvm.add_symbol(_name if _name.startswith("_") else f"NRT_{_name}", _place)


def make_wide(kernel: Any) -> None:
    """Have a dispatcher compiled for integers of 64 bits, whatever its callers have or know of them."""
    template = kernel.get_call_template
    kernel.get_call_template = lambda args, kws: template([_widened(each) for each in args], kws)


def _widened(kind: Any) -> Any:
    plain = types.unliteral(kind)
    return types.int64 if plain in (types.int32, types.uint8) else plain


def make_inner(kernel: Any) -> None:
    """Make a dispatcher's compiled code a part of its callers. From Python the function is called as it was written."""
    flags = kernel._compiler._customize_flags

    def without_machine_code(made: Any) -> Any:
        made = flags(made)
        made.no_compile = True
        return made

    def add_overload(self: Any, result: Any) -> None:
        result.library.finalize = MethodType(_only_link, result.library)
        # Other kernels find its code by what would be its address.
        result = result._replace(entry_point=object())
        self.targetctx.insert_user_function(result.entry_point, result.fndesc, [result.library])
        self.overloads[tuple(result.signature.args)] = result

    kernel._compiler._customize_flags = without_machine_code
    kernel.add_overload = MethodType(add_overload, kernel)
    _interpret(kernel)


def make_shared(kernel: Any, from_python: bool) -> None:
    """Have a dispatcher's compiled code referred to by its callers. It may be called from Python `from_python`."""
    compile_or_load, load, add = kernel.compile, _loader_of(kernel._cache), kernel.add_overload

    def add_overload(result: Any) -> None:
        # What Numba keeps on disk to copy into callers. It is also where a later process learns what is defined.
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
    """`Cache.load_overload` without making ready what compiling needs."""

    def load(signature: Any, context: Any) -> Any:
        with cache._guard_against_spurious_io_errors():
            return cache._load_overload(signature, context)

    return load if isinstance(cache, Cache) else cache.load_overload


class _OutOfDateError(Exception):
    """A kernel on the disk refers to one that is not the one on the disk; two processes compiled at once."""


@dataclass(frozen=True)
class _Needed:
    """A kernel that others refer to; called before one of these is loaded from the disk."""

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
    """The kernels that a library refers to, itself or in what is copied into it."""
    found: set[_Needed] = set()
    for other in library._linking_libraries:
        needed = getattr(other, "needed", None)
        found |= _needed_by(other) if needed is None else {needed}
    return found


def _interpret(kernel: Any) -> None:
    """Have calls from Python run the function itself."""
    function: Callable[..., Any] = kernel.py_func
    kernel._compile_for_args = lambda *arguments, **named: function


def _only_link(library: Any) -> None:
    """`CodeLibrary.finalize` of an inner kernel: put together what it calls, and leave the rest to its callers."""
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
