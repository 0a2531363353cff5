"""Python's garbage collector runs again after a call, whatever ended the call."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def gc_restored() -> Generator[None]:
    """A block after which garbage is collected if it was before.

    Guides put collections off while they work. An interrupt can arrive after they did, and before they are in the block
    that would undo it.
    """
    was_running = gc.isenabled()
    try:
        yield
    finally:
        if was_running:
            gc.enable()
