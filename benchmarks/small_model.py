"""The small model: tokens a second in our engine and in `generate` of transformers, and time to a first token.

    python benchmarks/small_model.py [--tokens 128 --rounds 5] [--save]

On one core with one thread, the two taking turns; medians, of processor time. Both write the same number of tokens,
greedily, after the same prompts, without a constraint. `first token` is wall time of a fresh process from its start:
importing, loading, a prompt of a dozen tokens and one token.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from recording import pin_to_one_core, save, show

OURS = """
from trellm import generate, models
generate.text(models.small())("On 3 March 2021, Brela Stonkard bought", max_tokens=1)
"""
THEIRS = """
import sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
ids = tokenizer("On 3 March 2021, Brela Stonkard bought", return_tensors="pt").input_ids
model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=1, do_sample=False)
"""


def decode(rows: int, tokens: int, rounds: int) -> list[dict[str, Any]]:
    """Tokens a second of both, with as many texts at once."""
    import torch
    from trellm import generate, models

    torch.set_num_threads(1)
    model = models.small()
    # All rows are one length, so that transformers needs no padding.
    prompts = [f"On {day} March 2021, Brela Stonkard bought the" for day in [*range(1, 10)] * 4][:rows]
    ids = model.tokenizer(prompts, return_tensors="pt").input_ids
    text = generate.text(model)
    counts: dict[str, int] = {}

    def ours() -> None:
        counts["trellm"] = sum(
            len(each.token_ids) for each in text.run(prompts, max_tokens=tokens, min_tokens=tokens, batch_size=rows)
        )

    def theirs() -> None:
        found = model.model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False
        )
        counts["transformers"] = found[:, ids.shape[1] :].numel()

    times = taken({"trellm": ours, "transformers": theirs}, rounds)
    return [
        {
            "measured": f"decoding, batch of {rows}",
            "what": name,
            "tokens/s": counts[name] / each,
            "ms": 1e3 * each,
        }
        for name, each in times.items()
    ]


def taken(several: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Medians of the processor time of each, in turn; the first round warms up."""
    times: dict[str, list[float]] = {name: [] for name in several}
    for turn in range(rounds + 1):
        for name, run in several.items():
            begin = time.process_time()
            run()
            if turn:
                times[name].append(time.process_time() - begin)
    return {name: statistics.median(each) for name, each in times.items()}


def first_token(rounds: int) -> list[dict[str, Any]]:
    """Seconds from the start of a process to its first token."""
    from trellm import models

    folder = str(models.__path__[0]) + "/small"
    times: dict[str, list[float]] = {"trellm": [], "transformers": []}
    for turn in range(rounds + 1):
        for name, program in (("trellm", OURS), ("transformers", THEIRS)):
            begin = time.perf_counter()
            subprocess.run([sys.executable, "-c", program, folder], check=True, capture_output=True)
            if turn:
                times[name].append(time.perf_counter() - begin)
    return [
        {"measured": "first token", "what": name, "ms": 1e3 * statistics.median(each)} for name, each in times.items()
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--save", action="store_true")
    given = parser.parse_args()
    pin_to_one_core()
    rows = [row for size in (1, 32) for row in decode(size, given.tokens, given.rounds)] + first_token(given.rounds)
    show(rows)
    if given.save:
        print(save("small_model_decoding", rows, ["torch", "transformers", "numba"]))


if __name__ == "__main__":
    main()
