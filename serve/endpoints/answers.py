"""HTTP responses: JSON, whole or in parts; server-sent events; client disconnects; leases of models for requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from ...engine.handle import Piece
from ...engine.results import Generation
from ...guides.quoting.source import Span
from ..errors import ApiError
from ..generation import Beginning, GenerationRequest
from ..hosting.manager import ModelManager
from ..service import Service

T = TypeVar("T")
Event = tuple[str, dict[str, Any]]
"""The type of an event, and its fields."""
MAX_DROPPED_BYTES = 16 << 20
"""Most bytes to read and drop after a request was refused before its end."""
DROP_SECONDS = 5
"""Most seconds to read and drop them."""
DONE = b"data: [DONE]\n\n"
LARGE = 1 << 18
"""Size in bytes from which an answer is sent in parts rather than joined."""
ITEMS = 128
"""List items to serialize in one call, which takes some milliseconds for items with top tokens."""


class Answer(JSONResponse):
    """A JSON answer in UTF-8."""

    def render(self, content: Any) -> bytes:
        """Serialize the content."""
        return _dump(content)


class LastAnswer(Answer):
    """An answer before a connection closes, even if the client is still sending.

    It reads and drops incoming data for a while: if a system closes a connection with unread data, the client may lose
    the answer.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer. End it when the client has sent all, or one of the bounds is reached."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        with suppress(TimeoutError):
            async with asyncio.timeout(DROP_SECONDS):
                await _drop(receive)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _drop(receive: Receive) -> None:
    """Read and drop the rest of a request, up to some DROPPED bytes."""
    size, more = 0, True
    while more and size <= MAX_DROPPED_BYTES:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)


def error_answer(error: ApiError, path: str) -> Answer:
    """Return the answer of an error in the format of the path's API."""
    answer_class = LastAnswer if error.headers.get("Connection") == "close" else Answer
    body = error.as_anthropic() if path.startswith("/v1/messages") else error.body
    return answer_class(error.as_ollama() if path.startswith("/api/") else body, error.status, error.headers)


class LargeAnswer(Response):
    """Serialized JSON, sent in parts at the client's pace."""

    media_type = "application/json"

    def __init__(self, parts: Sequence[bytes]) -> None:
        super().__init__(None, 200, {"Content-Length": str(sum(map(len, parts)))})
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the parts."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for part in self._parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def answer_of(
    head: Mapping[str, Any], items: Sequence[bytes], usage: Mapping[str, Any], name: str = "choices", more: bytes = b""
) -> Response:
    """Return an answer from serialized items. name: their field; more: serialized log-probabilities of a prompt"""
    parts = [_dump(head)[:-1] + f',"{name}":['.encode(), *items[:1]]
    for item in items[1:]:
        parts += [b",", item]
    parts += [b"]", *([b',"prompt_logprobs":', more] if more else [])]
    parts.append(b',"usage":' + _dump(usage) + b"}")
    if sum(map(len, parts)) > LARGE:
        return LargeAnswer(parts)
    return Response(b"".join(parts), media_type="application/json")


def serialize(content: Any) -> Iterator[bytes]:
    """Serialize JSON in parts, between which other threads can take the GIL."""
    if isinstance(content, dict):
        opening = b"{"
        for name, value in cast("dict[str, Any]", content).items():
            yield opening + _dump(name) + b":"
            yield from serialize(value)
            opening = b","
        yield b"}" if opening == b"," else b"{}"
    elif isinstance(content, list) and len(cast("list[Any]", content)) > ITEMS:
        items = cast("list[Any]", content)
        for at in range(0, len(items), ITEMS):
            yield (b"," if at else b"[") + _dump(items[at : at + ITEMS])[1:-1]
        yield b"]"
    else:
        yield _dump(content)


def _dump(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def event(content: Any, name: str | None = None) -> bytes:
    """Serialize a server-sent event. JSON in ASCII contains no line breaks or line separators."""
    data = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return f"data: {data}\n\n".encode() if name is None else f"event: {name}\ndata: {data}\n\n".encode()


@dataclass(frozen=True)
class Stream:
    """Serializers of a streamed answer. Each may return no bytes.

    begin: first bytes of the answer
    piece: serializes a piece of a sequence, with the sequence's end if it is the last one
    end: serializes the end of the answer
    failed: serializes an error that ends the answer
    """

    piece: Callable[[Piece], bytes]
    begin: bytes = b""
    end: Callable[[], Awaitable[bytes]] | None = None
    failed: Callable[[ApiError], bytes] = lambda error: event(error.body)


async def stream_answer(
    request: Request,
    beginning: Beginning,
    make: Callable[[GenerationRequest], Stream],
    media_type: str = "text/event-stream",
) -> Response:
    """Return a streamed answer, after the request has begun. Raises ApiError, and ClientDisconnect."""
    generation = await while_connected(request, beginning())
    return _StreamResponse(_parts(generation, make), generation.end, media_type)


async def _parts(generation: GenerationRequest, make: Callable[[GenerationRequest], Stream]) -> AsyncIterator[bytes]:
    """Yield the parts of a streamed answer, with an error as the last one."""
    stream = make(generation)
    try:
        yield stream.begin
        async for pieces in generation.pieces():
            yield b"".join(map(stream.piece, pieces))
        if stream.end is not None:
            yield await stream.end()
    except Exception as error:  # affects only this request
        yield stream.failed(generation.failed(error))


class _StreamResponse(Response):
    """A streamed answer. end: called once, after the last part or a disconnect"""

    def __init__(self, parts: AsyncIterator[bytes], end: Callable[[], None], media_type: str) -> None:
        super().__init__(None, 200, {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}, media_type)
        del self.headers["content-length"]
        self._parts = parts
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the parts until the client disconnects."""
        try:
            with suppress(ClientDisconnect):
                await _cancel_on_disconnect(receive, self._send(send))
        finally:
            self._end()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for data in self._parts:
            if data:
                await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Await work, and cancel it if the client disconnects. Raises ClientDisconnect."""
    return await _cancel_on_disconnect(request.receive, work)


async def _cancel_on_disconnect(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Await work in the current task, and cancel it on disconnect. Raises ClientDisconnect.

    Another task would need a further iteration of the event loop, in which the engine's thread may take the GIL.
    """
    task = asyncio.current_task()
    assert task is not None
    watcher = asyncio.ensure_future(_wait_for_disconnect(receive))
    is_gone = is_done = False

    def cancel(_: asyncio.Task[None]) -> None:
        nonlocal is_gone
        if not is_done:
            is_gone = True
            task.cancel()

    watcher.add_done_callback(cancel)
    try:
        return await work
    except asyncio.CancelledError:
        if not is_gone:
            raise
        raise ClientDisconnect from None
    finally:
        is_done = True
        watcher.cancel()
        if is_gone:
            task.uncancel()


async def _wait_for_disconnect(receive: Receive) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def run_whole(
    request: Request,
    beginning: Beginning,
    make: Callable[[GenerationRequest, int, Generation[Any]], T],
) -> tuple[GenerationRequest, list[T]]:
    """Run a request without streaming. Return it with the results of `make` for all sequences in order.

    Raises ApiError, and ClientDisconnect.
    """

    async def work() -> tuple[GenerationRequest, list[T]]:
        generation = await beginning()
        try:
            return generation, await generation.results(partial(make, generation))
        finally:
            generation.end()

    return await while_connected(request, work())


async def answer_with_choices(
    request: Request,
    beginning: Beginning,
    head: Callable[[GenerationRequest], dict[str, Any]],
    choice: Callable[[GenerationRequest, int, Generation[Any]], dict[str, Any]],
    stream: Callable[[GenerationRequest], Stream] | None,
) -> Response:
    """Answer a request with choices, whole or streamed. Raises ApiError, and ClientDisconnect.

    head: returns further fields of the answer; choice: returns the choice of a finished sequence
    stream: returns the serializers of a streamed answer; None for a whole answer
    """
    if stream is not None:
        return await stream_answer(request, beginning, stream)

    def write(generation: GenerationRequest, index: int, result: Generation[Any]) -> bytes:
        return b"".join(serialize(choice(generation, index, result)))

    generation, choices = await run_whole(request, beginning, write)
    return answer_of(head(generation), choices, generation.usage, more=generation.prompt_scores)


def choice_stream(
    generation: GenerationRequest,
    head: Mapping[str, Any],
    first: Iterable[dict[str, Any]],
    choices: Callable[[Piece], Iterable[dict[str, Any]]],
) -> Stream:
    """Return the events of a streamed answer with choices, followed by the usage if requested.

    first: choices of the first events; choices: returns the choices of a piece
    """
    has_usage = generation.body.has_usage
    no_usage = {"usage": None} if has_usage else {}

    def chunk(several: Iterable[dict[str, Any]]) -> bytes:
        return b"".join(event({**head, "choices": [choice], **no_usage}) for choice in several)

    async def end() -> bytes:
        return (event({**head, "choices": [], "usage": generation.usage}) if has_usage else b"") + DONE

    return Stream(lambda piece: chunk(choices(piece)), chunk(first), end)


def head_of(generation: GenerationRequest, kind: str) -> dict[str, Any]:
    """Return the common fields of an answer with choices and of its events."""
    return {"id": generation.key, "object": kind, "created": generation.created, "model": generation.model_name}


def extension_of(result: Generation[Any]) -> dict[str, Any]:
    """Return the field `trellm` of a sequence: quotations, captures, unmet conditions and trace; {} without any."""
    fields: dict[str, Any] = {}
    if isinstance(result.value, Span):
        fields["span"] = _span(result.value)
    if result.spans:
        fields["spans"] = {name: _span(span) for name, span in result.spans.items()}
    if result.captures:
        fields["captures"] = {name: [each._asdict() for each in several] for name, several in result.captures.items()}
    if result.lookup_error is not None:
        fields["lookup_error"] = str(result.lookup_error)
    if result.unenforced:
        fields["unenforced"] = dict(result.unenforced)
    if result.overruled:
        fields["overruled"] = list(result.overruled)
    if result.unmet:
        fields["unmet"] = list(result.unmet)
    if result.fields:
        fields["fields"] = {name: each.to_dict() for name, each in result.fields.items()}
    if result.diagnostics is not None:
        summary = result.diagnostics.summary
        fields["trace"] = {
            "steps": result.diagnostics.to_dicts(),
            "forced": summary.forced,
            "logprob": summary.logprob,
            "raw_logprob": summary.raw_logprob,
            "log_feasible_mass": summary.log_feasible_mass,
            "hints": [str(hint) for hint in summary.hints],
            "warning": result.warning,
        }
    return {"trellm": fields} if fields else {}


def _span(span: Span) -> dict[str, Any]:
    return {
        "text": span.text,
        "start": span.start,
        "end": span.end,
        "document": span.document,
        "occurrences": [[place.document, place.start, place.end] for place in span.occurrences],
    }


@asynccontextmanager
async def lease_model(request: Request, name: str | None) -> AsyncGenerator[Service]:
    """Load a model if needed, and hold a lease in the context. name: None for the default model

    Yields the service, and stores it in the request's state. Raises ApiError, and ClientDisconnect.
    """
    models: ModelManager = request.app.state.models
    hosted = models.find(name)
    service = hosted.lease()
    if service is None:
        service = await while_connected(request, models.load(hosted))
        trace = getattr(request.state, "trace", None)
        if trace is not None:
            trace.add_event("model loaded")
    try:
        request.state.service = service
        yield service
    finally:
        hosted.release()
