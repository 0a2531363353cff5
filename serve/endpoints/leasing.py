"""Models that requests use: in memory until the request has all its texts on their way, and these until they end."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.requests import Request

from ..hosting.manager import ModelManager
from ..service import Service
from .answers import while_connected


@asynccontextmanager
async def leased(request: Request, name: str | None) -> AsyncGenerator[Service]:
    """A block in which the model of a name, or the first, is in memory; it waits until that is loaded.

    The service is that of the request's state, too. Raises ApiError, and ClientDisconnect.
    """
    models: ModelManager = request.app.state.models
    hosted = models.find(name)
    service = hosted.take()
    if service is None:
        service = await while_connected(request, models.load(hosted))
        trace = getattr(request.state, "trace", None)
        if trace is not None:
            trace.reach("model loaded")
    try:
        request.state.service = service
        yield service
    finally:
        hosted.give_back()
