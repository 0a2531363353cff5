"""/v1/responses: the same as chats, in items, and the whole order of the events of its streams."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...engine.decode.randomness import fresh_bits
from ...engine.results import Generation
from ..bodies import read
from ..constraints.constraint import Constraint
from ..errors import ApiError, of_any
from ..forms import Message
from ..generation import REASONS, GenerationRequest, Prepared, begin
from ..requests.responses import Responses, renamed
from ..service import Service
from .calling import finish_of, prepared, readers
from .events import Answer, EventStream, event, while_connected
from .items import Items
from .texts import extension_of, whole


async def responses(request: Request) -> Response:
    """Answer, at once or event by event."""
    service: Service = request.app.state.service
    asked = await read(request, Responses, service.settings.body_bytes)
    try:
        chat = asked.chat()

        async def prepare(constraint: Constraint) -> Prepared:
            return await prepared(service, chat, constraint)

        beginning = partial(begin, service, chat, 1, ("messages",), prepare)
        if asked.stream:
            begun = await while_connected(request, beginning())
            return EventStream(_events(begun, asked), begun.end)
        begun, (result,) = await whole(request, beginning, lambda begun, index, result: result)
    except ApiError as error:
        raise renamed(error) from None
    message = begun.read(result)
    items, is_cut = Items(), _is_cut(begun, message, result)
    for _ in items.of_message(message, is_cut=is_cut):
        pass
    return Answer(_ended(_head(begun, asked), begun, items, result, is_cut=is_cut))


def _head(begun: GenerationRequest, asked: Responses) -> dict[str, Any]:
    """The response before there is any output."""
    plain = asked.model_dump(by_alias=True, exclude_none=True)
    return {
        "id": f"resp_{fresh_bits(96):024x}",
        "object": "response",
        "created_at": begun.created,
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": asked.instructions,
        "max_output_tokens": asked.max_output_tokens,
        "metadata": asked.metadata or {},
        "model": begun.service.settings.name,
        "output": [],
        "parallel_tool_calls": asked.parallel_tool_calls is not False,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "store": False,
        "temperature": 1.0 if asked.temperature is None else asked.temperature,
        "text": plain.get("text") or {"format": {"type": "text"}},
        "tool_choice": "required" if asked.tool_choice == "any" else asked.tool_choice or "auto",
        "tools": plain.get("tools") or [],
        "top_p": 1.0 if asked.top_p is None else asked.top_p,
        "truncation": "disabled",
        "usage": None,
        "user": asked.user,
    }


def _is_cut(begun: GenerationRequest, message: Message, result: Generation[Any]) -> bool:
    """Whether a text ended for want of tokens."""
    plain = REASONS[result.finish_reason]
    return (plain if begun.plan is None else finish_of(message, result, begun.cut_at)) == "length"


def _ended(
    head: dict[str, Any], begun: GenerationRequest, items: Items, result: Generation[Any], *, is_cut: bool
) -> dict[str, Any]:
    """The response with its output."""
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
    extra = extension_of(result)
    return said if extra is None else said | {"trellm": extra}


async def _events(begun: GenerationRequest, asked: Responses) -> AsyncIterator[bytes]:
    """All events, numbered: the response, its items with their parts as they grow, and the response at its end."""
    head = _head(begun, asked)
    reader = next(iter(readers(begun.plan, 1)), None)
    items = Items()
    number = 0

    def numbered(kind: str, fields: dict[str, Any]) -> bytes:
        nonlocal number
        number += 1
        return event({"type": kind, "sequence_number": number - 1} | fields, kind)

    yield numbered("response.created", {"response": head}) + numbered("response.in_progress", {"response": head})
    try:
        async for pieces in begun.pieces():
            found: list[tuple[str, dict[str, Any]]] = []
            for piece in pieces:
                for delta in begun.deltas(piece, reader):
                    found += items.add(delta)
                if piece.result is not None:
                    text = Message(piece.result.text, None, ())
                    is_cut = _is_cut(begun, text if reader is None else reader.message, piece.result)
                    found += items.last(is_cut=is_cut)
                    ended = _ended(head, begun, items, piece.result, is_cut=is_cut)
                    found.append((f"response.{ended['status']}", {"response": ended}))
            if found:
                yield b"".join(numbered(*each) for each in found)
    except Exception as error:  # what went wrong with this request is its own
        refused = renamed(of_any(error))
        begun.service.metrics.fail(refused)
        said = refused.error
        failed = head | {"status": "failed", "error": {"code": said["code"], "message": said["message"]}}
        yield numbered("response.failed", {"response": failed})
