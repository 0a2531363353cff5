"""Prompts beside texts that are being written: what callers get by a fixed chunk, and by the gap that is wanted.

    python benchmarks/prompts_beside.py [--seconds 6] [--rounds 3] [--gaps 100] [--chunks 32 512] [--wall] [--save]

Free texts of 20 tokens, greedy, on one core with one thread; medians of rounds, in which the kinds take turns. Time is
the process's own, also for the engine, so that other work of the machine is not in it; with --wall it is that of the
clock on the wall. 32 was the default on CPUs before there was a gap to choose.

callers     64 and 8 callers of the small model of the package, each with one request after the other, prompts of about
            100 tokens that begin like no other: requests a second, ms to the first piece of a text, and between pieces
long        of a random Llama (4 layers x 256), one text that is written, and a prompt of about 2,000 tokens of somebody
            else's: ms between the text's pieces meanwhile, and until the prompt was read
step        of the engine in each, ms at the median and at p99
"""

from __future__ import annotations

import argparse
import random
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from recording import pin_to_one_core, save, show

WORDS = ["kettle", "paid", "moon", "rain", "copper", "Velmor", "train", "seven"]
CALLERS = (64, 8)
SHORT, LONG = 20, 390
"""Words of a prompt, of about five tokens each."""
WRITTEN = 20


def percentile(values: Sequence[float], share: float) -> float | None:
    """Of seconds, in ms."""
    return 1e3 * sorted(values)[int(share * (len(values) - 1))] if values else None


class Bench:
    """The model, and a clock."""

    def __init__(self, clock: Callable[[], float], seconds: float) -> None:
        from decode_loop import make_model
        from transformers import AutoTokenizer
        from trellm import models

        tokenizer: Any = AutoTokenizer.from_pretrained(str(Path(models.__file__).with_name("small")))
        network = make_model(tokenizer, 4, 256)
        network.generation_config.eos_token_id = None
        self.small, self.llama = models.small(), models.transformers(network, tokenizer)
        self.clock, self.seconds = clock, seconds
        self.random = random.Random(1)

    def prompt(self, words: int) -> str:
        """One that begins like no other."""
        return " ".join(f"{self.random.choice(WORDS)}{self.random.randrange(1000)}" for _ in range(words))

    def run(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        """Figures of an engine with such options."""
        from trellm import Engine, generate

        steps: list[float] = []
        model = self.llama if name == "long" else self.small
        self.free = generate.text(model)
        with (
            patch("trellm.engine.schedule.core.perf_counter", self.clock),
            patch("trellm.engine.engine.perf_counter", self.clock),
            Engine(model, memory=256 << 20, **options) as engine,
        ):
            engine.start()
            self._request(engine, self.prompt(SHORT), [], [])
            engine.watch(lambda: steps.append(engine.step_seconds))
            found = self._long(engine) if name == "long" else self._crowd(engine, int(name))
        return found | {"step ms": percentile(steps, 0.5), "step p99": percentile(steps, 0.99)}

    def _request(self, engine: Any, prompt: str, first: list[float], gaps: list[float]) -> None:
        """One text, with what it takes to its first piece, and between pieces."""
        last = begin = self.clock()
        for piece in engine.submit(self.free, prompt, max_tokens=WRITTEN, heal=False, draft=False).pieces():
            now = self.clock()
            (first if last == begin else gaps).append(now - last)
            last = now
            assert piece.prompt == 0

    def _crowd(self, engine: Any, callers: int) -> dict[str, Any]:
        first: list[float] = []
        gaps: list[float] = []
        done: list[float] = []
        begin = self.clock()

        def ask() -> None:
            while self.clock() < begin + self.seconds:
                self._request(engine, self.prompt(SHORT), first, gaps)
                done.append(self.clock())

        threads = [threading.Thread(target=ask) for _ in range(callers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {
            "requests / s": len(done) / (self.clock() - begin),
            "first ms": percentile(first, 0.5),
            "first p99": percentile(first, 0.99),
            "gap ms": percentile(gaps, 0.5),
            "gap p99": percentile(gaps, 0.99),
        }

    def _long(self, engine: Any) -> dict[str, Any]:
        writer = engine.submit(self.free, self.prompt(SHORT), max_tokens=900, min_tokens=900, heal=False, draft=False)
        pieces = writer.pieces()
        for _ in range(20):
            next(pieces)
        read: list[float] = []
        begin = last = self.clock()
        other = engine.submit(self.free, self.prompt(LONG), max_tokens=1, heal=False)

        def wait() -> None:
            other.result()
            read.append(self.clock() - begin)

        waiting = threading.Thread(target=wait)
        waiting.start()
        gaps: list[float] = []
        while not read:
            next(pieces)
            gaps.append(self.clock() - last)
            last += gaps[-1]
        waiting.join()
        writer.cancel()
        return {"first ms": 1e3 * read[0], "gap ms": percentile(gaps, 0.5), "gap p99": percentile(gaps, 0.99)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gaps", nargs="*", type=float, default=[100])
    parser.add_argument("--chunks", nargs="*", type=int, default=[32, 512])
    parser.add_argument("--wall", action="store_true")
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    pin_to_one_core()
    import torch

    torch.set_num_threads(1)
    bench = Bench(time.perf_counter if options.wall else time.process_time, options.seconds)
    kinds: dict[str, dict[str, Any]] = {f"chunk {chunk}": {"chunk": chunk} for chunk in options.chunks}
    kinds |= {f"gap {gap:g} ms": {"max_gap_ms": gap} for gap in options.gaps}
    rows: list[dict[str, Any]] = []
    for name in (*map(str, CALLERS), "long"):
        rounds = [{kind: bench.run(name, given) for kind, given in kinds.items()} for _ in range(options.rounds)]
        for kind in kinds:
            several = [found[kind] for found in rounds]
            row: dict[str, Any] = {"measured": name if name == "long" else f"{name} callers", "what": kind}
            row |= {column: statistics.median(found[column] or 0 for found in several) for column in several[0]}
            if "requests / s" in row and options.chunks:
                ratios = [found[kind]["requests / s"] / found[next(iter(kinds))]["requests / s"] for found in rounds]
                row["x first"] = statistics.median(ratios)
            rows.append(row | {"clock": "wall" if options.wall else "processor"})
        show(rows)
    if options.save:
        print(save("prompts_beside", rows, ["trellm", "torch"]))


if __name__ == "__main__":
    main()
