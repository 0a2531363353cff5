"""Random constraints, texts, options, states and files: a deterministic slice of the fuzzer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("vocabulary", "cases"), [("bytes", 900), ("odd", 400)])
def test_nothing_random_brings_the_process_down(
    vocabulary: str, cases: int, instrument: Callable[..., str], tmp_path: Path
) -> None:
    log = str(tmp_path / "log.jsonl")
    # The bound is for the machines that figures are measured on; here others may work beside the tests.
    said = instrument(
        "run.py", "--cases", str(cases), "--vocabulary", vocabulary, "--log", log, "--strict", "--slow", "9"
    )
    assert f"{cases:,} cases" in said


def test_no_file_brings_the_readers_of_media_down(instrument: Callable[..., str]) -> None:
    instrument("media.py", "--cases", "400", "--workers", "1", "--seconds", "9")


def test_a_run_goes_on_behind_what_its_log_has(instrument: Callable[..., str], tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    arguments = ["--kinds", "choices", "--log", str(log)]
    instrument("run.py", "--cases", "250", *arguments)
    before = log.read_text()
    said = instrument("run.py", "--cases", "500", *arguments)
    assert log.read_text().startswith(before) and "500 cases" in said
