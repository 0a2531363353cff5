"""SIGTERM as an interruption like Ctrl-C: finished results are kept."""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

INTERRUPTED = 130
TERMINATED = 143


class Terminated(KeyboardInterrupt):
    """Raised by SIGTERM."""


@dataclass
class Interruption:
    """The signal that ended a command, if any."""

    terminated: bool = False

    @property
    def code(self) -> int:
        """Exit code of the interrupted command."""
        return TERMINATED if self.terminated else INTERRUPTED

    @property
    def word(self) -> str:
        """Description of the interruption."""
        return "terminated" if self.terminated else "interrupted"


@contextmanager
def interruptible() -> Generator[Interruption]:
    """Let SIGTERM raise `Terminated` in a block. Outside of the main thread, signals are left unchanged."""
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
