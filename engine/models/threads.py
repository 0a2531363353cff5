"""Threads in which kernels of one step run: they hold no lock of the interpreter, so that each has a core."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from threading import Lock
from typing import NamedTuple

import torch


class _Crew(NamedTuple):
    pool: ThreadPoolExecutor
    turn: Lock


@cache
def _crew() -> _Crew:
    return _Crew(ThreadPoolExecutor(max_workers=os.cpu_count(), thread_name_prefix="trellm-kernels"), Lock())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_crew.cache_clear)  # a forked process has none of the threads


def thread_count() -> int:
    """Number of threads that a step may have: those of torch, and not more than there are cores for this process.

    Threads that wait for one another keep their cores busy meanwhile: more of them would be slower than fewer.
    """
    return min(torch.get_num_threads(), _core_count())


def _core_count() -> int:
    cores = os.cpu_count() or 1
    return min(cores, len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else cores


def run_all(calls: Sequence[Callable[[], None]]) -> None:
    """Run calls that do not wait for one another, on as many threads as there are."""
    if len(calls) == 1 or thread_count() == 1:
        for call in calls:
            call()
        return
    waiting = [_crew().pool.submit(call) for call in calls]
    for each in waiting:
        each.result()


def run_together(share: Callable[[int], None], threads: int, give_up: Callable[[], None] | None = None) -> None:
    """Run share(0) here and share(1) ... on other threads, all at the same time; return when all have ended.

    threads: up to `thread_count`
    give_up: lets the shares end that wait for one that will not come, where they wait for one another
    """
    if threads == 1:
        share(0)
        return
    crew = _crew()
    with crew.turn:  # of two steps, each could have a part of the threads, and wait for the others for ever
        waiting: list[Future[None]] = []
        try:
            waiting += [crew.pool.submit(share, number) for number in range(1, threads)]
            share(0)
        except BaseException:
            if give_up is not None:
                give_up()
            raise
        finally:
            wait(waiting)
    for each in waiting:
        each.result()
