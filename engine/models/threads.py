"""Threads for the kernels of a step, which run concurrently, since kernels release the GIL."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from threading import Lock
from typing import NamedTuple

import torch


class _ThreadTeam(NamedTuple):
    pool: ThreadPoolExecutor
    turn: Lock


@cache
def _team() -> _ThreadTeam:
    return _ThreadTeam(ThreadPoolExecutor(max_workers=os.cpu_count(), thread_name_prefix="trellm-kernels"), Lock())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_team.cache_clear)  # a forked process has none of the threads


def thread_count() -> int:
    """Return the number of threads for a step: torch's setting, bounded by this process's cores.

    Threads wait for each other in busy loops, so more threads than cores would slow all of them down.
    """
    return min(torch.get_num_threads(), _core_count())


def _core_count() -> int:
    cores = os.cpu_count() or 1
    return min(cores, len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else cores


def run_all(calls: Sequence[Callable[[], None]]) -> None:
    """Run independent calls on the available threads."""
    if len(calls) == 1 or thread_count() == 1:
        for call in calls:
            call()
        return
    waiting = [_team().pool.submit(call) for call in calls]
    for each in waiting:
        each.result()


def run_together(share: Callable[[int], None], threads: int, give_up: Callable[[], None] | None = None) -> None:
    """Run share(0) in this thread and share(1) ... in others concurrently, and wait for all.

    threads: number of shares, at most `thread_count`
    give_up: called after a failure, to release shares that wait for the failed one
    """
    if threads == 1:
        share(0)
        return
    team = _team()
    with team.turn:  # two steps that share the threads could deadlock
        waiting: list[Future[None]] = []
        try:
            waiting += [team.pool.submit(share, number) for number in range(1, threads)]
            share(0)
        except BaseException:
            if give_up is not None:
                give_up()
            raise
        finally:
            wait(waiting)
    for each in waiting:
        each.result()
