"""A fuzzer: random constraints, texts, options, states and files, none of which may bring the process down.

    python benchmarks/fuzz/run.py --cases 1000000 --vocabulary bytes --seed 0 --log fuzz.jsonl
        [--schemas DATA.jsonl.gz] [--suite JSON-SCHEMA-TEST-SUITE] [--kinds regex,schema] [--workers N]
    python benchmarks/fuzz/run.py ... --replay NUMBER     one case in this process
    python benchmarks/fuzz/run.py ... --shrink NUMBER     a smaller case that goes wrong in the same way
    python benchmarks/fuzz/run.py --summary FILE...       the logs as a table

A case is known by its number: seed, vocabulary and corpus say the rest. Each makes a guide, walks through it with
allowed and with random tokens and states, and checks what it says; texts are compared with `re` and `jsonschema`. A
case is fine, refused (TrellmError), limited (LimitError), or bad: a foreign exception, a late error (raised once the
guide is made, though it is neither about limits nor about what was asked), wrong (an answer that cannot be right), a
hang (a call of more than two seconds of work), memory (more than 512 MiB), or a crash. Cases run in forked processes
with limits. The log has a line for every chunk of cases, and one for every bad case; a run that was broken off goes on
behind the chunks that are in it.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import probe as probing
from cases import KINDS, Case
from inputs.corpus import Corpus, vocabularies
from log import Log, summary
from pool import run_range
from shrinking import shrink
from verdicts import BAD, Outcome, judged

CHUNK = 250


class Fuzzer:
    """What all cases of a run have in common."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.corpus = Corpus.read(arguments.schemas, arguments.suite)
        self.vocabularies = vocabularies(arguments.vocabulary)
        self.kinds = arguments.kinds.split(",") if arguments.kinds else list(KINDS)
        self.seed = arguments.seed
        self.unknown = not arguments.known_states

    def case(self, number: int) -> Case:
        """The case of a number."""
        return Case(self.corpus, self.vocabularies, f"{self.seed}/{number}", self.kinds, self.unknown)

    def run(self, number: int) -> Outcome:
        """Run a case."""
        return judged(self.case(number), number)

    def completed(self, outcome: Outcome) -> Outcome:
        """An outcome with what a process that was ended could not say."""
        if not outcome.kind:
            outcome.kind = self.case(outcome.case).kind
        return outcome

    def warm(self) -> None:
        """Load all kernels and libraries, so that no case pays for them, and forks share them."""
        import torch
        from trellm.cli.warmup import warm
        from trellm.kernels.jit.compiling import keep_quiet

        torch.set_num_threads(1)
        keep_quiet()
        warm(lambda name, seconds: None)
        for number in range(400):
            kinds = ["quotation", "choices", "options", "schema"]
            judged(Case(self.corpus, self.vocabularies, f"warm/{number}", kinds, False), number)


def work(fuzzer: Fuzzer, log: Log, chunks: list[range], seconds: float) -> None:
    """Run chunks one after the other."""
    for chunk in chunks:
        begin = time.perf_counter()
        outcomes = [fuzzer.completed(outcome) for outcome in run_range(fuzzer.run, chunk, seconds=seconds)]
        log.add(chunk, outcomes, time.perf_counter() - begin)
        for outcome in outcomes:
            if outcome.verdict in BAD:
                print(
                    f"{outcome.case}: {outcome.verdict}: {outcome.error} {outcome.message[:200]} {outcome.where}",
                    flush=True,
                )


def run_all(fuzzer: Fuzzer, log: Log, arguments: argparse.Namespace) -> None:
    """Run the chunks that are not in the log, in so many processes."""
    fuzzer.warm()
    starts = range(arguments.first, arguments.first + arguments.cases, CHUNK)
    last = arguments.first + arguments.cases
    chunks = [range(start, min(start + CHUNK, last)) for start in starts if start not in log.done]
    children: list[int] = []
    for index in range(arguments.workers):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                work(fuzzer, log, chunks[index :: arguments.workers], arguments.seconds)
                code = 0
            except Exception:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(code)
        children.append(pid)
    codes = [os.waitpid(child, 0)[1] for child in children]
    if any(codes):
        raise SystemExit(f"a process that runs cases ended with {codes}")


def replay(fuzzer: Fuzzer, number: int) -> Outcome:
    """Run one case in this process and print all of it."""
    faulthandler.enable()
    case = fuzzer.case(number)
    print(f"case {number}: {case.kind}, {case.vocabulary!r}", flush=True)
    outcome = judged(case, number)
    print(f"{case.kind}: {case.shown}")
    for name, value in outcome.as_json().items():
        print(f"  {name}: {value}")
    return outcome


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Random constraints that must not bring the process down")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--vocabulary", default="bytes", help="bytes, odd, or the path of a tokenizer.json")
    parser.add_argument("--schemas", default="", help="known schemas, a gzipped file with one a line")
    parser.add_argument("--suite", default="", help="the folder of the JSON Schema Test Suite")
    parser.add_argument("--kinds", default="", help=f"some of {','.join(KINDS)}")
    parser.add_argument("--known-states", action="store_true", help="ask only about states that guides gave out")
    parser.add_argument("--slow", type=float, default=2, help="seconds of work from which on a call is a hang")
    parser.add_argument("--seconds", type=float, default=10, help="of work, after which a case is ended")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--log", default="", help="keep the outcomes here, and go on behind those that are there")
    parser.add_argument("--replay", type=int)
    parser.add_argument("--shrink", type=int)
    parser.add_argument("--summary", nargs="+", default=[], help="logs to sum up")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a case is bad")
    return parser.parse_args(arguments)


def main() -> None:
    """Run cases, one case again, or sum up."""
    arguments = parsed()
    probing.SLOW = arguments.slow
    if arguments.summary:
        print(summary(arguments.summary))
        return
    fuzzer = Fuzzer(arguments)
    if arguments.replay is not None:
        replay(fuzzer, arguments.replay)
        return
    if arguments.shrink is not None:
        fuzzer.warm()
        print(shrink(fuzzer, arguments.shrink, arguments.seconds))
        return
    names = ("seed", "vocabulary", "kinds", "known_states")
    settings: dict[str, Any] = {name: getattr(arguments, name) for name in names}
    log = Log(arguments.log, {**settings, "schemas": len(fuzzer.corpus.schemas)})
    run_all(fuzzer, log, arguments)
    counts: Counter[str] = log.counts()
    print(summary([log.path]))
    if arguments.strict and any(counts[verdict] for verdict in BAD):
        sys.exit(1)


if __name__ == "__main__":
    main()
