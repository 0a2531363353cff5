"""Write the table of docs/supported-models.md from results/architectures.csv: `python docs/architectures.py`."""

import csv
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "benchmarks" / "results" / "architectures.csv"
PAGE = HERE / "supported-models.md"
BEGIN = "<!-- made by docs/architectures.py -->"
END = "<!-- end -->"
HEAD = [
    "| Architecture | Greedy | Beams | A text's past is kept in | One text | Eight texts |",
    "| --- | --- | --- | --- | --- | --- |",
]


def table() -> str:
    """The table, one line for each architecture, and what is refused under it."""
    with RESULTS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    lines = [
        f"| {row['architecture']} | {row['greedy']} | {row['beams']} | {row['kept']} | {times(row['one'])} | "
        f"{times(row['eight'])} |"
        for row in rows
        if row["kept"] and row["kept"] != "none"
    ]
    without = [row for row in rows if row["kept"] == "none"]
    refused = [row for row in rows if not row["kept"]]
    stamp = rows[0]
    parts = [
        f"{len(rows)} architectures, transformers {version(stamp['versions'], 'transformers')}, "
        f"{stamp['machine'].split(',')[0]}; {len(lines)} run from memory of their past:",
        "\n".join([*HEAD, *lines]),
        "Refused with a hint to `cache=False`, with which they run from the whole text at every step:",
        "\n".join(
            [
                "| Architecture | Greedy | Beams | Why |",
                "| --- | --- | --- | --- |",
                *(f"| {row['architecture']} | {row['greedy']} | {row['beams']} | {why(row)} |" for row in without),
            ]
        ),
        "Refused:",
        "\n".join(
            ["| Architecture | Why |", "| --- | --- |", *(f"| {row['architecture']} | {why(row)} |" for row in refused)]
        ),
    ]
    return "\n\n".join(parts)


def times(ratio: str) -> str:
    """A ratio as it is read: 1.2 x."""
    return f"{float(ratio):.1f} x" if ratio else ""


def why(row: dict[str, str]) -> str:
    """The error, as far as a cell of a table goes."""
    said = row["note"].removeprefix("OptionError: ").replace("|", "/").replace("<", "&lt;")
    said = said.partition("; pass cache=False")[0].partition("; see whether")[0]
    return said if len(said) <= 200 else f"{said[:200]}..."


def version(versions: str, package: str) -> str:
    """One of "a 1; b 2"."""
    return dict(each.rsplit(" ", 1) for each in versions.split("; "))[package]


def page() -> str:
    """The page with the table in it."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
