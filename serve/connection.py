"""A client's connection: requests that never come to an end are not waited for."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

COMING = (h11.IDLE, h11.SEND_BODY)
"""What a client is at while a request is on its way from it."""


class Connection(H11Protocol):
    """Closes itself where a request takes too long to come, from its first byte to its last, or none comes at all.

    seconds: how long that may take; how long an answer takes is another thing
    """

    seconds: ClassVar[float] = 60.0
    _coming: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The client is there."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """More of a request, or of several."""
        super().data_received(data)
        if self.conn.their_state not in COMING:
            self._wait_no_more()
        elif self._coming is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._wait_no_more()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._coming = self.loop.call_later(self.seconds, self.transport.close)

    def _wait_no_more(self) -> None:
        if self._coming is not None:
            self._coming.cancel()
            self._coming = None


def connection_of(seconds: float) -> type[Any]:
    """The class of connections that wait so long for requests."""
    return type("Connection", (Connection,), {"seconds": seconds})
