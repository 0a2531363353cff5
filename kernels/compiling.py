"""Numba's `njit` for these kernels: kept on disk, never stale, and not silent while it compiles."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core import event, types
from numba.core.dispatcher import Dispatcher

_HERE = Path(__file__).parent
_MARKER = "trellm-kernels.sha256"


class _State:
    """What has happened in this process."""

    announced = False
    checked = False
    kept = True


def njit(*, cache: bool = True, **options: Any) -> Callable[[Any], Any]:
    """A decorator: `numba.njit` with these options.

    Where no folder can be written to, a kernel is compiled in every process; NUMBA_CACHE_DIR names another.
    """

    def decorate(function: Any) -> Any:
        try:
            kernel = numba.njit(cache=cache, **options)(function)
        except RuntimeError:  # no place for a cache
            _State.kept = False
            return numba.njit(**options)(function)
        stats = getattr(kernel, "stats", None)
        if stats is not None and not _State.checked:
            _State.checked = True
            _forget_stale(Path(stats.cache_path))
        return kernel

    return decorate


def wide_njit(*, cache: bool = True, **options: Any) -> Callable[[Any], Any]:
    """As `njit`, for kernels to which it is all the same whether an integer has 32 or 64 bits, or is a constant.

    Numba compiles a kernel for every combination of argument types that other kernels call it with; here
    integers are passed as int64, so that it is compiled once.
    """

    def decorate(function: Any) -> Any:
        kernel = njit(cache=cache, **options)(function)
        if isinstance(kernel, Dispatcher):
            template = kernel.get_call_template
            kernel.get_call_template = lambda args, kws: template([_widened(kind) for kind in args], kws)
        return kernel

    return decorate


def _widened(kind: Any) -> Any:
    plain = types.unliteral(kind)
    return types.int64 if plain == types.int32 else plain


def keep_quiet() -> None:
    """Say nothing when kernels are compiled in this process."""
    _State.announced = True


def _forget_stale(folder: Path) -> None:
    """Delete compiled kernels if any source has changed; Numba looks at a kernel's own file, not at what it calls."""
    sources = [path.read_bytes() for path in sorted(_HERE.glob("*.py"))]
    digest = hashlib.sha256(b"".join(source for source in sources if b"njit" in source)).hexdigest()
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


class _Announcer(event.Listener):
    """Prints a line when the first kernel of this package is compiled; loading one from the disk is no event."""

    def on_start(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        if _State.announced or Path(function.__code__.co_filename).parent != _HERE:
            return
        _State.announced = True
        how_often = (
            "once (`trellm warmup` does it beforehand)"
            if _State.kept
            else ("in every process, because no folder for them can be written to; set NUMBA_CACHE_DIR to one that can")
        )
        print(f"trellm: compiling kernels {how_often}; about a minute in all ...", file=sys.stderr, flush=True)

    def on_end(self, event: Any) -> None:
        """Nothing is said at the end."""


event.register("numba:compile", _Announcer())
