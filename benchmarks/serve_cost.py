"""What HTTP costs: `trellm serve` beside the engine alone, the same texts of the small model, taking turns.

    python benchmarks/serve_cost.py [--rounds 15] [--save]

Texts of 1 and of 65 tokens, one at a time and eight at once, greedy, free or of a pattern. From both lengths follow the
cost of a request and that of a token; what the engine alone takes for the same is subtracted. alone: the engine in this
process, started as the server starts it; whole, stream: over HTTP, one answer or events as tokens come.

wall: medians of what a client waits; least: the least that it waited, to which other work on the machine adds nothing;
cpu: processor time of the server's process, of the engine's process alone. All in milliseconds; _more: than alone
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable
from typing import Any

from recording import save, show
from serving_load import Connection
from serving_process import ONE_THREAD, Process, ours, started

LENGTHS = (1, 65)
REPEATS = 8
PROMPT = "Write a sentence with the words kettle, paid.\nAnswer:\n"


def over_http(server: Process, kind: str, is_streamed: bool) -> Callable[[int, int], None]:
    """A function that asks for so many texts of so many tokens at once."""
    loop = asyncio.new_event_loop()
    connections = [Connection(server.port) for _ in range(8)]

    async def ask(together: int, tokens: int) -> None:
        asked: dict[str, Any] = {
            "model": server.model, "prompt": PROMPT, "temperature": 0, "max_tokens": tokens, "min_tokens": tokens,
            "stream": is_streamed,
        }  # fmt: skip
        if kind == "pattern":
            asked["regex"] = f"[a-z ]{{{tokens},}}"
        answers = await asyncio.gather(*(each.post("/v1/completions", asked) for each in connections[:together]))
        assert all(answer.status == 200 for answer in answers), answers[0].body

    return lambda together, tokens: loop.run_until_complete(ask(together, tokens))


def alone(kind: str) -> Callable[[int, int], None]:
    """The same on an engine of this process."""
    from trellm import Engine, Greedy, generate, models

    model = models.small()
    engine = Engine(model).start()
    free = generate.text(model)
    guided = {tokens: generate.regex(model, f"[a-z ]{{{tokens},}}") for tokens in LENGTHS}

    def run(together: int, tokens: int) -> None:
        task = free if kind == "free" else guided[tokens]
        options: dict[str, Any] = {"max_tokens": tokens, "min_tokens": tokens, "search": Greedy()}
        handles = [engine.submit(task, PROMPT, **options) for _ in range(together)]
        for handle in handles:
            handle.result()

    return run


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--save", action="store_true")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with started(*ours(None)) as server:
        for kind in ("free", "pattern"):
            ways: dict[str, tuple[Callable[[int, int], None], Callable[[], float]]] = {
                "alone": (alone(kind), time.process_time),
                "whole": (over_http(server, kind, False), lambda: server.processor_seconds),
                "stream": (over_http(server, kind, True), lambda: server.processor_seconds),
            }
            for together in (1, 8):
                rows += measured(kind, together, ways, given.rounds)
                show(rows[-len(ways) :])
    if given.save:
        print(save("serve_cost", rows, ("torch", "numba", "starlette", "uvicorn", "pydantic")))


def measured(kind: str, together: int, ways: dict[str, Any], rounds: int) -> list[dict[str, Any]]:
    """Rows of each way: milliseconds for a request and for a token, and how much more these are than alone."""
    wall: dict[tuple[str, int], list[float]] = {(way, length): [] for way in ways for length in LENGTHS}
    least: dict[tuple[str, int], list[float]] = {(way, length): [] for way in ways for length in LENGTHS}
    cost: dict[tuple[str, int], list[float]] = {(way, length): [] for way in ways for length in LENGTHS}
    for turn in range(-1, rounds):  # the first is not counted
        for way, (run, processor) in ways.items():
            for length in LENGTHS:
                spent = processor()
                times: list[float] = []
                for _ in range(REPEATS):
                    begin = time.perf_counter()
                    run(together, length)
                    times.append(1000 * (time.perf_counter() - begin) / together)
                if turn >= 0:
                    wall[way, length].append(statistics.median(times))
                    least[way, length] = [min([*least[way, length], *times])]
                    cost[way, length].append(1000 * (processor() - spent) / REPEATS / together)
    rows: list[dict[str, Any]] = []
    for way in ways:
        row: dict[str, Any] = {"kind": kind, "together": together, "way": way}
        for name, found in (("wall", wall), ("least", least), ("cpu", cost)):
            short, long = (statistics.median(found[way, length]) for length in LENGTHS)
            base_short, base_long = (statistics.median(found["alone", length]) for length in LENGTHS)
            row[f"{name}_request"] = short
            row[f"{name}_token"] = token = (long - short) / (LENGTHS[1] - LENGTHS[0])
            row[f"{name}_more_request"] = short - base_short
            row[f"{name}_more_token"] = token - (base_long - base_short) / (LENGTHS[1] - LENGTHS[0])
        rows.append(row)
    return rows


if __name__ == "__main__":
    import os

    os.environ.update(ONE_THREAD)
    main()
