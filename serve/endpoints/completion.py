"""/v1/completions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...engine.results import Generation
from ..bodies import read
from ..errors import of_any
from ..requests.completion import Completion
from ..service import Service
from .events import DONE, Answer, EventStream, event, while_connected
from .texts import REASONS, Begun, begin, ours, usage


async def completion(request: Request) -> Response:
    """Continue texts, at once or piece by piece."""
    service: Service = request.app.state.service
    asked = await read(request, Completion, service.settings.body_bytes)
    begun = await while_connected(request, begin(service, asked, asked.prompts, ("prompt",)))
    if asked.is_streamed:
        return EventStream(_events(begun), begun.end)
    try:
        results = await while_connected(request, begun.results())
    finally:
        begun.end()
    choices = [_choice(index, result.text, result) for index, result in enumerate(results)]
    total = usage(begun.prompt_tokens, sum(len(result.token_ids) for result in results))
    return Answer(_head(begun) | {"choices": choices, "usage": total})


def _head(begun: Begun) -> dict[str, Any]:
    name = begun.service.settings.name
    return {"id": begun.key, "object": "text_completion", "created": begun.created, "model": name}


def _choice(index: int, text: str, result: Generation[Any] | None) -> dict[str, Any]:
    reason = None if result is None else REASONS[result.finish_reason]
    choice = {"index": index, "text": text, "logprobs": None, "finish_reason": reason}
    said = None if result is None else ours(result)
    return choice if said is None else choice | {"trellm": said}


async def _events(begun: Begun) -> AsyncIterator[bytes]:
    """The events of a streamed answer."""
    head = _head(begun)
    counted = {"usage": None} if begun.asked.has_usage else {}
    tokens = 0
    try:
        async for pieces in begun.pieces():
            tokens += sum(len(each.result.token_ids) for each in pieces if each.result is not None)
            events = [event(head | {"choices": [_choice(*each)]} | counted) for each in pieces]
            yield b"".join(events)
    except Exception as error:  # what went wrong with this request is its own
        yield event(of_any(error).body)
        return
    if begun.asked.has_usage:
        yield event(head | {"choices": [], "usage": usage(begun.prompt_tokens, tokens)})
    yield DONE
