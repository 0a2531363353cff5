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
from ..bodies import derived
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
    leased,
    streamed,
    while_connected,
    whole,
    written,
)
from .completion import begin_text
from .scores import of_chat, scores_of


async def llama(request: Request, service: Service, asked: LlamaRequest) -> Response:
    """Continue texts as llama.cpp's server does."""
    text = await derived(request, partial(asked.text, service.name))
    if asked.stream:
        if len(text.prompts) > 1:
            raise ApiError("only one prompt can be streamed; leave stream out", ("stream",))
        return await streamed(request, begin_text(request, text), _llama_stream)
    begun, several = await whole(request, begin_text(request, text), _llama_text)
    found = [{"index": index, **said, **_llama_counts(begun, index)} for index, said in enumerate(several)]
    answer: Any = found[0] if isinstance(asked.prompt, str) or isinstance(asked.prompt[0], int) else found
    return LargeAnswer(list(written(answer)))


def _llama_text(begun: GenerationRequest, index: int, result: Generation[Any]) -> dict[str, Any]:
    """Return the fields of a finished sequence."""
    kind = {"length": "limit", "stop": "word", "complete": "eos"}[result.finish_reason]
    said: dict[str, Any] = {"content": result.text, "tokens": list(result.token_ids), "stop": True, "stop_type": kind}
    scores = of_chat(scores_of(result), begun.service.model.vocabulary)
    if scores is not None:
        said["completion_probabilities"] = scores["content"]
    return said | {"tokens_predicted": len(result.token_ids)} | extension_of(result)


def _llama_counts(begun: GenerationRequest, index: int) -> dict[str, Any]:
    prompt: Any = begun.prompts[index]
    return {
        "model": begun.model_name,
        "prompt": prompt if isinstance(prompt, str) else list(prompt),
        "tokens_evaluated": begun.sizes[index],
        "tokens_cached": begun.cached_tokens,
        "truncated": False,
    }


def _llama_stream(begun: GenerationRequest) -> Stream:
    def written(piece: Piece) -> bytes:
        said = event({"index": 0, "content": piece.text, "stop": False}) if piece.text else b""
        if piece.result is None:
            return said
        last = {**_llama_text(begun, 0, piece.result), "content": "", "tokens": list[int]()}
        return said + event({"index": 0, **last, **_llama_counts(begun, 0)})

    return Stream(written)


async def sglang(request: Request, service: Service, asked: SglangRequest) -> Response:
    """Continue texts as SGLang does."""
    text = await derived(request, partial(asked.texts, service.name))
    if asked.stream:
        return await streamed(request, begin_text(request, text), partial(_sglang_stream, asked.is_single))
    _, several = await whole(request, begin_text(request, text), _sglang_text)
    return LargeAnswer(list(written(several[0] if asked.is_single else several)))


def _sglang_text(begun: GenerationRequest, index: int, result: Generation[Any]) -> dict[str, Any]:
    size = len(result.token_ids)
    kind = {"length": "length"}.get(result.finish_reason, "stop")
    said: dict[str, Any] = {"text": result.text, "output_ids": list(result.token_ids)}
    said["meta_info"] = _meta(begun, index, size, {"type": kind} | ({"length": size} if kind == "length" else {}))
    return said | extension_of(result)


def _meta(begun: GenerationRequest, index: int, size: int, finish: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "id": f"{begun.key}-{index}",
        "finish_reason": finish,
        "prompt_tokens": begun.sizes[index // begun.options.search.n],
        "completion_tokens": size,
        "cached_tokens": begun.cached_tokens,
        "e2e_latency": time.perf_counter() - begun.since,
    }


def _sglang_stream(is_single: bool, begun: GenerationRequest) -> Stream:
    """Return the serializers of events, each with the whole text so far."""
    texts, sizes = [""] * begun.choices, [0] * begun.choices

    def written(piece: Piece) -> bytes:
        index = begun.index_of(piece)
        texts[index] += piece.text
        sizes[index] += len(piece.token_ids)
        told = {} if is_single else {"index": index}
        if piece.result is not None:
            return event(_sglang_text(begun, index, piece.result) | told)
        meta = _meta(begun, index, sizes[index], None)
        return event({"text": texts[index], "meta_info": meta} | told) if piece.text else b""

    async def end() -> bytes:
        return DONE

    return Stream(written, end=end)


class DetokenizeRequest(RequestBase, title="Detokenize"):
    """The body of /detokenize."""

    model: str | None = None
    tokens: list[int] = Field(max_length=1 << 20, fail_fast=True)


async def detokenize(request: Request, service: Service, asked: DetokenizeRequest) -> Response:
    """Write tokens as text; invalid UTF-8 becomes replacement characters."""
    vocabulary = service.model.vocabulary
    service.check_tokens(asked.tokens, ("tokens",))

    def work() -> list[bytes]:
        text = vocabulary.decode(asked.tokens).decode(errors="replace")
        return list(written({"prompt": text, "content": text}))

    return LargeAnswer(await while_connected(request, service.shared.aside(work)))


async def told_version(request: Request) -> Response:
    """Return the version of the server."""
    return Answer({"version": version("trellm")})


async def props(request: Request) -> Response:
    """Describe the server as llama.cpp's does, as far as it applies; `?model=` names a model."""
    async with leased(request, request.query_params.get("model")) as service:
        said: dict[str, Any] = {
            "default_generation_settings": {"n_ctx": service.model.context, "params": {}},
            "total_slots": service.settings.texts,
            "model_alias": service.name,
            "model_path": "",
            "chat_template": template_of(service.model.tokenizer),
            "modalities": {"vision": "image" in service.reads, "audio": "audio" in service.reads},
            "build_info": f"trellm {version('trellm')}",
        }
        return Answer(said)
