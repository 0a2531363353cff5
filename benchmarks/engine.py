"""The engine: many prompts of many lengths at once, beside one at a time and beside transformers.

    python benchmarks/engine.py TOKENIZER [--only WORDS] [--rounds 5] [--batches 8 32] [--longest 1000] [--save]

The model is a random Llama (4 layers x 256) with the tokenizer's whole vocabulary, greedy, float32, on one core with
one thread. Prompts begin with numbers of their own, so that nothing is found again that was read in another round; no
drafts are read, since a random model goes round in circles, which would be drafted.

alone       ms a token at batch 1, and beside transformers' `generate`
batch       ms of the processor for prompts of 100 to --longest tokens and 64 more each, a third free, a third a regex,
            a third JSON; all free; and transformers' static batches (padded on the left) and continuous batching
            (`generate_batch`) of the same lengths, free. useful: of the tokens that the model computed, those of
            prompts and results
prefill     15 prompts of 100 tokens and one of 4,000 together, beside the sum of both apart
prefix      8 prompts that begin with the same 2,000 tokens, beside one of them; Beam(8) behind 4,000 tokens, its memory
            beside that of one row
arrivals    the time between tokens of 8 texts: its median, and p99 while prompts of 4,000 tokens arrive
joins       the same while a text joins whose JSON Schema nobody has met, with patterns that take long: their masks are
            found out beside the steps, by the thread of who waits for them (callers) or one of the engine's (started)
host        us a step (the median of 40) of a model that costs nothing and has 257 tokens, without its time and that of
            choosing: what the engine itself takes, free, under a regex and a JSON Schema; in states that no text was in
            (new) and where one was (met)
"""

from __future__ import annotations

import argparse
import copy
import random
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any
from unittest.mock import patch

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


def timed(run: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    begin = clock()
    run()
    return clock() - begin


def median(run: Callable[[], Any], rounds: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds, the first run not counted."""
    run()
    return statistics.median(timed(run, clock) for _ in range(rounds))


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
        self.peer = copy.deepcopy(self.network)
        self.model: Any = models.transformers(self.network, tokenizer)
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
            run = partial(generator.run, PROMPT, max_tokens=tokens, heal=False, draft=False)
            seconds = median(run, self.rounds) / len(run().token_ids)
            found.append(
                {"measured": "alone", "what": name, "ms / token": 1e3 * seconds, "x transformers": peer / seconds}
            )
        return found

    def batch(self, sizes: list[int], longest: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        rounds = max(1, self.rounds // 2)
        for size in sizes:
            lengths = [100 + i * (longest - 100) // max(1, size - 1) for i in range(size)]
            mixed = [[self.free, self.regex, self.json][i % 3] for i in range(size)]
            runs: dict[str, Callable[[], Any]] = {
                "mixed guides": lambda lengths=lengths, mixed=mixed: self._ours(lengths, mixed),
                "free": lambda lengths=lengths: self._ours(lengths, [self.free] * len(lengths)),
                "transformers static": lambda lengths=lengths: self._static(lengths),
                "transformers generate_batch": lambda lengths=lengths: self._continuous(lengths),
            }
            seconds = {name: median(run, rounds, time.process_time) for name, run in runs.items()}
            found += [
                {
                    "measured": "batch",
                    "batch": size,
                    "what": name,
                    "ms": 1e3 * taken,
                    "/ free": taken / seconds["free"],
                    "/ mixed": taken / seconds["mixed guides"],
                }
                for name, taken in seconds.items()
            ]
            for row, generators in zip(found[-4:], (mixed, [self.free] * size), strict=False):
                row["useful"] = self._useful(lengths, generators)
        return found

    def _ours(self, lengths: list[int], generators: list[Any]) -> tuple[list[str], list[Any]]:
        """Prompts of these lengths, and what comes of them."""
        from trellm.engine.engine import run_together
        from trellm.engine.options import Options

        prompts = [self.prompt(length) for length in lengths]
        options = Options(max_tokens=64, batch_size=len(lengths), heal=False, draft=False, progress=False)
        return prompts, run_together(list(zip(generators, prompts, strict=True)), options)

    def _useful(self, lengths: list[int], generators: list[Any]) -> float:
        """The share of computed tokens that are those of prompts and results."""
        computed = [0]

        def counted(forward: Callable[..., Any]) -> Callable[..., Any]:
            def run(chunks: Any, *more: Any) -> Any:
                computed[0] += sum(len(chunk.tokens) for chunk in chunks)
                return forward(chunks, *more)

            return run

        with (
            patch.object(self.model, "forward", counted(self.model.forward)),
            patch.object(self.model, "forward_ends", counted(self.model.forward_ends)),
        ):
            prompts, results = self._ours(lengths, generators)
        # The last token of each text is read by nobody.
        useful = sum(len(self.tokenizer.encode(prompt)) for prompt in prompts)
        return (useful + sum(len(each.token_ids) - 1 for each in results)) / computed[0]

    def _static(self, lengths: list[int]) -> None:
        rows = [self.tokenizer.encode(self.prompt(n)) for n in lengths]
        width = max(map(len, rows))
        ids = self.torch.tensor([[rows[0][0]] * (width - len(row)) + row for row in rows])
        mask = self.torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        self._generate(ids, mask, 64)

    def _continuous(self, lengths: list[int]) -> None:
        from transformers import ContinuousBatchingConfig, GenerationConfig

        rows = [self.tokenizer.encode(self.prompt(n)) for n in lengths]
        config = GenerationConfig(max_new_tokens=64, do_sample=False, eos_token_id=-1, pad_token_id=0)
        # Left to itself it plans for all of the memory that there is, and takes minutes.
        pages = sum((len(row) + 64) // 256 + 2 for row in rows)
        sizes = ContinuousBatchingConfig(num_blocks=pages, max_batch_tokens=2048)
        found = self.peer.generate_batch(rows, generation_config=config, continuous_batching_config=sizes)
        made = sorted(len(each.generated_tokens) for each in found.values())
        assert made == [64] * len(rows), f"generate_batch made {made} tokens"

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
            handle = engine.submit(self.free, self.prompt(4000), max_tokens=32, heal=False, draft=False, **search)
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
            handle = engine.submit(self.free, prompts, max_tokens=150, batch_size=8, heal=False, draft=False)
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
            handle = engine.submit(self.free, prompts, max_tokens=100, batch_size=8, heal=False, draft=False)
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
        records = {"type": "array", "items": RECORD, "minItems": 40}
        found: list[dict[str, Any]] = []
        for rows in (1, 8, 64, 256):
            for kind in ("free", "regex", "json"):
                taken: dict[str, list[float]] = {"new": [], "met": []}
                for _ in range(self.rounds):
                    # What a guide remembers is its own: another one has met nothing.
                    generator = (
                        generate.text(model)
                        if kind == "free"
                        else generate.regex(model, r"[a-z ]{100,400}\.")
                        if kind == "regex"
                        else generate.json(model, records)
                    )
                    for state in taken:
                        taken[state].append(self._host_step(model, generator, rows))
                found += [
                    {
                        "measured": "host",
                        "batch": rows,
                        "what": f"{kind}, {state}",
                        "us": 1e6 * statistics.median(several),
                        "asked": 60 + 5 * rows,
                    }
                    for state, several in taken.items()
                ]
        return found

    def _host_step(self, model: Any, generator: Any, rows: int) -> float:
        """Seconds a step, the median of 40 with so many rows, but for the time in which tokens are chosen."""
        from trellm import Engine
        from trellm.engine.decode.sampler import Sampler

        chosen, select = [0.0], Sampler._select

        def timed_select(*arguments: Any, **options: Any) -> Any:
            begin = time.perf_counter()
            try:
                return select(*arguments, **options)
            finally:
                chosen[0] += time.perf_counter() - begin

        def step() -> float:
            chosen[0] = 0.0
            return timed(engine.step) - chosen[0]

        engine = Engine.of(model)
        prompts = [PROMPT] * rows
        handle = engine.submit(generator, prompts, max_tokens=3000, batch_size=rows, heal=False)
        for _ in range(10):
            engine.step()
        with patch.object(Sampler, "_select", timed_select):
            found = statistics.median(step() for _ in range(40))
        handle.cancel()
        engine.step()
        return found

    def _generate(self, ids: Any, mask: Any, tokens: int) -> Any:
        return self.network.generate(ids, attention_mask=mask, max_new_tokens=tokens, do_sample=False, pad_token_id=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", help="a folder with a tokenizer, or a name on the Hub")
    parser.add_argument(
        "--only", nargs="*", default=["alone", "batch", "prefill", "prefix", "arrivals", "joins", "host"]
    )
    parser.add_argument("--batches", nargs="*", type=int, default=[8, 32, 64])
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
