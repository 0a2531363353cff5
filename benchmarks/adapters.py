"""The guides in other engines: bitmasks for a batch, and drafts, beside the peers.

    python benchmarks/adapters.py TOKENIZER [--rounds 20 --only fill draft] [--save]

All on one core with one thread, in one run, the engines taking turns; medians, of processor time, since others may be
at work on the machine.

fill: µs to write the masks of 256 texts at random places of one schema, all seen before; the peers by their batched
    call, and one by one; ours for 256 states of a guide, for as many sessions, and one by one; into a BitmaskBuffer
    with each text a token further at every call ("from step to step"), or where it was
draft: µs to take 8 drafted tokens and to give them back
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from itertools import cycle
from random import Random
from typing import Any

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


def steps_of(guide: Any) -> list[list[int]]:
    """The states of as many random texts at 20 steps, and back again; all seen before."""
    from trellm.guides.laws import walk

    random = Random(1)
    texts = [[state for state, _ in walk(guide, random, 30)] for _ in range(ROWS)]
    begins = [random.randrange(len(text)) for text in texts]
    steps = [
        [text[(begin + step) % len(text)] for text, begin in zip(texts, begins, strict=True)] for step in range(20)
    ]
    for step in steps:
        for state in step:
            guide.mask(state)
    return [*steps, *reversed(steps)]


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
    from trellm.adapters import BitmaskBuffer, Session, fill_bitmask
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
    going, staying = (BitmaskBuffer(torch.zeros_like(bits)) for _ in range(2))
    walks = cycle(steps_of(guide))

    def one_by_one(fill_one: Callable[[Any, int], object], items: list[Any]) -> Callable[[], None]:
        def run() -> None:
            for row, item in enumerate(items):
                fill_one(item, row)

        return run

    runs: dict[str, Callable[[], object]] = {
        "trellm, 256 states": lambda: fill_bitmask(guide, states, bits),
        "trellm, 256 sessions": lambda: fill_sessions(sessions, bits),
        "trellm, buffer, from step to step": lambda: fill_bitmask(guide, next(walks), going),
        "trellm, buffer, the same states": lambda: fill_bitmask(guide, states, staying),
        "trellm, one by one": one_by_one(lambda session, row: session.fill(bits, row), sessions),
        "llguidance, batch": lambda: masks.fill_next_token_bitmask_par(executor, pairs, bits),
        "llguidance, one by one": one_by_one(lambda m, row: masks.fill_next_token_bitmask(m, bits, row), ll),
        "xgrammar, batch": lambda: batch.batch_fill_next_token_bitmask(xg, bits),
        "xgrammar, one by one": one_by_one(lambda m, row: m.fill_next_token_bitmask(bits, row), xg),
    }
    for name, run in runs.items():
        run()
        if "buffer" in name:
            continue
        filled[name] = np.unpackbits(bits.numpy().view(np.uint8), axis=1).sum().item()
    times = medians(rounds, runs, BURST)
    base = times["trellm, 256 states"]
    return [
        {"measured": "fill", "what": name, "µs": 1e6 * value, "/ trellm": value / base, "bits": filled.get(name)}
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


def main() -> None:
    pin_to_one_core()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", nargs="+", default=["fill", "draft"])
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()

    from transformers import AutoTokenizer
    from trellm import Vocabulary
    from trellm.guides import JSONGuide

    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    guide = JSONGuide(
        SCHEMA, Vocabulary.from_tokenizer(tokenizer), order="schema", whitespace="compact", spelling="plain"
    )
    rows: list[dict[str, Any]] = []
    if "fill" in options.only:
        rows += fill(guide, tokenizer, options.rounds)
    if "draft" in options.only:
        rows += draft(guide, tokenizer, options.rounds)
    show(rows)
    if options.save:
        print(save("adapters", rows, ["llguidance", "xgrammar", "torch", "numba"], options.tokenizer))


if __name__ == "__main__":
    main()
