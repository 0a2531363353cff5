"""Fixtures shared by all tests.

TRELLM_TEST_DEVICE=cuda in the environment runs all models of transformers on a copy of theirs there.
"""

import copy
import os
import shutil
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
    """Our models on the device, with room for others; those that they are compared with stay where they are, and so do
    classes of tests that say `stays`, and models that are spread."""
    from trellm.engine.models.decoder import DecoderModel
    from trellm.engine.models.encoder_decoder import EncoderDecoderModel
    from trellm.engine.schedule import fits

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fits, "SHARE", 0.01)
        for adapter in (DecoderModel, EncoderDecoderModel):
            patch.setattr(adapter, "__init__", _moved(adapter.__init__))
        yield


def _moved(make: Any) -> Any:
    def init(self: Any, model: Any, *arguments: Any, **options: Any) -> None:
        if hasattr(model, "to") and not getattr(self, "stays", False) and getattr(model, "hf_device_map", None) is None:
            model = copy.deepcopy(model).to(DEVICE)
            model.register_forward_pre_hook(_inputs_moved, with_kwargs=True)
            model.generate = _generating(model.generate)
        make(self, model, *arguments, **options)

    return init


def _inputs_moved(module: Any, inputs: Any, more: Any) -> Any:
    """What a test passes to a network itself goes where that is."""
    return _to(inputs, DEVICE), _to(more, DEVICE)


def _generating(generate: Any) -> Any:
    def run(*inputs: Any, **more: Any) -> Any:
        return _to(generate(*_to(inputs, DEVICE), **_to(more, DEVICE)), "cpu")

    return run


def _to(given: Any, device: Any) -> Any:
    import torch
    from transformers.utils import ModelOutput

    if isinstance(given, torch.Tensor):
        return given.to(device)
    if isinstance(given, ModelOutput):
        return type(given)(**{name: _to(each, device) for name, each in given.items()})
    if isinstance(given, dict):
        return {name: _to(each, device) for name, each in given.items()}
    return type(given)(_to(each, device) for each in given) if type(given) in (tuple, list) else given


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests had nothing to work on."""
    skipped = [report for report in terminalreporter.getreports("skipped") if ABSENT in str(report.longrepr)]
    if skipped:
        terminalreporter.write_line(f"{len(skipped)} tests were skipped: {ABSENT}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium; skipped with a reason where it or its driver is absent."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright, which drives the browser, is absent")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("there is no Chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield chromium
        chromium.close()
