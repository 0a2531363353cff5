"""What docs/architecture.md says of the core, as far as it can be looked up."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
from trellm.kernels import answers
from trellm.kernels.chart import layout, rows

PACKAGE = Path(__file__).resolve().parents[1]
PAGE = (PACKAGE / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_every_array_of_the_chart_is_in_the_table() -> None:
    table = PAGE.split("| Array |", 1)[1].split("\n\n", 1)[0]
    named = [name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(named) == sorted(field.name for field in fields(layout.Chart))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([A-Z][A-Z_]+)`", PAGE))))
def test_columns_and_answers_exist(name: str) -> None:
    assert any(hasattr(module, name) for module in (answers, layout, rows))


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:guides|kernels|tests)/[\w/]+\.py)`", PAGE))))
def test_files_exist(path: str) -> None:
    assert (PACKAGE / path).is_file()


def test_the_drawing_has_every_room() -> None:
    drawing = PAGE.split("```text", 1)[1].split("```", 1)[0]
    for room in (folder.name for folder in (PACKAGE / "guides").iterdir() if (folder / "__init__.py").is_file()):
        assert re.search(rf"\b{room}/", drawing), room
