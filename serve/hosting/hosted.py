"""A model of a server: how it is loaded, and, where it is in memory, who uses it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from ...checks import shown, text_of, whole
from ...engine.models.protocol import Model
from ...errors import OptionError
from ..errors import ApiError
from ..service import Service
from ..telemetry import ModelMetrics


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """A model that a server has by a name. Raises OptionError for values that are none.

    model: a function that loads it, when it is first asked for; or a model, which is never unloaded
    aliases: further names; adapters: names of its adapters, which else are known when it has been loaded
    weight_bytes: of its weights, as far as is known before
    """

    name: str
    model: Model | Callable[[], Model]
    aliases: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    weight_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in (self.name, *self.aliases, *self.adapters):
            text_of(name, "name")
            if not name:
                raise OptionError('name="": what clients call the model')
        if not callable(self.model) and not hasattr(self.model, "vocabulary"):
            raise OptionError(f"model={shown(self.model)}: a model, or a function that loads one")
        if self.weight_bytes is not None:
            whole(self.weight_bytes, "weight_bytes", 0)


class HostedModel:
    """Used on the event loop.

    service: of the model, where it is in memory; adapters: names of its adapters
    weight_bytes: as measured (is_measured), or as known before; bytes: with keys and values, where it is in memory
    context: of a model that has been loaded once; None for one without a limit
    waiting: requests that wait until it is loaded; loading: the task that brings it
    is_leaving: whether it takes no more requests, since another model needs its memory
    failed: why it could not be loaded the last time, and when; used: when a request last took or left it
    expires: when it is to be unloaded, in seconds since 1970; None for no such time
    """

    def __init__(self, served: ServedModel, metrics: ModelMetrics, rested: Callable[[HostedModel], None]) -> None:
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
        self._rested = rested
        self._expiry: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the model, and those of its adapters."""
        return (self.served.name, *self.served.aliases, *self.adapters)

    @property
    def is_fixed(self) -> bool:
        """True where the model was given as such, which who gave it holds."""
        return hasattr(self.served.model, "vocabulary")

    @property
    def is_idle(self) -> bool:
        """True where it is in memory for nobody."""
        return self.service is not None and not (self._leases or self.service.texts)

    @property
    def state(self) -> str:
        """Name of its state: "loaded", "loading" or "unloaded"."""
        if self.service is not None:
            return "loaded"
        return "unloaded" if self.loading is None else "loading"

    def take(self) -> Service | None:
        """The service with a lease, where there is one that takes requests."""
        if self.service is None or self.is_leaving:
            return None
        self._lease(1)
        return self.service

    def give_back(self) -> None:
        """End a lease."""
        self._lease(-1)
        self.rest()

    def rest(self) -> None:
        """Tell that it is idle, where it is."""
        if self.is_idle:
            self.used = time.monotonic()
            self._rested(self)

    async def wait(self) -> Service:
        """The service with a lease, when the model is loaded. Raises ApiError."""
        future = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        try:
            return await future
        except asyncio.CancelledError:
            if future in self.waiting:
                self.waiting.remove(future)
            elif future.done() and not future.cancelled() and future.exception() is None:
                self.give_back()
            raise

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task about the model, held until it ends."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def measured(self, weights: int) -> None:
        """Know the bytes of its weights."""
        self.weight_bytes, self.is_measured = weights, True

    def put(self, service: Service) -> None:
        """Have the model in memory, and let those run that wait for it."""
        self.service = service
        self.metrics.loaded.set(1)
        self.metrics.hold(weights=self.weight_bytes)
        self.stay()

    def stay(self) -> None:
        """Take requests, those that wait first."""
        assert self.service is not None
        self.is_leaving = False
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            if not each.done():
                self._lease(1)
                each.set_result(self.service)
        self.rest()

    def refuse(self, error: Callable[[], ApiError]) -> None:
        """Tell those that wait an error, each its own."""
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            if not each.done():
                each.set_exception(error())

    def take_away(self) -> None:
        """Have the model in memory no longer."""
        self._keep()
        self.service, self.bytes, self.is_leaving = None, 0, False
        self.metrics.loaded.set(0)
        self.metrics.hold(held=0, kept=0, room=0, weights=0)

    def expire(self, seconds: float, end: Callable[[], None]) -> None:
        """Call a function after some time, unless a request comes meanwhile."""
        self._keep()
        self.expires = time.time() + seconds
        self._expiry = asyncio.get_running_loop().call_later(seconds, end)

    def _lease(self, count: int) -> None:
        self._keep()
        self._leases += count
        self.used = time.monotonic()

    def _keep(self) -> None:
        """Let no time end it."""
        self.expires = None
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
