"""Anthropic's /v1/messages: a chat answered in content blocks, and its stream events."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...engine.handle import Piece
from ...engine.results import Generation
from ..bodies import derive
from ..generation import GenerationRequest, message_of
from ..media.reading import RequestMedia
from ..requests.anthropic import CountRequest, MessagesRequest
from ..requests.chat import ChatRequest
from ..service import Service
from ..tool_calls import ArgumentsDelta, CallDelta, CallEndDelta, ContentDelta, Delta, ParsedMessage, ReasoningDelta
from .answers import Answer, Event, Stream, event, extension_of, run_whole, stream_answer, while_connected
from .chat import begin_chat, finish_of

_REASONS = {"tool_calls": "tool_use", "length": "max_tokens", "stop": "end_turn"}


async def messages(request: Request, service: Service, body: MessagesRequest) -> Response:
    """Answer a chat as Anthropic's API does, at once or event by event."""
    chat = await derive(request, body.chat)
    beginning = begin_chat(request, chat)
    if body.stream:
        return await stream_answer(request, beginning, partial(_stream, chat))
    generation, (answer,) = await run_whole(request, beginning, partial(_answer, chat))
    return Answer(_head(generation) | answer | {"usage": _usage(generation)})


async def count(request: Request, service: Service, body: CountRequest) -> Response:
    """Count the tokens of a chat, as Anthropic's API does."""
    chat = await derive(request, body.chat)
    with RequestMedia(service.shared.media, reads=service.reads) as media:
        messages = await while_connected(request, media.read(chat.chat()))
        ids = await service.chat_ids(messages, chat.listed_tools(), chat.template_options, is_verbatim=True)
    return Answer({"input_tokens": len(ids)})


def _head(generation: GenerationRequest) -> dict[str, Any]:
    return {
        "id": f"msg_{generation.key.partition('-')[2]}",
        "type": "message",
        "role": "assistant",
        "model": generation.model_name,
    }


def _usage(generation: GenerationRequest) -> dict[str, Any]:
    cached = generation.cached_tokens
    return {
        "input_tokens": generation.prompt_tokens - cached,
        "output_tokens": generation.output_tokens,
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": 0,
    }


def _answer(chat: ChatRequest, generation: GenerationRequest, index: int, result: Generation[Any]) -> dict[str, Any]:
    message = generation.read(result)
    blocks: list[dict[str, Any]] = []
    if message.reasoning:
        blocks.append({"type": "thinking", "thinking": message.reasoning, "signature": ""})
    if message.content or not message.calls:
        blocks.append({"type": "text", "text": message.content or ""})
    blocks += [{"type": "tool_use", "id": call.id, "name": call.name, "input": call.values} for call in message.calls]
    return {"content": blocks} | _stop_reason(chat, generation, message, result) | extension_of(result)


def _stop_reason(
    chat: ChatRequest, generation: GenerationRequest, message: ParsedMessage, result: Generation[Any]
) -> dict[str, Any]:
    """Return the stop reason of an answer, and its stop sequence."""
    finish = finish_of(message, result, generation.cut_at)
    if finish != "stop" or not chat.stops or not (message.stopped or result.finish_reason == "stop"):
        return {"stop_reason": _REASONS[finish], "stop_sequence": None}
    output = generation.service.model.vocabulary.decode(result.token_ids).decode(errors="replace")
    places = {output.rfind(stop): stop for stop in chat.stops if stop in output}
    return {"stop_reason": "stop_sequence", "stop_sequence": places[max(places)] if places else chat.stops[0]}


class ContentBlocks:
    """Events of the content blocks of a streamed answer. At most one block is open."""

    def __init__(self) -> None:
        self._count, self._kind = 0, ""

    def add(self, delta: Delta) -> Iterator[Event]:
        """Yield the events of a delta."""
        match delta:
            case ContentDelta(text):
                yield from self._open("text", {"text": ""})
                yield self._delta({"type": "text_delta", "text": text})
            case ReasoningDelta(text):
                yield from self._open("thinking", {"thinking": "", "signature": ""})
                yield self._delta({"type": "thinking_delta", "thinking": text})
            case CallDelta(_, key, name):
                yield from self.end()
                yield from self._open("tool_use", {"id": key, "name": name, "input": {}})
            case ArgumentsDelta(_, text):
                yield self._delta({"type": "input_json_delta", "partial_json": text})
            case CallEndDelta():
                yield from self.end()

    def last(self) -> Iterator[Event]:
        """Close the open block. Without any block, add an empty text block."""
        if not self._count and not self._kind:
            yield from self._open("text", {"text": ""})
        yield from self.end()

    def end(self) -> Iterator[Event]:
        """Close the open block, if there is one."""
        if self._kind:
            yield "content_block_stop", {"index": self._count}
            self._count, self._kind = self._count + 1, ""

    def _open(self, kind: str, fields: dict[str, Any]) -> Iterator[Event]:
        if self._kind == kind:
            return
        yield from self.end()
        self._kind = kind
        yield "content_block_start", {"index": self._count, "content_block": {"type": kind} | fields}

    def _delta(self, delta: dict[str, Any]) -> Event:
        return "content_block_delta", {"index": self._count, "delta": delta}


def _stream(chat: ChatRequest, generation: GenerationRequest) -> Stream:
    """Return the events of a message: its start, growing blocks, and the stop reason."""
    blocks, reader = ContentBlocks(), generation.reader()
    first: dict[str, Any] = _head(generation) | {"content": list[Any](), "stop_reason": None, "stop_sequence": None}

    def write(piece: Piece) -> bytes:
        events = [each for delta in generation.deltas(piece, reader) for each in blocks.add(delta)]
        if piece.result is not None:
            stop = _stop_reason(chat, generation, message_of(reader, piece.result), piece.result)
            last: dict[str, Any] = {"delta": stop, "usage": _usage(generation)} | extension_of(piece.result)
            events += [*blocks.last(), ("message_delta", last), ("message_stop", {})]
        return b"".join(_event(*each) for each in events)

    begin = _event("message_start", {"message": first | {"usage": _usage(generation)}})
    return Stream(write, begin, failed=lambda error: _event("error", error.as_anthropic()))


def _event(kind: str, fields: dict[str, Any]) -> bytes:
    return event({"type": kind} | fields, kind)
