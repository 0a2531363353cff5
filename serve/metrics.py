"""Counters of the server, as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import SummaryMetricFamily

from ..engine.decode.guide_cache import MaskTimer
from .errors import ApiError

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class _Masks:
    """The time of masks, which the engine counts itself."""

    def collect(self) -> Iterator[SummaryMetricFamily]:
        """All of them, of this process."""
        yield SummaryMetricFamily("trellm_mask_seconds", "Making masks", MaskTimer.count, MaskTimer.seconds)


class Metrics:
    """Counters and histograms of one server."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self.requests = Counter(
            "trellm_requests", "Requests answered, by path and status", ["path", "status"], registry=registry
        )
        self.refused = Counter(
            "trellm_refused", "Requests refused because too much was at work", ["reason"], registry=registry
        )
        self.errors = Counter(
            "trellm_errors", "Requests answered with an error, by its code", ["code"], registry=registry
        )
        self.running = Gauge("trellm_texts", "Texts on their way", registry=registry)
        self.waiting = Gauge("trellm_queue", "Texts that have not begun, of those on their way", registry=registry)
        self.memory = Gauge(
            "trellm_memory_bytes",
            "Keys and values: held by texts on their way, kept for texts to come, and all there is room for",
            ["state"],
            registry=registry,
        )
        self.constraints = Gauge("trellm_constraints", "Compiled constraints that are kept", registry=registry)
        self.prompt_tokens = Counter("trellm_prompt_tokens", "Tokens of prompts", registry=registry)
        self.found_tokens = Counter(
            "trellm_prompt_tokens_found",
            "Tokens of prompts that were in memory already, for each text",
            registry=registry,
        )
        self.reasoning_tokens = Counter("trellm_reasoning_tokens", "Tokens of thinking", registry=registry)
        self.output_tokens = Counter("trellm_output_tokens", "Tokens of outputs", registry=registry)
        self.finished = Counter("trellm_finished", "Texts finished, by reason", ["reason"], registry=registry)
        self.cancelled = Counter("trellm_cancelled", "Requests whose client went away", registry=registry)
        self.first_seconds = _histogram("trellm_first_token_seconds", "From request to its first text", registry)
        self.token_seconds = _histogram("trellm_token_seconds", "Between pieces of a streamed text", registry)
        self.request_seconds = _histogram("trellm_request_seconds", "From request to its end", registry)
        self.queue_seconds = _histogram("trellm_queue_seconds", "From entering the engine to the first step", registry)
        self.compile_seconds = _histogram("trellm_compile_seconds", "Compiling a constraint", registry)
        self.compile_wait_seconds = _histogram("trellm_compile_wait_seconds", "Waiting to be compiled", registry)
        self.step_seconds = _histogram("trellm_step_seconds", "A step of the engine", registry)
        registry.register(_Masks())

    def refuse(self, reason: str) -> None:
        """Count a request that was one too many."""
        self.refused.labels(reason).inc()

    def fail(self, error: ApiError) -> None:
        """Count an error that a client is told of."""
        self.errors.labels(error.error["code"]).inc()

    def text(self) -> bytes:
        """All of it."""
        return generate_latest(self._registry)


def _histogram(name: str, meaning: str, registry: CollectorRegistry) -> Histogram:
    return Histogram(name, meaning, buckets=_SECONDS, registry=registry)
