"""The curve of the loss, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

_WIDTH, _HEIGHT, _LEFT, _BELOW = 640, 320, 48, 36


def draw_curve(rows: Sequence[dict[str, float]], file: Path) -> None:
    """Loss over tokens; the rows have "tokens" and "loss"."""
    top = max((row["loss"] for row in rows), default=1.0)
    most = max((row["tokens"] for row in rows), default=1)
    across, up = _WIDTH - _LEFT - 16, _HEIGHT - _BELOW - 16

    def place(tokens: float, loss: float) -> str:
        return f"{_LEFT + across * tokens / most:.1f},{16 + up * (1 - loss / top):.1f}"

    points = " ".join(place(row["tokens"], row["loss"]) for row in rows)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"',
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
    ]
    for quarter in range(5):
        loss, tokens = top * quarter / 4, most * quarter / 4
        left, height = place(0, loss).split(",")
        column, foot = place(tokens, 0).split(",")
        lines.append(f'<path d="M{left} {height}H{_LEFT + across}" stroke="#ddd"/>')
        lines.append(f'<text x="{_LEFT - 6}" y="{height}" text-anchor="end">{loss:.2f}</text>')
        lines.append(f'<text x="{column}" y="{float(foot) + 16:.1f}" text-anchor="middle">{tokens / 1e6:.0f} M</text>')
    lines.append(f'<polyline points="{points}" fill="none" stroke="#1f6feb" stroke-width="1.5"/>')
    lines.append(f'<text x="{_WIDTH - 16}" y="{_HEIGHT - 4}" text-anchor="end">tokens</text>')
    lines.append(f'<text x="{_LEFT}" y="12">loss</text></svg>')
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
