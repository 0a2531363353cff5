"""Masks of a JSON grammar: trellm beside llguidance and xgrammar, in turn, in one process on one core.

    python benchmarks/grammar_masks.py TOKENIZER DATA.jsonl.gz

Every line of the data holds {"tests": [{"data": any JSON value}, ...]}. For each token of each value,
as `json.dumps(value, ensure_ascii=False)` writes it, an engine computes the mask and takes the token over; the
processor time of both is one sample. Engines take turns value by value, each round with grammars compiled
anew; the first mask is timed from the grammar's text on. Kernels are loaded before, with another vocabulary; the
first round of an engine also pays for what is computed once per vocabulary. Figures are medians over rounds, the
maximum is the greatest of all rounds. Then long texts: the mean time per token in each quarter of a text.
What many grammars hold is measured by grammar_memory.py.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from recording import pin_to_one_core, save, show

GRAMMARS = Path(__file__).resolve().parent.parent / "docs" / "grammars"
# Values of any kind, on top of XGrammar's own grammar of objects and arrays, which suits it best.
EBNF_ROOT = r"""
document ::= [ \n\r\t]* (root | "\"" text | number | "true" | "false" | "null") [ \n\r\t]*
text ::= "\"" | [^"\\\0-\x1f] text | "\\" escape text
number ::= "-"? ("0" | [1-9] [0-9]*) fraction exponent
"""


class Trellm:
    """One compiled grammar of trellm. All engines have these methods."""

    package = "trellm"

    def __init__(self, tokenizer: Any) -> None:
        from trellm import Vocabulary

        self.vocabulary = Vocabulary.from_tokenizer(tokenizer)
        self.text = (GRAMMARS / "json.lark").read_text(encoding="utf-8")

    def compile(self) -> Any:
        from trellm.guides import CFGGuide

        return CFGGuide(self.text, self.vocabulary)

    def start(self, guide: Any) -> None:
        self.guide, self.state = guide, guide.start

    def mask(self) -> None:
        self.row = self.guide.mask(self.state)

    def allows(self, token: int) -> bool:
        return bool(int(self.row[token >> 5]) >> (token & 31) & 1)

    def commit(self, token: int) -> None:
        self.state = self.guide.advance(self.state, token)

    def is_complete(self) -> bool:
        return self.guide.is_accepting(self.state)

    def forget(self) -> None:
        """Go on with a vocabulary that no guide has used; its trie is there."""
        from trellm import Vocabulary

        old = self.vocabulary
        self.vocabulary = Vocabulary(old.tokens, old.eos_ids, old.special_ids)
        assert self.vocabulary.trie


class LLGuidance:
    package = "llguidance"

    def __init__(self, tokenizer: Any) -> None:
        import llguidance
        import llguidance.hf
        import llguidance.numpy

        self.matcher_of = llguidance.LLMatcher
        self.fill = llguidance.numpy.fill_next_token_bitmask
        self.tokenizer = llguidance.hf.from_tokenizer(tokenizer)
        self.bits = llguidance.numpy.allocate_token_bitmask(1, self.tokenizer.vocab_size)
        text = (GRAMMARS / "json.lark").read_text(encoding="utf-8")
        self.text = '%llguidance {"allow_initial_skip": true}\n' + text

    def compile(self) -> Any:
        matcher = self.matcher_of(self.tokenizer, self.matcher_of.grammar_from_lark(self.text))
        if matcher.is_error():
            raise SystemExit(matcher.get_error())
        return matcher

    def start(self, matcher: Any) -> None:
        self.matcher = matcher.deep_copy()

    def mask(self) -> None:
        self.fill(self.matcher, self.bits, 0)

    def allows(self, token: int) -> bool:
        return bool(int(self.bits[0, token >> 5]) >> (token & 31) & 1)

    def commit(self, token: int) -> None:
        self.matcher.consume_token(token)

    def is_complete(self) -> bool:
        return self.matcher.is_accepting()


class XGrammar:
    package = "xgrammar"

    def __init__(self, tokenizer: Any) -> None:
        import xgrammar

        self.library = xgrammar
        info = xgrammar.TokenizerInfo.from_huggingface(tokenizer)
        self.bits = xgrammar.allocate_token_bitmask(1, info.vocab_size)
        # A string that ends a member and an object may be followed by the end of an array, which the hint forgets.
        objects = str(xgrammar.Grammar.builtin_json_grammar()).replace(r"[},]", r"[},\]]")
        self.text = objects + EBNF_ROOT
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)

    def compile(self) -> Any:
        return self.compiler.compile_grammar(self.library.Grammar.from_ebnf(self.text, root_rule_name="document"))

    def start(self, grammar: Any) -> None:
        self.matcher = self.library.GrammarMatcher(grammar)

    def mask(self) -> None:
        self.matcher.fill_next_token_bitmask(self.bits)

    def allows(self, token: int) -> bool:
        return bool(int(self.bits[0, token >> 5]) >> (token & 31) & 1)

    def commit(self, token: int) -> None:
        self.matcher.accept_token(token)

    def is_complete(self) -> bool:
        return self.matcher.is_completed()


# Brackets that open only, then close, the openings being the first half; and an array of like objects.
LONG = {
    "depth 1,000": "[" * 1000 + "]" * 1000,
    "100 kB": json.dumps([{"id": i, "name": f"Ann {i % 97}", "tags": ["é", None, -1.5e3]} for i in range(1700)]),
}
ENGINES = {"trellm": Trellm, "llguidance": LLGuidance, "xgrammar": XGrammar}


def first_mask(engine: Any) -> tuple[Any, float]:
    """The compiled grammar, and the milliseconds of processor time from its text to its first mask."""
    begin = time.thread_time_ns()
    compiled = engine.compile()
    engine.start(compiled)
    engine.mask()
    return compiled, (time.thread_time_ns() - begin) / 1e6


def follow(engine: Any, compiled: Any, tokens: list[int], samples: list[float]) -> None:
    """Add the microseconds of each mask and commit; every token must be allowed, and the text complete."""
    clock = time.thread_time_ns
    engine.start(compiled)
    for token in tokens:
        begin = clock()
        engine.mask()
        masked = clock()
        if not engine.allows(token):
            raise SystemExit(f"{engine.package} refuses a token of a JSON value")
        committing = clock()
        engine.commit(token)
        samples.append((masked - begin + clock() - committing) / 1e3)
    if not engine.is_complete():
        raise SystemExit(f"{engine.package} does not take a JSON value for complete")


def instances(path: str, tokenizer: Any, limit: int) -> list[list[int]]:
    """The token ids of the values in the data, or of so many of them, chosen evenly."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        texts = [json.dumps(test["data"], ensure_ascii=False) for line in lines for test in json.loads(line)["tests"]]
    texts = [text for text in texts if not any(0xD800 <= ord(character) < 0xE000 for character in text)]
    if limit:
        texts = texts[:: max(1, len(texts) // limit)][:limit]
    return [tokenizer.encode(text, add_special_tokens=False) for text in texts]


def compare(options: argparse.Namespace) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    engines = {name: ENGINES[name](tokenizer) for name in options.engines}
    values = instances(options.data, tokenizer, options.instances)
    for engine in engines.values():
        warm = engine.compile()
        for tokens in values[:: max(1, len(values) // 50)]:
            follow(engine, warm, tokens, [])
    if "trellm" in engines:
        engines["trellm"].forget()
    rows: list[dict[str, Any]] = []
    for number in range(options.rounds):
        compiled: dict[str, Any] = {}
        firsts: dict[str, list[float]] = {name: [] for name in engines}
        samples: dict[str, list[float]] = {name: [] for name in engines}
        for _ in range(options.compiles):
            for name, engine in engines.items():
                compiled[name], elapsed = first_mask(engine)
                firsts[name].append(elapsed)
        for turn, tokens in enumerate(values):
            for name in in_turn(engines, turn):
                follow(engines[name], compiled[name], tokens, samples[name])
        rows += [figures(name, number, firsts[name], samples[name]) for name in engines]
    rows += medians(rows, engines)
    show(rows)
    rows += long_texts(engines, tokenizer)
    show(rows[-len(engines) * len(LONG) :])
    save("grammar_masks", rows, list(engines), options.tokenizer)


def in_turn(engines: dict[str, Any], turn: int) -> list[str]:
    """The engines' names, every time another one first."""
    order = list(engines)
    shift = turn % len(order)
    return order[shift:] + order[:shift]


def medians(rows: list[dict[str, Any]], engines: dict[str, Any]) -> list[dict[str, Any]]:
    """The medians of each engine's rounds, and those of trellm over those of the engine."""
    keys = [key for key in rows[0] if key.endswith(("_us", "_ms"))]
    found: list[dict[str, Any]] = []
    for name in engines:
        mine = [row for row in rows if row["engine"] == name]
        middle = {key: round(statistics.median(row[key] for row in mine), 3) for key in keys}
        middle["max_us"] = max(row["max_us"] for row in mine)
        found.append({"engine": name, "round": "median", "tokens": mine[0]["tokens"]} | middle)
    for row in found:
        row["trellm mean / this"] = round(found[0]["mean_us"] / row["mean_us"], 3)
        row["trellm first / this"] = round(found[0]["first_mask_ms"] / row["first_mask_ms"], 3)
    return found


def long_texts(engines: dict[str, Any], tokenizer: Any) -> list[dict[str, Any]]:
    """Mean microseconds per token in each quarter of long texts; medians over several passes."""
    rows: list[dict[str, Any]] = []
    for what, text in LONG.items():
        tokens = tokenizer.encode(text, add_special_tokens=False)
        quarter = len(tokens) // 4
        means: dict[str, list[list[float]]] = {name: [] for name in engines}
        for turn in range(5):
            for name in in_turn(engines, turn):
                samples: list[float] = []
                follow(engines[name], engines[name].compile(), tokens, samples)
                means[name].append([statistics.fmean(samples[at * quarter :][:quarter]) for at in range(4)])
        for name in engines:
            middle = [round(statistics.median(quarters), 2) for quarters in zip(*means[name], strict=True)]
            rows.append(
                {"engine": name, "round": what, "tokens": len(tokens), "quarters_us": " ".join(map(str, middle))}
            )
    return rows


def figures(name: str, number: int, firsts: list[float], samples: list[float]) -> dict[str, Any]:
    p50, p99 = np.percentile(samples, (50, 99)).tolist()
    return {
        "engine": name,
        "round": number,
        "tokens": len(samples),
        "mean_us": round(statistics.fmean(samples), 2),
        "p50_us": round(p50, 2),
        "p99_us": round(p99, 2),
        "max_us": round(max(samples), 1),
        "first_mask_ms": round(statistics.median(firsts), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", help="a folder with a tokenizer")
    parser.add_argument("data", help="a .jsonl.gz of JSON values")
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--compiles", type=int, default=11, help="how often each round compiles a grammar")
    parser.add_argument("--instances", type=int, default=0, help="so many values instead of all")
    options = parser.parse_args()
    pin_to_one_core()
    compare(options)


if __name__ == "__main__":
    main()
