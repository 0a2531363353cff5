"""`trellm serve` as a process: where it listens, and how SIGTERM ends it."""

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from trellm import Engine
from trellm.cli import main

from ..watching import watched
from .conftest import HANGS, until


def test_serving_until_sigterm(tmp_path: Path) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_text("secret-one\n")
    command = [sys.executable, "-m", "trellm", "serve", "--port", "0", "--name", "tiny", "--api-key-file", str(keys)]
    command.append("--access-log")
    # A process that it starts is to find the package where this one has it.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, cwd=tmp_path) as process:
        assert process.stderr is not None
        before: list[str] = []
        said = ""
        while not said.startswith("tiny at"):
            said = process.stderr.readline()
            assert said, ("it ended before it served", process.wait(HANGS), before)
            before.append(said)
        url = re.fullmatch(r"tiny at (http://127\.0\.0\.1:\d+)/v1\n", said)
        assert url is not None
        with httpx.Client(base_url=url[1], headers={"Authorization": "Bearer secret-one"}, timeout=HANGS) as http:
            body = {"model": "tiny", "prompt": "a", "max_tokens": 3, "temperature": 0}
            assert http.post("/v1/completions", json=body).json()["usage"]["completion_tokens"] <= 3
            assert http.post("/v1/completions", json=body, headers={"Authorization": ""}).status_code == 401
            assert http.get("/v1/models", headers={"Host": "rebound.example"}).status_code == 403
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
        assert process.wait(HANGS) == 143
    assert "Traceback" not in rest and "secret" not in said + rest
    lines = re.findall(r'127\.0\.0\.1 ("\w+ \S+" \d+) [0-9.]+ ms\n', rest)
    assert lines == ['"POST /v1/completions" 200', '"POST /v1/completions" 401', '"GET /v1/models" 403']


STREAMS = 100
slow = pytest.mark.slow
PIECE: dict[str, Any] = {"model": "small", "prompt": "Write.", "temperature": 1.0, "stream": True}


async def _streams(port: int, count: int, tokens: int, has_begun: Callable[[], None]) -> list[bytes]:
    """What so many streams say to their ends, or until they are cut; told when each has begun."""
    begun = 0

    async def one(number: int) -> bytes:
        nonlocal begun
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        data = json.dumps(PIECE | {"max_tokens": tokens, "min_tokens": tokens, "seed": number}).encode()
        head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
        writer.write(f"{head}{len(data)}\r\n\r\n".encode() + data)
        found = await reader.readuntil(b"data: ")
        begun += 1
        if begun == count:
            has_begun()
        with contextlib.suppress(ConnectionError):
            while more := await reader.read(1 << 16):
                found += more
                if b"[DONE]" in found[-64:]:
                    break
        writer.close()
        return found

    return await asyncio.gather(*(one(number) for number in range(count)))


def _serving(options: list[str]) -> tuple[Any, int]:
    """A server as a process, and its port."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-m", "trellm", "serve", "--port", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    said = next(line for line in process.stderr if line.startswith("small at"))
    return process, int(said.rpartition(":")[2].partition("/")[0])


@slow
def test_a_signal_in_the_midst_of_streams() -> None:
    """SIGTERM, and again: all of them say why they end, and a request that comes meanwhile is told to go elsewhere."""
    process, port = _serving(["--drain-seconds", "120"])

    def signals() -> None:
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)

    with process:
        found = asyncio.run(_streams(port, STREAMS, 40, signals))
        assert process.wait(HANGS) == 143
        assert process.stderr is not None and "Traceback" not in process.stderr.read()
    for each in found:
        events = [json.loads(line[6:]) for line in each.split(b"\n") if line.startswith(b"data: {")]
        assert each.endswith(b"0\r\n\r\n") or b"[DONE]" in each
        assert [event["choices"][0]["finish_reason"] for event in events][-1] in ("stop", "length")


@slow
def test_a_second_interrupt_ends_at_once() -> None:
    """Streams that would take minutes are broken off, none of which says that it was finished."""
    process, port = _serving(["--drain-seconds", "120"])

    def is_draining() -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/health/ready", timeout=HANGS).status_code == 503
        except httpx.TransportError:  # nobody is let in any more
            return True

    def again() -> None:
        until(is_draining)
        process.send_signal(signal.SIGINT)

    def signals() -> None:
        process.send_signal(signal.SIGINT)
        threading.Thread(target=again).start()

    with process:
        found = asyncio.run(_streams(port, 4, 900, signals))
        assert process.wait(HANGS) == 130
        assert process.stderr is not None and "Traceback" not in process.stderr.read()
    assert not any(b"[DONE]" in each or b'"finish_reason":"' in each for each in found)


@pytest.mark.parametrize(("arguments", "gap"), [(["--max-gap-ms", "62.5"], 62.5), (["--memory", "64MiB"], None)])
def test_the_longest_gap_reaches_the_engine(
    arguments: list[str], gap: float | None, served: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = watched(monkeypatch, Engine, "__init__", lambda *_, **options: options["max_gap_ms"])
    assert main(["serve", "--port", "0", *arguments]) == 0
    assert made == [gap] and len(served) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--api-key-file", "absent.txt"], "the file of API keys 'absent.txt' cannot be read"),
        (["--port", "70000"], "70000 is not in the range"),
        (["--memory", "much"], "'much' is not an amount of memory"),
        (["--compile-seconds", "0"], "expected a number above 0"),
        (["--max-gap-ms", "0"], "expected a number above 0"),
        (["--cors", "localhost:3000", "--port", "TAKEN"], "'localhost:3000' is not an origin; write http://"),
        (["--cors", "https://a.b/", "--port", "TAKEN"], "'https://a.b/' is not an origin"),
        (["--allow-host", "http://a.b", "--port", "TAKEN"], "'http://a.b' is not a host name"),
        (["--allow-host", "*.a.b", "--port", "TAKEN"], "'*.a.b' is not a host name"),
        (["--allow-host", "a.b.", "--port", "TAKEN"], "'a.b.' is not a host name"),
        (["--allow-host", "a.b:80", "--port", "TAKEN"], "without scheme, port or path"),
        (["--replicas", "2"], "--replicas, --cpus and --gpus need --ray"),
        (["--dtype", "bfloat16", "--port", "TAKEN"], "--dtype needs a model that is named"),
        (["--weights", "q8", "--port", "TAKEN"], "--weights needs a model of transformers that is named"),
        (["ziplm:notes.txt", "--device", "cpu", "--port", "TAKEN"], "ziplm has neither"),
        (["--ray", "--replicas", "3-2"], "or a range, such as 1-8"),
        (["--ray", "--port", "0"], "not possible with --ray; give the number of a port"),
        (["ziplm:notes.txt", "--ray"], "replicas only load models of transformers, or the small model"),
    ],
)
def test_mistakes(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that stand in the command before the port is looked at."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["serve", *(port if each == "TAKEN" else each for each in arguments)]) == 2
    assert said in capsys.readouterr().err


def test_a_model_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "./no-such", "--port", "0"]) == 2
    assert "trellm: './no-such': there is no such folder; a model is a name" in capsys.readouterr().err


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The deployment that the command makes in place of one of Ray's, and where it runs it."""
    found: list[Any] = []
    monkeypatch.setattr("trellm.serve.ray.deployment", lambda *each, **options: found.append((each, options)) or "made")
    monkeypatch.setattr("trellm.serve.ray.run", lambda made, **where: found.append((made, where)))
    return found


@pytest.mark.parametrize(
    ("arguments", "hosts"),
    [
        ([], ("localhost",)),
        (["--host", "::1"], ("localhost",)),
        (["--host", "0.0.0.0"], ()),
        (["--host", "models.example"], ()),
        (["--allow-host", "a.example", "--allow-host", "b"], ("a.example", "b")),
    ],
)
def test_names_to_be_asked_by(arguments: list[str], hosts: tuple[str, ...], given: list[Any]) -> None:
    assert main(["serve", "--ray", *arguments]) == 0
    (_, settings), _ = given[0]
    assert settings.hosts == hosts


def test_by_ray(given: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["serve", "org/model", "--ray", "--replicas", "1-8", "--cpus", "0.25", "--gpus", "0.5", "--port", "8123",
              "--access-log"])
        == 0
    )  # fmt: skip
    (model, settings), options = given[0]
    assert model == settings.name == "org/model" and settings.access_log
    assert {"replicas": (1, 8), "cpus": 0.25, "gpus": 0.5, "queued": settings.texts}.items() <= options.items()
    assert given[1] == ("made", {"host": "127.0.0.1", "port": 8123})
    assert "org/model at http://127.0.0.1:8123/v1, as soon as replicas are ready" in capsys.readouterr().err


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["serve", "--port", str(taken.getsockname()[1])]) == 2
    assert "Address already in use" in capsys.readouterr().err
