"""Leases of models: a model stays in memory until the request's texts are submitted, and the texts until they end."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.requests import Request

from ..hosting.manager import ModelManager
from ..service import Service
from .answers import while_connected


@asynccontextmanager
async def leased(request: Request, name: str | None) -> AsyncGenerator[Service]:
    """Hold a model in memory in a block, after it is loaded. name: None for the first model

    The service is also stored in the request's state. Raises ApiError, and ClientDisconnect.
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
