"""What it costs to heal a prompt: finding where to cut it, and the mask of the first token.

    python benchmarks/healing.py path/to/tokenizer [--text FILE] [--prompts 400]

Prompts are pieces of a text, cut anywhere. "first": a prompt whose end has not been met before; "again": one whose end
has. Each against a loop over the vocabulary, for some of the prompts (for free text, the only kind for which that
loop is easily written). "behind": a mask of a state after the boundary, against the guide's own, taking turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

from recording import pin_to_one_core, save, show

PATTERNS = {
    "free text": None,
    "line": r"[^\n]*",
    "words": r"[a-z]+( [a-z]+)*\.",
    "digits": r"\d{1,4}",
    "json": r'\{"[^"]{0,40}": \d+\}',
}
TAILS = (b" ", b" mor", b"http:", b'{"na', b"\n\n", b" " * 20)
TEXT = (
    'It was the best of times, it was the worst of times. (1859): said so at http://example.org/a_b; {"na": 12}\n' * 40
)


def microseconds(action: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """How long a call took, and what it returned."""
    begin = time.perf_counter()
    found = action(*arguments)
    return 1e6 * (time.perf_counter() - begin), found


def looped(texts: list[bytes | None], tail: bytes) -> list[int]:
    """The tokens of the first step in free text, one after the other."""
    return [i for i, text in enumerate(texts) if text and (text.startswith(tail) or tail.startswith(text))]


def heal(model: Any, prompt: tuple[int, ...], constraint: Any) -> bytes:
    """What a call does for one prompt before the model runs; returns what was cut off."""
    from trellm.engine.decode.guide_cache import healed

    start = healed(model, prompt, constraint)
    if start is None or start.constraint is None:
        return b""
    guide: Any = start.constraint.guide
    guide.mask(guide.start)
    return guide.tail


def fresh(model: Any, name: str) -> Any:
    """A guide of which nothing was asked but its first mask."""
    from trellm.engine.decode.guide_cache import GuideCache
    from trellm.guides import FreeGuide, RegexGuide

    pattern = PATTERNS[name]
    guide = FreeGuide(model.vocabulary) if pattern is None else RegexGuide(pattern, model.vocabulary)
    guide.mask(guide.start)
    return GuideCache(guide, model.few)


def measure(model: Any, name: str, prompts: list[tuple[int, ...]]) -> dict[str, Any]:
    from trellm.guides.protocol import tokens_of

    texts, constraint = model.vocabulary.tokens, fresh(model, name)
    seen: set[bytes] = set()
    first: list[float] = []
    again: list[float] = []
    loops: list[float] = []
    healed = 0
    for prompt in prompts:
        took, tail = microseconds(heal, model, prompt, constraint)
        (again if tail in seen else first).append(took)
        again.append(microseconds(heal, model, prompt, constraint)[0])
        healed += tail != b""
        if PATTERNS[name] is None and tail and tail not in seen and len(loops) < 20:
            took, found = microseconds(looped, texts, tail)
            loops.append(took)
            assert tokens_of(constraint.behind(tail).guide.mask(0)) == found
        seen.add(tail)
    row = {"guide": name, "prompts": len(prompts), "healed": healed, **spread("first", first), **spread("again", again)}
    if loops:
        row["loop median_us"] = statistics.median(loops)
        row["loop / first"] = row["loop median_us"] / row["first median_us"]
    return row | behind(constraint)


def spread(name: str, times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {
        f"{name} mean_us": statistics.mean(ordered),
        f"{name} median_us": statistics.median(ordered),
        f"{name} p99_us": ordered[int(0.99 * (len(ordered) - 1))],
    }


def behind(constraint: Any) -> dict[str, float]:
    """A mask after the boundary and the guide's own."""
    guide, aligned = constraint.guide, constraint.behind(b" ").guide
    state = aligned.read(aligned.start, b" ")
    pairs = [(microseconds(aligned.mask, state)[0], microseconds(guide.mask, guide.start)[0]) for _ in range(2000)]
    ours, own = (statistics.median(times) for times in zip(*pairs, strict=True))
    return {"behind median_us": ours, "own median_us": own}


def cold_tails(model: Any, rounds: int = 5) -> list[dict[str, Any]]:
    """Some tails before fresh guides."""
    from trellm.guides.protocol import tokens_of

    rows: list[dict[str, Any]] = []
    for name, tail in product(PATTERNS, TAILS):
        times: list[float] = []
        for _ in range(rounds):
            constraint = fresh(model, name)
            times.append(microseconds(first_mask, constraint, tail)[0])
        count = len(tokens_of(first_mask(constraint, tail)))
        row = {"guide": name, "tail": repr(tail.decode()), "tokens": count}
        rows.append(row | {"cold median_us": statistics.median(times)})
    return rows


def first_mask(constraint: Any, tail: bytes) -> Any:
    return constraint.behind(tail).guide.mask(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", help="a folder with a tokenizer")
    parser.add_argument("--text", help="a file to take prompts from")
    parser.add_argument("--prompts", type=int, default=400)
    options = parser.parse_args()
    pin_to_one_core()
    from transformers import AutoTokenizer
    from trellm import Vocabulary, models

    tokenizer: Any = AutoTokenizer.from_pretrained(options.tokenizer)
    model = models.from_function(lambda ids: [], Vocabulary.from_tokenizer(tokenizer), tokenizer=tokenizer)
    text = TEXT if options.text is None else Path(options.text).read_text(encoding="utf-8")
    random = Random(0)
    places = [random.randrange(200, len(text)) for _ in range(options.prompts)]
    prompts = [tuple(tokenizer.encode(text[max(0, place - 200) : place])) for place in places]
    measure(model, "digits", prompts[:5])  # loads the kernels
    rows = [measure(model, name, prompts) for name in PATTERNS]
    show(rows)
    cold = cold_tails(model)
    show(cold)
    save("healing", [*rows, *cold], ["trellm", "numba"], options.tokenizer)


if __name__ == "__main__":
    main()
