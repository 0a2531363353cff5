"""Exact draws and particles beside their peers: forward tokens for a draw, and particles a second.

    python benchmarks/sampling.py [--draws 40] [--skip-peer]

Tasks of the kind of the grammar-aligned decoding paper: binary strings, terms over bit vectors, and JSON. The models of
the first two are random tables over characters; that of the last is the small model, with `exact` alone. Draws are
counted by the tokens behind the prompt that the model reads for them:

rejection    texts of the model by itself, given up at the first illegal token
cars         constrained adaptive rejection sampling as published: tests/engine/exact_sampling/cars.py
exact        `Exact(n, parallel=1)`, which begins with an empty trie as the others do

Particles: `SMC` and genlm-control's, with its adaptive weighted rejection sampler, on a random GPT-2 of two layers and
one regular expression, in turn, on one core; the median of rounds. `masked` is what `Sample` takes for a token: nothing
of this is in its way.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import statistics
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from recording import pin_to_one_core, save, show

BITS = "[01]{5}"
TERMS = 'start: "x" | "y" | "0" | "(" op start start ")" | "~" start\nop: "&" | "|" | "^"'
SCHEMA = {"type": "object", "properties": {"n": {"enum": [1, 2, 3]}}, "required": ["n"], "additionalProperties": False}
ASKED = "Anna has 2 dogs.\nAs JSON: "
MAX = 1000
"""After so many tokens references give up; one without a draw is counted as if it had come to one."""
REGEX = "[a-z]{2,5} [0-9]{1,3}"


def tables(characters: str, seed: int) -> Any:
    """A model over characters whose logits depend on the last two of them."""
    import numpy as np
    from trellm import Vocabulary, models

    size = len(characters) + 1
    table = np.random.default_rng(seed).normal(size=(size, size, size)) * 1.5
    vocabulary = Vocabulary([*(character.encode() for character in characters), None], [size - 1])
    return models.from_function(lambda ids: table[ids[-2] if len(ids) > 1 else 0, ids[-1]], vocabulary)


def logits_of(model: Any) -> Callable[[Sequence[int]], Any]:
    """A model's logits after some tokens, read from their beginning."""
    import torch
    from trellm.engine.memory.pool import BlockPool
    from trellm.engine.memory.tables import Chunk

    memory = model.make_memory(64)

    def logits(ids: Sequence[int]) -> Any:
        pool = BlockPool(64, model.window)
        table = pool.table()
        pool.reserve(table, list(ids))
        with torch.inference_mode():
            hidden = model.forward([Chunk(table, list(ids))], memory)
            return model.logits(hidden, [0], None)[0].clone()

    return logits


def tasks() -> list[tuple[str, Any, Any, list[int], int]]:
    """Of each task its name, model, guide, prompt and budget."""
    from trellm import guides, models

    bits, terms = tables("01ab", 1), tables("xy0()&|^~ z", 2)
    small = models.small()
    read = cache(lambda ids: logits_of(small)(ids))
    json_model = models.from_function(lambda ids: read(tuple(ids)), small.vocabulary)
    prompt = list(small.tokenizer.encode(ASKED))
    return [
        ("binary strings", bits, guides.RegexGuide(BITS, bits.vocabulary), [0], 5),
        ("bit vectors", terms, guides.CFGGuide(TERMS, terms.vocabulary), [0], 12),
        ("json", json_model, guides.JSONGuide(SCHEMA, small.vocabulary), prompt, 24),
    ]


def count_draws(draws: int) -> list[dict[str, Any]]:
    """A row for each task: draws per 1,000 tokens that the model reads."""
    import numpy as np
    from trellm import Exact, Generator

    path = Path(__file__).resolve().parents[1] / "tests" / "engine" / "drawing" / "cars.py"
    spec = importlib.util.spec_from_file_location("cars", path)
    assert spec is not None and spec.loader is not None
    cars = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cars)
    rows: list[dict[str, Any]] = []
    for name, model, guide, prompt, budget in tasks():

        @cache
        def chances(tokens: tuple[int, ...], model: Any = model, prompt: list[int] = prompt) -> Any:
            hidden = model.logits([(*prompt, *tokens)], [0], None)[0].double().numpy()
            weights = np.exp(hidden - hidden.max())
            return weights / weights.sum()

        row: dict[str, Any] = {"task": name, "draws": draws}
        # With thousands of tokens the references, which ask the guide about each, take minutes for a draw.
        references = (("rejection", cars.Rejection), ("cars", cars.Cars)) if model.vocabulary.size < 100 else ()
        for kind, make in references:
            slow = make(chances, guide, budget, 1)
            came = 0
            while came < draws and slow.draw(MAX) is not None:
                came += 1
            row[kind], row[f"{kind} draws"] = 1000 * max(came, 1) / slow.passes, came
        found: Any = Generator(model, guide).run(prompt, search=Exact(draws, parallel=1), max_tokens=budget, seed=1)
        row["exact"] = 1000 / found[0].tokens_read
        row["acceptance"] = found[0].acceptance
        row |= {f"over {kind}": row["exact"] / row[kind] for kind, _ in references}
        rows.append(row)
        show([row])
    return rows


def random_gpt2(tokenizer: Any) -> Any:
    """A random GPT-2 of two narrow layers with the tokenizer's vocabulary."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    torch.set_num_threads(1)
    ids = {"bos_token_id": tokenizer.eos_token_id, "eos_token_id": tokenizer.eos_token_id}
    return GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), n_embd=64, n_layer=2, n_head=4, **ids)).eval()


def peer_particles(network: Any, tokenizer: Any, count: int, tokens: int) -> Callable[[], Any]:
    """A run of genlm-control's SMC."""
    control: Any = importlib.import_module("genlm.control")
    backend: Any = importlib.import_module("genlm.backend.llm")
    language_model = control.PromptedLLM(backend.AsyncTransformer(network, tokenizer))
    language_model.prompt_ids = tokenizer.encode("the ")
    constraint = control.BoolFSA.from_regex(REGEX).coerce(language_model, f=b"".join)
    sampler = control.AWRS(language_model, constraint)

    def run() -> Any:
        language_model.model.clear_cache()
        return asyncio.run(control.SMC(sampler)(n_particles=count, ess_threshold=0.5, max_tokens=tokens))

    return run


def timed(run: Callable[[], Any]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def count_particles(folder: str, count: int, rounds: int, *, with_peer: bool) -> list[dict[str, Any]]:
    """Particles a second, and what masked sampling takes."""
    import transformers
    from trellm import SMC, Sample, generate, models

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    network = random_gpt2(tokenizer)
    generator: Any = generate.regex(models.transformers(network, tokenizer), REGEX)
    prompt = tokenizer.encode("the ")
    runs: dict[str, Callable[[], Any]] = {
        "trellm": lambda: generator.run(prompt, search=SMC(count), max_tokens=12, seed=1),
        "masked": lambda: generator.run(prompt, search=Sample(n=count), max_tokens=12, seed=1, batch_size=count),
    }
    if with_peer:
        runs["genlm-control"] = peer_particles(network, tokenizer, count, 12)
    for run in runs.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(timed(run))
    return [{"engine": name, "particles/s": count / statistics.median(found)} for name, found in times.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", help="a folder with GPT-2's tokenizer, for the particles")
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--particles", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--skip-peer", action="store_true", help="without genlm-control")
    given = parser.parse_args()
    pin_to_one_core()
    draws = count_draws(given.draws)
    show(draws)
    particles = count_particles(given.tokenizer, given.particles, given.rounds, with_peer=not given.skip_peer)
    show(particles)
    peers = [] if given.skip_peer else ["genlm-control"]
    print(save("sampling", [*draws, *particles], ["torch", "numba", "transformers", *peers], given.tokenizer))


if __name__ == "__main__":
    main()
