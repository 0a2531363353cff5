"""Extraction: the index over a whole book, and beside the dictionary trie of a context's tokens.

    python benchmarks/extraction.py TOKENIZER BOOK

The book: build_s (text to guide), bytes_per_byte (of the index, with what is known for the vocabulary), first_ms
(the mask of the start), then masks along quotations from random places, each state met for the first time: mean_us,
median_us, p99_us.

The trie: a context of 2,000 tokens. The baseline is the trie of all suffixes of the context's token ids, nested
dictionaries, and a logits processor that walks it from the root at every step and sets all other scores to -inf, as in
"Extractive generation" (a blog, 2023), run by transformers with 3 beams; trellm runs `generate.extract` with Beam(3),
healing off, on the same small random model. build_ms and KiB of what is built; us_per_token of generation, and step_us
of the constraint alone: one step's masks for 3 rows, not seen before. The two take turns; medians.
"""

from __future__ import annotations

import argparse
import functools
import gc
import random
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recording import pin_to_one_core, save, show

QUOTATIONS = 400
CONTEXT = 2000
NEW_TOKENS = 24


def seconds(action: Callable[[], object]) -> float:
    gc.collect()
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def held(guide: Any) -> int:
    """The bytes that a guide keeps for its context."""
    pieces = guide.source._pieces
    arrays = [*guide.automaton.quotable, guide._needed, *(part for piece in pieces for part in piece.__dict__.values())]
    return sum(
        getattr(part, "nbytes", len(part) if isinstance(part, bytes) else 0) for part in arrays if part is not None
    )


def book(tokenizer: Any, vocabulary: Any, text: str, boundary: str) -> dict[str, Any]:
    from trellm.guides import SubstringGuide

    made: list[Any] = []
    builds: list[float] = []
    firsts: list[float] = []
    for _ in range(3):
        made.clear()
        builds.append(seconds(lambda: made.append(SubstringGuide(text, vocabulary, boundary=boundary))))
        firsts.append(seconds(lambda: made[0].mask(made[0].start)))
    guide, chance = made[0], random.Random(1)
    times: list[float] = []
    for _ in range(QUOTATIONS):
        begin = text.find(" ", chance.randrange(len(text) - 400)) + 1
        ids = tokenizer.encode(text[begin : begin + 300], add_special_tokens=False)
        state = guide.start
        for token in ids[: chance.randrange(3, 40)]:
            state = guide.advance(state, token)
            if state < 0:
                break
            if state not in guide._rows:
                start = time.perf_counter()
                guide.mask(state)
                times.append(time.perf_counter() - start)
    times.sort()
    return {
        "what": f"book, {boundary}",
        "build_s": statistics.median(builds),
        "bytes_per_byte": held(guide) / len(text.encode()),
        "first_ms": 1e3 * statistics.median(firsts),
        "masks": len(times),
        "mean_us": 1e6 * statistics.mean(times),
        "median_us": 1e6 * times[len(times) // 2],
        "p99_us": 1e6 * times[int(0.99 * len(times))],
    }


def create_trie(ids: list[int]) -> dict[int, Any]:
    trie: dict[int, Any] = {}
    for begin in range(len(ids)):
        node = trie
        for token in ids[begin:]:
            node = node.setdefault(token, {})
    return trie


def trie_processor(trie: dict[int, Any], prompt: int, eos: int) -> Any:
    import torch
    from transformers import LogitsProcessor

    class OnlyFromTrie(LogitsProcessor):
        def __call__(self, input_ids: Any, scores: Any) -> Any:
            for row, prefix in enumerate(input_ids[:, prompt:].tolist()):
                following = functools.reduce(lambda node, token: node.get(token, {}), prefix, trie)
                options = torch.tensor([*following, eos])
                mask = torch.isin(torch.arange(scores.shape[1]), options)
                scores[row][~mask] = float("-inf")
            return scores

    return OnlyFromTrie()


def small_model(tokenizer: Any) -> Any:
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, initializer_range=0.3,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    network = transformers.LlamaForCausalLM(config).eval()
    # With the logit 0 the end is seldom the best, so that texts are not over at once.
    network.lm_head.weight.data[tokenizer.eos_token_id] = 0
    return network


def memory_of(action: Callable[[], object]) -> int:
    """The bytes that what an action returns takes."""
    gc.collect()
    tracemalloc.start()
    kept = action()
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del kept
    return taken


def beside_the_trie(tokenizer: Any, vocabulary: Any, text: str, repeats: int) -> list[dict[str, Any]]:
    import torch
    from transformers import LogitsProcessorList
    from trellm import Beam, models
    from trellm.engine.extraction import Extractor
    from trellm.guides import SubstringGuide

    ids = tokenizer.encode(text[100_000:], add_special_tokens=False)[:CONTEXT]
    context = tokenizer.decode(ids)
    network = small_model(tokenizer)
    model = models.transformers(network, tokenizer)
    prompt = "What do they say of the whale?\n"
    encoded = tokenizer(prompt, return_tensors="pt")
    trie, guide = create_trie(ids), SubstringGuide(context, vocabulary)
    processor = trie_processor(trie, encoded["input_ids"].shape[1], tokenizer.eos_token_id)
    extract = Extractor(model, SubstringGuide(context, model.vocabulary))
    made: dict[str, list[int]] = {"trie": [], "trellm": []}

    def with_trie() -> None:
        out = network.generate(
            **encoded, num_beams=3, max_new_tokens=NEW_TOKENS, do_sample=False,
            logits_processor=LogitsProcessorList([processor]),
        )  # fmt: skip
        made["trie"].append(out.shape[1] - encoded["input_ids"].shape[1])

    def with_trellm() -> None:
        result = extract.run(prompt, search=Beam(3), max_tokens=NEW_TOKENS, heal=False)
        made["trellm"].append(len(result.token_ids) + 1)

    path = ids[5 : 5 + NEW_TOKENS]
    rows = torch.tensor([[*encoded["input_ids"][0].tolist(), *path]] * 3)
    scores = torch.zeros(3, len(tokenizer))
    states = [guide.start]
    for token in path:
        states.append(guide.advance(states[-1], token))
    last = max(state for state in states if state >= 0)

    def step_of_trellm() -> None:
        guide._rows.clear()
        for _ in range(3):
            guide.mask(last)

    work: dict[str, dict[str, Callable[[], object]]] = {
        "trie": {"build_ms": lambda: create_trie(ids), "step_us": lambda: processor(rows, scores), "run": with_trie},
        "trellm": {
            "build_ms": lambda: SubstringGuide(context, vocabulary), "step_us": step_of_trellm, "run": with_trellm,
        },
    }  # fmt: skip
    found: dict[tuple[str, str], list[float]] = {}
    with_trellm()
    for _ in range(repeats):
        for measure in ("build_ms", "step_us", "run"):
            for name, actions in work.items():
                found.setdefault((name, measure), []).append(seconds(actions[measure]))
    lines: list[dict[str, Any]] = []
    for name, actions in work.items():
        runs = found[name, "run"]
        lines.append({
            "what": f"{CONTEXT} tokens, {name}",
            "build_ms": 1e3 * statistics.median(found[name, "build_ms"]),
            "KiB": (memory_of(actions["build_ms"]) if name == "trie" else held(guide)) / 1024,
            "step_us": 1e6 * statistics.median(found[name, "step_us"]),
            "us_per_token": 1e6 * statistics.median(runs) / statistics.mean(made[name][-len(runs) :]),
            "tokens": statistics.mean(made[name][-len(runs) :]),
        })  # fmt: skip
    trie_line, our_line = lines
    ratios = {key: trie_line[key] / our_line[key] for key in ("build_ms", "KiB", "step_us", "us_per_token")}
    return [*lines, {"what": "trie / trellm", **ratios}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", help="a folder with a tokenizer, or a name on the Hub")
    parser.add_argument("book", help="a text file of about a megabyte")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    pin_to_one_core()
    sys.setrecursionlimit(100_000)
    import torch
    from transformers import AutoTokenizer
    from trellm import Vocabulary
    from trellm.guides import SubstringGuide
    from trellm.guides.lift.tables import VocabularyTables

    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    text = Path(options.book).read_text(encoding="utf-8")
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    VocabularyTables.of(vocabulary)
    SubstringGuide("a b", vocabulary).mask(0)
    books = [book(tokenizer, vocabulary, text, boundary) for boundary in ("word", "character", "sentence")]
    show(books)
    print()
    beside = beside_the_trie(tokenizer, vocabulary, text, options.repeats)
    show(beside)
    save("extraction", [*books, *beside], ["trellm", "transformers", "torch"], options.tokenizer)


if __name__ == "__main__":
    main()
