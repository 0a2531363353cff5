"""Beam search beside transformers' own, free and under constraints.

    python benchmarks/beam_search.py LLAMA_TOKENIZER GPT2_TOKENIZER [--widths 4 16 --rounds 5]

Random models: a Llama of 4 layers with the first tokenizer's whole vocabulary, and one of GPT-2's smallest shape with
the second's; 64 new tokens after a short prompt. Everything runs in turn on one core with one thread, in float32. Times
are milliseconds for a step, all beams together, the median over rounds.

transformers  `generate(num_beams=width)`; it must find the same tokens as trellm
free          trellm without a constraint
regex, json   trellm, every beam in a state of its own; warm, that is, masks that were seen before are known
phrases       trellm, free text that must contain two phrases, by banks; warm likewise
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from typing import Any

from decode_loop import make_model, timed
from recording import pin_to_one_core, save, show

PROMPT = "Give me one record of a person, and nothing else."
TOKENS = 64
REGEX = r'([0-9]+: "[^"\\\n]*"\n)*§'
PHRASES = [" by the river bank", " a record of history"]
SCHEMA = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "email": {"type": "string"}},
        "required": ["name", "age", "email"],
        "additionalProperties": False,
    },
}


def make_gpt2(tokenizer: Any) -> Any:
    """A random model of GPT-2's smallest shape."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    ids = {"bos_token_id": tokenizer.eos_token_id, "eos_token_id": tokenizer.eos_token_id}
    return GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), pad_token_id=tokenizer.eos_token_id, **ids)).eval()


def peer(network: Any, ids: Any, width: int) -> list[int]:
    import torch

    found = network.generate(
        ids, attention_mask=torch.ones_like(ids), num_beams=width, max_new_tokens=TOKENS, do_sample=False
    )
    return found[0, ids.shape[1] :].tolist()


def compare(name: str, network: Any, tokenizer: Any, widths: list[int], rounds: int) -> list[dict[str, Any]]:
    """A row for each width and run."""
    import torch
    from trellm import Beam, generate, models

    model = models.transformers(network, tokenizer)
    generators: dict[str, tuple[Any, dict[str, Any]]] = {
        "free": (generate.text(model), {}),
        "regex": (generate.regex(model, REGEX), {}),
        "json": (generate.json(model, SCHEMA), {}),
        "phrases": (generate.text(model), {"include": PHRASES}),
    }
    ids = torch.tensor([tokenizer.encode(PROMPT)])
    rows: list[dict[str, Any]] = []
    for width in widths:
        runs: dict[str, Callable[[], list[int]]] = {
            "transformers": lambda width=width: peer(network, ids, width),
            **{
                what: lambda generator=generator, include=include, width=width: list(
                    generator.run(PROMPT, search=Beam(width), max_tokens=TOKENS, heal=False, **include).token_ids
                )
                for what, (generator, include) in generators.items()
            },
        }
        tokens = {what: run() for what, run in runs.items()}
        for what, found in tokens.items():
            if len(found) < TOKENS - 4:
                raise SystemExit(
                    f"{name}, {what}: the text ends after {len(found)} tokens; it has to go on to {TOKENS}"
                )
        times: dict[str, list[float]] = {what: [] for what in runs}
        for _ in range(rounds):
            for what, run in runs.items():
                times[what].append(1e3 * timed(run) / TOKENS)
        medians = {what: statistics.median(values) for what, values in times.items()}
        rows += [
            {
                "model": name,
                "width": width,
                "what": what,
                "ms / step": value,
                "transformers / this": medians["transformers"] / value,
                "this / free": value / medians["free"],
                "same tokens": tokens[what] == tokens["free"] if what in ("transformers", "free") else None,
            }
            for what, value in medians.items()
        ]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("llama", help="a folder with a tokenizer, or a name on the Hub")
    parser.add_argument("gpt2", help="likewise, for the model of GPT-2's shape")
    parser.add_argument("--widths", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    pin_to_one_core()
    from transformers import AutoTokenizer

    rows: list[dict[str, Any]] = []
    for name, path in (("llama", options.llama), ("gpt2", options.gpt2)):
        tokenizer = AutoTokenizer.from_pretrained(path)
        network = make_model(tokenizer, 4, 256) if name == "llama" else make_gpt2(tokenizer)
        found = compare(name, network, tokenizer, options.widths, options.rounds)
        show(found)
        rows += found
        save("beam_search", rows, ["trellm", "torch", "transformers"], f"{options.llama}, {options.gpt2}")


if __name__ == "__main__":
    main()
