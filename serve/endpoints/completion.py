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
from .answers import Stream, answer_of, answer_with_choices, choice_stream, extension_of, head_of, run_whole, serialize
from .scores import TokenOffsets, completion_scores, prompt_scores, scores_in, scores_of


async def completion(request: Request, service: Service, body: CompletionRequest) -> Response:
    """Continue texts; with stream: true as server-sent events."""
    beginning = begin_text(request, body)
    if body.returned_texts is not None:
        return await _best(request, beginning, body.returned_texts)
    return await answer_with_choices(request, beginning, _head, _choice, _stream if body.stream else None)


def begin_text(request: Request, body: CompletionRequest) -> Beginning:
    """Return a function that begins an answer to text prompts. All APIs with prompts use it. Raises ApiError."""
    service: Service = request.state.service
    prompts = body.prompts
    if body.trellm.special_tokens is False:
        message = (
            "trellm.special_tokens: false needs messages; in a prompt names of special tokens are always read as tokens"
        )
        raise ApiError(message, ("trellm", "special_tokens"))

    async def prepare(generation: GenerationRequest) -> Prepared:
        generator = await service.generator(generation.constraint)
        if not body.trellm.describe:
            return generator, prompts, None
        return generator, await service.describe(generation.constraint, list(prompts), ("prompt",)), None

    return partial(begin, request, body, len(prompts), ("prompt",), prepare)


async def _best(request: Request, beginning: Beginning, count: int) -> Response:
    """Answer with the `count` sequences of the highest mean log-probability for each prompt."""

    def make(generation: GenerationRequest, index: int, result: Generation[Any]) -> tuple[float, dict[str, Any]]:
        several = result.logprobs or (0.0,)
        choice = _choice(generation, index, result)
        return sum(several) / len(several), choice if generation.body.scores else choice | {"logprobs": None}

    generation, scored = await run_whole(request, beginning, make)
    size, chosen = generation.body.texts, list[dict[str, Any]]()
    for at in range(0, len(scored), size):
        chosen += [choice for _, choice in sorted(scored[at : at + size], key=lambda each: -each[0])[:count]]
    numbered = [choice | {"index": number} for number, choice in enumerate(chosen)]
    return answer_of(_head(generation), [b"".join(serialize(choice)) for choice in numbered], generation.usage)


def _head(generation: GenerationRequest) -> dict[str, Any]:
    return head_of(generation, "text_completion")


def _choice(generation: GenerationRequest, index: int, result: Generation[Any]) -> dict[str, Any]:
    body: Any = generation.body
    echo, offsets, prompt = _echo(generation, index), TokenOffsets(result.overlap), result.prompt_logprobs
    if body.has_echoed_scores:
        if result.prompt.endswith(echo):  # a tokenizer may add a leading space
            offsets = TokenOffsets(len(result.prompt.encode()) - len(echo.encode()))
        else:  # the tokens of the prompt have another text
            echo = result.prompt
    echoed_tokens = prompt if body.has_echoed_scores and prompt is not None else ()
    scores = completion_scores(
        scores_of(result), generation.service.model.vocabulary, offsets, echoed_tokens, body.logprobs
    )
    choice = _fields(index, echo + result.text, scores, result)
    if body.prompt_logprobs is None or prompt is None:
        return choice
    return choice | {
        "prompt_logprobs": prompt_scores(prompt, generation.service.model.vocabulary, body.prompt_logprobs)
    }


def _echo(generation: GenerationRequest, index: int) -> str:
    """Return the prompt of a choice if the request has `echo`; "" otherwise."""
    if not (isinstance(generation.body, CompletionRequest) and generation.body.echo):
        return ""
    prompt: Any = generation.prompts[index // generation.options.search.n]
    return (
        prompt
        if isinstance(prompt, str)
        else generation.service.model.vocabulary.decode(prompt).decode(errors="replace")
    )


def _fields(index: int, text: str, scores: dict[str, Any] | None, result: Generation[Any] | None) -> dict[str, Any]:
    """Return the JSON of a choice, or of its delta. result: None until the sequence has ended"""
    reason = None if result is None else REASONS[result.finish_reason]
    choice = {"index": index, "text": text, "logprobs": scores, "finish_reason": reason}
    return choice if result is None else choice | extension_of(result)


def _stream(generation: GenerationRequest) -> Stream:
    offsets = [TokenOffsets() for _ in range(generation.choices)]

    def choices(piece: Piece) -> Iterator[dict[str, Any]]:
        index = generation.index_of(piece)
        offsets[index].overlap = piece.overlap
        scores = completion_scores(scores_in(piece), generation.service.model.vocabulary, offsets[index])
        if piece.text or scores or piece.result:
            yield _fields(index, piece.text, scores, piece.result)

    echoed = (
        range(generation.choices) if isinstance(generation.body, CompletionRequest) and generation.body.echo else ()
    )
    first = [_fields(index, _echo(generation, index), None, None) for index in echoed]
    return choice_stream(generation, _head(generation), first, choices)
