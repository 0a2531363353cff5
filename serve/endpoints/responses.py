"""/v1/responses: chats as items, with the full order of its stream events."""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from itertools import count
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...engine.decode.randomness import fresh_bits
from ...engine.handle import Piece
from ...engine.results import Generation
from ..bodies import LARGE as LARGE_BODY
from ..bodies import derive
from ..errors import ApiError, unsupported
from ..generation import REASONS, GenerationRequest, message_of
from ..requests.responses import ResponsesRequest
from ..service import Service
from ..tool_calls import ArgumentsDelta, CallDelta, CallEndDelta, ContentDelta, Delta, ParsedMessage, ReasoningDelta
from .answers import Answer, Event, Stream, event, extension_of, run_whole, stream_answer
from .chat import begin_chat, finish_of


class ResponseItems:
    """The output items of a response, built from deltas. output: items so far; only the last one may be open"""

    def __init__(self) -> None:
        self.output: list[dict[str, Any]] = []
        self._is_open = False

    def add(self, delta: Delta) -> Iterator[Event]:
        """Yield the events of a delta."""
        match delta:
            case ContentDelta(text):
                yield from self._grow("message", text)
            case ReasoningDelta(text):
                yield from self._grow("reasoning", text)
            case CallDelta(_, key, name):
                yield from self.end()
                fields = {"call_id": key, "name": name, "arguments": ""}
                yield self._begin("function_call", "fc", fields)
            case ArgumentsDelta(_, text):
                self._last["arguments"] += text
                yield "response.function_call_arguments.delta", {**self._place, "delta": text}
            case CallEndDelta():
                yield from self.end()

    def add_message(self, message: ParsedMessage, *, is_cut: bool) -> Iterator[Event]:
        """Yield the events of a whole message. is_cut: True if the budget ended it; its last item is incomplete"""
        if message.reasoning:
            yield from self.add(ReasoningDelta(message.reasoning))
        if message.content:
            yield from self.add(ContentDelta(message.content))
        for index, call in enumerate(message.calls):
            yield from self.add(CallDelta(index, call.id, call.name))
            yield from self.add(ArgumentsDelta(index, call.arguments))
            if call.complete:
                yield from self.add(CallEndDelta(index))
        yield from self.close(is_cut=is_cut)

    def close(self, *, is_cut: bool) -> Iterator[Event]:
        """Close the open item at the end. Without a message or call, add an empty message, except after a cut."""
        has_answer = any(item["type"] != "reasoning" for item in self.output)
        if not has_answer and not (is_cut and self.output):
            yield from self._open("message")
        yield from self.end(is_cut=is_cut)

    def end(self, *, is_cut: bool = False) -> Iterator[Event]:
        """Close the open item, if there is one. is_cut: True if the budget ended the output"""
        if not self._is_open:
            return
        item, place = self._last, self._place
        if item["type"] == "function_call":
            arguments = {"name": item["name"], "arguments": item["arguments"]}
            yield "response.function_call_arguments.done", {**place, **arguments}
        else:
            part, inner = item["content"][0], {**place, "content_index": 0}
            scores: dict[str, Any] = {"logprobs": []} if item["type"] == "message" else {}
            yield f"response.{part['type']}.done", {**inner, "text": part["text"], **scores}
            yield "response.content_part.done", {**inner, "part": dict(part)}
        item["status"] = "incomplete" if is_cut else "completed"
        self._is_open = False
        yield "response.output_item.done", {"output_index": len(self.output) - 1, "item": item}

    @property
    def _last(self) -> dict[str, Any]:
        return self.output[-1]

    @property
    def _place(self) -> dict[str, Any]:
        return {"item_id": self._last["id"], "output_index": len(self.output) - 1}

    def _grow(self, kind: str, text: str) -> Iterator[Event]:
        """Append text to the open item of a kind, or open a new one."""
        if not self._is_open or self._last["type"] != kind:
            yield from self._open(kind)
        part = self._last["content"][0]
        part["text"] += text
        scores: dict[str, Any] = {"logprobs": []} if kind == "message" else {}
        yield f"response.{part['type']}.delta", {**self._place, "content_index": 0, "delta": text, **scores}

    def _open(self, kind: str) -> Iterator[Event]:
        """Close the open item, and open one of a kind, "message" or "reasoning", with an empty text part."""
        yield from self.end()
        is_message = kind == "message"
        fields: dict[str, Any] = {"role": "assistant"} if is_message else {"summary": []}
        yield self._begin(kind, "msg" if is_message else "rs", {**fields, "content": []})
        part: dict[str, Any] = {"type": "reasoning_text", "text": ""}
        if is_message:
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        self._last["content"].append(part)
        yield "response.content_part.added", {**self._place, "content_index": 0, "part": dict(part)}

    def _begin(self, kind: str, prefix: str, fields: dict[str, Any]) -> Event:
        key = f"{prefix}_{fresh_bits(96):024x}"
        item: dict[str, Any] = {"type": kind, "id": key, "status": "in_progress", **fields}
        self.output.append(item)
        self._is_open = True
        snapshot = dict(item)
        if "content" in fields:  # the content grows in the item itself
            snapshot["content"] = []
        return "response.output_item.added", {"output_index": len(self.output) - 1, "item": snapshot}


async def responses(request: Request, service: Service, body: ResponsesRequest) -> Response:
    """Answer in items; with stream: true as server-sent events."""
    before: list[dict[str, Any]] = []
    if body.previous_response_id is not None:
        conversation = service.shared.responses.conversation(body.previous_response_id)
        request.state.is_large |= len(conversation) >= LARGE_BODY
        before = await derive(request, partial(json.loads, conversation))

    async def store(response: dict[str, Any]) -> dict[str, Any]:
        """Store the response for continuation unless the request declines it. Return the response to send."""
        if body.store is False:
            return response
        is_stored = await derive(request, partial(_store, service, body, before, response))
        return response | {"store": is_stored}

    chat = await derive(request, partial(body.chat, before))
    beginning = begin_chat(request, chat)
    if body.stream:
        return await stream_answer(request, beginning, partial(_stream, body, store))
    generation, (result,) = await run_whole(request, beginning, lambda generation, index, result: result)
    message = generation.read(result)
    items, is_cut = ResponseItems(), _is_cut(generation, message, result)
    for _ in items.add_message(message, is_cut=is_cut):
        pass
    response = _finished_response(_head(generation, body), generation, items, result, is_cut=is_cut)
    return Answer(await store(response))


def _store(service: Service, body: ResponsesRequest, before: list[dict[str, Any]], response: dict[str, Any]) -> bool:
    return service.shared.responses.store(
        response, [*before, *body.conversation(response["output"])], service.body_bytes
    )


async def stored_response(request: Request) -> Response:
    """Return a stored response; with DELETE remove it."""
    responses = request.app.state.models.shared.responses
    key = str(request.path_params["key"])
    for name, value in request.query_params.multi_items():
        if name == "stream" and value != "false":
            raise unsupported((name,), "a stored response cannot be streamed")
        if name != "stream":
            message = f"unknown parameter {name[:200]!r} of the query; a stored response is returned whole"
            raise ApiError(message, (name[:200],), code="unknown_parameter")
    if request.method != "DELETE":
        return Answer(responses.response(key))
    responses.forget(key)
    return Answer({"id": key, "object": "response", "deleted": True})


def _head(generation: GenerationRequest, body: ResponsesRequest) -> dict[str, Any]:
    """Return the response before any output."""
    plain = body.model_dump(by_alias=True, exclude_none=True)
    return {
        "id": f"resp_{secrets.token_hex(16)}",  # secret: it gives access to the response
        "object": "response",
        "created_at": generation.created,
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata or {},
        "model": generation.model_name,
        "output": [],
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "reasoning": {"effort": None, "summary": None},
        "store": body.store is not False and generation.service.settings.response_bytes > 0,
        "temperature": 1.0 if body.temperature is None else body.temperature,
        "text": plain.get("text") or {"format": {"type": "text"}},
        "tool_choice": "required" if body.tool_choice == "any" else body.tool_choice or "auto",
        "tools": plain.get("tools") or [],
        "top_p": 1.0 if body.top_p is None else body.top_p,
        "truncation": "disabled",
        "usage": None,
        "user": body.user,
    }


def _is_cut(generation: GenerationRequest, message: ParsedMessage, result: Generation[Any]) -> bool:
    """Test whether the budget ended the output."""
    plain = REASONS[result.finish_reason]
    return (plain if generation.plan is None else finish_of(message, result, generation.cut_at)) == "length"


def _finished_response(
    head: dict[str, Any], generation: GenerationRequest, items: ResponseItems, result: Generation[Any], *, is_cut: bool
) -> dict[str, Any]:
    """Return the response with its output."""
    count = len(result.token_ids)
    fields = head | {
        "status": "incomplete" if is_cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        "output": items.output,
        "usage": {
            "input_tokens": generation.prompt_tokens,
            "input_tokens_details": {"cached_tokens": generation.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": count,
            "output_tokens_details": {"reasoning_tokens": generation.reasoning_tokens},
            "total_tokens": generation.prompt_tokens + count,
        },
    }
    return fields | extension_of(result)


def _stream(
    body: ResponsesRequest, store: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]], generation: GenerationRequest
) -> Stream:
    """Return all events, numbered: the response, its growing items, and the finished response."""
    finished = head = _head(generation, body)
    items, reader, numbers = ResponseItems(), generation.reader(), count()

    def write(several: Iterable[Event]) -> bytes:
        numbered = ((kind, {"type": kind, "sequence_number": next(numbers)} | fields) for kind, fields in several)
        return b"".join(event(fields, kind) for kind, fields in numbered)

    def piece(piece: Piece) -> bytes:
        nonlocal finished
        events = [each for delta in generation.deltas(piece, reader) for each in items.add(delta)]
        if piece.result is not None:
            is_cut = _is_cut(generation, message_of(reader, piece.result), piece.result)
            events += items.close(is_cut=is_cut)
            finished = _finished_response(head, generation, items, piece.result, is_cut=is_cut)
        return write(events)

    async def end() -> bytes:
        response = await store(finished)
        return write([(f"response.{response['status']}", {"response": response})])

    def fail(error: ApiError) -> bytes:
        error_fields = {name: error.error[name] for name in ("code", "message")}
        return write([("response.failed", {"response": head | {"status": "failed", "error": error_fields}})])

    begin = write((f"response.{kind}", {"response": head}) for kind in ("created", "in_progress"))
    return Stream(piece, begin, end, fail)
