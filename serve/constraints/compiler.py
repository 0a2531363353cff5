"""Compilation of constraints: in threads of its own, once for all who ask for the same, within limits.

What is compiled is kept until what has been kept longest without use makes room. A constraint that nobody waits for any
more is given up.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from ...errors import Cancelled, LimitError, TrellmError
from ...guides.limits import Cancellation
from ..errors import busy
from ..metrics import Metrics
from ..settings import Settings
from .turns import Turns

T = TypeVar("T")
MOST_KEPT = 1024
MOST_REFUSALS = 256
UNKNOWN_BYTES = 1 << 20
BURST = 0.1
"""Seconds of compilation at full speed, whatever runs beside it."""


class _Work(Generic[T]):
    """Something that is being made, and for how many."""

    def __init__(self, make: Callable[[], T], seconds: float, turns: Turns, metrics: Metrics) -> None:
        self.stop = Cancellation(turns.breathe)
        self.waiting = 0
        self.future: asyncio.Future[T]
        self._make = make
        self._seconds = seconds
        self._turns = turns
        self._metrics = metrics
        self._since = time.perf_counter()
        self.is_late = False

    def run(self) -> T:
        """Make it, in a thread of the compiler's. Raises LimitError when that takes too long."""
        timer = threading.Timer(self._seconds, self._end)
        timer.daemon = True
        timer.start()
        self._turns.begin()
        begun = time.perf_counter()
        self._metrics.compile_wait_seconds.observe(begun - self._since)
        try:
            with self.stop:
                return self._make()
        except Cancelled:
            if not self.is_late:
                raise
            raise LimitError(
                f"the constraint takes more than {self._seconds:g} seconds to compile, the most that this server "
                "gives one; simplify it"
            ) from None
        finally:
            self._turns.end()
            timer.cancel()
            self._metrics.compile_seconds.observe(time.perf_counter() - begun)

    def _end(self) -> None:
        self.is_late = True
        self.stop.cancel()


class Compiler:
    """Makes what requests need of constraints. All but `close` is for the event loop.

    is_busy: whether texts are being written, which compilation would hold up
    """

    def __init__(self, settings: Settings, metrics: Metrics, is_busy: Callable[[], bool] = lambda: False) -> None:
        self._settings = settings
        self._turns = Turns(is_busy, settings.compile_share, BURST)
        self._metrics = metrics
        self._pool = ThreadPoolExecutor(settings.compilers, "trellm compiler")
        self._works: dict[Hashable, _Work[Any]] = {}
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()
        self._refused: OrderedDict[Hashable, TrellmError] = OrderedDict()

    async def made(self, key: Hashable, make: Callable[[], T], weigh: Callable[[T], int]) -> T:
        """What `make` makes, or made before under this key. Raises what it raised, and ApiError where much waits.

        make: runs in another thread, with a Cancellation about it
        weigh: how many bytes it holds, asked again as others are added
        """
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key][0]
        if key in self._refused:
            raise self._refused[key].with_traceback(None)
        work = self._works.get(key)
        if work is None:
            if len(self._works) >= self._settings.compiling:
                self._metrics.refuse("compiling")
                raise busy(f"{len(self._works)} constraints are being compiled; try again")
            work = self._begin(key, make, weigh)
        work.waiting += 1
        try:
            return await asyncio.shield(work.future)
        finally:
            work.waiting -= 1
            if not work.waiting and not work.future.done():
                work.stop.cancel()
                self._works.pop(key, None)

    def close(self) -> None:
        """Stop what is at work."""
        for work in self._works.values():
            work.stop.cancel()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _begin(self, key: Hashable, make: Callable[[], T], weigh: Callable[[T], int]) -> _Work[T]:
        work: _Work[T] = _Work(make, self._settings.compile_seconds, self._turns, self._metrics)
        work.future = asyncio.get_running_loop().run_in_executor(self._pool, work.run)
        self._works[key] = work

        def end(future: asyncio.Future[T]) -> None:
            if self._works.get(key) is work:
                del self._works[key]
            error = None if future.cancelled() else future.exception()
            if error is None and not future.cancelled():
                self._keep(key, future.result(), weigh)
            elif isinstance(error, TrellmError) and not isinstance(error, Cancelled) and not work.is_late:
                self._refused[key] = error
                if len(self._refused) > MOST_REFUSALS:
                    self._refused.popitem(last=False)

        work.future.add_done_callback(end)
        return work

    def _keep(self, key: Hashable, value: Any, weigh: Callable[[Any], int]) -> None:
        self._kept[key] = value, weigh
        total = sum(weigh(each) for each, weigh in self._kept.values())
        while len(self._kept) > 1 and (total > self._settings.kept_bytes or len(self._kept) > MOST_KEPT):
            _, (dropped, weigh) = self._kept.popitem(last=False)
            total -= weigh(dropped)
        self._metrics.constraints.set(len(self._kept))


def weight(generator: Any) -> int:
    """About how many bytes a generator's guide holds."""
    automaton = getattr(getattr(generator, "guide", None), "automaton", None)
    return int(getattr(automaton, "held_bytes", UNKNOWN_BYTES)) + UNKNOWN_BYTES // 16
