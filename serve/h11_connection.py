"""Connections that h11 parses, which is there wherever uvicorn is."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from .connection import Watched, answer_to, no_http, too_large

COMING = (h11.IDLE, h11.SEND_BODY)
"""What a client is at while a request is on its way from it."""


class H11Connection(Watched, H11Protocol):
    """A connection; see `Watched`."""

    transport: asyncio.Transport

    def data_received(self, data: bytes) -> None:
        """More of a request, or of several."""
        super().data_received(data)
        if self.conn.their_state not in COMING:
            self._wait_no_more()
        else:
            self._wait()

    def on_response_complete(self) -> None:
        """An answer is sent; of a request that came with the one before it, the rest may be missing."""
        super().on_response_complete()
        has_begun = self.conn.their_state is h11.SEND_BODY or bool(self.conn.trailing_data[0])
        if has_begun and self.conn.their_state in COMING:
            self._wait()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP as other mistakes are answered, where no answer is under way."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            fault = sys.exc_info()[1]  # what h11 says, for which this is called
            status = fault.error_status_hint if isinstance(fault, h11.RemoteProtocolError) else 400
            # Behind the colon stands what the client sent.
            error = too_large() if status == 431 else no_http(str(fault or msg).partition(":")[0], status)
            headers, body = answer_to(error)
            answer = h11.Response(status_code=error.status, headers=list(headers.items()))
            for event in (answer, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        cycle: Any = self.cycle
        if cycle is not None:  # whoever would answer meanwhile does so to nobody
            cycle.disconnected = True
            cycle.message_event.set()
        self.transport.close()
