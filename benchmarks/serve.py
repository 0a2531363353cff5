"""What HTTP costs: requests to `trellm serve` beside the same texts on the engine alone, in one process each.

    python benchmarks/serve.py [--clients 1,8,64] [--seconds 8]

Requests arrive at random times, as many a second as `clients` busy ones would send (open arrivals: nobody waits for an
answer before asking again), to the loopback address, for a bounded time. Every text has 32 tokens under one pattern.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import httpx
from trellm import Engine, Sample, generate, models

TOKENS = 32
PATTERN = r"[a-z ]{40,}"
PROMPT = "Write a sentence with the words kettle, paid.\nAnswer: "
MOST_REQUESTS = 2000


def engine_seconds(count: int, together: int) -> float:
    """Seconds for each text on the engine alone, so many at once."""
    model = models.small()
    generator = generate.regex(model, PATTERN)
    options = {"max_tokens": TOKENS, "search": Sample()}
    with Engine(model).start() as engine:
        engine.submit(generator, PROMPT, **options).result()
        begin = time.perf_counter()
        for _ in range(max(1, count // together)):
            engine.submit(generator, [PROMPT] * together, batch_size=together, **options).result()
        return (time.perf_counter() - begin) / (max(1, count // together) * together)


async def one(client: httpx.AsyncClient, stream: bool) -> tuple[int, float]:
    """The status of a request, and how many seconds it took."""
    body = {"model": "small", "prompt": PROMPT, "regex": PATTERN, "max_tokens": TOKENS, "stream": stream}
    begin = time.perf_counter()
    async with client.stream("POST", "/v1/completions", json=body) as answer:
        async for _ in answer.aiter_raw():
            pass
        return answer.status_code, time.perf_counter() - begin


async def load(url: str, rate: float, seconds: float, stream: bool) -> tuple[list[float], int, float]:
    """Latencies of what was answered, how many were told to come again, and how long all took."""
    drawn = random.Random(7)
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=httpx.Limits(max_connections=None)) as client:
        tasks: list[asyncio.Task[tuple[int, float]]] = []
        begin = time.perf_counter()
        while time.perf_counter() - begin < seconds and len(tasks) < MOST_REQUESTS:
            tasks.append(asyncio.create_task(one(client, stream)))
            await asyncio.sleep(drawn.expovariate(rate))
        found = await asyncio.gather(*tasks)
        took = time.perf_counter() - begin
    strange = {status for status, _ in found} - {200, 429}
    if strange:
        raise SystemExit(f"answers with the status {strange}")
    return [taken for status, taken in found if status == 200], sum(status == 429 for status, _ in found), took


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", default="1,8,64")
    parser.add_argument("--seconds", type=float, default=8.0)
    given = parser.parse_args()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-m", "trellm", "serve", "--port", "0"]
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} threads, Python {platform.python_version()}")
    print("clients  stream  texts/s  engine alone  p50 s  p99 s  429")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, cwd=Path("/")) as server:
        assert server.stderr is not None
        said = next(line for line in server.stderr if " at http" in line)
        address = re.search(r"http://[^/]*", said)
        assert address is not None
        try:
            asyncio.run(load(address[0], 5, 1.0, True))
            for clients in map(int, given.clients.split(",")):
                alone = engine_seconds(max(32, clients), clients)
                for stream in (False, True):
                    times, refused, took = asyncio.run(load(address[0], 1 / alone, given.seconds, stream))
                    times.sort()
                    p99 = times[min(len(times) - 1, int(len(times) * 0.99))]
                    print(
                        f"{clients:7d}  {stream!s:6}  {len(times) / took:7.1f}  {1 / alone:12.1f}  "
                        f"{statistics.median(times):5.2f}  {p99:5.2f}  {refused:3d}"
                    )
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
