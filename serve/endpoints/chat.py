"""/v1/chat/completions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...engine.results import Generation
from ..bodies import read
from ..constraints.constraint import Constraint
from ..generation import REASONS, GenerationRequest, Prepared, begin
from ..requests.chat import Chat
from ..service import Service
from .calling import delta_fields, finish_of, message_fields, prepared, readers
from .events import EventStream, answer_of, event, while_connected, written
from .scores import of_chat, scores_in, scores_of
from .texts import extension_of, to_the_end, whole


async def chat(request: Request) -> Response:
    """Answer a chat, at once or piece by piece."""
    service: Service = request.app.state.service
    asked = await read(request, Chat, service.settings.body_bytes)

    async def prepare(constraint: Constraint) -> Prepared:
        return await prepared(service, asked, constraint)

    beginning = partial(begin, service, asked, 1, ("messages",), prepare)
    if asked.stream:
        begun = await while_connected(request, beginning())
        head = _head(begun, "chat.completion.chunk")
        return EventStream(to_the_end(begun, head, _events(begun, head)), begun.end)
    begun, choices = await whole(request, beginning, _written)
    return answer_of(_head(begun, "chat.completion"), choices, begun.usage)


def _head(begun: GenerationRequest, kind: str) -> dict[str, Any]:
    name = begun.service.settings.name
    return {"id": begun.key, "object": kind, "created": begun.created, "model": name, "system_fingerprint": None}


def _written(begun: GenerationRequest, index: int, result: Generation[Any]) -> bytes:
    return b"".join(written(_choice(begun, index, result)))


def _choice(begun: GenerationRequest, index: int, result: Generation[Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": result.text, "refusal": None}
    finish = REASONS[result.finish_reason]
    if begun.plan is not None:
        read = begun.read(result)
        message, finish = message_fields(read), finish_of(read, result, begun.cut_at)
    scores = of_chat(scores_of(result), begun.service.model.vocabulary)
    return {"index": index, "message": message, "logprobs": scores, "finish_reason": finish} | _ours(result)


def _ours(result: Generation[Any]) -> dict[str, Any]:
    said = extension_of(result)
    return {} if said is None else {"trellm": said}


async def _events(begun: GenerationRequest, head: dict[str, Any]) -> AsyncIterator[bytes]:
    """The events of a streamed answer: the role, what is said, and why it ends."""
    counted = {"usage": None} if begun.asked.has_usage else {}
    several = readers(begun.plan, begun.choices)

    def chunk(index: int, delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish, **more}
        return event(head | {"choices": [choice]} | counted)

    yield b"".join(chunk(index, {"role": "assistant", "content": ""}) for index in range(begun.choices))
    async for pieces in begun.pieces():
        found: list[bytes] = []
        for each in pieces:
            index = begun.index_of(each)
            reader = several[index] if several else None
            deltas = [fields for delta in begun.deltas(each, reader) if (fields := delta_fields(delta)) is not None]
            scores = of_chat(scores_in(each), begun.service.model.vocabulary)
            if scores is not None:  # of all its tokens, at the first of what they came to
                found.append(chunk(index, deltas.pop(0) if deltas else {}, logprobs=scores))
            found += [chunk(index, delta) for delta in deltas]
            if each.result is not None:
                finish = REASONS[each.result.finish_reason]
                if reader is not None:
                    finish = finish_of(reader.message, each.result, begun.cut_at)
                found.append(chunk(index, {}, finish, **_ours(each.result)))
        if found:
            yield b"".join(found)
