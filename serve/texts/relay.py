"""Between the engine's thread and the event loop: after each step, one message with all that has become certain."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from time import perf_counter

from ...engine.decode.sequence import SequenceState
from ...engine.engine import Engine
from ...errors import Cancelled
from ..metrics import Metrics
from .run import Ended, News, Run

SHUT_DOWN = "the server is being shut down"
GATHERED = 1 / 60
"""Seconds between two messages about texts that only grow: no screen is drawn more often, and a message takes as long
as a small model does for a token or two. A text's beginning and its end are told at once."""
SLOW = 0.004
"""After a step of so many seconds all is told: beside that a message is little, and whoever reads sees each token."""
Found = Sequence[tuple[Run, Sequence[News], bool]]


class Relay:
    """Watches the runs of an engine that has been started. Made on the event loop.

    The engine's thread collects (`_stepped`), the event loop hands out (`_deliver`): one call between threads a step,
    however many texts there are, and none for each of several quick steps. writing: how many texts are on their way
    """

    def __init__(self, engine: Engine, metrics: Metrics) -> None:
        self._engine = engine
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._runs: set[Run] = set()
        self.writing = 0
        self._told = 0.0
        self._is_cut = False
        self._lock = threading.Lock()
        engine.watch(self._stepped)

    def add(self, run: Run) -> None:
        """Watch a run that has entered the engine, from any thread."""
        with self._lock:
            self._runs.add(run)
            self.writing += len(run.call.requests)
            if self._is_cut:  # while it was entering
                self._loop.call_soon_threadsafe(self.cut)
        if run.call.outcomes:  # it was finished before it was watched, perhaps by the last step for a while
            self._collect()

    def cancel(self, run: Run) -> None:
        """Let nothing more come of a run; its memory is free after the step that is under way."""
        if run.is_over:  # as most are, and the engine's thread may hold the lock while it waits for this one
            return
        with self._lock:
            is_known = run in self._runs
            if is_known:
                self._forget([run])
        if is_known:
            self._metrics.cancelled.inc()
            self._engine.cancel(run.call)
            run.end()

    @property
    def waiting(self) -> int:
        """How many texts have not begun."""
        with self._lock:
            return sum(len(run.call.requests) - run.call.begun for run in self._runs)

    def close(self) -> None:
        """End all runs, as the engine is closed."""
        self._engine.unwatch(self._stepped)
        self.cut()

    def cut(self) -> None:
        """End all runs with an error, and those that are still to come."""
        with self._lock:
            self._is_cut = True
            runs = list(self._runs)
            self._forget(runs)
        for run in runs:
            self._engine.cancel(run.call)
            run.tell([Ended(0, None, Cancelled(SHUT_DOWN))])
            run.end()

    def _stepped(self) -> None:
        """What the engine's thread does after each of its steps."""
        self._metrics.step_seconds.observe(self._engine.step_seconds)
        self._collect()

    def _collect(self) -> None:
        """Look what is new of all runs, if there is something that is to be told now."""
        now = perf_counter()
        with self._lock:
            for run in self._runs:
                if not run.has_begun and run.call.begun:
                    run.has_begun = True
                    self._metrics.queue_seconds.observe(now - run.entered)
            is_early = now - self._told < GATHERED and self._engine.step_seconds < SLOW
            if is_early and not any(_is_urgent(run) for run in self._runs):
                return
            found = [(run, news, run.call.done) for run in self._runs if (news := self._news_of(run))]
            self._forget([run for run, _, is_over in found if is_over])
            if found:  # under the lock, so that what was found first is told first
                self._told = now
                self._loop.call_soon_threadsafe(self._deliver, found)

    def _forget(self, runs: Sequence[Run]) -> None:
        """Watch these no more; under the lock."""
        self._runs.difference_update(runs)
        self.writing -= sum(len(run.call.requests) for run in runs)

    def _news_of(self, run: Run) -> list[News]:
        news: list[News] = []
        call = run.call
        if run.is_streamed:
            for entry in list(call.groups.values()):
                if isinstance(entry.work, SequenceState) and entry.work.error is None:
                    news += run.grown(entry.work)
        for number, outcome in list(self._engine.outcomes(call)):
            if outcome.error is not None:
                request = call.requests[number]
                news.append(Ended(request.number * run.texts + request.sample, None, outcome.error))
            for row in outcome.sequences:
                if run.is_streamed:
                    news += run.grown(row)
                news.append(Ended(run.index_of(row), row))
        return news

    def _deliver(self, found: Found) -> None:
        for run, news, is_over in found:
            run.tell(news)
            if is_over:
                run.end()


def _is_urgent(run: Run) -> bool:
    """Whether news of a run does not wait for more: a text is done, or is the first of them to begin."""
    if run.call.outcomes:
        return True
    if run.known or not run.is_streamed:
        return False
    return any(isinstance(entry.work, SequenceState) and entry.work.tokens for entry in list(run.call.groups.values()))
