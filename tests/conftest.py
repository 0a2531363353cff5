"""Fixtures shared by all tests."""

from pathlib import Path

import pytest

ABSENT = "the folder of shared test data is absent"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real tokenizers and test suites beside the checkout; tests skip where it is absent."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(ABSENT)
    return folder


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests had nothing to work on."""
    skipped = [report for report in terminalreporter.getreports("skipped") if ABSENT in str(report.longrepr)]
    if skipped:
        terminalreporter.write_line(f"{len(skipped)} tests were skipped: {ABSENT}")
