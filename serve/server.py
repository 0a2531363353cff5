"""The server as a process: its socket, its signals, and how it ends."""

from __future__ import annotations

import asyncio
import socket
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from ..errors import OptionError
from .connection import connection_of
from .guard import HEADER_BYTES
from .settings import Settings

BACKLOG = 2048


class Server(uvicorn.Server):
    """Takes no requests any more after SIGTERM or Ctrl-C, and ends when those that run are done."""

    def __init__(self, app: Starlette, settings: Settings) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=connection_of(settings.request_seconds),  # of h11, whose limit of headers is known
                ws="none",
                h11_max_incomplete_event_size=HEADER_BYTES,
                timeout_graceful_shutdown=max(1, round(settings.drain_seconds)),
                log_level="warning",
                access_log=False,
                server_header=False,
                backlog=BACKLOG,
            )
        )
        self._app = app

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain; a second Ctrl-C ends at once."""
        service = getattr(self._app.state, "service", None)
        if service is not None:
            service.is_draining = True
        super().handle_exit(sig, frame)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 for any. Raises OptionError."""
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        raise OptionError(f"cannot listen on {host}, port {port}: {error.strerror or error}") from None
    return made


def run(app: Starlette, settings: Settings, listening: socket.socket) -> None:
    """Run until a signal ends it."""
    asyncio.run(Server(app, settings).serve(sockets=[listening]))
