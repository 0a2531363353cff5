"""The decode loop: constrained steps beside the model's bare forward pass, and beside `transformers.generate`.

    python benchmarks/decode_loop.py TOKENIZER [--layers 4 --hidden 256 --rounds 5]

The model is a random Llama with the tokenizer's whole vocabulary: a token's time does not depend on the weights.
Everything runs in turn on one core with one thread, greedy, in float32.

steps: ms for a further token, from runs of two lengths, so that prompts and start-up drop out
    forward       transformers' own model and cache, logits of all tokens, nothing chosen
    free          trellm without a constraint
    constrained   trellm, every row with a guide of its own
peers: ms for a whole text, beside `transformers.generate` with a peer's masks as a logits processor; all are warm
    and have seen the constraint, and all must give the same tokens
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from recording import pin_to_one_core, save, show

PROMPT = "Give me one record of a person, and nothing else."
SHORT, LONG = 16, 96

# Texts that hardly ever end: what ends them is one character among many that go on. A random model may be fond of
# just that character; then another of MARKS takes its place.
MARKS = "§¶†‡¤"
ENDLESS = [
    r"[^\n]*",
    r"([A-Z][a-z]+ )*§",
    r"([0-9]{4}-[0-9]{2}-[0-9]{2};)*§",
    r"[a-z ]*§",
    r"(\w+ )*§",
    r'([0-9]+: "[^"\\\n]*"\n)*§',
    r"([0-9]+(\.[0-9]+)? )*§",
    r"((yes|no|maybe|never|always) )*§",
]
# In the first three no two characters in a row are certain: llguidance would take the tokenizer's own tokens for
# them, and refuse others that spell the same.
TEXTS = {
    "sentence": r"[A-Z][a-z]{1,9}( [a-z]{1,9}){20}\.",
    "dates": r"([0-9]{4}-[0-9]{2}-[0-9]{2} ){9}[0-9]{4}-[0-9]{2}-[0-9]{2}",
    "line": r"[^\n]{200}\n",
    "record": r'\{"name": "[A-Z][a-z]{2,9}", "age": [1-9][0-9]?, "email": "[a-z]{3,10}@[a-z]{3,10}\.com"\}',
}


def make_model(tokenizer: Any, layers: int, hidden: int) -> Any:
    """A random Llama over the tokenizer's vocabulary."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=hidden * 8 // 3,
        num_hidden_layers=layers,
        num_attention_heads=max(1, hidden // 64),
        num_key_value_heads=max(1, hidden // 128),
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.eos_token_id,
    )
    return LlamaForCausalLM(config).eval()


def timed(action: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def forward_pass(network: Any, ids: list[int], rows: int) -> Callable[[int], None]:
    """A function that reads the prompt in `rows` rows, and then one token after another."""
    import torch
    from transformers import DynamicCache

    @torch.inference_mode()
    def run(tokens: int) -> None:
        cache = DynamicCache(config=network.config)
        batch = torch.tensor([ids] * rows)
        for _ in range(tokens):
            network(batch, past_key_values=cache, use_cache=True, logits_to_keep=1)
            batch = torch.full((rows, 1), ids[-1])

    return run


def steps(network: Any, tokenizer: Any, rounds: int) -> list[dict[str, Any]]:
    """Milliseconds of a step at two batch sizes."""
    from trellm import generate, models

    model = models.transformers(network, tokenizer)
    free = generate.text(model)
    guided = [endless(model, pattern) for pattern in ENDLESS]
    ids = list(tokenizer.encode(PROMPT))
    found: list[dict[str, Any]] = []
    for rows in (1, 8):
        raw = forward_pass(network, ids, rows)
        runs: dict[str, Callable[[int], Any]] = {
            "forward": raw,
            "free": lambda tokens, rows=rows: free(
                [PROMPT] * rows, max_tokens=tokens, batch_size=8, heal=False, draft=False
            ),
        }
        if rows == 1:
            for generator, pattern in zip(guided, ENDLESS, strict=True):
                runs[pattern] = lambda tokens, generator=generator: generator(
                    PROMPT, max_tokens=tokens, heal=False, draft=False
                )
        else:
            pairs = [(generator, PROMPT) for generator in guided]
            runs["8 guides"] = lambda tokens, pairs=pairs: generate.batch(
                pairs, max_tokens=tokens, batch_size=8, heal=False, draft=False
            )
        found += step_rows(rows, runs, rounds)
    return found


def endless(model: Any, pattern: str) -> Any:
    """A generator whose text for the prompt goes on to the end of the budget."""
    from trellm import generate

    for mark in MARKS:
        generator = generate.regex(model, pattern.replace("§", mark))
        # A last turn of a loop may not fit any more.
        if len(generator.run(PROMPT, max_tokens=LONG, heal=False).token_ids) >= LONG - 8:
            return generator
    raise SystemExit(f"the text of {pattern} ends before it has {LONG} tokens; add another mark to MARKS")


def step_rows(rows: int, runs: dict[str, Callable[[int], Any]], rounds: int) -> list[dict[str, Any]]:
    """A row for each run: the median over rounds, in which the runs take turns."""
    for run in runs.values():
        run(LONG)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            short = timed(lambda run=run: run(SHORT))
            times[name].append(1e3 * (timed(lambda run=run: run(LONG)) - short) / (LONG - SHORT))
    medians = {name: statistics.median(values) for name, values in times.items()}
    return [
        {
            "measured": "step",
            "batch": rows,
            "what": name,
            "ms": value,
            "/ forward": value / medians["forward"],
            "/ free": value / medians["free"],
        }
        for name, value in medians.items()
    ]


class Peer:
    """A logits processor that masks with a peer's matcher for one row."""

    def __init__(
        self, matcher: Any, fill: Callable[[Any], None], accept: Callable[[Any, int], Any], apply: Any
    ) -> None:
        self.matcher, self.fill, self.accept, self.apply = matcher, fill, accept, apply
        self.length: int | None = None

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        if self.length is not None:
            self.accept(self.matcher, int(input_ids[0, -1]))
        self.length = input_ids.shape[1]
        self.fill(self.matcher)
        self.apply(scores)
        return scores


def llguidance_peer(tokenizer: Any, pattern: str) -> Callable[[], Peer]:
    import llguidance
    import llguidance.hf
    import llguidance.torch as masks

    tokens = llguidance.hf.from_tokenizer(tokenizer)
    bits = masks.allocate_token_bitmask(1, tokens.vocab_size)
    matcher = llguidance.LLMatcher(tokens, llguidance.LLMatcher.grammar_from_regex(pattern))
    return lambda: Peer(
        matcher.deep_copy(),
        lambda matcher: masks.fill_next_token_bitmask(matcher, bits, 0),
        lambda matcher, token: matcher.consume_token(token),
        lambda scores: masks.apply_token_bitmask_inplace(scores, bits),
    )


def xgrammar_peer(tokenizer: Any, pattern: str) -> Callable[[], Peer]:
    import xgrammar

    info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=len(tokenizer))
    compiled = xgrammar.GrammarCompiler(info, max_threads=1).compile_regex(pattern)
    bits = xgrammar.allocate_token_bitmask(1, info.vocab_size)
    return lambda: Peer(
        xgrammar.GrammarMatcher(compiled),
        lambda matcher: matcher.fill_next_token_bitmask(bits),
        lambda matcher, token: matcher.accept_token(token),
        lambda scores: xgrammar.apply_token_bitmask_inplace(scores, bits),
    )


def peers(network: Any, tokenizer: Any, rounds: int) -> list[dict[str, Any]]:
    """Milliseconds for a whole text."""
    import torch
    from transformers import LogitsProcessorList
    from trellm import generate, models

    model = models.transformers(network, tokenizer)
    ids = torch.tensor([tokenizer.encode(PROMPT)])
    found: list[dict[str, Any]] = []
    for name, pattern in TEXTS.items():
        generator = generate.regex(model, pattern)

        def peer(make: Callable[[], Peer]) -> list[int]:
            out = network.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=250,
                do_sample=False,
                logits_processor=LogitsProcessorList([make()]),
            )
            return out[0, ids.shape[1] :].tolist()

        makers = {"llguidance": llguidance_peer(tokenizer, pattern), "xgrammar": xgrammar_peer(tokenizer, pattern)}
        runs: dict[str, Callable[[], list[int]]] = {
            "trellm": lambda generator=generator: list(
                generator.run(PROMPT, max_tokens=250, heal=False, draft=False).token_ids
            ),
            **{engine: lambda make=make: peer(make) for engine, make in makers.items()},
        }
        found += peer_rows(name, runs, tokenizer.eos_token_id, rounds)
    return found


def peer_rows(name: str, runs: dict[str, Callable[[], list[int]]], eos: int, rounds: int) -> list[dict[str, Any]]:
    """A row for each engine; where tokens differ, milliseconds per token are what can be compared."""
    tokens = {engine: [token for token in run() if token != eos] for engine, run in runs.items()}
    times: dict[str, list[float]] = {engine: [] for engine in runs}
    for _ in range(rounds):
        for engine, run in runs.items():
            times[engine].append(1e3 * timed(run))
    medians = {engine: statistics.median(values) for engine, values in times.items()}
    return [
        {
            "measured": "text",
            "batch": 1,
            "what": f"{name}: {engine}",
            "tokens": len(tokens[engine]),
            "same tokens": tokens[engine] == tokens["trellm"],
            "ms": value,
            "ms / token": value / len(tokens[engine]),
            "trellm / this": medians["trellm"] / value,
        }
        for engine, value in medians.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", help="a folder with a tokenizer, or a name on the Hub")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    pin_to_one_core()
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    network = make_model(tokenizer, options.layers, options.hidden)
    packages = ["trellm", "torch", "transformers", "llguidance", "xgrammar"]
    rows = steps(network, tokenizer, options.rounds)
    show(rows)
    save("decode_loop", rows, packages, options.tokenizer)
    rows += peers(network, tokenizer, options.rounds)
    show([row for row in rows if row["measured"] == "text"])
    save("decode_loop", rows, packages, options.tokenizer)


if __name__ == "__main__":
    main()
