"""Compilation of constraints in threads, once for all requests for the same one, within limits.

Compiled constraints are cached, least recently used evicted first. When the server is idle, those used only once are
dropped. A constraint that nobody waits for is cancelled. Short constraints do not wait behind long ones, and all give
way to running sequences.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import copy
import math
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, is_dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

from ...errors import Cancelled, LimitError, TrellmError
from ...guides.limits import Cancellation
from ..errors import busy
from ..settings import Settings
from ..telemetry import ModelMetrics

LONG_SECONDS = 0.1
"""Seconds of thread time after which a constraint counts as long. A preempted compilation loses at most these."""
DOUBLING_DELAY = 4.0
"""Seconds by which twice the text size delays a constraint's turn. Long texts are therefore never starved."""
LONG_DELAY = 8.0
"""Seconds by which a constraint known to be long is delayed."""


class QueuedWork(Protocol):
    """Queued work. since: its arrival; size: size of its text in bytes"""

    since: float
    size: int

    @property
    def is_abandoned(self) -> bool:
        """True if nobody waits for it."""
        ...


class CompileQueue:
    """The queue of the compiler's threads; thread-safe."""

    def __init__(self, threads: int) -> None:
        self._long_threads = max(1, threads - 1)
        self._waiting: list[QueuedWork] = []
        self._long: set[QueuedWork] = set()
        self._running: set[QueuedWork] = set()
        self._lock = threading.Lock()

    def add(self, work: QueuedWork) -> None:
        """Add work."""
        with self._lock:
            self._waiting.append(work)

    def take(self) -> QueuedWork | None:
        """Remove and return the next work; None if there is none, or only long work without a free thread for it."""
        with self._lock:
            has_room = len(self._long & self._running) < self._long_threads
            eligible = [each for each in self._waiting if has_room or each.is_abandoned or each not in self._long]
            if not eligible:
                return None
            found = min(eligible, key=self._priority)
            self._waiting.remove(found)
            self._running.add(found)
            return found

    def may_continue(self, work: QueuedWork) -> bool:
        """Test whether work that has become long may continue. If not, it is asked again or preempted."""
        with self._lock:
            if work in self._long:
                return True
            if len(self._long & self._running) < self._long_threads:
                self._long.add(work)
                return True
            return all(each in self._long for each in self._waiting)

    def leave(self, work: QueuedWork, *, is_done: bool) -> None:
        """Remove running work. Unfinished work is long, and is queued again."""
        with self._lock:
            self._running.discard(work)
            if is_done:
                self._long.discard(work)
            else:
                self._long.add(work)
                self._waiting.append(work)

    def _priority(self, work: QueuedWork) -> float:
        if work.is_abandoned:
            return 0.0
        return work.since + DOUBLING_DELAY * math.log2(1 + work.size) + LONG_DELAY * (work in self._long)


MIN_SLEEP, MAX_SLEEP = 1e-3, 0.02
"""Bounds of a sleep in seconds. After it a thread checks for cancellation and for idleness."""


class TokenBucket:
    """A token bucket of processor time for all compiling threads.

    is_busy: tests whether sequences are running; share: the rate while they are, in seconds of processor time per
        second; burst: capacity in seconds; clock: functions of `time`
    """

    def __init__(
        self, is_busy: Callable[[], bool], share: Callable[[], float], burst: float, clock: Any = time
    ) -> None:
        self._is_busy = is_busy
        self._share = share
        self._burst = burst
        self._level = burst
        self._clock = clock
        self._since = clock.monotonic()
        self._lock = threading.Lock()
        self._local = threading.local()

    def begin(self, is_abandoned: Callable[[], bool]) -> None:
        """Start counting this thread's work, after any debt is paid.

        is_abandoned: tests whether nobody waits for the work, and ends the waiting
        """
        self._local.is_abandoned = is_abandoned
        self._local.used = self._clock.thread_time()
        self.throttle()

    def end(self) -> None:
        """Count the rest of this thread's work without waiting."""
        self._count()

    def throttle(self) -> None:
        """Count this thread's work since the last call, and sleep while the bucket is in debt."""
        while (left := self._count()) < 0 and not self._local.is_abandoned():
            if not self._is_busy():
                with self._lock:
                    self._level = max(self._level, 0.0)  # work that delayed nobody is no debt
                return
            self._clock.sleep(min(MAX_SLEEP, max(MIN_SLEEP, -left / self._share())))

    def _count(self) -> float:
        """Return the level of the bucket after this thread's work since the last count."""
        used, share = self._clock.thread_time(), self._share()
        with self._lock:
            now = self._clock.monotonic()
            self._level = min(self._burst, self._level + share * (now - self._since)) - (used - self._local.used)
            self._since = now
            self._local.used = used
            return self._level


MAX_BYTES = 16 << 20
COPIES = 3
"""Copies of a constraint's text in memory: in its key, and in its result, or twice in an error. A schema of 3.9 MB
without any meaning took 8 MB beside its guide, an error of an equally large pattern 11."""


def key_bytes(key: Hashable) -> int:
    """Estimate the memory of a key's texts in bytes."""
    left: list[Any] = [key]
    found = 0
    while left:
        each = left.pop()
        if isinstance(each, str):
            found += sys.getsizeof(each)
        elif isinstance(each, tuple | frozenset):
            left += cast("tuple[Any, ...]", each)
        elif is_dataclass(each):
            left += [getattr(each, field.name) for field in fields(each)]
    return COPIES * found


class RefusalCache:
    """Errors of invalid constraints, oldest evicted first.

    most: greatest size in bytes, keys included
    """

    def __init__(self, most: int = MAX_BYTES) -> None:
        self._most = most
        self._held = 0
        self._errors: OrderedDict[Hashable, tuple[TrellmError, int]] = OrderedDict()

    def add(self, key: Hashable, error: TrellmError) -> None:
        """Store an error without its traceback, whose frames refer to whole requests."""
        size = key_bytes(key) + sys.getsizeof(str(error))
        self._held += size - self._errors.pop(key, (error, 0))[1]
        self._errors[key] = copy.copy(error), size
        while self._held > self._most:
            self._held -= self._errors.popitem(last=False)[1][1]

    def check(self, key: Hashable) -> None:
        """Raise the stored error of a key, if there is one."""
        found = self._errors.get(key)
        if found is not None:
            raise copy.copy(found[0])


T = TypeVar("T")
MAX_CACHED = 1024
IDLE_SHARE = 16
"""Divisor of the cache's memory bound when the server is idle."""
UNKNOWN_BYTES = 1 << 20
ROOM_BYTES = 512 << 10
"""Bytes of a compiled constraint beyond its guide's own count: spare capacity of arrays, and lists of tokens. Small
schemas took 0.75 MB each, of which their guides counted 0.35."""
BURST = 0.1
"""Seconds of compilation at full speed, whatever else runs."""


class _Compilation(Generic[T]):
    """A compilation and its waiting requests.

    size: size of the key in bytes; seconds: time limit without time in the queue, of which `elapsed` are used
    result: future of the result
    """

    def __init__(
        self,
        make: Callable[[], T],
        size: int,
        seconds: float,
        elapsed: float,
        bucket: TokenBucket,
        queue: CompileQueue,
        metrics: ModelMetrics,
    ) -> None:
        self.size = size
        self.elapsed = elapsed
        self.waiting = 0
        self.result: concurrent.futures.Future[T] = concurrent.futures.Future()
        self.result.set_running_or_notify_cancel()  # prevents cancellation from elsewhere
        self.future: asyncio.Future[T] = asyncio.wrap_future(self.result)
        self._make = make
        self._seconds = seconds
        self._bucket = bucket
        self._queue = queue
        self._metrics = metrics
        self._stop = Cancellation(self._throttle)
        self.since = time.perf_counter()
        self._started: float | None = None
        self._used = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.is_abandoned = self.is_late = self._is_preempted = False

    def watch(self) -> None:
        """Check the time limit on the event loop, without a thread of its own."""
        started = self._started
        used = self.elapsed + (0.0 if started is None else time.perf_counter() - started)
        if used < self._seconds:
            self._timer = asyncio.get_running_loop().call_later(self._seconds - used, self.watch)
        else:
            self._end()

    def stop_watching(self) -> None:
        """Stop checking the time limit."""
        if self._timer is not None:
            self._timer.cancel()

    def cancel(self) -> None:
        """Cancel the compilation, since nobody waits for it."""
        self.is_abandoned = True
        self._stop.cancel()

    def run(self) -> bool:
        """Run in a compiler's thread. Return False if it was preempted and has to run again."""
        is_first = not self._is_preempted
        self._is_preempted = False
        self._stop = Cancellation(self._throttle)
        started = self._started = time.perf_counter()  # counts from here, including waits for the bucket
        self._bucket.begin(lambda: self.is_abandoned or self.is_late)
        self._used = time.thread_time()
        if is_first:
            self._metrics.compile_wait_seconds.observe(time.perf_counter() - self.since)
        try:
            value = self._value()
            self.elapsed += time.perf_counter() - started
            self.result.set_result(value)
        except Cancelled as error:
            if self._is_preempted and not (self.is_abandoned or self.is_late):
                self.elapsed += time.perf_counter() - started
                self._started = None
                return False
            self.result.set_exception(error)
        except BaseException as error:
            self.result.set_exception(error)
        finally:
            self._bucket.end()
        self._metrics.compile_seconds.observe(time.perf_counter() - started)
        return True

    def _value(self) -> T:
        """Return the result. Raises LimitError if it takes too long."""
        try:
            with self._stop:
                if self.is_abandoned or self.is_late:
                    raise Cancelled("the compilation was cancelled, because no request waits for it any more")
                return self._make()
        except Cancelled:
            if not self.is_late:
                raise
            raise LimitError(
                f"the constraint takes more than {self._seconds:g} seconds to compile, the limit of this server; "
                "simplify it"
            ) from None

    def _end(self) -> None:
        self.is_late = True
        self._stop.cancel()

    def _throttle(self) -> None:
        self._bucket.throttle()
        if time.thread_time() - self._used > LONG_SECONDS and not self._queue.may_continue(self):
            self._is_preempted = True
            self._stop.cancel()


class ConstraintCompiler:
    """Compiles constraints. All methods but `close` run on the event loop.

    is_busy: tests whether sequences are running; writing: their number; started: number of compilations so far
    """

    def __init__(
        self,
        settings: Settings,
        metrics: ModelMetrics,
        is_busy: Callable[[], bool] = lambda: False,
        writing: Callable[[], int] = lambda: 0,
    ) -> None:
        self._settings = settings
        self._bucket = TokenBucket(is_busy, self._share, BURST)
        self._writing = writing
        self._waiting = 0
        self._metrics = metrics
        self._queue = CompileQueue(settings.compilers)
        self._pool = ThreadPoolExecutor(settings.compilers, "trellm compiler")
        self._compilations: dict[Hashable, _Compilation[Any]] = {}
        self._cache: OrderedDict[Hashable, tuple[Any, Callable[[Any], int], int, float]] = OrderedDict()
        self._reused: set[Hashable] = set()
        self._held = 0
        self.started = 0
        self._refused = RefusalCache()

    async def compile(
        self, key: Hashable, make: Callable[[], T], weigh: Callable[[T], int], *, elapsed: float = 0.0
    ) -> T:
        """Return the result of `make`, cached under the key. Raises its exceptions, and ApiError if too many wait.

        make: runs in another thread inside a Cancellation
        weigh: size of the result in bytes, called again on each use
        elapsed: seconds that an earlier stage used of the common time limit
        """
        if key in self._cache:
            value, weigh, _, elapsed = self._cache[key]
            self._reused.add(key)
            self._store(key, value, weigh, elapsed)
            return value
        self._refused.check(key)
        work = self._compilations.get(key)
        if work is None:
            if len(self._compilations) >= self._settings.compiling:
                self._metrics.refuse("compiling")
                raise busy(
                    f"compiler at capacity ({len(self._compilations)} constraints are being compiled); try again"
                )
            work = self._begin(key, make, weigh, elapsed)
        work.waiting += 1
        self._waiting += 1
        try:
            return await asyncio.shield(work.future)
        finally:
            self._waiting -= 1
            work.waiting -= 1
            if not work.waiting and not work.future.done():
                work.cancel()
                self._compilations.pop(key, None)

    def elapsed(self, key: Hashable) -> float:
        """Return the seconds a cached result took without the queue; 0 if it is not cached."""
        return self._cache[key][3] if key in self._cache else 0.0

    @property
    def is_busy(self) -> bool:
        """True while anything is compiled or queued."""
        return bool(self._compilations)

    def forget(self) -> None:
        """Shrink the cache, since the server is idle: drop results used once, then the least recently used."""
        for key in [key for key in self._cache if key not in self._reused]:
            self._drop(key)
        self._evict(self._settings.kept_bytes // IDLE_SHARE)

    def cut(self) -> None:
        """Cancel all compilations."""
        for work in self._compilations.values():
            work.cancel()

    def close(self) -> None:
        """Cancel all compilations, and accept no more."""
        self.cut()
        self._pool.shutdown(wait=True)

    def _share(self) -> float:
        """Return the share of a core for compilation: the configured one, or more if more requests wait for it than
        run."""
        waiting = self._waiting
        return max(self._settings.compile_share, waiting / max(1, waiting + self._writing()))

    def _begin(
        self, key: Hashable, make: Callable[[], T], weigh: Callable[[T], int], elapsed: float
    ) -> _Compilation[T]:
        size, seconds = key_bytes(key), self._settings.compile_seconds
        work: _Compilation[T] = _Compilation(make, size, seconds, elapsed, self._bucket, self._queue, self._metrics)
        work.watch()  # before a thread takes it: an exhausted time limit fails even fast work
        self._queue.add(work)
        self._pool.submit(self._run)
        self._compilations[key] = work
        self.started += 1

        def end(future: asyncio.Future[T]) -> None:
            work.stop_watching()
            if self._compilations.get(key) is work:
                del self._compilations[key]
            error = None if future.cancelled() else future.exception()
            if error is None and not future.cancelled():
                self._store(key, future.result(), lambda result: weigh(result) + size, work.elapsed)
            elif isinstance(error, TrellmError) and not isinstance(error, Cancelled) and not work.is_late:
                self._refused.add(key, error)

        work.future.add_done_callback(end)
        return work

    def _run(self) -> None:
        """Run queued work in a thread."""
        while (found := self._queue.take()) is not None:
            work = cast("_Compilation[Any]", found)
            self._queue.leave(work, is_done=work.run())

    def _store(self, key: Hashable, value: Any, weigh: Callable[[Any], int], elapsed: float) -> None:
        self._put(key, value, weigh, elapsed)
        self._evict(self._settings.kept_bytes)

    def _evict(self, most: int) -> None:
        """Evict least recently used results above a bound, but not the last used one."""
        while len(self._cache) > 1 and (self._held > most or len(self._cache) > MAX_CACHED):
            self._drop(next(iter(self._cache)))
        self._metrics.constraints.set(len(self._cache))

    def _drop(self, key: Hashable) -> None:
        self._held -= self._cache.pop(key)[2]
        self._reused.discard(key)

    def _put(self, key: Hashable, value: Any, weigh: Callable[[Any], int], elapsed: float) -> None:
        """Store a result as the last used one, with its present size.

        Results grow and are weighed again on use. Weighing all of them for each new one would take longer than
        compilation.
        """
        held = weigh(value)
        if key in self._cache:
            self._held -= self._cache.pop(key)[2]
        self._cache[key] = value, weigh, held, elapsed
        self._held += held


def weight(generator: Any) -> int:
    """Estimate the memory of a generator's guide in bytes."""
    automaton = getattr(getattr(generator, "guide", None), "automaton", None)
    return int(getattr(automaton, "held_bytes", UNKNOWN_BYTES)) + ROOM_BYTES
