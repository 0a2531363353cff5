"""The grammars of the documentation."""

from pathlib import Path

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "grammars"
NAMES = sorted(path.stem for path in FOLDER.glob("*.lark"))


def load(name: str) -> str:
    """The text of a documented grammar."""
    return (FOLDER / f"{name}.lark").read_text(encoding="utf-8")
