"""What neighbours notice of an unseen schema: texts being written while constraints are compiled beside them.

    python benchmarks/serve_isolation.py SCHEMAS.jsonl.gz [--tokenizer path/to/tokenizer] [--layers 2 --hidden 256]
        [--seconds 10] [--rounds 5] [--every 1.0] [--share 1.0] [--save]

A server in a process of its own, the small model or with --tokenizer a random Llama of its vocabulary; 8 clients each
stream one text after the other (free text of 200 tokens). Windows of so many seconds follow in turn, in each round:

    nothing    no one else
    seen       one request every second under a schema that was compiled before
    unseen     the same under a schema that the server has not met
    compiled   no text is asked for: an unseen schema every second to /constraint
    crowd      two unseen schemas at any time to /constraint, one after the other without a pause

tokens/s: those of all neighbours; p50, p99, worst: milliseconds between the pieces of a text, of all texts of the
window (a piece is a step). Medians of the rounds; "rate" and "p99 ratio" are medians of the ratios to `nothing` of the
same round, "to seen" to `seen`. asked: requests beside the neighbours', of all rounds; answered: with 200, the others
were refused; median s: until they were. --share: of a core, what compilation may take beside texts. Clients and server
share the machine's cores.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from recording import processor, save, show

KINDS = ("nothing", "seen", "unseen", "compiled", "crowd")
CROWD = 2
NEIGHBOURS, TOKENS = 8, 200
PROMPT = "Ann bought 3 cups of tea in the small shop beside the river. "


def serve(options: argparse.Namespace) -> None:
    """What the server's process does."""
    import torch

    torch.set_num_threads(1)
    from trellm import models
    from trellm.cli.serve import tuned_process
    from trellm.serve import Settings, application
    from trellm.serve.server import listen, run

    if options.tokenizer:
        from decode_loop import make_model
        from transformers import AutoTokenizer

        loaded: Any = AutoTokenizer.from_pretrained(options.tokenizer)
        model: Any = models.transformers(make_model(loaded, options.layers, options.hidden), loaded)
    else:
        model = models.small()
    settings = Settings(name="model", compile_share=options.share)
    listening = listen("127.0.0.1", 0)
    print(listening.getsockname()[1], flush=True)
    with tuned_process():
        run(application(model, settings), settings, listening)


def schemas_of(path: str) -> Iterator[dict[str, Any]]:
    """The schemas of a file, each made different from all that came before by a description of its own."""
    number = 0
    while True:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                schema = json.loads(line)["schema"]
                if isinstance(schema, dict):
                    number += 1
                    yield schema if number <= 1683 else {**schema, "$comment": f"{number}"}


class Window:
    """What was measured in one."""

    def __init__(self) -> None:
        self.tokens = 0
        self.gaps: list[float] = []
        self.answers: list[float] = []
        self.statuses: list[int] = []
        self.seconds = 0.0

    @property
    def rate(self) -> float:
        """Tokens of neighbours in a second."""
        return self.tokens / self.seconds

    def gap(self, share: float) -> float:
        """The time between two pieces that this share of them does not exceed, in milliseconds."""
        ordered = sorted(self.gaps)
        return 1e3 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Client:
    """Asks the server by plain sockets, which costs the machine little."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def stream(self, body: dict[str, Any], window: Window, until: float) -> None:
        """One text: when its pieces come, and its tokens as far as they come in time."""
        reader, writer = await self._ask("/v1/completions", {**body, "stream": True})
        last = 0.0
        try:
            while data := await reader.read(1 << 16):
                now = time.perf_counter()
                if now >= until:
                    return
                count = data.count(b'data: {"id"')
                window.tokens += count
                if last and count:
                    window.gaps.append(now - last)
                last = now if count else last
                if b"[DONE]" in data:
                    return
        finally:
            writer.close()

    async def whole(self, path: str, body: dict[str, Any], window: Window) -> None:
        """One answer: its status, and how long it took."""
        begun = time.perf_counter()
        reader, writer = await self._ask(path, body)
        data = await reader.read()
        writer.close()
        window.answers.append(time.perf_counter() - begun)
        window.statuses.append(int(data.split(b" ", 2)[1]))

    async def _ask(self, path: str, body: dict[str, Any]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 24)
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        await writer.drain()
        return reader, writer


async def window_of(port: int, kind: str, schemas: Iterator[dict[str, Any]], seconds: float, every: float) -> Window:
    """One window."""
    client, window = Client(port), Window()
    begun = time.perf_counter()
    until = begun + seconds
    free = {"model": "model", "prompt": PROMPT, "max_tokens": TOKENS, "min_tokens": TOKENS}

    async def neighbour(number: int) -> None:
        seed = number
        while time.perf_counter() < until:
            await client.stream({**free, "seed": seed}, window, until)
            seed += NEIGHBOURS

    async def crowd() -> None:
        while time.perf_counter() < until:
            await client.whole("/constraint", {"model": "model", "guided_json": next(schemas)}, window)

    async def arrivals() -> None:
        if kind == "crowd":
            await asyncio.gather(*(crowd() for _ in range(CROWD)))
            return
        number, asked = 0, list[asyncio.Task[None]]()
        seen = {"type": "object", "properties": {"name": {"type": "string"}, "count": {"type": "integer"}}}
        while kind != "nothing" and (at := begun + (number + 0.5) * every) < until:
            await asyncio.sleep(at - time.perf_counter())
            schema = seen if kind == "seen" else next(schemas)
            body: dict[str, Any] = {"model": "model", "guided_json": schema}
            if kind == "compiled":
                asked.append(asyncio.ensure_future(client.whole("/constraint", body, window)))
            else:
                body |= {"prompt": PROMPT, "max_tokens": 64}
                asked.append(asyncio.ensure_future(client.whole("/v1/completions", body, window)))
            number += 1
        await asyncio.gather(*asked)

    await asyncio.gather(arrivals(), *map(neighbour, range(NEIGHBOURS)))
    window.seconds = seconds
    return window


def measure(port: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """All rounds."""
    schemas = schemas_of(options.schemas)
    found: dict[str, list[Window]] = {kind: [] for kind in KINDS}
    for kind in KINDS:  # whatever is loaded when it is first used
        asyncio.run(window_of(port, kind, schemas, 5.0, 0.5))
    for number in range(options.rounds):
        order = KINDS[number % len(KINDS) :] + KINDS[: number % len(KINDS)]
        for kind in order:
            window = asyncio.run(window_of(port, kind, schemas, options.seconds, options.every))
            print(f"{kind:9} {window.rate:8.0f} tokens/s  p99 {window.gap(0.99):6.1f} ms", file=sys.stderr, flush=True)
            found[kind].append(window)
    return [row(kind, windows, found) for kind, windows in found.items()]


def row(kind: str, windows: list[Window], found: dict[str, list[Window]]) -> dict[str, Any]:
    """A line of the table."""

    def beside(other: str, what: Any) -> float:
        return statistics.median(what(mine) / what(its) for mine, its in zip(windows, found[other], strict=True))

    answers = [each for window in windows for each in window.answers]
    statuses = [each for window in windows for each in window.statuses]
    said: dict[str, Any] = {
        "arrivals": kind,
        "tokens/s": statistics.median(window.rate for window in windows),
        "rate": beside("nothing", lambda window: window.rate),
        "rate to seen": beside("seen", lambda window: window.rate),
        "p50 ms": statistics.median(window.gap(0.5) for window in windows),
        "p99 ms": statistics.median(window.gap(0.99) for window in windows),
        "p99 ratio": beside("nothing", lambda window: window.gap(0.99)),
        "p99 to seen": beside("seen", lambda window: window.gap(0.99)),
        "worst ms": statistics.median(window.gap(1) for window in windows),
    }
    if answers:
        said |= {"asked": len(answers), "answered": statuses.count(200), "median s": statistics.median(answers)}
    return said


def main() -> None:
    """Measure, print, and save if that is asked for."""
    from trellm.serve import Settings

    parser = argparse.ArgumentParser()
    parser.add_argument("schemas")
    parser.add_argument("--tokenizer", default="")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--every", type=float, default=1.0)
    parser.add_argument("--share", type=float, default=Settings.compile_share)
    parser.add_argument("--server", action="store_true")
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    if options.server:
        serve(options)
        return
    command = [sys.executable, *sys.argv, "--server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"}) as process:
        assert process.stdout is not None
        try:
            rows = measure(int(process.stdout.readline()), options)
        finally:
            process.terminate()
    model = f"Llama, {options.layers} layers of {options.hidden}" if options.tokenizer else "small"
    rows = [{"model": model, "share": options.share, **row} for row in rows]
    print(processor(), "load", round(os.getloadavg()[0], 1))
    show(rows)
    if options.save:
        name = "serve_isolation_llama3" if options.tokenizer else "serve_isolation"
        print(save(name, rows, ["trellm", "torch", "numba", "uvicorn"], options.tokenizer))


if __name__ == "__main__":
    main()
