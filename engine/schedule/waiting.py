"""Texts that sit out steps until their constraints have found out what may follow, so that nobody waits for them.

What takes long, a schema that is met for the first time, is found out by another thread: that of the engine, where it
has some, or else the one that waits for the text. Where neither is there, it is found out in the step.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..decode.row import Row
from ..decode.row_search import RowSearch
from .call import Call, Entry
from .preparing import Preparation

PATIENCE = 0.005
"""Seconds after which a step with nothing to read ends, so that others may join."""


class Waiting:
    """Who may wait, and who does. is_attended: whether a thread of the engine's finds out for all"""

    def __init__(self, rows: RowSearch) -> None:
        self.is_attended = False
        self._rows = rows
        self._is_any = False

    def may_wait(self, call: Call, calls: int, running: int) -> bool:
        """Whether a call's texts may wait: if others are held up otherwise, and somebody finds out for them."""
        return running > 1 and (self.is_attended or (calls > 1 and call.waiting > 0))

    def begin(self, entries: Sequence[Entry]) -> None:
        """Ask for what texts wait for, from when they do; after a step."""
        for entry in entries:
            work = entry.work
            if isinstance(work, Row) and work.waits:
                self._is_any = True
                if entry.preparation is None or entry.preparation.row is not work:
                    entry.preparation = Preparation(self._rows, work)

    def resume(self, entries: Sequence[Entry]) -> None:
        """Let those go on that have what they waited for, and those that nobody finds anything out for; before a step.

        Raises what breaks that off, and then they still wait.
        """
        if not self._is_any:
            return
        self._is_any = False
        for entry in entries:
            found = entry.preparation
            if found is None:
                continue
            if not found.is_ended and (self.is_attended or entry.call.waiting):
                self._is_any = True
                continue
            found.finish()
            row = found.row
            if entry.work is row and row.waits:
                if found.error is None:
                    self._rows.resume(row, found.ending)
                else:
                    row.error = found.error
            entry.preparation = None

    def pause(self, entries: Sequence[Entry]) -> None:
        """Where there is nothing to read, let some time pass, as long as a thread is at it."""
        taken = [entry.preparation for entry in entries if entry.preparation is not None]
        for found in taken:
            if found.is_taken and not found.is_ended:
                found.pause(PATIENCE)
                return

    def drop(self, entry: Entry) -> None:
        """Break off what is found out for a text that nobody wants."""
        if entry.preparation is not None:
            entry.preparation.cancel()
