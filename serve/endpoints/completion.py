"""/v1/completions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...engine.handle import Piece
from ...engine.results import Generation
from ..errors import ApiError
from ..generation import REASONS, Beginning, GenerationRequest, Prepared, begin
from ..requests.chat import CompletionRequest
from ..service import Service
from .answers import Stream, answer_of, answered, choice_stream, extension_of, head_of, whole, written
from .scores import TokenOffsets, of_completion, of_prompt, scores_in, scores_of


async def completion(request: Request, service: Service, asked: CompletionRequest) -> Response:
    """Continue texts; with stream: true as server-sent events."""
    beginning = begin_text(request, asked)
    if asked.told is not None:
        return await _best(request, beginning, asked.told)
    return await answered(request, beginning, _head, _choice, _stream if asked.stream else None)


def begin_text(request: Request, asked: CompletionRequest) -> Beginning:
    """Return a function that begins an answer to text prompts. All APIs with prompts use it. Raises ApiError."""
    service: Service = request.state.service
    prompts = asked.prompts
    if asked.trellm.special_tokens is False:
        said = (
            "trellm.special_tokens: false needs messages; in a prompt names of special tokens are always read as tokens"
        )
        raise ApiError(said, ("trellm", "special_tokens"))

    async def prepare(begun: GenerationRequest) -> Prepared:
        generator = await service.generator(begun.constraint)
        if not asked.trellm.describe:
            return generator, prompts, None
        return generator, await service.described(begun.constraint, list(prompts), ("prompt",)), None

    return partial(begin, request, asked, len(prompts), ("prompt",), prepare)


async def _best(request: Request, beginning: Beginning, told: int) -> Response:
    """Answer with the `told` sequences of the highest mean log-probability for each prompt."""

    def make(begun: GenerationRequest, index: int, result: Generation[Any]) -> tuple[float, dict[str, Any]]:
        several = result.logprobs or (0.0,)
        choice = _choice(begun, index, result)
        return sum(several) / len(several), choice if begun.asked.scores else choice | {"logprobs": None}

    begun, found = await whole(request, beginning, make)
    size, chosen = begun.asked.texts, list[dict[str, Any]]()
    for at in range(0, len(found), size):
        chosen += [choice for _, choice in sorted(found[at : at + size], key=lambda each: -each[0])[:told]]
    numbered = [choice | {"index": number} for number, choice in enumerate(chosen)]
    return answer_of(_head(begun), [b"".join(written(choice)) for choice in numbered], begun.usage)


def _head(begun: GenerationRequest) -> dict[str, Any]:
    return head_of(begun, "text_completion")


def _choice(begun: GenerationRequest, index: int, result: Generation[Any]) -> dict[str, Any]:
    asked: Any = begun.asked
    echo, offsets, prompt = _echoed(begun, index), TokenOffsets(result.overlap), result.prompt_logprobs
    if asked.has_echoed_scores:
        if result.prompt.endswith(echo):  # a tokenizer may add a leading space
            offsets = TokenOffsets(len(result.prompt.encode()) - len(echo.encode()))
        else:  # the tokens of the prompt have another text
            echo = result.prompt
    echoed = prompt if asked.has_echoed_scores and prompt is not None else ()
    scores = of_completion(scores_of(result), begun.service.model.vocabulary, offsets, echoed, asked.logprobs)
    choice = _fields(index, echo + result.text, scores, result)
    if asked.prompt_logprobs is None or prompt is None:
        return choice
    return choice | {"prompt_logprobs": of_prompt(prompt, begun.service.model.vocabulary, asked.prompt_logprobs)}


def _echoed(begun: GenerationRequest, index: int) -> str:
    """Return the prompt of a choice if the request has `echo`; "" otherwise."""
    if not (isinstance(begun.asked, CompletionRequest) and begun.asked.echo):
        return ""
    prompt: Any = begun.prompts[index // begun.options.search.n]
    return prompt if isinstance(prompt, str) else begun.service.model.vocabulary.decode(prompt).decode(errors="replace")


def _fields(index: int, text: str, scores: dict[str, Any] | None, result: Generation[Any] | None) -> dict[str, Any]:
    """Return the JSON of a choice, or of its delta. result: None until the sequence has ended"""
    reason = None if result is None else REASONS[result.finish_reason]
    choice = {"index": index, "text": text, "logprobs": scores, "finish_reason": reason}
    return choice if result is None else choice | extension_of(result)


def _stream(begun: GenerationRequest) -> Stream:
    offsets = [TokenOffsets() for _ in range(begun.choices)]

    def choices(piece: Piece) -> Iterator[dict[str, Any]]:
        index = begun.index_of(piece)
        offsets[index].overlap = piece.overlap
        scores = of_completion(scores_in(piece), begun.service.model.vocabulary, offsets[index])
        if piece.text or scores or piece.result:
            yield _fields(index, piece.text, scores, piece.result)

    echoed = range(begun.choices) if isinstance(begun.asked, CompletionRequest) and begun.asked.echo else ()
    first = [_fields(index, _echoed(begun, index), None, None) for index in echoed]
    return choice_stream(begun, _head(begun), first, choices)
