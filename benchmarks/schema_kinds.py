"""Kinds of JSON schemas that people write, made up: how long masks and first masks take, by trellm and llguidance.

    python benchmarks/schema_kinds.py TOKENIZER [--count N] [--kinds WORD] [--write FILE.jsonl.gz] [--save]

Each kind makes schemas from a seed, the same on every machine, with instances that `jsonschema` accepts. The first mask
is counted with the schema's compilation, every other one with the step that follows it, as a server does; both engines
take each schema in turn. Times are those of the processor, which other processes change less than the clock's. What an
engine refuses, a schema or an instance, is counted and left out. Prints a line for each kind, and for all schemas that
both take; --save writes them to results/schema_kinds.csv, --write the schemas as lines {"id", "schema", "tests"}.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import random
import time
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

from kinds.instances import Instances, Schema
from kinds.schemas import KINDS
from recording import pin_to_one_core, save, show

Timed = tuple[float, list[float]]


def records(chosen: str, count: int, instances: int = 3) -> Iterator[dict[str, Any]]:
    """Schemas of each kind, with instances that `jsonschema` accepts."""
    from jsonschema.validators import validator_for

    for name, make in KINDS.items():
        for number in range(count if chosen in name else 0):
            rng = random.Random(f"{name} {number}")
            schema = json.loads(json.dumps(make(rng)))
            made = [Instances(schema, rng).of(schema) for _ in range(4 * instances)]
            validator = validator_for(schema)(schema)
            fitting = [each for each in made if validator.is_valid(each)]
            tests = [{"data": each, "valid": True} for each in fitting[:instances]]
            yield {"id": f"{name}_{number}", "kind": name, "schema": schema, "tests": tests}


# Engines


class Trellm:
    """Masks of this package."""

    def __init__(self, tokenizer: Any) -> None:
        from trellm import Vocabulary
        from trellm.cli.warmup import warm
        from trellm.guides import JSONGuide

        warm(lambda name, seconds: None)  # as `trellm serve` does: kernels are loaded before the first request
        self._guide, self._vocabulary = JSONGuide, Vocabulary.from_tokenizer(tokenizer)

    def first(self, schema: Schema) -> Any:
        """The guide, its first mask made."""
        guide = self._guide(schema, self._vocabulary)
        guide.mask(guide.start)
        return guide

    def walk(self, guide: Any, tokens: list[int]) -> list[float]:
        """The seconds of each mask and step. Raises ValueError for a token that is refused."""
        state, seconds = guide.start, list[float]()
        for token in tokens:
            start = time.process_time()
            row = guide.mask(state)
            if not int(row[token // 32]) >> token % 32 & 1:
                raise ValueError("refused")
            state = guide.advance(state, token)
            seconds.append(time.process_time() - start)
        return seconds


class Llguidance:
    """Masks of llguidance."""

    def __init__(self, tokenizer: Any) -> None:
        import llguidance
        import llguidance.hf
        from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

        self._matcher, self._fill = llguidance.LLMatcher, fill_next_token_bitmask
        self._tokenizer = llguidance.hf.from_tokenizer(tokenizer)
        self._bits = allocate_token_bitmask(1, self._tokenizer.vocab_size)

    def first(self, schema: Schema) -> Any:
        """The matcher, its first mask made."""
        matcher = self._matcher(self._tokenizer, self._matcher.grammar_from_json_schema(json.dumps(schema)))
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        self._fill(matcher, self._bits, 0)
        return matcher

    def walk(self, matcher: Any, tokens: list[int]) -> list[float]:
        """The seconds of each mask and step. Raises ValueError for a token that is refused."""
        matcher, seconds = matcher.deep_copy(), list[float]()
        for token in tokens:
            start = time.process_time()
            self._fill(matcher, self._bits, 0)
            if not int(self._bits[0, token // 32]) >> token % 32 & 1:
                raise ValueError("refused")
            matcher.consume_token(token)
            seconds.append(time.process_time() - start)
        return seconds


def timed_by(engine: Trellm | Llguidance, schema: Schema, texts: list[list[int]]) -> Timed | None:
    """The milliseconds of the first mask, and those of the masks along some texts; None if the engine refuses one."""
    start = time.process_time()
    try:
        compiled = engine.first(schema)
        first = 1e3 * (time.process_time() - start)
        return first, [1e3 * each for text in texts for each in engine.walk(compiled, text)]
    except Exception:
        return None


class Times:
    """Times of an engine for the schemas of a kind, in milliseconds."""

    def __init__(self) -> None:
        self.first: list[float] = []
        self.masks: list[float] = []
        self.refused = 0
        self._of: list[tuple[float, float, str]] = []

    def add(self, id_: str, found: Timed | None) -> None:
        """Count a schema, None if it was refused."""
        if found is None:
            self.refused += 1
            return
        first, masks = found
        self.first.append(first)
        self.masks += masks
        self._of.append((first, max(masks, default=0.0), id_))

    def slowest(self, count: int) -> list[str]:
        """The schemas with the slowest first mask, and those with the slowest mask behind it."""
        orders = (sorted(self._of, key=itemgetter(at), reverse=True)[:count] for at in (0, 1))
        return [
            f"{id_}: first {first:.1f} ms, slowest mask {mask:.2f} ms" for order in orders for first, mask, id_ in order
        ]

    def row(self) -> dict[str, Any]:
        """Means, high percentiles and the slowest."""
        return {
            "schemas": len(self.first),
            "refused": self.refused,
            **_sums("mask", self.masks),
            **_sums("first", self.first),
        }


def _sums(name: str, times: list[float]) -> dict[str, float]:
    times = sorted(times) or [0.0]
    found = {"ms": sum(times) / len(times), "p99_ms": times[int(len(times) * 0.99)], "max_ms": times[-1]}
    return {f"{name}_{key}": round(each, 4) for key, each in found.items()}


def main() -> None:
    """Time both engines, schema by schema."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer")
    parser.add_argument("--count", type=int, default=20, help="schemas of each kind")
    parser.add_argument("--kinds", default="", help="only kinds with this in their name")
    parser.add_argument("--engine", help="only this one: Trellm or Llguidance")
    parser.add_argument("--write", default="", help="write the schemas here, and time nothing")
    parser.add_argument("--slowest", type=int, default=0, help="name so many of the slowest schemas of each engine")
    parser.add_argument("--save", action="store_true", help="write results/schema_kinds.csv")
    arguments = parser.parse_args()
    made = records(arguments.kinds, arguments.count)
    if arguments.write:
        with gzip.open(arguments.write, "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(each) + "\n" for each in made)
        return
    pin_to_one_core()
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(arguments.tokenizer)
    engines = {
        each.__name__: each(tokenizer) for each in (Trellm, Llguidance) if arguments.engine in (None, each.__name__)
    }
    for engine in engines.values():
        engine.first({"type": "object", "properties": {"warm": {"type": "string"}}})
    # As `trellm serve` does: what libraries made while they were loaded is not looked through again and again
    gc.collect()
    gc.freeze()
    times: dict[tuple[str, str], Times] = {}
    for record in made:
        texts = [json.dumps(test["data"], ensure_ascii=False) for test in record["tests"]]
        tokens = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
        timed = {name: timed_by(engine, record["schema"], tokens) for name, engine in engines.items()}
        # What one engine refuses does not count for the other one, where all kinds are taken together
        in_all = ["taken by all"] if None not in timed.values() else []
        for name, found in timed.items():
            for group in (record["kind"], *in_all):
                times.setdefault((group, name), Times()).add(record["id"], found)
    groups = sorted(times, key=lambda group: group[0] == "taken by all")
    rows = [{"kind": group[0], "engine": group[1].lower(), **times[group].row()} for group in groups]
    for name in engines:
        for line in times.get(("taken by all", name), Times()).slowest(arguments.slowest):
            print(name, line)
    show(rows)
    if arguments.save:
        save("schema_kinds", rows, ("trellm", "llguidance", "pydantic", "transformers"), arguments.tokenizer)


if __name__ == "__main__":
    main()
