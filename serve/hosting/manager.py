"""The model manager: loads models on first use, and unloads the least recently used idle ones within a memory budget.

A request holds a lease of its model (`HostedModel.lease`). A model with a lease or a running sequence is not unloaded.
Models are loaded one at a time, in a thread, in order of their first requests. A model that has to make room accepts no
more requests. These wait until it is loaded again, so that no client can starve others.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import ceil

from ...engine.memory.pool import free_bytes, shown_size
from ...engine.memory.weights import held_bytes
from ...engine.models.protocol import Model
from ...errors import Cancelled, OptionError, TrellmError
from ..cluster.loading import unpack_model
from ..errors import SERVER, ApiError, api_error, busy
from ..service import Service
from ..settings import MEDIA_BODY, Settings
from ..telemetry import Metrics
from ..trimming import collect
from .hosted import HostedModel, ServedModel
from .shared import SharedState

SHUT_DOWN = "the server is being shut down"
_LOG = logging.getLogger("trellm.serve")


class ModelManager:
    """The models of a server, used on the event loop from `begin` on. Raises OptionError for duplicate names.

    served: the models; the first one is the default, which `begin` loads
    memory: bytes of the KV cache of each model; by default equal parts of half the budget, if there is a budget
    memory_budget: bytes of the weights and KV caches of all loaded models; by default all free memory for several
        models, and unbounded for one
    shared: state that `begin` creates; is_draining: True if new requests are refused; is_cut: True after `cut`
    """

    shared: SharedState

    def __init__(
        self,
        served: Sequence[ServedModel],
        settings: Settings,
        metrics: Metrics,
        memory: int | None = None,
        memory_budget: int | None = None,
    ) -> None:
        self.settings = settings
        self.metrics = metrics
        self.models = [HostedModel(each, metrics.of(each.name), self._on_idle) for each in served]
        self.is_draining = self.is_cut = False
        self._memory = memory
        self._budget = memory_budget
        self._preloaded: Model | None = None
        self._loader: ThreadPoolExecutor
        self._lock: asyncio.Lock
        self._changed: asyncio.Event
        self._waiting = 0
        self._check_names()

    @property
    def first(self) -> HostedModel:
        """The default model."""
        return self.models[0]

    @property
    def body_bytes(self) -> int:
        """Size limit in bytes of a body before its model is known."""
        known = [each.service and each.service.body_bytes for each in self.models]
        return self.settings.body_bytes or max(MEDIA_BODY if each is None else each for each in known)

    @property
    def held(self) -> int:
        """Bytes of the weights and KV caches of all loaded models."""
        return sum(each.bytes for each in self.models if each.service is not None)

    def preload(self) -> None:
        """Load the first model unless it is loaded. Raises the errors of loading; OptionError if it does not fit."""
        if self._preloaded is not None or self.first.service is not None:
            return
        model, weights = _load(self.first.served)
        if self._budget is None and len(self.models) > 1:
            free = free_bytes(getattr(model, "device", None))
            self._budget = None if free is None else free + weights
        self.first.set_weight_bytes(weights)
        try:
            self._check_fits(self.first)
        except ApiError as error:
            raise OptionError(str(error)) from None
        self._preloaded = model

    async def begin(self) -> None:
        """Load the first model and start serving. Raises the errors of `preload`."""
        self.preload()
        assert self._preloaded is not None
        model, self._preloaded = self._preloaded, None
        self.is_cut = False
        self.shared = SharedState(self.settings, self.metrics)
        self._loader = ThreadPoolExecutor(1, "trellm loading")
        self._lock, self._changed = asyncio.Lock(), asyncio.Event()
        self._serve(self.first, model)

    async def close(self) -> None:
        """End all requests, and close the models."""
        self.cut()
        self._loader.shutdown(wait=True, cancel_futures=True)
        self.shared.close()
        for hosted in self.models:
            if hosted.service is not None:
                service, hosted.service = hosted.service, None
                await service.stop_trimmer()
                service.close()

    def cut(self) -> None:
        """End all requests with an error."""
        self.is_cut = True
        for hosted in self.models:
            hosted.refuse(lambda: api_error(Cancelled(SHUT_DOWN)))
            if hosted.service is not None:
                hosted.service.cut()

    def find(self, name: str | None) -> HostedModel:
        """Return the model of a name; None is the default. Raises ApiError for an unknown name, and while draining."""
        if self.is_draining:
            raise ApiError(
                SHUT_DOWN, status=503, kind=SERVER, code="shutting_down", headers={"Retry-After": "5"}
            )  # fmt: skip
        return self.first if name is None else self.named(name)

    def named(self, name: str) -> HostedModel:
        """Return the model of a name. Raises ApiError for an unknown name."""
        model = next((each for each in self.models if name in each.names), None)
        if model is None:
            names = ", ".join(repr(name) for each in self.models for name in (each.served.name, *each.adapters))
            message = f"the model {name[:200]!r} does not exist; the server has {names}"
            raise ApiError(message, ("model",), status=404, code="model_not_found")
        return model

    def unload(self, hosted: HostedModel) -> None:
        """Start to unload a model whose expiry has passed, unless a request takes it before."""
        hosted.begin(self._unload_idle(hosted))

    async def _unload_idle(self, hosted: HostedModel) -> None:
        async with self._lock:
            if hosted.is_idle and hosted.expires is not None:
                await self._unload(hosted)

    async def load(self, hosted: HostedModel) -> Service:
        """Load a model, or wait for its loading. Return the service with a lease. Raises ApiError."""
        if hosted.failed is not None and time.monotonic() - hosted.failed[1] < self.settings.retry_seconds:
            raise _not_loaded_error(hosted.served.name, hosted.failed[0], self.settings)
        if self._waiting >= self.settings.loading:
            self.metrics.refuse("loading")
            raise busy(f"models at capacity ({self._waiting} requests wait for one to be loaded); try again", 5)
        self._waiting += 1
        try:
            waiting = hosted.wait()
            if hosted.loading is None:
                hosted.loading = hosted.begin(self._load_for_waiting(hosted))
            return await waiting
        finally:
            self._waiting -= 1
            self._changed.set()

    async def _load_for_waiting(self, hosted: HostedModel) -> None:
        """Load a model if requests wait for it, and start or fail these requests."""
        try:
            async with self._lock:
                if hosted.waiting:
                    await self._load(hosted)
        except ApiError as error:
            hosted.refuse(partial(_copy_error, error))
        except Exception as error:  # a failed loading does not affect other models
            _LOG.warning("the model %r could not be loaded", hosted.served.name, exc_info=error)
            reason = str(error) if isinstance(error, TrellmError) else f"{type(error).__name__}: {error}"
            hosted.failed = reason, time.monotonic()
            hosted.refuse(partial(_not_loaded_error, hosted.served.name, reason, self.settings))
        finally:
            hosted.loading = None

    async def _load(self, hosted: HostedModel) -> None:
        """Load a model, with the lock held. Make room before by the known size, and after by the measured one."""
        if hosted.is_measured:
            self._check_fits(hosted)
        if not await self._make_room(hosted, self._needed_bytes(hosted)):
            return
        began = time.perf_counter()
        model, weights = await asyncio.get_running_loop().run_in_executor(self._loader, _load, hosted.served)
        hosted.set_weight_bytes(weights)
        try:
            self._check_fits(hosted)
            if await self._make_room(hosted, self._needed_bytes(hosted)):
                self._serve(hosted, model)
                hosted.metrics.load_seconds.observe(time.perf_counter() - began)
        finally:
            del model
            if hosted.service is None and not self.is_cut:
                await asyncio.get_running_loop().run_in_executor(self._loader, collect)

    def _serve(self, hosted: HostedModel, model: Model) -> None:
        """Create the service of a loaded model. Raises OptionError for duplicate names of adapters."""
        before, hosted.adapters = hosted.adapters, tuple(getattr(model, "adapters", ()))
        try:
            self._check_names()
        except OptionError:
            hosted.adapters = before
            raise
        hosted.context, hosted.failed, hosted.has_been_loaded = model.context, None, True
        service = Service(
            hosted.served.name, model, self.shared, hosted.metrics, memory=self._pool_bytes,
            kept_bytes=max(1, self.settings.kept_bytes // len(self.models)), on_idle=hosted.notify_idle,
        )  # fmt: skip
        hosted.bytes = hosted.weight_bytes + service.engine.memory_bytes
        hosted.mark_loaded(service)

    @property
    def _pool_bytes(self) -> int | None:
        """Bytes of each model's KV cache; None for the engine's default."""
        if self._memory is not None or self._budget is None:
            return self._memory
        return self._budget // (2 * len(self.models))

    def _needed_bytes(self, hosted: HostedModel) -> int:
        """Return the known bytes of a model's weights, and of its KV cache."""
        return hosted.weight_bytes + (self._pool_bytes or 0)

    def _check_fits(self, hosted: HostedModel) -> None:
        """Raise ApiError if a measured model can never fit into the budget."""
        fixed = sum(each.bytes for each in self.models if each.is_fixed and each is not hosted)
        if self._budget is None or self._needed_bytes(hosted) + fixed <= self._budget:
            return
        others = f", besides {shown_size(fixed)} of models that are never unloaded" if fixed else ""
        raise ApiError(
            f"the model {hosted.served.name!r} takes {shown_size(hosted.weight_bytes)}, with "
            f"{shown_size(self._pool_bytes or 0)} for keys and values{others}, and the memory budget is "
            f"{shown_size(self._budget)}; give the server a larger --memory-budget, or less --memory",
            status=507, kind=SERVER, code="insufficient_memory",
        )  # fmt: skip

    async def _make_room(self, hosted: HostedModel, needed: int) -> bool:
        """Unload other models until a model fits, or none is left. Return False if no request waits for the model.

        needed: bytes. Idle models go first, the least recently used one first; others once they are idle.
        """
        while self._budget is not None and self.held + needed > self._budget:
            others = [each for each in self.models if each.service is not None and not each.is_fixed]
            if not others:
                break
            other = min(others, key=lambda each: (not each.is_idle, each.used))
            other.is_leaving = True
            while hosted.waiting and not other.is_idle:
                self._changed.clear()
                await self._changed.wait()
            if not hosted.waiting:
                other.accept()
                return False
            await self._unload(other)
        return bool(hosted.waiting)

    async def _unload(self, hosted: HostedModel) -> None:
        """Unload an idle model, with the lock held."""
        assert hosted.service is not None
        held = [hosted.service]
        hosted.mark_unloaded()
        await held[0].stop_trimmer()
        await asyncio.get_running_loop().run_in_executor(self._loader, _end, held)

    def _on_idle(self, hosted: HostedModel) -> None:
        """Wake waiting loads after a model became idle, and start its expiry."""
        self._changed.set()
        seconds = None if hosted.service is None else hosted.service.keep_alive
        if hosted.service is not None and seconds is not None and not hosted.is_fixed:
            hosted.expire(seconds, partial(self.unload, hosted))

    def _check_names(self) -> None:
        """Raise OptionError for a duplicate name of models or adapters."""
        for name, count in Counter(self._names()).items():
            if count > 1:
                is_adapter = any(name in each.adapters for each in self.models)
                what = f"the adapter {name!r} has the name of a model" if is_adapter else f"{name!r} is given twice"
                raise OptionError(f"{what}; choose another name")

    def _names(self) -> Iterator[str]:
        for each in self.models:
            yield from each.names


def _load(served: ServedModel) -> tuple[Model, int]:
    """Load a model and compute its vocabulary. Return the model, and the bytes of its weights."""
    try:
        model = unpack_model(served.model)
        _ = model.vocabulary
        return model, held_bytes(model)
    except (StopIteration, SystemExit) as error:  # futures refuse StopIteration; SystemExit would end the server
        raise RuntimeError(repr(error)) from error


def _end(held: list[Service]) -> None:
    """Close the service in a list, and free its memory. The list has the only reference to the service."""
    held.pop().close()
    collect()


def _not_loaded_error(name: str, reason: str, settings: Settings) -> ApiError:
    message = f"the model {name!r} could not be loaded: {reason}"
    headers = {"Retry-After": str(ceil(settings.retry_seconds))}
    return ApiError(message, status=503, kind=SERVER, code="model_not_loaded", headers=headers)


def _copy_error(error: ApiError) -> ApiError:
    """Return a copy of an error for another request, since requests rename fields in errors."""
    return ApiError(str(error), status=error.status, kind=SERVER, code=error.error["code"])
