"""Steps as a table: plain text with aligned columns, or in colours by the package rich."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...guides.explain import visible
from ..search.trace import aligned
from .step import Step

SHOWN = (
    *("position", "token", "probability", "raw_probability", "rank"),
    *("leading_token", "leading_probability", "allowed", "feasible_mass", "expected"),
)
WIDEST = 44
_TEXTS = ("token", "leading_token", "expected")
_SPECIAL: dict[str, Callable[[Step], str]] = {
    "token": lambda step: step.name,
    "leading_token": lambda step: step.leading_name,
}


def plain(steps: Sequence[Step], columns: Sequence[str]) -> str:
    """Aligned columns, texts to the left and numbers to the right; spaces in tokens are shown as ␣."""
    rows = [list(columns), *([cell(step, column) for column in columns] for step in steps)]
    return aligned(rows, [column in _TEXTS for column in columns])


def rich_table(steps: Sequence[Step], caption: str) -> Any:
    """A table of the package rich, each row tinted by its feasible mass."""
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE, caption=Text(caption), caption_justify="left")
    for column in SHOWN:
        table.add_column(column.replace("_", " "), justify="left" if column in _TEXTS else "right")
    for step in steps:
        shade = "red" if step.feasible_mass < 0.1 else "yellow" if step.feasible_mass < 0.5 else ""
        table.add_row(*(Text(cell(step, column)) for column in SHOWN), style=shade)
    return table


def cell(step: Step, column: str) -> str:
    """Text of a column for a step."""
    if column in _SPECIAL:
        return visible(_SPECIAL[column](step)).replace(" ", "␣")
    value: Any = getattr(step, column)
    if isinstance(value, float):
        return probability(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = visible(str(value))
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"


def probability(value: float) -> str:
    """Four places, or a power of ten where they would not show it."""
    return f"{value:.4f}" if value >= 0.001 or value == 0 else f"{value:.0e}"
