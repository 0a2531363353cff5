"""What a smaller model saves as a draft: forward passes and time on tasks that are held out, one prompt at a time."""

from __future__ import annotations

import csv
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .evaluation import MAX_TOKENS, cases, generator_of

_KINDS = ("record", "record, unseen fields", "quotation", "choice", "normal form", "tool call", "arithmetic")
_WAYS = ("no guesses", "guesses", "draft")


def compare(model: Any, draft: Any, count: int, kinds: Sequence[str] = _KINDS) -> list[dict[str, Any]]:
    """A row for each kind of task: tokens, passes of the model, and seconds of processor time of each way, in turn.

    no guesses: `draft=False`; guesses: of the text and its constraint; draft: those of the smaller model besides
    same: of how many prompts all three wrote the same tokens
    """
    chosen: dict[str, Any] = {"no guesses": False, "guesses": True, "draft": draft}
    rows: list[dict[str, Any]] = []
    for kind in kinds:
        row: dict[str, Any] = {"task": kind, "prompts": count, "tokens": 0, "same": 0}
        row |= {f"{name} {what}": 0 for name in _WAYS for what in ("passes", "seconds")}
        for number, case in enumerate(cases(kind, count + 3)):
            is_warm = number >= 3  # the first ones teach the engine what a pass takes
            generator = generator_of(model, case.task)
            written: dict[str, Any] = {}
            for name in (*_WAYS[number % 3 :], *_WAYS[: number % 3]):
                began = time.process_time()
                written[name] = generator.run(case.prompt, max_tokens=MAX_TOKENS, draft=chosen[name])
                if is_warm:
                    row[f"{name} seconds"] += time.process_time() - began
                    row[f"{name} passes"] += written[name].steps
            if is_warm:
                row["tokens"] += len(written["draft"].token_ids)
                row["same"] += len({written[name].token_ids for name in _WAYS}) == 1
        print(
            "  ".join(f"{value:.2f}" if isinstance(value, float) else str(value) for value in row.values()), flush=True
        )
        rows.append(row)
    return rows


def write(rows: Sequence[dict[str, Any]], file: Path) -> None:
    """Rows as CSV."""
    with file.open("w", encoding="utf-8", newline="") as opened:
        table = csv.DictWriter(opened, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
