"""A soak of the engine: random requests of all kinds, each of which must come to what it comes to alone.

    python benchmarks/fuzz/requests.py [--cases 10000] [--seed 0] [--blocks 320] [--longest 4000] [--log FILE]

The model is a tiny random Llama in float64, so that batches of other sizes choose the same tokens. Requests are greedy,
sampled and beam searches, free and under regular expressions and a JSON Schema, behind prompts of 1 to 4,000 tokens
that often begin alike; some are cancelled on their way. With `--blocks 40 --longest 100` the memory is so small that
texts often give up theirs. Blocks are looked at after every step. Prints how many requests were compared and how many
steps and give-ups there were; differences go to --log, and make it exit with 1.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

PATTERNS = [None, "[a-d ]{3,30}e", "(ab|ba|c){2,}d", "[a-h]{20,60}", "[0-9]{4}-[0-9]{2}"]
SCHEMA = {"type": "array", "items": {"type": "integer", "maximum": 99}, "minItems": 2, "maxItems": 5}
LENGTHS = [1, 3, 15, 16, 17, 40, 100, 100, 400, 1500, 4000]
LETTERS = " abcdefghijklmnopqrstuvwxyz0123456789-,[]"


def make_model() -> Any:
    """A tiny Llama over single characters."""
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE
    from trellm import models

    torch.set_num_threads(1)
    torch.manual_seed(1)
    tokens = ["<bos>", "<eos>", "Ġ", *LETTERS[1:]]
    backend = Tokenizer(BPE({token: i for i, token in enumerate(tokens)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<bos>", eos_token="<eos>")
    config = transformers.LlamaConfig(
        vocab_size=len(tokens), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=8192, initializer_range=0.4, bos_token_id=0, eos_token_id=1,
        pad_token_id=1,
    )  # fmt: skip
    return models.transformers(transformers.LlamaForCausalLM(config).double().eval(), tokenizer)


class Requests:
    """Random requests for one model."""

    def __init__(self, model: Any, seed: int, longest: int) -> None:
        from trellm import generate

        self.lengths = [length for length in LENGTHS if length <= longest]

        self.model = model
        self.pick = random.Random(seed)
        self.generators = [generate.text(model) if each is None else generate.regex(model, each) for each in PATTERNS]
        self.generators.append(generate.json(model, SCHEMA, whitespace="compact"))
        self.prompts = ["".join(self.pick.choices(LETTERS[1:27], k=4000)) for _ in range(5)]

    def one(self) -> Any:
        """The next one."""
        from trellm import Beam, Greedy, Sample
        from trellm.engine.decode.requests import requests_of
        from trellm.engine.options import Options

        pick = self.pick
        prompt = pick.choice(self.prompts)[: pick.choice(self.lengths)]
        prompt += "".join(pick.choices(LETTERS[1:27], k=pick.choice([0, 0, 1, 20])))
        searches = [Greedy(), Greedy(), Sample(), Sample(temperature=0.7, top_p=0.8), Beam(2), Beam(4, n=2)]
        options = Options(
            search=pick.choice(searches),
            seed=pick.randrange(1000),
            max_tokens=pick.choice([70, 90]),
            no_repeat_ngram_size=pick.choice([0, 0, 0, 4]),
            repetition_penalty=pick.choice([1.0, 1.0, 1.0, 1.2]),
            logprobs=pick.random() < 0.1,
        )
        return requests_of(self.model, [pick.choice(self.generators).job(prompt)], options)[0]


def tokens_of(call: Any, number: int) -> Any:
    outcome = call.outcomes[number]
    return repr(outcome.error) if outcome.error else [list(row.tokens) for row in outcome.rows]


def alone(model: Any, request: Any) -> Any:
    """What a request comes to with an engine of its own, which reads its prompt in one piece."""
    from trellm.engine.schedule.call import Call
    from trellm.engine.schedule.loop import Loop
    from trellm.engine.schedule.scheduler import Pace

    loop, call = Loop(model, 2048, Pace(tokens=8192)), Call([request], 100)
    loop.calls.append(call)
    while not call.outcomes:
        loop.step()
    return tokens_of(call, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--blocks", type=int, default=320)
    parser.add_argument("--longest", type=int, default=4000, help="prompt, in tokens")
    parser.add_argument("--log", type=Path)
    options = parser.parse_args()
    from trellm.engine.schedule.call import Call
    from trellm.engine.schedule.loop import Loop
    from trellm.engine.schedule.scheduler import Pace, Scheduler

    model = make_model()
    given_up, give_up = [0], Scheduler._give_up

    def counted(self: Any, entry: Any) -> None:
        given_up[0] += 1
        give_up(self, entry)

    Scheduler._give_up = counted
    requests, begin = Requests(model, options.seed, options.longest), time.monotonic()
    loop, pick = Loop(model, options.blocks, Pace(tokens=512, chunk=128)), random.Random(options.seed)
    calls: list[Any] = []
    made = compared = cancelled = different = 0
    while made < options.cases or calls:
        while made < options.cases and len(calls) < 6:
            call = Call([requests.one() for _ in range(pick.randint(1, 4))], pick.choice([1, 4, 16]))
            made += len(call.requests)
            calls.append(call)
            loop.calls.append(call)
        loop.step()
        loop.check()
        if pick.random() < 0.002:
            pick.choice(calls).is_cancelled = True
        for call in [call for call in calls if call.is_cancelled or len(call.outcomes) == len(call.requests)]:
            calls.remove(call)
            cancelled += len(call.requests) * call.is_cancelled
            for number, request in enumerate([] if call.is_cancelled else call.requests):
                found, expected = tokens_of(call, number), alone(model, request)
                compared += 1
                if found != expected:
                    different += 1
                    print(f"different: {request}\n  {found}\n  {expected}", flush=True)
                    if options.log:
                        with options.log.open("a") as file:
                            file.write(json.dumps({"request": repr(request), "found": found, "alone": expected}) + "\n")
    loop.step()
    assert not loop.tables and loop.held_blocks == 0, "all memory is free at the end"
    print(
        f"{compared} requests compared, {different} different, {cancelled} cancelled; {loop.steps} steps, "
        f"{given_up[0]} give-ups, {time.monotonic() - begin:.0f} s"
    )
    sys.exit(different > 0)


if __name__ == "__main__":
    main()
