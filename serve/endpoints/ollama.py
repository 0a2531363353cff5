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
from ..bodies import derive
from ..generation import Beginning, GenerationRequest, message_of
from ..hosting.hosted import HostedModel
from ..hosting.manager import ModelManager
from ..requests.chat import ChatRequest
from ..requests.ollama import LATEST, OllamaChat, OllamaGenerate, OllamaName
from ..service import Service
from ..tool_calls import AnswerReader, ContentDelta, ParsedMessage, ReasoningDelta
from ..tool_calls.formats import template_of
from .answers import Answer, Stream, extension_of, run_whole, stream_answer
from .chat import begin_chat, finish_of
from .completion import begin_text
from .scores import chat_scores, scores_in, scores_of

LINES = "application/x-ndjson"
NEVER = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
"""Reported expiry of a model that stays loaded, in seconds since 1970."""


async def chat(request: Request, service: Service, body: OllamaChat) -> Response:
    """Answer a chat as Ollama does."""
    if not body.has_prompt:
        return _answer_load(service, body)
    service.keep_alive = body.keep_alive_seconds
    return await _answer(request, await derive(request, body.chat), "message")


async def generate(request: Request, service: Service, body: OllamaGenerate) -> Response:
    """Answer a user's prompt as Ollama does, or continue a text."""
    if not body.has_prompt:
        return _answer_load(service, body)
    service.keep_alive = body.keep_alive_seconds
    if not body.raw:
        return await _answer(request, await derive(request, body.chat), "response")
    text = await derive(request, body.text)
    return await _run(request, begin_text(request, text), "response", streams=body.stream)


async def _answer(request: Request, chat: ChatRequest, name: str) -> Response:
    return await _run(request, begin_chat(request, chat), name, streams=chat.is_streamed)


async def _run(request: Request, beginning: Beginning, name: str, *, streams: bool) -> Response:
    """Answer a request as one object or as lines. name: "message" or "response", the field of the text"""
    if streams:
        return await stream_answer(request, beginning, partial(_stream, name), LINES)

    def make(generation: GenerationRequest, index: int, result: Generation[Any]) -> dict[str, Any]:
        message = generation.read(result)
        scores = chat_scores(scores_of(result), generation.service.model.vocabulary)
        return _answer_fields(generation, name, message, scores) | _end_fields(generation, message, result)

    generation, (answer,) = await run_whole(request, beginning, make)
    return Answer(answer | _counts(generation))


def _answer_fields(
    generation: GenerationRequest, name: str, message: ParsedMessage, scores: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the JSON of an answer or a delta."""
    content = message.content or ""
    fields: dict[str, Any] = {"model": generation.model_name, "created_at": _timestamp(time.time())}
    if name == "response":
        inner = fields
        inner["response"] = content
    else:
        inner: dict[str, Any] = {"role": "assistant", "content": content}
        fields["message"] = inner
    if message.reasoning:
        inner["thinking"] = message.reasoning
    if message.calls and name == "message":
        inner["tool_calls"] = [
            {"id": call.id, "function": {"name": call.name, "arguments": call.values}} for call in message.calls
        ]
    if scores is not None:
        fields["logprobs"] = scores["content"]
    return fields | {"done": False}


def _end_fields(generation: GenerationRequest, message: ParsedMessage, result: Generation[Any]) -> dict[str, Any]:
    finish = finish_of(message, result, generation.cut_at)
    return {"done": True, "done_reason": "length" if finish == "length" else "stop"} | extension_of(result)


def _counts(generation: GenerationRequest) -> dict[str, Any]:
    """Return token counts, and durations in nanoseconds."""
    return {
        "total_duration": int(1e9 * (time.perf_counter() - generation.since)),
        "load_duration": 0,
        "prompt_eval_count": generation.prompt_tokens,
        "eval_count": generation.output_tokens,
    }


def _stream(name: str, generation: GenerationRequest) -> Stream:
    """Return the serializers of lines. The last piece has all tool calls, each whole."""
    reader = generation.reader()
    first = math.inf

    def lines(piece: Piece) -> bytes:
        nonlocal first
        first = min(first, time.perf_counter())
        objects = _delta_fields(generation, name, piece, reader)
        if piece.result is not None:
            message = message_of(reader, piece.result)
            if message.calls:
                objects.append(_answer_fields(generation, name, ParsedMessage("", None, message.calls)))
            durations = {
                "prompt_eval_duration": int(1e9 * (first - generation.since)),
                "eval_duration": int(1e9 * (time.perf_counter() - first)),
            }
            end = _answer_fields(generation, name, ParsedMessage("", None, ()))
            objects.append(end | _end_fields(generation, message, piece.result) | _counts(generation) | durations)
        return b"".join(map(_line, objects))

    return Stream(lines, failed=lambda error: _line(error.as_ollama()))


def _delta_fields(
    generation: GenerationRequest, name: str, piece: Piece, reader: AnswerReader | None
) -> list[dict[str, Any]]:
    """Return messages with the content and thinking of a piece. The first one has the piece's scores."""
    scores = chat_scores(scores_in(piece), generation.service.model.vocabulary)
    messages: list[dict[str, Any]] = []
    for delta in generation.deltas(piece, reader):
        match delta:
            case ContentDelta(text):
                messages.append(_answer_fields(generation, name, ParsedMessage(text, None, ()), scores))
            case ReasoningDelta(text):
                messages.append(_answer_fields(generation, name, ParsedMessage(None, text, ()), scores))
            case _:
                continue
        scores = None
    return messages


def _line(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _timestamp(seconds: float) -> str:
    """Format a time, in seconds since 1970, as Ollama does."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _answer_load(service: Service, body: OllamaChat | OllamaGenerate) -> Response:
    """Answer a request without a prompt. The model is loaded already."""
    service.keep_alive = body.keep_alive_seconds
    return _empty_answer(body, "load")


def answer_unload(models: ModelManager, body: OllamaChat | OllamaGenerate) -> Response | None:
    """Answer a request without a prompt and with keep_alive 0, and unload the model once idle; None for others."""
    if body.has_prompt or body.keep_alive_seconds != 0:
        return None
    hosted = models.find(body.named_model)
    if hosted.service is not None:
        hosted.service.keep_alive = 0
        hosted.notify_idle()
    return _empty_answer(body, "unload")


def _empty_answer(body: OllamaChat | OllamaGenerate, reason: str) -> Response:
    """Return an answer without text."""
    empty = {"message": {"role": "assistant", "content": ""}} if isinstance(body, OllamaChat) else {"response": ""}
    head = {"model": body.model, "created_at": _timestamp(time.time())}
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
                | {"size": hosted.bytes, "size_vram": 0, "expires_at": _timestamp(hosted.expires or NEVER)}
                for hosted in models.models
                if hosted.service is not None
            ]
        }
    )


def _model(models: ModelManager, hosted: HostedModel, name: str) -> dict[str, Any]:
    return {
        "name": f"{name}{LATEST}",
        "model": f"{name}{LATEST}",
        "modified_at": _timestamp(models.shared.created),
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


async def show(request: Request, service: Service, body: OllamaName) -> Response:
    """Describe the model's capabilities, as Ollama does."""
    more = (["thinking"] if service.tool_format.thinks else []) + (["vision"] if "image" in service.reads else [])
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
