"""Checks of keys, hosts and headers before a request is read."""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .endpoints.answers import error_answer
from .errors import ApiError
from .telemetry import Metrics, RequestTrace, Tracing

HEALTH = frozenset({"/health", "/health/live", "/health/ready"})
OPEN = HEALTH | {"/"}
"""Paths that need no key: health checks reveal nothing, and the page asks for a key itself."""
UNTRACED = OPEN | {"/metrics"}
HEADER_BYTES = 32 << 10
ACCESS = logging.getLogger("trellm.serve.access")
"""Access log, a line per request at INFO: client, route, status and duration, without content."""


class Guard:
    """Middleware that checks keys in constant time, counts answers and traces requests.

    hosts: accepted host names besides addresses; empty for any
    """

    def __init__(self, app: ASGIApp, keys: Sequence[str], hosts: Sequence[str], metrics: Metrics) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._keys = [key.encode() for key in keys]
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with an error about its headers."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        status, route, trace = 0, "other", _trace(scope)

        async def send_and_count(message: Message) -> None:
            nonlocal status, route
            if message["type"] == "http.response.start":
                status = int(message["status"])
                # unknown paths would create unbounded labels
                route = getattr(scope.get("route"), "path", "other")
                self._metrics.requests.labels(route, str(message["status"])).inc()
            await send(message)

        error = self._refusal(scope)
        if error is not None:
            self._metrics.fail(error)
        try:
            await answer_logged(
                self._app if error is None else error_answer(error, scope["path"]), scope, receive, send_and_count
            )
        finally:
            if trace is not None:
                trace.end(status, route)

    def _refusal(self, scope: Scope) -> ApiError | None:
        """Return the error of a refused request; None otherwise."""
        close = {"Connection": "close"}
        size = lengths = 0
        for name, value in scope["headers"]:
            size += len(name) + len(value)
            # A proxy that trusts the other header would split the data differently (RFC 9112, 6.1).
            lengths |= (name == b"content-length") | 2 * (name == b"transfer-encoding")
        if size > HEADER_BYTES:
            message = f"the headers have more than {HEADER_BYTES:,} bytes"
            return ApiError(message, status=431, code="headers_too_large", headers=close)
        if lengths == 3:
            message = "the headers have both Content-Length and Transfer-Encoding; send one of them"
            return ApiError(message, code="invalid_http", headers=close)
        if self._hosts and scope["path"] not in HEALTH and (name := self._bad_host(Headers(scope=scope))) is not None:
            message = (
                f"host {name[:200]!r} is not allowed: a web page may have given its own name the address of this "
                "machine (DNS rebinding). Use an address, or start the server with --allow-host"
            )
            return ApiError(message, status=403, code="host_not_allowed")
        if self._keys and scope["path"] not in OPEN and not self._has_valid_key(Headers(scope=scope)):
            message = "missing or invalid API key: send the header Authorization: Bearer KEY, or x-api-key: KEY"
            return ApiError(message, status=401, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
        return None

    def _bad_host(self, headers: Headers) -> str | None:
        """Return an unaccepted host name; None if it is accepted. Clients cannot forge it in DNS rebinding."""
        host = headers.get("host", "")
        try:
            name = (urlsplit(f"//{host}").hostname or "").removesuffix(".")
        except ValueError:
            return host
        if not name or name in self._hosts or name == "localhost" or name.endswith(".localhost"):
            return None
        try:
            ip_address(name)
        except ValueError:
            return name
        return None

    def _has_valid_key(self, headers: Headers) -> bool:
        """Test a key. All keys are compared, so that timing reveals nothing."""
        scheme, _, key = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            key = headers.get("x-api-key", "")  # header of Anthropic's clients
        presented = key.strip().encode("utf-8", "replace")
        return any([hmac.compare_digest(presented, known) for known in self._keys])


def _trace(scope: Scope) -> RequestTrace | None:
    """Return the trace of a request, if tracing is on and the path is neither a probe nor /metrics."""
    models = getattr(getattr(scope.get("app"), "state", None), "models", None)
    tracing: Tracing | None = getattr(getattr(models, "shared", None), "tracing", None)
    if tracing is None or scope["path"] in UNTRACED:
        return None
    trace = scope.setdefault("state", {})["trace"] = tracing.begin(scope["method"], Headers(scope=scope))
    return trace


async def answer_logged(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request, and write an access log line if enabled."""
    if not ACCESS.isEnabledFor(logging.INFO):
        await app(scope, receive, send)
        return
    began, status = time.perf_counter(), 0

    async def send_and_note(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = int(message["status"])
        await send(message)

    try:
        await app(scope, receive, send_and_note)
    finally:
        _log(scope, status, time.perf_counter() - began)


def write_access_log() -> None:
    """Write the access log to standard error. Repeated calls have no effect."""
    ACCESS.setLevel(logging.INFO)
    if any(each.name == ACCESS.name for each in ACCESS.handlers):
        return
    handler = logging.StreamHandler()
    handler.name = ACCESS.name
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    ACCESS.addHandler(handler)


def _log(scope: Scope, status: int, seconds: float) -> None:
    """Write a line about an answer. status: 0 if the client left before it"""
    client: Sequence[Any] | None = scope.get("client")
    host = "-" if client is None else client[0]
    ACCESS.info(
        '%s "%s %s" %d %.1f ms', host, scope["method"], quote(scope["path"][:1000], safe="/:"), status, 1000 * seconds,
        extra={"status": status, "seconds": seconds},
    )  # fmt: skip
