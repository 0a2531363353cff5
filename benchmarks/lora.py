"""A batch of texts with adapters of LoRA: all with the same one, each with its own, and without any.

    python benchmarks/lora.py MODEL [--adapters 8] [--rank 8] [--tokens 24] [--rounds 5] [--threads 1] [--save]

MODEL is a name, a folder or a GGUF file, as `models.transformers` takes it. Adapters are random, of all linear layers
of the body; a text writes so many tokens, whatever they are. Rounds take the three by turns, seconds by the clock on
the wall; the ratio is of the medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from recording import save, show
from safetensors.torch import save_file
from trellm import Engine, generate, models

PACKAGES = ("trellm", "torch", "transformers", "numba")


def adapter(network: Any, folder: Path, rank: int, seed: int) -> Path:
    """A random adapter of all linear layers but the head, as PEFT saves it."""
    torch.manual_seed(seed)
    tensors: dict[str, torch.Tensor] = {}
    for name, module in network.named_modules():
        if hasattr(module, "in_features") and name != "lm_head":
            tensors[f"base_model.model.{name}.lora_A.weight"] = torch.randn(rank, module.in_features) / 30
            tensors[f"base_model.model.{name}.lora_B.weight"] = torch.randn(module.out_features, rank) / 30
    place = folder / str(seed)
    place.mkdir()
    save_file(tensors, place / "adapter_model.safetensors")
    (place / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": rank, "lora_alpha": rank}))
    return place


def timed(model: Any, names: list[str | None], tokens: int) -> float:
    """Seconds of a batch in which each text has the adapter of its name."""
    engine, free = Engine.of(model), generate.text(model)
    begin = time.perf_counter()
    handles = [
        engine.submit(free, f"{number} The", max_tokens=tokens, min_tokens=tokens, adapter=name, draft=False)
        for number, name in enumerate(names)
    ]
    for handle in handles:
        handle.result()
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--adapters", type=int, default=8)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--save", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    with tempfile.TemporaryDirectory() as folder:
        plain: Any = models.transformers(given.model)
        network = getattr(plain.model, "transformers_model", plain.model)  # of a GGUF file
        places = {str(seed): adapter(network, Path(folder), given.rank, seed) for seed in range(given.adapters)}
        model = models.transformers(given.model, adapters=places)
    names = list(places)
    ways: dict[str, Callable[[], float]] = {
        "none": lambda: timed(plain, [None] * len(names), given.tokens),
        "one": lambda: timed(model, [names[0]] * len(names), given.tokens),
        "each its own": lambda: timed(model, [*names], given.tokens),
    }
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(given.rounds + 1):
        for way, run in ways.items():
            took = run()
            seconds[way] += [took] if number else []  # the first is a warm-up
    written = len(names) * given.tokens
    middle = {way: statistics.median(each) for way, each in seconds.items()}
    rows = [
        {
            "adapters": way, "texts": len(names), "rank": given.rank,
            "tokens a second": round(written / middle[way], 1), "of one": round(middle["one"] / middle[way], 3),
            "slowest": round(written / max(each), 1), "fastest": round(written / min(each), 1),
        }
        for way, each in seconds.items()
    ]  # fmt: skip
    show(rows)
    if given.save:
        print(save("lora", rows, PACKAGES))


if __name__ == "__main__":
    main()
