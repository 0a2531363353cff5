"""Memory of `trellm serve` where no two requests have the same schema: whether it stays as it is.

    python benchmarks/serve_memory.py [--clients 16] [--minutes 8] [--room 96MiB] [--save]

The small model, with so much room for keys and values, and as much for compiled constraints. Every client asks again as
soon as it has its answer, which must be JSON of its schema, until the time is over; all is sent to a loopback port.

A row for every minute: requests answered so far; MiB of the server's process at its end, and the least and the most in
it. What grows at first is what the server may keep: constraints, keys and values, masks that are as many for each
vocabulary as 32 MiB hold.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from importlib import import_module
from typing import Any

from recording import save, show
from serving_load import Connection
from serving_process import Process, ours, started
from serving_work import prompt, schema

EVERY = 1.0


def own_schema(number: int) -> dict[str, Any]:
    """A schema that no other request has."""
    made = schema(number)
    name = f"own{number}"
    made["properties"][name] = {"enum": [f"a{number}", f"b{number}"]}
    return made | {"required": [*made["required"], name]}


async def run(server: Process, clients: int, seconds: float) -> list[dict[str, Any]]:
    """A row for every minute. Raises SystemExit where an answer is none, or not valid."""
    validate: Any = import_module("jsonschema").validate
    begin, number, answers = time.perf_counter(), 0, 0
    rows: list[dict[str, Any]] = []

    async def client() -> None:
        nonlocal number, answers
        connection = Connection(server.port)
        while time.perf_counter() < begin + seconds:
            number += 1
            mine = own_schema(number)
            asked = {"model": server.model, "prompt": prompt(number), "max_tokens": 96, "json_schema": mine}
            answer = await connection.post("/v1/completions", asked)
            if answer.status != 200:
                raise SystemExit(f"{answer.status}: {answer.body[:500]!r}")
            validate(json.loads(answer.text), mine)
            answers += 1
        connection.close()

    async def watch() -> None:
        seen: list[float] = []
        while time.perf_counter() < begin + seconds:
            await asyncio.sleep(EVERY)
            seen.append(server.mebibytes)
            if time.perf_counter() >= begin + 60 * (len(rows) + 1):
                rows.append({"minute": len(rows) + 1, "answers": answers, "end": seen[-1],
                             "least": min(seen), "most": max(seen), "load_1m": os.getloadavg()[0]})  # fmt: skip
                seen.clear()

    await asyncio.gather(watch(), *(client() for _ in range(clients)))
    return rows


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--room", default="96MiB")
    parser.add_argument("--save", action="store_true")
    given = parser.parse_args()
    with started(*ours(None, "--memory", given.room, "--kept-constraints", given.room)) as server:
        rows = asyncio.run(run(server, given.clients, 60 * given.minutes))
    show(rows)
    if given.save:
        print(save("serve_memory", rows, ("torch", "numba", "starlette", "uvicorn", "pydantic")))


if __name__ == "__main__":
    main()
