"""`trellm pull` of models of the Hugging Face Hub, which a server on this machine plays; processes of their own, since
huggingface_hub reads the environment when it is imported."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from trellm import ModelError, generate, models

from .engine.models.gguf_files.tiny import network_of, write_model

pytest.importorskip("gguf")
COMMIT = "a" * 40
SMALL = Path(models.__file__).parent / "small"


@dataclass
class Hub:
    """repositories: their files by name; environment: of processes that ask the server; cache: of this one"""

    repositories: dict[str, dict[str, bytes]]
    environment: dict[str, str]
    cache: Path

    def run(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        environment = self.environment | more
        command = [sys.executable, "-m", "trellm", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def fetched(self) -> set[str]:
        return {file.name for file in self.cache.glob("models--*/snapshots/*/**/*") if file.is_file()}


class Server(ThreadingHTTPServer):
    daemon_threads = True
    repositories: dict[str, dict[str, bytes]]


class Handler(BaseHTTPRequestHandler):
    """What the Hub answers: a repository's files, their hashes and sizes, and what is in them."""

    server: Server

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        parts = self.path.partition("?")[0].strip("/").split("/")
        name = "/".join(parts[2:4] if parts[0] == "api" else parts[:2])
        files = self.server.repositories.get(name)
        if files is None:
            self._answer(404, b"", {"X-Error-Code": "RepoNotFound"})
        elif parts[0] != "api":
            content = files["/".join(parts[4:])]
            self._answer(200, content, {"X-Repo-Commit": COMMIT, "ETag": f'"{digest(content)}"'})
        elif "tree" in parts:
            tree = [
                {"type": "file", "path": file, "size": len(files[file]), "oid": digest(files[file])} for file in files
            ]
            self._answer(200, json.dumps(tree).encode(), {})
        else:
            found = {"id": name, "sha": COMMIT, "siblings": [{"rfilename": file} for file in files]}
            self._answer(200, json.dumps(found).encode(), {})

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        """Nothing on standard error."""


def digest(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


@pytest.fixture
def hub(tmp_path: Path, hub_cache: Path) -> Iterator[Hub]:
    with Server(("127.0.0.1", 0), Handler) as server:
        server.repositories = {}
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        environment |= {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_HUB_CACHE": str(hub_cache)}
        environment |= {"HF_HUB_DISABLE_TELEMETRY": "1", "no_proxy": "*", "TRELLM_HOME": str(tmp_path / "home")}
        yield Hub(server.repositories, environment, hub_cache)
        server.shutdown()
        thread.join()


def test_what_a_model_needs_is_fetched_and_listed(hub: Hub) -> None:
    wanted = {
        "config.json": b"{}",
        "model.safetensors": b"x" * 1000,
        "tokenizer.json": b"{}",
        "chat_template.jinja": b"t",
    }
    others = {"consolidated.safetensors": b"y", "original/model.safetensors": b"z", "pytorch_model.bin": b"p"}
    hub.repositories["owner/repo"] = {**wanted, **others, "some.gguf": b"g" * 70, "README.md": b"r"}
    done = hub.run("pull", "owner/repo")
    folder = hub.cache / "models--owner--repo" / "snapshots" / COMMIT
    assert (done.returncode, done.stdout, done.stderr) == (0, f"owner/repo is there: {folder}\n", "")
    assert hub.fetched() == set(wanted)
    done = hub.run("pull", "owner/repo:some.gguf")
    assert (done.returncode, done.stdout) == (0, f"owner/repo:some.gguf is there: {folder / 'some.gguf'}\n")
    assert hub.fetched() == {*wanted, "some.gguf"}
    listed = [list(model.values()) for model in json.loads(hub.run("models", "--json").stdout)[1:]]
    assert listed == [
        ["owner/repo", "hub", None, 1005, str(folder)],
        ["owner/repo:some.gguf", "hub", None, 70, str(folder / "some.gguf")],
    ]


def test_another_revision_is_listed_with_its_name(hub: Hub) -> None:
    hub.repositories["owner/repo"] = {"config.json": b"{}", "model.safetensors": b"x"}
    assert hub.run("pull", "owner/repo", "--revision", "v2").returncode == 0
    listed = json.loads(hub.run("models", "--json").stdout)
    assert [(model["name"], model["source"], model["revision"]) for model in listed[1:]] == [
        ("owner/repo", "hub", "v2")
    ]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["owner/absent"], "RepositoryNotFoundError.*check the name"),
        (["owner/repo"], r"owner/repo has no safetensors; pull one of its GGUF files: a\.gguf, as owner/repo:FILE"),
        (["owner/repo:b.gguf"], r"owner/repo:b\.gguf is not there; pull one of its GGUF files: a\.gguf"),
    ],
)
def test_what_there_is_not(arguments: list[str], match: str, hub: Hub) -> None:
    hub.repositories["owner/repo"] = {"config.json": b"{}", "a.gguf": b"g"}
    said(hub.run("pull", *arguments), match)
    assert hub.fetched() == set()


def test_without_a_network(hub: Hub) -> None:
    nowhere = {"HF_ENDPOINT": "http://127.0.0.1:9"}
    said(hub.run("pull", "owner/repo", **nowhere), "check the connection to the Hugging Face Hub")
    said(hub.run("pull", "owner/repo", HF_HUB_OFFLINE="1"), "unset HF_HUB_OFFLINE")


def said(done: subprocess.CompletedProcess[str], match: str) -> None:
    """One line, no traceback, exit code 1."""
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert re.search(match, done.stderr), done.stderr


def test_a_file_of_the_hub_runs_by_its_name(hub: Hub, tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_model(path, "llama", network_of("llama"), "Q8_0")
    hub.repositories["owner/repo"] = {"tiny.gguf": path.read_bytes()}
    name = "owner/repo:tiny.gguf"
    for load in (models.pulled, models.transformers):
        with pytest.raises(ModelError, match=f"trellm pull {name}$"):
            load(name)
    assert hub.run("pull", name).returncode == 0
    text = generate.text(models.gguf(path))("on the", max_tokens=6)
    for load in (models.pulled, models.transformers):
        assert generate.text(load(name))("on the", max_tokens=6) == text


@pytest.mark.slow
def test_a_model_of_the_hub_runs_by_its_name(hub: Hub) -> None:
    """The small model of the package, as if it came from there; then without the server."""
    hub.repositories["owner/small"] = {file.name: file.read_bytes() for file in SMALL.iterdir()}
    assert hub.run("pull", "owner/small").returncode == 0
    asked = ["--regex", "[0-9]{4}-[0-9]{2}-[0-9]{2}", "--prompt", "Write July 20, 1969 as YYYY-MM-DD.\nAnswer:\n"]
    done = hub.run("generate", "--model", "owner/small", *asked, HF_HUB_OFFLINE="1")
    assert (done.returncode, done.stdout) == (0, "1969-07-20\n"), done.stderr
