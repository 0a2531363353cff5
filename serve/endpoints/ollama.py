"""Ollama's API: chats and completions as lines of JSON, and lists of models."""

from __future__ import annotations

import json
import math
import time
from datetime import UTC, datetime
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...engine.handle import Piece
from ...engine.results import Generation
from ..bodies import derived
from ..generation import Beginning, GenerationRequest, message_of
from ..hosting.hosted import HostedModel
from ..hosting.manager import ModelManager
from ..requests.chat import ChatRequest
from ..requests.ollama import LATEST, OllamaChat, OllamaGenerate, OllamaName
from ..service import Service
from ..tool_calls import AnswerReader, ContentDelta, ParsedMessage, ReasoningDelta
from ..tool_calls.formats import template_of
from .answers import Answer, Stream, extension_of, streamed, whole
from .chat import begin_chat, finish_of
from .completion import begin_text
from .scores import of_chat, scores_in, scores_of

LINES = "application/x-ndjson"
NEVER = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
"""Reported expiry of a model that stays loaded, in seconds since 1970."""


async def chat(request: Request, service: Service, asked: OllamaChat) -> Response:
    """Answer a chat as Ollama does."""
    if not asked.has_prompt:
        return _loaded(service, asked)
    service.keep_alive = asked.kept_seconds
    return await _answer(request, await derived(request, asked.chat), "message")


async def generate(request: Request, service: Service, asked: OllamaGenerate) -> Response:
    """Answer a user's prompt as Ollama does, or continue a text."""
    if not asked.has_prompt:
        return _loaded(service, asked)
    service.keep_alive = asked.kept_seconds
    if not asked.raw:
        return await _answer(request, await derived(request, asked.chat), "response")
    text = await derived(request, asked.text)
    return await _run(request, begin_text(request, text), "response", streams=asked.stream)


async def _answer(request: Request, chat: ChatRequest, name: str) -> Response:
    return await _run(request, begin_chat(request, chat), name, streams=chat.is_streamed)


async def _run(request: Request, beginning: Beginning, name: str, *, streams: bool) -> Response:
    """Answer a request as one object or as lines. name: "message" or "response", the field of the text"""
    if streams:
        return await streamed(request, beginning, partial(_stream, name), LINES)

    def make(begun: GenerationRequest, index: int, result: Generation[Any]) -> dict[str, Any]:
        message = begun.read(result)
        scores = of_chat(scores_of(result), begun.service.model.vocabulary)
        return _said(begun, name, message, scores) | _last(begun, message, result)

    begun, (said,) = await whole(request, beginning, make)
    return Answer(said | _counted(begun))


def _said(
    begun: GenerationRequest, name: str, message: ParsedMessage, scores: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the JSON of an answer or a delta."""
    content = message.content or ""
    said: dict[str, Any] = {"model": begun.model_name, "created_at": _written(time.time())}
    if name == "response":
        inner = said
        inner["response"] = content
    else:
        inner: dict[str, Any] = {"role": "assistant", "content": content}
        said["message"] = inner
    if message.reasoning:
        inner["thinking"] = message.reasoning
    if message.calls and name == "message":
        inner["tool_calls"] = [
            {"id": call.id, "function": {"name": call.name, "arguments": call.values}} for call in message.calls
        ]
    if scores is not None:
        said["logprobs"] = scores["content"]
    return said | {"done": False}


def _last(begun: GenerationRequest, message: ParsedMessage, result: Generation[Any]) -> dict[str, Any]:
    finish = finish_of(message, result, begun.cut_at)
    return {"done": True, "done_reason": "length" if finish == "length" else "stop"} | extension_of(result)


def _counted(begun: GenerationRequest) -> dict[str, Any]:
    """Return token counts, and durations in nanoseconds."""
    return {
        "total_duration": int(1e9 * (time.perf_counter() - begun.since)),
        "load_duration": 0,
        "prompt_eval_count": begun.prompt_tokens,
        "eval_count": begun.output_tokens,
    }


def _stream(name: str, begun: GenerationRequest) -> Stream:
    """Return the serializers of lines. The last piece has all tool calls, each whole."""
    reader = begun.reader()
    first = math.inf

    def lines(piece: Piece) -> bytes:
        nonlocal first
        first = min(first, time.perf_counter())
        said = _new(begun, name, piece, reader)
        if piece.result is not None:
            message = message_of(reader, piece.result)
            if message.calls:
                said.append(_said(begun, name, ParsedMessage("", None, message.calls)))
            timed = {
                "prompt_eval_duration": int(1e9 * (first - begun.since)),
                "eval_duration": int(1e9 * (time.perf_counter() - first)),
            }
            end = _said(begun, name, ParsedMessage("", None, ()))
            said.append(end | _last(begun, message, piece.result) | _counted(begun) | timed)
        return b"".join(map(_line, said))

    return Stream(lines, failed=lambda error: _line(error.as_ollama()))


def _new(begun: GenerationRequest, name: str, piece: Piece, reader: AnswerReader | None) -> list[dict[str, Any]]:
    """Return messages with the content and thinking of a piece. The first one has the piece's scores."""
    scores = of_chat(scores_in(piece), begun.service.model.vocabulary)
    found: list[dict[str, Any]] = []
    for delta in begun.deltas(piece, reader):
        match delta:
            case ContentDelta(text):
                found.append(_said(begun, name, ParsedMessage(text, None, ()), scores))
            case ReasoningDelta(text):
                found.append(_said(begun, name, ParsedMessage(None, text, ()), scores))
            case _:
                continue
        scores = None
    return found


def _line(said: dict[str, Any]) -> bytes:
    return json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _written(seconds: float) -> str:
    """Format a time, in seconds since 1970, as Ollama does."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _loaded(service: Service, asked: OllamaChat | OllamaGenerate) -> Response:
    """Answer a request without a prompt. The model is loaded already."""
    service.keep_alive = asked.kept_seconds
    return _done(asked, "load")


def unloaded(models: ModelManager, asked: OllamaChat | OllamaGenerate) -> Response | None:
    """Answer a request without a prompt and with keep_alive 0, and unload the model once idle; None for others."""
    if asked.has_prompt or asked.kept_seconds != 0:
        return None
    hosted = models.find(asked.named_model)
    if hosted.service is not None:
        hosted.service.keep_alive = 0
        hosted.rest()
    return _done(asked, "unload")


def _done(asked: OllamaChat | OllamaGenerate, reason: str) -> Response:
    """Return an answer without text."""
    empty = {"message": {"role": "assistant", "content": ""}} if isinstance(asked, OllamaChat) else {"response": ""}
    head = {"model": asked.model, "created_at": _written(time.time())}
    return Answer({**head, **empty, "done": True, "done_reason": reason})


async def tags(request: Request) -> Response:
    """List all models under their names, as Ollama does."""
    models: ModelManager = request.app.state.models
    return Answer({"models": [_model(models, hosted, name) for hosted in models.models for name in hosted.names]})


async def running(request: Request) -> Response:
    """List the models that are in memory, as Ollama does."""
    models: ModelManager = request.app.state.models
    return Answer(
        {
            "models": [
                _model(models, hosted, hosted.served.name)
                | {"size": hosted.bytes, "size_vram": 0, "expires_at": _written(hosted.expires or NEVER)}
                for hosted in models.models
                if hosted.service is not None
            ]
        }
    )


def _model(models: ModelManager, hosted: HostedModel, name: str) -> dict[str, Any]:
    return {
        "name": f"{name}{LATEST}",
        "model": f"{name}{LATEST}",
        "modified_at": _written(models.shared.created),
        "size": hosted.weight_bytes,
        "digest": "",
        "details": _details(),
    }


def _details() -> dict[str, Any]:
    return {
        "parent_model": "",
        "format": "",
        "family": "",
        "families": [],
        "parameter_size": "",
        "quantization_level": "",
    }


async def show(request: Request, service: Service, asked: OllamaName) -> Response:
    """Describe the model's capabilities, as Ollama does."""
    more = (["thinking"] if service.form.thinks else []) + (["vision"] if "image" in service.reads else [])
    return Answer(
        {
            "modelfile": "",
            "parameters": "",
            "template": template_of(service.model.tokenizer),
            "details": _details(),
            "model_info": {"general.context_length": service.model.context},
            "capabilities": ["completion", "tools", *more],
        }
    )
