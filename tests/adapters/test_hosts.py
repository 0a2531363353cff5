"""What adapters load, and what they say of hosts that are absent or have changed."""

import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from trellm import OptionError
from trellm.adapters.hosts import interface

LOADED = [
    ("adapters", ["torch", "numba"]),
    ("adapters.session", ["torch"]),
    ("adapters.device_masks", ["torch"]),
    ("adapters.transformers", ["torch", "vllm"]),
    ("adapters.specs", ["torch"]),
]


def test_what_is_loaded() -> None:
    """One module after the other, in a process that has nothing yet; the host is made up, since it loads torch."""
    code = f"""
import sys
from importlib import import_module
from types import ModuleType, SimpleNamespace
host, batching = ModuleType("transformers"), "transformers.generation.continuous_batching.cb_logits_processors"
host.LogitsProcessor = object
sys.modules.update(dict.fromkeys(["transformers", "transformers.generation", batching.rpartition(".")[0]], host))
sys.modules[batching] = SimpleNamespace(
    ContinuousBatchingLogitsProcessor=object,
    ContinuousBatchingLogitsProcessorList=SimpleNamespace(_retrieve_processors_kwargs=1),
)
for module, absent in {LOADED!r}:
    import_module(f"trellm.{{module}}")
    print(module, [name for name in [*absent, "trellm.engine"] if name in sys.modules])
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == [f"{module} []" for module, _ in LOADED]


def test_hosts_that_are_absent_or_have_changed() -> None:
    found = interface("pytest", "pytest", "pytest 1", {"pytest": ["raises", "MonkeyPatch.setattr"]})
    assert found["raises"] is pytest.raises
    with pytest.raises(OptionError, match=r"there is no no_such_host. pip install no-such-host; no 3 was tried"):
        interface("No", "no-such-host", "no 3", {"no_such_host": ["thing"]})
    with pytest.raises(OptionError, match=r"pytest [0-9.]+ has no pytest.thing.*interface has changed. pytest 1 was"):
        interface("pytest", "pytest", "pytest 1", {"pytest": ["thing"]})
    with pytest.raises(OptionError, match=r"has no pytest.MonkeyPatch.thing"):
        interface("pytest", "pytest", "pytest 1", {"pytest": ["MonkeyPatch.thing"]})
    with pytest.raises(OptionError, match=r"has no pytest.no_such_module, which the adapter needs"):
        interface("pytest", "pytest", "pytest 1", {"pytest.no_such_module": ["thing"]})


def test_entry_points_are_there() -> None:
    """Those that pyproject.toml names can be loaded without their hosts."""
    project = Path(__file__).resolve().parents[2] / "pyproject.toml"
    groups = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["entry-points"]
    assert set(groups) == {"vllm.general_plugins", "sglang.srt.plugins"}
    for names in groups.values():
        for place in names.values():
            module, _, name = place.partition(":")
            assert callable(getattr(import_module(module), name))
