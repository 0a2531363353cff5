"""Tool calls: what hundreds of functions as triggers cost, against the schema of one of them alone.

    python benchmarks/tagged.py path/to/tokenizer [--functions 1 128 400] [--save]

Times are CPU time in milliseconds. "guides": making the guides of all schemas; "make", "first mask": making the tagged
guide of these, and its first mask, the vocabulary's tables being there, the median of five; "distance": how many
tokens the shortest text takes, asked for the first time where a call must come. "ratio": the sum of all masks along a
call, met for the first time, over that of the masks along the same arguments under the schema alone, guides that are
new both, in turn, the median over 15 functions; "again" for states that were met before.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from recording import pin_to_one_core, save, show

WALKS = 15


def schema(number: int) -> dict[str, Any]:
    """The arguments of a function; no two have the same names."""
    return {
        "type": "object",
        "properties": {
            f"name_{number}": {"type": "string"},
            f"count_{number}": {"type": "integer"},
            "unit": {"enum": ["celsius", "kelvin"]},
        },
        "required": [f"name_{number}"],
        "additionalProperties": False,
    }


def milliseconds(action: Callable[[], Any]) -> tuple[float, Any]:
    """How much CPU time a call took, and what it returned."""
    begin = time.process_time_ns()
    found = action()
    return (time.process_time_ns() - begin) / 1e6, found


def along(guide: Any, before: Sequence[int], tokens: Sequence[int]) -> float:
    """The time of the masks along tokens, which come after others."""
    state = guide.start
    for token in before:
        state = guide.advance(state, token)
    total = 0.0
    for token in tokens:
        took, _ = milliseconds(lambda state=state: guide.mask(state))
        total += took
        state = guide.advance(state, token)
        assert state >= 0
    return total


def measure(count: int, vocabulary: Any, encode: Callable[[str], list[int]], offset: int) -> dict[str, Any]:
    """One row: so many functions. offset: where their numbers begin, so that no schema is known"""
    from trellm.guides import JSONGuide, TaggedGuide

    numbers = range(offset, offset + count)
    took, guides = milliseconds(lambda: [JSONGuide(schema(number), vocabulary) for number in numbers])
    tags = [(f"<function=get_{number}>", guide, "</function>") for number, guide in zip(numbers, guides, strict=True)]
    made: list[float] = []
    masks: list[float] = []
    for _ in range(5):
        each, guide = milliseconds(lambda: TaggedGuide(tags, vocabulary))
        made.append(each)
        masks.append(milliseconds(lambda guide=guide: guide.mask(guide.start))[0])
    must = TaggedGuide(tags, vocabulary, least=1)
    ratios: list[float] = []
    again: list[float] = []
    for turn in range(WALKS):
        number = numbers[turn * count // WALKS]
        values = json.dumps({f"name_{number}": "a name of several words", f"count_{number}": 12, "unit": "kelvin"})
        before, arguments = encode(f"I look it up: <function=get_{number}>"), encode(values)
        one = JSONGuide({**schema(number), "title": f"{count}, {turn}"}, vocabulary)
        guide = TaggedGuide(tags, vocabulary)
        pairs = [(guide, before, one, ()), (guide, before, one, ())]
        for found, (tagged, lead, alone, none) in zip((ratios, again), pairs, strict=True):
            alone_took = along(alone, none, arguments)
            found.append(along(tagged, lead, arguments) / alone_took)
    return {
        "functions": count,
        "guides": took,
        "make": statistics.median(made),
        "first mask": statistics.median(masks),
        "distance": milliseconds(lambda: must.distance(must.start))[0],
        "ratio": statistics.median(ratios),
        "ratio again": statistics.median(again),
    }


def main() -> None:
    """Measure, print, and save if that is asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tokenizer")
    parser.add_argument("--functions", type=int, nargs="+", default=[1, 128, 400])
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    pin_to_one_core()
    from trellm import Vocabulary
    from trellm.engine.models.function import LongestMatch
    from trellm.guides import JSONGuide

    vocabulary = Vocabulary.from_tokenizer(options.tokenizer)
    encode = LongestMatch(vocabulary).encode
    measure(2, vocabulary, encode, 10_000)  # kernels are loaded, and the vocabulary's tables made
    JSONGuide(schema(0), vocabulary)
    rows = [measure(count, vocabulary, encode, 20_000 + 1000 * place) for place, count in enumerate(options.functions)]
    show(rows)
    if options.save:
        print(save("tagged", rows, ["trellm", "numba", "numpy"], options.tokenizer))


if __name__ == "__main__":
    main()
