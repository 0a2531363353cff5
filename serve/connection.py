"""A client's connection: requests that never come to an end are not waited for, and what is no HTTP is told so."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from .errors import ApiError

COMING = (h11.IDLE, h11.SEND_BODY)
"""What a client is at while a request is on its way from it."""


HEAD = b"HTTP/1.1 "
"""What the head of an answer begins with."""


class Joined:
    """A transport that sends an answer's head together with what is written next in the same go of the event loop.

    Each call of the system lets another thread have the interpreter, and to have it back takes as long as all the rest.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""

    def write(self, data: bytes) -> None:
        """Send it, a head soon."""
        if not self._head and data.startswith(HEAD):
            self._head = data
            self._loop.call_soon(self._flush)
        elif data:
            head, self._head = self._head, b""
            self._transport.write(head + data if head else data)

    def close(self) -> None:
        """Send what was written, and close."""
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        """All else is as the transport has it."""
        return getattr(self._transport, name)

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)


class Connection(H11Protocol):
    """Closes itself where a request takes too long to come, from its first byte to its last, or none comes at all.

    seconds: how long that may take, and how long a client may read nothing of what waits for it; how long an answer
        takes is another thing
    """

    seconds: ClassVar[float] = 60.0
    _coming: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The client is there."""
        joined: Any = Joined(transport, self.loop)
        super().connection_made(joined)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """More of a request, or of several."""
        super().data_received(data)
        if self.conn.their_state not in COMING:
            self._wait_no_more()
        elif self._coming is None:
            self._wait()

    def on_response_complete(self) -> None:
        """An answer is sent; of a request that came with the one before it, the rest may be missing."""
        super().on_response_complete()
        has_begun = self.conn.their_state is h11.SEND_BODY or bool(self.conn.trailing_data[0])
        if has_begun and self.conn.their_state in COMING and self._coming is None:
            self._wait()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP as other mistakes are answered, where no answer is under way."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            fault = sys.exc_info()[1]  # what h11 says, for which this is called
            status = fault.error_status_hint if isinstance(fault, h11.RemoteProtocolError) else 400
            reason = str(fault or msg).partition(":")[0]  # behind it stands what the client sent
            said = "the headers are too large" if status == 431 else f"what came is no request of HTTP: {reason}"
            code = "headers_too_large" if status == 431 else "invalid_http"
            body = json.dumps(ApiError(said, code=code).body).encode()
            headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close"}
            answer = h11.Response(status_code=status, headers=list(headers.items()))
            for event in (answer, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._wait_no_more()
        self._watch_no_more()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Much waits for the client to read it."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """The client has read most of it."""
        self._watch_no_more()
        super().resume_writing()

    def _watch(self) -> None:
        """Look after a while whether the client has read anything: its texts and their room would wait for ever."""
        size = self.transport.get_write_buffer_size()

        def look() -> None:
            if self.transport.get_write_buffer_size() < size:
                self._watch()
            else:
                self.transport.abort()

        self._reading = self.loop.call_later(self.seconds, look)

    def _watch_no_more(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _wait(self) -> None:
        self._coming = self.loop.call_later(self.seconds, self.transport.close)

    def _wait_no_more(self) -> None:
        if self._coming is not None:
            self._coming.cancel()
            self._coming = None


def connection_of(seconds: float) -> type[Any]:
    """The class of connections that wait so long for requests."""
    return type("Connection", (Connection,), {"seconds": seconds})
