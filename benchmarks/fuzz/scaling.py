"""Doubling series: how much longer does a constraint of twice the size take?

    python benchmarks/fuzz/scaling.py [--only NAME] [--seconds 2] [--save]

Each line doubles a constraint, up to the size in the last line: seconds of the slowest call (making the guide, its
first masks, a distance, the masks and steps along a text), the seconds of all calls and their ratio to half the size,
and MiB. A series holds if its last size takes less than --seconds, or is refused with LimitError in that time, and no
ratio above 50 ms of work is above 2.3. Every size runs in a process of its own, which is ended after 20 seconds.

Where the states of an automaton have more items the longer a text is, the time cannot but grow with all these items:
then their number is in the line (`items`, of the states that masks and distances looked at), and its ratio, and a
series holds if the time grows at most 1.15 times as fast, as it may without them. See ITEMS.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pool import answer_of, warmed
from recording import pin_to_one_core, save, show

RATIO, ABOVE, GIVEN_UP = 2.3, 0.05, 20
# The series whose states have items in proportion to what was read, and why
ITEMS = {
    "regex (.*a){n}": "each a that was read may be any of the counted ones",
    "text of: a start a": "each place may be the middle",
    "text of: dangling else": "each i may be the one that an else belongs to",
    "text of: [ab]*a[ab]{n}": "each a may be the one before the last n letters",
}
Series = Callable[[int, Any], tuple[Callable[[], Any], bytes]]


def json_guide(schema: Any, text: bytes = b"", **options: Any) -> Series:
    """A series of schemas, given by a function of the size, and a text to read."""

    def series(size: int, vocabulary: Any) -> tuple[Callable[[], Any], bytes]:
        from trellm.guides import JSONGuide

        made = schema(size)
        given = {name: value(size) for name, value in options.items()}
        return lambda: JSONGuide(made, vocabulary, **given), text

    return series


def regex(pattern: Callable[[int], str], text: Callable[[int], bytes] = lambda size: b"") -> Series:
    """A series of patterns."""

    def series(size: int, vocabulary: Any) -> tuple[Callable[[], Any], bytes]:
        from trellm.guides import RegexGuide

        made = pattern(size)
        return lambda: RegexGuide(made, vocabulary), text(size)

    return series


def grammar(
    rules: Callable[[int], str], text: Callable[[int], bytes] = lambda size: b"", syntax: str = "lark"
) -> Series:
    """A series of grammars, or one grammar and longer texts."""

    def series(size: int, vocabulary: Any) -> tuple[Callable[[], Any], bytes]:
        from trellm.guides import CFGGuide

        made: Any = rules(size)
        return lambda: CFGGuide(made, vocabulary, syntax=syntax), text(size)  # type: ignore[arg-type]

    return series


def choices(size: int, vocabulary: Any) -> tuple[Callable[[], Any], bytes]:
    """So many choices."""
    from trellm.guides import ChoiceGuide

    texts = [f"choice {index * 7919}" for index in range(size)]
    return lambda: ChoiceGuide(texts, vocabulary), texts[-1].encode()


def documents(size: int, vocabulary: Any) -> tuple[Callable[[], Any], bytes]:
    """So many documents to quote from."""
    from trellm.guides import SubstringGuide

    random = Random(0)
    texts = [f"document {index} of {random.randrange(10**6)}" for index in range(size)]
    return lambda: SubstringGuide(texts, vocabulary), texts[-1].encode()


def quoted_in_json(size: int, vocabulary: Any) -> tuple[Callable[[], Any], bytes]:
    """So many characters to quote from in a JSON string."""
    from trellm.guides import JSONGuide

    random = Random(0)
    text = " ".join(f"word{random.randrange(5000)}" for _ in range(size // 8))
    return lambda: JSONGuide({"x-quote": "c"}, vocabulary, contexts={"c": text}), b'"word'


def long_token(size: int, vocabulary: Any) -> tuple[Callable[[], Any], bytes]:
    """A vocabulary with a token of so many bytes."""
    from trellm import Vocabulary
    from trellm.guides import JSONGuide

    tokens = [*vocabulary.tokens[:256], b"a" * size, None]
    return lambda: JSONGuide({"type": "string"}, Vocabulary(tokens, [257])), b'"aa'


def random_objects(size: int) -> list[Any]:
    """Different objects."""
    random = Random(0)
    return [{"a": index, f"k{random.randrange(99)}": [random.random(), "x" * (index % 7)]} for index in range(size)]


def letters(size: int) -> str:
    """So many different letters."""
    return "abcdefghijklmnopqrstuvwxyz"[:size]


OPEN = {"type": "object"}
SERIES: dict[str, tuple[Series, list[int]]] = {
    "enum of objects": (json_guide(lambda n: {"enum": random_objects(n)}), [1250, 2500, 5000, 10_000]),
    "required members": (
        json_guide(lambda n: {"properties": {f"p{i}": {"type": "integer"} for i in range(n)}, "required": [f"p{i}"
        for i in range(n)]}),
        [1250, 2500, 5000, 10_000],
    ),
    "required members in any order": (
        json_guide(lambda n: {"required": [f"p{i}" for i in range(n)]}, order=lambda n: "any"), [1250, 2500, 5000,
        10_000]
    ),
    "choices": (choices, [125_000, 250_000, 500_000, 1_000_000]),
    "documents": (documents, [12_500, 25_000, 50_000, 100_000]),
    "characters quoted in JSON": (quoted_in_json, [150_000, 300_000, 600_000, 1_200_000]),
    "grammar of rules, in bytes": (
        grammar(lambda n: "start: " + " | ".join(f"r{i}" for i in range(n // 30)) + "\n"
        + "\n".join(f'r{i}: "word{i}" r{i // 2}?' for i in range(n // 30))),
        [125_000, 250_000, 500_000, 1_000_000],
    ),
    "grammar of one literal, in bytes": (grammar(lambda n: f'start: "{"x" * n}"'), [125_000, 250_000, 500_000,
    1_000_000]),
    "grammar of alternatives, in bytes": (
        grammar(lambda n: "start: " + " | ".join(f'"w{i}"' for i in range(n // 10))), [125_000, 250_000, 500_000,
        1_000_000]
    ),
    "GBNF of rules, in bytes": (
        grammar(lambda n: "\n".join(["root ::= r0", *(f'r{i} ::= "w{i}" r{i + 1} | [a-z]' for i in range(n // 30)),
        f'r{n // 30} ::= "x"']), syntax="gbnf"),
        [125_000, 250_000, 500_000, 1_000_000],
    ),
    "chain of rules": (
        grammar(lambda n: "start: r0\n" + "\n".join(f'r{i}: "a" r{i + 1} | r{i + 1}' for i in range(n))
        + f'\nr{n}: "b"'), [375, 750, 1500, 3000]
    ),
    "rules of two": (grammar(lambda n: "start: r0\n" + "\n".join(f"r{i}: r{i + 1} r{i + 1}" for i in range(n))
    + f'\nr{n}: "b"?'), [8, 16, 32, 64, 256]),
    "regex .?": (regex(lambda n: ".?" * n), [3750, 7500, 15_000, 30_000]),
    "regex (.*a){n}": (regex(lambda n: f"(.*a){{{n}}}", lambda n: b"xa" * 50), [250, 500, 1000, 2000]),
    "regex a{n}b{n}": (regex(lambda n: f"((a{{0,{n}}}b){{0,{n}}}c)*", lambda n: b"aab" * 50), [250, 500, 1000, 2000]),
    "regex of alternatives": (regex(lambda n: "|".join(f"w{i}[a-z]*" for i in range(n)), lambda n: b"w1"), [1250,
    2500, 5000, 10_000]),
    "regex of a class": (regex(lambda n: "[" + "".join(chr(0x4E00 + 2 * i) for i in range(n)) + "]+"), [1250, 2500,
    5000, 10_000]),
    "regex of lookaheads": (regex(lambda n: "".join(f"(?=.*{letter})" for letter in letters(n)) + ".*"), [2, 4, 8, 16]),
    "a token, in bytes": (long_token, [125_000, 250_000, 500_000, 1_000_000]),
    "chain of $ref": (
        json_guide(lambda n: {"$defs": {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"}
        for i in range(n)} | {f"d{n}": {"type": "integer"}}, "$ref": "#/$defs/d0"}),
        [38, 75, 150, 300],
    ),
    "nested items": (json_guide(lambda n: json.loads('{"items":' * n + "{}" + "}" * n)), [38, 75, 150, 300]),
    "doubling $defs": (
        json_guide(lambda n: {"$defs": {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"},
        {"items": {"$ref": f"#/$defs/d{i + 1}"}}]} for i in range(n)} | {f"d{n}": {"type": "integer"}},
        "$ref": "#/$defs/d0"}),
        [5, 10, 20],
    ),
    "allOf of doubling $defs": (
        json_guide(lambda n: {"$defs": {f"d{i}": {"allOf": 2 * [{"$ref": f"#/$defs/d{i + 1}"}]}
        for i in range(n)} | {f"d{n}": {"type": "integer"}}, "$ref": "#/$defs/d0"}),
        [5, 10, 20],
    ),
    "one-letter patternProperties": (json_guide(lambda n: {**OPEN, "patternProperties": {c: {"type": "integer"}
    for c in letters(n)}}), [3, 6, 12, 24]),
    "patterns in allOf": (json_guide(lambda n: {"type": "string", "allOf": [{"pattern": c} for c in letters(n)]}), [5,
    10, 20]),
    "contains in allOf": (json_guide(lambda n: {"type": "array", "allOf": [{"contains": {"const": i}}
    for i in range(n)]}), [5, 10, 20]),
    "anyOf without unevaluated properties": (
        json_guide(lambda n: {**OPEN, "anyOf": [{"properties": {f"p{i}": True}, "required": [f"p{i}"]}
        for i in range(n)], "unevaluatedProperties": False}),
        [3, 6, 12],
    ),
    "unique items of an enum": (
        json_guide(lambda n: {"type": "array", "items": {"enum": [f"v{i}" for i in range(n)]}, "uniqueItems": True,
        "minItems": 3 * n // 4}),
        [25, 50, 100, 200],
    ),
    "oneOf": (json_guide(lambda n: {"oneOf": [{"properties": {"a": {"minimum": i}, f"b{i}": {"type": "string"}}}
    for i in range(n)]}), [3, 6, 12, 24]),
    "dependentSchemas": (json_guide(lambda n: {"dependentSchemas": {c: {"required": [f"{c}{c}"]}
    for c in letters(n)}}), [3, 6, 12, 24]),
    "not of properties": (json_guide(lambda n: {"not": {"properties": {c: {"type": "integer"} for c in letters(n)}}}),
    [3, 6, 12, 24]),
    "text of: start start": (grammar(lambda n: 'start: start start | "a"', lambda n: b"a" * n), [1250, 2500, 5000,
    10_000]),
    "text of: start start start": (grammar(lambda n: 'start: start start start | start start | "a"',
    lambda n: b"a" * n), [1250, 2500, 5000, 10_000]),
    "text of: e + e": (grammar(lambda n: 'start: e\ne: e "+" e | "a"', lambda n: b"a" + b"+a" * (n // 2)), [1250,
    2500, 5000, 10_000]),
    "text of: a start b": (grammar(lambda n: 'start: "a" start "b" |', lambda n: b"a" * (n // 2) + b"b" * (n // 2)),
    [1250, 2500, 5000, 10_000]),
    "text of: a start a": (grammar(lambda n: 'start: "a" start "a" | "b" start "b" |', lambda n: b"a" * n), [1250,
    2500, 5000, 10_000]),
    "text of: dangling else": (grammar(lambda n: 'start: "i" start ("e" start)? | "x"', lambda n: b"i" * n), [1250,
    2500, 5000, 10_000]),
    "text of: [ab]*a[ab]{n}": (regex(lambda n: f"[ab]*a[ab]{{{n // 50}}}", lambda n: bytes(Random(0).choices(b"ab",
    k=n))), [1250, 2500, 5000, 10_000]),
    "nested JSON text": (json_guide(lambda n: True, b"[" * 5000), [1]),
}  # fmt: skip


def measured(series: Series, size: int, vocabulary: Any, counted: bool = False) -> dict[str, Any]:
    """Make a guide and read its text in this process: the slowest call, in seconds, and what it was.

    counted: count the items of states too; nothing of that is timed
    """
    from trellm.errors import LimitError, TrellmError

    make, text = series(size, vocabulary)
    slowest = (0.0, "")
    total = 0.0
    items = 0

    def call(function: Callable[..., Any], *arguments: Any) -> Any:
        nonlocal slowest, total
        start = time.process_time()
        try:
            return function(*arguments)
        finally:
            taken = time.process_time() - start
            name = getattr(function, "__name__", "").replace("<lambda>", "making")
            slowest = max(slowest, (taken, name))
            total += taken

    said = ""
    try:
        guide = call(make)
        call(guide.mask, guide.start)
        distance = call(guide.distance, guide.start)
        call(guide.mask_within, guide.start, distance + 1)
        items = items_of(guide, range(guide.automaton.state_count)) if counted else 0
        state = guide.start
        for byte in text:
            state = call(guide.advance, state, byte)
            if state < 0:
                raise AssertionError("the text is refused")
            call(guide.mask, state)
            if counted:
                items += items_of(guide, (state, *states_after(guide, state)))
        bits = np.unpackbits(guide.mask(state).view(np.uint8), bitorder="little")
        allowed = [token for token in np.flatnonzero(bits).tolist() if token not in guide.vocabulary.eos_ids]
        if allowed and distance:
            state = call(guide.advance, state, allowed[0])
            call(guide.mask, state)
            call(guide.distance, state)
    except LimitError as error:
        said = f"LimitError: {str(error)[:70]}"
    except TrellmError as error:
        said = f"{type(error).__name__}: {str(error)[:70]}"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "slowest_s": slowest[0],
        "call": slowest[1],
        "total_s": total,
        "items": items or None,
        "peak_mib": peak,
        "said": said,
    }


def items_of(guide: Any, states: Iterable[int]) -> int:
    """How many items states have together."""
    from trellm.kernels.chart.interning import HI, LO
    from trellm.kernels.chart.layout import HEADER, ITEM

    spans = guide.automaton.chart.states[list(states)]
    spans = spans[spans[:, HI] >= 0]
    return int(((spans[:, HI] - spans[:, LO] - HEADER) // ITEM).sum())


def states_after(guide: Any, state: int) -> list[int]:
    """The states one byte after a state, as far as a mask has asked for them."""
    from trellm.kernels.chart.layout import ROW

    chart = guide.automaton.chart
    row = int(chart.states[state, ROW])
    after = np.unique(chart.rows[row]) if row >= 0 else np.zeros(0, np.int32)
    return after[after >= 0].tolist()


def apart(series: Series, size: int, vocabulary: Any, counted: bool) -> dict[str, Any]:
    """The same in a process of its own."""

    def measure() -> dict[str, Any]:
        with open("/proc/self/statm") as file:
            before = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
        resource.setrlimit(resource.RLIMIT_CPU, (GIVEN_UP + 1, GIVEN_UP + 2))
        try:
            found = measured(series, size, vocabulary, counted)
        except Exception as error:
            if not isinstance(error, MemoryError):
                traceback.print_exc()
            return {"said": f"{type(error).__name__}: {str(error)[:70]}", "bad": True}
        return {**found, "peak_mib": found["peak_mib"] - before}

    found = answer_of(measure, 10 * GIVEN_UP).value
    return found or {"said": f"ended after {GIVEN_UP} s", "slowest_s": float(GIVEN_UP), "bad": True}


def doubled(name: str, vocabulary: Any, seconds: float) -> list[dict[str, Any]]:
    """The lines of a series; the last says whether it holds."""
    series, sizes = SERIES[name]
    rows: list[dict[str, Any]] = []
    for size in sizes:
        row: dict[str, Any] = {"series": name, "size": size, **apart(series, size, vocabulary, name in ITEMS)}
        bad = row.pop("bad", False) or row.get("slowest_s", 0.0) > seconds
        if rows and row.get("total_s") and rows[-1].get("total_s") and not row["said"]:
            doublings = np.log2(size / rows[-1]["size"])
            row["ratio"] = (row["total_s"] / rows[-1]["total_s"]) ** (1 / doublings)
            most = RATIO
            if row["items"] and rows[-1]["items"]:
                row["items_ratio"] = (row["items"] / rows[-1]["items"]) ** (1 / doublings)
                most = max(RATIO, RATIO / 2 * row["items_ratio"])
            bad = bad or (row["ratio"] > most and rows[-1]["total_s"] > ABOVE)
        row["holds"] = "no" if bad else "yes"
        rows.append(row)
        if row["said"].startswith("ended"):
            break
    return rows


def main() -> None:
    """Double."""
    parser = argparse.ArgumentParser(description="Doubling series of constraints")
    parser.add_argument("--only", default="", help="only series with this in their name")
    parser.add_argument("--seconds", type=float, default=2.0, help="that the slowest call may take")
    parser.add_argument("--save", action="store_true", help="write results/fuzz_scaling.csv")
    arguments = parser.parse_args()
    pin_to_one_core()
    vocabulary = warmed()
    rows: list[dict[str, Any]] = []
    for name in SERIES:
        if arguments.only in name:
            found = doubled(name, vocabulary, arguments.seconds)
            show(found)
            sys.stdout.flush()
            rows += found
    if arguments.save:
        print(save("fuzz_scaling", rows, ["trellm", "numpy", "numba"]))
    failed = list(dict.fromkeys(row["series"] for row in rows if row["holds"] == "no"))
    print(
        f"{len({row['series'] for row in rows}) - len(failed)} series hold; these do not: {', '.join(failed) or 'none'}"
    )
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
