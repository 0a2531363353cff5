"""Right answers: what constraints do to those of a real model, beside the model left to itself, and other engines.

    python benchmarks/answers.py [--model MODEL] [--half choose|judge|all] [--tasks 100]
                                 [--kinds records ...] [--ways free default ...] [--peers llama.cpp ...]
                                 [--keep FILE] [--save]

MODEL is "smollm2", which `trellm pull smollm2` fetches, another one that was pulled, "small" or a GGUF file. There are
eight kinds of tasks in plain English, 200 of each (questions/tasks.toml), the even ones for choosing defaults and the
odd ones for judging them. Every answer is greedy. An answer is right or not, and of a record as many of its fields are;
`right` is the mean in percent, `low` and `high` its interval of 95 percent, `default_more` by how much the default is
better on the same tasks, with its own interval, all from 2,000 bootstrap samples. tokens and seconds are medians of a
task, on one core.

free      no constraint, and the best parser that could be written (questions/scoring.py)
default   the generator that a user takes first, without options
others    options of it, see questions/ways.py; engines, see questions/peers.py

--calibration is of kinds whose answers are JSON or choices: what `fields=True` says of values, and how often these are
right. --keep writes every answer as a line of JSON, and goes on from those that are there.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from recording import add, pin_to_one_core, save, show

PACKAGES = ("trellm", "torch", "numba", "transformers")
SAMPLES = 2000


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The middle 95 percent of the means of samples with as many values."""
    import numpy as np

    random = np.random.default_rng(0)
    drawn = np.asarray(values)[random.integers(0, len(values), (SAMPLES, len(values)))].mean(1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(low), float(high)


def row_of(kind: str, way: str, answers: Sequence[dict[str, Any]], ours: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One line of the table. ours: the answers by default to the same tasks, if they are there"""
    scores = [each["score"] for each in answers]
    low, high = interval(scores)
    row = {"kind": kind, "way": way, "tasks": len(scores), "right": 100 * sum(scores) / len(scores)}
    row |= {"low": 100 * low, "high": 100 * high}
    others = {each["number"]: each["score"] for each in ours}
    pairs = [others[each["number"]] - each["score"] for each in answers if each["number"] in others]
    if pairs and way != "default":
        low, high = interval(pairs)
        row |= {"default_more": 100 * sum(pairs) / len(pairs), "more_low": 100 * low, "more_high": 100 * high}
    row |= {
        "tokens": median(each["tokens"] for each in answers),
        "seconds": median(each["seconds"] for each in answers),
    }
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in row.items()}


def answered(given: argparse.Namespace, known: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answers of all ways asked for; those that are known are taken as they are."""
    from questions.peers import PEERS
    from questions.scoring import score
    from questions.tasks import tasks
    from questions.ways import ways_of
    from tqdm import tqdm

    done = {(each["kind"], each["way"], each["number"]) for each in known}
    model: Any = None
    for kind in given.kinds:
        ours = ways_of(kind)
        chosen = {name: ours[name] for name in given.ways or ours if name in ours}
        several = tasks(kind, given.half, given.tasks)
        for way in [*chosen, *given.peers]:
            left = [task for task in several if (kind, way, task.number) not in done]
            if not left:
                continue
            if way in chosen and model is None:
                model = loaded(given.model)
            answer = chosen.get(way)
            peer = None if answer is not None else PEERS[way](given.model)
            for task in tqdm(left, desc=f"{kind}, {way}", leave=False):
                found = answer(model, task) if answer is not None else peer(task)  # type: ignore[misc]
                if found is None:  # the engine has no way for this kind
                    break
                line = {"kind": kind, "way": way, "number": task.number, "score": score(task, found.value)}
                line |= asdict(found) | {"gold": task.gold, "prompt": task.prompt}
                known.append(line)
                if given.keep is not None:
                    with given.keep.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
    return known


def calibration(given: argparse.Namespace) -> list[dict[str, Any]]:
    """The share of right values whose probabilities lie within a tenth, in percent; exact ones apart from others."""
    from questions.tasks import tasks
    from questions.ways import probabilities
    from tqdm import tqdm

    model, rows = loaded(given.model), list[dict[str, Any]]()
    for kind in given.kinds:
        several = tqdm(tasks(kind, given.half, given.tasks), desc=kind, leave=False)
        found = [each for task in several for each in probabilities(model, task)]
        for exact in (True, False):
            for tenth in range(10):
                within = [each for each in found if each[1] == exact and min(9, int(10 * each[0])) == tenth]
                if within:
                    stated, right = (100 * sum(each[at] for each in within) / len(within) for at in (0, 2))
                    row = {"kind": kind, "exact": exact, "from": tenth / 10, "values": len(within)}
                    rows.append(row | {"stated": round(stated, 1), "right": round(right, 1)})
    return rows


def loaded(name: str) -> Any:
    """A model that was pulled, the small one, or that of a GGUF file."""
    from trellm import models

    if name == "small":
        return models.small()
    return models.gguf(name) if name.endswith(".gguf") else models.pulled(name)


def main() -> None:
    """Answer, count and print."""
    pin_to_one_core()
    from questions.peers import PEERS
    from questions.tasks import KINDS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--half", choices=["choose", "judge", "all"], default="choose")
    parser.add_argument("--tasks", type=int, default=100, help="of each kind, of the half")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=KINDS)
    parser.add_argument("--ways", nargs="*", help="of trellm; all by default")
    parser.add_argument("--peers", nargs="*", default=[], choices=list(PEERS))
    parser.add_argument("--keep", type=Path, help="file of answers, a line of JSON each")
    parser.add_argument("--save", action="store_true", help="add to results/answers.csv")
    parser.add_argument("--calibration", action="store_true", help="how far the probabilities of `fields=True` hold")
    given = parser.parse_args()
    if given.calibration:
        rows = calibration(given)
        show(rows)
        if given.save:
            save("answers_calibration", rows, PACKAGES)
        return
    known: list[dict[str, Any]] = []
    if given.keep is not None and given.keep.exists():
        known = [json.loads(line) for line in given.keep.read_text(encoding="utf-8").splitlines()]
    answers = answered(given, known)
    rows: list[dict[str, Any]] = []
    for kind in given.kinds:
        of_kind = [each for each in answers if each["kind"] == kind]
        ways = list(dict.fromkeys(each["way"] for each in of_kind))
        by_way = {way: [each for each in of_kind if each["way"] == way] for way in ways}
        rows += [row_of(kind, way, by_way[way], by_way.get("default", [])) for way in ways]
    for row in rows:
        row |= {"model": Path(given.model).name, "half": given.half}
    show(rows)
    if given.save:
        kept = Path(__file__).parent / "results" / "answers.csv"
        (add if kept.exists() else save)("answers", rows, PACKAGES)


if __name__ == "__main__":
    main()
