"""Keys and values in float16 and int8 beside those in the type of the model, of a GGUF file on a CPU.

    python benchmarks/kv_cache.py FILE TEXT [--threads 1] [--contexts 100 1000 4000] [--rounds 9] [--save]

A text of so many tokens is read, and then single tokens behind it, by turns with each: tokens a second are medians
of rounds of 8 tokens, by the clock on the wall; so are those of prompts of 512 tokens. Then stretches of the text are
read, for the perplexity of their tokens and how far logits are apart. Activations of 8 bits magnify the smallest
difference, so the same is told of float32 beside itself, with the first norm's weights changed in their last bits.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from recording import save, show
from torch.nn.functional import cross_entropy
from trellm import models
from trellm.engine.memory.tables import BLOCK, BlockTable, Chunk

KINDS = ("auto", "float16", "int8")
PACKAGES = ("trellm", "gguf", "torch", "numba")
STEPS, PROMPT, STRETCH, STRETCHES = 8, 512, 512, 8


class Text:
    """A text that is read by a model of its own memory."""

    def __init__(self, model: Any, longest: int) -> None:
        self.model, self.table = model, BlockTable()
        blocks = longest // BLOCK + 1
        self.memory = model.make_memory(blocks)
        self.table.blocks.extend(range(blocks))

    @torch.inference_mode()
    def read(self, ids: Sequence[int]) -> Any:
        """Logits [tokens, V]."""
        states = self.model.forward_ends([Chunk(self.table, ids)], [len(ids)], self.memory)
        self.table.tokens.extend(ids)
        return self.model.logits(states, range(len(ids)), None)

    @torch.inference_mode()
    def timed(self, ids: Sequence[int]) -> float:
        """Seconds until tokens are read one by one, of each on the average."""
        begin = time.perf_counter()
        for token in ids:
            self.model.forward([Chunk(self.table, [token])], self.memory)
            self.table.tokens.append(token)
        return (time.perf_counter() - begin) / len(ids)


def speeds(made: dict[str, Any], ids: list[int], context: int, rounds: int) -> list[dict[str, Any]]:
    """A row for each kind."""
    texts = {kind: Text(model, context + STEPS * (rounds + 1)) for kind, model in made.items()}
    for text in texts.values():
        text.read(ids[:context])
        text.timed(ids[:STEPS])
    seconds: dict[str, list[float]] = {kind: [] for kind in texts}
    for _ in range(rounds):
        for kind, text in texts.items():
            seconds[kind].append(text.timed(ids[:STEPS]))
    return [
        {
            "kind": kind, "context": context, "kB a token": made[kind].block_bytes / BLOCK / 1e3,
            "MB": round(context * made[kind].block_bytes / BLOCK / 1e6, 1),
            "tokens a second": round(1 / statistics.median(seconds[kind]), 1),
            "slowest": round(1 / max(seconds[kind]), 1), "fastest": round(1 / min(seconds[kind]), 1),
        }
        for kind in texts
    ]  # fmt: skip


def prompts(made: dict[str, Any], ids: list[int], rounds: int) -> list[dict[str, Any]]:
    """A row for each kind."""
    seconds: dict[str, list[float]] = {kind: [] for kind in made}
    for _ in range(rounds):
        for kind, model in made.items():
            text = Text(model, PROMPT)
            begin = time.perf_counter()
            text.read(ids[:PROMPT])
            seconds[kind].append(time.perf_counter() - begin)
    return [
        {
            "kind": kind, "context": f"a prompt of {PROMPT}",
            "tokens a second": round(PROMPT / statistics.median(each), 1),
            "slowest": round(PROMPT / max(each), 1), "fastest": round(PROMPT / min(each), 1),
        }
        for kind, each in seconds.items()
    ]  # fmt: skip


def likelihoods(made: dict[str, Any], ids: list[int]) -> list[dict[str, Any]]:
    """A row for each model, beside the first."""
    rows: list[dict[str, Any]] = []
    expected: list[Any] = []
    for kind, model in made.items():
        lost, apart, most, other = 0.0, list[float](), 0.0, 0
        for number in range(STRETCHES):
            part = ids[number * STRETCH : (number + 1) * STRETCH]
            found = Text(model, STRETCH).read(part).float()
            expected += [found] if len(expected) <= number else []
            lost += float(cross_entropy(found[:-1], torch.tensor(part[1:]), reduction="sum"))
            far = (found - expected[number]).abs()
            apart.append(float(far.mean()))
            most = max(most, float(far.max()))
            other += int((found.argmax(-1) != expected[number].argmax(-1)).sum())
        perplexity = math.exp(lost / STRETCHES / (STRETCH - 1))
        rows.append({
            "kind": kind, "tokens": STRETCH * STRETCHES, "perplexity": round(perplexity, 3),
            "logits apart": round(statistics.mean(apart), 4), "most apart": round(most, 3), "other best tokens": other,
        })  # fmt: skip
    return rows


def changed(path: str) -> Any:
    """The model in float32, but for the last bits of the first norm's weights."""
    model: Any = models.gguf(path)
    with torch.no_grad():
        model.model.weights.layers[0].before.weight.mul_(1 + 1e-6)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("text", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--contexts", type=int, nargs="*", default=[100, 1000, 4000])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--save", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    made: dict[str, Any] = {kind: models.gguf(given.file, kv_cache_dtype=kind) for kind in KINDS}
    text = given.text.read_text(encoding="utf-8")[100_000:200_000]
    ids: list[int] = made["auto"].tokenizer.encode(text)
    rows = [row for context in given.contexts for row in speeds(made, ids, context, given.rounds)]
    rows += prompts(made, ids, given.rounds)
    rows += likelihoods({**made, "auto, last bits changed": changed(given.file)}, ids)
    show(rows)
    if given.save:
        print(save("kv_cache", rows, PACKAGES))


if __name__ == "__main__":
    main()
