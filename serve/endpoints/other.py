"""Endpoints beside those for texts: the page, models, constraints, tokens, health and metrics."""

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

from ...engine.prompts.encoding import ids_of
from ...engine.prompts.given import Prompt
from ...errors import TrellmError
from ...guides.explain.expectation import expected
from ..bodies import derived
from ..errors import ApiError, of_constraint, of_request
from ..media.reading import RequestImages
from ..requests.chat import ChatMessage
from ..requests.fields import ConstraintFields, RequestBase
from ..service import Service
from ..telemetry import CONTENT_TYPE
from .answers import ITEMS, Answer, LargeAnswer, while_connected, written

IMAGE_TOKEN = -1
"""Told in place of the ids of an image's tokens, which are no token's of the vocabulary."""


class TokenizeRequest(RequestBase, title="Tokenize"):
    """The body of /tokenize: a text, or a chat as its template writes it."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[ChatMessage], Field(min_length=1, fail_fast=True)] | None = None
    return_token_strs: bool = False


async def models(request: Request) -> Response:
    """List the model under its names, and its adapters."""
    service: Service = request.app.state.service
    return Answer(
        {"object": "list", "data": [_model(service, name) for name in (*service.settings.names, *service.adapters)]}
    )


async def model(request: Request) -> Response:
    """Describe the model by one of its names, or an adapter."""
    service: Service = request.app.state.service
    name = request.path_params["name"]
    service.check_model(name)
    return Answer(_model(service, name))


def _model(service: Service, name: str) -> dict[str, Any]:
    said = {"id": name, "object": "model", "created": service.created, "owned_by": "trellm"}
    parent = {"parent": service.settings.name} if name in service.adapters else {}
    return {**said, **parent, "max_model_len": service.model.context}


async def tokenize(request: Request, service: Service, asked: TokenizeRequest) -> Response:
    """Make tokens of a prompt or of a chat."""
    service.check(asked.model)
    if (asked.prompt is None) == (asked.messages is None):
        raise ApiError("give prompt or messages, one of the two", ("prompt",))
    chat = [each.plain(("messages", number)) for number, each in enumerate(asked.messages or ())]
    try:
        with RequestImages(service.images) as images:
            given = asked.prompt
            if given is None:
                given = await while_connected(request, images.read(chat))
            work = service.aside(partial(_tokenized, service, given, asked.return_token_strs))
            return LargeAnswer(await while_connected(request, work))
    except TrellmError as error:
        raise of_request(error, ("prompt",) if asked.messages is None else ("messages",)) from None


def _tokenized(service: Service, given: Prompt, with_texts: bool) -> list[bytes]:
    """The answer about tokens, which may be millions, in parts."""
    model = service.model
    ids = ids_of(model, given, 0, {}) if isinstance(given, str) else service.verbatim.ids(given, 0, {})
    told = [max(token, IMAGE_TOKEN) for token in ids]
    said: dict[str, Any] = {"count": len(ids), "max_model_len": model.context, "tokens": told}
    if with_texts:
        texts = (*model.vocabulary.tokens, b"")  # the last of which is that of images
        said["token_strs"] = [(texts[token] or b"").decode(errors="replace") for token in told]
    pieces = list(written(said))
    return [b"".join(pieces[at : at + ITEMS]) for at in range(0, len(pieces), ITEMS)]


async def live(request: Request) -> Response:
    """Answer while the process is alive."""
    return Answer({"status": "ok"})


async def ready(request: Request) -> Response:
    """Answer whether requests are taken."""
    service: Service = request.app.state.service
    if service.is_draining:
        return Answer({"status": "draining"}, 503)
    return Answer({"status": "ok"})


async def metrics(request: Request) -> Response:
    """Write counters, gauges and histograms for Prometheus."""
    service: Service = request.app.state.service
    counted, engine = service.metrics, service.engine
    counted.waiting.set(service.dispatcher.waiting)
    counted.memory.labels("held").set(engine.held_bytes)
    counted.memory.labels("kept").set(engine.kept_bytes)
    counted.memory.labels("room").set(engine.memory_bytes)
    counted.memory.labels("images").set(service.images.held)
    return Response(counted.text(), media_type=CONTENT_TYPE)


async def page(request: Request) -> Response:
    """A form for requests, and what comes of them."""
    text, policy = _page()
    headers = {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache"}
    return HTMLResponse(text, headers=headers)


@cache
def _page() -> tuple[str, str]:
    """The file, and what a browser may do with it: run its script and its style, as they are, and ask this server."""
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
    """Compile a constraint: how its texts begin, in words, and the fewest tokens of one; or the error that it has."""
    service.check(asked.model)
    try:
        made = await derived(request, asked.constraint)
    except TrellmError as error:
        raise of_constraint(error, ("trellm", "include")) from None
    generator = await while_connected(request, service.generator(made))

    def look() -> dict[str, Any]:
        guide_cache = generator.job((0,), made.goals).guide_cache
        if guide_cache is None:
            return {"expected": "anything", "needed": 0}
        return {"expected": expected(guide_cache.guide, guide_cache.guide.start), "needed": guide_cache.distance}

    # In a compiler's thread, since finding words may take long, and counts as what compilation may take.
    taken = service.compiler.taken(made)
    work = service.compiler.made(("expected", made), look, lambda said: len(said["expected"]), taken=taken)
    try:
        return Answer(await while_connected(request, work))
    except TrellmError as error:
        raise of_constraint(error, made.place) from None
