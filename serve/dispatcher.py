"""Messages from the engine's thread to the event loop: at most one per step, with news of all handles."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable, Sequence
from time import perf_counter

from ..engine.decode.sequence import SequenceState
from ..engine.engine import Engine
from ..engine.handle import Cursor, News, Piece
from ..engine.schedule.call import RequestOutput
from ..errors import Cancelled
from .telemetry import ModelMetrics

SHUT_DOWN = "the server is being shut down"
CLOSED = "the engine of the model was closed"
SEND_INTERVAL = 1 / 60
"""Seconds between two messages of texts that only grow, the period of a screen refresh. A message costs as much as a
token or two of a small model. The start and end of a text are sent at once."""
SLOW_STEP_SECONDS = 0.004
"""Step duration in seconds from which every step sends its news, since a message is cheap beside it."""
MAX_NEWS = 64
"""Number of news items processed in one go. It is lower if each has a table of top tokens."""
QUICK_TOKENS = 512
"""Number of tokens up to which a result is built on the event loop. A thread would cost more."""


class CursorBatches:
    """News of one cursor on the event loop.

    entered: time of registration; queue_seconds: from then until the request began; has_begun, has_grown: True once the
        engine has begun it, and once it had news
    """

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.call = cursor.handle.call
        self.entered = perf_counter()
        self.queue_seconds: float | None = None
        self.has_begun = self.has_grown = self.is_finished = False
        self._news: list[News] = []
        self._error: Exception | None = None
        self._event = asyncio.Event()

    @property
    def is_urgent(self) -> bool:
        """True if news is sent at once: a text has ended, or the first text has begun."""
        if self.call.outcomes:
            return True
        if self.has_grown or not self.cursor.grows:
            return False
        return any(
            isinstance(group.work, SequenceState) and group.work.tokens for group in list(self.call.groups.values())
        )

    def add_news(self, news: Sequence[News], *, is_finished: bool = False) -> None:
        """Add news, on the event loop. is_finished: no more will come"""
        self._news += news
        self.is_finished |= is_finished
        self._event.set()

    def end(self, error: Exception | None = None) -> None:
        """End `pieces`, with an optional error after the pending news."""
        self._error = error
        self.add_news((), is_finished=True)

    async def pieces(self, *, is_quick: bool) -> AsyncIterator[list[Piece]]:
        """Yield simultaneous pieces of the texts. Raises the error of a text, and Cancelled.

        is_quick: results of short texts are cheap enough for the event loop
        """
        loop, cursor = asyncio.get_running_loop(), self.cursor
        most = max(1, MAX_NEWS // (1 + int(cursor.handle.options.logprobs or 0)))
        while not self.is_finished or self._news:
            await self._event.wait()
            self._event.clear()
            news, self._news = self._news, []
            for at in range(0, len(news), most):
                if at:  # let others run while a slow reader catches up
                    await asyncio.sleep(0)
                several = news[at : at + most]
                is_slow = any(
                    isinstance(each, RequestOutput) and not (is_quick and each.tokens < QUICK_TOKENS)
                    for _, each in several
                )
                pieces = await loop.run_in_executor(None, cursor.read, several) if is_slow else cursor.read(several)
                if pieces:
                    yield pieces
        if self._error is not None:
            raise self._error
        cursor.check_all()


class Dispatcher:
    """Watches cursors of a started engine. Created on the event loop.

    The engine's thread collects news (`_on_step`), and the event loop distributes it (`_deliver`). There is one call
    between threads per step for all texts, and none for some of several fast steps.
    writing: number of unfinished texts; is_cut: True after `cut`, which also ends later ones
    """

    def __init__(self, engine: Engine, metrics: ModelMetrics) -> None:
        self._engine = engine
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._batches: set[CursorBatches] = set()
        self.writing = 0
        self.is_cut = False
        self._last_sent = 0.0
        self._lock = threading.Lock()
        engine.watch(self._on_step)

    def add(self, cursor: Cursor) -> CursorBatches:
        """Watch a cursor whose handle was submitted to the engine, from any thread."""
        arrivals = CursorBatches(cursor)
        with self._lock:
            self._batches.add(arrivals)
            self.writing += len(arrivals.call.requests)
            if self.is_cut:  # cut while it was submitted
                self._loop.call_soon_threadsafe(self.cut)
            if arrivals.call.outcomes and not arrivals.call.groups:  # there may be no further step for a while
                self._send([arrivals])
        return arrivals

    def cancel(self, arrivals: CursorBatches) -> None:
        """Cancel a handle. Its memory is released after the current step."""
        if arrivals.is_finished:  # usual, and needs no lock, which the engine's thread may hold
            return
        with self._lock:
            is_known = arrivals in self._batches
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
            return sum(len(each.call.requests) - each.call.next_number for each in self._batches)

    def close(self) -> None:
        """End all texts before the engine is closed."""
        self._engine.unwatch(self._on_step)
        self.cut()

    def cut(self) -> None:
        """End all present and later texts with an error."""
        with self._lock:
            self.is_cut = True
            several = list(self._batches)
            self._forget(several)
        for each in several:
            each.cursor.handle.cancel()
            each.end(Cancelled(CLOSED if self._engine.is_closed else SHUT_DOWN))

    def _on_step(self) -> None:
        """Collect news after a step, in the engine's thread; end all texts once the engine is closed."""
        if self._engine.is_closed:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self.cut)
            return
        self._metrics.step_seconds.observe(self._engine.step_seconds)
        self._collect()

    def _collect(self) -> None:
        """Collect the news of all texts, unless it can wait."""
        now = perf_counter()
        with self._lock:
            for each in self._batches:
                if not each.has_begun and each.call.next_number:
                    each.has_begun = True
                    each.queue_seconds = now - each.entered
                    self._metrics.queue_seconds.observe(each.queue_seconds)
            is_early = now - self._last_sent < SEND_INTERVAL and self._engine.step_seconds < SLOW_STEP_SECONDS
            if is_early and not any(each.is_urgent for each in self._batches):
                return
            if self._send(self._batches):
                self._last_sent = now

    def _send(self, several: Iterable[CursorBatches]) -> bool:
        """Pass news to the event loop, under the lock to keep its order."""
        updates = [(each, news, each.call.done) for each in several if (news := list(each.cursor.news()))]
        if not updates:
            return False
        self._forget([each for each, _, is_finished in updates if is_finished])
        for each, _, _ in updates:
            each.has_grown = True
        self._loop.call_soon_threadsafe(self._deliver, updates)
        return True

    def _forget(self, several: Sequence[CursorBatches]) -> None:
        """Stop watching, under the lock."""
        self._batches.difference_update(several)
        self.writing -= sum(len(each.call.requests) for each in several)

    def _deliver(self, updates: Sequence[tuple[CursorBatches, Sequence[News], bool]]) -> None:
        for arrivals, news, is_finished in updates:
            arrivals.add_news(news, is_finished=is_finished)
