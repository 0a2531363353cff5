"""Drafts: the time of texts that can be guessed, and of some that cannot, with and without them.

    python benchmarks/drafts.py [--rounds 9 --steps 700] [--save]

On one core with one thread, with and without in turn; medians of processor time, and the ratio of each round. Two
models: one of two layers, over words and characters, which learns to go on with what stands in its prompt while
the benchmark runs (random tokens, repeated; a minute), and the small model of the package. `same`: whether
the tokens were the same with and without, as those of equal numbers are; in float32 two nearly equal logits may change
places in a wider step.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import string
import time
from collections.abc import Callable, Sequence
from typing import Any

from recording import pin_to_one_core, save, show

RATE = 2e-3
WIDTH = 128
READ = 1200
"""Tokens of a step of training."""
SHORTEST, LONGEST = 16, 96
"""Tokens that are repeated: few at first, from which it is learnt soonest; the passage and the record have about 75."""
PASSAGE = (
    "The lamplighter of Quivermoor kept a ledger bound in blue cloth. In it he wrote the hour of every flame, the wind "
    "that troubled it, and the names of those who walked below: Zadie Brumfeld with her two grey dogs, Oskar Vint the "
    "clockmaker, and on Thursdays a tall stranger who never gave any name at all but tipped his hat to each lamp."
)
FIELDS = ("order", "seal", "berth")
TOKENS = (*(f'{name}":Ġ"' for name in FIELDS), '",Ġ"', *(f"Ġ{word.strip('.,:')}" for word in PASSAGE.split()[1:]))
"""Beside characters; the model goes by the last tokens, mostly by one, which must tell what is to be repeated."""
BILL = "On 3 March 2021, Brela Stonkard bought the copper kettle from Velmor Trading. The bill has not been paid."
SENTENCE = f"{BILL}\n\nWhat was bought, when, and from whom? Quote the sentence.\nAnswer: "
ASKED = f"{BILL}\n\nFields: buyer (string), item (string), seller (string), date (string)\nAnswer:\n"
BILL_FIELDS = ("buyer", "item", "seller", "date")


def schema(names: Sequence[str]) -> dict[str, Any]:
    """That of a record of strings."""
    return {
        "type": "object",
        "properties": {name: {"type": "string"} for name in names},
        "required": list(names),
        "additionalProperties": False,
    }


def record(length: int) -> str:
    """A record as JSON whose values are codes of so many characters, none of which comes twice."""
    letters = random.Random(0).sample(string.ascii_letters + string.digits, len(FIELDS) * length)
    codes = ["".join(letters[start : start + length]) for start in range(0, len(letters), length)]
    return json.dumps(dict(zip(FIELDS, codes, strict=True)))


def copying_model(steps: int) -> Any:
    """A model that has learned to repeat: what stood behind the last two tokens when they came before."""
    import transformers
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE
    from trellm import models

    transformers.set_seed(0)
    letters = [c for c in sorted(pre_tokenizers.ByteLevel.alphabet()) if c.isascii()]
    merges = list(dict.fromkeys((text[:i], text[i]) for text in (*TOKENS, "The") for i in range(1, len(text))))
    tokens = ["<bos>", "<eos>", *letters, "Ġ", "Ċ", *(left + right for left, right in merges)]
    backend = Tokenizer(BPE({token: i for i, token in enumerate(tokens)}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<bos>", eos_token="<eos>")
    # The first layer sees a token and the one before, from which the second learns within some hundred steps to look
    # for what stood behind the same two.
    network: Any = transformers.Qwen3ForCausalLM(
        transformers.Qwen3Config(
            vocab_size=len(tokens), hidden_size=WIDTH, intermediate_size=2 * WIDTH, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=4, head_dim=32, max_position_embeddings=4096,
            layer_types=["sliding_attention", "full_attention"], sliding_window=2, use_sliding_window=True,
            bos_token_id=0, eos_token_id=1, pad_token_id=1,
        )
    )  # fmt: skip
    learn(network, len(tokens), steps)
    return models.transformers(network.eval(), tokenizer)


def learn(network: Any, size: int, steps: int) -> None:
    """Let a network repeat random tokens."""
    import torch

    optimizer: Any = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=0.0, betas=(0.9, 0.98))
    begin = time.monotonic()
    right = 0.0
    for step in range(steps):
        most = SHORTEST + (LONGEST - SHORTEST) * min(max(2 * step / steps - 0.8, 0), 1)
        length = int(torch.randint(int(most) // 2, int(most) + 1, ()))
        rows = READ // (2 * length + 10)
        before, between = (torch.randint(2, size, (rows, int(torch.randint(1, 10, ())))) for _ in range(2))
        repeated = torch.randint(2, size, (rows, length))
        ids = torch.cat([before, repeated, between, repeated], 1)
        logits = network(input_ids=ids, use_cache=False).logits[:, 1 - length : -1]
        loss: Any = torch.nn.functional.cross_entropy(logits.flatten(0, 1), repeated[:, 2:].flatten())
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1, (step + 1) / 50, 4 * (steps - step) / steps)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        right += 0.05 * (float((logits.argmax(-1) == repeated[:, 2:]).float().mean()) - right)
    share = f"{100 * right:.0f} % of repeated tokens right"
    print(f"copying model: {steps} steps, {time.monotonic() - begin:.0f} s, {share}")


def tasks(copying: Any, small: Any) -> list[tuple[str, str, Callable[[bool], Any]]]:
    """Model, task, and what runs it with or without drafts."""
    from trellm import Sample, generate

    quote = generate.extract(copying, PASSAGE)
    codes = generate.json(copying, schema(FIELDS))
    bill = generate.json(small, schema(BILL_FIELDS))
    sentence = generate.extract(small, BILL, boundary="sentence")
    hot = Sample(temperature=4.0)

    def runs(generator: Any, prompt: str, **options: Any) -> Callable[[bool], Any]:
        return lambda draft: generator.run(prompt, draft=draft, **options)

    return [
        ("copying", "quotation", runs(quote, f"{PASSAGE}\n\n{PASSAGE[:4]}", max_tokens=400)),
        ("copying", "JSON", runs(codes, f"{record(12)}\n\n", max_tokens=400)),
        ("copying", "nothing to guess", runs(generate.text(copying), PASSAGE, max_tokens=300, min_tokens=300,
                                             search=hot, seed=1)),
        ("small", "quotation", runs(sentence, SENTENCE)),
        ("small", "JSON", runs(bill, ASKED)),
        ("small", "nothing to guess", runs(generate.text(small), BILL, max_tokens=200, min_tokens=200, search=hot,
                                           seed=1)),
    ]  # fmt: skip


def measure(model: str, task: str, run: Callable[[bool], Any], rounds: int) -> dict[str, Any]:
    """Times of a task with and without, taking turns; the first round warms up, and lets the engine measure."""
    times: dict[bool, list[float]] = {True: [], False: []}
    results: dict[bool, Any] = {}
    for turn in range(rounds + 1):
        for draft in (True, False) if turn % 2 else (False, True):
            begin = time.process_time()
            results[draft] = run(draft)
            if turn:
                times[draft].append(time.process_time() - begin)
    found, plain = results[True], results[False]
    return {
        "model": model,
        "task": task,
        "tokens": len(found.token_ids),
        "steps": found.steps,
        "steps without": plain.steps,
        "ms": 1e3 * statistics.median(times[True]),
        "ms without": 1e3 * statistics.median(times[False]),
        "times": statistics.median(without / with_ for with_, without in zip(times[True], times[False], strict=True)),
        "same": found.token_ids == plain.token_ids,
    }


def main() -> None:
    """Train, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=700, help="of training")
    parser.add_argument("--save", action="store_true")
    given = parser.parse_args()
    pin_to_one_core()
    import torch
    from trellm import models

    torch.set_num_threads(1)
    rows = [measure(*task, given.rounds) for task in tasks(copying_model(given.steps), models.small())]
    show(rows)
    if given.save:
        print(save("drafts", rows, ["torch", "transformers", "numba"]))


if __name__ == "__main__":
    main()
