"""Decoding on a GPU: our tokens a second, beside transformers' and beside what its memory could give.

    python benchmarks/gpu.py TOKENIZER [--shapes 0.6B 4B 8B] [--batches 1 8 64 256] [--kinds free regex json ...]
        [--tokens 256] [--rounds 3] [--peers] [--save]
    python benchmarks/gpu.py TOKENIZER --dry [--batches 1 3] [--kinds free json ...] [--tokens 160]

Random weights of the shapes of Qwen3, bfloat16, made on the device; greedy; prompts of some 20 tokens. A row is the
median of --rounds runs after three warm ones, in which all states are met and all graphs are captured.

free, regex, json   text, `([A-Za-z]+[ .,])*`, a list of at least five records by one schema for all rows
compact             JSON without white space, in which more follows of itself
forced, narrow      that without drafts, so that only forced tokens are read together; and with one token a launch, as
                    where rows are many
schemas             JSON with a schema of its own for each row
seen, unseen        free text for all rows but one, which has a schema that was met before, or one that nobody met: how
                    long the others take
bandwidth           the bytes of the weights a step reads (keys are few here) by what a step took, beside what a copy
                    from the device's memory to itself reaches in the same run
per_pass            tokens of all texts by the passes in which these were read, the one over the prompt counted

With --dry a tiny model is run on the CPU, whose rows go on by themselves there: whether it all works, not how fast.
With --save rows are added to those of the file, with the commit that is checked out.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from recording import add, show

SHAPES = {
    "0.6B": {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16},
    "4B": {"hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32},
    "8B": {"hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32},
}
TIED = {"0.6B", "4B"}
WIDTH = 151_936
WARM = 3
BESIDE = ("seen", "unseen")
KINDS = ("free", "regex", "json", "compact", "forced", "narrow", "schemas", *BESIDE)
PROMPT = "Number {}: give me one record of a person, in words of your own, and nothing else."
RECORD: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "blue", "white"]}, "maxItems": 4},
        "notes": {"type": "array", "items": {"type": "string", "maxLength": 40}, "minItems": 1, "maxItems": 3},
    },
    "required": ["name", "age", "tags", "notes"],
    "additionalProperties": False,
}


class Counts(NamedTuple):
    """The tokens of texts, and the passes that read them, over all texts."""

    tokens: int
    passes: int


Run = Callable[[], Counts]


def records(number: int | None = None) -> dict[str, Any]:
    """A list of records, with a number in names that no other schema has."""
    names = {f"{name}{'' if number is None else number}": each for name, each in RECORD["properties"].items()}
    return {"type": "array", "minItems": 5, "items": RECORD | {"properties": names, "required": list(names)}}


def make_model(shape: str) -> Any:
    import torch
    import transformers

    config = transformers.Qwen3Config(
        **SHAPES[shape],
        num_key_value_heads=8,
        head_dim=128,
        vocab_size=WIDTH,
        max_position_embeddings=40_960,
        rope_theta=1e6,
        tie_word_embeddings=shape in TIED,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        try:
            return transformers.Qwen3ForCausalLM(config).eval()
        finally:
            torch.set_default_dtype(torch.float32)


def dry_model(tokenizer: Any) -> Any:
    """A tiny model on the CPU, whose rows go on by themselves."""
    import torch
    import transformers
    from trellm.engine.device.backend import HostBackend
    from trellm.engine.models.decoder import DecoderModel

    class BatchDecoder(DecoderModel):
        def batch_backend(self, memory: Any, records: Any) -> HostBackend:
            return HostBackend(self, memory, records)

    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    torch.manual_seed(0)
    config = transformers.Qwen3Config(**sizes, num_key_value_heads=2, head_dim=8, vocab_size=len(tokenizer))
    return BatchDecoder(transformers.Qwen3ForCausalLM(config).eval(), tokenizer)


def reach() -> float:
    """Bytes a second that a copy reads and writes."""
    import torch

    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for _ in range(3):
        target.copy_(source)
    begin.record()
    for _ in range(10):
        target.copy_(source)
    end.record()
    end.synchronize()
    return 10 * 2 * source.nbytes / begin.elapsed_time(end) * 1e3


def median(run: Run, rounds: int) -> tuple[float, float]:
    """Tokens a second, and tokens a pass of their texts."""
    import torch

    waits = torch.cuda.synchronize if torch.cuda.is_available() else int
    found: list[float] = []
    counts = Counts(0, 1)
    for number in range(-WARM, rounds):
        waits()
        begin = time.perf_counter()
        counts = run()
        waits()
        if number >= 0:
            found.append(counts.tokens / (time.perf_counter() - begin))
    return statistics.median(found), counts.tokens / counts.passes


def counted(results: Iterable[Any]) -> Counts:
    """What texts come to."""
    found = list(results)
    return Counts(sum(len(each.token_ids) for each in found), sum(each.steps for each in found))


def ours(model: Any, kind: str, batch: int, tokens: int) -> Run:
    from trellm import Engine, generate
    from trellm.engine.device import batch as launches

    prompts = [PROMPT.format(number) for number in range(batch)]
    if kind == "schemas":
        engine = Engine.of(model)
        made = [generate.json(model, records(number)) for number in range(batch)]

        def run() -> Counts:
            handles = [
                engine.submit(each, prompt, max_tokens=tokens) for each, prompt in zip(made, prompts, strict=True)
            ]
            return counted(handle.result() for handle in handles)

        return run
    if kind in BESIDE:
        return beside(model, prompts, tokens, is_new=kind == "unseen")
    makers: dict[str, Callable[[], Any]] = {
        "free": lambda: generate.text(model),
        "regex": lambda: generate.regex(model, r"([A-Za-z]+[ .,])*"),
        "json": lambda: generate.json(model, records()),
        "compact": lambda: generate.json(model, records(), whitespace="compact"),
    }
    generator = makers["compact" if kind in ("forced", "narrow") else kind]()
    few = 0 if kind == "narrow" else launches.FEW

    def together() -> Counts:
        before, launches.FEW = launches.FEW, few
        try:
            return counted(generator.run(prompts, max_tokens=tokens, batch_size=batch, draft=kind != "forced"))
        finally:
            launches.FEW = before

    return together


def beside(model: Any, prompts: list[str], tokens: int, is_new: bool) -> Run:
    """All but the last of some prompts go on freely; that one has a schema, another each time if `is_new`."""
    from trellm import Engine, generate

    engine, text = Engine.of(model), generate.text(model)
    numbers = itertools.count(1000) if is_new else itertools.repeat(1000)

    def run() -> Counts:
        handles = [engine.submit(text, prompt, max_tokens=tokens) for prompt in prompts[:-1]]
        last = engine.submit(generate.json(model, records(next(numbers))), prompts[-1], max_tokens=tokens)
        found = counted(handle.result() for handle in handles)
        last.cancel()
        return found

    return run


def theirs(network: Any, tokenizer: Any, batch: int, tokens: int) -> Run:
    import torch

    ids = [tokenizer.encode(PROMPT.format(number)) for number in range(batch)]
    longest = max(map(len, ids))
    rows = torch.tensor([[0] * (longest - len(each)) + each for each in ids], device="cuda")
    mask = torch.tensor([[0] * (longest - len(each)) + [1] * len(each) for each in ids], device="cuda")

    def run() -> Counts:
        out = network.generate(
            rows, attention_mask=mask, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, use_cache=True
        )
        made = batch * (out.shape[1] - longest)
        return Counts(made, made)

    return run


def checked_out() -> str:
    """The commit, with a mark where files differ from it."""
    found = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=True)
    return found.stdout.strip()


def dry_run(model: Any, given: argparse.Namespace) -> None:
    """Run each kind, and say what came of it."""
    for batch, kind in itertools.product(given.batches, given.kinds):
        if batch > 1 or kind not in BESIDE:
            rate, per_pass = median(ours(model, kind, batch, given.tokens), given.rounds)
            print(f"{kind} of {batch}: {rate:.0f} tokens/s, {per_pass:.2f} a pass", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer")
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8, 64, 256])
    parser.add_argument("--kinds", nargs="+", default=["free", "regex", "json", "schemas"], choices=KINDS)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--dry", action="store_true", help="a tiny model on the CPU: whether it all works")
    given = parser.parse_args()
    import torch
    import transformers
    from trellm import models

    tokenizer = transformers.AutoTokenizer.from_pretrained(given.tokenizer)
    if given.dry:
        dry_run(dry_model(tokenizer), given)
        return
    most, commit = reach(), checked_out()
    rows: list[dict[str, Any]] = []
    for shape in given.shapes:
        network = make_model(shape)
        model = models.transformers(network, tokenizer)
        embedding = 0 if shape in TIED else network.get_input_embeddings().weight.nbytes
        weights = sum(each.nbytes for each in network.parameters()) - embedding
        for batch in given.batches:
            free = 0.0
            for kind in [*given.kinds, *(["transformers"] if given.peers else [])]:
                is_peer = kind == "transformers"
                if kind in BESIDE and batch < 2:
                    continue
                run = (
                    theirs(network, tokenizer, batch, given.tokens)
                    if is_peer
                    else ours(model, kind, batch, given.tokens)
                )
                rate, per_pass = median(run, given.rounds)
                free = rate if kind == "free" else free
                rows.append(
                    {
                        "shape": shape,
                        "batch": batch,
                        "kind": kind,
                        "tokens_per_s": round(rate, 1),
                        "ms_per_step": round(1e3 * batch / rate, 3),
                        "per_pass": round(per_pass, 2),
                        "of_free": round(rate / free, 3) if free else "",
                        "of_bandwidth": round(rate / batch / per_pass * weights / most, 3),
                        "tokens": given.tokens,
                        "commit": commit,
                    }
                )
                print(rows[-1], flush=True)
        del network, model, run
        torch.cuda.empty_cache()
    show(rows)
    if given.save:
        device = {"device": torch.cuda.get_device_name()}
        add("gpu", [row | device for row in rows], ["torch", "triton", "transformers", "numba"], given.tokenizer)


if __name__ == "__main__":
    main()
