"""Masks of arrays whose items must differ, beside those of the same arrays without that: sets, and objects.

    python benchmarks/unique_items.py TOKENIZER [--save]

Each array is walked by the tokens of some texts, which two guides that differ in `uniqueItems` read in turn. first: of
the first text that a guide reads, in the first case with what is done once for a vocabulary; later: of the others,
which mostly have items of their own. Milliseconds of processor time for a mask and a step: the means over all tokens,
and their ratio; max: the slowest that is not in the first text. Python's collector leaves out the modules, as in
`trellm serve`: a collection through them takes 150 ms, of which the mask that it happens to fall in knows nothing.
--save writes results/unique_items.csv.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from itertools import chain
from random import Random
from typing import Any

from recording import pin_to_one_core, save, show

TEXTS, ITEMS, MANY = 3, 3, 300
TEXT: dict[str, Any] = {"type": "string"}
COLOURS = ["red", "green", "blue", "cyan", "black", "white"]
PROPERTIES: list[dict[str, Any]] = [
    TEXT,
    {"type": "integer"},
    {"enum": COLOURS},
    {"type": "number"},
    {"type": "boolean"},
    {"type": "array", "items": TEXT},
    {"type": "object", "properties": {"x": TEXT, "y": {"type": "integer"}}, "additionalProperties": False},
]


def objects(count: int, *, is_open: bool = False, is_optional: bool = False) -> dict[str, Any]:
    """Objects with so many properties of all kinds."""
    properties = {f"prop_{number}": PROPERTIES[number % len(PROPERTIES)] for number in range(count)}
    found: dict[str, Any] = {"type": "object", "properties": properties}
    if not is_open:
        found["additionalProperties"] = False
    if not is_optional:
        found["required"] = list(properties)
    return found


def cases() -> dict[str, tuple[dict[str, Any], int]]:
    """Schemas of items with the number of items in a text, by name."""
    found = {"set of strings": TEXT, "set of integers": {"type": "integer"}, "set of an enum": {"enum": COLOURS}}
    many = {
        f"set of {MANY} strings": TEXT,
        f"set of {MANY} integers": {"type": "integer"},
        f"set of {MANY} integers of at most three digits": {"type": "integer", "minimum": 0, "maximum": 999},
    }
    for count in (3, 14, 60):
        for is_optional in (False, True):
            for is_open in (False, True):
                kind = f"{'open' if is_open else 'closed'}, {'optional' if is_optional else 'required'}"
                found[f"{count} properties, {kind}"] = objects(count, is_open=is_open, is_optional=is_optional)
    return {name: (item, MANY if name in many else ITEMS) for name, item in (found | many).items()}


def value(schema: dict[str, Any], random: Random) -> Any:
    """A value of a schema."""
    if "enum" in schema:
        return random.choice(schema["enum"])
    match schema["type"]:
        case "string":
            return random.choice(["Alice ", "a quick brown fox ", "x", "héllo\n"]) + str(random.randrange(99))
        case "integer":
            return random.randrange(1000)
        case "number":
            return random.randrange(1000) / 8
        case "boolean":
            return random.random() < 0.5
        case "array":
            return [value(schema["items"], random) for _ in range(random.randrange(3))]
        case _:
            needed = schema.get("required", ())
            return {
                name: value(each, random)
                for name, each in schema["properties"].items()
                if name in needed or random.random() < 0.6
            }


def text(item: dict[str, Any], count: int, random: Random) -> str:
    """An array of items that differ."""
    found: list[Any] = []
    while len(found) < count:
        more = value(item, random)
        if more not in found:
            found.append(more)
    return json.dumps(found, ensure_ascii=False)


def walk(guide: Any, tokens: list[int]) -> list[float]:
    """The processor time of each mask with the step after it, in milliseconds."""
    state, found = guide.start, list[float]()
    for token in tokens:
        begin = time.process_time()
        guide.row(state)
        state = guide.advance(state, token)
        found.append((time.process_time() - begin) * 1e3)
        assert state >= 0
    return found


def measure(item: dict[str, Any], count: int, vocabulary: Any, tokenizer: Any) -> dict[str, float]:
    """Both guides, in turn over the same texts."""
    from trellm.guides import JSONGuide

    array = {"type": "array", "items": item}
    guides = {"without": JSONGuide(array, vocabulary), "with": JSONGuide({**array, "uniqueItems": True}, vocabulary)}
    random = Random(1)
    texts = [tokenizer.encode(text(item, count, random), add_special_tokens=False) for _ in range(TEXTS)]
    times: dict[str, list[list[float]]] = {name: [] for name in guides}
    for tokens in texts:
        for name, guide in guides.items():
            times[name].append(walk(guide, tokens))
    found: dict[str, float] = {}
    for part, chosen in (("first", slice(0, 1)), ("later", slice(1, None))):
        means = {name: statistics.mean(chain(*each[chosen])) for name, each in times.items()}
        found |= {f"{part}_{name}_ms": mean for name, mean in means.items()}
        found[f"{part}_ratio"] = means["with"] / means["without"]
    return found | {f"max_{name}_ms": max(max(each) for each in all_of[1:]) for name, all_of in times.items()}


def main() -> None:
    """Measure every case."""
    parser = argparse.ArgumentParser(description="Masks of arrays whose items must differ")
    parser.add_argument("tokenizer")
    parser.add_argument("--only", default="", help="only cases with this in their name")
    parser.add_argument("--save", action="store_true", help="write results/unique_items.csv")
    arguments = parser.parse_args()
    pin_to_one_core()
    from transformers import AutoTokenizer
    from trellm import Vocabulary

    pretrained: Any = AutoTokenizer
    tokenizer = pretrained.from_pretrained(arguments.tokenizer)
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    gc.freeze()
    rows: list[dict[str, Any]] = []
    for name, (item, count) in cases().items():
        if arguments.only in name:
            rows.append({"case": name, **measure(item, count, vocabulary, tokenizer)})
            show(rows[-1:])
    show(rows)
    if arguments.save:
        print(save("unique_items", rows, ["trellm"], arguments.tokenizer))


if __name__ == "__main__":
    main()
