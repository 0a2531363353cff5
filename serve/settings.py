"""Settings of a server, validated when created."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from ..checks import brief, check_bool, check_int, check_number, check_positive, check_text
from ..engine.media.audio import AudioLimits
from ..engine.media.image import ImageLimits
from ..errors import OptionError
from ..guides.limits import Limits
from .media.fetching import MediaFetcher
from .telemetry import check_endpoint
from .tool_calls.tools import MAX_TOOLS

MAX_BYTES = 1 << 32
TEXT_BODY, MEDIA_BODY = 4 << 20, 32 << 20
"""Default size limits of a body in bytes, for text models and for multimodal models."""
KEY_LENGTH = 8
_ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^/\s]+")
_HOST = re.compile(r"[^/:*\s]*[^/:*.\s]")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a server, with their defaults. Raises OptionError for invalid values.

    name: the model's name for clients; aliases: further names
    keys: accepted bearer tokens; empty for no authentication
    origins: web origins whose pages may read answers, "*" for all; empty for none
    hosts: accepted names in the Host header, besides addresses and this machine's names; empty for any
    body_bytes: greatest size of a body, by default 4 MiB, or 32 MiB if the model reads images or audio
    texts: greatest number of running and waiting texts of all clients, before 429
    choices: texts of one request; tools: functions of one request
    media: images and audio of one request; image_limits, audio_limits: of each; media_bytes: pixels and samples of all
        unfinished requests, before 429
    fetcher: fetches images and audio from URLs in requests; None to refuse URLs
    max_gap_ms: as for `Engine`, by default the engine's
    priorities: whether requests may set their priority; any client could
    output_tokens: budget of a text without one, as far as the context has room
    limits: work and memory of each constraint; compile_seconds: time limit of a compilation
    compile_share: share of a core for all long compilations while sequences are running
    loading: requests that may wait for models to load, before 429
    retry_seconds: seconds before a failed loading is tried again
    compilers: threads that compile; compiling: constraints being compiled or waiting, before 429
    response_bytes: bytes of stored responses of /v1/responses; 0 for none
    kept_bytes: bytes of compiled constraints, least recently used evicted first
    request_seconds: time limit for a request to arrive completely, after which its connection is closed
    drain_seconds: seconds that requests may continue after SIGTERM
    otlp_traces_endpoint: OpenTelemetry collector over HTTP, which gets a span for each request
    access_log: whether to write a line for each request to standard error
    """

    name: str = "small"
    aliases: tuple[str, ...] = ()
    keys: tuple[str, ...] = field(default=(), repr=False)
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    body_bytes: int | None = None
    texts: int = 1024
    choices: int = 128
    tools: int = MAX_TOOLS
    media: int = 64
    image_limits: ImageLimits = field(default_factory=ImageLimits)
    audio_limits: AudioLimits = field(default_factory=AudioLimits)
    media_bytes: int = 1 << 30
    fetcher: MediaFetcher | None = None
    max_gap_ms: float | None = None
    priorities: bool = False
    output_tokens: int = 4096
    limits: Limits = field(default_factory=lambda: Limits(memory=256 << 20))
    compile_seconds: float = 10.0
    compile_share: float = 0.2
    loading: int = 256
    retry_seconds: float = 30.0
    compilers: int = 2
    compiling: int = 64
    response_bytes: int = 64 << 20
    kept_bytes: int = 1 << 30
    request_seconds: float = 60.0
    drain_seconds: float = 30.0
    otlp_traces_endpoint: str | None = None
    access_log: bool = False

    def __post_init__(self) -> None:
        check_text(self.name, "name")
        if not self.name:
            raise OptionError('name="": expected the name by which clients request the model')
        for name in ("kept_bytes", "media_bytes"):
            check_int(getattr(self, name), name, 1, MAX_BYTES)
        if self.body_bytes is not None:
            check_int(self.body_bytes, "body_bytes", 1, MAX_BYTES)
        check_int(self.response_bytes, "response_bytes", 0, MAX_BYTES)
        for name in ("texts", "choices", "tools", "media", "output_tokens", "loading", "compilers", "compiling"):
            check_int(getattr(self, name), name)
        share = check_number(self.compile_share, "compile_share", "a number above 0, up to 1")
        if not 0 < share <= 1:
            raise OptionError(f"compile_share={share!r}: expected a number above 0, up to 1")
        for name in ("compile_seconds", "request_seconds", "drain_seconds", "retry_seconds"):
            check_positive(getattr(self, name), name, "seconds")
        check_bool(self.priorities, "priorities")
        check_bool(self.access_log, "access_log")
        if self.max_gap_ms is not None:
            check_positive(self.max_gap_ms, "max_gap_ms", "milliseconds")
        if self.otlp_traces_endpoint is not None:
            check_endpoint(check_text(self.otlp_traces_endpoint, "otlp_traces_endpoint"))
        Limits.of(self.limits)
        ImageLimits.of(self.image_limits)
        AudioLimits.of(self.audio_limits)
        if self.fetcher is not None and not isinstance(self.fetcher, MediaFetcher):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(
                f"fetcher={brief(self.fetcher)}: expected a MediaFetcher, or None to fetch nothing from the web"
            )
        for key in self.keys:
            _check_key(key)
        for origin in self.origins:
            if not _ORIGIN.fullmatch(origin):
                raise OptionError(f"{origin!r} is not an origin; write http://localhost:3000, or * for all")
        for host in self.hosts:
            if not _HOST.fullmatch(host):
                raise OptionError(
                    f"{host!r} is not a host name; write llm.example.com, without scheme, port or path, * or final dot"
                )


def keys_of(path: str) -> tuple[str, ...]:
    """Read keys from a file, one per line, without empty lines and # comments. Raises OptionError."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise OptionError(f"the file of API keys {path!r} cannot be read: {reason}") from None
    found = tuple(line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#"))
    if not found:
        raise OptionError(f"the file of API keys {path!r} is empty; write one key on each line")
    for key in found:
        _check_key(key)
    return found


def _check_key(key: str) -> None:
    if len(key) < KEY_LENGTH or not key.isascii() or not key.isprintable() or " " in key:
        raise OptionError(f"an API key needs at least {KEY_LENGTH} characters, all of printable ASCII, without spaces")
