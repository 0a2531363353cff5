"""Servers as processes on ports of this machine: started, waited for, and how much of the machine they take."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SECONDS = 180
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Process:
    """A server. name: for tables; model: what it calls the model"""

    name: str
    model: str
    port: int
    pid: int

    @property
    def processor_seconds(self) -> float:
        """What its threads have taken so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    @property
    def mebibytes(self) -> float:
        """What it holds in memory."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("VmRSS"))) / 1024


def free_port() -> int:
    """A port that nobody listens to."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        return int(made.getsockname()[1])


@contextmanager
def started(name: str, model: str, command: list[str], port: int, more: Mapping[str, str]) -> Iterator[Process]:
    """A server as long as it is needed."""
    environment = os.environ | ONE_THREAD | more
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment) as process:
        try:
            end = time.monotonic() + SECONDS
            while True:
                if process.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"{name} did not start: {' '.join(command)}")
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    time.sleep(0.2)
            yield Process(name, model, port, process.pid)
        finally:
            process.terminate()


def ours(model: str | None, *options: str) -> tuple[str, str, list[str], int, Mapping[str, str]]:
    """`trellm serve` of a folder, or of the small model."""
    port = free_port()
    name = [] if model is None else [model, "--dtype", "float32"]
    command = [sys.executable, "-m", "trellm", "serve", *name, "--port", str(port), "--name", "m", *options]
    return "trellm", "m", command, port, {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def transformers(python: str, model: str, *options: str) -> tuple[str, str, list[str], int, Mapping[str, str]]:
    """`transformers serve` of an environment that has its extra `serving`."""
    port = free_port()
    run = "from transformers.cli.transformers import main; main()"
    command = [python, "-c", run, "serve", model, "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    name = "transformers serve" + (" (batching)" if options else "")
    return name, model, [*command, "--dtype", "float32", *options], port, {}


def llama_cpp(binary: str, file: str, slots: int) -> tuple[str, str, list[str], int, Mapping[str, str]]:
    """llama.cpp's server of a GGUF file, with room for so many texts of 512 tokens at once."""
    port = free_port()
    command = [binary, "-m", file, "--host", "127.0.0.1", "--port", str(port)]
    return "llama.cpp", "m", [*command, "-np", str(slots), "-c", str(512 * slots), "-t", "1"], port, {}
