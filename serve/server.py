"""The server process: socket, signals, shutdown, and the connections of clients.

A time limit closes connections with incomplete requests. httptools, in C, parses requests. With h11, in Python, the
server answers a third fewer small requests (eight connections, texts of one token).
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from enum import Enum
from http import HTTPStatus
from importlib import import_module
from importlib.util import find_spec
from types import FrameType
from typing import Any, ClassVar

import httptools
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..errors import OptionError
from .errors import ApiError
from .guard import HEADER_BYTES
from .hosting.manager import ModelManager
from .settings import Settings

BACKLOG = 2048
CUT_SECONDS = 5
"""Seconds for cut requests to send errors to their clients."""
TICK_SECONDS = 0.1
"""Polling interval in seconds while draining."""
ERROR_SECONDS = 0.1
"""Seconds for errors to clients after a second Ctrl-C."""
IDLE_SECONDS = 75
"""Seconds that an idle connection stays open: more than in clients, which would else write to a closing one."""


class Server(uvicorn.Server):
    """A uvicorn server that drains on SIGTERM or Ctrl-C, and stops when its requests are done."""

    def __init__(self, app: Starlette, settings: Settings) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=type("Connection", (Connection,), {"seconds": settings.request_seconds}),
                ws="none",
                timeout_graceful_shutdown=CUT_SECONDS,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=BACKLOG,
                timeout_keep_alive=IDLE_SECONDS,
            )
        )
        self._models: ModelManager = app.state.models
        self._drain_seconds = settings.drain_seconds

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for running requests, up to the drain time. The rest ends with an error.

        New requests get an error until then, rather than a refused connection.
        """
        models = self._models
        models.is_draining = True
        asyncio.get_running_loop().call_later(self._drain_seconds, models.cut)
        running = set(self.server_state.tasks)
        while running and not (models.is_cut or self.force_exit):
            _, running = await asyncio.wait(running, timeout=TICK_SECONDS)
        await super().shutdown(sockets)
        if self.force_exit:  # after a second Ctrl-C, uvicorn skips the lifespan's end
            models.cut()
            await asyncio.sleep(ERROR_SECONDS)
            await self.lifespan.shutdown()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start draining; a second Ctrl-C stops at once."""
        self._models.is_draining = True
        super().handle_exit(sig, frame)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. port: 0 for any free one. Raises OptionError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only for sockets created with IPPROTO_TCP. Without it, an answer's body waits some 40 ms
    # for the client's acknowledgement of the head.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise OptionError(f"cannot listen on {host}, port {port}: {error.strerror or error}") from None
    return listener


def run(app: Starlette, settings: Settings, listening: socket.socket) -> None:
    """Run until a signal stops the server."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(Server(app, settings).serve(sockets=[listening]))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's event loop factory if it is installed; None for asyncio's."""
    return import_module("uvloop").new_event_loop if find_spec("uvloop") else None


HEAD = b"HTTP/1.1 "
"""First bytes of an answer's head."""
MAX_WAITING = 8
"""Most pipelined requests with which a connection reads on while an earlier one is answered."""


class JoiningTransport:
    """A transport that joins an answer's head with the next write in the same iteration of the event loop.

    This saves a system call. Each releases the GIL, and waiting for it takes as long as all other work.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""

    def write(self, data: bytes) -> None:
        """Write data. A head waits for the next write, or the next iteration of the event loop."""
        if not self._head and data.startswith(HEAD):
            self._head = data
            self._loop.call_soon(self._flush)
        elif data:
            head, self._head = self._head, b""
            self._transport.write(head + data if head else data)

    def close(self) -> None:
        """Flush and close."""
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        """Delegate other attributes to the transport."""
        return getattr(self._transport, name)

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)


class ParserState(Enum):
    """Parser position: between requests, in a head, or in a body."""

    BETWEEN = 0
    HEAD = 1
    BODY = 2


class HostError(Exception):
    """Raised for a request without exactly one Host header. It becomes the context of the parser's error."""


class Connection(HttpToolsProtocol):
    """A connection with time limits for incoming requests, and bounds of headers and pipelined requests.

    Requests wait in `pipeline` until earlier ones are answered. llhttp neither bounds headers nor stops reading during
    an answer, so this class does.
    seconds: time limit of an incoming request, and of a client that reads none of the sent data; answers have no limit
    """

    seconds: ClassVar[float] = 60.0
    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    _request_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _state = ParserState.BETWEEN
    _head_count = 0
    _head_bytes = 0
    _active_cycle: Any = None
    _fault: ApiError | None = None
    _is_reparsing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the time limit."""
        joined: Any = JoiningTransport(transport, self.loop)  # type: ignore[arg-type]
        super().connection_made(joined)
        self._start_request_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop waiting requests."""
        self._stop_request_timer()
        self._stop_write_timer()
        waiting = [cycle for cycle, _ in self.pipeline]
        self.pipeline.clear()
        for cycle in [self._active_cycle, *waiting]:
            if cycle is not None:
                _disconnect(cycle)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Feed data to the parser."""
        if self._fault is not None:
            return
        self._unset_keepalive_if_required()
        self._head_count = 0
        before = self._state
        self._feed(data)
        if self._state is ParserState.HEAD and self._fault is None:
            # The size of a head is only known if the data contains no other request.
            if self._head_count == (0 if before is ParserState.HEAD else 1) and before is not ParserState.BODY:
                self._head_bytes += len(data)
            if self._head_bytes > HEADER_BYTES:
                self._refuse(_too_large_error())
        if self._fault is None and 0 < len(self.pipeline) <= MAX_WAITING and len(self.cycle.body) <= HEADER_BYTES:
            self.flow.resume_reading()  # without reading, a disconnect would go unnoticed
        self._update_request_timer()

    def on_message_begin(self) -> None:
        """Reset the head's counters."""
        if self._is_reparsing:
            return
        self._state = ParserState.HEAD
        self._head_count += 1
        self._head_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Forward the path."""
        if not self._is_reparsing:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Forward a header. Trailers after the body are ignored."""
        if self._state is ParserState.HEAD:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start or queue a request."""
        if self._is_reparsing:
            self._is_reparsing = False
            return
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts != 1 and self.parser.get_http_version() == "1.1":  # ambiguous (RFC 9112, 3.2)
            raise HostError(f"a request must have one Host header, not {hosts}")
        self._state = ParserState.BODY
        is_answering = self._is_answering
        super().on_headers_complete()
        if not is_answering:
            self._active_cycle = self.cycle

    def on_message_complete(self) -> None:
        """Mark the end of a request."""
        if self.parser.should_upgrade():
            return
        self._state = ParserState.BETWEEN
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Continue with the next request, which may not have arrived completely."""
        self._active_cycle = self.pipeline[-1][0] if self.pipeline else None
        super().on_response_complete()
        if self._active_cycle is None and self._fault is not None:
            self._send_error(self._fault)
        elif self._state is not ParserState.BETWEEN:
            self._update_request_timer()

    def send_400_response(self, msg: str) -> None:
        """Answer a malformed request in the server's own error format."""
        self._refuse(_malformed_error(msg))

    def pause_writing(self) -> None:
        """Set the time limit of a client that does not read."""
        super().pause_writing()
        self._start_write_timer()

    def resume_writing(self) -> None:
        """Clear the time limit when the client has read most data."""
        self._stop_write_timer()
        super().resume_writing()

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as found:
            self._restart_parser(data[found.args[0] :])
        except httptools.HttpParserError as fault:
            self.send_400_response(str(fault.__context__ if isinstance(fault.__context__, HostError) else fault))

    def _restart_parser(self, data: bytes) -> None:
        """Parse data after the head of a request with an Upgrade header, at which llhttp stops.

        A new parser first gets a synthetic head without that header.
        """
        names = (b"content-length", b"transfer-encoding")
        fields = [name + b": " + value + b"\r\n" for name, value in self.scope["headers"] if name in names]
        self.parser = httptools.HttpRequestParser(self)
        self._is_reparsing = True
        self._feed(b"".join([b"POST / HTTP/1.1\r\n", *fields, b"\r\n", data]))

    @property
    def _is_answering(self) -> bool:
        return self._active_cycle is not None and not self._active_cycle.response_complete

    def _update_request_timer(self) -> None:
        """Set the time limit for the rest of a request, or clear it while an earlier request is answered."""
        is_current = self._state is ParserState.BODY and self._active_cycle is self.cycle
        if self._is_answering and not is_current:
            self._stop_request_timer()
        elif not self.transport.is_closing():
            self._start_request_timer()

    def _refuse(self, error: ApiError) -> None:
        """Answer with an error after the answers of earlier requests."""
        self._fault = error
        if self._state is ParserState.BODY and self.pipeline:
            self.pipeline.popleft()
        elif (
            self._state is ParserState.BODY and self._is_answering
        ):  # the faulty data belong to the request that is being answered
            assert self._active_cycle is not None
            if self._active_cycle.response_started:
                self.transport.close()
                return
            _disconnect(self._active_cycle)
            self._active_cycle = None
        if self._is_answering:
            self.flow.pause_reading()
        else:
            self._send_error(error)

    def _start_write_timer(self) -> None:
        """Abort the connection if the client reads nothing for `seconds`, which frees the memory of its sequences."""
        size = self.transport.get_write_buffer_size()

        def check_progress() -> None:
            if self.transport.get_write_buffer_size() < size:
                self._start_write_timer()
            else:
                self.transport.abort()

        self._write_timer = self.loop.call_later(self.seconds, check_progress)

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _start_request_timer(self) -> None:
        """Start the time limit unless it is running."""
        if self._request_timer is None:
            self._request_timer = self.loop.call_later(self.seconds, self.transport.close)

    def _stop_request_timer(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _send_error(self, error: ApiError) -> None:
        """Send an error without the application, and close the connection."""
        body = json.dumps(error.body).encode()
        head = f"{error.status} {HTTPStatus(error.status).phrase}\r\nContent-Type: application/json\r\n"
        self.transport.write(HEAD + f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        self.transport.close()


def _disconnect(cycle: Any) -> None:
    """Mark a request as disconnected, and wake its handler."""
    cycle.disconnected = True
    cycle.message_event.set()


def _too_large_error() -> ApiError:
    """Return the error of too large headers."""
    return ApiError("the headers are too large", status=431, code="headers_too_large")


def _malformed_error(reason: str, status: int = 400) -> ApiError:
    """Return the error of malformed HTTP."""
    return ApiError(f"malformed HTTP request: {reason}", status=status, code="invalid_http")
