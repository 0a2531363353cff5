"""The ASGI application: routes, error responses, and the OpenAPI document of all request bodies."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from importlib.metadata import version
from typing import Any, TypeVar, cast

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from ..engine.models.protocol import Model
from .bodies import check_size, read
from .endpoints import anthropic, native, ollama, other
from .endpoints.answers import Answer, error_answer, lease_model
from .endpoints.chat import chat
from .endpoints.completion import completion
from .endpoints.embeddings import embeddings, rerank
from .endpoints.responses import responses, stored_response
from .errors import INVALID, ApiError, api_error
from .guard import Guard, write_access_log
from .hosting.hosted import ServedModel
from .hosting.manager import ModelManager
from .requests.anthropic import CountRequest, MessagesRequest
from .requests.chat import ChatRequest, CompletionRequest
from .requests.embeddings import EmbeddingRequest, RerankRequest
from .requests.fields import RequestBase
from .requests.native import LlamaRequest, SglangRequest
from .requests.ollama import OllamaChat, OllamaGenerate, OllamaName
from .requests.responses import ResponsesRequest
from .service import Service
from .settings import Settings
from .telemetry import Metrics

T = TypeVar("T", bound=RequestBase)
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


class BodyRoute(Route):
    """A route of POST requests with a JSON body.

    shape: pydantic model of the body
    answer: endpoint, called with the validated body and the service of its model after loading
    without: endpoint of requests that need no loaded model; returns None for others
    """

    def __init__(
        self,
        path: str,
        shape: type[T],
        answer: Callable[[Request, Service, T], Awaitable[Response]],
        without_model: Callable[[ModelManager, T], Response | None] = lambda models, body: None,
    ) -> None:
        async def endpoint(request: Request) -> Response:
            models: ModelManager = request.app.state.models
            body = await read(request, shape, models.body_bytes)
            if (response := without_model(models, body)) is not None:
                return response
            async with lease_model(request, body.named_model) as service:
                check_size(request, service.body_bytes)
                return await answer(request, service, body)

        endpoint.__doc__ = answer.__doc__
        super().__init__(path, endpoint, methods=["POST"])
        self.shape: type[BaseModel] = shape


def openapi(routes: Iterable[Route]) -> Route:
    """Return the route of the OpenAPI document. Its summaries are the first lines of endpoints' docstrings."""
    api_routes = list(routes)

    @cache
    def document() -> dict[str, Any]:
        return _document([*api_routes, route])

    async def endpoint(request: Request) -> Response:
        """Describe the API as an OpenAPI document."""
        return Answer(document())

    route = Route("/openapi.json", endpoint, methods=["GET"])
    return route


def _document(routes: list[Route]) -> dict[str, Any]:
    shapes = [(route.shape, "validation") for route in routes if isinstance(route, BodyRoute)]
    names, definitions = models_json_schema(shapes, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
    error_response = {"description": "An error", "content": {"application/json": {"schema": {"$ref": _ref("Error")}}}}
    paths: dict[str, Any] = {}
    for route in routes:
        operation: dict[str, Any] = {
            "summary": str(route.endpoint.__doc__).partition("\n")[0],
            "responses": {"200": {"description": "The answer"}, "default": error_response},
        }
        if isinstance(route, BodyRoute):
            schema = names[route.shape, "validation"]
            operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
        if route.param_convertors:
            parameter = {"in": "path", "required": True, "schema": {"type": "string"}}
            operation["parameters"] = [{"name": name, **parameter} for name in route.param_convertors]
        methods = sorted((route.methods or set()) - {"HEAD"})
        paths[route.path_format] = {method.lower(): operation for method in methods}
    document = {
        "openapi": "3.1.0",
        "info": {"title": "trellm serve", "version": version("trellm")},
        "paths": paths,
        "components": {
            "schemas": {shape["title"]: shape for shape in definitions.get("$defs", {}).values()} | {"Error": _ERROR},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }
    titles = {_ref(name): _ref(shape["title"]) for name, shape in definitions.get("$defs", {}).items()}
    return _rename_references(document, titles)


def _rename_references(value: Any, names: dict[str, str]) -> Any:
    """Rename references to schemas in a document. names: new references by old ones"""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return {
            name: names.get(each, each) if name == "$ref" else _rename_references(each, names)
            for name, each in members.items()
        }
    return [_rename_references(each, names) for each in cast("list[Any]", value)] if isinstance(value, list) else value


def _ref(name: str) -> str:
    return f"#/components/schemas/{name}"


CLIENT_CLOSED = 499
"""Status in the log of a request whose client disconnected."""
_LOG = logging.getLogger("trellm.serve")
ROUTES = (
    Route("/", other.page, methods=["GET"]),
    BodyRoute("/v1/chat/completions", ChatRequest, chat),
    BodyRoute("/v1/responses", ResponsesRequest, responses),
    Route("/v1/responses/{key}", stored_response, methods=["GET", "DELETE"]),
    BodyRoute("/v1/completions", CompletionRequest, completion),
    BodyRoute("/v1/embeddings", EmbeddingRequest, embeddings),
    BodyRoute("/v1/rerank", RerankRequest, rerank),
    BodyRoute("/v2/rerank", RerankRequest, rerank),
    BodyRoute("/rerank", RerankRequest, rerank),
    BodyRoute("/v1/messages", MessagesRequest, anthropic.messages),
    BodyRoute("/v1/messages/count_tokens", CountRequest, anthropic.count),
    BodyRoute("/api/chat", OllamaChat, ollama.chat, ollama.answer_unload),
    BodyRoute("/api/generate", OllamaGenerate, ollama.generate, ollama.answer_unload),
    BodyRoute("/api/show", OllamaName, ollama.show),
    Route("/api/tags", ollama.tags, methods=["GET"]),
    Route("/api/ps", ollama.running, methods=["GET"]),
    Route("/api/version", native.server_version, methods=["GET"]),
    BodyRoute("/completion", LlamaRequest, native.llama),
    BodyRoute("/generate", SglangRequest, native.sglang),
    Route("/v1/models", other.models, methods=["GET"]),
    Route("/v1/models/{name:path}", other.model, methods=["GET"]),
    BodyRoute("/constraint", other.ConstraintRequest, other.constraint),
    BodyRoute("/tokenize", other.TokenizeRequest, other.tokenize),
    BodyRoute("/detokenize", native.DetokenizeRequest, native.detokenize),
    Route("/version", native.server_version, methods=["GET"]),
    Route("/props", native.props, methods=["GET"]),
    Route("/health", other.live, methods=["GET"]),
    Route("/health/live", other.live, methods=["GET"]),
    Route("/health/ready", other.ready, methods=["GET"]),
    Route("/metrics", other.metrics, methods=["GET"]),
)
"""All routes except that of the OpenAPI document."""


def application(
    model: Model | Callable[[], Model],
    settings: Settings | None = None,
    *,
    memory: int | None = None,
    memory_budget: int | None = None,
    others: Sequence[ServedModel] = (),
) -> Starlette:
    """Return the server of one or several models as an ASGI application, for `uvicorn` and others.

    model: the default model, named by the settings, or a function that loads it; others: models loaded on first use
    memory: bytes of the KV cache of each model, by default as for `Engine`
    memory_budget: bytes of the weights and KV caches of all loaded models, see `ModelManager`
    The lifespan loads the first model, starts its engine, and closes everything at its end. Raises OptionError.
    """
    chosen = Settings() if settings is None else settings
    metrics = Metrics()
    if chosen.access_log:
        write_access_log()
    first = ServedModel(name=chosen.name, model=model, aliases=chosen.aliases)
    models = ModelManager((first, *others), chosen, metrics, memory, memory_budget)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        await models.begin()
        try:
            yield
        finally:
            await models.close()

    app = Starlette(
        routes=[*ROUTES, openapi(ROUTES)],
        middleware=_guards(chosen, metrics),
        lifespan=lifespan,
        exception_handlers={
            ApiError: _answer_api_error,
            HTTPException: _answer_http_error,
            ClientDisconnect: _answer_disconnect,
            Exception: _answer_failure,
        },
    )
    app.state.models = models
    app.router.redirect_slashes = False  # a redirect would use the client's Host header
    return app


def _guards(settings: Settings, metrics: Metrics) -> list[Middleware]:
    """Return the middleware: authentication and host checks, and CORS if origins are allowed."""
    guard = Middleware(Guard, keys=settings.keys, hosts=settings.hosts, metrics=metrics)
    if not settings.origins:
        return [guard]
    cors = Middleware(
        CORSMiddleware,
        allow_origins=list(settings.origins),
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["*"],  # clients such as openai-js send headers of their own with each request
        expose_headers=["Retry-After"],
    )
    return [cors, guard]


async def _answer_api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    _count(request, error)
    return error_answer(error.rename_field(getattr(request.state, "names", ())), request.url.path)


async def _answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path[:200]}: {error.detail}"
    code = "method_not_allowed" if error.status_code == 405 else "not_found"
    error_fields = {"message": message, "type": INVALID, "param": None, "code": code}
    return Answer({"error": error_fields}, error.status_code, error.headers)


async def _answer_disconnect(request: Request, error: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED)


async def _answer_failure(request: Request, error: Exception) -> Response:
    """Answer an unexpected error. The log gets details, the client only a general message."""
    _LOG.error("%s %r failed", request.method, request.url.path, exc_info=error)
    server_error = api_error(error)
    _count(request, server_error)
    return error_answer(server_error, request.url.path)


def _count(request: Request, error: ApiError) -> None:
    models: ModelManager = request.app.state.models
    models.metrics.fail(error)
