"""Fixtures shared by all tests.

TRELLM_TEST_DEVICE=cuda in the environment runs all models of transformers on a copy of theirs there.
"""

import copy
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

DEVICE = os.environ.get("TRELLM_TEST_DEVICE")
ABSENT = "the folder of shared test data is absent"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real tokenizers and test suites beside the checkout; tests skip where it is absent."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(ABSENT)
    return folder


@pytest.fixture(scope="session", autouse=DEVICE is not None)
def on_device() -> Iterator[None]:
    """Our models on the device; those that they are compared with stay where they are."""
    from trellm.engine.models.decoder import DecoderModel
    from trellm.engine.models.encoder_decoder import EncoderDecoderModel

    with pytest.MonkeyPatch.context() as patch:
        for adapter in (DecoderModel, EncoderDecoderModel):
            patch.setattr(adapter, "__init__", _moved(adapter.__init__))
        yield


def _moved(make: Any) -> Any:
    def init(self: Any, model: Any, *arguments: Any, **options: Any) -> None:
        if hasattr(model, "to"):
            model = copy.deepcopy(model).to(DEVICE)
        make(self, model, *arguments, **options)

    return init


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests had nothing to work on."""
    skipped = [report for report in terminalreporter.getreports("skipped") if ABSENT in str(report.longrepr)]
    if skipped:
        terminalreporter.write_line(f"{len(skipped)} tests were skipped: {ABSENT}")
