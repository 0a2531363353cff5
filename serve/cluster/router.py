"""The router: reads requests, passes them to replicas by prefix, and retries after a lost replica."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..bodies import read_whole
from ..endpoints.answers import error_answer, event
from ..errors import SERVER, ApiError, busy
from ..guard import answer_logged, write_access_log
from ..settings import MEDIA_BODY, Settings
from .loading import ray
from .replica import ReplicaRequest, ResponseStart

PREFIX = 1024
"""Characters of a prompt that determine its replica."""
MIN_LOAD_BOUND = 8
"""Number of requests that any replica may have. A batch of eight takes hardly longer than one."""
LOAD_FACTOR = 1.25


def prefix_of(body: bytes) -> str:
    """Return the part of a request's prompt that determines its replica; "" if there is none.

    It contains tools and instructions, then the prompt, or a chat up to the first answer, so that later turns go to the
    same replica.
    """
    try:
        request: Any = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(request, dict):
        return ""
    fields = cast("dict[str, Any]", request)
    prompt: Any = next((fields[name] for name in ("messages", "input", "prompt") if fields.get(name)), "")
    if isinstance(prompt, list):
        prompt = _until_answer(cast("list[Any]", prompt))
    first = [fields.get(name) for name in ("tools", "instructions") if fields.get(name)]
    return json.dumps([*first, prompt], ensure_ascii=True)[:PREFIX]


def _until_answer(messages: Sequence[Any]) -> list[Any]:
    turns: list[Any] = []
    for message in messages:
        if isinstance(message, dict) and cast("dict[str, Any]", message).get("role") == "assistant":
            break
        turns.append(message)
    return turns


def ranked(key: str, loads: Mapping[str, int]) -> list[str]:
    """Return the replicas by name, best first. loads: number of requests of each

    Each key has its own order of all names, which stays the same when replicas come and go (rendezvous hashing, Thaler
    and Ravishankar 1998). Replicas with more than 1.25 times their share come last (consistent hashing with bounded
    loads, Mirrokni, Thorup and Zadimoghaddam 2018).
    """
    bound = max(MIN_LOAD_BOUND, math.ceil(LOAD_FACTOR * (sum(loads.values()) + 1) / max(len(loads), 1)))

    def weight(name: str) -> tuple[bool, bytes]:
        return loads[name] >= bound, hashlib.blake2b(f"{key}\0{name}".encode("utf-8", "replace")).digest()

    return sorted(loads, key=weight)


def _prefix_router() -> Any:
    """Return the router class, which derives from a class of Ray."""
    base: Any = ray("ray.serve.request_router").RequestRouter

    class PrefixRouter(base):
        """Orders replicas by `ranked`. The key of a request is the second argument of its call."""

        async def choose_replicas(self, candidate_replicas: list[Any], pending_request: Any = None) -> list[list[Any]]:
            """Return each replica alone, best first. Ray tries the next one if one has no room."""
            if pending_request is None:
                return [candidate_replicas]
            pending_request.routing_context.should_backoff = True
            replicas = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
            queued: Any = self.replica_queue_len_cache
            loads = {name: queued.get(replica.replica_id) or 0 for name, replica in replicas.items()}
            key = pending_request.args[1] or pending_request.metadata.internal_request_id
            return [[replicas[name]] for name in ranked(key, loads)]

    PrefixRouter.__module__, PrefixRouter.__qualname__ = __name__, "PrefixRouter"
    return PrefixRouter


def __getattr__(name: str) -> Any:
    """Create `PrefixRouter` when Ray looks it up by name."""
    if name != "PrefixRouter":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = router_class = _prefix_router()
    return router_class


_LOG = logging.getLogger("trellm.serve")
_STREAM = b"text/event-stream"
TRIES = b"x-trellm-tries"
_HOP = (b"connection", b"transfer-encoding")


class Router:
    """A deployment of Ray Serve without a model.

    replicas: handle of the replicas; tries: number of replicas that a request is given to, one after the other

    If a replica dies, its requests without a sent answer go to another one. Streams that were partly sent end with an
    error event.
    """

    def __init__(self, replicas: Any, settings: Settings, tries: int) -> None:
        self._replicas = replicas.answer.options(stream=True)
        self._settings = settings
        self._tries = tries
        if settings.access_log:
            write_access_log()
        self._lost_error = ray("ray.exceptions").RayActorError
        self._full_error = ray("ray.serve.exceptions").BackPressureError
        self._retries = ray("ray.serve.metrics").Counter(
            "trellm_requests_given_again",
            "Requests that were repeated on another replica after theirs was lost before the first byte of the answer.",
        )
        self._broken_streams = ray("ray.serve.metrics").Counter(
            "trellm_streams_lost", "Streams that broke off because their replica was lost."
        )

    async def __call__(self, request: Request) -> Response:
        """Return the answer of a replica."""
        try:
            return _LoggedResponse(_ForwardedResponse(self, await self._read(request)))
        except ApiError as error:
            return _LoggedResponse(error_answer(error, request.url.path))

    async def _read(self, request: Request) -> ReplicaRequest:
        """Read a whole request. Raises ApiError."""
        body = await read_whole(request, self._settings.body_bytes or MEDIA_BODY)
        headers = tuple((name, value) for name, value in request.scope["headers"] if name not in _HOP)
        query: bytes = request.scope.get("query_string", b"")
        return ReplicaRequest(request.method, request.url.path, query, headers, body)

    async def pieces(self, request: ReplicaRequest) -> AsyncIterator[ResponseStart | bytes]:
        """Yield the answer of a replica. A ResponseStart waits for a first piece of a stream, so that another replica
        can retry.

        Raises ApiError if all replicas are full, or if all tries lost their replica.
        """
        key = prefix_of(request.body) if request.method == "POST" else ""
        for number in range(1, self._tries + 1):
            held: list[ResponseStart | bytes] = []
            is_sent = False
            answers: Any = None
            is_done = False
            try:
                answers = self._replicas.remote(request, key)
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
            except self._full_error:
                is_done = True
                raise busy("all replicas are at capacity; try again") from None
            except self._lost_error as error:
                is_done = True
                if is_sent:
                    self._broken_streams.inc()
                    yield _error_event(request)
                    return
                if number == self._tries:
                    raise _replicas_lost_error(error) from None
                self._retries.inc()
                _LOG.warning("a replica was lost; %s %s is repeated on another one", request.method, request.path)
            finally:
                if not is_done and answers is not None:
                    answers.cancel()


class _ForwardedResponse(Response):
    """The answer of a replica, forwarded as it comes."""

    def __init__(self, router: Router, request: ReplicaRequest) -> None:
        super().__init__(None)
        self._router = router
        self._request = request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer. Ray cancels this task when the client disconnects, which cancels the replica's work."""
        pieces = self._router.pieces(self._request)
        try:
            async for piece in pieces:
                if isinstance(piece, ResponseStart):
                    headers = [(name, value) for name, value in piece.headers if name not in _HOP]
                    await send({"type": "http.response.start", "status": piece.status, "headers": headers})
                else:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except ApiError as error:
            await error_answer(error, self._request.path)(scope, receive, send)
        finally:
            await pieces.aclose()  # type: ignore[attr-defined]


class _LoggedResponse(Response):
    """An answer with an access log line. Only the router knows the client and the outcome."""

    def __init__(self, answer: Response) -> None:
        super().__init__(None)
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer, and log it."""
        await answer_logged(self._answer, scope, receive, send)


def _with_tries(piece: ResponseStart | bytes, number: int) -> ResponseStart | bytes:
    """Add the number of tries to the headers of an answer."""
    if not isinstance(piece, ResponseStart):
        return piece
    return ResponseStart(piece.status, (*piece.headers, (TRIES, b"%d" % number)))


def _is_stream(start: ResponseStart | bytes) -> bool:
    return isinstance(start, ResponseStart) and any(
        name == b"content-type" and value.startswith(_STREAM) for name, value in start.headers
    )


def _replicas_lost_error(error: BaseException) -> ApiError:
    _LOG.error("a request failed because its replicas were lost: %s", str(error).partition("\n")[0])
    return ApiError(
        "the replicas that had this request were lost; try again",
        status=503,
        kind=SERVER,
        code="replica_lost",
        headers={"Retry-After": "1"},
    )


def _error_event(request: ReplicaRequest) -> bytes:
    """Return the last event of a stream whose replica was lost."""
    error = {
        "message": "the replica was lost during this stream; try again",
        "type": SERVER,
        "param": None,
        "code": "replica_lost",
    }
    if request.path.endswith("/responses"):
        return event({"type": "error", **error}, "error")
    return event({"error": error})
