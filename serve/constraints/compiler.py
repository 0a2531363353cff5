"""Compilation of constraints: in threads of its own, once for all who ask for the same, within limits.

What is compiled is kept until what has been kept longest without use makes room, or until there is nothing to do, if
nobody has asked for it again. A constraint that nobody waits for any more is given up. Short constraints do not wait
behind long ones, and all of them give way to texts that are being written.
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

MOMENT = 0.1
"""Seconds of a thread's work after which a constraint is long. What gives way has lost no more than these."""
DOUBLED = 4.0
"""So many seconds later is a text put in line that is twice as long: however short the others are, its turn comes."""
LONGER = 8.0
"""So many seconds later is what is known to be long put in line."""


class Queued(Protocol):
    """Work in line. since: when it came; size: of its text in bytes; is_over: whether nobody waits for it"""

    since: float
    size: int

    @property
    def is_over(self) -> bool:
        """Asked each time that somebody is taken."""
        ...


class Line:
    """Of some threads that compile; usable from any thread."""

    def __init__(self, threads: int) -> None:
        self._room = max(1, threads - 1)
        self._waiting: list[Queued] = []
        self._long: set[Queued] = set()
        self._running: set[Queued] = set()
        self._lock = threading.Lock()

    def add(self, work: Queued) -> None:
        """Let it wait for its turn."""
        with self._lock:
            self._waiting.append(work)

    def take(self) -> Queued | None:
        """Take the work whose turn it is; None where nobody waits, or only what is long, for which there is no room."""
        with self._lock:
            has_room = len(self._long & self._running) < self._room
            able = [each for each in self._waiting if has_room or each.is_over or each not in self._long]
            if not able:
                return None
            found = min(able, key=self._place)
            self._waiting.remove(found)
            self._running.add(found)
            return found

    def goes_on(self, work: Queued) -> bool:
        """Tell whether work that has had its moment may go on; then or later it is asked again."""
        with self._lock:
            if work in self._long:
                return True
            if len(self._long & self._running) < self._room:
                self._long.add(work)
                return True
            return all(each in self._long for each in self._waiting)

    def leave(self, work: Queued, *, is_done: bool) -> None:
        """It runs no more; what is not done turned out to be long, and waits again."""
        with self._lock:
            self._running.discard(work)
            if is_done:
                self._long.discard(work)
            else:
                self._long.add(work)
                self._waiting.append(work)

    def _place(self, work: Queued) -> float:
        if work.is_over:
            return 0.0
        return work.since + DOUBLED * math.log2(1 + work.size) + LONGER * (work in self._long)


SHORTEST, LONGEST = 1e-3, 0.02
"""Seconds that a thread sleeps at a time: so soon it notices that it is to stop, or that nobody is held up any more."""


class Turns:
    """A bucket of processor time for all threads that compile, filled at a rate.

    is_busy: whether texts are being written; share: seconds of processor time that threads may take in a second while
    they are, asked again and again; burst: so many seconds of it at once; clock: the functions of `time`
    """

    def __init__(
        self, is_busy: Callable[[], bool], share: Callable[[], float], burst: float, clock: Any = time
    ) -> None:
        self._is_busy = is_busy
        self._share = share
        self._burst = burst
        self._left = burst
        self._clock = clock
        self._since = clock.monotonic()
        self._lock = threading.Lock()
        self._local = threading.local()

    def begin(self, is_over: Callable[[], bool]) -> None:
        """Count the work of this thread from now on, when what others have worked too much is made up for.

        is_over: whether nobody waits for that work any more; then neither does this
        """
        self._local.is_over = is_over
        self._local.used = self._clock.thread_time()
        self.breathe()

    def end(self) -> None:
        """Count the rest of this thread's work, without waiting."""
        self._count()

    def breathe(self) -> None:
        """Count what this thread has worked since it was last asked, and wait while that was too much."""
        while (left := self._count()) < 0 and not self._local.is_over():
            if not self._is_busy():
                with self._lock:
                    self._left = max(self._left, 0.0)  # what held up nobody is no debt
                return
            self._clock.sleep(min(LONGEST, max(SHORTEST, -left / self._share())))

    def _count(self) -> float:
        """The rest of the bucket, without what this thread has worked since it last counted."""
        used, share = self._clock.thread_time(), self._share()
        with self._lock:
            now = self._clock.monotonic()
            self._left = min(self._burst, self._left + share * (now - self._since)) - (used - self._local.used)
            self._since = now
            self._local.used = used
            return self._left


MOST_BYTES = 16 << 20
COPIES = 3
"""So often the text of a constraint is there: in its key, and in what was made of it, or twice in an error.
A schema of 3.9 MB that says nothing measured 8 MB beside what its guide counts, a pattern's error of as much 11."""


def key_bytes(key: Hashable) -> int:
    """About how many bytes the texts of a key come to, wherever it holds them."""
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


class Refusals:
    """The errors of what was asked for and cannot be, those of longest ago forgotten.

    most: how many bytes they may come to, with what was asked for
    """

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._held = 0
        self._found: OrderedDict[Hashable, tuple[TrellmError, int]] = OrderedDict()

    def add(self, key: Hashable, error: TrellmError) -> None:
        """Remember an error, but not where it came from: frames hold whole requests."""
        size = key_bytes(key) + sys.getsizeof(str(error))
        self._held += size - self._found.pop(key, (error, 0))[1]
        self._found[key] = copy.copy(error), size
        while self._held > self._most:
            self._held -= self._found.popitem(last=False)[1][1]

    def check(self, key: Hashable) -> None:
        """Raise the error of what was refused before."""
        found = self._found.get(key)
        if found is not None:
            raise copy.copy(found[0])


T = TypeVar("T")
MOST_KEPT = 1024
IDLE_SHARE = 16
"""Of the memory of what is kept, what is left of it where there is nothing to do."""
UNKNOWN_BYTES = 1 << 20
ROOM_BYTES = 512 << 10
"""Bytes of a compiled constraint beyond those of its guide: arrays begin with room to grow, and lists of tokens.
Small schemas measured 0.75 MB each, of which their guides counted 0.35."""
BURST = 0.1
"""Seconds of compilation at full speed, whatever runs beside it."""


class _Compilation(Generic[T]):
    """Something that is being made, and for how many.

    size: of what is asked for, in bytes; seconds: how long it may take, of which it has taken some, those in the queue
    not counted; made: what comes of it
    """

    def __init__(
        self,
        make: Callable[[], T],
        size: int,
        seconds: float,
        taken: float,
        turns: Turns,
        line: Line,
        metrics: ModelMetrics,
    ) -> None:
        self.size = size
        self.taken = taken
        self.waiting = 0
        self.made: concurrent.futures.Future[T] = concurrent.futures.Future()
        self.made.set_running_or_notify_cancel()  # so that nobody cancels it beside us
        self.future: asyncio.Future[T] = asyncio.wrap_future(self.made)
        self._make = make
        self._seconds = seconds
        self._turns = turns
        self._line = line
        self._metrics = metrics
        self._stop = Cancellation(self._breathe)
        self.since = time.perf_counter()
        self._begun: float | None = None
        self._used = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.is_over = self.is_late = self._gives_way = False

    def watch(self) -> None:
        """See to it, on the event loop, that it is stopped when it has taken too long: no thread is begun for that."""
        begun = self._begun
        taken = self.taken + (0.0 if begun is None else time.perf_counter() - begun)
        if taken < self._seconds:
            self._timer = asyncio.get_running_loop().call_later(self._seconds - taken, self.watch)
        else:
            self._end()

    def watch_no_more(self) -> None:
        """It is made, or given up."""
        if self._timer is not None:
            self._timer.cancel()

    def give_up(self) -> None:
        """Nobody waits for it any more."""
        self.is_over = True
        self._stop.cancel()

    def run(self) -> bool:
        """Make it, in a thread of the compiler's; False where others go first, and it is to be run again."""
        is_first = not self._gives_way
        self._gives_way = False
        self._stop = Cancellation(self._breathe)
        begun = self._begun = time.perf_counter()  # of here on it counts, also while it waits for what is due
        self._turns.begin(lambda: self.is_over or self.is_late)
        self._used = time.thread_time()
        if is_first:
            self._metrics.compile_wait_seconds.observe(time.perf_counter() - self.since)
        try:
            value = self._value()
            self.taken += time.perf_counter() - begun
            self.made.set_result(value)
        except Cancelled as error:
            if self._gives_way and not (self.is_over or self.is_late):
                self.taken += time.perf_counter() - begun
                self._begun = None
                return False
            self.made.set_exception(error)
        except BaseException as error:
            self.made.set_exception(error)
        finally:
            self._turns.end()
        self._metrics.compile_seconds.observe(time.perf_counter() - begun)
        return True

    def _value(self) -> T:
        """Raises LimitError where it takes too long."""
        try:
            with self._stop:
                if self.is_over or self.is_late:
                    raise Cancelled("nobody waits for it any more")
                return self._make()
        except Cancelled:
            if not self.is_late:
                raise
            raise LimitError(
                f"the constraint takes more than {self._seconds:g} seconds to compile, the most that this server "
                "gives one; simplify it"
            ) from None

    def _end(self) -> None:
        self.is_late = True
        self._stop.cancel()

    def _breathe(self) -> None:
        self._turns.breathe()
        if time.thread_time() - self._used > MOMENT and not self._line.goes_on(self):
            self._gives_way = True
            self._stop.cancel()


class ConstraintCompiler:
    """Makes what requests need of constraints. All but `close` is for the event loop.

    is_busy: whether texts are being written, which compilation would hold up; writing: how many; begun: how many
    constraints have been compiled so far
    """

    def __init__(
        self,
        settings: Settings,
        metrics: ModelMetrics,
        is_busy: Callable[[], bool] = lambda: False,
        writing: Callable[[], int] = lambda: 0,
    ) -> None:
        self._settings = settings
        self._turns = Turns(is_busy, self._share, BURST)
        self._writing = writing
        self._waiting = 0
        self._metrics = metrics
        self._line = Line(settings.compilers)
        self._pool = ThreadPoolExecutor(settings.compilers, "trellm compiler")
        self._works: dict[Hashable, _Compilation[Any]] = {}
        self._kept: OrderedDict[Hashable, tuple[Any, Callable[[Any], int], int, float]] = OrderedDict()
        self._asked_again: set[Hashable] = set()
        self._held = 0
        self.begun = 0
        self._refused = Refusals()

    async def made(self, key: Hashable, make: Callable[[], T], weigh: Callable[[T], int], *, taken: float = 0.0) -> T:
        """The result of `make`, now or before under this key. Raises what it raised, and ApiError where much waits.

        make: runs in another thread, with a Cancellation about it
        weigh: how many bytes it holds, asked again whenever it is used
        taken: seconds that something before it took, of those that both may take
        """
        if key in self._kept:
            value, weigh, _, taken = self._kept[key]
            self._asked_again.add(key)
            self._keep(key, value, weigh, taken)
            return value
        self._refused.check(key)
        work = self._works.get(key)
        if work is None:
            if len(self._works) >= self._settings.compiling:
                self._metrics.refuse("compiling")
                raise busy(f"compiler at capacity ({len(self._works)} constraints are being compiled); try again")
            work = self._begin(key, make, weigh, taken)
        work.waiting += 1
        self._waiting += 1
        try:
            return await asyncio.shield(work.future)
        finally:
            self._waiting -= 1
            work.waiting -= 1
            if not work.waiting and not work.future.done():
                work.give_up()
                self._works.pop(key, None)

    def taken(self, key: Hashable) -> float:
        """Seconds that the making of something took, the queue not counted; 0 where it is not kept."""
        return self._kept[key][3] if key in self._kept else 0.0

    @property
    def is_busy(self) -> bool:
        """True while something is being compiled, or waits for it."""
        return bool(self._works)

    def forget(self) -> None:
        """Drop what was asked for once, and of the rest what has been used longest ago: there is nothing to do."""
        for key in [key for key in self._kept if key not in self._asked_again]:
            self._drop(key)
        self._make_room(self._settings.kept_bytes // IDLE_SHARE)

    def cut(self) -> None:
        """Stop what is at work."""
        for work in self._works.values():
            work.give_up()

    def close(self) -> None:
        """Stop what is at work, and take nothing more."""
        self.cut()
        self._pool.shutdown(wait=True)

    def _share(self) -> float:
        """The share of a core for compilation: as it is set, and more where more wait for it than write."""
        waiting = self._waiting
        return max(self._settings.compile_share, waiting / max(1, waiting + self._writing()))

    def _begin(self, key: Hashable, make: Callable[[], T], weigh: Callable[[T], int], taken: float) -> _Compilation[T]:
        size, seconds = key_bytes(key), self._settings.compile_seconds
        work: _Compilation[T] = _Compilation(make, size, seconds, taken, self._turns, self._line, self._metrics)
        work.watch()  # before a thread has it: what has no time left is refused, however quick the thread is
        self._line.add(work)
        self._pool.submit(self._run)
        self._works[key] = work
        self.begun += 1

        def end(future: asyncio.Future[T]) -> None:
            work.watch_no_more()
            if self._works.get(key) is work:
                del self._works[key]
            error = None if future.cancelled() else future.exception()
            if error is None and not future.cancelled():
                self._keep(key, future.result(), lambda made: weigh(made) + size, work.taken)
            elif isinstance(error, TrellmError) and not isinstance(error, Cancelled) and not work.is_late:
                self._refused.add(key, error)

        work.future.add_done_callback(end)
        return work

    def _run(self) -> None:
        """Work in a thread, as long as it is somebody's turn."""
        while (found := self._line.take()) is not None:
            work = cast("_Compilation[Any]", found)
            self._line.leave(work, is_done=work.run())

    def _keep(self, key: Hashable, value: Any, weigh: Callable[[Any], int], taken: float) -> None:
        self._weigh(key, value, weigh, taken)
        self._make_room(self._settings.kept_bytes)

    def _make_room(self, most: int) -> None:
        """Drop what was used longest ago, until what is left holds so much, or is what was used last."""
        while len(self._kept) > 1 and (self._held > most or len(self._kept) > MOST_KEPT):
            self._drop(next(iter(self._kept)))
        self._metrics.constraints.set(len(self._kept))

    def _drop(self, key: Hashable) -> None:
        self._held -= self._kept.pop(key)[2]
        self._asked_again.discard(key)

    def _weigh(self, key: Hashable, value: Any, weigh: Callable[[Any], int], taken: float) -> None:
        """Keep something as what was used last, with what it weighs now.

        What grows is weighed again when it is used: weighing all of them for each new one would take longer than
        making it.
        """
        held = weigh(value)
        if key in self._kept:
            self._held -= self._kept.pop(key)[2]
        self._kept[key] = value, weigh, held, taken
        self._held += held


def weight(generator: Any) -> int:
    """About how many bytes a generator's guide holds."""
    automaton = getattr(getattr(generator, "guide", None), "automaton", None)
    return int(getattr(automaton, "held_bytes", UNKNOWN_BYTES)) + ROOM_BYTES
