"""Numba's `njit` for kernels: with a cache on disk that is never stale, and a message at the first compilation.

`call` calls a compiled kernel without Numba's type dispatch. The dispatcher derives the type of every array, also in
tuples, at every call; for the arrays of a chart this takes longer than most walks. Kernels called by `call` always
get the same argument types, so the overload of the first call serves all later ones.
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

_KERNELS = Path(__file__).parents[1]
_MARKER = "trellm-kernels.sha256"


Function = TypeVar("Function", bound=Callable[..., Any])


class Decorator(Protocol):
    """`njit` with some options preset."""

    @overload
    def __call__(self, function: Function, /) -> Function: ...
    @overload
    def __call__(self, *, cache: bool = ..., **options: Any) -> Callable[[Function], Function]: ...


class _State:
    """Compilation events and caches of this process. is_cacheable: False when some kernels cannot be cached on disk"""

    announced = False
    seconds = 0.0
    checked: ClassVar[set[Path]] = set()
    is_cacheable = True


@overload
def njit(function: Function, /) -> Function: ...
@overload
def njit(*, wide: bool = ..., kind: str = ..., cache: bool = ..., **options: Any) -> Callable[[Function], Function]: ...
def njit(function: Any = None, *, wide: bool = False, kind: str = "entry", cache: bool = True, **options: Any) -> Any:
    """Decorate a kernel that Python calls: `numba.njit`, with options or without.

    Without a writable cache folder every process compiles anew; NUMBA_CACHE_DIR names another folder.

    wide: for kernels that compute the same for int32, int64 and constant integers. Numba compiles a kernel for each
    combination of argument types in its calls, so these kernels take integers as int64. Unless they allocate arrays,
    they are also compiled without reference counting, since the caller owns all arrays.
    kind: "entry" for a call from Python, "inner" and "shared" see below
    cache: whether to keep compiled code on disk; inner kernels have none
    """
    if function is None:
        return partial(njit, wide=wide, kind=kind, cache=cache, **options)
    cache = cache and kind != "inner"
    return _portable(function, cache, options) if PORTABLE else _linked(function, wide, kind, cache, options)


# Kernels that only other kernels call (see linking.py). `inner_njit`: small ones, or with one caller.
# `shared_njit`: ones with several callers that run much longer than a call takes.
inner_njit: Decorator = cast("Decorator", partial(njit, kind="inner"))
shared_njit: Decorator = cast("Decorator", partial(njit, kind="shared"))


def _portable(function: Any, cache: bool, options: dict[str, Any]) -> Any:
    # Files of the cache are named after functions. This name keeps the two ways of compiling apart.
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


# Functions and methods that allocate arrays. Assigning to a slice allocates too; kernels use loops instead.
_MAKERS = {"arange", "array_at", "copy", "empty", "full", "searchsorted", "zeros"}


def _makes_arrays(function: Any) -> bool:
    return not _MAKERS.isdisjoint(function.__code__.co_names)


def _compiled(function: Any, cache: bool, options: dict[str, Any]) -> Any:
    try:
        kernel = numba.njit(cache=cache, **options)(function)
    except RuntimeError:  # Numba finds no cache folder
        _State.is_cacheable = False
        return numba.njit(**options)(function)
    if not cache or kernel is function:
        return kernel
    folder = getattr(getattr(kernel, "stats", None), "cache_path", None)
    if folder is None:  # Numba does not say where its cache is, so stale files cannot be deleted
        _State.is_cacheable = False
        return numba.njit(**options)(function)
    if Path(folder) not in _State.checked:  # each package has its own folder
        _State.checked.add(Path(folder))
        _forget_stale(Path(folder))
    return kernel


def compile_seconds() -> float:
    """Return the seconds that this process has spent on compiling; 0.0 if Numba has no compile events."""
    return _State.seconds


def keep_quiet() -> None:
    """Suppress the message at the first compilation in this process."""
    _State.announced = True


def _forget_stale(folder: Path) -> None:
    """Delete cached kernels if any source has changed. Numba checks a kernel's own file only, not its callees."""
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
        # A read-only folder, as in an image. Its kernels were compiled together with the package.
        return


@cache
def _digest() -> str:
    """Return a hash of all sources that compiled kernels depend on."""
    sources = [path.read_bytes() for path in sorted(_KERNELS.rglob("*.py"))]
    return hashlib.sha256(b"".join(each for each in sources if b"njit" in each or b"numba" in each)).hexdigest()


def _watch() -> None:
    """Print a message when the first kernel is compiled (not when one is loaded from disk), and measure the time.

    During compilation Numba's results of operator typing are memoised, see `linking.Signatures`.
    """
    try:
        event = import_module("numba.core.event")
    except ImportError:  # a Numba without compile events
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
        if _State.is_cacheable
        else "in every process, because no cache folder is writable; set NUMBA_CACHE_DIR to a writable one"
    )
    how_long = "some minutes in all" if PORTABLE else "about a minute in all"
    if MISSING:
        how_long += f", since numba {numba.__version__} lacks {MISSING}"
    print(f"trellm: compiling kernels {how_often}; {how_long} ...", file=sys.stderr, flush=True)


_watch()


_called: dict[Any, Callable[..., Any]] = {}


def call(kernel: Any, *arguments: Any) -> Any:
    """Call a kernel. From the second call on the compiled code is called directly, unless kernels are portable."""
    known = _called.get(kernel)
    if known is not None:
        return known(*arguments)
    answer = kernel(*arguments)
    overloads = [] if PORTABLE else list(getattr(kernel, "overloads", {}).values())
    if len(overloads) == 1:
        _called[kernel] = overloads[0].entry_point
    return answer
