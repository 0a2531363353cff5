"""Faults injected into trellm: after an interrupt or refused memory, everything must answer as if nothing had been.

    python benchmarks/fuzz/injection.py --places 20000 --seed 0 --log faults.jsonl [--only NAME]
    python benchmarks/fuzz/injection.py --replay NUMBER
    python benchmarks/fuzz/injection.py --summary FILE

Each injection runs in a forked process: the scenario's act is broken off by KeyboardInterrupt or MemoryError at a place
of Python, or by MemoryError where an array is made. Then, from another thread, the guide that was at work, a second one
of the same constraint and one of another are compared with answers recorded before; a guide may instead refuse with a
TrellmError, but only itself. The garbage collector must be running, and no lock held.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import sys
import tempfile
import threading
import traceback
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from interrupting import Interrupter
from pool import answer_of
from scenarios import Answers, Scenario, differences, recorded, scenarios

MODES: list[tuple[str, type[BaseException], bool]] = [
    ("interrupt", KeyboardInterrupt, False),
    ("refused memory", MemoryError, False),
    ("refused array", MemoryError, True),
]
GOOD = ("fine", "says so", "not reached")
SECONDS = 20


def counted(scenario: Scenario, arrays: bool) -> int:
    """How many places a scenario has; found out in a process of its own."""

    def count() -> int:
        prepared = scenario.prepare()
        with Interrupter(None, KeyboardInterrupt, arrays) as counter:
            scenario.act(prepared)
        return counter.count

    return answer_of(count).value or 0


class Injections:
    """Numbered injections into scenarios."""

    def __init__(self, seed: int, only: str = "") -> None:
        from trellm import Vocabulary
        from trellm.guides import RegexGuide

        self.seed = seed
        self.scenarios = [each for each in scenarios() if only in each.name]
        self.sizes = {
            (index, arrays): counted(each, arrays)
            for index, each in enumerate(self.scenarios)
            for arrays in (False, True)
        }
        self._other = RegexGuide("[a-z]+[0-9]{1,3}", Vocabulary.from_bytes())
        self._said: Answers = recorded(self._other)

    def chosen(self, number: int) -> tuple[Scenario, str, type[BaseException], bool, int]:
        """The scenario, the mode and the place of a number."""
        random = Random(f"{self.seed}/{number}")
        index = number % len(self.scenarios)
        mode, kind, arrays = random.choices(MODES, [3, 1, 1])[0]
        size = self.sizes[index, arrays]
        # Half of them among the first places, of which there are many kinds, and half anywhere
        place = (
            random.randrange(max(1, size))
            if random.random() < 0.5
            else min(int(random.expovariate(5 / max(size, 1))), max(size - 1, 0))
        )
        return self.scenarios[index], mode, kind, arrays, place

    def run(self, number: int) -> dict[str, Any]:
        """Inject, and look at what is left."""
        scenario, mode, kind, arrays, place = self.chosen(number)
        prepared = scenario.prepare()
        interrupter = Interrupter(place, kind, arrays)
        left: list[Any] = []
        found = {"number": number, "scenario": scenario.name, "mode": mode}
        try:
            with interrupter:
                left.append(scenario.act(prepared))
            raised = ""
        except BaseException as error:
            raised = type(error).__name__
            if not isinstance(error, kind) and not _is_trellms(error):
                text = "".join(traceback.format_exception(error)[-3:])
                return {**found, "verdict": "other exception", "where": interrupter.where, "message": text[-600:]}
        found["where"] = interrupter.where
        if not interrupter.where:
            return {**found, "verdict": "not reached"}
        if not raised and kind is KeyboardInterrupt:
            return {**found, "verdict": "swallowed"}
        return {**found, **self._looked(scenario, prepared, left)}

    def _looked(self, scenario: Scenario, prepared: Any, left: list[Any]) -> dict[str, Any]:
        """Compare from another thread, which finds locks that are held."""
        answer: dict[str, Any] = {}

        def compare() -> None:
            try:
                answer.update(self._compared(scenario, prepared, left))
            except BaseException as error:
                text = "".join(traceback.format_exception(error)[-3:])
                answer.update(verdict="broken", message=f"{type(error).__name__}: {text[-600:]}")

        thread = threading.Thread(target=compare, daemon=True)
        thread.start()
        thread.join(SECONDS)
        if thread.is_alive():
            with tempfile.TemporaryFile() as file:
                faulthandler.dump_traceback(file, all_threads=True)
                file.seek(0)
                return {"verdict": "lock held, or a hang", "message": file.read().decode()[:800]}
        return answer

    def _compared(self, scenario: Scenario, prepared: Any, left: list[Any]) -> dict[str, Any]:
        from trellm.errors import TrellmError

        if scenario.check is not None:
            difference = scenario.check(prepared)
            return {"verdict": "wrong", "message": difference} if difference else {"verdict": "fine"}
        says_so = ""
        for guide in scenario.guides(prepared):
            try:
                difference = differences(guide, scenario.answers)
            except TrellmError as error:
                difference, says_so = "", f"{type(error).__name__}: {error}"
            if difference:
                return {"verdict": "wrong", "message": f"the guide: {difference}"}
        for guide, answers, whose in (
            (scenario.make("same"), scenario.answers, "a second guide"),
            (self._other, self._said, "a guide of another constraint"),
        ):
            difference = differences(guide, answers)
            if difference:
                return {"verdict": "wrong", "message": f"{whose}: {difference}"}
        return {"verdict": "says so", "message": says_so[:200]} if says_so else {"verdict": "fine"}


def _is_trellms(error: BaseException) -> bool:
    from trellm.errors import TrellmError

    return isinstance(error, TrellmError)


def forked(injections: Injections, number: int) -> dict[str, Any]:
    """Run an injection in a process of its own."""
    found = answer_of(lambda: injections.run(number), 3 * SECONDS)
    if found.value is not None:
        return found.value
    scenario, mode, _, _, place = injections.chosen(number)
    verdict = f"crash ({found.ended})"
    return {"number": number, "scenario": scenario.name, "mode": mode, "where": f"place {place}", "verdict": verdict}


def run_all(injections: Injections, places: int, first: int, log: str) -> Counter[str]:
    """Run all injections that the log does not have; how many had each verdict."""
    done = {line["number"] for line in lines_of(log)}
    counts: Counter[str] = Counter(line["verdict"] for line in lines_of(log))
    for number in range(first, first + places):
        if number in done:
            continue
        found = {"seed": injections.seed, **forked(injections, number)}
        counts[found["verdict"]] += 1
        if found["verdict"] not in GOOD:
            what = f"{found['scenario']}, {found['mode']} at {found['where']}"
            print(f"{number}: {found['verdict']}: {what}: {found.get('message', '')}", flush=True)
        if log:
            with open(log, "a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")
    return counts


def lines_of(log: str) -> list[dict[str, Any]]:
    """The lines of a log."""
    if not log or not Path(log).exists():
        return []
    return [json.loads(line) for line in Path(log).read_text(encoding="utf-8").splitlines() if line.endswith("}")]


def summary(log: str) -> str:
    """Tables in Markdown: verdicts by kind of act, and the places of the bad ones."""
    lines = lines_of(log)
    acts = sorted({line["scenario"].split(":")[0] for line in lines})
    verdicts = sorted({line["verdict"] for line in lines}, key=lambda verdict: (verdict not in GOOD, verdict))
    rows = [["act", "places", *verdicts], ["---"] * (2 + len(verdicts))]
    for act in acts:
        counts = Counter(line["verdict"] for line in lines if line["scenario"].split(":")[0] == act)
        rows.append([act, str(counts.total()), *(str(counts[verdict]) for verdict in verdicts)])
    bad = Counter((line["verdict"], line["mode"], line["where"]) for line in lines if line["verdict"] not in GOOD)
    shown = [
        ["verdict", "mode", "where", "times"],
        ["---"] * 4,
        *([*key, str(count)] for key, count in bad.most_common(40)),
    ]
    return "\n\n".join(
        "\n".join("| " + " | ".join(row) + " |" for row in table) for table in ([rows, shown] if bad else [rows])
    )


def main() -> None:
    """Inject faults, one again, or sum up."""
    parser = argparse.ArgumentParser(description="Interrupts and refused memory at random places")
    parser.add_argument("--places", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="only scenarios with this in their name")
    parser.add_argument("--log", default="", help="keep the outcomes here, and leave out those that are there")
    parser.add_argument("--replay", type=int)
    parser.add_argument("--summary", default="", help="a log to sum up")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if one is bad")
    arguments = parser.parse_args()
    if arguments.summary:
        print(summary(arguments.summary))
        return
    import torch
    from trellm.kernels.jit.compiling import keep_quiet

    torch.set_num_threads(1)
    keep_quiet()
    injections = Injections(arguments.seed, arguments.only)
    if arguments.replay is not None:
        faulthandler.enable()
        print(json.dumps(injections.run(arguments.replay), indent=1))
        return
    counts = run_all(injections, arguments.places, arguments.first, arguments.log)
    print(dict(counts))
    if arguments.strict and any(counts[verdict] for verdict in counts if verdict not in GOOD):
        sys.exit(1)


if __name__ == "__main__":
    main()
