"""The Responses API: openai-python whole and streamed, and the order of all events."""

import json
from typing import Any

import pytest
from trellm.serve.endpoints.items import Items
from trellm.serve.forms import ArgumentsDelta, CallDelta, CallEndDelta, ContentDelta, ReasoningDelta

from .conftest import Running
from .test_calling import ASK, SCHEMAS
from .test_openai import ORDER, Order

TIME = "Convert a quarter past four in the afternoon into HH:MM."
TOOLS: list[Any] = [{"type": "function", "name": name, "parameters": schema} for name, schema in SCHEMAS.items()]


def events_of(server: Running, **body: Any) -> list[dict[str, Any]]:
    """The data of all events, whose names they repeat."""
    with server.http.stream("POST", "/v1/responses", json={"model": "small", "stream": True, **body}) as answer:
        assert answer.status_code == 200, answer.read()
        blocks = "".join(answer.iter_text()).strip().split("\n\n")
    found: list[dict[str, Any]] = []
    for block in blocks:
        name, data = block.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def test_a_response(server: Running) -> None:
    answer = server.client.responses.create(model="small", input=TIME, temperature=0, metadata={"a": "b"})
    assert answer.output_text == "16:15"
    assert (answer.status, answer.metadata) == ("completed", {"a": "b"})
    assert answer.usage is not None and answer.usage.input_tokens == 24
    cut = server.client.responses.create(model="small", input=TIME, temperature=0, max_output_tokens=2)
    assert cut.status == "incomplete"
    assert cut.incomplete_details is not None and cut.incomplete_details.reason == "max_output_tokens"
    assert [item.status for item in cut.output] == ["incomplete"]
    assert [item.status for item in answer.output] == ["completed"]
    told = events_of(server, input=TIME, temperature=0, max_output_tokens=2)
    items = [each["item"]["status"] for each in told if each["type"] == "response.output_item.done"]
    assert items == ["incomplete"]


def test_items_of_a_conversation(server: Running) -> None:
    said = [{"role": "user", "content": [{"type": "input_text", "text": TIME}]}]
    whole = server.client.responses.create(model="small", input=said, temperature=0)  # type: ignore[arg-type]
    assert whole.output_text == "16:15"
    again = server.client.responses.create(
        model="small", input=[*said, *whole.output, *said], temperature=0, instructions="Be brief.", max_output_tokens=9
    )  # type: ignore[list-item]
    assert again.usage is not None and again.usage.input_tokens > 50


def test_parse_with_pydantic(server: Running) -> None:
    answer = server.client.responses.parse(model="small", input=ORDER[0]["content"], text_format=Order, temperature=0)
    assert answer.output_parsed == Order(buyer="Brela Stonkard", count=12, paid=False)


def test_the_streaming_helper(server: Running) -> None:
    with server.client.responses.stream(model="small", input=TIME, temperature=0) as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert "".join(deltas) == final.output_text == "16:15"


def test_the_order_of_events(server: Running) -> None:
    events = events_of(server, input=TIME, temperature=0)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    kinds = [event["type"].removeprefix("response.") for event in events]
    assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert set(kinds[4:-4]) == {"output_text.delta"}
    assert kinds[-4:] == ["output_text.done", "content_part.done", "output_item.done", "completed"]
    assert events[-1]["response"]["output"] == [events[-2]["item"]]
    assert events[-4]["text"] == "16:15"
    assert events[0]["response"]["status"] == "in_progress"


def test_calls(server: Running) -> None:
    answer = server.client.responses.create(model="small", input=ASK[0]["content"], tools=TOOLS, temperature=0)
    call = answer.output[0]
    assert call.type == "function_call" and call.name == "get_weather"
    assert json.loads(call.arguments) == {"city": "Marlhaven", "date": "2024-06-10"}
    events = events_of(server, input=ASK[0]["content"], tools=TOOLS, temperature=0)
    kinds = [event["type"].removeprefix("response.") for event in events]
    assert kinds[2] == "output_item.added" and kinds[3] == "function_call_arguments.delta"
    assert kinds[-3:] == ["function_call_arguments.done", "output_item.done", "completed"]
    joined = "".join(event["delta"] for event in events if event["type"].endswith("arguments.delta"))
    assert joined == events[-3]["arguments"] == call.arguments
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    more = server.client.responses.create(model="small", input=[*ASK, call, result], tools=TOOLS, max_output_tokens=20)  # type: ignore[list-item]
    assert more.status in ("completed", "incomplete")


def test_items_of_all_kinds() -> None:
    items = Items()
    deltas = [
        *(ReasoningDelta("Hm"), ReasoningDelta("m."), ContentDelta("A"), ContentDelta("b")),
        *(CallDelta(0, "c0", "f"), ArgumentsDelta(0, "{"), ArgumentsDelta(0, "}"), CallEndDelta(0)),
    ]
    told = [each for delta in deltas for each in items.add(delta)] + list(items.end())
    kinds = [kind.removeprefix("response.") for kind, _ in told]
    text = ["output_item.added", "content_part.added", "{}.delta", "{}.delta", "{}.done", "content_part.done"]
    text.append("output_item.done")
    call = ["output_item.added", *["function_call_arguments.delta"] * 2, "function_call_arguments.done"]
    assert kinds == (
        [each.format("reasoning_text") for each in text]
        + [each.format("output_text") for each in text]
        + [*call, "output_item.done"]
    )
    assert [item["status"] for item in items.found] == ["completed"] * 3
    assert items.found[2]["arguments"] == "{}"


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id", "unsupported_parameter"),
        ({"store": True}, "store", "invalid_value"),
        ({"input": []}, "input", "invalid_value"),
        ({"input": "kettle " * 2000}, "input", "context_length_exceeded"),
        ({"max_output_tokens": 4, "regex": "[0-9]{5}"}, "max_output_tokens", "budget_too_small"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format", "invalid_value"),
        ({"include": ["reasoning.encrypted_content"]}, "include", "invalid_value"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be(server: Running, body: dict[str, Any], param: str, code: str) -> None:
    error = server.error("/v1/responses", {"model": "small", "input": "a", **body})
    assert (error["param"], error["code"]) == (param, code), error


def test_places_in_schemas(server: Running) -> None:
    format = {"type": "json_schema", "name": "a", "schema": {"properties": {"a": {"type": "objekt"}}}}
    error = server.error("/v1/responses", {"model": "small", "input": "a", "text": {"format": format}})
    assert error["pointer"] == "/text/format/schema/properties/a/type"
