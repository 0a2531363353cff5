"""Server-sent events, and clients that go away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

T = TypeVar("T")
DONE = b"data: [DONE]\n\n"


class Answer(JSONResponse):
    """JSON, whatever characters are in it."""

    def render(self, content: Any) -> bytes:
        """As clients write it."""
        return _plain(content)


async def answer_of(head: Mapping[str, Any], choices: Iterator[Any], usage: Callable[[], Any]) -> Response:
    """The answer with `choices`, which are made and written one at a time: others are served between them.

    usage: asked when all are made, since they count what was thought
    """
    written: list[bytes] = []
    for choice in choices:
        written.append(_plain(choice))
        await asyncio.sleep(0)
    body = b"".join((_plain(head)[:-1], b',"choices":[', b",".join(written), b'],"usage":', _plain(usage()), b"}"))
    return Response(body, media_type="application/json")


def _plain(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def event(content: Any, name: str | None = None) -> bytes:
    """One event. JSON has no line break within, and no line separator that a reader of lines could take for one."""
    data = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return f"data: {data}\n\n".encode() if name is None else f"event: {name}\ndata: {data}\n\n".encode()


class EventStream(Response):
    """Events as they come. end: called once, when all is sent or the client has gone away."""

    media_type = "text/event-stream"

    def __init__(
        self, events: AsyncIterator[bytes], end: Callable[[], None], headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(None, 200, {"Cache-Control": "no-cache", "X-Accel-Buffering": "no", **(headers or {})})
        del self.headers["content-length"]
        self._events = events
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send them, until the client is gone."""
        sending = asyncio.ensure_future(self._send(send))
        leaving = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            leaving.cancel()
            sending.cancel()
            self._end()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for data in self._events:
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """What comes of some work, which is cancelled when the client goes away. Raises ClientDisconnect."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_gone(request.receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        leaving.cancel()
        working.cancel()


async def _gone(receive: Receive) -> None:
    """Wait until the client has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass
