"""The record: docs/benchmarks.md, made of the committed results, and of published figures with their source.

    python -m benchmarks.record

record.toml says which tables there are: of which file of results/, by which command, which rows and columns. Each table
ends with the machine, the versions and the commit of its file. Where a table compares engines, the rows in which trellm
is behind are listed at the end of the page, whichever they are.
"""

from __future__ import annotations

import argparse
import csv
import re
import subprocess
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PAGE = HERE.parent / "docs" / "benchmarks.md"
COMMIT = r" at [0-9a-f]{7,}\b"
_NUMBER = r"-?\d+(\.\d+)?(e-?\d+)?"

Row = dict[str, str]


def page() -> str:
    """The page. Raises KeyError for a table that asks for a column which its file does not have."""
    declared = tomllib.loads((HERE / "record.toml").read_text(encoding="utf-8"))
    behind: list[str] = []
    parts = [f"# {declared['title']}", declared["text"].strip()]
    for section in declared["section"]:
        parts += [f"## {section['title']}", section.get("text", "").strip()]
        for table in section.get("table", ()):
            parts += _measured(table, behind) if "file" in table else _published(table)
    parts += ["## Where trellm is behind", declared["behind"].strip(), "\n".join(behind)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _measured(table: dict[str, Any], behind: list[str]) -> Iterator[str]:
    rows = _rows(table["file"])
    chosen = [row for row in rows if all(row[name] in values for name, values in table.get("where", {}).items())]
    on = "machine" if "machine" in rows[0] else "device"
    cells = _pivoted(chosen, table) if "pivot" in table else _selected(chosen, table)
    yield f"### {table['title']}"
    yield table.get("text", "").strip()
    yield _markdown(cells)
    machines, versions = (" and ".join(dict.fromkeys(row[name] for row in chosen)) for name in (on, "versions"))
    yield (
        f"`{table['command']}`; {machines}; {versions}; "
        f"[results/{table['file']}.csv](../benchmarks/results/{table['file']}.csv){_commit(table['file'])}."
    )
    if "behind" in table:
        behind += _behind(cells, table)


def _rows(name: str) -> list[Row]:
    with (RESULTS / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _commit(name: str) -> str:
    """The last commit that changed a file of results; nothing outside a checkout."""
    command = ["git", "log", "-1", "--format=%h", "--", str(RESULTS / f"{name}.csv")]
    found = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False).stdout.strip()
    return f" at {found}" if found else ""


def _selected(rows: Iterable[Row], table: dict[str, Any]) -> list[Row]:
    """Some columns under other names, those first by which rows are told apart."""
    columns = {name: name for name in table["rows"]} | table["columns"]
    return [{shown: _shown(row[column]) for shown, column in columns.items()} for row in rows]


def _pivoted(rows: Iterable[Row], table: dict[str, Any]) -> list[Row]:
    """One row for all engines, with a column for each of them and each measure; an engine may have taken nothing."""
    by, found = table["pivot"], dict[tuple[str, ...], Row]()
    for row in rows:
        key = tuple(row[name] for name in table["rows"])
        cells = found.setdefault(key, dict(zip(table["rows"], key, strict=True)))
        if row.get(table.get("of", ""), "") != "0":
            cells |= {f"{row[by]}, {shown}": _shown(row[column]) for shown, column in table["columns"].items()}
    return list(found.values())


def _shown(text: str) -> str:
    """A number with three digits, and with commas where it is large; other texts as they are."""
    if not re.fullmatch(_NUMBER, text):
        return text
    value = float(text)
    if value == int(value) and "." not in text:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _markdown(rows: list[Row]) -> str:
    columns = list(dict.fromkeys(column for row in rows for column in row))
    lines = [columns, ["---"] * len(columns), *([row.get(column, "") for column in columns] for row in rows)]
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)


def _behind(rows: list[Row], table: dict[str, Any]) -> Iterator[str]:
    """A line for each comparison with the rows in which another engine is better: of two columns, or with a number."""
    for ours, theirs, better in table["behind"]:
        lost: list[str] = []
        for row in rows:
            one, other = _number(row.get(ours, "")), _number(row.get(theirs, theirs))
            if one is not None and other is not None and ((one > other) if better == "less" else (one < other)):
                against = f" against {row[theirs]}" if theirs in row else ""
                lost.append(f"{', '.join(row[each] for each in table['rows'])} ({row[ours]}{against})")
        if lost:
            pair = f"{ours}, and {theirs}" if theirs in rows[0] else f"{ours} below {theirs}"
            yield f"- {table['title']}; {pair}: {'; '.join(lost)}"


def _number(text: str) -> float | None:
    text = text.replace(",", "")
    return float(text) if re.fullmatch(_NUMBER, text) else None


def _published(table: dict[str, Any]) -> Iterator[str]:
    """Figures that were not measured with this repository, as they stand in the declaration."""
    yield f"### {table['title']}"
    yield table.get("text", "").strip()
    yield _markdown([dict(zip(table["columns"], row, strict=True)) for row in table["cells"]])
    yield table["source"].strip()


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    PAGE.write_text(page(), encoding="utf-8")
