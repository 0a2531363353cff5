"""Keeps Python's cyclic garbage collector out of what should take microseconds."""

from __future__ import annotations

import gc
from types import TracebackType


class CollectionPaused:
    """Inside the block no garbage is collected.

    Growing a constraint makes many objects that stay; that sets off full collections, each of which takes as long
    as a thousand masks. They are put off to after the block. Threads may overlap: the last one that found the
    collector running starts it again.
    """

    __slots__ = ("_was_enabled",)

    def __enter__(self) -> None:
        self._was_enabled = gc.isenabled()
        gc.disable()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._was_enabled:
            gc.enable()
