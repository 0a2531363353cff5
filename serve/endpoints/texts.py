"""Answers with texts: a request from its beginning to its end, at once or as events, and what only this server says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from starlette.requests import Request

from ...engine.results import Generation
from ...guides.quoting.source import Span
from ..errors import of_any
from ..generation import GenerationRequest
from .events import DONE, event, while_connected

T = TypeVar("T")


async def whole(
    request: Request,
    beginning: Callable[[], Awaitable[GenerationRequest]],
    make: Callable[[GenerationRequest, int, Generation[Any]], T],
) -> tuple[GenerationRequest, list[T]]:
    """A request that is not streamed, from its beginning, and what is made of all its texts, in order.

    Raises ApiError, and ClientDisconnect.
    """

    async def work() -> tuple[GenerationRequest, list[T]]:
        begun = await beginning()
        try:
            return begun, await begun.results(partial(make, begun))
        finally:
            begun.end()

    return await while_connected(request, work())


async def to_the_end(
    begun: GenerationRequest, head: dict[str, Any], events: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
    """The events of a streamed answer, then its usage if that was asked for; or what went wrong on the way.

    head: what each event has
    """
    try:
        async for data in events:
            yield data
    except Exception as error:  # what went wrong with this request is its own
        said = of_any(error)
        begun.service.metrics.fail(said)
        yield event(said.body)
        return
    yield (event(head | {"choices": [], "usage": begun.usage}) if begun.asked.has_usage else b"") + DONE


def extension_of(result: Generation[Any]) -> dict[str, Any] | None:
    """What only this server says of a text: places of quotations, what did not hold, and the trace."""
    said: dict[str, Any] = {}
    if isinstance(result.value, Span):
        said["span"] = _span(result.value)
    if result.spans:
        said["spans"] = {name: _span(span) for name, span in result.spans.items()}
    if result.unenforced:
        said["unenforced"] = dict(result.unenforced)
    if result.overruled:
        said["overruled"] = list(result.overruled)
    if result.unmet:
        said["unmet"] = list(result.unmet)
    if result.error is not None:
        said["error"] = str(result.error)
    if result.diagnostics is not None:
        summary = result.diagnostics.summary
        said["trace"] = {
            "steps": result.diagnostics.to_dicts(),
            "forced": summary.forced,
            "logprob": summary.logprob,
            "raw_logprob": summary.raw_logprob,
            "log_feasible_mass": summary.log_feasible_mass,
            "hints": [str(hint) for hint in summary.hints],
        }
    return said or None


def _span(span: Span) -> dict[str, Any]:
    return {
        "text": span.text,
        "start": span.start,
        "end": span.end,
        "document": span.document,
        "occurrences": [[place.document, place.start, place.end] for place in span.occurrences],
    }
