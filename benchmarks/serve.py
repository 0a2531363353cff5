"""`trellm serve` beside `transformers serve` and llama.cpp's server: tokens a second, same weights, taking turns.

    python benchmarks/serve.py [--model FOLDER] [--transformers PYTHON [--no-batching]]
                               [--llama-server BINARY --gguf FILE] [--clients 1,8,64] [--rounds 3] [--save]

By default the small model of the package. PYTHON is the interpreter of an environment with `transformers[serving]`;
FILE has the weights of the folder in float32, as llama.cpp's `convert_hf_to_gguf.py` writes them. All servers have one
thread and float32, stand on loopback ports, and each works only when it is its turn.

So many clients ask all the time, each again when it has its answer, until a fixed number of requests is done: greedy
texts of up to 32 tokens. free: nothing asked for; schema: JSON of one schema; schemas: each request the next of a
hundred schemas, which are compiled where they come first. `transformers serve` has no schemas.
--no-batching leaves out its continuous batching, which takes 14 GB for a vocabulary of 128k tokens.

tokens_s: tokens a second, the median of all rounds, and the least and the most; cpu_ms: what the server's threads took
for each token; valid: the share of answers that satisfy their schema; same: whose text is that of trellm
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

from recording import save, show
from serving_load import Answer, Connection
from serving_process import Process, llama_cpp, ours, started, transformers
from serving_work import prompt, schema

TOKENS = 32
REQUESTS = {1: 6, 8: 24, 64: 64}
SCHEMAS = {"free": 0, "schema": 1, "schemas": 100}
PATH = "/v1/completions"


def body(server: Process, kind: str, number: int) -> dict[str, Any]:
    """A request."""
    asked = {"model": server.model, "prompt": prompt(number), "max_tokens": TOKENS, "temperature": 0}
    if SCHEMAS[kind]:
        asked["json_schema"] = schema(number % SCHEMAS[kind])
    return asked


async def asked(server: Process, kind: str, clients: int, numbers: list[int]) -> list[Answer]:
    """The answers to requests, of which so many are on their way."""
    left, found = iter(enumerate(numbers)), dict[int, Answer]()

    async def client() -> None:
        connection = Connection(server.port)
        for place, number in left:
            found[place] = answer = await connection.post(PATH, body(server, kind, number))
            if answer.status != 200:
                raise SystemExit(f"{server.name} answers with {answer.status}: {answer.body[:500]!r}")
        connection.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return [found[place] for place in range(len(numbers))]


def is_valid(kind: str, number: int, text: str) -> bool:
    """Whether a text is JSON of its schema."""
    jsonschema = import_module("jsonschema")
    try:
        jsonschema.validate(json.loads(text), schema(number % SCHEMAS[kind]))
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def measured(servers: list[Process], kind: str, clients: int, rounds: int) -> list[dict[str, Any]]:
    """A row for each server."""
    count = REQUESTS.get(clients, clients)
    speeds: dict[str, list[float]] = {server.name: [] for server in servers}
    costs: dict[str, list[float]] = {server.name: [] for server in servers}
    texts: dict[str, list[str]] = {server.name: [] for server in servers}
    for turn in range(-1, rounds):  # the first is not looked at: servers have things to load
        numbers = [turn * count + each for each in range(count)]
        for server in servers:
            cost, begin = server.processor_seconds, time.perf_counter()
            answers = asyncio.run(asked(server, kind, clients, numbers))
            seconds, cost = time.perf_counter() - begin, server.processor_seconds - cost
            if turn < 0:
                continue
            tokens = sum(answer.tokens for answer in answers)
            speeds[server.name].append(tokens / seconds)
            costs[server.name].append(1000 * cost / tokens)
            texts[server.name] += [answer.text for answer in answers]
    rows: list[dict[str, Any]] = []
    for server in servers:
        mine, first = texts[server.name], texts[servers[0].name]
        valid = [is_valid(kind, number, text) for number, text in enumerate(mine)] if SCHEMAS[kind] else []
        ratios = [mine / peer for mine, peer in zip(speeds[servers[0].name], speeds[server.name], strict=True)]
        rows.append(
            {
                "kind": kind,
                "clients": clients,
                "server": server.name,
                "tokens_s": statistics.median(speeds[server.name]),
                "least": min(speeds[server.name]),
                "most": max(speeds[server.name]),
                "trellm_is": statistics.median(ratios),
                "cpu_ms": statistics.median(costs[server.name]),
                "valid": sum(valid) / len(valid) if valid else None,
                "same": sum(a == b for a, b in zip(mine, first, strict=True)) / len(mine),
            }
        )
    return rows


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--transformers", metavar="PYTHON")
    parser.add_argument("--no-batching", action="store_true")
    parser.add_argument("--llama-server", metavar="BINARY")
    parser.add_argument("--gguf", metavar="FILE")
    parser.add_argument("--clients", default="1,8,64")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--save", action="store_true")
    given = parser.parse_args()
    folder = given.model or str(Path(__file__).resolve().parents[1] / "engine" / "models" / "small")
    several = [int(each) for each in given.clients.split(",")]
    commands = [ours(given.model)]
    if given.transformers:
        commands.append(transformers(given.transformers, folder))
        if not given.no_batching:
            commands.append(transformers(given.transformers, folder, "--continuous-batching"))
    if given.llama_server:
        commands.append(llama_cpp(given.llama_server, given.gguf, max(several)))
    rows: list[dict[str, Any]] = []
    with ExitStack() as stack:
        servers = [stack.enter_context(started(*command)) for command in commands]
        for kind in SCHEMAS:
            able = [server for server in servers if kind == "free" or not server.name.startswith("transformers")]
            for server in able:
                asyncio.run(asked(server, kind, 2, [0, 0]))  # what is made by the first request
            for clients in several:
                rows += measured(able, kind, clients, given.rounds)
                show(rows[-len(able) :])
                sys.stdout.flush()
    if given.save:
        name = "small" if given.model is None else Path(folder).name
        print(save(f"serve_{name}", rows, ("torch", "transformers", "numba", "starlette", "uvicorn", "pydantic")))


if __name__ == "__main__":
    main()
