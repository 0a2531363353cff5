"""Other endpoints: the web page, models, constraints, tokens, health and metrics."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from ...engine.prompts.arguments import Prompt
from ...engine.prompts.encoding import ids_of
from ...errors import TrellmError
from ...guides.explain import expected
from ..bodies import derive
from ..errors import ApiError, constraint_error, request_error
from ..hosting.hosted import HostedModel
from ..hosting.manager import ModelManager
from ..media.reading import RequestMedia
from ..requests.chat import ChatMessage
from ..requests.fields import ConstraintFields, RequestBase
from ..service import Service
from ..telemetry import CONTENT_TYPE
from .answers import ITEMS, Answer, LargeAnswer, serialize, while_connected

MEDIA_TOKEN = -1
"""Id in answers for image and audio rows, which are not in the vocabulary."""


class TokenizeRequest(RequestBase, title="Tokenize"):
    """The body of /tokenize: a text, or a chat for the model's template."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[ChatMessage], Field(min_length=1, fail_fast=True)] | None = None
    return_token_strs: bool = False


async def models(request: Request) -> Response:
    """List all models under their names, and their adapters."""
    manager: ModelManager = request.app.state.models
    several = [_model(manager, hosted, name) for hosted in manager.models for name in hosted.names]
    return Answer({"object": "list", "data": several})


async def model(request: Request) -> Response:
    """Describe a model by one of its names, or an adapter."""
    manager: ModelManager = request.app.state.models
    name = request.path_params["name"]
    return Answer(_model(manager, manager.named(name), name))


def _model(manager: ModelManager, hosted: HostedModel, name: str) -> dict[str, Any]:
    """Return a model's list entry, with a status as in llama.cpp's server, and the bytes of the loaded model."""
    fields: dict[str, Any] = {"id": name, "object": "model", "created": manager.shared.created, "owned_by": "trellm"}
    if name in hosted.adapters:
        fields["parent"] = hosted.served.name
    if hosted.has_been_loaded:
        fields["max_model_len"] = hosted.context
    status: dict[str, Any] = {"value": hosted.state} | ({"memory_bytes": hosted.bytes} if hosted.bytes else {})
    return fields | {"status": status | ({} if hosted.failed is None else {"failed": True})}


async def tokenize(request: Request, service: Service, body: TokenizeRequest) -> Response:
    """Tokenize a prompt or a chat."""
    if (body.prompt is None) == (body.messages is None):
        raise ApiError("give prompt or messages, one of the two", ("prompt",))
    chat = [each.plain(("messages", number)) for number, each in enumerate(body.messages or ())]
    try:
        with RequestMedia(service.shared.media, reads=service.reads) as media:
            prompt = body.prompt
            if prompt is None:
                prompt = await while_connected(request, media.read(chat))
            work = service.shared.run_slow(partial(_serialize_tokens, service, prompt, body.return_token_strs))
            return LargeAnswer(await while_connected(request, work))
    except TrellmError as error:
        raise request_error(error, ("prompt",) if body.messages is None else ("messages",)) from None


def _serialize_tokens(service: Service, prompt: Prompt, with_texts: bool) -> list[bytes]:
    """Return the serialized answer about tokens in parts, since there may be millions of tokens."""
    model = service.model
    ids = ids_of(model, prompt, 0, {}) if isinstance(prompt, str) else service.verbatim.ids(prompt, 0, {})
    token_ids = [max(token, MEDIA_TOKEN) for token in ids]
    fields: dict[str, Any] = {"count": len(ids), "max_model_len": model.context, "tokens": token_ids}
    if with_texts:
        texts = (*model.vocabulary.tokens, b"")  # the last entry stands for media rows
        fields["token_strs"] = [(texts[token] or b"").decode(errors="replace") for token in token_ids]
    pieces = list(serialize(fields))
    return [b"".join(pieces[at : at + ITEMS]) for at in range(0, len(pieces), ITEMS)]


async def live(request: Request) -> Response:
    """Answer while the process is alive."""
    return Answer({"status": "ok"})


async def ready(request: Request) -> Response:
    """Answer with status 200 if the server accepts requests, and 503 while it drains."""
    if request.app.state.models.is_draining:
        return Answer({"status": "draining"}, 503)
    return Answer({"status": "ok"})


async def metrics(request: Request) -> Response:
    """Return counters, gauges and histograms for Prometheus."""
    manager: ModelManager = request.app.state.models
    for hosted in manager.models:
        if hosted.service is not None:
            hosted.service.measure()
    manager.metrics.media.set(manager.shared.media.held)
    return Response(manager.metrics.text(), media_type=CONTENT_TYPE)


async def page(request: Request) -> Response:
    """Return the web page of the server."""
    text, policy = _page()
    headers = {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache"}
    return HTMLResponse(text, headers=headers)


@cache
def _page() -> tuple[str, str]:
    """Return the page and its Content-Security-Policy, for its own script and style, and requests to this server."""
    text = (Path(__file__).parents[1] / "page" / "index.html").read_text(encoding="utf-8")
    script, style = (_hash(_element(text, tag)) for tag in ("script", "style"))
    policy = (
        f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return text, policy


def _element(text: str, tag: str) -> str:
    found = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.S)
    assert found is not None
    return found[1]


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


class ConstraintRequest(ConstraintFields, title="Check"):
    """The body: the fields of a constraint, as in every request for texts."""

    model: str


async def constraint(request: Request, service: Service, body: ConstraintRequest) -> Response:
    """Compile a constraint: return its expected first input in words and its fewest tokens, or its error."""
    try:
        spec = await derive(request, body.constraint)
    except TrellmError as error:
        raise constraint_error(error, ("trellm", "include")) from None
    generator = await while_connected(request, service.generator(spec))

    def explain() -> dict[str, Any]:
        guide_cache = generator.guide_cache(spec.goals)
        if guide_cache is None:
            return {"expected": "anything", "needed": 0}
        return {"expected": expected(guide_cache.guide, guide_cache.guide.start), "needed": guide_cache.distance}

    # in a compiler's thread, since the description may take long, and under the compilation's time limit
    elapsed = service.compiler.elapsed(spec)
    work = service.compiler.compile(
        ("expected", spec), explain, lambda explanation: len(explanation["expected"]), elapsed=elapsed
    )
    try:
        return Answer(await while_connected(request, work))
    except TrellmError as error:
        raise constraint_error(error, spec.place) from None
