"""A crowd of clients at `trellm serve` with the small model: statuses, latencies, memory, and whether JSON is valid.

    python benchmarks/serve_crowd.py [--clients 1000] [--minutes 10] [--memory 256MiB] [--save]

Every client asks again as soon as it has its answer, or after a second where it is told to come again (429), until the
time is over; a quarter of the requests is free, the others ask for JSON of one or of a hundred schemas, every other one
streamed, greedy or not. Then, for half a minute, requests arrive at random times, at half the rate that the crowd was
served at, and nobody waits for an answer before asking again. All is sent to a loopback port.

All answers with a schema are checked against it. first_p50, first_p99, p50, p99: seconds until the first byte and until
all was there; memory: MiB of the server when the first quarter of the time is over, at the end, and the most
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from recording import save, show
from serving_load import Answer, Connection
from serving_process import Process, ours, started
from serving_work import prompt, schema

MAX_REQUESTS = 200_000
OPEN_SECONDS = 30
SEED = 7


class Crowd:
    """Requests to a server, and what became of them."""

    def __init__(self, server: Process) -> None:
        self._server = server
        self._number = 0
        self.statuses: Counter[int] = Counter()
        self.answers: list[tuple[int, Answer]] = []

    def _body(self, number: int) -> dict[str, Any]:
        kind = number % 4
        asked: dict[str, Any] = {"model": self._server.model, "prompt": prompt(number), "max_tokens": 64}
        asked["temperature"] = (0, 1.0, 2.0)[number % 3]
        if kind:
            asked["json_schema"] = schema(0 if kind == 1 else number % 100)
        if number % 2:
            asked |= {"stream": True, "stream_options": {"include_usage": True}}
        return asked

    async def ask(self, connection: Connection) -> Answer:
        """The next request."""
        self._number += 1
        number = self._number
        answer = await connection.post("/v1/completions", self._body(number))
        self.statuses[answer.status] += 1
        if answer.status == 200:
            self.answers.append((number, answer))
        return answer

    def wrong(self) -> list[str]:
        """The texts that are no JSON of their schema."""
        jsonschema = import_module("jsonschema")
        checks = [jsonschema.Draft202012Validator(schema(number)) for number in range(100)]
        found: list[str] = []
        for number, answer in self.answers:
            kind = number % 4
            try:
                if kind:
                    checks[0 if kind == 1 else number % 100].validate(json.loads(answer.text))
            except (ValueError, jsonschema.ValidationError):
                found.append(answer.text)
        return found


async def closed(crowd: Crowd, server: Process, clients: int, seconds: float) -> list[tuple[float, float]]:
    """All clients for so long. Returns the server's memory over time."""
    end = time.perf_counter() + seconds
    memory: list[tuple[float, float]] = []

    async def client() -> None:
        connection = Connection(server.port)
        while time.perf_counter() < end and len(crowd.answers) < MAX_REQUESTS:
            answer = await crowd.ask(connection)
            if answer.status == 429:
                await asyncio.sleep(1)
        connection.close()

    async def watch() -> None:
        while time.perf_counter() < end:
            memory.append((time.perf_counter() - end + seconds, server.mebibytes))
            await asyncio.sleep(1)

    await asyncio.gather(watch(), *(client() for _ in range(clients)))
    memory.append((time.perf_counter() - end + seconds, server.mebibytes))
    return memory


async def opened(crowd: Crowd, server: Process, rate: float, seconds: float) -> None:
    """Requests at random times, so many a second."""
    drawn, end = random.Random(SEED), time.perf_counter() + seconds
    idle: list[Connection] = []
    tasks: list[asyncio.Task[None]] = []

    async def one() -> None:
        connection = idle.pop() if idle else Connection(server.port)
        await crowd.ask(connection)
        idle.append(connection)

    while time.perf_counter() < end and len(tasks) < MAX_REQUESTS:
        tasks.append(asyncio.create_task(one()))
        await asyncio.sleep(drawn.expovariate(rate))
    await asyncio.gather(*tasks)
    for connection in idle:
        connection.close()


def row(name: str, crowd: Crowd, seconds: float, memory: Sequence[tuple[float, float]] = ()) -> dict[str, Any]:
    """What became of all requests."""
    answers = [answer for _, answer in crowd.answers]
    wrong = crowd.wrong()
    found: dict[str, Any] = {
        "arrivals": name,
        "seconds": round(seconds, 1),
        "answers": len(answers),
        "refused_429": crowd.statuses[429],
        "errors": crowd.statuses.total() - crowd.statuses[200] - crowd.statuses[429],
        "with_schema": sum(number % 4 > 0 for number, _ in crowd.answers),
        "not_valid": len(wrong),
        "tokens_s": sum(answer.tokens for answer in answers) / seconds,
    }
    for column, times in (("first_", [each.first for each in answers]), ("", [each.last for each in answers])):
        found[f"{column}p50"] = statistics.median(times)
        found[f"{column}p99"] = statistics.quantiles(times, n=100)[98]
    if memory:
        quarter = next(mebibytes for when, mebibytes in memory if when >= memory[-1][0] / 4)
        found |= {"memory_quarter": quarter, "memory_end": memory[-1][1], "memory_most": max(m for _, m in memory)}
    return found


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--memory", default="256MiB", help="for keys and values, kept as long as there is room")
    parser.add_argument("--save", action="store_true")
    given = parser.parse_args()
    with started(*ours(None, "--memory", given.memory)) as server:
        crowd, begin = Crowd(server), time.perf_counter()
        memory = asyncio.run(closed(crowd, server, given.clients, 60 * given.minutes))
        seconds = time.perf_counter() - begin
        rows = [row(f"{given.clients} clients", crowd, seconds, memory)]
        rate, begin = len(crowd.answers) / seconds / 2, time.perf_counter()
        crowd = Crowd(server)
        asyncio.run(opened(crowd, server, rate, OPEN_SECONDS))
        rows.append(row(f"open, {rate:.1f} a second", crowd, time.perf_counter() - begin))
    show(rows)
    if given.save:
        print(save("serve_crowd", rows, ("torch", "numba", "starlette", "uvicorn", "pydantic")))


if __name__ == "__main__":
    main()
