"""Memory over a long life: many constraints through one process, and one guide through many states.

    python benchmarks/fuzz/soaks.py [--only NAME] [--scale 0.05] [--save [FILE]]

Each soak runs in a process of its own and reports the resident memory before, at its highest and at the end, in MiB,
less that of the libraries; what it may be stands beside it. schemas, instances (of one schema), regexes, grammars,
healed prompts, contexts: 20,000 different ones. strings, numbers: 3,000 different patterns and bounds in schemas. long
documents: 200 of 200,000 characters. random states: one guide asked about a million random states, its own and others.
descriptions: 300 schemas with a description of 4 MB. counting back: 42,000 tokens through `[ab]*a[ab]{200}`, whose
automaton has 2^201 states. --scale makes all of them longer or shorter; --save writes results/fuzz_memory.csv, or
results/FILE.csv.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pool import answer_of, warmed
from recording import pin_to_one_core, save, show

MAX_MIB = 600


def resident() -> float:
    """MiB that the process holds now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def walk(guide: Any, random: Random, tokens: int) -> None:
    """Take random tokens, as the decode loop asks."""
    state = guide.start
    for _ in range(tokens):
        bits = np.unpackbits(guide.mask(state).view(np.uint8), bitorder="little")
        allowed = [token for token in np.flatnonzero(bits).tolist() if token not in guide.vocabulary.eos_ids]
        if not allowed:
            return
        state = guide.advance(state, random.choice(allowed))
    guide.distance(state)


def schemas(vocabulary: Any, scale: float) -> dict[str, Any]:
    """Different schemas, remembered or not."""
    from trellm.guides import JSONGuide

    random = Random(0)
    for index in range(int(20_000 * scale)):
        properties = {
            f"p{index}_{place}": {"type": random.choice(["string", "integer", "boolean"])} for place in range(3)
        }
        schema = {
            "type": "object",
            "properties": properties,
            "required": list(properties)[:2],
            "additionalProperties": False,
        }
        walk(JSONGuide(schema, vocabulary), random, 12)
    return {}


def instances(vocabulary: Any, scale: float) -> dict[str, Any]:
    """Different instances through one guide, token by token, with the masks that a decode loop asks for."""
    from trellm.guides import JSONGuide

    random = Random(0)
    word = {"type": "string", "pattern": "^[a-z]+(-[a-z0-9]+)*$", "maxLength": 40}
    members = {"id": {"type": "integer", "minimum": 0}, "when": {"type": "string", "format": "date-time"}, "name": word}
    members |= {"tags": {"type": "array", "items": word, "maxItems": 5}, "next": {"$ref": "#"}}
    guide = JSONGuide({"type": "object", "properties": members, "required": ["id", "name"]}, vocabulary)

    def instance(index: int, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {"id": index * random.randrange(1, 10**6)}
        found["when"] = f"{random.randrange(1000, 9999)}-{random.randrange(1, 13):02}-07T0{index % 10}:00:00Z"
        found["name"] = "".join(random.choices("abcdefgh", k=random.randrange(1, 40)))
        found["tags"] = [f"t-{random.randrange(10**6)}" for _ in range(random.randrange(5))]
        return found | ({"next": instance(index, depth - 1)} if depth else {})

    wrong = 0
    for index in range(int(20_000 * scale)):
        state = guide.start
        for place, byte in enumerate(json.dumps(instance(index, index % 3)).encode()):
            if place % 8 == index % 8:
                guide.mask(state)
            state = guide.advance(state, byte)
        wrong += not guide.is_accepting(state)
    return {"wrong": wrong, "held_mib": guide.automaton.held_bytes / (1 << 20)}


def strings(vocabulary: Any, scale: float) -> dict[str, Any]:
    """Different patterns in schemas, several at a time, negated, with lengths."""
    from trellm.errors import TrellmError
    from trellm.guides import JSONGuide

    random = Random(0)

    def pattern(parts: int, index: int) -> str:
        kinds = ("[a-z]{1,9}", f"(foo|bar|{index})", r"\d+x", f"[^ {index}]*", r"\w{3}", ".*z")
        return f"^{''.join(random.choice(kinds) for _ in range(parts))}$"

    refused = 0
    for index in range(int(3000 * scale)):
        schema = {"type": "string", "pattern": pattern(4, index), "not": {"pattern": pattern(2, index)}}
        if index % 3 == 0:
            schema = {"type": "string", "pattern": pattern(3, index), "minLength": index % 20, "maxLength": 90}
        try:
            walk(JSONGuide(schema, vocabulary), random, 12)
        except TrellmError:  # no text meets both, or too many states
            refused += 1
    return {"refused": refused}


def numbers(vocabulary: Any, scale: float) -> dict[str, Any]:
    """Different bounds and multiples."""
    from trellm.guides import JSONGuide

    random = Random(0)
    for index in range(int(3000 * scale)):
        schema: dict[str, Any] = {"type": ("integer", "number")[index % 2], "minimum": index}
        if index % 5 == 0:
            schema["multipleOf"] = random.choice([0.1, 7, 11])
        walk(JSONGuide(schema, vocabulary), random, 12)
    return {}


def long_contexts(vocabulary: Any, scale: float) -> dict[str, Any]:
    """Documents of 200,000 characters that are quoted in JSON."""
    from trellm.guides import JSONGuide

    random = Random(0)
    for _ in range(int(200 * scale)):
        text = " ".join(f"w{random.randrange(10**6)}" for _ in range(26_000))
        walk(JSONGuide({"x-quote": "c"}, vocabulary, contexts={"c": text}), random, 12)
    return {}


def regexes(vocabulary: Any, scale: float) -> dict[str, Any]:
    """Different patterns."""
    from trellm.guides import RegexGuide

    random = Random(0)
    for index in range(int(20_000 * scale)):
        walk(RegexGuide(f"(x{index}|[a-z]{{2,{index % 90 + 3}}})[0-9]*é?", vocabulary), random, 12)
    return {}


def grammars(vocabulary: Any, scale: float) -> dict[str, Any]:
    """Different grammars."""
    from trellm.guides import CFGGuide

    random = Random(0)
    for index in range(int(20_000 * scale)):
        walk(CFGGuide(f'start: e\ne: e "+{index}" e | "(" e ")" | /[0-9]+/', vocabulary), random, 12)
    return {}


def healed_prompts(vocabulary: Any, scale: float) -> dict[str, Any]:
    """Different ends of prompts in front of one guide."""
    from trellm.guides import AlignedGuide, RegexGuide
    from trellm.guides.healing import Crossings

    random = Random(0)
    child = RegexGuide("[a-z ]{3,40}x", vocabulary)
    crossings = Crossings(child)
    for index in range(int(20_000 * scale)):
        walk(AlignedGuide(child, f"end {index}".encode(), crossings=crossings), random, 12)
    return {}


def contexts(vocabulary: Any, scale: float) -> dict[str, Any]:
    """Different documents that are quoted, in JSON too."""
    from trellm.guides import JSONGuide, SubstringGuide

    random = Random(0)
    for index in range(int(20_000 * scale)):
        text = " ".join(f"w{random.randrange(500)}" for _ in range(40)) + f" {index}"
        if index % 2:
            walk(SubstringGuide(text, vocabulary), random, 12)
        else:
            walk(JSONGuide({"x-quote": "c"}, vocabulary, contexts={"c": text}), random, 12)
    return {}


def goals(vocabulary: Any, scale: float) -> dict[str, Any]:
    """Different goals around one guide."""
    from trellm.guides import FreeGuide, GoalGuide

    random = Random(0)
    child = FreeGuide(vocabulary)
    for index in range(int(5000 * scale)):
        walk(GoalGuide(child, [f"goal {index}", "x"]), random, 8)
    return {}


def random_states(vocabulary: Any, scale: float) -> dict[str, Any]:
    """One guide asked about random states; in the end it says what a fresh one says."""
    from trellm.errors import StateError
    from trellm.guides import JSONGuide

    schema = '{"type": ["array", "object", "string", "integer", "null"]}'
    guide, fresh = JSONGuide(schema, vocabulary), JSONGuide(schema + " ", vocabulary)
    random = Random(0)
    known = [(guide.start, b"")]
    most = 0
    refused = 0
    for index in range(int(1_000_000 * scale)):
        state, text = random.choice(known) if random.random() < 0.7 else (random.randrange(-5, 10**6), None)
        try:
            after = guide.advance(state, random.randrange(257))
            if index % 5 == 0:
                guide.mask(state)
            if index % 50 == 0:
                guide.distance(state)
        except StateError:
            refused += 1
            continue
        token = -1
        if text is not None and after >= 0 and random.random() < 0.5:
            allowed = np.flatnonzero(np.unpackbits(guide.mask(state).view(np.uint8), bitorder="little")).tolist()
            token = random.choice([token for token in allowed if token != 256] or [-1])
        if token >= 0 and text is not None and len(text) < 3000:
            entry = (guide.advance(state, token), text + bytes([token]))
            known.append(entry) if len(known) < 2000 else known.__setitem__(random.randrange(2000), entry)
        most = max(most, guide.automaton.held_bytes)
    wrong = 0
    for state, text in known:
        other = fresh.read(fresh.start, text)
        same = np.array_equal(guide.mask(state), fresh.mask(other)) and guide.distance(state) == fresh.distance(other)
        wrong += not same
    return {"held_mib": most / (1 << 20), "refused": refused, "wrong": wrong}


def descriptions(vocabulary: Any, scale: float) -> dict[str, Any]:
    """Schemas with long descriptions; what is remembered of them counts too."""
    from trellm.guides import JSONGuide

    for index in range(int(300 * scale)):
        JSONGuide({"type": "integer", "description": f"{index} " + "x" * 4_000_000, "maximum": index}, vocabulary)
    return {}


def counting_back(vocabulary: Any, scale: float) -> dict[str, Any]:
    """One long text through a pattern with more states than there is memory."""
    from trellm.guides import RegexGuide

    guide = RegexGuide("[ab]*a[ab]{200}", vocabulary)
    random, state = Random(0), guide.start
    for _ in range(int(42_000 * scale)):
        guide.mask(state)
        state = guide.advance(state, random.choice((97, 98)))
    return {"held_mib": guide.automaton.held_bytes / (1 << 20)}


SOAKS: dict[str, tuple[Callable[[Any, float], dict[str, Any]], int]] = {
    "schemas": (schemas, MAX_MIB), "instances": (instances, MAX_MIB), "strings": (strings, MAX_MIB),
    "numbers": (numbers, MAX_MIB),
    "long documents": (long_contexts, MAX_MIB), "regexes": (regexes, MAX_MIB), "grammars": (grammars, MAX_MIB),
    "healed prompts": (healed_prompts, MAX_MIB), "contexts": (contexts, MAX_MIB), "goals": (goals, MAX_MIB),
    "random states": (random_states, MAX_MIB), "descriptions": (descriptions, 200), "counting back": (counting_back,
    MAX_MIB),
}  # fmt: skip
"""What runs, and the MiB that it may take beyond the libraries."""


def soaked(name: str, vocabulary: Any, scale: float) -> dict[str, Any]:
    """Run a soak in a process of its own."""

    def soak() -> dict[str, Any]:
        before, start = resident(), time.process_time()
        try:
            found = SOAKS[name][0](vocabulary, scale)
        except MemoryError as error:
            found = {"error": repr(error)}
        gc.collect()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
        return {"peak_mib": peak, "end_mib": resident() - before, "seconds": time.process_time() - start, **found}

    row = answer_of(soak).value or {"error": "ended"}
    most = SOAKS[name][1]
    holds = "error" not in row and row["peak_mib"] <= most and not row.get("wrong")
    return {"soak": name, "scale": scale, "may_mib": most, **row, "holds": "yes" if holds else "no"}


def main() -> None:
    """Run soaks."""
    parser = argparse.ArgumentParser(description="Memory over a long life")
    parser.add_argument("--only", default="", help="only soaks with this in their name")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--save", nargs="?", const="fuzz_memory", default="", help="write results/fuzz_memory.csv")
    arguments = parser.parse_args()
    pin_to_one_core()
    vocabulary = warmed()
    rows: list[dict[str, Any]] = []
    for name in SOAKS:
        if arguments.only in name:
            rows.append(soaked(name, vocabulary, arguments.scale))
            show(rows[-1:])
    show(rows)
    if arguments.save:
        print(save(arguments.save, rows, ["trellm", "numpy", "numba"]))
    if any(row["holds"] == "no" for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
