"""A replica of Ray Serve is killed under load: what is lost, what is given to another replica, and what Ray costs.

    python benchmarks/ray_serve.py [--requests 300] [--clients 8] [--save]

Two replicas of the small model on this machine; clients on the loopback address, each with one request at a time, a
quarter of them streams, half of them JSON by a schema. When a third of the requests are answered one replica is killed.
Three runs: without a kill, with one, and with one where the door tries a request once, as Ray Serve by itself would.
Then the time of one small request at a time, through Ray and without it. Needs ray[serve].
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import httpx
from recording import save, show
from serving_process import free_port, ours, started

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "paid": {"type": "boolean"}},
    "required": ["name", "paid"],
}
LONGEST = 120.0


@dataclass
class Outcome:
    """What became of requests. broken: streams that ended with an event that says so; failed: all else but 200"""

    answered: int = 0
    streams: int = 0
    again: int = 0
    broken: int = 0
    failed: int = 0
    invalid: int = 0
    refused: dict[str, int] = field(default_factory=dict[str, int])
    seconds: list[float] = field(default_factory=list[float])


def body_of(number: int) -> dict[str, Any]:
    """A request: a passage of its own and up to 48 tokens."""
    text = f"On {number % 28 + 1} March 2021, customer {number} bought {number * 7 % 50} kettles from Velmor Trading. "
    asked: dict[str, Any] = {"model": "small", "prompt": text * 3, "max_tokens": 48, "stream": number % 4 == 0}
    if number % 2:
        asked |= {"response_format": {"type": "json_schema", "json_schema": {"name": "bill", "schema": SCHEMA}}}
    return asked


async def ask(client: httpx.AsyncClient, number: int, outcome: Outcome) -> None:
    """One request, and what becomes of it."""
    body = body_of(number)
    begun = time.perf_counter()
    try:
        async with client.stream("POST", "/v1/completions", json=body) as answer:
            data = (await answer.aread()).decode()
    except httpx.HTTPError as error:
        outcome.failed += 1
        name = type(error).__name__
        outcome.refused[name] = outcome.refused.get(name, 0) + 1
        return
    outcome.seconds.append(time.perf_counter() - begun)
    outcome.again += answer.headers.get("x-trellm-tries", "1") != "1"
    if answer.status_code != 200:
        outcome.failed += 1
        name = str(answer.status_code)
        outcome.refused[name] = outcome.refused.get(name, 0) + 1
    elif body["stream"] and '"replica_lost"' in data:
        outcome.broken += 1
    elif body["stream"]:
        outcome.streams += 1
        outcome.invalid += not data.endswith("data: [DONE]\n\n")
    else:
        outcome.answered += 1
        text = json.loads(data)["choices"][0]["text"]
        outcome.invalid += bool(number % 2) and not isinstance(json.loads(text), dict)


async def load(url: str, requests: int, clients: int, kill: Any) -> Outcome:
    """So many requests by so many clients; `kill` is called once a third of them are answered."""
    outcome = Outcome()
    numbers = iter(range(requests))
    left = kill

    async def work(client: httpx.AsyncClient) -> None:
        nonlocal left
        for number in numbers:
            if left is not None and number >= requests // 3:
                left, chosen = None, left
                await asyncio.to_thread(chosen)
            await ask(client, number, outcome)

    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(base_url=url, timeout=LONGEST, limits=limits) as client:
        await asyncio.gather(*(work(client) for _ in range(clients)))
    return outcome


def replicas(ray: Any) -> list[Any]:
    """The actors that have a model."""
    names = [each["name"] for each in ray.util.list_named_actors(all_namespaces=True)]
    return [ray.get_actor(name, namespace="serve") for name in names if "#replica#" in name]


async def one_by_one(urls: Sequence[str], count: int = 100) -> list[float]:
    """The median milliseconds of one small request at a time, of servers that are asked in turn."""
    body = {"model": "small", "prompt": "The bill", "max_tokens": 1, "temperature": 0}
    found: list[list[float]] = [[] for _ in urls]
    async with httpx.AsyncClient(timeout=LONGEST) as client:
        for _ in range(count):
            for url, times in zip(urls, found, strict=True):
                begun = time.perf_counter()
                (await client.post(f"{url}/v1/completions", json=body)).raise_for_status()
                times.append(1000 * (time.perf_counter() - begun))
    return [statistics.median(times[10:]) for times in found]


def beside(url: str) -> list[float]:
    """The same of a server behind Ray, and of one by itself in a process beside it, of one thread as replicas are."""
    with started(*ours(None, "--name", "small")) as alone:
        return asyncio.run(one_by_one([url, f"http://127.0.0.1:{alone.port}"]))


def measured(name: str, tries: int, is_killed: bool, requests: int, clients: int) -> dict[str, Any]:
    """One run, and how long it takes until there are two replicas again."""
    ray: Any = import_module("ray")
    cluster: Any = import_module("trellm.serve.ray")
    serve: Any = import_module("ray.serve")
    port = free_port()
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    cluster.start(cluster.deployment(replicas=2, cpus=0, in_flight=32, tries=tries), host="127.0.0.1", port=port)
    url = f"http://127.0.0.1:{port}"
    asyncio.run(load(url, 4 * clients, clients, None))  # loads what is loaded late
    killed = 0.0

    def kill() -> None:
        nonlocal killed
        killed = time.perf_counter()
        ray.kill(replicas(ray)[0], no_restart=True)

    begun = time.perf_counter()
    found = asyncio.run(load(url, requests, clients, kill if is_killed else None))
    seconds = time.perf_counter() - begun
    while is_killed and len(replicas(ray)) < 2 and time.perf_counter() - killed < LONGEST:
        time.sleep(0.2)
    recovered = time.perf_counter() - killed if is_killed else 0.0
    through, alone = beside(url) if not is_killed else (0.0, 0.0)
    cluster.stop("trellm", False)
    serve.shutdown()
    latency = sorted(found.seconds)
    row: dict[str, Any] = {
        "run": name,
        "requests": requests,
        "answered": found.answered,
        "streams": found.streams,
        "given_again": found.again,
        "streams_broken": found.broken,
        "failed": found.failed,
        "as": " ".join(f"{kind}:{count}" for kind, count in found.refused.items()),
        "invalid": found.invalid,
        "seconds": round(seconds, 1),
        "p50_ms": round(1000 * latency[len(latency) // 2]),
        "p99_ms": round(1000 * latency[int(len(latency) * 0.99)]),
        "two_again_s": round(recovered, 1) if is_killed else "",
        "one_ms": round(through, 2) if not is_killed else "",
        "one_without_ray_ms": round(alone, 2) if not is_killed else "",
    }
    print(row, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--save", action="store_true")
    given = parser.parse_args()
    ray: Any = import_module("ray")
    ray.init(num_cpus=2, object_store_memory=100 << 20, include_dashboard=False, logging_level="warning",
             log_to_driver=False, _node_ip_address="127.0.0.1")  # fmt: skip
    runs = [("no kill", 3, False), ("a replica killed", 3, True), ("a replica killed, tried once", 1, True)]
    rows: list[dict[str, Any]] = []
    try:
        for name, tries, is_killed in runs:
            rows.append(measured(name, tries, is_killed, given.requests, given.clients))
            if given.save:
                save("ray_serve", rows, ["ray", "torch", "transformers", "numba"])
    finally:
        ray.shutdown()
    show(rows)


if __name__ == "__main__":
    main()
