"""The server and batches on many machines with Ray, which is imported on first use. See docs/scale.md.

run(deployment("Qwen/Qwen3-8B", replicas=(1, 8), gpus=1))
"""

from __future__ import annotations

import logging
import math
import os
import signal
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

from ..checks import check_int, check_number
from ..errors import OptionError
from .cluster.loading import ModelSource, pack_model, ray
from .cluster.replica import Replica
from .cluster.router import Router
from .cluster.rows import Generate
from .settings import Settings

__all__ = ["Generate", "build", "deployment", "run"]

ROUTER = "trellm.serve.cluster.router.PrefixRouter"
MAX_REPLICAS = 1 << 16
DOOR_REQUESTS = 4096
DOOR_CPUS = 0.5
ON_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""A variable of Ray. With 0, Ray uses 127.0.0.1 as this machine's address, and listens there."""
_LOG = logging.getLogger("trellm.serve")


@dataclass(frozen=True)
class ResourceNeeds:
    """The resources an application needs to start: its least number of replicas, and its doors."""

    replicas: int
    doors: int
    cpus: float
    gpus: float
    door_cpus: float

    def lack(self, available: Mapping[str, float]) -> str | None:
        """Describe missing resources; None if nothing is missing. available: amounts by name, "CPU" and "GPU" in Ray"""
        for name, each, door in (("CPU", self.cpus, self.door_cpus), ("GPU", self.gpus, 0.0)):
            needed = self.replicas * each + self.doors * door
            if needed > available.get(name, 0):
                doors = f" and {door:g} for each of {self.doors} routers" if door else ""
                return (
                    f"{each:g} {name}s for each of {self.replicas} replicas{doors} are {needed:g}, but Ray has "
                    f"{available.get(name, 0):g}: use fewer --replicas, or less for each, such as "
                    f"--{name.lower()}s {each / 2:g}"
                )
        return None


_needs: WeakKeyDictionary[Any, ResourceNeeds] = WeakKeyDictionary()


def deployment(
    model: ModelSource = None,
    settings: Settings | None = None,
    *,
    replicas: int | tuple[int, int] = 1,
    in_flight: int = 64,
    queued: int = 1024,
    doors: int = 1,
    tries: int = 3,
    cpus: float = 1,
    gpus: float = 0,
    memory: int | None = None,
    **loading: Any,
) -> Any:
    """Return an application of Ray Serve: replicas of the server of `trellm.serve.application`, behind doors.

    model: a name or folder for transformers, resolved on the replicas' machines; a model, which each replica loads
        again; a function that makes one; by default the small model. loading: device, dtype, weights, kv_cache_dtype
        and adapters as for `models.transformers`, for models given by name
    replicas: their number, or bounds between which Ray chooses by load
    in_flight: concurrent requests of a replica; replicas are added beyond half of them on average
    queued: requests of a door that may wait for a replica, before 429
    doors: processes that read requests and forward them. Requests with equal prefixes go to the same replica, unless it
        has a quarter more than its share. tries: number of replicas that a request is given to if they are lost
    cpus, gpus: reserved for each replica; memory: bytes of the KV cache of each

    Raises OptionError.
    """
    chosen = Settings() if settings is None else settings
    least, most = _counts(replicas)
    if (least, most) != (1, 1):  # a continued response may reach another replica
        chosen = replace(chosen, response_bytes=0)
    check_int(in_flight, "in_flight")
    check_int(queued, "queued")
    check_int(doors, "doors", 1, MAX_REPLICAS)
    check_int(tries, "tries", 1, 16)
    for name, value in (("cpus", cpus), ("gpus", gpus)):
        if check_number(value, name, "a number of at least 0") < 0:
            raise OptionError(f"{name}={value!r}: expected a number of at least 0")
    packed_model = pack_model(model, **loading)
    serve = ray("ray.serve")
    replica = serve.deployment(Replica).options(
        name="replica",
        max_ongoing_requests=in_flight,
        max_queued_requests=queued,
        ray_actor_options={"num_cpus": cpus, "num_gpus": gpus},
        request_router_config={"request_router_class": ROUTER},
        graceful_shutdown_timeout_s=chosen.drain_seconds,
        **_scaling(least, most, in_flight),
    )
    needs = ResourceNeeds(least, doors, cpus, gpus, min(DOOR_CPUS, cpus))
    router = serve.deployment(Router).options(
        name="door",
        num_replicas=doors,
        max_ongoing_requests=DOOR_REQUESTS,
        ray_actor_options={"num_cpus": needs.door_cpus},
        graceful_shutdown_timeout_s=chosen.drain_seconds,
    )
    app = router.bind(replica.bind(packed_model, replace(chosen, access_log=False), memory), chosen, tries)
    _needs[app] = needs
    return app


def _scaling(least: int, most: int, in_flight: int) -> dict[str, Any]:
    """Return the options of Ray Serve for a fixed or bounded number of replicas."""
    if least == most:
        return {"num_replicas": least}
    limits = {"min_replicas": least, "max_replicas": most, "target_ongoing_requests": max(1, in_flight // 2)}
    return {"autoscaling_config": limits}


def build(arguments: Mapping[str, Any]) -> Any:
    """Return a `deployment` for a config file of Ray Serve: `import_path: trellm.serve.ray:build`.

    replicas: a number, or a list of two; settings: a mapping by the names of `Settings`. Raises OptionError.
    """
    options = dict(arguments)
    settings = options.pop("settings", None)
    if isinstance(options.get("replicas"), list):
        options["replicas"] = tuple(options["replicas"])
    try:
        return deployment(settings=None if settings is None else Settings(**settings), **options)
    except TypeError as error:
        raise OptionError(f"the arguments of trellm.serve.ray:build: {error}") from None


def run(application: Any, *, host: str = "127.0.0.1", port: int = 8000, name: str = "trellm") -> None:
    """Serve an application of `deployment` until SIGTERM or Ctrl-C, on the cluster that Ray finds, or on this machine.

    Running requests are finished first. A Ray instance started here listens on 127.0.0.1, whatever the host.
    Raises OptionError for an invalid port, and if this machine has less than the application reserves.
    """
    stopped = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stopped.set()

    before = {each: signal.signal(each, on_signal) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        started = start(application, host=host, port=port, name=name)
        stopped.wait()
        stop(name, started)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def start(application: Any, *, host: str = "127.0.0.1", port: int = 8000, name: str = "trellm") -> bool:
    """Start serving, and return once replicas are ready. Return True if this process connected to Ray for it."""
    library, serve = ray(), ray("ray.serve")
    needs = _needs.get(application)
    is_new = not library.is_initialized()
    if is_new and not _join(library):
        _begin(library, needs)
    elif needs is not None and (lack := needs.lack(library.cluster_resources())) is not None:
        _LOG.warning("replicas wait until the cluster grows: %s", lack)
    serve.start(http_options={"host": host, "port": check_int(port, "port", 1, 65535)})
    serve.run(application, name=name, route_prefix="/")
    return is_new


def _join(library: Any) -> bool:
    """Join the cluster that Ray finds. Return False if there is none."""
    try:
        library.init(address="auto", logging_level="warning")
    except ConnectionError:
        return False
    return True


def _begin(library: Any, needs: ResourceNeeds | None) -> None:
    """Start Ray for this process. Raises OptionError if resources are missing."""
    doors = 0 if needs is None else math.ceil(needs.doors * needs.door_cpus)
    # doors have little to do, and do not take processors from replicas
    cpus = int(ray("ray._private.utils").get_num_cpus()) + doors
    _check(needs, {"CPU": cpus, "GPU": math.inf})
    os.environ[ON_LOOPBACK] = "0"
    ray("ray._private.ray_constants").ENABLE_RAY_CLUSTER = False  # it was read when Ray was imported
    # The dashboard would run arbitrary code for anyone.
    library.init(address="local", num_cpus=cpus, include_dashboard=False, logging_level="warning")
    try:
        _check(needs, library.cluster_resources())
    except OptionError:
        library.shutdown()
        raise


def _check(needs: ResourceNeeds | None, available: Mapping[str, float]) -> None:
    if needs is not None and (lack := needs.lack(available)) is not None:
        raise OptionError(lack)


def stop(name: str, is_all: bool) -> None:
    """Stop an application, and Ray Serve if it serves no other. is_all: also disconnect this process from Ray"""
    library, serve = ray(), ray("ray.serve")
    serve.delete(name)
    if not serve.status().applications:
        serve.shutdown()
    if is_all:
        library.shutdown()


def _counts(replicas: Any) -> tuple[int, int]:
    if isinstance(replicas, tuple):
        pair: Any = replicas  # pyright: ignore[reportUnknownVariableType]
        if len(pair) != 2:
            raise OptionError(f"replicas={pair!r}: expected a number, or a pair (least, most)")
        least, most = (
            check_int(pair[0], "replicas[0]", 0, MAX_REPLICAS),
            check_int(pair[1], "replicas[1]", 1, MAX_REPLICAS),
        )
        if least > most:
            raise OptionError(f"replicas={pair!r}: expected (least, most) with least <= most")
        return least, most
    count = check_int(replicas, "replicas", 1, MAX_REPLICAS)
    return count, count
