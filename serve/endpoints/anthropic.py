"""Anthropic's /v1/messages: a chat answered in content blocks, and its stream events."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...engine.handle import Piece
from ...engine.results import Generation
from ..bodies import derived
from ..generation import GenerationRequest, message_of
from ..media.reading import RequestMedia
from ..requests.anthropic import CountRequest, MessagesRequest
from ..requests.chat import ChatRequest
from ..service import Service
from ..tool_calls import ArgumentsDelta, CallDelta, CallEndDelta, ContentDelta, Delta, ParsedMessage, ReasoningDelta
from .answers import Answer, Event, Stream, event, extension_of, streamed, while_connected, whole
from .chat import begin_chat, finish_of

_REASONS = {"tool_calls": "tool_use", "length": "max_tokens", "stop": "end_turn"}


async def messages(request: Request, service: Service, asked: MessagesRequest) -> Response:
    """Answer a chat as Anthropic's API does, at once or event by event."""
    chat = await derived(request, asked.chat)
    beginning = begin_chat(request, chat)
    if asked.stream:
        return await streamed(request, beginning, partial(_stream, chat))
    begun, (said,) = await whole(request, beginning, partial(_answered, chat))
    return Answer(_head(begun) | said | {"usage": _usage(begun)})


async def count(request: Request, service: Service, asked: CountRequest) -> Response:
    """Count the tokens of a chat, as Anthropic's API does."""
    chat = await derived(request, asked.chat)
    with RequestMedia(service.shared.media, reads=service.reads) as media:
        messages = await while_connected(request, media.read(chat.chat()))
        ids = await service.chat_ids(messages, chat.listed_tools(), chat.template_options, is_verbatim=True)
    return Answer({"input_tokens": len(ids)})


def _head(begun: GenerationRequest) -> dict[str, Any]:
    return {
        "id": f"msg_{begun.key.partition('-')[2]}",
        "type": "message",
        "role": "assistant",
        "model": begun.model_name,
    }


def _usage(begun: GenerationRequest) -> dict[str, Any]:
    cached = begun.cached_tokens
    return {
        "input_tokens": begun.prompt_tokens - cached,
        "output_tokens": begun.output_tokens,
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": 0,
    }


def _answered(chat: ChatRequest, begun: GenerationRequest, index: int, result: Generation[Any]) -> dict[str, Any]:
    message = begun.read(result)
    blocks: list[dict[str, Any]] = []
    if message.reasoning:
        blocks.append({"type": "thinking", "thinking": message.reasoning, "signature": ""})
    if message.content or not message.calls:
        blocks.append({"type": "text", "text": message.content or ""})
    blocks += [{"type": "tool_use", "id": call.id, "name": call.name, "input": call.values} for call in message.calls]
    return {"content": blocks} | _ended(chat, begun, message, result) | extension_of(result)


def _ended(
    chat: ChatRequest, begun: GenerationRequest, message: ParsedMessage, result: Generation[Any]
) -> dict[str, Any]:
    """Return the stop reason of an answer, and its stop sequence."""
    finish = finish_of(message, result, begun.cut_at)
    if finish != "stop" or not chat.stops or not (message.stopped or result.finish_reason == "stop"):
        return {"stop_reason": _REASONS[finish], "stop_sequence": None}
    written = begun.service.model.vocabulary.decode(result.token_ids).decode(errors="replace")
    places = {written.rfind(stop): stop for stop in chat.stops if stop in written}
    return {"stop_reason": "stop_sequence", "stop_sequence": places[max(places)] if places else chat.stops[0]}


class ContentBlocks:
    """Events of the content blocks of a streamed answer. At most one block is open."""

    def __init__(self) -> None:
        self._count, self._kind = 0, ""

    def add(self, delta: Delta) -> Iterator[Event]:
        """Yield the events of a delta."""
        match delta:
            case ContentDelta(text):
                yield from self._opened("text", {"text": ""})
                yield self._more({"type": "text_delta", "text": text})
            case ReasoningDelta(text):
                yield from self._opened("thinking", {"thinking": "", "signature": ""})
                yield self._more({"type": "thinking_delta", "thinking": text})
            case CallDelta(_, key, name):
                yield from self.end()
                yield from self._opened("tool_use", {"id": key, "name": name, "input": {}})
            case ArgumentsDelta(_, text):
                yield self._more({"type": "input_json_delta", "partial_json": text})
            case CallEndDelta():
                yield from self.end()

    def last(self) -> Iterator[Event]:
        """Close the open block. Without any block, add an empty text block."""
        if not self._count and not self._kind:
            yield from self._opened("text", {"text": ""})
        yield from self.end()

    def end(self) -> Iterator[Event]:
        """Close the open block, if there is one."""
        if self._kind:
            yield "content_block_stop", {"index": self._count}
            self._count, self._kind = self._count + 1, ""

    def _opened(self, kind: str, fields: dict[str, Any]) -> Iterator[Event]:
        if self._kind == kind:
            return
        yield from self.end()
        self._kind = kind
        yield "content_block_start", {"index": self._count, "content_block": {"type": kind} | fields}

    def _more(self, delta: dict[str, Any]) -> Event:
        return "content_block_delta", {"index": self._count, "delta": delta}


def _stream(chat: ChatRequest, begun: GenerationRequest) -> Stream:
    """Return the events of a message: its start, growing blocks, and the stop reason."""
    blocks, reader = ContentBlocks(), begun.reader()
    first: dict[str, Any] = _head(begun) | {"content": list[Any](), "stop_reason": None, "stop_sequence": None}

    def written(piece: Piece) -> bytes:
        told = [each for delta in begun.deltas(piece, reader) for each in blocks.add(delta)]
        if piece.result is not None:
            ended = _ended(chat, begun, message_of(reader, piece.result), piece.result)
            last: dict[str, Any] = {"delta": ended, "usage": _usage(begun)} | extension_of(piece.result)
            told += [*blocks.last(), ("message_delta", last), ("message_stop", {})]
        return b"".join(_event(*each) for each in told)

    begin = _event("message_start", {"message": first | {"usage": _usage(begun)}})
    return Stream(written, begin, failed=lambda error: _event("error", error.as_anthropic()))


def _event(kind: str, fields: dict[str, Any]) -> bytes:
    return event({"type": kind} | fields, kind)
