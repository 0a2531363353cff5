"""Telemetry for operators: Prometheus metrics, and an OpenTelemetry span for each request.

Span attributes follow the semantic conventions for HTTP and generative models (`gen_ai.*`), with a latency as in vLLM.
Spans contain no text of prompts or answers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import SummaryMetricFamily

from ..engine.decode.guide_cache import MaskTimer
from ..errors import OptionError
from .errors import ApiError

if TYPE_CHECKING:  # optional dependency
    from opentelemetry.trace import Span

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_EXTRA = "opentelemetry is needed for traces: pip install 'trellm[otel]'"
_CARRIERS = ("traceparent", "tracestate")


class _Masks:
    """A collector of mask times, which the engine counts itself."""

    def collect(self) -> Iterator[SummaryMetricFamily]:
        """Yield the mask times of this process."""
        yield SummaryMetricFamily("trellm_mask_seconds", "Making masks", MaskTimer.count, MaskTimer.seconds)


class Metrics:
    """Metrics of one server. Those of models are labelled with the model's name; `of` returns them."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        model = ["model_name"]
        self.requests = Counter(
            "trellm_requests", "Requests answered, by path and status", ["path", "status"], registry=registry
        )
        self.refused = Counter(
            "trellm_refused", "Requests refused because the server was at capacity", ["reason"], registry=registry
        )
        self.errors = Counter(
            "trellm_errors", "Requests answered with an error, by its code", ["code"], registry=registry
        )
        self.media = Gauge(
            "trellm_media_bytes", "Bytes of decoded images and audio of running requests", registry=registry
        )
        self.loaded = Gauge(
            "trellm_model_loaded", "Whether the model is in memory (1) or not (0)", model, registry=registry
        )
        self.running = Gauge("trellm_texts", "Sequences, running and waiting", model, registry=registry)
        self.waiting = Gauge("trellm_queue", "Sequences that wait for their first step", model, registry=registry)
        self.memory = Gauge(
            "trellm_memory_bytes",
            "Bytes of weights, and of the KV cache: used by sequences, cached for reuse, capacity",
            [*model, "state"],
            registry=registry,
        )
        self.constraints = Gauge("trellm_constraints", "Compiled constraints in the cache", model, registry=registry)
        self.prompt_tokens = Counter("trellm_prompt_tokens", "Prompt tokens", model, registry=registry)
        self.found_tokens = Counter(
            "trellm_prompt_tokens_found",
            "Prompt tokens that were found in the KV cache, counted for each sequence",
            model,
            registry=registry,
        )
        self.reasoning_tokens = Counter("trellm_reasoning_tokens", "Tokens of thinking", model, registry=registry)
        self.output_tokens = Counter("trellm_output_tokens", "Output tokens", model, registry=registry)
        self.finished = Counter(
            "trellm_finished", "Finished sequences, by finish reason", [*model, "reason"], registry=registry
        )
        self.cancelled = Counter("trellm_cancelled", "Requests whose client disconnected", model, registry=registry)
        self.load_seconds = _histogram("trellm_model_load_seconds", "Seconds to load a model", registry)
        self.first_seconds = _histogram(
            "trellm_first_token_seconds", "Seconds from a request to its first output", registry
        )
        self.token_seconds = _histogram(
            "trellm_token_seconds", "Seconds between two pieces of a streamed text", registry
        )
        self.request_seconds = _histogram("trellm_request_seconds", "Seconds from a request to its end", registry)
        self.queue_seconds = _histogram(
            "trellm_queue_seconds", "Seconds from entering the engine to the first step", registry
        )
        self.compile_seconds = _histogram("trellm_compile_seconds", "Seconds to compile a constraint", registry)
        self.compile_wait_seconds = _histogram(
            "trellm_compile_wait_seconds", "Seconds a constraint waits to be compiled", registry
        )
        self.step_seconds = _histogram("trellm_step_seconds", "Seconds of a step of the engine", registry)
        registry.register(_Masks())

    def of(self, name: str) -> ModelMetrics:
        """Return the metrics of a model."""
        return ModelMetrics(self, name)

    def refuse(self, reason: str) -> None:
        """Count a request refused for lack of capacity."""
        self.refused.labels(reason).inc()

    def fail(self, error: ApiError) -> None:
        """Count an error sent to a client."""
        self.errors.labels(error.error["code"]).inc()

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)


def _histogram(name: str, meaning: str, registry: CollectorRegistry) -> Histogram:
    return Histogram(name, meaning, ["model_name"], buckets=_SECONDS, registry=registry)


class ModelMetrics:
    """Metrics of one model. refuse, fail: those of the server"""

    def __init__(self, server: Metrics, name: str) -> None:
        self._server = server
        self._name = name
        self.refuse, self.fail = server.refuse, server.fail
        self.loaded = server.loaded.labels(name)
        self.running = server.running.labels(name)
        self.waiting = server.waiting.labels(name)
        self.constraints = server.constraints.labels(name)
        self.prompt_tokens = server.prompt_tokens.labels(name)
        self.found_tokens = server.found_tokens.labels(name)
        self.reasoning_tokens = server.reasoning_tokens.labels(name)
        self.output_tokens = server.output_tokens.labels(name)
        self.cancelled = server.cancelled.labels(name)
        self.load_seconds = server.load_seconds.labels(name)
        self.first_seconds = server.first_seconds.labels(name)
        self.token_seconds = server.token_seconds.labels(name)
        self.request_seconds = server.request_seconds.labels(name)
        self.queue_seconds = server.queue_seconds.labels(name)
        self.compile_seconds = server.compile_seconds.labels(name)
        self.compile_wait_seconds = server.compile_wait_seconds.labels(name)
        self.step_seconds = server.step_seconds.labels(name)

    def finish(self, reason: str) -> None:
        """Count a finished text."""
        self._server.finished.labels(self._name, reason).inc()

    def hold(self, **states: int) -> None:
        """Set the gauges of memory by state, in bytes."""
        for state, count in states.items():
            self._server.memory.labels(self._name, state).set(count)


class RequestTrace:
    """The span of a request, from its headers to the last byte of its answer."""

    def __init__(self, span: Span, method: str) -> None:
        self._span = span
        self._method = method

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Set attributes that are not None."""
        self._span.set_attributes({key: value for key, value in attributes.items() if value is not None})

    def add_event(self, event: str) -> None:
        """Add an event with the current time."""
        self._span.add_event(event)

    def fail(self, error: ApiError) -> None:
        """Record an error within a stream, whose status was sent before."""
        self.set_attributes({"error.type": error.error["code"]})
        self._set_status(error.status)

    def end(self, status: int, route: str) -> None:
        """End the span. status: HTTP status; 0 if the client left before it"""
        self._span.update_name(f"{self._method} {route}")
        self.set_attributes({"http.route": route, "http.response.status_code": status or None})
        self._set_status(status)
        self._span.end()

    def _set_status(self, status: int) -> None:
        from opentelemetry.trace import StatusCode

        if status >= 500:
            self._span.set_status(StatusCode.ERROR)


class Tracing:
    """Sends spans to a collector in a thread. Spans that it does not accept are dropped.

    The tracer provider is the server's own; the process's global one is unchanged.
    endpoint: see `check_endpoint`
    """

    def __init__(self, endpoint: str) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", "trellm")})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint)))
        self._tracer = self._provider.get_tracer("trellm")
        self._propagator = TraceContextTextMapPropagator()

    def begin(self, method: str, headers: Mapping[str, str]) -> RequestTrace:
        """Start the trace of a request, as a child of the trace named in its headers."""
        from opentelemetry.trace import SpanKind

        context = self._propagator.extract({name: headers[name] for name in _CARRIERS if name in headers})
        attributes = {"http.request.method": method}
        return RequestTrace(self._tracer.start_span(method, context, SpanKind.SERVER, attributes), method)

    def close(self) -> None:
        """Send the remaining spans."""
        self._provider.shutdown()


def check_endpoint(endpoint: str) -> None:
    """Raise OptionError for an invalid collector address, or if the tracing packages are missing."""
    try:
        parts = urlsplit(endpoint)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_address = False
    if not is_address:
        message = f"otlp_traces_endpoint={endpoint!r}: expected an address such as http://localhost:4318/v1/traces"
        raise OptionError(message)
    try:
        import_module("opentelemetry.sdk.trace")
        import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    except ModuleNotFoundError as error:
        raise OptionError(f"{error.name} is absent; {_EXTRA}") from None
