"""What adapters load, and what they say of hosts that are absent or have changed."""

import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from trellm import OptionError
from trellm.adapters.hosts import interface

from .hosts import folder_of

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
    with pytest.raises(OptionError, match=r"there is no no_such_host. pip install no-such-host; no 3 was tested"):
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


CHANGED = [
    ("transformers", "transformers.generation.continuous_batching.cb_logits_processors", "transformers 5.23"),
    ("mlx_lm", "mlx.core", "MLX-LM 0.32"),
    ("llama_cpp", "llama_cpp", "llama-cpp-python 0.3.36"),
    ("outlines", "outlines.processors.base_logits_processor", "Outlines 1.3"),
]
NAMES = {
    "transformers": "ContinuousBatchingLogitsProcessor",
    "mlx_lm": "where",
    "llama_cpp": "llama_vocab_is_eog",
    "outlines": "OutlinesLogitsProcessor",
}


@pytest.mark.parametrize(("host", "home", "tried"), CHANGED)
def test_versions_with_another_interface(host: str, home: str, tried: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (host, home.partition(".")[0]):
        monkeypatch.syspath_prepend(str(folder_of(name).parent))
    module = pytest.importorskip(home, reason="the host is there without what it needs")
    monkeypatch.delattr(module, NAMES[host])
    monkeypatch.delitem(sys.modules, f"trellm.adapters.{host}", raising=False)
    with pytest.raises(OptionError, match=rf"no {home}.{NAMES[host]}[ .,].*{tried}.* was tested"):
        import_module(f"trellm.adapters.{host}")


@pytest.mark.parametrize("error", ["OSError('libllama.so: cannot open')", "RuntimeError('no')", "ImportError('old')"])
def test_a_host_that_cannot_be_imported(error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_host.py").write_text(f"raise {error}")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(OptionError, match=r"Broken is installed, but cannot be imported: .*Broken 3 was tested"):
        interface("Broken", "broken-host", "Broken 3", {"broken_host": ["thing"]})
