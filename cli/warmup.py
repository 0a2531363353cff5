"""`trellm warmup`: compiles the kernels once per machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from .small_guides import Thunks

Report = Callable[[str, float], None]


@click.command()
@click.option("--verbose", "-v", is_flag=True, help="Also print the time of each kernel.")
def warmup(verbose: bool) -> None:
    """Compile all kernels now, so that later processes need not.

    Run it when building an image. Compiled kernels are stored beside the package, or in NUMBA_CACHE_DIR. If they exist,
    it takes about a second.
    """

    def report(name: str, seconds: float) -> None:
        if verbose:
            click.echo(f"{seconds:7.2f} s  {name}")

    click.echo(f"all kernels are ready; this took {warm(report):.1f} s")


def warm(report: Report) -> float:
    """Compile or load every CPU kernel. Return the duration in seconds. report: called with each one's name and seconds

    With more than one core, a second process compiles the kernels that share little with the guides.
    """
    from ..kernels.jit.compiling import keep_quiet

    keep_quiet()
    begin = time.perf_counter()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    with _second_process() if cores != 1 else nullcontext():
        from .small_guides import guide_thunks  # slow import, during which the other process starts

        _run(guide_thunks(), report)
    warm_apart(report)
    return time.perf_counter() - begin


@contextmanager
def _second_process() -> Generator[None]:
    command = [sys.executable, "-c", f"from {__name__} import warm_apart; warm_apart()"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        yield
        _, errors = process.communicate()
    if process.returncode:
        raise RuntimeError(f"some kernels could not be compiled:\n{errors}")


def warm_apart(report: Report = lambda name, seconds: None) -> None:
    """Compile or load the kernels on logits and of quoting."""
    from ..kernels import warm
    from ..kernels.jit.compiling import keep_quiet
    from .small_guides import quoting_thunks

    keep_quiet()
    warm(report)
    _run(quoting_thunks(), report)


def _run(thunks: Thunks, report: Report) -> None:
    for name, thunk in thunks:
        start = time.perf_counter()
        thunk()
        report(name, time.perf_counter() - start)
