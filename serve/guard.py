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
        """Let a request through, or answer it with what is wrong with its headers."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                # Paths that there are not come from strangers, and would be counted one by one.
                path = getattr(scope.get("route"), "path", "other")
                self._metrics.requests.labels(path, str(message["status"])).inc()
            await send(message)

        error = self._refusal(scope)
        if error is not None:
            self._metrics.fail(error)
            await Answer(error.body, error.status, error.headers)(scope, receive, counted)
            return
        await self._app(scope, receive, counted)

    def _refusal(self, scope: Scope) -> ApiError | None:
        """Why a request is not looked at; None for one that is."""
        close = {"Connection": "close"}
        if sum(len(name) + len(value) for name, value in scope["headers"]) > HEADER_BYTES:
            said = f"the headers have more than {HEADER_BYTES:,} bytes"
            return ApiError(said, status=431, code="headers_too_large", headers=close)
        # A proxy that takes the other one would see another request in what follows (RFC 9112, 6.1).
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
            said = "the headers have both Content-Length and Transfer-Encoding, of which a request may have one"
            return ApiError(said, code="invalid_http", headers=close)
        if self._keys and scope["path"] not in OPEN and not self._is_known(Headers(scope=scope)):
            said = "the header Authorization: Bearer KEY is missing, or has no key of this server"
            return ApiError(said, status=401, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
        return None

    def _is_known(self, headers: Headers) -> bool:
        """Whether the key is one of ours; all are compared, so that the time tells nothing."""
        scheme, _, key = headers.get("authorization", "").partition(" ")
        given = key.strip().encode("utf-8", "replace")
        found = [hmac.compare_digest(given, known) for known in self._keys]
        return scheme.lower() == "bearer" and any(found)
