"""Traces, read by a collector of OpenTelemetry's protocol."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from trellm import models
from trellm.cli import main
from trellm.errors import OptionError
from trellm.serve import Settings

from .conftest import running

messages = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
pytest.importorskip("opentelemetry.sdk.trace")
SECRET = "Brela Stonkard bought a kettle"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def collector() -> Iterator[tuple[str, list[Any]]]:
    """The address of a collector, and the requests that it takes."""
    found: list[Any] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.append(messages.ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Write nothing."""

    listening = HTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{listening.server_port}/v1/traces", found
    listening.shutdown()
    thread.join()
    listening.server_close()


def _spans(found: list[Any]) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Spans by name, each with its attributes."""
    spans = [span for each in found for part in each.resource_spans for one in part.scope_spans for span in one.spans]
    several: dict[str, tuple[Any, dict[str, Any]]] = {}
    for span in spans:
        assert span.name not in several
        values = {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}
        several[span.name] = span, values
    return several


def test_requests_are_traced(collector: tuple[str, list[Any]]) -> None:
    url, found = collector
    chat = {"model": "small", "messages": [{"role": "user", "content": SECRET}], "max_tokens": 8, "temperature": 0}
    for server in running(models.small(), Settings(otlp_traces_endpoint=url, keys=("12345678",), compile_seconds=300)):
        server.http.headers["Authorization"] = "Bearer 12345678"
        parent = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        answer = server.post("/v1/chat/completions", chat, headers=parent).json()
        events = server.events("/v1/completions", {"model": "small", "prompt": SECRET, "regex": "[a-z]{3}"})
        assert server.post("/v1/messages", {"model": "nobody"}).status_code == 400
        assert server.http.get("/nowhere").status_code == 404
        assert server.post("/v1/completions", chat, headers={"Authorization": ""}).status_code == 401
        assert server.http.get("/metrics").status_code == 200
    spans = _spans(found)
    names = ["POST /v1/chat/completions", "POST /v1/completions", "POST /v1/messages", "GET other", "POST other"]
    assert {*names} == spans.keys(), "neither scrapes nor probes"

    span, told = spans[names[0]]
    assert span.trace_id.hex() == TRACE and span.parent_span_id.hex() == PARENT
    assert told["gen_ai.operation.name"] == "chat" and told["gen_ai.response.id"] == answer["id"]
    assert told["gen_ai.usage.input_tokens"] == answer["usage"]["prompt_tokens"]
    assert told["gen_ai.usage.output_tokens"] > 0 and told["gen_ai.request.max_tokens"] == 8
    assert told["http.response.status_code"] == 200 and told["gen_ai.latency.time_in_queue"] >= 0

    span, told = spans[names[1]]
    assert span.trace_id.hex() != TRACE and told["trellm.constraint"] == "regex"
    assert told["gen_ai.response.time_to_first_chunk"] > 0 and told["gen_ai.request.stream"] is True
    assert [each.string_value for each in told["gen_ai.response.finish_reasons"].values] == ["stop"]
    assert [event.name for event in span.events] == ["constraint ready", "in the engine"] and len(events) > 0
    assert [spans[name][1]["http.response.status_code"] for name in names[2:]] == [400, 404, 401]
    assert not any(SECRET.split()[0].encode() in each.SerializeToString() for each in found), "prompts are not told"


def test_errors_within_streams_are_told(collector: tuple[str, list[Any]]) -> None:
    """The status was sent before: the span tells of the error nevertheless."""
    url, found = collector
    asked = {"model": "small", "prompt": "a", "max_tokens": 5, "stream": True}
    for server in running(models.small(), Settings(otlp_traces_endpoint=url)):
        server.service.cut()
        answer = server.post("/v1/completions", asked)
        assert answer.status_code == 200 and '"code":"cancelled"' in answer.text
    span, told = _spans(found)["POST /v1/completions"]
    assert told["error.type"] == "cancelled" and told["http.response.status_code"] == 200
    assert span.status.code == 2, "an error"


def test_a_collector_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    for server in running(models.small(), Settings(otlp_traces_endpoint="http://127.0.0.1:9/v1/traces")):
        assert len(server.text("a", max_tokens=2)) > 0


@pytest.mark.parametrize("endpoint", ["", "localhost:4318", "ftp://host/", "http://", "http://host:99999/", 5])
def test_addresses_of_no_collector(endpoint: Any) -> None:
    with pytest.raises(OptionError, match="otlp_traces_endpoint"):
        Settings(otlp_traces_endpoint=endpoint)


def test_the_command_checks_the_address(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--otlp-traces-endpoint", "localhost"]) == 2
    assert "http://localhost:4318/v1/traces" in capsys.readouterr().err
