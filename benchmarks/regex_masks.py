"""Masks of regular expressions: trellm beside llguidance, xgrammar and outlines-core, in turn, on one core.

    python benchmarks/regex_masks.py TOKENIZER [--repeats N]

first_ms: from the pattern's text to the mask of the start, nothing known of the pattern; median
alone_ms: the same for trellm with a vocabulary that no guide has used, kernels loaded; median
all_ms: every state's mask (xgrammar and outlines-core have done that when they give the first one)
seen_us: a mask that was asked for before; median
The engines take turns, so that all meet the same noise. Ratios are trellm's time over the other's.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

from recording import pin_to_one_core, save, show

TITLE = r"\"title\":[^\S\r\n]\"[^\"]+\""
ALBUM = r"(,\n[^\S\r\n]{4}\"album\":[^\S\r\n]\"[^\"]+\")?"
YEAR = r",\n[^\S\r\n]{4}\"year\":[^\S\r\n][(12][0-9]{3}"
CHARTS = r"(,\n[^\S\r\n]{4}\"us-chart-max\":[^\S\r\n][0-9]{1,3})?(,\n[^\S\r\n]{4}\"uk-chart-max\":[^\S\r\n][0-9]{1,3})?"
SINGLE = r"[^\S\r\n]{2}\{\n[^\S\r\n]{4}" + TITLE + ALBUM + YEAR + CHARTS + r"\n[^\S\r\n]{2}\}"
OCTET = r"(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"

# The addresses of web pages and the singles are patterns of the Outlines blog (2023).
PATTERNS = {
    "date": r"\d{4}-\d{2}-\d{2}",
    "float": r"([0-9]+)?\.[0-9]+",
    "url": r"(https:\/\/www\.|http:\/\/www\.|https:\/\/|http:\/\/)[a-zA-Z]{2,20}\.(com|ai|org|edu)",
    "e-mail": r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}",
    "ipv4": rf"({OCTET}\.){{3}}{OCTET}",
    "singles": rf"\[\n({SINGLE})(,\n{SINGLE})*\n\]",
    ".{1,200}": r".{1,200}",
}
SLOW = 2.0
SEEN_CALLS = 2000


class Trellm:
    """One tokenizer, any pattern. All engines have `first`, which returns a thunk for a mask already seen."""

    package = "trellm"

    def __init__(self, tokenizer: Any) -> None:
        from trellm import Vocabulary
        from trellm.guides import RegexGuide

        self.make = RegexGuide
        self.tokens = Vocabulary.from_tokenizer(tokenizer)
        self.vocabulary = self.tokens
        self.first("a?")

    def first(self, pattern: str) -> Callable[[], object]:
        guide = self.make(pattern, self.vocabulary)
        state = guide.start
        guide.mask(state)
        return lambda: guide.mask(state)

    def all(self, pattern: str) -> None:
        self.make(pattern, self.vocabulary).precompile()

    def forget(self) -> None:
        """Go on with a vocabulary that no guide has used; its trie is there."""
        from trellm import Vocabulary

        old = self.tokens
        self.vocabulary = Vocabulary(old.tokens, old.eos_ids, old.special_ids)
        self.first("a?")


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

    def first(self, pattern: str) -> Callable[[], object]:
        matcher = self.matcher_of(self.tokenizer, self.matcher_of.grammar_from_regex(pattern))
        self.fill(matcher, self.bits, 0)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return lambda: self.fill(matcher, self.bits, 0)


class XGrammar:
    package = "xgrammar"

    def __init__(self, tokenizer: Any) -> None:
        import xgrammar

        self.matcher_of = xgrammar.GrammarMatcher
        info = xgrammar.TokenizerInfo.from_huggingface(tokenizer)
        self.bits = xgrammar.allocate_token_bitmask(1, info.vocab_size)
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)

    def first(self, pattern: str) -> Callable[[], object]:
        matcher = self.matcher_of(self.compiler.compile_regex(pattern))
        matcher.fill_next_token_bitmask(self.bits)
        return lambda: matcher.fill_next_token_bitmask(self.bits)


class Outlines:
    package = "outlines-core"

    def __init__(self, tokenizer: Any) -> None:
        from outlines_core import Guide, Index, Vocabulary
        from trellm import Vocabulary as Tokens

        self.guide_of, self.index_of = Guide, Index
        ids: dict[bytes, list[int]] = {}
        for token, text in enumerate(Tokens.from_tokenizer(tokenizer).tokens):
            if text:
                ids.setdefault(text, []).append(token)
        self.vocabulary = Vocabulary(tokenizer.eos_token_id, ids)

    def first(self, pattern: str) -> Callable[[], object]:
        guide = self.guide_of(self.index_of(pattern, self.vocabulary))
        guide.get_tokens()
        return guide.get_tokens


ENGINES = {"trellm": Trellm, "llguidance": LLGuidance, "xgrammar": XGrammar, "outlines-core": Outlines}


def seconds(action: Callable[[], object]) -> float:
    gc.collect()
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def first_masks(engines: dict[str, Any], pattern: str, repeats: int) -> dict[str, list[float]]:
    """Seconds to the first mask, engines in turn; what takes long is done twice only."""
    found: dict[str, list[float]] = {name: [] for name in engines}
    for turn in range(repeats):
        for name, engine in engines.items():
            if turn < 2 or found[name][0] < SLOW:
                found[name].append(seconds(lambda engine=engine: engine.first(pattern)))
    return found


def seen_masks(engines: dict[str, Any], pattern: str) -> dict[str, float]:
    """Seconds for a mask that was asked for before: the median over batches of calls."""
    thunks = {name: engine.first(pattern) for name, engine in engines.items()}
    found: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(7):
        for name, thunk in thunks.items():
            calls = SEEN_CALLS if name != "outlines-core" else 5
            begin = time.perf_counter()
            for _ in range(calls):
                thunk()
            found[name].append((time.perf_counter() - begin) / calls)
    return {name: statistics.median(times) for name, times in found.items()}


def measure(engines: dict[str, Any], name: str, pattern: str, repeats: int) -> dict[str, Any]:
    trellm = engines["trellm"]
    row: dict[str, Any] = {"pattern": name}
    firsts = first_masks(engines, pattern, repeats)
    for engine, times in firsts.items():
        row[f"{engine} first_ms"] = 1e3 * statistics.median(times)
    alone: list[float] = []
    for _ in range(min(repeats, 5)):
        trellm.forget()
        alone.append(seconds(lambda: trellm.first(pattern)))
    row["trellm alone_ms"] = 1e3 * statistics.median(alone)
    row["trellm all_ms"] = 1e3 * statistics.median(seconds(lambda: trellm.all(pattern)) for _ in range(min(repeats, 5)))
    for engine, time_taken in seen_masks(engines, pattern).items():
        row[f"{engine} seen_us"] = 1e6 * time_taken
    row["first / llguidance"] = row["trellm first_ms"] / row["llguidance first_ms"]
    row["alone / llguidance"] = row["trellm alone_ms"] / row["llguidance first_ms"]
    row["first / xgrammar"] = row["trellm first_ms"] / row["xgrammar first_ms"]
    row["all / outlines-core"] = row["trellm all_ms"] / row["outlines-core first_ms"]
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", help="a folder with a tokenizer, or a name on the Hub")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--patterns", nargs="+", choices=list(PATTERNS), default=list(PATTERNS))
    options = parser.parse_args()
    pin_to_one_core()
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    engines = {name: make(tokenizer) for name, make in ENGINES.items()}
    rows = [measure(engines, name, PATTERNS[name], options.repeats) for name in options.patterns]
    for kind in ("first_ms", "_ms", "seen_us", "/"):
        show([{key: value for key, value in row.items() if key == "pattern" or kind in key} for row in rows])
        print()
    save("regex_masks", rows, [make.package for make in ENGINES.values()], options.tokenizer)


if __name__ == "__main__":
    main()
