"""A client's connection, whatever parses it, and connections that h11 parses: requests that never end are dropped."""

from __future__ import annotations

import asyncio
import json
import sys
from http import HTTPStatus
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from .errors import ApiError
from .guard import HEADER_BYTES

HEAD = b"HTTP/1.1 "
"""Beginning of the head of an answer."""


class JoiningTransport:
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


class ConnectionBase(asyncio.Protocol):
    """A base of connections, before a protocol of uvicorn's: it closes those where a request takes too long to come,
    from its first byte to its last, or none comes at all.

    seconds: how long that may take, and how long a client may read nothing of what waits for it; how long an answer
        takes is another thing
    """

    seconds: ClassVar[float] = 60.0
    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    _coming: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The client is there."""
        joined: Any = JoiningTransport(transport, self.loop)  # type: ignore[arg-type]
        super().connection_made(joined)
        self._wait()

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
        """Close the connection after a while, if it is not waited for already."""
        if self._coming is None:
            self._coming = self.loop.call_later(self.seconds, self.transport.close)

    def _wait_no_more(self) -> None:
        if self._coming is not None:
            self._coming.cancel()
            self._coming = None

    def _tell(self, error: ApiError) -> None:
        """Answer a request that no application sees, and close the connection."""
        body = json.dumps(error.body).encode()
        head = f"{error.status} {HTTPStatus(error.status).phrase}\r\nContent-Type: application/json\r\n"
        self.transport.write(HEAD + f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        self.transport.close()


def leave(cycle: Any) -> None:
    """Let whoever answers a request know that the client is gone."""
    cycle.disconnected = True
    cycle.message_event.set()


def too_large() -> ApiError:
    """Error of headers that never end."""
    return ApiError("the headers are too large", status=431, code="headers_too_large")


def no_http(reason: str, status: int = 400) -> ApiError:
    """Error of bytes that are no HTTP request."""
    return ApiError(f"malformed HTTP request: {reason}", status=status, code="invalid_http")


COMING = (h11.IDLE, h11.SEND_BODY)
"""States of a client while a request comes from it."""


class H11Connection(ConnectionBase, H11Protocol):
    """A connection; see `ConnectionBase`."""

    transport: asyncio.Transport

    def data_received(self, data: bytes) -> None:
        """More of a request, or of several."""
        super().data_received(data)
        if self.conn.their_state is h11.DONE and len(self.conn.trailing_data[0]) <= HEADER_BYTES:
            self.flow.resume_reading()  # what waits is not parsed, but nobody would notice that the client goes away
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
        """Answer a malformed request as other mistakes are answered, where no answer is under way."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            fault = sys.exc_info()[1]  # what h11 says, for which this is called
            status = fault.error_status_hint if isinstance(fault, h11.RemoteProtocolError) else 400
            # Behind the colon stands what the client sent.
            self._tell(too_large() if status == 431 else no_http(str(fault or msg).partition(":")[0], status))
        cycle: Any = self.cycle
        if cycle is not None:
            leave(cycle)
        self.transport.close()
