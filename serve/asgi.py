"""The ASGI application: routes, middleware and error handlers."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from ..engine.models.protocol import Model
from .endpoints import anthropic, native, ollama, other
from .endpoints.answers import Answer, refused
from .endpoints.chat import chat
from .endpoints.completion import completion
from .endpoints.embeddings import embeddings, rerank
from .endpoints.responses import kept, responses
from .errors import INVALID, ApiError, of_any
from .guard import Guard, write_access_log
from .hosting.hosted import ServedModel
from .hosting.manager import ModelManager
from .openapi import BodyRoute, openapi
from .requests.anthropic import CountRequest, MessagesRequest
from .requests.chat import ChatRequest, CompletionRequest
from .requests.embeddings import EmbeddingRequest, RerankRequest
from .requests.native import LlamaRequest, SglangRequest
from .requests.ollama import OllamaChat, OllamaGenerate, OllamaName
from .requests.responses import ResponsesRequest
from .settings import Settings
from .telemetry import Metrics

GONE = 499
"""Status in the log of a request whose client disconnected."""
_LOG = logging.getLogger("trellm.serve")
ROUTES = (
    Route("/", other.page, methods=["GET"]),
    BodyRoute("/v1/chat/completions", ChatRequest, chat),
    BodyRoute("/v1/responses", ResponsesRequest, responses),
    Route("/v1/responses/{key}", kept, methods=["GET", "DELETE"]),
    BodyRoute("/v1/completions", CompletionRequest, completion),
    BodyRoute("/v1/embeddings", EmbeddingRequest, embeddings),
    BodyRoute("/v1/rerank", RerankRequest, rerank),
    BodyRoute("/v2/rerank", RerankRequest, rerank),
    BodyRoute("/rerank", RerankRequest, rerank),
    BodyRoute("/v1/messages", MessagesRequest, anthropic.messages),
    BodyRoute("/v1/messages/count_tokens", CountRequest, anthropic.count),
    BodyRoute("/api/chat", OllamaChat, ollama.chat, ollama.unloaded),
    BodyRoute("/api/generate", OllamaGenerate, ollama.generate, ollama.unloaded),
    BodyRoute("/api/show", OllamaName, ollama.show),
    Route("/api/tags", ollama.tags, methods=["GET"]),
    Route("/api/ps", ollama.running, methods=["GET"]),
    Route("/api/version", native.told_version, methods=["GET"]),
    BodyRoute("/completion", LlamaRequest, native.llama),
    BodyRoute("/generate", SglangRequest, native.sglang),
    Route("/v1/models", other.models, methods=["GET"]),
    Route("/v1/models/{name:path}", other.model, methods=["GET"]),
    BodyRoute("/constraint", other.ConstraintRequest, other.constraint),
    BodyRoute("/tokenize", other.TokenizeRequest, other.tokenize),
    BodyRoute("/detokenize", native.DetokenizeRequest, native.detokenize),
    Route("/version", native.told_version, methods=["GET"]),
    Route("/props", native.props, methods=["GET"]),
    Route("/health", other.live, methods=["GET"]),
    Route("/health/live", other.live, methods=["GET"]),
    Route("/health/ready", other.ready, methods=["GET"]),
    Route("/metrics", other.metrics, methods=["GET"]),
)
"""Routes, with the shapes of their bodies."""


def application(
    model: Model | Callable[[], Model],
    settings: Settings | None = None,
    *,
    memory: int | None = None,
    memory_budget: int | None = None,
    others: Sequence[ServedModel] = (),
) -> Starlette:
    """Return the server of one or several models as an ASGI application, for `uvicorn` and others.

    model: the model named by the settings, or a function that loads it; others: loaded on first use
    memory: bytes of the KV cache of each model, by default as for `Engine`; memory_budget: bytes of the weights and KV
        caches of all loaded models, see `ModelManager`
    The lifespan loads the first model, starts its engine, and closes everything. Raises OptionError.
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
            ApiError: _refused,
            HTTPException: _wrong_address,
            ClientDisconnect: _gone,
            Exception: _failed,
        },
    )
    app.state.models = models
    app.router.redirect_slashes = False  # a redirect would use the client's Host header
    return app


def _guards(settings: Settings, metrics: Metrics) -> list[Middleware]:
    """Return the middleware that sees a request first."""
    guard = Middleware(Guard, keys=settings.keys, hosts=settings.hosts, metrics=metrics)
    if not settings.origins:
        return [guard]
    cors = Middleware(
        CORSMiddleware,
        allow_origins=list(settings.origins),
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["*"],  # clients such as openai-js describe themselves in headers of each request
        expose_headers=["Retry-After"],
    )
    return [cors, guard]


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    _count(request, error)
    return refused(error.renamed(getattr(request.state, "names", ())), request.url.path)


async def _wrong_address(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    said = f"{request.method} {request.url.path[:200]}: {error.detail}"
    code = "method_not_allowed" if error.status_code == 405 else "not_found"
    shown = {"message": said, "type": INVALID, "param": None, "code": code}
    return Answer({"error": shown}, error.status_code, error.headers)


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=GONE)


async def _failed(request: Request, error: Exception) -> Response:
    """Answer an unexpected error: details go to the log, the client gets as little as possible."""
    _LOG.error("%s %r failed", request.method, request.url.path, exc_info=error)
    said = of_any(error)
    _count(request, said)
    return refused(said, request.url.path)


def _count(request: Request, error: ApiError) -> None:
    models: ModelManager = request.app.state.models
    models.metrics.fail(error)
