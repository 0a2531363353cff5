"""Random walks through the guides of JSON schemas: does everything that can be generated validate, and end in time?

    python benchmarks/json_walks.py TOKENIZER DATA.jsonl.gz [--walks N] [--every N] [--count N] [--only WORD]
        [--order any] [--whitespace any] [--escapes any] [--seconds N] [--log FILE] [--save]

DATA has one {"id", "schema", ...} a line. Every walk has a budget between the distance of the start and 80 tokens
more and asks the guide as the decode loop does. Every other walk takes all allowed tokens with the same probability,
the rest first a length among those of the allowed tokens, then a token of that length, so that strings end. Checked
with `jsonschema`, formats too: every text is an instance, none comes to a dead end, all are complete within the budget.
Prints what failed and how long the slowest took; --save writes a line of sums to results/json_walks.csv. With --log,
every schema's outcome is a line of FILE, and a run that was broken off goes on behind the schemas that are in it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import re
import signal
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from typing import Any

from recording import pin_to_one_core, save, show

SLACK = (0, 1, 3, 10, 30, 80)
OPTIONS = ("order", "whitespace", "escapes")


class Walker:
    """Walks of one vocabulary."""

    def __init__(self, vocabulary: Any, seed: int = 0) -> None:
        import numpy as np

        self._np = np
        self._vocabulary = vocabulary
        self._random = np.random.default_rng(seed)
        self._lengths = np.array([len(text or b"") for text in vocabulary.tokens], np.int64)

    def walk(self, constraint: Any, budget: int, by_length: bool) -> str:
        """The text of one walk of at most `budget` tokens. Raises AssertionError where there is no way on."""
        guide, tokens = constraint.guide, self._vocabulary.tokens
        state, text = guide.start, b""
        for left in range(budget, 0, -1):
            is_near_budget = constraint.is_near_budget(state, left)
            token = self._pick(guide.mask_within(state, left) if is_near_budget else guide.mask(state), by_length)
            after = guide.advance(state, token) if token >= 0 else -1
            if not is_near_budget and token not in self._vocabulary.eos_ids and not constraint.fits(after, left - 1):
                token = self._pick(guide.mask_within(state, left), by_length)
                after = guide.advance(state, token) if token >= 0 else -1
            assert token >= 0, f"a dead end with {left} tokens left, after {text[-300:]!r}"
            if token in self._vocabulary.eos_ids:
                assert guide.is_accepting(state), f"EOS is allowed too early, after {text[-300:]!r}"
                return text.decode()
            assert after >= 0, f"token {tokens[token]!r} is allowed and refused, after {text[-300:]!r}"
            text += tokens[token]
            state = after
        assert guide.is_accepting(state), f"{budget} tokens were not enough: {text[-300:]!r}"
        return text.decode()

    def _pick(self, mask: Any, by_length: bool) -> int:
        np = self._np
        allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")[: len(self._lengths)])
        if not len(allowed):
            return -1
        if by_length:
            lengths = self._lengths[allowed]
            allowed = allowed[lengths == self._random.choice(np.unique(lengths))]
        return int(self._random.choice(allowed))


def number(text: str) -> float | int:
    """A number with fraction or exponent; one beyond a float's range is a whole number that stands for it."""
    value = float(text)
    return value if math.isfinite(value) else int(math.copysign(10**300, value)) * 10**9


def whole(text: str) -> int:
    """A whole number, however many digits it has."""
    value = 0
    for at in range(0, len(text), 4000):
        part = text[at : at + 4000].lstrip("-")
        value = value * 10 ** len(part) + int(part or "0")
    return -value if text.startswith("-") else value


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise TimeoutError in the block after so many seconds of this process."""

    def ring(*_: object) -> None:
        raise TimeoutError(f"{seconds} s")

    old = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, old)


CLASSES = {
    r"\d": "0-9",
    r"\w": "A-Za-z0-9_",
    r"\s": r"\t\n\v\f\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff",
}


WORD = CLASSES[r"\w"]
OTHERS = {
    ".": r"[^\n\r\u2028\u2029]",
    "$": r"\Z",
    r"\b": f"(?:(?<=[{WORD}])(?![{WORD}])|(?<![{WORD}])(?=[{WORD}]))",
    r"\B": f"(?:(?<=[{WORD}])(?=[{WORD}])|(?<![{WORD}])(?![{WORD}]))",
}


def in_python(pattern: str) -> str:
    """A pattern of ECMA-262 as Python reads it: the ends of lines differ, and what is a digit, a letter, a space."""
    pieces = re.findall(r"\\.|\[(?:\\.|[^\]\\])*\]|.", pattern, re.DOTALL)
    changed = {**OTHERS, **{name: f"[{inside}]" for name, inside in CLASSES.items()}}
    changed.update((name.upper(), f"[^{inside}]") for name, inside in CLASSES.items())
    escaped = re.compile(r"\\.", re.DOTALL)
    return "".join(
        escaped.sub(lambda found: CLASSES.get(found[0], found[0]), piece)
        if piece.startswith("[")
        else changed.get(piece, piece)
        for piece in pieces
    )


def with_python_patterns(schema: Any) -> Any:
    """A schema with its patterns as Python reads them."""
    if isinstance(schema, list):
        return [with_python_patterns(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: with_python_patterns(value) for name, value in schema.items()}
    if isinstance(found.get("pattern"), str):
        found["pattern"] = in_python(found["pattern"])
    if isinstance(found.get("patternProperties"), dict):
        found["patternProperties"] = {in_python(name): value for name, value in found["patternProperties"].items()}
    return found


def first_error(schema: Any, value: Any) -> Any:
    """What is wrong with a value, or None; patterns mean what they do in ECMA-262."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for

    validator = exact_validator(validator_for(schema, default=Draft202012Validator))
    found = next(validator(schema).iter_errors(value), None)
    return None if found is None else next(validator(with_python_patterns(schema)).iter_errors(value), None)


def with_leap_seconds(check: Callable[[Any], Any], instance: Any) -> Any:
    """The check of a time or date-time; second 60 of the last minute of a day in UTC is as good as second 59."""
    found = isinstance(instance, str) and re.search(
        r"(\d\d):(\d\d):60(?=(?:\.\d+)?(?:[Zz]|([+-]\d\d):(\d\d))$)", instance
    )
    if not found:
        return check(instance)
    hour, minute, hours, minutes = (int(part or 0) for part in found.groups())
    ahead = hours * 60 + (-minutes if (found[3] or "").startswith("-") else minutes)
    return (hour * 60 + minute - ahead) % 1440 == 1439 and check(
        f"{instance[: found.end() - 2]}59{instance[found.end() :]}"
    )


@cache
def exact_validator(kind: Any) -> Any:
    """A validator of jsonschema that calculates with decimal numbers as they are written, and checks formats.

    `jsonschema` divides floats, takes "805" for no relative JSON pointer, since an 8 follows its 0, knows no
    leap seconds, and takes regular expressions for those of Python.
    """
    from jsonschema import ValidationError
    from jsonschema.validators import extend
    from trellm.errors import PatternError
    from trellm.guides.regex import parse

    def multiple_of(validator: Any, divisor: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        is_number = validator.is_type(instance, "number")
        if is_number and (Fraction(str(instance)) / Fraction(str(divisor))).denominator != 1:
            yield ValidationError(f"{instance!r} is not a multiple of {divisor}")

    def is_relative_pointer(instance: Any) -> bool:
        pointer = r"(?:0|[1-9][0-9]*)(?:#|(?:/(?:[^~/]|~[01])*)*)"
        return not isinstance(instance, str) or re.fullmatch(pointer, instance) is not None

    def is_regex(instance: Any) -> bool:
        return not isinstance(instance, str) or parse(instance, dialect="ecma") is not None

    checker = deepcopy(kind.FORMAT_CHECKER)
    checker.checks("regex", raises=PatternError)(is_regex)
    for name in ("date-time", "time"):
        if name in checker.checkers:
            checker.checks(name)(partial(with_leap_seconds, checker.checkers[name][0]))
    checker.checks("relative-json-pointer")(is_relative_pointer)
    return partial(extend(kind, {"multipleOf": multiple_of}), format_checker=checker)


def walk_schema(schema: Any, vocabulary: Any, walks: int, options: dict[str, Any]) -> tuple[str, str, int]:
    """How the walks through a schema went ("fine", "refused", or what failed), the reason, and the bytes written."""
    from trellm.engine.decode.guide_cache import GuideCache
    from trellm.errors import TrellmError
    from trellm.guides import JSONGuide

    try:
        guide = JSONGuide(schema, vocabulary, **options)
    except TrellmError as error:
        return "refused", f"{type(error).__name__}: {error}", 0
    walker, constraint, written = Walker(vocabulary), GuideCache(guide, 64), 0
    shortest = max(1, guide.distance(guide.start))
    for number_ in range(walks):
        budget = shortest + SLACK[number_ % len(SLACK)]
        try:
            text = walker.walk(constraint, budget, number_ % 2 == 1)
        except AssertionError as error:
            return "dead end", str(error), written
        value = json.loads(text, parse_float=number, parse_int=whole)
        found = first_error(schema, value)
        if found is not None:
            return (
                "invalid",
                f"{found.message[:300]} ({'/'.join(map(str, found.schema_path))}) in {text[:400]}",
                written,
            )
        written += len(text.encode())
    return "fine", "", written


class Log:
    """The outcomes so far, kept in a file if one is given."""

    def __init__(self, path: str, settings: dict[str, Any]) -> None:
        self._path = Path(path) if path else None
        self._settings = settings
        self.outcomes: dict[str, dict[str, Any]] = {}
        if self._path is not None and self._path.exists():
            for line in self._path.read_text(encoding="utf-8").splitlines():
                outcome = json.loads(line)
                if outcome["settings"] == settings:
                    self.outcomes[outcome["id"]] = outcome

    def add(self, outcome: dict[str, Any]) -> None:
        """Remember how the walks through a schema went."""
        self.outcomes[outcome["id"]] = outcome
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({**outcome, "settings": self._settings}) + "\n")


def outcome_of(record: dict[str, Any], vocabulary: Any, arguments: argparse.Namespace) -> dict[str, Any]:
    """How the walks through a schema went, and the seconds they took."""
    start = time.process_time()
    try:
        with limited(arguments.seconds):
            options = chosen_options(arguments)
            verdict, reason, size = walk_schema(record["schema"], vocabulary, arguments.walks, options)
    except Exception as error:
        verdict, reason, size = "error", f"{type(error).__name__}: {error}", 0
    seconds = time.process_time() - start
    return {"id": record["id"], "verdict": verdict, "reason": reason[:800], "bytes": size, "seconds": seconds}


def chosen_options(arguments: argparse.Namespace) -> dict[str, str]:
    """The options of the guide that are not as by default."""
    return {name: getattr(arguments, name) for name in OPTIONS if getattr(arguments, name)}


def main() -> None:
    """Walk through every schema."""
    parser = argparse.ArgumentParser(description="Random walks through JSON schemas")
    parser.add_argument("tokenizer")
    parser.add_argument("data")
    parser.add_argument("--walks", type=int, default=20)
    parser.add_argument("--every", type=int, default=1, help="only every Nth schema")
    parser.add_argument("--first", type=int, default=0, help="the first schema")
    parser.add_argument("--count", type=int, help="only so many schemas")
    parser.add_argument("--only", default="", help="only schemas with this in their id")
    parser.add_argument("--seconds", type=int, default=60, help="limit for one schema")
    parser.add_argument("--log", default="", help="keep the outcomes here, and go on behind those that are there")
    parser.add_argument("--save", action="store_true", help="write results/json_walks.csv")
    for option in OPTIONS:
        parser.add_argument(f"--{option}")
    arguments = parser.parse_args()
    pin_to_one_core()
    warnings.simplefilter("ignore")
    from transformers import AutoTokenizer
    from trellm import Vocabulary

    vocabulary = Vocabulary.from_tokenizer(AutoTokenizer.from_pretrained(arguments.tokenizer))
    options = chosen_options(arguments)
    with gzip.open(arguments.data, "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    chosen = [r for r in records[arguments.first :: arguments.every] if arguments.only in r["id"]]
    chosen = chosen[: arguments.count]
    walk_schema({"properties": {"a": {"type": "string"}}}, vocabulary, len(SLACK), {})  # loads the kernels
    log = Log(arguments.log, {"walks": arguments.walks, **options})
    for record in chosen:
        if record["id"] in log.outcomes:
            continue
        outcome = outcome_of(record, vocabulary, arguments)
        log.add(outcome)
        if outcome["verdict"] != "fine":
            print(f"{outcome['verdict']}: {record['id']}: {outcome['reason']}", flush=True)
    outcomes = [log.outcomes[record["id"]] for record in chosen]
    slowest = sorted(outcomes, key=lambda outcome: -outcome["seconds"])
    print("slowest:", ", ".join(f"{outcome['id']} {outcome['seconds']:.1f} s" for outcome in slowest[:8]))
    counts = Counter(outcome["verdict"] for outcome in outcomes)
    row = {
        **{name: options.get(name, "default") for name in OPTIONS},
        "schemas": len(chosen),
        "walks": arguments.walks,
        **{name: counts[name] for name in ("fine", "refused", "invalid", "dead end", "error")},
        "bytes": sum(outcome["bytes"] for outcome in outcomes),
        "seconds": sum(outcome["seconds"] for outcome in outcomes),
        "slowest_s": slowest[0]["seconds"],
    }
    show([row])
    if arguments.save:
        print(save("json_walks", [row], ["trellm", "jsonschema"], arguments.tokenizer))


if __name__ == "__main__":
    main()
