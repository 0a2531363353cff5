"""/v1/completions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...engine.results import Generation
from ..bodies import read
from ..constraints.constraint import Constraint
from ..errors import of_any
from ..requests.completion import Completion
from ..service import Service
from .events import DONE, Answer, EventStream, event, while_connected
from .scores import of_completion, scores_of
from .texts import REASONS, Begun, Prepared, begin, ours, usage


async def completion(request: Request) -> Response:
    """Continue texts, at once or piece by piece."""
    service: Service = request.app.state.service
    asked = await read(request, Completion, service.settings.body_bytes)
    prompts = asked.prompts

    async def prepare(constraint: Constraint) -> Prepared:
        return Prepared(await service.generator(constraint), prompts)

    begun = await while_connected(request, begin(service, asked, len(prompts), ("prompt",), prepare))
    if asked.is_streamed:
        return EventStream(_events(begun), begun.end)
    try:
        results = await while_connected(request, begun.results())
    finally:
        begun.end()
    vocabulary = service.model.vocabulary
    choices = [
        _choice(index, result.text, of_completion(scores_of(result), vocabulary), result)
        for index, result in enumerate(results)
    ]
    total = usage(begun.prompt_tokens, sum(len(result.token_ids) for result in results))
    return Answer(_head(begun) | {"choices": choices, "usage": total})


def _head(begun: Begun) -> dict[str, Any]:
    name = begun.service.settings.name
    return {"id": begun.key, "object": "text_completion", "created": begun.created, "model": name}


def _choice(
    index: int, text: str, scores: dict[str, Any] | None, result: Generation[Any] | None = None
) -> dict[str, Any]:
    reason = None if result is None else REASONS[result.finish_reason]
    choice = {"index": index, "text": text, "logprobs": scores, "finish_reason": reason}
    said = None if result is None else ours(result)
    return choice if said is None else choice | {"trellm": said}


async def _events(begun: Begun) -> AsyncIterator[bytes]:
    """The events of a streamed answer."""
    head = _head(begun)
    counted = {"usage": None} if begun.asked.has_usage else {}
    vocabulary = begun.service.model.vocabulary
    tokens = 0
    sizes = [0] * begun.choices
    try:
        async for pieces in begun.pieces():
            found: list[bytes] = []
            for each in pieces:
                tokens += 0 if each.result is None else len(each.result.token_ids)
                scores = of_completion(each.scores, vocabulary, sizes[each.index])
                sizes[each.index] += len(each.text)
                if each.text or scores or each.result:
                    choice = _choice(each.index, each.text, scores, each.result)
                    found.append(event(head | {"choices": [choice]} | counted))
            if found:
                yield b"".join(found)
    except Exception as error:  # what went wrong with this request is its own
        yield event(of_any(error).body)
        return
    if begun.asked.has_usage:
        yield event(head | {"choices": [], "usage": usage(begun.prompt_tokens, tokens)})
    yield DONE
