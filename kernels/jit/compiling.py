"""Numba's `njit` for these kernels: kept on disk, never stale, and not silent while it compiles.

`call` calls a compiled kernel without Numba's look at the types of its arguments. The dispatcher derives the type of
every array, and of every array in a tuple, at every call; with the chart's arrays that takes longer than most walks.
Kernels behind `call` always get arguments of the same types, so what the first call found out holds for all.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, cast, overload

import numba

from .insides import MISSING, PORTABLE

if TYPE_CHECKING or not PORTABLE:
    from . import linking
from .insides import PORTABLE

_KERNELS = Path(__file__).parents[1]
_MARKER = "trellm-kernels.sha256"


Function = TypeVar("Function", bound=Callable[..., Any])


class Decorator(Protocol):
    """`njit` with some options."""

    @overload
    def __call__(self, function: Function, /) -> Function: ...
    @overload
    def __call__(self, *, cache: bool = ..., **options: Any) -> Callable[[Function], Function]: ...


class _State:
    """The events of this process."""

    announced = False
    seconds = 0.0
    checked: ClassVar[set[Path]] = set()
    kept = True


@overload
def njit(function: Function, /) -> Function: ...
@overload
def njit(*, wide: bool = ..., kind: str = ..., cache: bool = ..., **options: Any) -> Callable[[Function], Function]: ...
def njit(function: Any = None, *, wide: bool = False, kind: str = "entry", cache: bool = True, **options: Any) -> Any:
    """A decorator, with options or without: `numba.njit`, for a kernel that Python calls.

    Where no folder can be written to, a kernel is compiled in every process; NUMBA_CACHE_DIR names another.

    wide: for kernels to which it is all the same whether an integer has 32 or 64 bits, or is a constant. Numba
    compiles a kernel for every combination of argument types that other kernels call it with, so integers are passed
    as int64. And unless they make arrays they do not count references: all arrays are those of the caller.
    """
    if function is None:
        return partial(njit, wide=wide, kind=kind, cache=cache, **options)
    cache = cache and kind != "inner"
    return _portable(function, cache, options) if PORTABLE else _linked(function, wide, kind, cache, options)


# For kernels that only other kernels call (see linking.py): `inner_njit` for one that is small, or has one caller;
# `shared_njit` for one with several callers that takes much longer than a call does.
inner_njit: Decorator = cast("Decorator", partial(njit, kind="inner"))
shared_njit: Decorator = cast("Decorator", partial(njit, kind="shared"))


def _portable(function: Any, cache: bool, options: dict[str, Any]) -> Any:
    # Files on disk are named after functions: so these are found by nobody who compiles in the other way.
    function.__qualname__ = f"portable.{function.__qualname__}"
    return _compiled(function, cache, {"nogil": True, **options})


def _linked(function: Any, wide: bool, kind: str, cache: bool, options: dict[str, Any]) -> Any:
    wrappers = {"no_cfunc_wrapper": True, "no_cpython_wrapper": kind != "entry"}
    counting = {"_nrt": not wide or _makes_arrays(function)}
    kernel = _compiled(
        function, cache, {"nogil": True, "pipeline_class": linking.Compiler, **counting, **wrappers, **options}
    )
    if kernel is function:  # NUMBA_DISABLE_JIT
        return kernel
    if wide:
        linking.make_wide(kernel)
    if kind == "inner":
        linking.make_inner(kernel)
    else:
        linking.make_shared(kernel, from_python=kind == "entry")
    return kernel


# Functions and methods that make arrays. Assigning an array to a part of another makes one as well; kernels use loops.
_MAKERS = {"arange", "array_at", "copy", "empty", "full", "searchsorted", "zeros"}


def _makes_arrays(function: Any) -> bool:
    return not _MAKERS.isdisjoint(function.__code__.co_names)


def _compiled(function: Any, cache: bool, options: dict[str, Any]) -> Any:
    try:
        kernel = numba.njit(cache=cache, **options)(function)
    except RuntimeError:  # no place for a cache
        _State.kept = False
        return numba.njit(**options)(function)
    if not cache or kernel is function:
        return kernel
    folder = getattr(getattr(kernel, "stats", None), "cache_path", None)
    if folder is None:  # nobody knows where to look for what is stale
        _State.kept = False
        return numba.njit(**options)(function)
    if Path(folder) not in _State.checked:  # each room has one
        _State.checked.add(Path(folder))
        _forget_stale(Path(folder))
    return kernel


def compile_seconds() -> float:
    """Seconds that compiling kernels has taken in this process; 0.0 with a Numba that tells nobody when it compiles."""
    return _State.seconds


def keep_quiet() -> None:
    """Say nothing when kernels are compiled in this process."""
    _State.announced = True


def _forget_stale(folder: Path) -> None:
    """Delete compiled kernels if any source has changed; Numba looks at a kernel's own file, not at what it calls."""
    digest = _digest()
    marker = folder / _MARKER
    try:
        if marker.is_file() and marker.read_text() == digest:
            return
        for file in folder.glob("*.nb[ic]"):
            file.unlink(missing_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        marker.write_text(digest)
    except OSError:
        # A folder that is only read, in an image for example: what is in it was compiled with the package.
        return


@cache
def _digest() -> str:
    """A hash of all that compiled kernels depend on."""
    sources = [path.read_bytes() for path in sorted(_KERNELS.rglob("*.py"))]
    return hashlib.sha256(b"".join(each for each in sources if b"njit" in each or b"numba" in each)).hexdigest()


def _watch() -> None:
    """Print a line when the first kernel of this package is compiled; loading one from the disk is no event.

    While Numba compiles kernels it remembers signatures.
    """
    try:
        event = import_module("numba.core.event")
    except ImportError:  # a Numba that tells nobody when it compiles
        return

    class Watch(event.Listener):
        depth = 0
        began = 0.0
        signatures = None if PORTABLE else linking.Signatures()

        def on_start(self, event: Any) -> None:
            function = event.data["dispatcher"].py_func
            is_kernel = _KERNELS in Path(function.__code__.co_filename).parents
            if is_kernel and not _State.announced:
                _announce()
            if self.depth == 0:
                self.began = time.perf_counter()
                if is_kernel and self.signatures:
                    self.signatures.begin()
            self.depth += 1

        def on_end(self, event: Any) -> None:
            self.depth -= 1
            if self.depth == 0:
                _State.seconds += time.perf_counter() - self.began
                if self.signatures:
                    self.signatures.end()

    event.register("numba:compile", Watch())


def _announce() -> None:
    _State.announced = True
    how_often = (
        "once (`trellm warmup` does it beforehand)"
        if _State.kept
        else "in every process, because no folder for them can be written to; set NUMBA_CACHE_DIR to one that can"
    )
    how_long = "some minutes in all" if PORTABLE else "about a minute in all"
    if MISSING:
        how_long += f", since numba {numba.__version__} lacks {MISSING}"
    print(f"trellm: compiling kernels {how_often}; {how_long} ...", file=sys.stderr, flush=True)


_watch()


_called: dict[Any, Callable[..., Any]] = {}


def call(kernel: Any, *arguments: Any) -> Any:
    """Call a kernel; from the second call on its compiled code directly, unless kernels are portable."""
    known = _called.get(kernel)
    if known is not None:
        return known(*arguments)
    answer = kernel(*arguments)
    overloads = [] if PORTABLE else list(getattr(kernel, "overloads", {}).values())
    if len(overloads) == 1:
        _called[kernel] = overloads[0].entry_point
    return answer
