"""The server as a process: its socket, its signals, and how it ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from ..errors import OptionError
from .connection import Connection
from .hosting.manager import ModelManager
from .settings import Settings

BACKLOG = 2048
CUT_SECONDS = 5
"""So long what was cut when draining was over may take to tell its clients."""
TICK_SECONDS = 0.1
"""So often it is looked at whether draining is to end, where not all that ran has ended."""
TELL_SECONDS = 0.1
"""The same where a second Ctrl-C ended it."""
IDLE_SECONDS = 75
"""So long a connection without a request is kept: longer than clients keep theirs, or they write into one that is
being closed."""


class Server(uvicorn.Server):
    """Takes no requests any more after SIGTERM or Ctrl-C, and ends when those that run are done."""

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
        """Wait for what runs, and let what takes too long end with an error, which its client is told.

        Meanwhile whoever comes is told to go elsewhere, and not left before a closed door.
        """
        models = self._models
        models.is_draining = True
        asyncio.get_running_loop().call_later(self._drain_seconds, models.cut)
        running = set(self.server_state.tasks)
        while running and not (models.is_cut or self.force_exit):
            _, running = await asyncio.wait(running, timeout=TICK_SECONDS)
        await super().shutdown(sockets)
        if self.force_exit:  # then nothing else has been ended
            models.cut()
            await asyncio.sleep(TELL_SECONDS)
            await self.lifespan.shutdown()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain; a second Ctrl-C ends at once."""
        self._models.is_draining = True
        super().handle_exit(sig, frame)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 for any. Raises OptionError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio lets small packets go at once only where a socket says that it is one of TCP; else an answer's body waits
    # some 40 ms for the client to acknowledge the head.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
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
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(Server(app, settings).serve(sockets=[listening]))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where it is installed; else asyncio's."""
    return import_module("uvloop").new_event_loop if find_spec("uvloop") else None
