"""Steps as a text table and as an HTML page."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from ...guides.explain import visible
from ..search import aligned
from .hints import Hint
from .step import COLUMNS, Step

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
    """Return aligned columns, texts to the left and numbers to the right. Spaces in tokens are shown as ␣."""
    rows = [list(columns), *([cell(step, column) for column in columns] for step in steps)]
    return aligned(rows, [column in _TEXTS for column in columns])


def rich_table(steps: Sequence[Step], caption: str) -> Any:
    """Return a table of the package rich, with rows tinted by feasible mass."""
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
    """Return the text of a column for a step."""
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
    """Format with four decimal places, or as a power of ten if these are not enough."""
    return f"{value:.4f}" if value >= 0.001 or value == 0 else f"{value:.0e}"


# Mass of the full tint. The tint grows with the logarithm.
DARKEST = 1e-6

# A tooltip is the attribute data-tip, shown by the style sheet: text of a model never becomes markup or script.
# It stands below its line, as wide as the text, so that no edge cuts it off.
# A notebook may be dark on a light system. Elements that cover others set both Canvas and CanvasText, all others
# neither.
STYLE = """\
.trellm { font: 14px/1.5 system-ui, sans-serif; }
.trellm .text { position: relative; white-space: pre-wrap; overflow-wrap: anywhere;
  font: 15px/1.9 ui-monospace, monospace; margin: 0 0 1em; padding: .5em; border: 1px solid #8886; border-radius: 4px; }
.trellm .text span { border-radius: 3px; box-shadow: inset 0 0 0 1px #8883; }
.trellm .text span.end { font-style: italic; }
.trellm .text span:hover, .trellm .text span:focus { outline: 2px solid #36c; }
.trellm .text span:hover::after, .trellm .text span:focus::after { content: attr(data-tip); position: absolute;
  left: 0; right: 0; margin-top: 1.8em; z-index: 1; pointer-events: none; white-space: pre-wrap; padding: .5em;
  border-radius: 4px;
  font: 13px/1.5 ui-monospace, monospace; color: CanvasText; background: Canvas; border: 1px solid #36c; }
.trellm table { border-collapse: collapse; font-size: 13px; }
.trellm th, .trellm td { padding: .1em .5em; text-align: right; border-bottom: 1px solid #8884; }
.trellm td { white-space: nowrap; }
.trellm th { font-weight: 600; }
.trellm .left { text-align: left; }
.trellm td.left { font-family: ui-monospace, monospace; }
.trellm .legend span { padding: .1em .6em; }
"""
_WHOLE = """\
:root { color-scheme: light dark; }
.trellm th { position: sticky; top: 0; background: Canvas; }
"""
# The page loads and runs nothing, whatever its markup.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(sections: Sequence[tuple[str, str]]) -> str:
    """Return a page of titled sections."""
    body = "".join(f"<h2>{escape(title)}</h2>\n{content}" for title, content in sections)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>trellm diagnostics</title>\n<style>\n{STYLE}{_WHOLE}</style>\n</head>\n"
        f"<body>\n{body}</body>\n</html>\n"
    )


def section(steps: Sequence[Step], summary: str, hints: Sequence[Hint]) -> str:
    """Return the text, its summary, hints and table in one element."""
    text = "".join(map(_token, steps))
    items = "".join(f"<li>{escape(str(hint))}</li>\n" for hint in hints)
    head = "".join(f"<th{_side(column)}>{column.replace('_', ' ')}</th>" for column in COLUMNS)
    rows = "\n".join(map(_row, steps))
    return (
        f'<div class="trellm">\n<div class="text">{text}</div>\n<p>{escape(summary)}</p>\n'
        f'<ul class="hints">\n{items}</ul>\n<p class="legend">Feasible mass: {_legend()}</p>\n'
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>\n</div>\n"
    )


def _token(step: Step) -> str:
    """Return the markup of a token. Invisible characters become visible signs."""
    shown = step.name if step.token is None else _signs(step.token)
    kind = ' class="end"' if step.token is None else ""
    tip = escape(_tip(step), quote=True).replace("\n", "&#10;")
    return f'<span{kind} tabindex="0" style="{_tint(step.feasible_mass)}" data-tip="{tip}">{escape(shown)}</span>'


def _signs(text: str) -> str:
    return "".join(
        "↵\n" if character == "\n" else character if character.isprintable() else visible(character)
        for character in text
    )


def _tip(step: Step) -> str:
    """Return the record of a token in a few lines."""
    lines = [
        f"token {step.position}: {_quoted(step.name)}, id {step.token_id}",
        f"probability {probability(step.probability)} of the allowed, {probability(step.raw_probability)} of all, "
        f"rank {step.rank:,}",
        f"leading without the constraint: {_quoted(step.leading_name)}, id {step.leading_token_id}, "
        f"{probability(step.leading_probability)}{'' if step.leading_allowed else ', not allowed'}",
        f"allowed: {f'{step.allowed:,} tokens' if not step.forced else 'this one only'}; "
        f"feasible mass {probability(step.feasible_mass)}",
        f"state {step.state} expected {step.expected}",
    ]
    return "\n".join(lines)


def _quoted(name: str) -> str:
    return f"‹{visible(name)}›"


def _row(step: Step) -> str:
    cells = "".join(f"<td{_side(column)}>{escape(cell(step, column))}</td>" for column in COLUMNS)
    return f'<tr style="{_tint(step.feasible_mass)}">{cells}</tr>'


def _side(column: str) -> str:
    return ' class="left"' if column in _TEXTS else ""


def _legend() -> str:
    return " ".join(f'<span style="{_tint(mass)}">{mass:g}</span>' for mass in (1, 0.5, 0.1, 0.01, 1e-4, DARKEST))


def _tint(mass: float) -> str:
    """Return a red background, stronger for less mass."""
    strength = min(1.0, math.log(max(mass, DARKEST)) / math.log(DARKEST))
    return f"background: rgb(230 60 40 / {0.75 * strength:.2f})"
