"""SIGTERM ends a command as Ctrl-C does: what is finished is kept."""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

INTERRUPTED = 130
TERMINATED = 143


class Terminated(KeyboardInterrupt):
    """SIGTERM."""


@dataclass
class Interruption:
    """The signal that came, if any."""

    terminated: bool = False

    @property
    def code(self) -> int:
        """The exit code of a command that a signal ended."""
        return TERMINATED if self.terminated else INTERRUPTED

    @property
    def word(self) -> str:
        """A word for what happened to the command."""
        return "terminated" if self.terminated else "interrupted"


@contextmanager
def ending() -> Generator[Interruption]:
    """A block in which SIGTERM raises `Terminated`; signals are the main thread's, others are left as they are."""
    state = Interruption()

    def end(number: int, frame: FrameType | None) -> None:
        state.terminated = True
        raise Terminated

    try:
        before = signal.signal(signal.SIGTERM, end)
    except ValueError:  # not in the main thread
        yield state
        return
    try:
        yield state
    finally:
        signal.signal(signal.SIGTERM, before)
