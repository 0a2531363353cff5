"""A model of a server: its loading state, leases and expiry."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from ...checks import check_int, check_text, shown
from ...engine.models.protocol import Model
from ...errors import OptionError
from ..errors import ApiError
from ..service import Service
from ..telemetry import ModelMetrics


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """A model with its name on a server. Raises OptionError for invalid values.

    model: a function that loads the model on first use; or a loaded model, which is never unloaded
    aliases: further names; adapters: names of adapters, if known before loading
    weight_bytes: bytes of the weights, if known before loading
    """

    name: str
    model: Model | Callable[[], Model]
    aliases: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    weight_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in (self.name, *self.aliases, *self.adapters):
            check_text(name, "name")
            if not name:
                raise OptionError('name="": expected the name by which clients request the model')
        if not callable(self.model) and not hasattr(self.model, "vocabulary"):
            raise OptionError(f"model={shown(self.model)}: expected a model, or a function that loads one")
        if self.weight_bytes is not None:
            check_int(self.weight_bytes, "weight_bytes", 0)


class HostedModel:
    """The state of a served model, used on the event loop.

    service: service of the loaded model; None if it is not loaded; adapters: names of the model's adapters
    weight_bytes: bytes of the weights, measured (is_measured) or declared; bytes: with the KV cache, 0 if not loaded
    context: context of the model, known after the first loading; None for unbounded
    waiting: requests that wait for loading; loading: the loading task
    is_leaving: True if the model accepts no requests, since another one needs its memory
    failed: error of the last failed loading, and its time; used: time of the last lease or release (both monotonic)
    expires: time of unloading, in seconds since 1970; None for never
    """

    def __init__(self, served: ServedModel, metrics: ModelMetrics, on_idle: Callable[[HostedModel], None]) -> None:
        self.served = served
        self.metrics = metrics
        self.adapters: tuple[str, ...] = served.adapters or tuple(getattr(served.model, "adapters", ()))
        self.service: Service | None = None
        self.weight_bytes = served.weight_bytes or 0
        self.is_measured = False
        self.bytes = 0
        self.context: int | None = None
        self.has_been_loaded = False
        self.waiting: list[asyncio.Future[Service]] = []
        self.loading: asyncio.Task[None] | None = None
        self.is_leaving = False
        self.failed: tuple[str, float] | None = None
        self.used = 0.0
        self.expires: float | None = None
        self._leases = 0
        self._on_idle = on_idle
        self._expiry: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the model and of its adapters."""
        return (self.served.name, *self.served.aliases, *self.adapters)

    @property
    def is_fixed(self) -> bool:
        """True if the caller gave a loaded model, which is never unloaded."""
        return hasattr(self.served.model, "vocabulary")

    @property
    def is_idle(self) -> bool:
        """True if the model is loaded, without leases and unfinished sequences."""
        return self.service is not None and not (self._leases or self.service.texts)

    @property
    def state(self) -> str:
        """Loading state: "loaded", "loading" or "unloaded"."""
        if self.service is not None:
            return "loaded"
        return "unloaded" if self.loading is None else "loading"

    def lease(self) -> Service | None:
        """Return the service with a lease; None if the model is not loaded or accepts no requests."""
        if self.service is None or self.is_leaving:
            return None
        self._lease(1)
        return self.service

    def release(self) -> None:
        """Release a lease."""
        self._lease(-1)
        self.notify_idle()

    def notify_idle(self) -> None:
        """Call `on_idle` if the model is idle."""
        if self.is_idle:
            self.used = time.monotonic()
            self._on_idle(self)

    async def wait(self) -> Service:
        """Wait for loading. Return the service with a lease. Raises ApiError if loading fails."""
        future = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        try:
            return await future
        except asyncio.CancelledError:
            if future in self.waiting:
                self.waiting.remove(future)
            elif future.done() and not future.cancelled() and future.exception() is None:
                self.release()
            raise

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task, and keep a reference to it until it ends."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def set_weight_bytes(self, weights: int) -> None:
        """Store the measured bytes of the weights."""
        self.weight_bytes, self.is_measured = weights, True

    def mark_loaded(self, service: Service) -> None:
        """Mark the model as loaded, and give leases to waiting requests."""
        self.service = service
        self.metrics.loaded.set(1)
        self.metrics.hold(weights=self.weight_bytes)
        self.accept()

    def accept(self) -> None:
        """Accept requests again, waiting ones first."""
        assert self.service is not None
        self.is_leaving = False
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            if not each.done():
                self._lease(1)
                each.set_result(self.service)
        self.notify_idle()

    def refuse(self, error: Callable[[], ApiError]) -> None:
        """Fail waiting requests, each with a new error."""
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            if not each.done():
                each.set_exception(error())

    def mark_unloaded(self) -> None:
        """Mark the model as unloaded."""
        self._cancel_expiry()
        self.service, self.bytes, self.is_leaving = None, 0, False
        self.metrics.loaded.set(0)
        self.metrics.hold(held=0, kept=0, room=0, weights=0)

    def expire(self, seconds: float, end: Callable[[], None]) -> None:
        """Call a function after a number of seconds, unless a request takes the model before."""
        self._cancel_expiry()
        self.expires = time.time() + seconds
        self._expiry = asyncio.get_running_loop().call_later(seconds, end)

    def _lease(self, count: int) -> None:
        self._cancel_expiry()
        self._leases += count
        self.used = time.monotonic()

    def _cancel_expiry(self) -> None:
        """Cancel the expiry."""
        self.expires = None
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
