"""Runs the instruments of benchmarks/fuzz in processes of their own, with an end in sight."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

INSTRUMENTS = Path(__file__).resolve().parents[2] / "benchmarks" / "fuzz"
SECONDS = 3000
"""How long an instrument may take: many times what it takes, so that only a hang is as long."""


@pytest.fixture(scope="session")
def instrument() -> Callable[..., str]:
    """Run a script with arguments; what it printed. Fails with that where the script says that something is wrong."""

    def run(script: str, *arguments: str) -> str:
        command = [sys.executable, str(INSTRUMENTS / script), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 0, f"{script} {' '.join(arguments)}\n{done.stdout[-8000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    return run
