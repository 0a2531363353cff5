"""The guides in other engines: bitmasks for a batch, drafts, and `generate` of transformers, beside the peers.

    python benchmarks/adapters.py TOKENIZER [--rounds 20 --layers 4 --hidden 256 --only fill draft generate] [--save]
    python benchmarks/adapters.py TOKENIZER --agree 200 50 --schemas SCHEMAS.jsonl.gz

All on one core with one thread, in one run, the engines taking turns; medians, of processor time, since others may be
at work on the machine.

fill: µs to write the masks of 256 texts at random places of one schema, all seen before; the peers by their batched
    call, and one by one; ours for 256 states of a guide, for as many sessions, and one by one
draft: µs to take 8 drafted tokens and to give them back
generate: ms for a text of `transformers.generate` with our processor, and with a peer's matcher as a processor; all
    are warm and have seen the constraint
--agree N M: no times, but whether our processor chooses what our own engine chooses, greedy, for N schemas of the file
    (as far as they are supported) and M regular expressions, with a random model
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

ROWS, DRAFTED = 256, 8
BURST, AT_A_TURN = 20, 0.05
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "minItems": 2, "maxItems": 4},
        "zip": {"type": "string", "pattern": "^[0-9]{5}$"},
    },
    "required": ["name", "age", "tags", "zip"],
    "additionalProperties": False,
}
PROMPT = "Give me one record of a person, and nothing else."
REGEXES = [
    *(rf"[a-{chr(98 + n % 24)}]{{{1 + n % 3},{6 + n % 9}}}( [0-9]{{2}})?" for n in range(20)),
    *(rf"(\+[0-9]{{1,3}} )?[0-9]{{{3 + n % 4}}}-[0-9]{{4}}" for n in range(10)),
    *(rf"([A-Z][a-z]{{2,8}} ){{1,{1 + n % 5}}}(says|asks): \w+" for n in range(10)),
    *(rf"20[0-9]{{2}}-[01][0-9]-[0-3][0-9]T[0-9]{{2}}(:[0-9]{{2}}){{{1 + n % 2}}}" for n in range(10)),
]


def medians(rounds: int, runs: dict[str, Callable[[], object]], burst: int = 1) -> dict[str, float]:
    """Seconds of each run, the runs taking turns; each is run once before, and so often at each turn,
    if that takes no longer than AT_A_TURN seconds."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(rounds):
        for name, run in runs.items():
            begin, count = time.process_time(), 0
            while count < burst and time.process_time() - begin < AT_A_TURN:
                run()
                count += 1
            times[name].append((time.process_time() - begin) / count)
    return {name: statistics.median(values) for name, values in times.items()}


def texts_of(guide: Any, made: dict[str, Any], count: int) -> list[list[int]]:
    """Beginnings of random texts, by their tokens, that the peers allow too: they refuse -0, and escapes of letters."""
    from trellm.guides.laws import walk

    random, found = Random(0), list[list[int]]()
    while len(found) < count:
        path = [token for _, token in walk(guide, random, 30)][:-1]
        path = path[: random.randint(0, len(path))]
        xgrammar = made["xgrammar"]()
        if made["llguidance"]().validate_tokens(path) == len(path) and all(map(xgrammar.accept_token, path)):
            found.append(path)
    return found


def peers(tokenizer: Any, size: int) -> dict[str, Any]:
    """A matcher of the schema for each peer, without white space."""
    import llguidance
    import llguidance.hf
    import xgrammar

    tokens = llguidance.hf.from_tokenizer(tokenizer, size)
    grammar = llguidance.LLMatcher.grammar_from_json_schema(
        json.dumps(SCHEMA), overrides={"whitespace_flexible": False}
    )
    info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=size)
    compiled = xgrammar.GrammarCompiler(info, max_threads=1).compile_json_schema(
        json.dumps(SCHEMA), any_whitespace=False, separators=(",", ":")
    )
    return {
        "llguidance": lambda: llguidance.LLMatcher(tokens, grammar),
        "xgrammar": lambda: xgrammar.GrammarMatcher(compiled),
    }


def fill(guide: Any, tokenizer: Any, rounds: int) -> list[dict[str, Any]]:
    """Filling the masks of a batch."""
    import llguidance
    import llguidance.torch as masks
    import numpy as np
    import torch
    import xgrammar
    from trellm.adapters import Session, fill_bitmask
    from trellm.adapters.session import fill_sessions

    size = guide.vocabulary.size
    made = peers(tokenizer, size)
    texts = texts_of(guide, made, ROWS)
    sessions = [Session(guide) for _ in texts]
    ll, xg = ([made[name]() for _ in texts] for name in ("llguidance", "xgrammar"))
    for text, session, one, other in zip(texts, sessions, ll, xg, strict=True):
        assert session.accept(text)
        assert not text or one.consume_tokens(text)
        assert all(other.accept_token(token) for token in text)
    states = [session.state for session in sessions]
    bits = torch.full((ROWS, (size + 31) // 32), -1, dtype=torch.int32)
    executor, batch = llguidance.LLExecutor(1), xgrammar.BatchGrammarMatcher(max_threads=1)
    pairs = [(matcher, row) for row, matcher in enumerate(ll)]
    filled: dict[str, Any] = {}

    def one_by_one(fill_one: Callable[[Any, int], object], items: list[Any]) -> Callable[[], None]:
        def run() -> None:
            for row, item in enumerate(items):
                fill_one(item, row)

        return run

    runs: dict[str, Callable[[], object]] = {
        "trellm, 256 states": lambda: fill_bitmask(guide, states, bits),
        "trellm, 256 sessions": lambda: fill_sessions(sessions, bits),
        "trellm, one by one": one_by_one(lambda session, row: session.fill(bits, row), sessions),
        "llguidance, batch": lambda: masks.fill_next_token_bitmask_par(executor, pairs, bits),
        "llguidance, one by one": one_by_one(lambda m, row: masks.fill_next_token_bitmask(m, bits, row), ll),
        "xgrammar, batch": lambda: batch.batch_fill_next_token_bitmask(xg, bits),
        "xgrammar, one by one": one_by_one(lambda m, row: m.fill_next_token_bitmask(bits, row), xg),
    }
    for name, run in runs.items():
        run()
        filled[name] = np.unpackbits(bits.numpy().view(np.uint8), axis=1).sum()
    times = medians(rounds, runs, BURST)
    base = times["trellm, 256 states"]
    return [
        {"measured": "fill", "what": name, "µs": 1e6 * value, "/ trellm": value / base, "bits": int(filled[name])}
        for name, value in times.items()
    ]


def draft(guide: Any, tokenizer: Any, rounds: int) -> list[dict[str, Any]]:
    """Taking drafted tokens, and giving them back."""
    from trellm.adapters import Session

    made = peers(tokenizer, guide.vocabulary.size)
    text = max(texts_of(guide, made, ROWS), key=len)[: 2 * DRAFTED]
    before, drafted = text[:-DRAFTED], text[-DRAFTED:]
    session, ll, xg = Session(guide), made["llguidance"](), made["xgrammar"]()
    assert session.accept(before) and ll.consume_tokens(before) and all(map(xg.accept_token, before))

    def ours() -> None:
        assert session.accept(drafted)
        session.rollback(DRAFTED)

    def llguidance() -> None:
        assert ll.consume_tokens(drafted)
        ll.rollback(DRAFTED)

    def xgrammar() -> None:
        for token in drafted:
            assert xg.accept_token(token)
        xg.rollback(DRAFTED)

    times = medians(rounds, {"trellm": ours, "llguidance": llguidance, "xgrammar": xgrammar}, BURST)
    return [
        {"measured": "draft", "what": name, "µs": 1e6 * value, "/ trellm": value / times["trellm"]}
        for name, value in times.items()
    ]


class Peer:
    """A logits processor that masks with a peer's matcher for one row."""

    def __init__(self, matcher: Any, fill: Callable[..., object], accept: str, apply: Callable[..., object], bits: Any):
        self.matcher, self.fill, self.accept, self.apply, self.bits = matcher, fill, accept, apply, bits
        self.is_first = True

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        if not self.is_first:
            getattr(self.matcher, self.accept)(int(input_ids[0, -1]))
        self.is_first = False
        self.fill(self.matcher, self.bits, 0)
        self.apply(scores, self.bits)
        return scores


def generate(guide: Any, tokenizer: Any, rounds: int, layers: int, hidden: int) -> list[dict[str, Any]]:
    """Texts of `transformers.generate` under processors, and without one for as many tokens."""
    import llguidance.torch as masks
    import torch
    import xgrammar
    from transformers import LogitsProcessorList
    from trellm.adapters.transformers import GuideLogitsProcessor

    network = make_model(tokenizer, layers, hidden)
    ids = tokenizer(PROMPT, return_tensors="pt").input_ids
    made = peers(tokenizer, guide.vocabulary.size)
    bits = torch.full((1, (guide.vocabulary.size + 31) // 32), -1, dtype=torch.int32)
    ll = (masks.fill_next_token_bitmask, "consume_token", masks.apply_token_bitmask_inplace, bits)
    xg = (
        lambda matcher, bits, row: matcher.fill_next_token_bitmask(bits, row),
        "accept_token",
        xgrammar.apply_token_bitmask_inplace,
        bits,
    )
    processors: dict[str, Callable[[], Any]] = {
        "trellm": lambda: GuideLogitsProcessor(guide),
        "trellm, within max_new_tokens": lambda: GuideLogitsProcessor(guide, max_new_tokens=160),
        "llguidance": lambda: Peer(made["llguidance"](), *ll),
        "xgrammar": lambda: Peer(made["xgrammar"](), *xg),
    }

    def text(make: Callable[[], Any] | None, tokens: int) -> Any:
        chosen = LogitsProcessorList([] if make is None else [make()])
        options = {} if make is not None else {"min_new_tokens": tokens}
        found = network.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=tokens,
            do_sample=False,
            logits_processor=chosen,
            **options,
        )
        return found[0, ids.shape[1] :].tolist()

    lengths = {name: len(text(make, 160)) for name, make in processors.items()}
    runs: dict[str, Callable[[], object]] = {
        name: lambda make=make: text(make, 160) for name, make in processors.items()
    }
    runs["nothing"] = lambda: text(None, lengths["trellm"])
    lengths["nothing"] = lengths["trellm"]
    found = {name: 1e3 * value / lengths[name] for name, value in medians(max(3, rounds // 4), runs).items()}
    return [
        {
            "measured": "generate",
            "what": name,
            "ms a token": value,
            "over nothing": value - found["nothing"],
            "tokens": lengths[name],
        }
        for name, value in found.items()
    ]


def agree(tokenizer: Any, schemas: str | None, counts: list[int]) -> None:
    """Whether our processor and our engine choose the same tokens."""
    from transformers import LogitsProcessorList
    from trellm import TrellmError, models
    from trellm import generate as ours
    from trellm.adapters.transformers import GuideLogitsProcessor, vocabulary_for
    from trellm.engine.generator import Generator
    from trellm.guides import JSONGuide, RegexGuide

    del ours
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
        chosen = Random(1).sample(records, min(len(records), counts[0]))
        makers += [("schema", lambda each=each: JSONGuide(each["schema"], vocabulary)) for each in chosen]
    same, refused, differ = {"regex": 0, "schema": 0}, {"regex": 0, "schema": 0}, 0
    for kind, make in makers:
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
        text = vocabulary.decode(found)
        complete = guide.is_accepting(guide.read(guide.start, text))
        if text.decode(errors="replace") == expected.text and complete:
            same[kind] += 1
        else:
            differ += 1
            print("differs:", guide, text, expected.text)
    print(f"the same: {same}, refused or too long: {refused}, different: {differ}")


def main() -> None:
    pin_to_one_core()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--only", nargs="+", default=["fill", "draft", "generate"])
    parser.add_argument("--agree", nargs=2, type=int)
    parser.add_argument("--schemas")
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()

    from transformers import AutoTokenizer
    from trellm import Vocabulary
    from trellm.guides import JSONGuide

    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    if options.agree:
        agree(tokenizer, options.schemas, options.agree)
        return
    guide = JSONGuide(
        SCHEMA, Vocabulary.from_tokenizer(tokenizer), order="schema", whitespace="compact", spelling="plain"
    )
    rows: list[dict[str, Any]] = []
    if "fill" in options.only:
        rows += fill(guide, tokenizer, options.rounds)
    if "draft" in options.only:
        rows += draft(guide, tokenizer, options.rounds)
    if "generate" in options.only:
        rows += generate(guide, tokenizer, options.rounds, options.layers, options.hidden)
    show(rows)
    if options.save:
        print(save("adapters", rows, ["llguidance", "xgrammar", "transformers", "torch", "numba"], options.tokenizer))


if __name__ == "__main__":
    main()
