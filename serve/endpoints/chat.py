"""/v1/chat/completions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...engine.results import Generation
from ..bodies import read
from ..errors import of_any
from ..requests.chat import Chat
from ..service import Service
from .events import DONE, Answer, EventStream, event, while_connected
from .texts import REASONS, Begun, begin, ours, usage


async def chat(request: Request) -> Response:
    """Answer a chat, at once or piece by piece."""
    service: Service = request.app.state.service
    asked = await read(request, Chat, service.settings.body_bytes)
    begun = await while_connected(request, begin(service, asked, [asked.chat()], ("messages",)))
    if asked.is_streamed:
        return EventStream(_events(begun), begun.end)
    try:
        results = await while_connected(request, begun.results())
    finally:
        begun.end()
    choices = [_choice(index, result) for index, result in enumerate(results)]
    total = usage(begun.prompt_tokens, sum(len(result.token_ids) for result in results))
    return Answer(_head(begun, "chat.completion") | {"choices": choices, "usage": total})


def _head(begun: Begun, kind: str) -> dict[str, Any]:
    name = begun.service.settings.name
    return {"id": begun.key, "object": kind, "created": begun.created, "model": name, "system_fingerprint": None}


def _choice(index: int, result: Generation[Any]) -> dict[str, Any]:
    message = {"role": "assistant", "content": result.text, "refusal": None}
    return {
        "index": index,
        "message": message,
        "logprobs": None,
        "finish_reason": REASONS[result.finish_reason],
    } | _ours(result)


def _ours(result: Generation[Any]) -> dict[str, Any]:
    said = ours(result)
    return {} if said is None else {"trellm": said}


async def _events(begun: Begun) -> AsyncIterator[bytes]:
    """The events of a streamed answer: the role, what is said, why it ends, and at last the usage."""
    head = _head(begun, "chat.completion.chunk")
    counted = {"usage": None} if begun.asked.has_usage else {}
    tokens = 0

    def chunk(index: int, delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish, **more}
        return event(head | {"choices": [choice]} | counted)

    try:
        yield b"".join(chunk(index, {"role": "assistant", "content": ""}) for index in range(begun.choices))
        async for pieces in begun.pieces():
            found: list[bytes] = []
            for index, text, result in pieces:
                if text:
                    found.append(chunk(index, {"content": text}))
                if result is not None:
                    tokens += len(result.token_ids)
                    found.append(chunk(index, {}, REASONS[result.finish_reason], **_ours(result)))
            yield b"".join(found)
    except Exception as error:  # what went wrong with this request is its own
        yield event(of_any(error).body)
        return
    if begun.asked.has_usage:
        yield event(head | {"choices": [], "usage": usage(begun.prompt_tokens, tokens)})
    yield DONE
