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
from ..bodies import derived
from ..errors import ApiError, of_constraint, of_request
from ..hosting.hosted import HostedModel
from ..hosting.manager import ModelManager
from ..media.reading import RequestMedia
from ..requests.chat import ChatMessage
from ..requests.fields import ConstraintFields, RequestBase
from ..service import Service
from ..telemetry import CONTENT_TYPE
from .answers import ITEMS, Answer, LargeAnswer, while_connected, written

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
    said: dict[str, Any] = {"id": name, "object": "model", "created": manager.shared.created, "owned_by": "trellm"}
    if name in hosted.adapters:
        said["parent"] = hosted.served.name
    if hosted.has_been_loaded:
        said["max_model_len"] = hosted.context
    status: dict[str, Any] = {"value": hosted.state} | ({"memory_bytes": hosted.bytes} if hosted.bytes else {})
    return said | {"status": status | ({} if hosted.failed is None else {"failed": True})}


async def tokenize(request: Request, service: Service, asked: TokenizeRequest) -> Response:
    """Tokenize a prompt or a chat."""
    if (asked.prompt is None) == (asked.messages is None):
        raise ApiError("give prompt or messages, one of the two", ("prompt",))
    chat = [each.plain(("messages", number)) for number, each in enumerate(asked.messages or ())]
    try:
        with RequestMedia(service.shared.media, reads=service.reads) as media:
            given = asked.prompt
            if given is None:
                given = await while_connected(request, media.read(chat))
            work = service.shared.aside(partial(_tokenized, service, given, asked.return_token_strs))
            return LargeAnswer(await while_connected(request, work))
    except TrellmError as error:
        raise of_request(error, ("prompt",) if asked.messages is None else ("messages",)) from None


def _tokenized(service: Service, given: Prompt, with_texts: bool) -> list[bytes]:
    """Return the serialized answer about tokens in parts, since there may be millions of tokens."""
    model = service.model
    ids = ids_of(model, given, 0, {}) if isinstance(given, str) else service.verbatim.ids(given, 0, {})
    told = [max(token, MEDIA_TOKEN) for token in ids]
    said: dict[str, Any] = {"count": len(ids), "max_model_len": model.context, "tokens": told}
    if with_texts:
        texts = (*model.vocabulary.tokens, b"")  # the last entry stands for media rows
        said["token_strs"] = [(texts[token] or b"").decode(errors="replace") for token in told]
    pieces = list(written(said))
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
    script, style = (_hash(_inside(text, tag)) for tag in ("script", "style"))
    policy = (
        f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return text, policy


def _inside(text: str, tag: str) -> str:
    found = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.S)
    assert found is not None
    return found[1]


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


class ConstraintRequest(ConstraintFields, title="Check"):
    """The body: the fields of a constraint, as in every request for texts."""

    model: str


async def constraint(request: Request, service: Service, asked: ConstraintRequest) -> Response:
    """Compile a constraint: return its expected first input in words and its fewest tokens, or its error."""
    try:
        made = await derived(request, asked.constraint)
    except TrellmError as error:
        raise of_constraint(error, ("trellm", "include")) from None
    generator = await while_connected(request, service.generator(made))

    def look() -> dict[str, Any]:
        guide_cache = generator.guide_cache(made.goals)
        if guide_cache is None:
            return {"expected": "anything", "needed": 0}
        return {"expected": expected(guide_cache.guide, guide_cache.guide.start), "needed": guide_cache.distance}

    # in a compiler's thread, since the description may take long, and under the compilation's time limit
    taken = service.compiler.taken(made)
    work = service.compiler.made(("expected", made), look, lambda said: len(said["expected"]), taken=taken)
    try:
        return Answer(await while_connected(request, work))
    except TrellmError as error:
        raise of_constraint(error, made.place) from None
