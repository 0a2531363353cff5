"""Endpoints of llama.cpp and SGLang: completions, detokenization, and server properties."""

from __future__ import annotations

import time
from functools import partial
from importlib.metadata import version
from typing import Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from ...engine.handle import Piece
from ...engine.results import Generation
from ..bodies import derive
from ..errors import ApiError
from ..generation import GenerationRequest
from ..requests.fields import RequestBase
from ..requests.native import LlamaRequest, SglangRequest
from ..service import Service
from ..tool_calls.formats import template_of
from .answers import (
    DONE,
    Answer,
    LargeAnswer,
    Stream,
    event,
    extension_of,
    lease_model,
    run_whole,
    serialize,
    stream_answer,
    while_connected,
)
from .completion import begin_text
from .scores import chat_scores, scores_of


async def llama(request: Request, service: Service, body: LlamaRequest) -> Response:
    """Continue texts as llama.cpp's server does."""
    text = await derive(request, partial(body.text, service.name))
    if body.stream:
        if len(text.prompts) > 1:
            raise ApiError("only one prompt can be streamed; leave stream out", ("stream",))
        return await stream_answer(request, begin_text(request, text), _llama_stream)
    generation, several = await run_whole(request, begin_text(request, text), _llama_text)
    answers = [{"index": index, **fields, **_llama_counts(generation, index)} for index, fields in enumerate(several)]
    answer: Any = answers[0] if isinstance(body.prompt, str) or isinstance(body.prompt[0], int) else answers
    return LargeAnswer(list(serialize(answer)))


def _llama_text(generation: GenerationRequest, index: int, result: Generation[Any]) -> dict[str, Any]:
    """Return the fields of a finished sequence."""
    kind = {"length": "limit", "stop": "word", "complete": "eos"}[result.finish_reason]
    fields: dict[str, Any] = {"content": result.text, "tokens": list(result.token_ids), "stop": True, "stop_type": kind}
    scores = chat_scores(scores_of(result), generation.service.model.vocabulary)
    if scores is not None:
        fields["completion_probabilities"] = scores["content"]
    return fields | {"tokens_predicted": len(result.token_ids)} | extension_of(result)


def _llama_counts(generation: GenerationRequest, index: int) -> dict[str, Any]:
    prompt: Any = generation.prompts[index]
    return {
        "model": generation.model_name,
        "prompt": prompt if isinstance(prompt, str) else list(prompt),
        "tokens_evaluated": generation.sizes[index],
        "tokens_cached": generation.cached_tokens,
        "truncated": False,
    }


def _llama_stream(generation: GenerationRequest) -> Stream:
    def write(piece: Piece) -> bytes:
        event_bytes = event({"index": 0, "content": piece.text, "stop": False}) if piece.text else b""
        if piece.result is None:
            return event_bytes
        last = {**_llama_text(generation, 0, piece.result), "content": "", "tokens": list[int]()}
        return event_bytes + event({"index": 0, **last, **_llama_counts(generation, 0)})

    return Stream(write)


async def sglang(request: Request, service: Service, body: SglangRequest) -> Response:
    """Continue texts as SGLang does."""
    text = await derive(request, partial(body.texts, service.name))
    if body.stream:
        return await stream_answer(request, begin_text(request, text), partial(_sglang_stream, body.is_single))
    _, several = await run_whole(request, begin_text(request, text), _sglang_text)
    return LargeAnswer(list(serialize(several[0] if body.is_single else several)))


def _sglang_text(generation: GenerationRequest, index: int, result: Generation[Any]) -> dict[str, Any]:
    size = len(result.token_ids)
    kind = {"length": "length"}.get(result.finish_reason, "stop")
    fields: dict[str, Any] = {"text": result.text, "output_ids": list(result.token_ids)}
    fields["meta_info"] = _meta(
        generation, index, size, {"type": kind} | ({"length": size} if kind == "length" else {})
    )
    return fields | extension_of(result)


def _meta(generation: GenerationRequest, index: int, size: int, finish: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "id": f"{generation.key}-{index}",
        "finish_reason": finish,
        "prompt_tokens": generation.sizes[index // generation.options.search.n],
        "completion_tokens": size,
        "cached_tokens": generation.cached_tokens,
        "e2e_latency": time.perf_counter() - generation.since,
    }


def _sglang_stream(is_single: bool, generation: GenerationRequest) -> Stream:
    """Return the serializers of events, each with the whole text so far."""
    texts, sizes = [""] * generation.choices, [0] * generation.choices

    def write(piece: Piece) -> bytes:
        index = generation.index_of(piece)
        texts[index] += piece.text
        sizes[index] += len(piece.token_ids)
        index_field = {} if is_single else {"index": index}
        if piece.result is not None:
            return event(_sglang_text(generation, index, piece.result) | index_field)
        meta = _meta(generation, index, sizes[index], None)
        return event({"text": texts[index], "meta_info": meta} | index_field) if piece.text else b""

    async def end() -> bytes:
        return DONE

    return Stream(write, end=end)


class DetokenizeRequest(RequestBase, title="Detokenize"):
    """The body of /detokenize."""

    model: str | None = None
    tokens: list[int] = Field(max_length=1 << 20, fail_fast=True)


async def detokenize(request: Request, service: Service, body: DetokenizeRequest) -> Response:
    """Write tokens as text; invalid UTF-8 becomes replacement characters."""
    vocabulary = service.model.vocabulary
    service.check_tokens(body.tokens, ("tokens",))

    def work() -> list[bytes]:
        text = vocabulary.decode(body.tokens).decode(errors="replace")
        return list(serialize({"prompt": text, "content": text}))

    return LargeAnswer(await while_connected(request, service.shared.run_slow(work)))


async def server_version(request: Request) -> Response:
    """Return the version of the server."""
    return Answer({"version": version("trellm")})


async def props(request: Request) -> Response:
    """Describe the server as llama.cpp's does, as far as it applies; `?model=` names a model."""
    async with lease_model(request, request.query_params.get("model")) as service:
        properties: dict[str, Any] = {
            "default_generation_settings": {"n_ctx": service.model.context, "params": {}},
            "total_slots": service.settings.texts,
            "model_alias": service.name,
            "model_path": "",
            "chat_template": template_of(service.model.tokenizer),
            "modalities": {"vision": "image" in service.reads, "audio": "audio" in service.reads},
            "build_info": f"trellm {version('trellm')}",
        }
        return Answer(properties)
