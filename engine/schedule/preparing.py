"""What takes long to find out of a row's constraint, found out beside the steps, which the row sits out meanwhile."""

from __future__ import annotations

import threading

from ...errors import Cancelled
from ...guides.limits import Cancellation
from ..decode.row import Row
from ..decode.row_search import Ending, RowSearch


class Preparation:
    """What a row's guide has yet to find out, for whichever thread takes it first. The row is not touched.

    ending: what the guide does not remember; error: what it raised
    """

    def __init__(self, rows: RowSearch, row: Row) -> None:
        self.row = row
        self.ending: Ending | None = None
        self.error: Exception | None = None
        self._rows = rows
        self._taken = threading.Lock()
        self._ended = threading.Event()
        self._stop = Cancellation()

    @property
    def is_taken(self) -> bool:
        """Whether a thread is at it, or was."""
        return self._taken.locked()

    @property
    def is_ended(self) -> bool:
        """Whether it is done, or was broken off: then the row finds out the rest in its step."""
        return self._ended.is_set()

    def run(self) -> None:
        """Do it; nothing if another thread does."""
        if not self._taken.acquire(blocking=False):
            return
        try:
            with self._stop:
                self.ending = self._rows.prepare(self.row)
        except Cancelled:
            return
        except Exception as error:
            self.error = error
        finally:
            self._ended.set()

    def finish(self) -> None:
        """Do it, or wait for the thread that does."""
        self.run()
        self._ended.wait()

    def pause(self, seconds: float) -> None:
        """Wait for the thread that does it, so long at most."""
        self._ended.wait(seconds)

    def cancel(self) -> None:
        """Break it off: nobody wants it any more."""
        self._stop.cancel()
