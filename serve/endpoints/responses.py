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
from ..bodies import derived
from ..errors import ApiError, unsupported
from ..generation import REASONS, GenerationRequest, message_of
from ..requests.responses import ResponsesRequest
from ..service import Service
from ..tool_calls import ArgumentsDelta, CallDelta, CallEndDelta, ContentDelta, Delta, ParsedMessage, ReasoningDelta
from .answers import Answer, Event, Stream, event, extension_of, streamed, whole
from .chat import begin_chat, finish_of


class ResponseItems:
    """The output items of a response, built from deltas. found: items so far; only the last one may be open"""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []
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

    def of_message(self, message: ParsedMessage, *, is_cut: bool) -> Iterator[Event]:
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
        yield from self.last(is_cut=is_cut)

    def last(self, *, is_cut: bool) -> Iterator[Event]:
        """Close the open item at the end. Without a message or call, add an empty message, except after a cut."""
        is_answered = any(item["type"] != "reasoning" for item in self.found)
        if not is_answered and not (is_cut and self.found):
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
        yield "response.output_item.done", {"output_index": len(self.found) - 1, "item": item}

    @property
    def _last(self) -> dict[str, Any]:
        return self.found[-1]

    @property
    def _place(self) -> dict[str, Any]:
        return {"item_id": self._last["id"], "output_index": len(self.found) - 1}

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
        self.found.append(item)
        self._is_open = True
        shown = dict(item)
        if "content" in fields:  # the content grows in the item itself
            shown["content"] = []
        return "response.output_item.added", {"output_index": len(self.found) - 1, "item": shown}


async def responses(request: Request, service: Service, asked: ResponsesRequest) -> Response:
    """Answer in items; with stream: true as server-sent events."""
    before: list[dict[str, Any]] = []
    if asked.previous_response_id is not None:
        conversation = service.shared.responses.conversation(asked.previous_response_id)
        request.state.is_large |= len(conversation) >= LARGE_BODY
        before = await derived(request, partial(json.loads, conversation))

    async def keep(response: dict[str, Any]) -> dict[str, Any]:
        """Store the response for continuation unless the request declines it. Return the response to send."""
        if asked.store is False:
            return response
        is_kept = await derived(request, partial(_keep, service, asked, before, response))
        return response | {"store": is_kept}

    chat = await derived(request, partial(asked.chat, before))
    beginning = begin_chat(request, chat)
    if asked.stream:
        return await streamed(request, beginning, partial(_stream, asked, keep))
    begun, (result,) = await whole(request, beginning, lambda begun, index, result: result)
    message = begun.read(result)
    items, is_cut = ResponseItems(), _is_cut(begun, message, result)
    for _ in items.of_message(message, is_cut=is_cut):
        pass
    ended = _ended(_head(begun, asked), begun, items, result, is_cut=is_cut)
    return Answer(await keep(ended))


def _keep(service: Service, asked: ResponsesRequest, before: list[dict[str, Any]], response: dict[str, Any]) -> bool:
    return service.shared.responses.keep(
        response, [*before, *asked.conversation(response["output"])], service.body_bytes
    )


async def kept(request: Request) -> Response:
    """Return a stored response; with DELETE remove it."""
    responses = request.app.state.models.shared.responses
    key = str(request.path_params["key"])
    for name, value in request.query_params.multi_items():
        if name == "stream" and value != "false":
            raise unsupported((name,), "a stored response cannot be streamed")
        if name != "stream":
            said = f"unknown parameter {name[:200]!r} of the query; a stored response is returned whole"
            raise ApiError(said, (name[:200],), code="unknown_parameter")
    if request.method != "DELETE":
        return Answer(responses.response(key))
    responses.forget(key)
    return Answer({"id": key, "object": "response", "deleted": True})


def _head(begun: GenerationRequest, asked: ResponsesRequest) -> dict[str, Any]:
    """Return the response before any output."""
    plain = asked.model_dump(by_alias=True, exclude_none=True)
    return {
        "id": f"resp_{secrets.token_hex(16)}",  # secret: it gives access to the response
        "object": "response",
        "created_at": begun.created,
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": asked.instructions,
        "max_output_tokens": asked.max_output_tokens,
        "metadata": asked.metadata or {},
        "model": begun.model_name,
        "output": [],
        "parallel_tool_calls": asked.parallel_tool_calls is not False,
        "previous_response_id": asked.previous_response_id,
        "reasoning": {"effort": None, "summary": None},
        "store": asked.store is not False and begun.service.settings.response_bytes > 0,
        "temperature": 1.0 if asked.temperature is None else asked.temperature,
        "text": plain.get("text") or {"format": {"type": "text"}},
        "tool_choice": "required" if asked.tool_choice == "any" else asked.tool_choice or "auto",
        "tools": plain.get("tools") or [],
        "top_p": 1.0 if asked.top_p is None else asked.top_p,
        "truncation": "disabled",
        "usage": None,
        "user": asked.user,
    }


def _is_cut(begun: GenerationRequest, message: ParsedMessage, result: Generation[Any]) -> bool:
    """Test whether the budget ended the output."""
    plain = REASONS[result.finish_reason]
    return (plain if begun.plan is None else finish_of(message, result, begun.cut_at)) == "length"


def _ended(
    head: dict[str, Any], begun: GenerationRequest, items: ResponseItems, result: Generation[Any], *, is_cut: bool
) -> dict[str, Any]:
    """Return the response with its output."""
    count = len(result.token_ids)
    said = head | {
        "status": "incomplete" if is_cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        "output": items.found,
        "usage": {
            "input_tokens": begun.prompt_tokens,
            "input_tokens_details": {"cached_tokens": begun.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": count,
            "output_tokens_details": {"reasoning_tokens": begun.reasoning_tokens},
            "total_tokens": begun.prompt_tokens + count,
        },
    }
    return said | extension_of(result)


def _stream(
    asked: ResponsesRequest, keep: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]], begun: GenerationRequest
) -> Stream:
    """Return all events, numbered: the response, its growing items, and the finished response."""
    ended = head = _head(begun, asked)
    items, reader, numbers = ResponseItems(), begun.reader(), count()

    def written(several: Iterable[Event]) -> bytes:
        numbered = ((kind, {"type": kind, "sequence_number": next(numbers)} | fields) for kind, fields in several)
        return b"".join(event(fields, kind) for kind, fields in numbered)

    def piece(piece: Piece) -> bytes:
        nonlocal ended
        told = [each for delta in begun.deltas(piece, reader) for each in items.add(delta)]
        if piece.result is not None:
            is_cut = _is_cut(begun, message_of(reader, piece.result), piece.result)
            told += items.last(is_cut=is_cut)
            ended = _ended(head, begun, items, piece.result, is_cut=is_cut)
        return written(told)

    async def end() -> bytes:
        response = await keep(ended)
        return written([(f"response.{response['status']}", {"response": response})])

    def failed(error: ApiError) -> bytes:
        said = {name: error.error[name] for name in ("code", "message")}
        return written([("response.failed", {"response": head | {"status": "failed", "error": said}})])

    begin = written((f"response.{kind}", {"response": head}) for kind in ("created", "in_progress"))
    return Stream(piece, begin, end, failed)
