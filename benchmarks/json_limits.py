"""Large and hard JSON schemas: what compiling and masks cost, and what compiling a schema costs that was seen before.

    python benchmarks/json_limits.py TOKENIZER [--save]

Each schema is compiled and walked by the tokens of an instance, the mask computed before each, by `JSONGuide` and, if
it is installed, by llguidance. first: compiling and the first mask; mean, max: of the masks, with advancing, along the
instance; seen: compiling again, the median of SEEN times. On one core, the engines in turn; `first` is of the first
run, else medians. A schema that an engine refuses has the reason. --save writes results/json_limits.csv.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

from recording import pin_to_one_core, save, show

RUNS, SEEN = 3, 15

Case = tuple[dict[str, Any], Any]


def cases() -> dict[str, Case]:
    """Schemas by name, each with an instance."""
    text = {"type": "string"}
    some = {f"property {index}": index for index in range(0, 100, 7)}
    numbers = {"type": "integer"}
    names = [f"name {index * 7919}" for index in range(10_000)]
    strings = [f"{index * 7919 % 1000} of a thousand" for index in range(1000)]
    kinds = [f"{verb}{what}" for verb in ("Align", "Break", "Indent") for what in "ABCDE"]
    options = [f"{kind}{number}" for kind in kinds for number in range(10)]
    return {
        "1,000 strings": ({"type": "array", "items": text}, strings),
        "1,000 strings that differ": ({"type": "array", "items": text, "uniqueItems": True}, strings),
        "enum of 10,000": (
            {"enum": [f"value {index * 7919} of many" for index in range(10_000)]},
            "value 7919 of many",
        ),
        "const among 10,000 names": (
            {"propertyNames": {"enum": names}},
            {"name 7919": 1, "name 0": None},
        ),
        "10,000 names of texts": (
            {"type": "object", "additionalProperties": text, "propertyNames": {"enum": names}},
            {"name 7919": "a b", "name 0": "c"},
        ),
        "oneOf of 8 recursive objects": (recursive(8), nested(8, 10)),
        "conditions on 20 members": (
            {"type": "object", "allOf": [when(f"m{i}", {"required": [f"r{i}"]}, {f"r{i}": text}) for i in range(20)]},
            {"m1": 1, "r1": 2, "m3": 2, "r3": "a"},
        ),
        "oneOf of 12 overlapping objects": (
            {"oneOf": [{"properties": {"a": {"minimum": i}, f"b{i}": text}} for i in range(12)]},
            {"a": 0.5, "b1": 1, "b2": "x"},
        ),
        "dependentSchemas of 12": (
            {"type": "object", "dependentSchemas": {c: {"required": [c + c]} for c in "abcdefghijkl"}},
            {"a": 1, "aa": 2},
        ),
        "anyOf of 12, unevaluatedProperties": (
            {
                "type": "object",
                "anyOf": [{"properties": {f"p{i}": True}, "required": [f"p{i}"]} for i in range(12)],
                "unevaluatedProperties": False,
            },
            {"p1": 1, "p7": 2},
        ),
        "patterns that must not be found": (
            {**text, "allOf": [{"not": {"pattern": pattern}} for pattern in (".{10}a.{10}", "^.{0,5}b", "c.{8}d")]},
            "hello world",
        ),
        "alternatives of patterns": (
            {
                **text,
                "allOf": [
                    {"anyOf": [{"pattern": f"^{letter}"} for letter in "abcde"]},
                    {"anyOf": [{"not": {"pattern": "^[ab]"}}, *({"pattern": f"{letter}$"} for letter in "xyz")]},
                    {"anyOf": [{"not": {"pattern": "[xyz]$"}}, *({"pattern": number * 9} for number in "123")]},
                    {"minLength": 10, "maxLength": 20},
                ],
            },
            "a" + 9 * "1" + "x",
        ),
        "settings of 40 sections": (settings(40, 60), {"section1": {"option_1_0": True, "option_1_4": {}}}),
        "500 properties": ({"properties": {f"property {i}": numbers for i in range(500)}, **CLOSED}, some),
        "500 properties, 20 required": (
            {"properties": {f"property {i}": numbers for i in range(500)}, "required": list(some), **CLOSED},
            some,
        ),
        "150 properties, 75 of them written": (
            {"properties": {name: numbers for name in options}, **CLOSED},
            {name: index for index, name in enumerate(options[::2])},
        ),
        "150 properties and others, 75 of them": (
            {"properties": {name: numbers for name in options}},
            {name: index for index, name in enumerate(options[::2])},
        ),
        "50,000 properties": ({"properties": {f"property {i}": numbers for i in range(50_000)}, **CLOSED}, {}),
        "maxLength 100,000": ({**text, "maxLength": 100_000}, "words and more words " * 20),
        "minLength 100,000": ({**text, "minLength": 100_000}, "words and more words " * 5000),
        "maxItems 10,000": ({"type": "array", "items": numbers, "maxItems": 10_000}, list(range(200))),
        "minItems 10,000": ({"type": "array", "items": numbers, "minItems": 10_000}, list(range(10_000))),
        "bounded repeats": ({**text, "pattern": "^([a-z]{3,200}[0-9]{2,100}-?){1,50}$"}, "abcdef0123-" * 10),
        "bounded repeats inside": (
            {**text, "pattern": "[A-Z][a-z]{0,30}( [A-Z][a-z]{0,30}){1,20}"},
            "Ada King Lovelace",
        ),
        "20 words, maxLength 200": (
            {**text, "pattern": r"^([^\s]+\s+){0,19}[^\s]+$", "maxLength": 200},
            "Data made available within 24 hours with some additional information",
        ),
        "pattern and length": (
            {**text, "pattern": "^[a-z]+( [a-z]+)*$", "maxLength": 5000},
            "a few words " * 50 + "end",
        ),
    }


CLOSED = {"type": "object", "additionalProperties": False}


def recursive(kinds: int) -> dict[str, Any]:
    """Objects that hold one another, told apart by a constant member."""
    node, text = {"$ref": "#/$defs/node"}, {"type": "string"}
    parts = [
        {
            "type": "object",
            "properties": {
                "kind": {"const": f"kind{kind}"},
                "name": text,
                "children": {"type": "array", "items": node},
                f"left{kind}": node,
                "right": node,
            },
            "required": ["kind"],
        }
        for kind in range(kinds)
    ]
    return {"$defs": {"node": {"oneOf": parts}}, **node}


def nested(kinds: int, depth: int) -> dict[str, Any]:
    """An instance of it."""
    value = {"kind": f"kind{depth % kinds}", "name": "a node"}
    return {"right": nested(kinds, depth - 1), **value} if depth else value


def when(name: str, then: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """A condition on one member."""
    return {"if": {"properties": {name: {"const": 1}}, "required": [name]}, "then": then, "else": {"properties": other}}


def settings(sections: int, options: int) -> dict[str, Any]:
    """A schema like those of configuration files."""
    text = {"type": "string"}
    kinds: list[Any] = [
        {"type": "boolean", "default": False, "description": "a switch"},
        {"type": "integer", "minimum": 0},
        {"enum": ["a", "b", "c"]},
        {"anyOf": [text, {"type": "array", "items": text}]},
        {"$ref": "#/definitions/section0"},
        {"oneOf": [{"type": "null"}, {**text, "pattern": "^[a-z]+$"}]},
    ]
    parts = {
        f"section{section}": {
            **CLOSED,
            "properties": {f"option_{section}_{index}": kinds[index % len(kinds)] for index in range(options)},
        }
        for section in range(sections)
    }
    named = {name: {"$ref": f"#/definitions/{name}"} for name in parts}
    return {"definitions": parts, **CLOSED, "properties": named}


class Trellm:
    """This package."""

    def __init__(self, tokenizer: str) -> None:
        from transformers import AutoTokenizer
        from trellm import Vocabulary
        from trellm.cli.warmup import warm

        self.encode = AutoTokenizer.from_pretrained(tokenizer).encode
        self.vocabulary = Vocabulary.from_tokenizer(AutoTokenizer.from_pretrained(tokenizer))
        warm(lambda *_: None)

    def compile(self, schema: Any) -> Any:
        from trellm.guides import JSONGuide

        return JSONGuide(schema, self.vocabulary)

    def walk(self, schema: Any, instance: Any) -> dict[str, float]:
        """Milliseconds; compiling again in microseconds."""
        tokens = self.encode(json.dumps(instance, ensure_ascii=False), add_special_tokens=False)
        gc.collect()
        begin = time.perf_counter()
        guide = self.compile(schema)
        state = guide.start
        guide.mask(state)
        first = time.perf_counter() - begin
        steps: list[float] = []
        for token in tokens:
            begin = time.perf_counter()
            guide.mask(state)
            state = guide.advance(state, token)
            steps.append(time.perf_counter() - begin)
            assert state >= 0, "an instance is refused"
        assert guide.is_accepting(state), "an instance is not complete"
        return row_of(first, steps, statistics.median(self._seconds(schema) for _ in range(SEEN)))

    def _seconds(self, schema: Any) -> float:
        begin = time.perf_counter()
        self.compile(schema)
        return time.perf_counter() - begin


class Llguidance:
    """llguidance, with its defaults."""

    def __init__(self, tokenizer: str) -> None:
        import llguidance
        import llguidance.hf
        from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask
        from transformers import AutoTokenizer

        self.encode = AutoTokenizer.from_pretrained(tokenizer).encode
        self._engine = llguidance
        self._fill = fill_next_token_bitmask
        self._tokenizer = llguidance.hf.from_tokenizer(AutoTokenizer.from_pretrained(tokenizer))
        self._bits = allocate_token_bitmask(1, self._tokenizer.vocab_size)

    def walk(self, schema: Any, instance: Any) -> dict[str, float]:
        """As Trellm.walk; nothing is remembered."""
        tokens = self.encode(json.dumps(instance, ensure_ascii=False), add_special_tokens=False)
        gc.collect()
        begin = time.perf_counter()
        matcher = self._engine.LLMatcher(
            self._tokenizer, self._engine.LLMatcher.grammar_from_json_schema(json.dumps(schema))
        )
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        self._fill(matcher, self._bits, 0)
        first = time.perf_counter() - begin
        steps: list[float] = []
        for token in tokens:
            begin = time.perf_counter()
            self._fill(matcher, self._bits, 0)
            assert matcher.consume_token(token), "an instance is refused"
            steps.append(time.perf_counter() - begin)
        return row_of(first, steps, None)


def row_of(first: float, steps: list[float], seen: float | None) -> dict[str, Any]:
    """What was measured, in milliseconds and microseconds."""
    row: dict[str, Any] = {
        "first_ms": 1e3 * first,
        "mean_ms": 1e3 * statistics.fmean(steps),
        "max_ms": 1e3 * max(steps),
    }
    return row if seen is None else {**row, "seen_us": 1e6 * seen}


def measure(walk: Callable[[Any, Any], dict[str, Any]], case: Case, run: int) -> dict[str, Any]:
    """One run, of a schema that differs from those of other runs in an annotation; or why there is none."""
    schema, instance = case
    try:
        return walk({**schema, "$comment": f"run {run}"}, instance)
    except (Exception, AssertionError) as error:
        return {"refused": f"{type(error).__name__}: {error}"[:100]}


def main() -> None:
    """Measure every case."""
    parser = argparse.ArgumentParser(description="Large and hard JSON schemas")
    parser.add_argument("tokenizer")
    parser.add_argument("--only", default="", help="only cases with this in their name")
    parser.add_argument("--save", action="store_true", help="write results/json_limits.csv")
    arguments = parser.parse_args()
    pin_to_one_core()
    engines: dict[str, Any] = {"trellm": Trellm(arguments.tokenizer)}
    packages = ["trellm"]
    try:
        engines["llguidance"] = Llguidance(arguments.tokenizer)
        packages.append("llguidance")
    except ImportError:
        print("without llguidance, which is not installed")
    for engine in engines.values():
        engine.walk({"type": "string"}, "what is done once for a vocabulary")
    rows: list[dict[str, Any]] = []
    for name, case in cases().items():
        if arguments.only not in name:
            continue
        runs = [{engine: measure(one.walk, case, run) for engine, one in engines.items()} for run in range(RUNS)]
        for engine in engines:
            found = [run[engine] for run in runs]
            rows.append({"case": name, "engine": engine, **medians(found)})
            show(rows[-1:])
    show(rows)
    if arguments.save:
        print(save("json_limits", rows, packages, arguments.tokenizer))


def medians(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The median of each number, but the first of what comes first; a reason as it is."""
    numbers = {key: [run[key] for run in runs] for key, value in runs[0].items() if not isinstance(value, str)}
    middle = {key: found[0] if key == "first_ms" else statistics.median(found) for key, found in numbers.items()}
    return {**runs[0], **middle}


if __name__ == "__main__":
    main()
