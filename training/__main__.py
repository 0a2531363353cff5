"""`python -m trellm.training`: train the small model, look at what it reads."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from random import Random


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m trellm.training", description="The small model: how it was made.")
    commands = parser.add_subparsers(dest="command", required=True)
    _add_train(commands.add_parser("train", help="train a tokenizer and a model"))
    show = commands.add_parser("show", help="print documents of the training text")
    show.add_argument("--documents", type=int, default=5)
    show.add_argument("--seed", type=int, default=1)
    show.add_argument("--held-out", action="store_true", help="of names, values and forms that are held out")
    _add_evaluate(commands.add_parser("evaluate", help="answer tasks that are held out"))
    drafts = commands.add_parser("drafts", help="what a smaller model saves as a draft")
    drafts.add_argument("folder", type=Path, help="of the model")
    drafts.add_argument("draft", type=Path, help="of the smaller model")
    drafts.add_argument("--tasks", type=int, default=60, help="of each kind")
    drafts.add_argument("--save", type=Path, help="CSV to write")
    given = parser.parse_args(arguments)
    {"train": _train, "evaluate": _evaluate, "show": _show, "drafts": _drafts}[given.command](given)


def _add_train(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True, help="folder for the model, the tokenizer and the log")
    parser.add_argument("--checkpoint", type=Path, help="folder to resume from, by default OUT/checkpoint")
    parser.add_argument("--minutes", type=float, default=110.0, help="of training; then it validates and ends")
    parser.add_argument("--steps", type=int, help="as many steps in place of --minutes, which is repeatable")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--vocabulary", type=int, default=2560, help="tokens")
    parser.add_argument("--documents", type=int, default=20_000, help="that the tokenizer is trained on")
    parser.add_argument("--width", type=int, default=192, help="a multiple of 32")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--length", type=int, default=512, help="tokens of a row, or of some twice as many")
    parser.add_argument("--batch", type=int, default=16_384, help="tokens of a step")
    parser.add_argument("--part", type=int, default=8_192, help="tokens that go through the network at once")
    parser.add_argument("--rate", type=float, default=4e-3, help="highest learning rate")
    parser.add_argument("--optimiser", choices=["muon", "adamw"], default="muon", help="of the layers' matrices")
    parser.add_argument("--warmup", type=int, default=100, help="steps")
    parser.add_argument("--decay", type=float, default=0.1, help="of weights")
    parser.add_argument("--given", type=float, default=0.1, help="what a token of a prompt counts")
    parser.add_argument(
        "--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2), help="processes that write text"
    )
    parser.add_argument("--validation", type=int, default=200, help="tasks of each kind")
    parser.add_argument("--compiled", action="store_true", help="compile the network")
    parser.add_argument("--start", type=Path, help="folder of a model to go on with")
    parser.add_argument("--tokenizer", type=Path, help="folder of a model whose tokenizer to take, as a draft's must")
    parser.add_argument(
        "--first-chunk", type=int, default=0, help="where in the text to begin; with --start, elsewhere"
    )


def _train(given: argparse.Namespace) -> None:
    from .loop import Plan, Training

    options = {name: value for name, value in vars(given).items() if name != "command"}
    options["checkpoint"] = given.checkpoint or given.out / "checkpoint"
    Training(Plan(**options)).run()


def _add_evaluate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="of the model")
    parser.add_argument("--tasks", type=int, default=500, help="of each kind")
    parser.add_argument("--kinds", nargs="*", help="of tasks; all by default")
    parser.add_argument("--ways", nargs="*", help="in which answers are found; trellm's and the model's own by default")
    parser.add_argument("--save", type=Path, help="CSV to write")


def _evaluate(given: argparse.Namespace) -> None:
    import torch

    from ..engine import models
    from .evaluation import KINDS, evaluate

    torch.set_num_threads(1)  # so that processor time is that of the work, not of threads that wait for one another
    model = models.transformers(str(given.folder), dtype="float32")
    evaluate(model, given.tasks, given.ways or ("trellm", "no constraint"), given.kinds or KINDS, given.save)


def _drafts(given: argparse.Namespace) -> None:
    import torch

    from ..engine import models
    from .drafting import compare, write

    torch.set_num_threads(1)
    model, draft = (models.transformers(str(folder), dtype="float32") for folder in (given.folder, given.draft))
    rows = compare(model, draft, given.tasks)
    if given.save is not None:
        write(rows, given.save)


def _show(given: argparse.Namespace) -> None:
    from .text.documents import ANSWER, drawn

    random = Random(given.seed)
    for _ in range(given.documents):
        print("".join(f"[[{text}]]" if mark == ANSWER else text for text, mark in drawn(random, given.held_out)))
        print("-" * 80)


if __name__ == "__main__":
    main()
