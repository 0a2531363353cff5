"""A replica: the server's application in a Ray actor, called by routers instead of a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from starlette.types import Message

from ...errors import ModelError
from ..asgi import application
from ..settings import Settings
from .loading import unpack_model


@dataclass(frozen=True)
class ReplicaRequest:
    """A complete HTTP request. headers: as in ASGI"""

    method: str
    path: str
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


@dataclass(frozen=True)
class ResponseStart:
    """The start of an answer."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]


class Replica:
    """Loads the model in its process, and answers requests as `application` does."""

    def __init__(self, model: Any, settings: Settings, memory: int | None) -> None:
        self._app = application(unpack_model(model), settings, memory=memory)
        self._lifespan: Any = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._starting = asyncio.Lock()

    async def answer(self, request: ReplicaRequest, key: str) -> AsyncIterator[ResponseStart | bytes]:
        """Yield a ResponseStart, then the body in pieces as they come. key: used only by the router

        If the caller stops early, the request is cancelled as for a disconnected client.
        """
        await self._start()
        messages: asyncio.Queue[Message | None] = asyncio.Queue()
        disconnected = asyncio.Event()
        task = asyncio.ensure_future(self._app(_scope(request), _receiver(request, disconnected), messages.put))
        self._tasks.add(task)
        task.add_done_callback(lambda done: (self._tasks.discard(done), messages.put_nowait(None)))
        try:
            is_started = False
            async for message in _until_end(messages):
                if message["type"] == "http.response.start":
                    is_started = True
                    yield ResponseStart(message["status"], tuple(message["headers"]))
                elif message.get("body"):
                    yield message["body"]
            # Starlette has logged an exception that it raises beside its answer
            if task.exception() is not None and not is_started:
                task.result()
        finally:
            disconnected.set()

    async def check_health(self) -> None:
        """Raise ModelError if the engine's thread has stopped. Ray calls this, and then replaces the replica."""
        service = self._app.state.models.first.service
        if service is not None and not service.engine.is_started:
            raise ModelError("the engine's thread has ended")

    async def _start(self) -> None:
        """Start the application on the event loop of this actor."""
        async with self._starting:
            if self._lifespan is None:
                lifespan = self._app.router.lifespan_context(self._app)
                await lifespan.__aenter__()
                self._lifespan = lifespan


def _scope(request: ReplicaRequest) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": request.path,
        "raw_path": request.path.encode(),
        "root_path": "",
        "query_string": request.query,
        "headers": list(request.headers),
        "client": None,
        "server": None,
        "state": {},
    }


def _receiver(request: ReplicaRequest, disconnected: asyncio.Event) -> Any:
    """Return ASGI's receive function: the body, then nothing until the caller is gone."""
    bodies = [request.body]

    async def receive() -> Message:
        if bodies:
            return {"type": "http.request", "body": bodies.pop(), "more_body": False}
        await disconnected.wait()
        return {"type": "http.disconnect"}

    return receive


async def _until_end(messages: asyncio.Queue[Message | None]) -> AsyncIterator[Message]:
    """Yield messages until None. Waiting pieces of a body are joined."""
    while (message := await messages.get()) is not None:
        is_last = False
        parts: list[bytes] = [message.get("body", b"")]
        while message["type"] == "http.response.body" and not messages.empty():
            more = messages.get_nowait()
            if more is None:
                is_last = True
                break
            message = more
            parts.append(more.get("body", b""))
        yield message if len(parts) == 1 else {**message, "body": b"".join(parts)}
        if is_last:
            return
