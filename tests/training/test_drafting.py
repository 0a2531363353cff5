"""The comparison of drafts: what it counts, on a network that is its own draft."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trellm import models

from .support import drafting


def test_a_model_that_is_its_own_draft_saves_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model: Any = models.small()
    (row,) = drafting.compare(model, models.small(), 2, ["normal form"])
    assert (row["prompts"], row["same"]) == (2, 2)
    assert row["draft passes"] <= row["no guesses passes"]
    assert row["tokens"] > 0 and all(row[f"{name} seconds"] > 0 for name in ("no guesses", "guesses", "draft"))
    assert "normal form" in capsys.readouterr().out
    drafting.write([row], tmp_path / "rows.csv")
    assert (tmp_path / "rows.csv").read_text().startswith("task,prompts,tokens,same,no guesses passes")
