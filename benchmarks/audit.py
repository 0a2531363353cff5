"""An audit of token masks: errors of five engines, each with a witness that anyone can check.

    python benchmarks/audit.py TOKENIZER DATA [--schemas N] [--seconds S] [--seed N] [--engines NAME ...]
                                   [--witnesses FILE] [--save]
    python benchmarks/audit.py TOKENIZER DATA --check FILE

DATA is a folder with maskbench-dev.jsonl.gz and json-schema-test-suite. Schemas of both are taken by turns, in a
random order, until there are --schemas of them or --seconds are over. Every engine compiles each schema in a process of
its own, goes along the valid and the invalid instances, walks at random through its masks, and is asked for its masks
at places where all come by, since where they differ one of them errs. docs/audit.md says what counts as an error:

ended    the text may end, and is not valid
dead     a token is allowed behind which no text is valid
stuck    no token is allowed, and the text may not end
refused  a valid value, none of whose spellings is allowed; `names` if it has a name that no `properties` has

Prints a line for each engine; --save writes results/audit.csv. --witnesses keeps a few witnesses of each kind, a line
of JSON each; --check judges those of a file again, and has the engines go along them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from itertools import zip_longest
from pathlib import Path
from typing import Any, Protocol

from auditing.engines import ENGINES, FINISHED, STUCK, Driver, FailedError, Followed, LateError, Process, Walk, bytes_of
from auditing.judge import Judge
from auditing.spellings import is_common, plain, spelled, undeclared
from auditing.witnesses import DEAD, ENDED, KINDS, NAMES, REFUSED, STOPS, Witness, kept, written
from recording import pin_to_one_core, save, show
from trellm.guides.json_schema.read.dialects import DIALECTS

WALKS, STEPS, BESIDE, VALUES = 3, 120, 16, 5
"""Walks of an engine, their tokens, tokens beside each that are judged, and values of each kind."""
PLACES, DIFFERENT, TRIES, BEHIND = 5, 5, 2, 40
"""Places at which masks are compared, tokens judged at each, walks that look for an end behind it, and their tokens."""
KEPT, LONGEST, MESSAGE = 12, 3000, 100
"""Witnesses of each engine and kind, characters of their schemas, and of what engines say."""


def records(folder: Path, seed: int) -> Iterator[dict[str, Any]]:
    """Schemas with instances, of both sets by turns."""
    with gzip.open(folder / "maskbench-dev.jsonl.gz", "rt", encoding="utf-8") as lines:
        wild = [json.loads(line) for line in lines]
    suite = list(_suite(folder / "json-schema-test-suite" / "tests"))
    for each in (wild, suite):
        random.Random(seed).shuffle(each)
    for pair in zip(wild, suite, strict=False):
        yield from pair


def _suite(folder: Path) -> Iterator[dict[str, Any]]:
    """Schemas of JSON-Schema-Test-Suite with the URI of their draft; those that fetch others are left out."""
    for dialect in DIALECTS:
        draft = "draft" + dialect.uri.removesuffix("/schema").rpartition("draft")[2].lstrip("-/0")
        for file in sorted((folder / draft).glob("*.json")):
            for number, case in enumerate(json.loads(file.read_text(encoding="utf-8"))):
                schema = case["schema"]
                if isinstance(schema, dict) and file.stem not in ("refRemote", "vocabulary", "format"):
                    with_draft = {"$schema": dialect.uri, **schema}
                    yield {"id": f"{draft}/{file.stem}/{number}", "schema": with_draft, "tests": case["tests"]}


class Caller(Protocol):
    """An engine's process."""

    def call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """A method of Driver, called there. Raises FailedError."""


@dataclass
class Tally:
    """Findings of an engine. schemas: those with an error of a kind; errors: tokens and texts"""

    taken: int = 0
    refused: int = 0
    late: int = 0
    failed: int = 0
    masks: int = 0
    judged: int = 0
    unproven: int = 0
    messages: Counter[str] = field(default_factory=Counter[str])
    schemas: Counter[str] = field(default_factory=Counter[str])
    errors: Counter[str] = field(default_factory=Counter[str])

    def row(self) -> dict[str, Any]:
        """Counts of schemas, and of all errors."""
        return {
            "taken": self.taken,
            "refused": self.refused,
            "too slow": self.late,
            "failed": self.failed,
            "masks": self.masks,
            **{f"schemas {kind}": self.schemas[kind] for kind in KINDS},
            **{f"all {kind}": self.errors[kind] for kind in KINDS},
            "judged": self.judged,
            "unproven": self.unproven,
        }


class Audit:
    """The engines, and what was found of each."""

    def __init__(
        self, engines: dict[str, Caller], tokens: list[bytes], encoded: Callable[[str], list[int]], seed: int = 0
    ) -> None:
        """tokens: the bytes of each, none of special ones; encoded: the tokens of a text"""
        self.engines, self.tokens, self.encoded, self.seed = engines, tokens, encoded, seed
        self.tallies = {name: Tally() for name in engines}
        self.witnesses = defaultdict[tuple[str, str], list[Witness]](list)
        self.schemas = self.unusable = 0
        self.broken_off: list[str] = []

    def look_at(self, record: dict[str, Any]) -> None:
        """Look at one schema; those of which `jsonschema` says nothing are counted."""
        try:
            judge = Judge(record["schema"])
            verdicts = [(test["data"], judge.verdict(test["data"])) for test in record["tests"]]
        except Exception:  # it may lack a document, recurse without end, or divide by infinity
            self.unusable += 1
            return
        self.schemas += 1
        try:
            _Look(self, record["id"], judge).at_all(verdicts)
        except Exception as error:  # a value that came up later leads jsonschema there; main prints all of these
            self.broken_off.append(f"{record['id']}: {type(error).__name__}: {error}"[:MESSAGE])

    def spelled(self, tokens: list[int]) -> bytes:
        """The bytes of some tokens."""
        return b"".join(self.tokens[token] for token in tokens)


class _Look:
    """Findings of one schema."""

    def __init__(self, audit: Audit, id_: str, judge: Judge) -> None:
        self._audit, self._id, self._judge = audit, id_, judge
        self._random = random.Random(f"{audit.seed}/{id_}")
        self._live: list[str] = []
        self._found: set[tuple[str, str]] = set()
        self._values: dict[str, Any] = {}
        self._accepted: dict[tuple[str, str], bool] = {}

    def at_all(self, verdicts: list[tuple[Any, bool | None]]) -> None:
        """Compile, go along instances, walk, and compare masks."""
        for name, tally in self._audit.tallies.items():
            try:
                self._audit.engines[name].call(Driver.compile, self._judge.schema)
            except LateError:
                tally.late += 1
            except FailedError as error:
                tally.refused += 1
                tally.messages[str(error)[:MESSAGE]] += 1
            else:
                tally.taken += 1
                self._live.append(name)
        for value, verdict in verdicts:
            if verdict:
                self._keep(value)
        invalid = [value for value, verdict in verdicts if verdict is False][:VALUES]
        for name in list(self._live):
            self._try(name, self._along_invalid, invalid)
            for number in range(WALKS):
                self._try(name, self._walk, number)
        for value in list(self._values.values())[: 2 * VALUES]:
            for name in list(self._live):
                self._try(name, self._refuses, value)
        for value in self._random.sample(list(self._values.values()), min(2, len(self._values))):
            self._compare(self._random.choice(spelled(self._judge, value)))

    def _try(self, name: str, look: Any, argument: Any) -> None:
        """Look at an engine that has not failed at this schema."""
        if name in self._live:
            try:
                look(name, argument)
            except FailedError as error:
                self._fail(name, error)

    def _fail(self, name: str, error: FailedError) -> None:
        self._audit.tallies[name].failed += 1
        self._audit.tallies[name].messages[f"later: {str(error)[:MESSAGE]}"] += 1
        self._live.remove(name)

    def _keep(self, value: Any) -> None:
        """Remember a valid value for all engines, if it is spelled in one way."""
        value = plain(value)
        if is_common(value) and self._judge.verdict(value):
            self._values[json.dumps(value, sort_keys=True)] = value

    def _follow(self, name: str, tokens: list[int], places: list[int] | None = None) -> Followed:
        found: Followed = self._audit.engines[name].call(Driver.follow, tokens, places or [])
        self._audit.tallies[name].masks += 1 + (len(tokens) if found.refused is None else found.refused)
        return found

    def _charge(self, name: str, kind: str, tokens: list[int], why: str, texts: dict[str, int] | None = None) -> None:
        self._audit.tallies[name].errors[kind] += 1
        kept_so_far = self._audit.witnesses[name, kind]
        is_new = (name, kind) not in self._found
        self._found.add((name, kind))
        self._audit.tallies[name].schemas[kind] += is_new
        if is_new and len(kept_so_far) < KEPT and len(json.dumps(self._judge.schema)) < LONGEST:
            text = self._audit.spelled(tokens).decode("utf-8", "surrogateescape")
            schema, package = self._judge.schema, version(name)
            kept_so_far.append(Witness(name, package, kind, self._id, schema, tokens, text, why, texts or {}))

    # Instances

    def _refuses(self, name: str, value: Any) -> bool:
        """True if an engine allows no spelling of a valid value, which is charged."""
        key = (name, json.dumps(value, sort_keys=True))
        if key not in self._accepted:
            self._accepted[key] = self._accepts(name, value)
        return not self._accepted[key]

    def _accepts(self, name: str, value: Any) -> bool:
        reached: dict[str, int] = {}
        for text in spelled(self._judge, value):
            tokens = self._audit.encoded(text)
            found = self._follow(name, tokens)
            if found.refused is None and found.may_end:
                return True
            reached[text] = len(tokens) if found.refused is None else found.refused
        text = max(reached, key=reached.__getitem__)
        tokens = self._audit.encoded(text)[: reached[text] + 1]
        kind = NAMES if undeclared(self._judge.schema, value) else REFUSED
        self._charge(name, kind, tokens, f"{self._audit.spelled(tokens[-1:])!r} is refused", reached)
        return False

    def _along_invalid(self, name: str, values: list[Any]) -> None:
        for value in values:
            tokens = self._audit.encoded(json.dumps(value, ensure_ascii=False))
            found = self._follow(name, tokens)
            allowed = tokens[: found.refused]
            self._dead(name, allowed)
            if found.may_end:
                self._finished(name, allowed)

    def _finished(self, name: str, tokens: list[int]) -> bool | None:
        verdict, why = self._judge.finished(self._audit.spelled(tokens))
        if verdict is False:
            self._charge(name, ENDED, tokens, why)
        return verdict

    def _dead(self, name: str, tokens: list[int]) -> int:
        """Charge the first token of a text behind which it is dead; its place, or the text's length."""
        if not tokens or self._judge.dead(self._audit.spelled(tokens)) is None:
            return len(tokens)
        low, high = 0, len(tokens)
        while high - low > 1:
            middle = (low + high) // 2
            if self._judge.dead(self._audit.spelled(tokens[:middle])) is None:
                low = middle
            else:
                high = middle
        self._charge(name, DEAD, tokens[:high], self._judge.dead(self._audit.spelled(tokens[:high])) or "")
        return high - 1

    # Walks

    def _walk(self, name: str, number: int) -> None:
        walk: Walk = self._audit.engines[name].call(Driver.walk, f"{self._audit.seed}/{self._id}/{number}", STEPS)
        self._audit.tallies[name].masks += len(walk.tokens) + 1
        first = self._dead(name, walk.tokens)
        beside = [(place, token) for place, token in walk.beside if place <= first]
        for place, token in self._random.sample(beside, min(BESIDE, len(beside))):
            tokens = [*walk.tokens[:place], token]
            if why := self._judge.dead(self._audit.spelled(tokens)):
                self._charge(name, DEAD, tokens, why)
        if walk.outcome == STUCK:
            self._charge(name, STOPS, walk.tokens, "nothing is allowed, and no end")
        elif walk.outcome == FINISHED and self._finished(name, walk.tokens):
            self._keep(_value(self._audit.spelled(walk.tokens)))

    # Masks beside each other

    def _compare(self, text: str) -> None:
        tokens = self._audit.encoded(text)
        places = sorted(self._random.sample(range(len(tokens)), min(PLACES, len(tokens))))
        masks: dict[str, dict[int, bytes]] = {}

        def kept_masks(name: str, _: None) -> None:
            masks[name] = self._follow(name, tokens, places).masks

        for name in list(self._live):
            self._try(name, kept_masks, None)
        for place in places:
            self._differing(tokens[:place], {name: each[place] for name, each in masks.items() if place in each})

    def _differing(self, before: list[int], masks: dict[str, bytes]) -> None:
        """Judge some of the tokens that one engine allows and another one does not."""
        import numpy as np

        if len(masks) < 2:
            return
        names = list(masks)
        packed = [np.frombuffer(masks[name], np.uint8) for name in names]
        every = np.array([np.unpackbits(each)[: len(self._audit.tokens)] for each in packed])
        tokens = [token for token in np.flatnonzero(every.any(0) & ~every.all(0)).tolist() if self._audit.tokens[token]]
        groups = defaultdict[tuple[int, ...], list[int]](list)
        for token in tokens:
            groups[tuple(every[:, token].tolist())].append(token)
        drawn = zip_longest(*(self._random.sample(each, min(DIFFERENT, len(each))) for each in groups.values()))
        chosen = [token for turn in drawn for token in turn if token is not None][:DIFFERENT]
        for token in chosen:
            allowing = [name for name, row in zip(names, every, strict=True) if row[token]]
            self._disputed([*before, token], allowing, [name for name in names if name not in allowing])

    def _disputed(self, tokens: list[int], allowing: list[str], refusing: list[str]) -> None:
        """Charge either side where something is certain."""
        for name in (*allowing, *refusing):
            self._audit.tallies[name].judged += 1
        if why := self._judge.dead(self._audit.spelled(tokens)):
            for name in allowing:
                self._charge(name, DEAD, tokens, why)
            return
        value = self._completed(tokens, allowing)
        if value is None:
            for name in (*allowing, *refusing):
                self._audit.tallies[name].unproven += 1
            return
        for name in refusing:
            self._try(name, self._refuses, value[0])

    def _completed(self, tokens: list[int], allowing: list[str]) -> tuple[Any] | None:
        """A valid value whose text goes on behind some tokens; None where none was found."""
        for name in [name for name in allowing if name in self._live][:TRIES]:
            seed = f"{self._audit.seed}/{self._id}/{tokens}"
            try:
                walk: Walk = self._audit.engines[name].call(Driver.walk, seed, len(tokens) + BEHIND, tokens)
            except FailedError as error:
                self._fail(name, error)
                continue
            text = self._audit.spelled(walk.tokens)
            if walk.outcome == FINISHED and self._judge.finished(text)[0]:
                value = plain(_value(text))
                return (value,) if is_common(value) and self._judge.verdict(value) else None
        return None


def _value(text: bytes) -> Any:
    """The value of a text, read as tokenizers decode."""
    return json.loads(text.decode("utf-8", "replace"))


def audited(audit: Audit, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of an audit of so many schemas, or seconds."""
    began = time.monotonic()
    for record in records(Path(arguments.data), arguments.seed):
        if audit.schemas >= arguments.schemas or time.monotonic() - began > arguments.seconds:
            break
        audit.look_at(record)
        if audit.schemas % 20 == 0:
            print(f"{audit.schemas} schemas, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    print(
        f"{audit.schemas} schemas in {time.monotonic() - began:.0f} s; jsonschema says nothing of {audit.unusable} more"
    )
    print(len(audit.broken_off), "broken off", *audit.broken_off, sep="\n  ")
    for name, tally in audit.tallies.items():
        print(name, *(f"\n  {count:4d} {message}" for message, count in tally.messages.most_common(9)))
    return [{"engine": name, "schemas": audit.schemas, **tally.row()} for name, tally in audit.tallies.items()]


def checked(audit: Audit, path: Path) -> list[dict[str, Any]]:
    """Rows of how many witnesses of a file hold, and how many the engines that are installed repeat."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for witness in kept(path):
        row = rows.setdefault((witness.engine, witness.kind), {"witnesses": 0, "hold": 0, "repeated": 0})
        row["witnesses"] += 1
        row["hold"] += witness.holds()
        if witness.engine in audit.engines:
            call = audit.engines[witness.engine].call
            call(Driver.compile, witness.schema)
            row["repeated"] += witness.repeats(call, audit.encoded)
    return [{"engine": engine, "kind": kind, **row} for (engine, kind), row in rows.items()]


def main() -> None:
    """Audit, or check witnesses."""
    parser = argparse.ArgumentParser(description="An audit of token masks")
    parser.add_argument("tokenizer")
    parser.add_argument("data")
    parser.add_argument("--schemas", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=1200)
    parser.add_argument("--patience", type=float, default=5, help="seconds of a processor for a call of an engine")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    parser.add_argument("--witnesses", help="keep some in this file")
    parser.add_argument("--check", help="a file of witnesses, in place of an audit")
    parser.add_argument("--save", action="store_true", help="write results/audit.csv")
    arguments = parser.parse_args()
    pin_to_one_core()
    warnings.simplefilter("ignore")
    from transformers import AutoTokenizer
    from trellm import Vocabulary

    tokenizer = AutoTokenizer.from_pretrained(arguments.tokenizer)
    processes = {name: Process(name, arguments.tokenizer, arguments.patience) for name in arguments.engines}
    tokens = bytes_of(Vocabulary.from_tokenizer(tokenizer))
    audit = Audit(processes, tokens, partial(tokenizer.encode, add_special_tokens=False), arguments.seed)
    try:
        rows = checked(audit, Path(arguments.check)) if arguments.check else audited(audit, arguments)
    finally:
        for process in processes.values():
            process.end()
    show(rows)
    if arguments.witnesses:
        written((each for some in audit.witnesses.values() for each in some), Path(arguments.witnesses))
    if arguments.save:
        print(save("audit", rows, [*arguments.engines, "jsonschema"], arguments.tokenizer))


if __name__ == "__main__":
    main()
