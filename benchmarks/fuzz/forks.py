"""Forks while other threads work: does every child get its masks?

    python benchmarks/fuzz/forks.py [--children 50] [--seconds 10]

Four threads make guides and ask them without a pause; meanwhile the main thread forks. Each child asks a guide that the
threads use, makes one that they make, and makes a new one. A child that does not finish in time waits for a lock that
no thread of its own holds.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any


def acts() -> list[Callable[[int], Any]]:
    """What the threads do, and each child in turn, given a number that makes it new."""
    from trellm import Vocabulary, generate, models
    from trellm.guides import AlignedGuide, CFGGuide, FreeGuide, GoalGuide, JSONGuide, RegexGuide, SubstringGuide
    from trellm.guides.laws import walk

    vocabulary = Vocabulary.from_bytes()
    schema = {"properties": {"a": {"type": "integer"}, "b": {"type": "string", "maxLength": 5}}, "required": ["a"]}
    shared = [
        RegexGuide("[a-z]{2,90}([0-9]{3}|é)*", vocabulary),
        JSONGuide(schema, vocabulary),
        SubstringGuide("the cat sat on the mat " * 20, vocabulary),
        GoalGuide(FreeGuide(vocabulary), ["ab", "cd"]),
    ]

    def ask(guide: Any, number: int) -> None:
        random = Random(number)
        for state, _ in walk(guide, random, 12):
            guide.distance(state)
            guide.mask_within(state, guide.distance(state) + 2)

    model = models.from_function(lambda ids: [0.0] * vocabulary.size, vocabulary)
    return [
        *(lambda number, guide=guide: ask(guide, number) for guide in shared),
        lambda number: ask(RegexGuide(f"[ab]{{1,{number % 50 + 1}}}x", vocabulary), number),
        lambda number: ask(JSONGuide({**schema, "title": str(number % 300)}, vocabulary), number),
        lambda number: ask(CFGGuide('start: "a" start "b" | "c"', vocabulary), number),
        lambda number: ask(AlignedGuide(shared[0], b"ab"), number),
        lambda number: generate.regex(model, "[ab]{1,3}")("x"),
    ]


def run(children: int, seconds: float) -> Counter[str]:
    """Fork so many children; how they went."""
    found = acts()
    for number, act in enumerate(found):
        act(number)
    stop = threading.Event()
    trouble: list[str] = []

    def work(index: int) -> None:
        random = Random(index)
        try:
            while not stop.is_set():
                random.choice(found)(random.randrange(10**6))
        except BaseException:
            trouble.append(traceback.format_exc())

    threads = [threading.Thread(target=work, args=(index,), daemon=True) for index in range(4)]
    for thread in threads:
        thread.start()
    counts: Counter[str] = Counter()
    random = Random(0)
    for child in range(children):
        time.sleep(random.uniform(0, 0.05))
        counts[_child(found, child, seconds)] += 1
    stop.set()
    for thread in threads:
        thread.join(seconds)
    if trouble:
        print(trouble[0])
        counts["a thread failed"] += len(trouble)
    return counts


def _child(found: list[Callable[[int], Any]], child: int, seconds: float) -> str:
    with tempfile.TemporaryFile() as stack:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                faulthandler.register(signal.SIGUSR1, stack, all_threads=False)
                for offset in range(len(found)):
                    found[(child + offset) % len(found)](10**6 + child)
                code = 0
            except BaseException:
                faulthandler.dump_traceback(stack)
                traceback.print_exc()
            finally:
                os._exit(code)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return "fine" if status == 0 else f"ended with {status}"
            time.sleep(0.01)
        os.kill(pid, signal.SIGUSR1)
        time.sleep(0.3)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        stack.seek(0)
        lines = [line.strip() for line in stack.read().decode(errors="replace").splitlines() if "File" in line]
        print(f"child {child} waits: {' < '.join(lines[:4])}", flush=True)
        return "waits"


def main() -> None:
    """Fork."""
    parser = argparse.ArgumentParser(description="Forks while other threads use guides")
    parser.add_argument("--children", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=10, help="that each child has")
    arguments = parser.parse_args()
    import torch
    from trellm.kernels.jit.compiling import keep_quiet

    torch.set_num_threads(1)
    keep_quiet()
    counts = run(arguments.children, arguments.seconds)
    print(dict(counts))
    if set(counts) != {"fine"}:
        sys.exit(1)


if __name__ == "__main__":
    main()
