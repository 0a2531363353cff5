"""The OpenAPI document, made of the shapes that requests are checked with."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import Any, cast

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response

from .endpoints.answers import Answer
from .endpoints.native import DetokenizeRequest
from .endpoints.other import ConstraintRequest, TokenizeRequest
from .requests.anthropic import CountRequest, MessagesRequest
from .requests.chat import ChatRequest, CompletionRequest
from .requests.embeddings import EmbeddingRequest, RerankRequest
from .requests.native import LlamaRequest, SglangRequest
from .requests.ollama import OllamaChat, OllamaGenerate
from .requests.responses import ResponsesRequest

_BODIES: dict[str, tuple[type[BaseModel], str]] = {
    "/v1/chat/completions": (ChatRequest, "Answer a chat; with stream: true as server-sent events."),
    "/v1/responses": (ResponsesRequest, "Answer in items; with stream: true as server-sent events."),
    "/v1/completions": (CompletionRequest, "Continue texts; with stream: true as server-sent events."),
    "/v1/embeddings": (EmbeddingRequest, "The final hidden states of texts, as directions."),
    "/v1/rerank": (RerankRequest, "Documents in the order of the cosines of their embeddings and a query's."),
    "/v1/messages": (MessagesRequest, "Answer a chat as Anthropic's API does."),
    "/v1/messages/count_tokens": (CountRequest, "How many tokens a chat has."),
    "/api/chat": (OllamaChat, "Answer a chat as Ollama does."),
    "/api/generate": (OllamaGenerate, "Answer what a user says as Ollama does, or continue a text."),
    "/completion": (LlamaRequest, "Continue texts as llama.cpp's server does."),
    "/generate": (SglangRequest, "Continue texts as SGLang does."),
    "/detokenize": (DetokenizeRequest, "The text of tokens."),
    "/constraint": (ConstraintRequest, "What a constraint comes to, or the error that it has."),
    "/tokenize": (TokenizeRequest, "The tokens of a prompt."),
}
_GETS = {
    "/v1/models": "The model, under its names.",
    "/version": "The version of the server.",
    "/props": "What the server is, as llama.cpp's says it.",
    "/api/tags": "The model, as Ollama lists it.",
    "/health/live": "Whether the process is alive.",
    "/health/ready": "Whether requests are taken.",
    "/metrics": "Counters, as Prometheus reads them.",
}
_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
                "pointer": {"type": "string", "description": "The place in the request, as a JSON pointer"},
            },
            "required": ["message", "type", "param", "code"],
        }
    },
    "required": ["error"],
}


async def openapi(request: Request) -> Response:
    """The document."""
    return Answer(document())


@cache
def document() -> dict[str, Any]:
    """The whole of it."""
    several = [(shape, "validation") for shape, _ in _BODIES.values()]
    names, definitions = models_json_schema(several, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
    refused = {"description": "An error", "content": {"application/json": {"schema": {"$ref": _ref("Error")}}}}
    paths: dict[str, Any] = {}
    for path, (shape, meaning) in _BODIES.items():
        schema = names[shape, "validation"]
        paths[path] = {
            "post": {
                "summary": meaning,
                "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
                "responses": {"200": {"description": "The answer"}, "default": refused},
            }
        }
    for path, meaning in _GETS.items():
        answers = {"200": {"description": "The answer"}, "default": refused}
        paths[path] = {"get": {"summary": meaning, "responses": answers}}
    shapes: dict[str, Any] = definitions.get("$defs", {})
    titles = {_ref(name): _ref(shape["title"]) for name, shape in shapes.items()}
    found = {
        "openapi": "3.1.0",
        "info": {"title": "trellm serve", "version": version("trellm")},
        "paths": paths,
        "components": {
            "schemas": {shape["title"]: shape for shape in shapes.values()} | {"Error": _ERROR},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }
    return _referring(found, titles)


def _referring(value: Any, names: dict[str, str]) -> Any:
    """A value whose references have other names: shapes are called by their titles, whatever classes are called."""
    if isinstance(value, dict):
        given = cast("dict[str, Any]", value)
        return {
            name: names.get(each, each) if name == "$ref" else _referring(each, names) for name, each in given.items()
        }
    return [_referring(each, names) for each in cast("list[Any]", value)] if isinstance(value, list) else value


def _ref(name: str) -> str:
    return f"#/components/schemas/{name}"
