"""What all benchmarks share: one core, the machine's description, and results as CSV."""

from __future__ import annotations

import csv
import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"


def pin_to_one_core() -> None:
    """Run on one core from now on, with one thread; call it before libraries that start threads are imported."""
    os.environ.update({"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"})
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def processor() -> str:
    """The processor's name, and how many cores the machine has."""
    cores = os.cpu_count()
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            return f"{line.split(':', 1)[1].strip()}, {cores} cores"
    return f"{platform.processor() or platform.machine()}, {cores} cores"


def save(name: str, rows: Sequence[Mapping[str, Any]], packages: Sequence[str], tokenizer: str = "") -> Path:
    """Write rows with the machine and the versions to results/NAME.csv; rows may have different columns."""
    return _write(name, _stamped(rows, packages, tokenizer))


def add(name: str, rows: Sequence[Mapping[str, Any]], packages: Sequence[str], tokenizer: str = "") -> Path:
    """As `save`, behind the rows that are there."""
    with (RESULTS / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        before = list(csv.DictReader(file))
    return _write(name, [*before, *_stamped(rows, packages, tokenizer)])


def _stamped(rows: Sequence[Mapping[str, Any]], packages: Sequence[str], tokenizer: str) -> list[dict[str, Any]]:
    stamp = {
        "machine": processor(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "versions": "; ".join(f"{package} {version(package)}" for package in packages),
    }
    if tokenizer:
        stamp["tokenizer"] = Path(tokenizer).name
    columns = list(dict.fromkeys(column for row in rows for column in row))
    return [{**{column: row.get(column, "") for column in columns}, **stamp} for row in rows]


def _write(name: str, rows: Sequence[Mapping[str, Any]]) -> Path:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(dict.fromkeys(column for row in rows for column in row)), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    return path


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows as a table."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    cells = [columns, *([_shown(row.get(column)) for column in columns] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    for line in cells:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if value < 1000 else f"{value:,.0f}"
    return "" if value is None else str(value)
