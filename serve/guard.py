"""Who may ask, and what may read the answers: checked before a request is looked at."""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .endpoints.events import Answer
from .errors import ApiError
from .metrics import Metrics

OPEN = frozenset({"/", "/health", "/health/live", "/health/ready"})
"""What needs no key: it says nothing but that the server is there, and the page asks for a key itself."""
HEADER_BYTES = 32 << 10


class Guard:
    """Asks for a key where there are any, compares it in constant time, and counts answers."""

    def __init__(self, app: ASGIApp, keys: Sequence[str], metrics: Metrics) -> None:
        self._app = app
        self._keys = [key.encode() for key in keys]
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it with 401."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                # Paths that there are not come from strangers, and would be counted one by one.
                path = getattr(scope.get("route"), "path", "other")
                self._metrics.requests.labels(path, str(message["status"])).inc()
            await send(message)

        if sum(len(name) + len(value) for name, value in scope["headers"]) > HEADER_BYTES:
            error = ApiError(f"the headers have more than {HEADER_BYTES:,} bytes", code="headers_too_large")
            self._metrics.fail(error)
            await Answer(error.body, 431, {"Connection": "close"})(scope, receive, counted)
            return
        if self._keys and scope["path"] not in OPEN and not self._is_known(Headers(scope=scope)):
            error = ApiError(
                "the header Authorization: Bearer KEY is missing, or has no key of this server",
                status=401,
                code="invalid_api_key",
            )
            self._metrics.fail(error)
            await Answer(error.body, 401, {"WWW-Authenticate": "Bearer"})(scope, receive, counted)
            return
        await self._app(scope, receive, counted)

    def _is_known(self, headers: Headers) -> bool:
        """Whether the key is one of ours; all are compared, so that the time tells nothing."""
        scheme, _, key = headers.get("authorization", "").partition(" ")
        given = key.strip().encode("utf-8", "replace")
        found = [hmac.compare_digest(given, known) for known in self._keys]
        return scheme.lower() == "bearer" and any(found)
