"""The `generate` of transformers under our logits processor and the peers' matchers, and what our own engine chooses.

    python benchmarks/processors.py TOKENIZER [--rounds 5 --layers 1 --hidden 64] [--save]
    python benchmarks/processors.py TOKENIZER --agree 200 50 --schemas SCHEMAS.jsonl.gz [--save]

All on one core with one thread, in one run, the engines taking turns; medians, of processor time, since others may be
at work on the machine. The model is random and small, so that the time is mostly that of the host and the processors;
all are warm and have seen the constraint.

generate: ms a step of a batch of 1 or 8 texts, and what of it is the processor's; peers write the masks of a batch by
    their batched call
agree N M: no times, but whether our processor chooses what our own engine chooses, greedy, for N schemas of the file
    (those that are refused, or need more than 400 tokens, are passed over) and M regular expressions
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import time
from collections.abc import Callable
from random import Random
from typing import Any

from decode_loop import make_model
from recording import pin_to_one_core, save, show

from adapters import SCHEMA

PROMPT = "Give me one record of a person, and nothing else."
PATTERN = r"([A-Z][a-z]{2,8} ){2,4}was born on [0-9]{4}-[0-9]{2}-[0-9]{2} in [A-Z][a-z]{3,9}, near [A-Z][a-z]{3,9}\."
MAX, SPARE = 60, 40
REGEXES = [
    *(rf"[a-{chr(98 + n % 24)}]{{{1 + n % 3},{6 + n % 9}}}( [0-9]{{2}})?" for n in range(20)),
    *(rf"(\+[0-9]{{1,3}} )?[0-9]{{{3 + n % 4}}}-[0-9]{{4}}" for n in range(10)),
    *(rf"([A-Z][a-z]{{2,8}} ){{1,{1 + n % 5}}}(says|asks): \w+" for n in range(10)),
    *(rf"20[0-9]{{2}}-[01][0-9]-[0-3][0-9]T[0-9]{{2}}(:[0-9]{{2}}){{{1 + n % 2}}}" for n in range(10)),
]


class Timed:
    """A logits processor, and how much processor time it has taken."""

    def __init__(self, inner: Callable[[Any, Any], Any]) -> None:
        self.inner, self.seconds, self.steps = inner, 0.0, 0

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        begin = time.process_time()
        found = self.inner(input_ids, scores)
        self.seconds += time.process_time() - begin
        self.steps += 1
        return found


class Peer:
    """A logits processor that masks with a peer's matchers, one for each row; rows that have ended get their EOS."""

    def __init__(self, matchers: list[Any], fill: Callable[[Any, Any], object], accept: str, apply: Any, words: int):
        import torch

        self.matchers, self.fill, self.accept, self.apply = matchers, fill, accept, apply
        self.bits = torch.full((len(matchers), words), -1, dtype=torch.int32)
        self.is_first = True

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        if not self.is_first:
            for matcher, token in zip(self.matchers, input_ids[:, -1].tolist(), strict=True):
                getattr(matcher, self.accept)(token)
        self.is_first = False
        self.fill(self.matchers, self.bits)
        self.apply(scores, self.bits)
        return scores


def peers(tokenizer: Any, size: int, kind: str, rows: int) -> dict[str, Callable[[], Any]]:
    """Processors of the peers for a kind of constraint, JSON without white space."""
    import llguidance
    import llguidance.hf
    import llguidance.torch as masks
    import xgrammar

    tokens = llguidance.hf.from_tokenizer(tokenizer, size)
    compiler = xgrammar.GrammarCompiler(
        xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=size), max_threads=1
    )
    if kind == "json":
        text = json.dumps(SCHEMA)
        grammar = llguidance.LLMatcher.grammar_from_json_schema(text, overrides={"whitespace_flexible": False})
        compiled = compiler.compile_json_schema(text, any_whitespace=False, separators=(",", ":"))
    else:
        grammar, compiled = llguidance.LLMatcher.grammar_from_regex(PATTERN), compiler.compile_regex(PATTERN)
    executor, batch, words = llguidance.LLExecutor(1), xgrammar.BatchGrammarMatcher(max_threads=1), (size + 31) // 32

    def fill_llguidance(matchers: list[Any], bits: Any) -> None:
        masks.fill_next_token_bitmask_par(executor, [(matcher, row) for row, matcher in enumerate(matchers)], bits)

    return {
        "llguidance": lambda: Peer(
            [llguidance.LLMatcher(tokens, grammar) for _ in range(rows)],
            fill_llguidance, "consume_token", masks.apply_token_bitmask_inplace, words,
        ),
        "xgrammar": lambda: Peer(
            [xgrammar.GrammarMatcher(compiled) for _ in range(rows)],
            batch.batch_fill_next_token_bitmask, "accept_token", xgrammar.apply_token_bitmask_inplace, words,
        ),
    }  # fmt: skip


def generate(guide: Any, kind: str, tokenizer: Any, network: Any, rows: int, rounds: int) -> list[dict[str, Any]]:
    """Texts of `transformers.generate` under processors. All rows are the same text, so that all end together."""
    import torch
    from trellm.adapters.transformers import GuideLogitsProcessor

    ids = tokenizer([PROMPT] * rows, return_tensors="pt").input_ids
    makers: dict[str, Callable[[], Any]] = {
        "trellm": lambda: GuideLogitsProcessor(guide),
        "trellm, complete within the budget": lambda: GuideLogitsProcessor(guide, max_new_tokens=MAX),
        **peers(tokenizer, guide.vocabulary.size, kind, rows),
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in makers}
    for turn in range(rounds + 1):
        for name, make in makers.items():
            processor = Timed(make())
            begin = time.process_time()
            network.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=MAX, do_sample=False,
                logits_processor=[processor],
            )  # fmt: skip
            spent = time.process_time() - begin
            if turn:
                times[name].append((spent / processor.steps, processor.seconds / processor.steps))
    found = {
        name: [1e3 * statistics.median(each) for each in zip(*values, strict=True)] for name, values in times.items()
    }
    return [
        {
            "measured": f"generate, {kind}, batch of {rows}", "what": name, "ms a step": whole, "processor's ms": own,
            "/ trellm": whole / found["trellm"][0], "processor's / trellm": own / found["trellm"][1],
        }
        for name, (whole, own) in found.items()
    ]  # fmt: skip


def agree(tokenizer: Any, schemas: str | None, counts: list[int]) -> list[dict[str, Any]]:
    """Whether our processor and our engine choose the same tokens; so many of both kinds."""
    from transformers import LogitsProcessorList
    from trellm import TrellmError, models
    from trellm.adapters.transformers import GuideLogitsProcessor, vocabulary_for
    from trellm.engine.generator import Generator
    from trellm.guides import JSONGuide, RegexGuide

    network = make_model(tokenizer, 1, 64)
    model = models.transformers(network, tokenizer)
    vocabulary = vocabulary_for(network, tokenizer)
    ids = tokenizer(PROMPT, return_tensors="pt").input_ids
    makers: list[tuple[str, Callable[[], Any]]] = [
        ("regex", lambda pattern=pattern: RegexGuide(pattern, vocabulary)) for pattern in REGEXES[: counts[1]]
    ]
    if counts[0] and schemas:
        with gzip.open(schemas, "rt", encoding="utf-8") as file:
            records = [json.loads(line) for line in file]
        chosen = Random(1).sample(records, min(len(records), counts[0] + SPARE))
        makers += [("schema", lambda each=each: JSONGuide(each["schema"], vocabulary)) for each in chosen]
    same, refused, differ = ({"regex": 0, "schema": 0} for _ in range(3))
    wanted = {"regex": counts[1], "schema": counts[0]}
    for kind, make in makers:
        if same[kind] + differ[kind] == wanted[kind]:
            continue
        try:
            guide = make()
            tokens = max(60, guide.distance(guide.start) + 5)
        except TrellmError:
            refused[kind] += 1
            continue
        if tokens > 400:
            refused[kind] += 1
            continue
        processor = GuideLogitsProcessor(guide, max_new_tokens=tokens)
        found = network.generate(
            ids, attention_mask=ids * 0 + 1, max_new_tokens=tokens, do_sample=False,
            logits_processor=LogitsProcessorList([processor]),
        )[0, ids.shape[1] :].tolist()  # fmt: skip
        expected = Generator(model, guide).run(PROMPT, max_tokens=tokens, heal=False)
        ours = list(expected.token_ids)
        complete = guide.is_accepting(guide.read(guide.start, vocabulary.decode(found)))
        if [token for token in found if token not in vocabulary.eos_ids] == ours and complete:
            same[kind] += 1
        else:
            differ[kind] += 1
            print("differs:", guide, found, ours)
    return [
        {"what": kind, "the same": same[kind], "different": differ[kind], "passed over": refused[kind]} for kind in same
    ]


def main() -> None:
    pin_to_one_core()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--agree", nargs=2, type=int)
    parser.add_argument("--schemas")
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()

    from transformers import AutoTokenizer
    from trellm import Vocabulary
    from trellm.guides import JSONGuide, RegexGuide

    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    name, rows = "processors", list[dict[str, Any]]()
    if options.agree:
        name, rows = "processors_agree", agree(tokenizer, options.schemas, options.agree)
    else:
        network, vocabulary = (
            make_model(tokenizer, options.layers, options.hidden),
            Vocabulary.from_tokenizer(tokenizer),
        )
        guides = {
            "json": JSONGuide(SCHEMA, vocabulary, order="schema", whitespace="compact", spelling="plain"),
            "regex": RegexGuide(PATTERN, vocabulary),
        }
        for kind, guide in guides.items():
            for batch in (1, 8):
                rows += generate(guide, kind, tokenizer, network, batch, options.rounds)
    show(rows)
    if options.save:
        print(save(name, rows, ["llguidance", "xgrammar", "transformers", "torch", "numba"], options.tokenizer))


if __name__ == "__main__":
    main()
