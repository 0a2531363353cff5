"""Fixtures shared by all tests, and the processes that run them.

TRELLM_TEST_DEVICE=cuda in the environment runs all models of transformers on a copy of theirs there.
"""

import copy
import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from .thresholds import thresholds

DEVICE = os.environ.get("TRELLM_TEST_DEVICE")
ABSENT = "the folder of shared test data is absent"
FOLDER = Path(__file__).parent
FAST: dict[Path, set[str]] = {}
"""The tests of `-m fast`: by file its functions and classes, or "" for all."""
for line in (FOLDER / "fast.txt").read_text("utf-8").splitlines():
    if line and line[0] != "#":
        FAST.setdefault(FOLDER / line.partition("::")[0], set()).add(line.partition("::")[2])
WORKER_BYTES = 4 << 30
"""What a process needs at most that runs all tests, or half of them."""

THRESHOLDS = 7000, 10, 20
"""Of collections of garbage: by Python's own, a sixth of the time goes into looking through what is remembered."""

# How long an example takes, or thinking of one, is the machine's: no test fails for that. Examples are always the same.
hypothesis.settings.register_profile(
    "repeated", deadline=None, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("repeated")


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

    with pytest.MonkeyPatch.context() as patch:
        thresholds(patch, share_of_memory=0.01)
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


@pytest.fixture
def command_runs(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Lets `trellm generate` run this model, whatever name it is given."""
    return lambda model: monkeypatch.setattr("trellm.cli.generate.load_model", lambda *_: model)


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which models of the Hugging Face Hub are kept for the time of a test."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


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


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Load no files of which no test would be run: loading all takes as long as the fast tests do."""
    is_test = collection_path.suffix == ".py" and collection_path.is_relative_to(FOLDER)
    return True if config.option.markexpr == "fast" and is_test and collection_path not in FAST else None


def pytest_itemcollected(item: pytest.Item) -> None:
    names = FAST.get(item.path)
    if names is None:
        return
    own = {"", *(node.name.partition("[")[0] for node in item.listchain())}
    if names & own and item.get_closest_marker("slow") is None:
        item.add_marker("fast")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without looking for garbage, of which there is none; nor is what was loaded looked through later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(*THRESHOLDS)


def pytest_unconfigure() -> None:
    """Let the interpreter end as it would have."""
    gc.unfreeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """How many processes run the tests: where these are all tests, one for each processor for which there is memory;
    otherwise this one alone, since another one would begin by importing for seconds."""
    everything = any(Path(each).resolve() == Path(__file__).parent for each in config.args)
    if not everything or DEVICE is not None:
        return 0
    processors = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    workers = min(processors, _memory() // WORKER_BYTES)
    return workers if workers > 1 else 0


def _memory() -> int:
    """Bytes that this machine has, or this container may have; 0 on Windows, where nobody says so to Python."""
    if sys.platform == "win32":
        return 0
    limits = [Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")]
    found = [limit.read_text().strip() for limit in limits if limit.is_file()]
    return min([os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), *map(int, filter(str.isdigit, found))])


def pytest_configure(config: pytest.Config) -> None:
    several = (getattr(config.option, "numprocesses", None) or 0) > 1  # None in the processes that it starts
    if several and not config.option.collectonly:
        config.pluginmanager.register(_Kernels())


class _Kernels:
    """Compiles all kernels in a process of its own while the others collect: once, and not in each of them, and never
    two at a time into the same folder."""

    def pytest_sessionstart(self) -> None:
        command = [sys.executable, "-P", "-m", "trellm", "warmup"]
        self._warming: subprocess.Popen[str] | None = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    @pytest.hookimpl(tryfirst=True)
    def pytest_xdist_node_collection_finished(self) -> None:
        self._wait()

    def pytest_sessionfinish(self) -> None:
        self._wait()

    def _wait(self) -> None:
        warming, self._warming = self._warming, None
        if warming is not None:
            said, _ = warming.communicate()
            assert warming.returncode == 0, said
