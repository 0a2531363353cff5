"""The door: reads a request whole, says where it goes by how it begins, and asks again where a replica was lost."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..bodies import whole
from ..endpoints.events import event, refused
from ..errors import SERVER, ApiError, busy
from ..settings import Settings
from .packages import ray
from .replica import Ask, Start
from .routing import prefix_of

_LOG = logging.getLogger("trellm.serve")
_STREAM = b"text/event-stream"
TRIES = b"x-trellm-tries"
_HOP = (b"connection", b"transfer-encoding")


class Door:
    """A deployment of Ray Serve without a model.

    replicas: the handle of those that answer; tries: how many replicas a request is given to, one after the other
    A replica that dies takes with it what it was running. What has not been answered in any part is given to another
    one; a stream of which some has been sent ends with an event that says so.
    """

    def __init__(self, replicas: Any, settings: Settings, tries: int) -> None:
        self._replicas = replicas.answer.options(stream=True)
        self._settings = settings
        self._tries = tries
        self._lost = ray("ray.exceptions").RayActorError
        self._full = ray("ray.serve.exceptions").BackPressureError
        self._again = ray("ray.serve.metrics").Counter(
            "trellm_requests_given_again", "Requests whose replica was lost before any of their answer was sent."
        )
        self._ended = ray("ray.serve.metrics").Counter(
            "trellm_streams_lost", "Streams whose replica was lost in the midst of them."
        )

    async def __call__(self, request: Request) -> Response:
        """The answer of a replica."""
        try:
            ask = await self._read(request)
        except ApiError as error:
            return refused(error)
        return _Passed(self, ask)

    async def _read(self, request: Request) -> Ask:
        """The request, whole. Raises ApiError."""
        body = await whole(request, self._settings.body_bytes)
        headers = tuple((name, value) for name, value in request.scope["headers"] if name not in _HOP)
        query: bytes = request.scope.get("query_string", b"")
        return Ask(request.method, request.url.path, query, headers, body)

    async def pieces(self, ask: Ask) -> AsyncIterator[Start | bytes]:
        """What a replica answers: a Start with a piece of the body at once, so that a stream can be given to another.

        Raises ApiError where all is full, or where replicas were lost as often as is tried.
        """
        key = prefix_of(ask.body) if ask.method == "POST" else ""
        for number in range(1, self._tries + 1):
            held: list[Start | bytes] = []
            is_sent = False
            answers: Any = None
            is_done = False
            try:
                answers = self._replicas.remote(ask, key)
                async for piece in answers:
                    held.append(piece if number == 1 else _with_tries(piece, number))
                    if is_sent or (len(held) > 1 and _is_stream(held[0])):
                        is_sent = True
                        for each in held:
                            yield each
                        held.clear()
                is_done = True
                for each in held:
                    yield each
                return
            except self._full:
                is_done = True
                raise busy("all replicas have as much to do as they may; try again") from None
            except self._lost as error:
                is_done = True
                if is_sent:
                    self._ended.inc()
                    yield _broken(ask)
                    return
                if number == self._tries:
                    raise _gone(error) from None
                self._again.inc()
                _LOG.warning("a replica was lost; %s %s is given to another", ask.method, ask.path)
            finally:
                if not is_done and answers is not None:
                    answers.cancel()


class _Passed(Response):
    """What comes from a replica, sent as it comes."""

    def __init__(self, door: Door, ask: Ask) -> None:
        super().__init__(None)
        self._door = door
        self._ask = ask

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it. Ray cancels this when the client is gone, and `pieces` what the replica is at."""
        pieces = self._door.pieces(self._ask)
        try:
            async for piece in pieces:
                if isinstance(piece, Start):
                    headers = [(name, value) for name, value in piece.headers if name not in _HOP]
                    await send({"type": "http.response.start", "status": piece.status, "headers": headers})
                else:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except ApiError as error:
            await refused(error)(scope, receive, send)
        finally:
            await pieces.aclose()  # type: ignore[attr-defined]


def _with_tries(piece: Start | bytes, number: int) -> Start | bytes:
    """The beginning of an answer says how many replicas were asked for it."""
    if not isinstance(piece, Start):
        return piece
    return Start(piece.status, (*piece.headers, (TRIES, b"%d" % number)))


def _is_stream(start: Start | bytes) -> bool:
    return isinstance(start, Start) and any(
        name == b"content-type" and value.startswith(_STREAM) for name, value in start.headers
    )


def _gone(error: BaseException) -> ApiError:
    _LOG.error("a request was given up: %s", str(error).partition("\n")[0])
    return ApiError(
        "the replicas that had this request were lost; try again",
        status=503,
        kind=SERVER,
        code="replica_lost",
        headers={"Retry-After": "1"},
    )


def _broken(ask: Ask) -> bytes:
    """The last event of a stream whose replica was lost."""
    said = {
        "message": "the replica that wrote this was lost in the midst of it; ask again",
        "type": SERVER,
        "param": None,
        "code": "replica_lost",
    }
    if ask.path.endswith("/responses"):
        return event({"type": "error", **said}, "error")
    return event({"error": said})
