"""/v1/completions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...engine.results import Generation
from ..bodies import read
from ..constraints.constraint import ConstraintSpec
from ..errors import ApiError
from ..generation import REASONS, GenerationRequest, Prepared, begin
from ..requests.chat import CompletionRequest
from ..service import Service
from .answers import EventStream, answer_of, event, extension_of, to_the_end, while_connected, whole, written
from .scores import Offsets, of_completion, scores_in, scores_of


async def completion(request: Request) -> Response:
    """Continue texts, at once or piece by piece."""
    service: Service = request.app.state.service
    asked = await read(request, CompletionRequest, service.settings.body_bytes)
    prompts = asked.prompts
    if asked.trellm.special_tokens is False:
        said = "trellm.special_tokens is for messages; a prompt is what a template would write, where names are tokens"
        raise ApiError(said, ("trellm", "special_tokens"))

    async def prepare(constraint: ConstraintSpec) -> Prepared:
        return await service.generator(constraint), prompts, None

    beginning = partial(begin, request, asked, len(prompts), ("prompt",), prepare)
    if asked.stream:
        begun = await while_connected(request, beginning())
        head = _head(begun)
        return EventStream(to_the_end(begun, head, _events(begun, head)), begun.end)
    begun, choices = await whole(request, beginning, _written)
    return answer_of(_head(begun), choices, begun.usage)


def _head(begun: GenerationRequest) -> dict[str, Any]:
    name = begun.service.settings.name
    return {"id": begun.key, "object": "text_completion", "created": begun.created, "model": name}


def _written(begun: GenerationRequest, index: int, result: Generation[Any]) -> bytes:
    scores = of_completion(scores_of(result), begun.service.model.vocabulary, Offsets(result.overlap))
    return b"".join(written(_choice(index, result.text, scores, result)))


def _choice(
    index: int, text: str, scores: dict[str, Any] | None, result: Generation[Any] | None = None
) -> dict[str, Any]:
    reason = None if result is None else REASONS[result.finish_reason]
    choice = {"index": index, "text": text, "logprobs": scores, "finish_reason": reason}
    said = None if result is None else extension_of(result)
    return choice if said is None else choice | {"trellm": said}


async def _events(begun: GenerationRequest, head: dict[str, Any]) -> AsyncIterator[bytes]:
    """The events of a streamed answer."""
    counted = {"usage": None} if begun.asked.has_usage else {}
    vocabulary = begun.service.model.vocabulary
    offsets = [Offsets() for _ in range(begun.choices)]
    async for pieces in begun.pieces():
        found: list[bytes] = []
        for each in pieces:
            index = begun.index_of(each)
            offsets[index].overlap = each.overlap
            scores = of_completion(scores_in(each), vocabulary, offsets[index])
            if each.text or scores or each.result:
                choice = _choice(index, each.text, scores, each.result)
                found.append(event(head | {"choices": [choice]} | counted))
        if found:
            yield b"".join(found)
