"""The engine: many prompts of many lengths at once, beside one at a time and beside transformers.

    python benchmarks/engine.py TOKENIZER [--only WORDS] [--rounds 5] [--batches 8 32] [--longest 1000] [--save]

The model is a random Llama (4 layers x 256) with the tokenizer's whole vocabulary, greedy, float32, on one core with
one thread. Prompts begin with numbers of their own, so that nothing is found again that was read in another round.

alone       ms a token at batch 1, and beside transformers' `generate`
batch       ms of prompts of 100 to --longest tokens and 64 more each, a third free, a third a regex, a third JSON;
            all free; and transformers' static batches (padded on the left) of the same lengths, free
prefill     15 prompts of 100 tokens and one of 4,000 together, beside the sum of both apart
prefix      8 prompts that begin with the same 2,000 tokens, beside one of them; Beam(8) behind 4,000 tokens, its memory
            beside that of one row
arrivals    the time between tokens of 8 texts: its median, and p99 while prompts of 4,000 tokens arrive
joins       the same while a text joins whose JSON Schema nobody has met, with patterns that take long: their masks are
            found out beside the steps, by the thread of who waits for them (callers) or one of the engine's (started)
host        us a step of a model that costs nothing and has 257 tokens: what the engine itself takes
"""

from __future__ import annotations

import argparse
import random
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from recording import pin_to_one_core, save, show

PROMPT = "Give me one record of a person, and nothing else."
WORDS = "the whale and the sea are here with men who go on board of ships and never come again "
LETTERS = "abcdefghijklmnopqrstuvwxyz"
RECORD = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "minItems": 2, "maxItems": 4},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}


def timed(run: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def median(run: Callable[[], Any], rounds: int) -> float:
    """Seconds, the first run not counted."""
    run()
    return statistics.median(timed(run) for _ in range(rounds))


class Bench:
    """The model, ours and transformers', and prompts of any length."""

    def __init__(self, tokenizer: Any, rounds: int) -> None:
        import torch
        from decode_loop import make_model
        from trellm import generate, models

        self.torch = torch
        self.tokenizer = tokenizer
        self.network = make_model(tokenizer, 4, 256)
        self.network.config.max_position_embeddings = 8192
        self.network.generation_config.eos_token_id = None
        self.model = models.transformers(self.network, tokenizer)
        self.rounds = rounds
        self.free = generate.text(self.model)
        self.regex = generate.regex(self.model, r"[a-z ]{100,400}\.")
        self.json = generate.json(self.model, RECORD)
        self.random = random.Random(0)

    def prompt(self, length: int, begin: str | None = None) -> str:
        """About so many tokens that no other prompt begins with."""
        mark = str(self.random.random()) if begin is None else begin
        return (mark + " " + WORDS * (length // 18 + 2))[: int(length * 4.4)]

    def alone(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        ids = self.torch.tensor([self.tokenizer.encode(PROMPT)])
        peer = median(lambda: self._generate(ids, self.torch.ones_like(ids), 64), self.rounds) / 64
        for name, generator, tokens in (("free", self.free, 64), ("regex", self.regex, 64), ("json", self.json, 96)):
            count = len(generator.run(PROMPT, max_tokens=tokens, heal=False).token_ids)
            seconds = median(lambda g=generator, t=tokens: g(PROMPT, max_tokens=t, heal=False), self.rounds) / count
            found.append(
                {"measured": "alone", "what": name, "ms / token": 1e3 * seconds, "x transformers": peer / seconds}
            )
        return found

    def batch(self, sizes: list[int], longest: int) -> list[dict[str, Any]]:
        from trellm import generate

        found: list[dict[str, Any]] = []
        for size in sizes:
            lengths = [100 + i * (longest - 100) // max(1, size - 1) for i in range(size)]
            generators = [[self.free, self.regex, self.json][i % 3] for i in range(size)]

            def ours(lengths: list[int] = lengths, generators: list[Any] = generators) -> int:
                pairs = [(each, self.prompt(n)) for each, n in zip(generators, lengths, strict=True)]
                texts = generate.batch(pairs, max_tokens=64, batch_size=len(pairs), heal=False, progress=False)
                return len(texts)

            def static(lengths: list[int] = lengths) -> None:
                rows = [self.tokenizer.encode(self.prompt(n)) for n in lengths]
                width = max(map(len, rows))
                ids = self.torch.tensor([[rows[0][0]] * (width - len(row)) + row for row in rows])
                mask = self.torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
                self._generate(ids, mask, 64)

            def free(lengths: list[int] = lengths) -> None:
                self.free(
                    [self.prompt(n) for n in lengths],
                    max_tokens=64,
                    batch_size=len(lengths),
                    heal=False,
                    progress=False,
                )

            rounds = max(1, self.rounds // 2)
            times = {
                "mixed guides": median(ours, rounds),
                "free": median(free, rounds),
                "transformers static": median(static, rounds),
            }
            found += [
                {
                    "measured": "batch",
                    "batch": size,
                    "what": name,
                    "ms": 1e3 * seconds,
                    "/ free": seconds / times["free"],
                }
                for name, seconds in times.items()
            ]
        return found

    def prefill(self) -> list[dict[str, Any]]:
        def read(lengths: list[int]) -> None:
            self.free([self.prompt(n) for n in lengths], max_tokens=1, batch_size=16, heal=False, progress=False)

        short, long = median(lambda: read([100] * 15), self.rounds), median(lambda: read([4000]), self.rounds)
        both = median(lambda: read([100] * 15 + [4000]), self.rounds)
        return [
            {
                "measured": "prefill",
                "what": "15 x 100 and 1 x 4,000",
                "ms": 1e3 * both,
                "/ apart": both / (short + long),
            }
        ]

    def prefix(self) -> list[dict[str, Any]]:
        from trellm import Beam, Engine

        def read(count: int) -> None:
            begin = self.prompt(2000)
            prompts = [f"{begin} {i}" for i in range(count)]
            self.free(prompts, max_tokens=1, batch_size=16, heal=False, progress=False)

        one, eight = median(lambda: read(1), self.rounds), median(lambda: read(8), self.rounds)
        held: list[int] = []
        engine = Engine.of(self.model)
        for search in ({}, {"search": Beam(8)}):
            handle = engine.submit(self.free, self.prompt(4000), max_tokens=32, heal=False, **search)
            for _ in range(20):
                engine.step()
            held.append(engine.held_bytes)
            handle.cancel()
        return [
            {"measured": "prefix", "what": "8 x the same 2,000", "ms": 1e3 * eight, "/ one": eight / one},
            {"measured": "prefix", "what": "Beam(8) behind 4,000", "MiB": held[1] / 2**20, "/ one": held[1] / held[0]},
        ]

    def arrivals(self) -> list[dict[str, Any]]:
        from trellm import Engine

        engine = Engine.of(self.model)

        def steps(arriving: bool) -> list[float]:
            prompts = [self.prompt(100) for _ in range(8)]
            handle = engine.submit(self.free, prompts, max_tokens=150, batch_size=8, heal=False)
            for _ in range(5):
                engine.step()
            late = [engine.submit(self.free, self.prompt(4000), max_tokens=1, heal=False) for _ in range(2 * arriving)]
            found = [timed(engine.step) for _ in range(60)]
            for each in (handle, *late):
                each.cancel()
            return sorted(found)

        quiet = [steps(False) for _ in range(self.rounds)]
        busy = [steps(True) for _ in range(self.rounds)]
        middle = statistics.median(statistics.median(each) for each in quiet)
        worst = statistics.median(each[int(0.99 * len(each))] for each in busy)
        return [
            {"measured": "arrivals", "what": "median between tokens, nobody else", "ms": 1e3 * middle},
            {
                "measured": "arrivals",
                "what": "p99 while prompts of 4,000 arrive",
                "ms": 1e3 * worst,
                "/ median": worst / middle,
            },
        ]

    def joins(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for mode in ("callers", "started"):
            quiet = [self._between_tokens(mode, joining=False) for _ in range(self.rounds)]
            busy = [self._between_tokens(mode, joining=True) for _ in range(self.rounds)]
            middle = statistics.median(statistics.median(each) for each in quiet)
            for name, value in (
                ("median, nobody else", middle),
                ("longest, nobody else", statistics.median(each[-1] for each in quiet)),
                ("median while new schemas join", statistics.median(statistics.median(each) for each in busy)),
                ("longest while new schemas join", statistics.median(each[-1] for each in busy)),
            ):
                found.append(
                    {"measured": "joins", "what": f"{mode}: {name}", "ms": 1e3 * value, "/ median": value / middle}
                )
        return found

    def _between_tokens(self, mode: str, *, joining: bool) -> list[float]:
        """Seconds between the tokens of one of 8 free texts, ascending; the schema's text joins after some."""
        from trellm import Engine, generate

        patterns = [f"[{''.join(self.random.sample(LETTERS, 3))}]{{{n % 7 + 2}}}.*{n}" for n in range(30)]
        items = {"anyOf": [{"type": "string", "pattern": pattern} for pattern in patterns]}
        schema = {"type": "array", "items": items, "minItems": 2, "maxItems": 4}
        generator = generate.json(self.model, schema)
        with Engine(self.model) as engine:
            if mode == "started":
                engine.start()
            prompts = [self.prompt(100) for _ in range(8)]
            handle = engine.submit(self.free, prompts, max_tokens=100, batch_size=8, heal=False)
            joined: list[threading.Thread] = []
            taken: list[float] = []
            last = time.perf_counter()
            for piece in handle.pieces():
                if piece.prompt != 0:
                    continue
                now = time.perf_counter()
                taken.append(now - last)
                last = now
                if joining and len(taken) == 10:
                    joined.append(threading.Thread(target=self._joined, args=(engine, generator)))
                    joined[0].start()
            for thread in joined:
                thread.join()
        return sorted(taken[5:])

    def _joined(self, engine: Any, generator: Any) -> None:
        """A text under a schema, to its end; or as far as it comes within the limits of work."""
        from trellm import LimitError

        with suppress(LimitError):
            engine.submit(generator, self.prompt(10), max_tokens=200, heal=False).result()

    def host(self) -> list[dict[str, Any]]:
        from trellm import Vocabulary, generate
        from trellm.engine.models.function import FunctionModel

        torch, vocabulary = self.torch, Vocabulary.from_bytes()
        torch.manual_seed(0)
        few = torch.randn(256, vocabulary.size)
        few[:, -1] = -99

        class Quick(FunctionModel):
            """A model that costs nothing."""

            def forward(self, chunks: Any, memory: Any) -> Any:
                return range(len(chunks))

            def logits(self, hidden: Any, rows: Any, ids: Any) -> Any:
                return few[: len(rows)] if ids is None else few[: len(rows), ids]

        model = Quick(lambda ids: [], vocabulary)
        free = generate.text(model)
        found: list[dict[str, Any]] = []
        for rows in (1, 8, 64, 256):

            def run(tokens: int, rows: int = rows) -> Any:
                return free([PROMPT] * rows, max_tokens=tokens, batch_size=rows, heal=False, progress=False)

            run(4)
            taken = [(timed(lambda: run(68)) - timed(lambda: run(4))) / 64 for _ in range(self.rounds)]
            found.append({"measured": "host", "batch": rows, "us": 1e6 * statistics.median(taken)})
        return found

    def _generate(self, ids: Any, mask: Any, tokens: int) -> Any:
        return self.network.generate(ids, attention_mask=mask, max_new_tokens=tokens, do_sample=False, pad_token_id=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", help="a folder with a tokenizer, or a name on the Hub")
    parser.add_argument(
        "--only", nargs="*", default=["alone", "batch", "prefill", "prefix", "arrivals", "joins", "host"]
    )
    parser.add_argument("--batches", nargs="*", type=int, default=[8, 32])
    parser.add_argument("--longest", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    pin_to_one_core()
    from transformers import AutoTokenizer

    bench = Bench(AutoTokenizer.from_pretrained(options.tokenizer), options.rounds)
    rows: list[dict[str, Any]] = []
    for name in options.only:
        rows += bench.batch(options.batches, options.longest) if name == "batch" else getattr(bench, name)()
        show(rows)
    if options.save:
        print(save("engine", rows, ["trellm", "torch", "transformers"], options.tokenizer))


if __name__ == "__main__":
    main()
