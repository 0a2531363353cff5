"""What many grammars hold: 100 distinct ones alive at once, 10,000 tokens through each, the mask of every token.

    python benchmarks/grammar_memory.py TOKENIZER [--walks uniform | bigrams]

The grammars are the documented ones in turn, each made another one by an alternative of its own. Random texts go
through each, one after another. What comes next is drawn among the allowed tokens:

uniform  all alike, every other one among single characters; a text ends by chance only, so that brackets in brackets
         have no end. Nearly every token leads to a state that was never seen: the hardest case, not a likely one
bigrams  as tokens follow one another in this package's code and pages, one in ten by its frequency alone. A text that
         may end does so once in 50 times; after 64 tokens the next one begins. So are a model's texts: mostly
         common tokens, in an order that makes sense for a while, nested now and then

A line for each grammar has the states met, milliseconds (mean and greatest) of masks and of steps, and the MiB that
the process then holds, with all of Python, NumPy, Numba, the tokenizer and the vocabulary's tables in them. Most of
the time goes to the grammar of Python, whose masks are the dearest.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from recording import pin_to_one_core, save

PACKAGE = Path(__file__).resolve().parent.parent
GRAMMARS = PACKAGE / "docs" / "grammars"


class Bigrams:
    """Draws an allowed token by what it follows, as counted in the texts of this package."""

    longest = 64

    def __init__(self, tokenizer: Any, vocabulary: Any) -> None:
        files = sorted(file for kind in ("*.py", "*.md", "*.lark") for file in PACKAGE.rglob(kind))
        texts = [tokenizer.encode(file.read_text(encoding="utf-8"), add_special_tokens=False).ids for file in files]
        pairs: defaultdict[int, Counter[int]] = defaultdict(Counter)
        for text in texts:
            for first, second in pairwise(text):
                pairs[first][second] += 1
        self.alone = as_arrays(Counter(token for text in texts for token in text))
        self.after = {first: as_arrays(counts) for first, counts in pairs.items()}
        self.eos = vocabulary.eos_ids[0]
        self.choose = random.Random(0)

    def draw(self, mask: NDArray[np.uint32], previous: int) -> int:
        if is_allowed(mask, self.eos) and self.choose.random() < 0.02:
            return self.eos
        if previous in self.after and self.choose.random() < 0.9:
            token = self.weighted(mask, *self.after[previous])
            if token >= 0:
                return token
        token = self.weighted(mask, *self.alone)
        return token if token >= 0 else any_token(mask, self.choose)

    def weighted(self, mask: NDArray[np.uint32], tokens: NDArray[np.int64], counts: NDArray[np.int64]) -> int:
        """One of the allowed tokens by their counts; -1 if none is allowed."""
        sums = np.cumsum(counts * (mask[tokens >> 5] >> (tokens & 31).astype(np.uint32) & 1))
        if sums[-1] == 0:
            return -1
        return int(tokens[np.searchsorted(sums, self.choose.randrange(int(sums[-1])), side="right")])


class Uniform:
    """Draws any allowed token, every other time one of a single character if there is one."""

    longest = None

    def __init__(self, _: Any, vocabulary: Any) -> None:
        texts = enumerate(vocabulary.tokens)
        self.plain = [token for token, text in texts if text and len(text) == 1 and 32 <= text[0] < 127]
        self.eos = vocabulary.eos_ids[0]
        self.choose = random.Random(0)

    def draw(self, mask: NDArray[np.uint32], _: int) -> int:
        plain = [token for token in self.plain if is_allowed(mask, token)] if self.choose.random() < 0.5 else []
        return self.choose.choice(plain) if plain else any_token(mask, self.choose)


WALKS = {"uniform": Uniform, "bigrams": Bigrams}


def as_arrays(counts: Counter[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.array(list(counts), np.int64), np.array(list(counts.values()), np.int64)


def is_allowed(mask: NDArray[np.uint32], token: int) -> bool:
    return bool(int(mask[token >> 5]) >> (token & 31) & 1)


def any_token(mask: NDArray[np.uint32], choose: random.Random) -> int:
    """A random token of a mask: a random word that has bits, then a random bit of it."""
    words = np.flatnonzero(mask)
    word = int(words[choose.randrange(len(words))])
    return 32 * word + choose.choice([bit for bit in range(32) if int(mask[word]) >> bit & 1])


def walk(guide: Any, tokens: int, source: Any) -> dict[str, Any]:
    """Take so many tokens, EOS included, and begin again after each EOS; what that came to."""
    clock = time.perf_counter
    masking, stepping = np.empty(tokens), np.empty(tokens)
    state, previous, length, texts = guide.start, -1, 0, 0
    for number in range(tokens):
        begin = clock()
        mask = guide.mask(state)
        masking[number] = clock() - begin
        token = source.draw(mask, previous)
        begin = clock()
        state = guide.advance(state, token)
        stepping[number] = clock() - begin
        previous, length = token, length + 1
        if token == source.eos or length == source.longest:
            state, previous, length, texts = guide.start, -1, 0, texts + 1
    return {
        "texts": texts,
        "states": guide.automaton.state_count,
        "mask_ms": round(1e3 * masking.mean(), 4),
        "mask_max_ms": round(1e3 * masking.max(), 1),
        "step_ms": round(1e3 * stepping.mean(), 4),
        "step_max_ms": round(1e3 * stepping.max(), 1),
    }


def resident() -> float:
    """MiB of memory that the process holds now."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("there is no VmRSS in /proc/self/status")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", help="a folder with a tokenizer")
    parser.add_argument("--walks", choices=list(WALKS), default="uniform")
    parser.add_argument("--grammars", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=10_000)
    options = parser.parse_args()
    pin_to_one_core()
    from tokenizers import Tokenizer
    from trellm import Vocabulary
    from trellm.guides import CFGGuide

    folder = Path(options.tokenizer)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    eos = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))["eos_token"]
    vocabulary = Vocabulary.from_tokenizer(tokenizer, eos_ids=[tokenizer.token_to_id(eos)])
    source = WALKS[options.walks](tokenizer, vocabulary)
    before = resident()
    files = sorted(GRAMMARS.glob("*.lark"))
    guides: list[CFGGuide] = []
    rows: list[dict[str, Any]] = []
    for number in range(options.grammars):
        file = files[number % len(files)]
        text = file.read_text(encoding="utf-8") + f'\n%extend start: "grammar {number}"\n'
        guides.append(CFGGuide(text, vocabulary))
        row = {"walks": options.walks, "grammar": file.stem, "number": number}
        row |= walk(guides[-1], options.tokens, source)
        rows.append(row | {"resident_mib": round(resident(), 1), "before_mib": round(before, 1)})
        print("  ".join(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
    save(f"grammar_memory_{options.walks}", rows, ["trellm"], options.tokenizer)


if __name__ == "__main__":
    main()
