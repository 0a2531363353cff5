"""/v1/completions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...engine.handle import Piece
from ...engine.results import Generation
from ..bodies import read
from ..constraints.constraint import ConstraintSpec
from ..describing import described
from ..errors import ApiError
from ..generation import REASONS, GenerationRequest, Prepared, begin
from ..requests.chat import CompletionRequest
from ..service import Service
from .answers import ChoiceStream, answered, extension_of, head_of
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
        generator = await service.generator(constraint)
        if not asked.trellm.describe:
            return generator, prompts, None
        return generator, await described(service, constraint, list(prompts), ("prompt",)), None

    beginning = partial(begin, request, asked, len(prompts), ("prompt",), prepare)
    return await answered(request, beginning, _head, _choice, _stream if asked.stream else None)


def _head(begun: GenerationRequest) -> dict[str, Any]:
    return head_of(begun, "text_completion")


def _choice(begun: GenerationRequest, index: int, result: Generation[Any]) -> dict[str, Any]:
    scores = of_completion(scores_of(result), begun.service.model.vocabulary, Offsets(result.overlap))
    return _fields(index, result.text, scores, result)


def _fields(index: int, text: str, scores: dict[str, Any] | None, result: Generation[Any] | None) -> dict[str, Any]:
    """A choice, or what is new of one; result: where it has ended"""
    reason = None if result is None else REASONS[result.finish_reason]
    choice = {"index": index, "text": text, "logprobs": scores, "finish_reason": reason}
    return choice if result is None else choice | extension_of(result)


def _stream(begun: GenerationRequest) -> ChoiceStream:
    offsets = [Offsets() for _ in range(begun.choices)]

    def choices(piece: Piece) -> Iterator[dict[str, Any]]:
        index = begun.index_of(piece)
        offsets[index].overlap = piece.overlap
        scores = of_completion(scores_in(piece), begun.service.model.vocabulary, offsets[index])
        if piece.text or scores or piece.result:
            yield _fields(index, piece.text, scores, piece.result)

    return ChoiceStream((), choices)
