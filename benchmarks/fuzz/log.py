"""What became of all cases: a file with a line for each chunk and each bad case, and its summary."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verdicts import BAD, FINE, Outcome


class Log:
    """Outcomes, kept in a file that several processes append to. Chunks of other settings are not counted as done."""

    def __init__(self, path: str, settings: dict[str, Any]) -> None:
        if not path:
            handle, path = tempfile.mkstemp(suffix=".jsonl")
            os.close(handle)
        self.path = path
        self._settings = settings
        self.done = {line["chunk"] for line in _lines(path) if line.get("settings") == settings}

    def add(self, chunk: range, outcomes: Sequence[Outcome], seconds: float) -> None:
        """Write a chunk down at once, its bad cases first."""
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        errors: Counter[str] = Counter()
        for outcome in outcomes:
            counts[outcome.kind][outcome.verdict] += 1
            if outcome.verdict in FINE and outcome.error:
                errors[outcome.error] += 1
        lines: list[dict[str, Any]] = [outcome.as_json() for outcome in outcomes if outcome.verdict in BAD]
        slowest = max(outcomes, key=lambda outcome: outcome.seconds)
        lines.append(
            {
                "chunk": chunk.start, "cases": len(chunk), "counts": counts, "errors": errors,
                "seconds": round(seconds, 2),
                "slowest": {"case": slowest.case, "call": slowest.slowest, "seconds": slowest.seconds},
                "settings": self._settings,
            }
        )  # fmt: skip
        with open(self.path, "a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write("".join(json.dumps(line) + "\n" for line in lines))

    def counts(self) -> Counter[str]:
        """How many cases had each verdict."""
        found: Counter[str] = Counter()
        for line in _lines(self.path):
            for counts in line.get("counts", {}).values():
                found.update(counts)
        return found


def summary(paths: Sequence[str]) -> str:
    """Tables in Markdown: verdicts by vocabulary and kind, errors by class, and the bad ones by what they are."""
    chunks = [line for path in paths for line in _lines(path) if "chunk" in line]
    bad = [line for path in paths for line in _lines(path) if "case" in line]
    table: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    errors: Counter[str] = Counter()
    for chunk in chunks:
        for kind, counts in chunk["counts"].items():
            table[Path(chunk["settings"]["vocabulary"]).parent.name or chunk["settings"]["vocabulary"], kind].update(
                counts
            )
        errors.update(chunk["errors"])
    verdicts = [*FINE, *BAD]
    rows = [["vocabulary", "kind", "cases", *verdicts]]
    for (vocabulary, kind), counts in sorted(table.items()):
        rows.append([vocabulary, kind, f"{counts.total():,}", *(f"{counts[verdict]:,}" for verdict in verdicts)])
    total: Counter[str] = sum(table.values(), Counter())
    rows.append(["all", "", f"{total.total():,}", *(f"{total[verdict]:,}" for verdict in verdicts)])
    seconds = sum(chunk["seconds"] for chunk in chunks)
    parts = [_markdown(rows), f"{total.total():,} cases in {seconds:,.0f} s."]
    parts.append(
        _markdown([["refused with", "cases"], *([name, f"{count:,}"] for name, count in errors.most_common())])
    )
    if chunks:
        slow = max((chunk["slowest"] for chunk in chunks), key=lambda slow: slow["seconds"])
        parts.append(
            f"The slowest call: {slow['seconds']} s in {slow['call'] or 'a case that was ended'} (case {slow['case']})."
        )
    if bad:
        alike: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
        for line in bad:
            place = (
                line.get("where", "") if line["verdict"] not in ("wrong", "hang", "memory") else line.get("slowest", "")
            )
            alike[line["verdict"], line["kind"], line.get("error", ""), place[:160]].append(line)
        shown = [["verdict", "kind", "error", "where", "cases", "such as"]]
        for key, lines in sorted(alike.items(), key=lambda item: -len(item[1])):
            shown.append([*key, f"{len(lines):,}", ", ".join(str(line["case"]) for line in lines[:3])])
        parts.append(_markdown(shown))
    return "\n\n".join(parts)


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    head, *body = rows
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines
    )


def _lines(path: str) -> list[dict[str, Any]]:
    """The lines of a log; the last may have been cut off."""
    if not Path(path).exists():
        return []
    found: list[dict[str, Any]] = []
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        if line.endswith("}"):
            found.append(json.loads(line))
    return found
