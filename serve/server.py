"""The server process: its socket, signals and shutdown."""

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
"""Seconds that cut requests have to inform their clients."""
TICK_SECONDS = 0.1
"""Polling interval in seconds while draining."""
TELL_SECONDS = 0.1
"""Seconds to inform clients after a second Ctrl-C."""
IDLE_SECONDS = 75
"""Seconds that an idle connection is kept. It is longer than clients keep theirs, so that they do not write to a
closing one."""


class Server(uvicorn.Server):
    """A server that drains on SIGTERM or Ctrl-C, and stops when its requests are done."""

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
        """Wait for running requests, and cut those that exceed the drain time with an error.

        New requests meanwhile get an error rather than a refused connection.
        """
        models = self._models
        models.is_draining = True
        asyncio.get_running_loop().call_later(self._drain_seconds, models.cut)
        running = set(self.server_state.tasks)
        while running and not (models.is_cut or self.force_exit):
            _, running = await asyncio.wait(running, timeout=TICK_SECONDS)
        await super().shutdown(sockets)
        if self.force_exit:  # a second Ctrl-C skips the usual shutdown
            models.cut()
            await asyncio.sleep(TELL_SECONDS)
            await self.lifespan.shutdown()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start draining; a second Ctrl-C stops at once."""
        self._models.is_draining = True
        super().handle_exit(sig, frame)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 for any. Raises OptionError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only for sockets created with IPPROTO_TCP. Without it, the body of an answer waits some
    # 40 ms for the client's acknowledgement of the head.
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
    """Run until a signal stops the server."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(Server(app, settings).serve(sockets=[listening]))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's event loop factory if it is installed; None for asyncio's."""
    return import_module("uvloop").new_event_loop if find_spec("uvloop") else None
