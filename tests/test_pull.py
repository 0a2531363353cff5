"""`trellm pull` of registered models, `trellm models` and models.pulled: pip, and wheels that are written here."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import zipfile
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from trellm import ModelError, OptionError, generate, models
from trellm.cli import main
from trellm.engine.downloads.registry import REGISTRY, RegisteredModel, cache_folder, pulled_path
from trellm.engine.sending import origin_of

from .engine.models.gguf_files.tiny import network_of, write_model
from .watching import watched

pytest.importorskip("gguf")
needs_pip = pytest.mark.skipif(find_spec("pip") is None, reason="this environment has no pip, which fetches wheels")
NAME, MEMBER = "tiny", "trellm_tiny/tiny.gguf"
PULL = """
import json, signal, sys
from trellm.cli import main
from trellm.engine.downloads.registry import REGISTRY, RegisteredModel
REGISTRY["tiny"] = RegisteredModel(**json.loads(sys.argv[1]))
signal.signal(signal.SIGINT, signal.default_int_handler)  # which is ignored below a shell's background job
sys.exit(main(["pull", "tiny", *sys.argv[2:]]))
"""


@dataclass
class Index:
    """A folder of wheels, which pip looks into and nowhere else, a model in one of them, and the cache."""

    wheels: Path
    home: Path
    content: bytes
    model: RegisteredModel

    @property
    def folder(self) -> Path:
        return self.home / "models"

    def left(self) -> list[str]:
        """What lies in the cache, but for the file of the lock."""
        files = (file.relative_to(self.folder).as_posix() for file in self.folder.rglob("*"))
        return sorted(file for file in files if not file.endswith(".lock"))

    def write(self, content: bytes, member: str = MEMBER) -> RegisteredModel:
        """Write the wheel anew; the row of the table that would fit the wheel, whatever is in it."""
        path = self.wheels / "trellm_tiny-1.0-py3-none-any.whl"
        info = "trellm_tiny-1.0.dist-info"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(member, content)
            archive.writestr("trellm_tiny/__init__.py", "")
            archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: trellm-tiny\nVersion: 1.0\n")
            archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr(f"{info}/RECORD", "")
        return replace(self.model, wheel_sha256=digest(path.read_bytes()), wheel_bytes=path.stat().st_size)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("weights") / "tiny.gguf"
    write_model(path, "llama", network_of("llama"), "Q8_0")
    return path.read_bytes()


@pytest.fixture
def index(tmp_path: Path, weights: bytes, hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("TRELLM_HOME", str(tmp_path / "home"))
    model = RegisteredModel(
        NAME, "a tiny model", "MIT", "trellm-tiny", "1.0", "0" * 64, 0, MEMBER, digest(weights), len(weights)
    )
    made = Index(folder, tmp_path / "home", weights, model)
    made.model = made.write(weights)
    monkeypatch.setitem(REGISTRY, NAME, made.model)
    return made


def refused(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 1) -> str:
    """The one line that a command line ends with."""
    assert main(arguments) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("trellm: ") and err.count("\n") == 1
    return err


def process(index: Index, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    row = json.dumps(vars(index.model))
    command = [sys.executable, "-c", PULL, row, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


@needs_pip
def test_a_model_is_pulled_once_and_found_by_its_name(index: Index, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pull", NAME]) == 0
    out, err = capsys.readouterr()
    place = index.folder / "tiny-1.0" / "tiny.gguf"
    assert out == f"tiny is pulled: {place}\n"
    assert err == ""
    assert place.read_bytes() == index.content
    assert index.left() == ["tiny-1.0", "tiny-1.0/tiny.gguf"]
    for file in index.wheels.iterdir():
        file.unlink()
    assert main(["pull", NAME]) == 0
    assert capsys.readouterr().out == f"tiny is there already, nothing was fetched: {place}\n"
    assert "cannot be fetched" in refused(capsys, "pull", NAME, "--force")
    assert place.read_bytes() == index.content


@needs_pip
def test_force_fetches_again_and_so_does_a_file_that_was_cut(index: Index) -> None:
    place = index.folder / "tiny-1.0" / "tiny.gguf"
    assert main(["pull", NAME]) == 0
    before = place.stat().st_ino
    place.write_bytes(bytes(len(index.content)))
    assert main(["pull", NAME, "--force"]) == 0
    assert place.read_bytes() == index.content
    assert place.stat().st_ino != before
    place.write_bytes(index.content[:-1])
    with pytest.raises(ModelError, match="trellm pull tiny"):
        models.pulled(NAME)
    assert main(["pull", NAME]) == 0
    assert place.read_bytes() == index.content


@needs_pip
def test_another_wheel_than_the_pinned_one_is_not_kept(index: Index, capsys: pytest.CaptureFixture[str]) -> None:
    index.write(bytes(100))
    assert "trellm-tiny 1.0 of the configured package index differs from PyPI's" in refused(capsys, "pull", NAME)
    assert index.left() == []


@needs_pip
@pytest.mark.parametrize(
    ("content", "member", "match"),
    [
        (b"x" * 1000, MEMBER, "that differs from the pinned one"),
        (None, "trellm_tiny/other.gguf", "There is no item named"),
    ],
    ids=["other bytes", "absent"],
)
def test_a_wheel_that_has_not_what_the_table_says(
    content: bytes | None, member: str, match: str, index: Index, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setitem(REGISTRY, NAME, index.write(content or index.content, member))
    assert match in refused(capsys, "pull", NAME)
    assert index.left() == []


@needs_pip
def test_a_damaged_archive_of_the_right_hash(
    index: Index, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """pip reads no more than the metadata, so that only unpacking sees the damage."""
    path = next(index.wheels.iterdir())
    data = bytearray(path.read_bytes())
    data[len(MEMBER) + 200] ^= 0xFF
    path.write_bytes(data)
    monkeypatch.setitem(REGISTRY, NAME, replace(index.model, wheel_sha256=digest(bytes(data))))
    assert "cannot be unpacked" in refused(capsys, "pull", NAME)
    assert index.left() == []


@needs_pip
def test_without_a_network_one_sentence_says_what_to_do(index: Index, capsys: pytest.CaptureFixture[str]) -> None:
    for file in index.wheels.iterdir():
        file.unlink()
    said = refused(capsys, "pull", NAME)
    assert "No matching distribution found" in said
    assert said.endswith("from PyPI or another index, then: trellm pull tiny\n")
    assert index.left() == []


@needs_pip
@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_nothing(number: int, code: int, index: Index) -> None:
    """It comes while pip waits for an index that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/simple"
        environment = {**os.environ, "PIP_INDEX_URL": url, "no_proxy": "*"}
        del environment["PIP_NO_INDEX"]
        running = process(index, env=environment)
        with server.accept()[0]:
            assert index.left()[0].startswith(".tiny.fetch-")
            running.send_signal(number)
            out, err = running.communicate()
    assert running.returncode == code
    assert (out, err) == ("", f"trellm: {'interrupted' if code == 130 else 'terminated'}\n")
    assert index.left() == []


@needs_pip
def test_two_at_a_time_fetch_it_once(index: Index) -> None:
    said = [running.communicate() for running in [process(index) for _ in range(2)]]
    assert sorted(out.split(":")[0] for out, _ in said) == [
        "tiny is pulled",
        "tiny is there already, nothing was fetched",
    ]
    assert all(err in ("", "trellm: another process pulls tiny; waiting for it\n") for _, err in said)
    assert index.left() == ["tiny-1.0", "tiny-1.0/tiny.gguf"]


@needs_pip
def test_one_that_was_killed_is_cleared_away_by_the_next(index: Index) -> None:
    left = index.folder / ".tiny.fetch-killed" / "wheels"
    left.mkdir(parents=True)
    other = index.folder / ".other.fetch-runs"
    other.mkdir()
    (left / "half.whl").write_bytes(b"x")
    assert main(["pull", NAME]) == 0
    assert index.left() == [".other.fetch-runs", "tiny-1.0", "tiny-1.0/tiny.gguf"]


@needs_pip
def test_a_disk_that_is_full_in_the_midst(
    index: Index, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    watched(monkeypatch, os, "fsync", full)
    said = refused(capsys, "pull", NAME)
    assert "(No space left on device); set TRELLM_HOME to a writable folder" in said
    assert index.left() == []


def test_too_little_room_is_said_before_anything_is_fetched(
    index: Index, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(REGISTRY, NAME, replace(index.model, size=1 << 70))
    assert "make room there, or set TRELLM_HOME" in refused(capsys, "pull", NAME)
    assert index.left() == []


def test_a_cache_that_cannot_be_written(
    index: Index, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = index.wheels / "file"
    file.write_text("")
    monkeypatch.setenv("TRELLM_HOME", str(file / "below"))
    assert "(Not a directory); set TRELLM_HOME" in refused(capsys, "pull", NAME)


def test_an_environment_without_pip(
    index: Index, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pip", None)
    assert "uv pip install pip" in refused(capsys, "pull", NAME)
    assert index.left() == []


def test_names_that_cannot_be_pulled(index: Index, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("smollm3", "a/b/c", "owner/repo:model.bin", "", "https://huggingface.co/a/b"):
        assert "is not a known model; expected smollm2, tiny" in refused(capsys, "pull", name, code=2)
    assert "pinned to 1.0" in refused(capsys, "pull", NAME, "--revision", "main", code=2)
    assert not index.home.exists()


def put(index: Index) -> Path:
    """Where the model is, as if it had been pulled."""
    place = index.folder / "tiny-1.0" / "tiny.gguf"
    place.parent.mkdir(parents=True)
    place.write_bytes(index.content)
    return place


def test_a_model_that_is_not_pulled_says_how(index: Index, capsys: pytest.CaptureFixture[str]) -> None:
    for load in (models.pulled, models.transformers):
        with pytest.raises(ModelError, match=r"the model 'tiny' is not on this machine.*trellm pull tiny$"):
            load(NAME)
    for command in (["generate", "--prompt", "x", "--model", NAME], ["demo", "--model", NAME], ["serve", NAME]):
        assert "fetch it once: trellm pull tiny" in refused(capsys, *command)


def test_a_pulled_model_runs_by_its_name(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = put(index)
    text = generate.text(models.gguf(place))("on the", max_tokens=6)
    pulled, named = models.pulled(NAME), models.transformers(NAME)
    assert [generate.text(model)("on the", max_tokens=6) for model in (pulled, named)] == [text, text]
    assert origin_of(pulled).arguments["name"] == NAME
    assert origin_of(named).arguments["model"] == NAME
    assert main(["generate", "--model", NAME, "--prompt", "on the", "--max-tokens", "6"]) == 0
    assert capsys.readouterr().out == text + "\n"


def test_what_lies_in_the_working_directory_comes_first(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But not for models.pulled, which is told what it is to load."""
    put(index)
    monkeypatch.chdir(tmp_path)
    (tmp_path / NAME).mkdir()
    with pytest.raises(OptionError, match=r"the folder 'tiny' has no config\.json"):
        models.transformers(NAME)
    (tmp_path / NAME).rmdir()
    (tmp_path / NAME).write_text("")
    with pytest.raises(OptionError, match="model='tiny' is a file"):
        models.transformers(NAME)
    assert generate.regex(models.pulled(NAME), "[0-9]{2}")("on").isdigit()


@pytest.mark.parametrize("name", ["owner/repo", "smollm3", 7, "small"])
def test_names_of_no_pulled_model(name: Any) -> None:
    with pytest.raises(OptionError, match=r"no name of a pulled model; there are 'smollm2'.*owner/repo:FILE\.gguf"):
        models.pulled(name)


def test_models_are_listed_with_sizes_and_paths(index: Index, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:4] == ["small", "7.4", "MB", "default"]
    assert lines[1:] == [
        "trellm pull smollm2 fetches SmolLM2 135M Instruct in Q4_1: 98 MB, Apache-2.0",
        "trellm pull tiny fetches a tiny model: 0 MB, MIT",
    ]
    place = put(index)
    assert main(["models", "--json"]) == 0
    small, tiny = json.loads(capsys.readouterr().out)
    assert (small["name"], small["source"]) == ("small", "package")
    assert Path(small["path"], "config.json").is_file()
    assert small["size"] == sum(file.stat().st_size for file in Path(small["path"]).iterdir())
    row = {"name": NAME, "source": "pulled", "revision": None, "size": len(index.content), "path": str(place)}
    assert tiny == row
    assert main(["models"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["tiny", "0.1", "MB", "pulled", str(place)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"TRELLM_HOME": "/a/b", "XDG_CACHE_HOME": "/c"}, "/a/b/models"),
        ({"TRELLM_HOME": "", "XDG_CACHE_HOME": "/c"}, "/c/trellm/models"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/trellm/models"),
        ({"TRELLM_HOME": "~/t", "HOME": "/h"}, "/h/t/models"),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="the paths are those of POSIX")
def test_where_models_are_kept(given: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TRELLM_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert cache_folder("models") == Path(expected)


def test_every_row_of_the_table_is_whole() -> None:
    for name, row in REGISTRY.items():
        assert row.name == name
        assert row.file.endswith(".gguf")
        assert row.size > 0 < row.wheel_bytes
        assert all(len(hash_) == 64 and int(hash_, 16) for hash_ in (row.sha256, row.wheel_sha256))


def test_the_real_model_answers() -> None:
    """SmolLM2, where it has been pulled."""
    if pulled_path(REGISTRY["smollm2"]) is None:
        pytest.skip("smollm2 has not been pulled: trellm pull smollm2")
    model = models.pulled("smollm2")
    question = [{"role": "user", "content": "Name the capital city of France."}]
    assert "Paris" in generate.text(model)(question, max_tokens=16)
    assert generate.choice(model, ["Paris", "Rome"])(question) == "Paris"
