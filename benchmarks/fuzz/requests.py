"""A soak of the engine: random requests of all kinds, each of which must come to what it comes to alone.

    python benchmarks/fuzz/requests.py [--cases 10000] [--seed 0] [--blocks 320] [--longest 4000] [--ahead | --drafts]
        [--minutes 30] [--log FILE]

The model is a tiny random Llama in float64, so that batches of other sizes choose the same tokens. Requests are greedy,
sampled and beam searches, free and under regular expressions and a JSON Schema, behind prompts of 1 to 4,000 tokens
that often begin alike; some are cancelled on their way. With `--blocks 40 --longest 100` the memory is so small that
texts often give up theirs. Blocks are looked at after every step. Prints how many requests were compared and how many
steps and give-ups there were; differences go to --log, and make it exit with 1.

With `--ahead` rows go on by themselves, as on a GPU, up to 32 launches in a step, and everything is small by turns:
every 60 requests another engine is made, with other memory, room for records, window and lengths, and in half of them
all drafts are read. Steps are broken off at random, by Ctrl-C and by memory that runs out in the midst of one.

With `--drafts` drafts are read at random, whatever they cost; some requests have a smaller model
besides, which is the model itself, so that its drafts are right, or one that is wrong. Alone, requests run without.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

PATTERNS = [None, "[a-d ]{3,30}e", "(ab|ba|c){2,}d", "[a-h]{20,60}", "[0-9]{4}-[0-9]{2}"]
FORCED = ["xyzwvuqp[ab]{20}", "[ab]xyzwvuqpxyzwvuqp[cd]{3}xyzw"]
"""Patterns of which much follows from little, with --ahead."""
SCHEMA = {"type": "array", "items": {"type": "integer", "maximum": 99}, "minItems": 2, "maxItems": 5}
LENGTHS = [1, 3, 15, 16, 17, 40, 100, 100, 400, 1500, 4000]
LETTERS = " abcdefghijklmnopqrstuvwxyz0123456789-,[]"


IDLE = 20
"""After so many steps in which nobody reads and nobody is done, nobody ever will."""
AROUND = 60
"""Requests of one engine, with --ahead."""
SOMETIMES = 0.7
"""The share of drafts that are read, with --drafts; a smaller model is asked where none is."""
BROKEN = 0.002
"""The share of forward passes that are broken off, with --ahead."""


def make_model(window: int | None = None, merges: Sequence[tuple[str, str]] = ()) -> Any:
    """A tiny Llama over single characters, or a Mistral that looks back so many tokens."""
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE
    from trellm import models

    torch.set_num_threads(1)
    torch.manual_seed(1)
    tokens = ["<bos>", "<eos>", "Ġ", *LETTERS[1:], *(left + right for left, right in merges)]
    backend = Tokenizer(BPE({token: i for i, token in enumerate(tokens)}, list(merges)))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<bos>", eos_token="<eos>")
    sizes = {
        "vocab_size": len(tokens), "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 8192, "initializer_range": 0.4,
        "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1,
    }  # fmt: skip
    if window is None:
        network: Any = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
    else:
        network = transformers.MistralForCausalLM(transformers.MistralConfig(**sizes, sliding_window=window))
    return models.transformers(network.double().eval(), tokenizer)


def batched(model: Any) -> Any:
    """The same model, whose rows go on by themselves; its forward passes are broken off at random."""
    from trellm.engine.device.backend import HostBackend
    from trellm.engine.models.decoder import DecoderModel

    class BatchDecoder(DecoderModel):
        pick = random.Random(0)
        broken = launches = 0

        def batch_backend(self, memory: Any, records: Any) -> HostBackend:
            return HostBackend(self, memory, records)

        def forward(self, chunks: Any, memory: Any) -> Any:
            self._pass(chunks)
            return super().forward(chunks, memory)

        def forward_ends(self, chunks: Any, ends: Any, memory: Any) -> Any:
            self._pass(chunks)
            return super().forward_ends(chunks, ends, memory)

        def _pass(self, chunks: Any) -> None:
            self.launches += 1
            if self.pick.random() < BROKEN:
                self.broken += 1
                raise MemoryError if self.pick.random() < 0.5 and len(chunks) > 1 else KeyboardInterrupt

    return BatchDecoder(model.model, model.tokenizer)


class Requests:
    """Random requests for one model. longest: prompt, in tokens; blocks: of the engine, in which each must fit"""

    def __init__(self, model: Any, seed: int, longest: int, blocks: int) -> None:
        from trellm import generate

        self.blocks = blocks
        self.lengths = [length for length in LENGTHS if length <= longest]

        self.model = model
        self.drafts: list[Any] = [True]
        self.pick = random.Random(seed)
        self.generators = [generate.text(model) if each is None else generate.regex(model, each) for each in PATTERNS]
        self.generators.append(generate.json(model, SCHEMA, whitespace="compact"))
        self.plain_generators = [*self.generators, *(generate.regex(model, each) for each in FORCED)]
        self.texts: deque[str] = deque(maxlen=20)
        self.prompts = ["".join(self.pick.choices(LETTERS[1:27], k=4000)) for _ in range(5)]

    def one(self, is_plain: bool = False) -> Any:
        """The next one that fits. is_plain: nothing that keeps a row from going on by itself"""
        from trellm import OptionError
        from trellm.engine.engine import check_fits

        while True:
            request = self._any(is_plain)
            try:
                check_fits(self.model, request, self.blocks)
            except OptionError:
                continue
            return request

    def _any(self, is_plain: bool) -> Any:
        from trellm import Beam, Greedy, Sample
        from trellm.engine.decode.requests import requests_of
        from trellm.engine.options import Options

        pick = self.pick
        prompt = pick.choice(self.prompts)[: pick.choice(self.lengths)]
        prompt += "".join(pick.choices(LETTERS[1:27], k=pick.choice([0, 0, 1, 20])))
        searches = [Greedy(), Greedy(), Sample(), Sample(temperature=0.7, top_p=0.8), Beam(2), Beam(4, n=2)]
        generator = pick.choice(self.plain_generators if is_plain else self.generators)
        if is_plain:
            if self.texts and pick.random() < 0.3:
                text = pick.choice(self.texts)
                begin = pick.choice([0, 0, pick.randrange(len(text))])
                prompt = text[begin : begin + pick.choice([17, 18, 33, len(text)])][:100]
            is_text = generator is self.generators[0]
            options = Options(
                search=pick.choice(searches[:4]),
                seed=pick.randrange(1000),
                max_tokens=pick.choice([1, 2, 17, 70, 90] if is_text else [70, 90]),
                heal=pick.random() < 0.8,
                stop=pick.choice([(), (), "e", ["th", "12"]]) if is_text else (),
                include=pick.choice([(), (), "on"]) if is_text else (),
            )
            if options.include and options.max_tokens is not None and options.max_tokens < 17:
                options = Options(search=options.search, seed=0, max_tokens=17, include="on")
        else:
            search = pick.choice(searches)
            options = Options(
                search=search,
                seed=pick.randrange(1000),
                max_tokens=pick.choice([70, 90]),
                no_repeat_ngram_size=pick.choice([0, 0, 0, 4]),
                repetition_penalty=pick.choice([1.0, 1.0, 1.0, 1.2]),
                presence_penalty=pick.choice([0.0, 0.0, 0.0, 1.0]),
                logit_bias=pick.choice([None, None, None, {20: 2.0, 30: -3.0}]),
                logprobs=pick.random() < 0.1,
                draft=True if isinstance(search, Beam) else pick.choice(self.drafts),
            )
        return requests_of(self.model, [generator.job(prompt, options)], options)[0]


def tokens_of(call: Any, number: int) -> Any:
    outcome = call.outcomes[number]
    return repr(outcome.error) if outcome.error else [list(row.tokens) for row in outcome.sequences]


def alone(model: Any, request: Any) -> Any:
    """What a request comes to with an engine of its own, which reads its prompt in one piece, and asks its guide about
    each token."""
    from trellm.engine.decode.sampler import Sampler
    from trellm.engine.schedule.call import Call
    from trellm.engine.schedule.core import EngineCore
    from trellm.engine.schedule.scheduler import SchedulerConfig

    loop, call = (
        EngineCore(model, 2048, SchedulerConfig(max_num_batched_tokens=8192)),
        Call([replace(request, options=replace(request.options, draft=False))], 100),
    )
    loop.calls.append(call)
    with patch.object(Sampler, "_find_entry", lambda self, row: None):
        while not call.outcomes:
            loop.step()
    return tokens_of(call, 0)


class Soak:
    """Requests on their way in one engine after the other, and how many came to what they come to alone.

    plain: the model that they are run with alone; log: where differences are written
    ends: when no more are made, by the monotonic clock
    """

    def __init__(self, plain: Any, seed: int, log: Path | None, ends: float = math.inf) -> None:
        self.plain = plain
        self.ends = ends
        self.pick = random.Random(seed)
        self.log = log
        self.compared = self.cancelled = self.different = self.steps = self.failed = 0

    def run(self, loop: Any, requests: Requests, cases: int, ahead: bool) -> None:
        """So many requests through an engine. ahead: with several launches in a step, and some broken off"""
        from trellm.engine.schedule.call import Call

        pick = self.pick
        calls: list[Any] = []
        made, is_plain, idle, before = 0, False, 0, (0, 0)
        while made < cases or calls:
            if time.monotonic() > self.ends:
                cases = made
            while made < cases and len(calls) < 6:
                is_plain = ahead and (is_plain if pick.random() < 0.9 else pick.random() < 0.8)
                call = Call([requests.one(is_plain) for _ in range(pick.randint(1, 4))], pick.choice([1, 4, 16]))
                made += len(call.requests)
                calls.append(call)
                loop.calls.append(call)
                if ahead and pick.random() < 0.4:
                    break
            if ahead:
                self._step_ahead(loop, calls)
            else:
                loop.step()
            loop.check()
            known = sum(len(table.tokens) for table in loop.tables), sum(len(call.outcomes) for call in calls)
            idle, before = idle + 1 if known == before else 0, known
            assert idle < IDLE, "nobody reads, and nobody is done: the first in line fits into no memory"
            if calls and pick.random() < 0.002:
                pick.choice(calls).is_cancelled = True
            for call in [call for call in calls if call.is_cancelled or len(call.outcomes) == len(call.requests)]:
                calls.remove(call)
                self.cancelled += len(call.requests) * call.is_cancelled
                for number in range(0 if call.is_cancelled else len(call.requests)):
                    self._compare(requests, call, number)
        loop.step()
        assert not loop.tables and loop.held_blocks == 0, "all memory is free at the end"
        self.steps += loop.steps

    def _step_ahead(self, loop: Any, calls: list[Any]) -> None:
        """A step as those who wait for a result take it, in the midst of which others come or are cancelled."""
        pick = self.pick
        share = pick.choice([0, 0, 0.1, 0.5])

        def is_over() -> bool:
            if pick.random() < 0.0002:
                pick.choice(calls).is_cancelled = True
            return pick.random() < share or any(call.is_cancelled for call in calls)

        try:
            loop.step(pick.choice([1, 2, 8, 32, 32]), is_over)
        except KeyboardInterrupt:
            assert loop.model.broken, "it was one of those that break steps off"

    def _compare(self, requests: Requests, call: Any, number: int) -> None:
        request = call.requests[number]
        found = tokens_of(call, number)
        if found == "MemoryError()":
            self.failed += 1
            return
        requests.texts.append(self.plain.vocabulary.decode([*request.start.prompt, *found[0]]).decode())
        expected = alone(self.plain, request)
        self.compared += 1
        if found != expected:
            self.different += 1
            print(f"different: {request}\n  {found}\n  {expected}", flush=True)
            if self.log:
                with self.log.open("a") as file:
                    file.write(json.dumps({"request": repr(request), "found": found, "alone": expected}) + "\n")


def run_ahead(soak: Soak, cases: int) -> Any:
    """One small engine after the other. Returns what counts launches."""
    from trellm.engine.device import slots, state_table
    from trellm.engine.schedule.core import EngineCore
    from trellm.engine.schedule.scheduler import SchedulerConfig

    pick = soak.pick
    merges = [("t", "h"), ("th", "e"), ("1", "2"), ("a", "b"), ("ab", "c"), ("o", "n")]
    models = [(plain, batched(plain)) for plain in (make_model(window, merges) for window in (None, 7, 40))]
    for begin in range(0, cases, AROUND):
        soak.plain, model = pick.choice(models)
        state_table.RECORDS = pick.choice([2, 5, 40, 2048])
        slots.LIKELY = pick.choice([0.0, 0.5])
        blocks = pick.choice([12, 15, 18, 45, 320])
        requests = Requests(model, pick.randrange(1 << 30), pick.choice([3, 17, 100]), blocks)
        config = SchedulerConfig(
            max_num_batched_tokens=pick.choice([16, 16, 64, 512]), prefill_chunk_size=pick.choice([16, 32, 128])
        )
        soak.run(EngineCore(model, blocks, config), requests, min(AROUND, cases - begin), ahead=True)
    return [model for _, model in models]


def read_drafts(model: Any, requests: Requests) -> list[int]:
    """Let drafts be read, or not, at random. Returns how many there are, and how many were right."""
    from trellm import models
    from trellm.engine.drafts import Drafter, ForwardCosts, StepDrafts

    counts, advance = [0, 0], Drafter.advance

    def counted(self: Any, reading: Any, found: StepDrafts) -> None:
        before = [(row, len(row.table.tokens)) for row in found.tokens]
        counts[0] += found.count
        advance(self, reading, found)
        counts[1] += sum(len(row.table.tokens) - length for row, length in before)

    def pays(self: Any, probability: float, *others: float) -> bool:
        return requests.pick.random() < SOMETIMES

    ForwardCosts.pays, Drafter.advance = pays, counted  # type: ignore[method-assign]
    wrong = models.from_function(lambda ids: [float(token == ids[-1]) for token in range(model.vocabulary.size)],
                                 model.vocabulary)  # fmt: skip
    requests.drafts = [True, True, True, model, wrong]
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--blocks", type=int, default=320)
    parser.add_argument("--longest", type=int, default=4000, help="prompt, in tokens")
    parser.add_argument("--ahead", action="store_true", help="let rows go on by themselves, in small engines")
    parser.add_argument("--drafts", action="store_true", help="read drafts whatever they cost")
    parser.add_argument("--minutes", type=float, default=math.inf, help="make no more requests after so many")
    parser.add_argument("--log", type=Path)
    options = parser.parse_args()
    from trellm.engine.schedule.core import EngineCore
    from trellm.engine.schedule.scheduler import Scheduler, SchedulerConfig

    given_up, give_up = [0], Scheduler._preempt

    def counted(self: Any, entry: Any) -> None:
        given_up[0] += 1
        give_up(self, entry)

    Scheduler._preempt = counted
    begin = time.monotonic()
    soak = Soak(None, options.seed, options.log, begin + 60 * options.minutes)
    if options.ahead:
        models = run_ahead(soak, options.cases)
        passes, broken = (sum(getattr(model, name) for model in models) for name in ("launches", "broken"))
        print(f"{passes} forward passes, {broken} broken off, with which {soak.failed} requests failed")
    else:
        soak.plain = model = make_model()
        loop = EngineCore(model, options.blocks, SchedulerConfig(max_num_batched_tokens=512, prefill_chunk_size=128))
        requests = Requests(model, options.seed, options.longest, options.blocks)
        drafts = read_drafts(model, requests) if options.drafts else None
        soak.run(loop, requests, options.cases, ahead=False)
        if drafts:
            print(f"{drafts[0]} drafts were read, {drafts[1]} of them right")
    print(
        f"{soak.compared} requests compared, {soak.different} different, {soak.cancelled} cancelled; {soak.steps} "
        f"steps, {given_up[0]} give-ups, {time.monotonic() - begin:.0f} s"
    )
    sys.exit(soak.different > 0)


if __name__ == "__main__":
    main()
