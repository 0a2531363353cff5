"""A client's connection, whatever parses it: requests that never come to an end are not waited for."""

from __future__ import annotations

import asyncio
import json
from typing import Any, ClassVar

from .errors import ApiError

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


class Watched(asyncio.Protocol):
    """What connections have in common: they close themselves where a request takes too long to come, from its first
    byte to its last, or none comes at all. Goes before a protocol of uvicorn's.

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
        joined: Any = Joined(transport, self.loop)  # type: ignore[arg-type]
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


def too_large() -> ApiError:
    """What is said of headers that never end."""
    return ApiError("the headers are too large", status=431, code="headers_too_large")


def no_http(reason: str, status: int = 400) -> ApiError:
    """What is said of what is no HTTP."""
    return ApiError(f"what came is no request of HTTP: {reason}", status=status, code="invalid_http")


def answer_to(error: ApiError) -> tuple[dict[str, str], bytes]:
    """The headers and the body that answer it; then the connection is closed."""
    body = json.dumps(error.body).encode()
    return {"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close"}, body
