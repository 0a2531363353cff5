"""From the engine's thread to the event loop: after a step, one message with what has become of all handles."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable, Sequence
from time import perf_counter

from ..engine.decode.sequence import SequenceState
from ..engine.engine import Engine
from ..engine.handle import Cursor, News
from ..errors import Cancelled
from .telemetry import ModelMetrics

SHUT_DOWN = "the server is being shut down"
GATHERED = 1 / 60
"""Seconds between two messages about texts that only grow: no screen is drawn more often, and a message takes as long
as a small model does for a token or two. A text's beginning and its end are told at once."""
SLOW = 0.004
"""After a step of so many seconds all is told: beside that a message is little, and whoever reads sees each token."""
AT_ONCE = 64
"""So much news is read in one go, or less where a table of tokens comes with each."""


class Arrivals:
    """News of one cursor, on the event loop: an iterator of what has come since one last looked.

    entered: when the dispatcher got it; queue_seconds: from then until it began; has_begun, has_grown: whether the
    engine has taken it up, and whether there was news of it
    """

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.call = cursor.handle.call
        self.entered = perf_counter()
        self.queue_seconds: float | None = None
        self.has_begun = self.has_grown = self.is_over = False
        self._news: list[News] = []
        self._error: Exception | None = None
        self._event = asyncio.Event()

    @property
    def is_urgent(self) -> bool:
        """True where news does not wait for more: a text has ended, or is the first of them to begin."""
        if self.call.outcomes:
            return True
        if self.has_grown or not self.cursor.grows:
            return False
        return any(
            isinstance(group.work, SequenceState) and group.work.tokens for group in list(self.call.groups.values())
        )

    def tell(self, news: Sequence[News], *, is_over: bool = False) -> None:
        """Add news, on the event loop. is_over: whether there will be no more"""
        self._news += news
        self.is_over |= is_over
        self._event.set()

    def end(self, error: Exception | None = None) -> None:
        """Let there be no more; the reader is told of an error behind what came before."""
        self._error = error
        self.tell((), is_over=True)

    async def __aiter__(self) -> AsyncIterator[Sequence[News]]:
        most = max(1, AT_ONCE // (1 + int(self.cursor.handle.options.logprobs or 0)))
        while True:
            await self._event.wait()
            self._event.clear()
            news, self._news = self._news, []
            for at in range(0, len(news), most):
                if at:  # whoever reads slowly has much of it, and others are answered between
                    await asyncio.sleep(0)
                yield news[at : at + most]
            if self.is_over and not self._news:
                if self._error is not None:
                    raise self._error
                return


class Dispatcher:
    """Watches cursors of an engine that has been started. Made on the event loop.

    The engine's thread collects (`_stepped`), the event loop hands out (`_deliver`): one call between threads a step,
    however many texts there are, and none for each of several quick steps.
    writing: how many texts are on their way; is_cut: whether all were ended, and those that still enter are
    """

    def __init__(self, engine: Engine, metrics: ModelMetrics) -> None:
        self._engine = engine
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._watched: set[Arrivals] = set()
        self.writing = 0
        self.is_cut = False
        self._told = 0.0
        self._lock = threading.Lock()
        engine.watch(self._stepped)

    def add(self, cursor: Cursor) -> Arrivals:
        """Watch a cursor whose handle has entered the engine, from any thread."""
        arrivals = Arrivals(cursor)
        with self._lock:
            self._watched.add(arrivals)
            self.writing += len(arrivals.call.requests)
            if self.is_cut:  # while it was entering
                self._loop.call_soon_threadsafe(self.cut)
            if arrivals.call.outcomes and not arrivals.call.groups:  # perhaps by the last step for a while
                self._tell([arrivals])
        return arrivals

    def cancel(self, arrivals: Arrivals) -> None:
        """Let nothing more come of a handle; its memory is free after the step that is under way."""
        if arrivals.is_over:  # as most are, and the engine's thread may hold the lock while it waits for this one
            return
        with self._lock:
            is_known = arrivals in self._watched
            if is_known:
                self._forget([arrivals])
        if is_known:
            self._metrics.cancelled.inc()
            arrivals.cursor.handle.cancel()
            arrivals.end()

    @property
    def waiting(self) -> int:
        """Number of texts that have not begun."""
        with self._lock:
            return sum(len(each.call.requests) - each.call.begun for each in self._watched)

    def close(self) -> None:
        """End all, as the engine is closed."""
        self._engine.unwatch(self._stepped)
        self.cut()

    def cut(self) -> None:
        """End all with an error, and those that are still to come."""
        with self._lock:
            self.is_cut = True
            several = list(self._watched)
            self._forget(several)
        for each in several:
            each.cursor.handle.cancel()
            each.end(Cancelled(SHUT_DOWN))

    def _stepped(self) -> None:
        """Collect after a step, in the engine's thread."""
        self._metrics.step_seconds.observe(self._engine.step_seconds)
        self._collect()

    def _collect(self) -> None:
        """Collect the news of all, if there is something that is to be told now."""
        now = perf_counter()
        with self._lock:
            for each in self._watched:
                if not each.has_begun and each.call.begun:
                    each.has_begun = True
                    each.queue_seconds = now - each.entered
                    self._metrics.queue_seconds.observe(each.queue_seconds)
            is_early = now - self._told < GATHERED and self._engine.step_seconds < SLOW
            if is_early and not any(each.is_urgent for each in self._watched):
                return
            if self._tell(self._watched):
                self._told = now

    def _tell(self, several: Iterable[Arrivals]) -> bool:
        """Hand the news of some to the event loop; under the lock, so that what was found first is told first."""
        found = [(each, news, each.call.done) for each in several if (news := list(each.cursor.news()))]
        if not found:
            return False
        self._forget([each for each, _, is_over in found if is_over])
        for each, _, _ in found:
            each.has_grown = True
        self._loop.call_soon_threadsafe(self._deliver, found)
        return True

    def _forget(self, several: Sequence[Arrivals]) -> None:
        """Watch these no more; under the lock."""
        self._watched.difference_update(several)
        self.writing -= sum(len(each.call.requests) for each in several)

    def _deliver(self, found: Sequence[tuple[Arrivals, Sequence[News], bool]]) -> None:
        for arrivals, news, is_over in found:
            arrivals.tell(news, is_over=is_over)
