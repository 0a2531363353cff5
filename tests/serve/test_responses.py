"""The Responses API: openai-python whole and streamed, and the order of all events."""

import json
from typing import Any

import pytest
from openai import pydantic_function_tool
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from trellm.serve import tool_calls

from .conftest import Running
from .support import ApiError, ResponseItems, ResponsesRequest, ResponseStore
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


@pytest.mark.parametrize(
    "more",
    [{}, {"tools": TOOLS}, {"tools": TOOLS, "tool_choice": "any"}, {"text": {"format": {"type": "json_object"}}}],
    ids=str,
)
def test_fields_are_those_of_openai_python(server: Running, more: dict[str, Any]) -> None:
    """Of all answers and events, none left out and none of another type."""
    body = {"model": "small", "input": ASK, "temperature": 0, "max_output_tokens": 60, **more}
    answer = server.post("/v1/responses", body)
    Response.model_validate_json(answer.content, strict=True)
    one_of_them = TypeAdapter[Any](ResponseStreamEvent)
    for told in events_of(server, **body):
        one_of_them.validate_json(json.dumps(told), strict=True)


def test_items_of_a_conversation(server: Running) -> None:
    said = [{"role": "user", "content": [{"type": "input_text", "text": TIME}]}]
    whole = server.client.responses.create(model="small", input=said, temperature=0)  # type: ignore[arg-type]
    assert whole.output_text == "16:15"
    again = server.client.responses.create(
        model="small", input=[*said, *whole.output, *said], temperature=0, instructions="Be brief.", max_output_tokens=9
    )  # type: ignore[list-item]
    assert again.usage is not None and again.usage.input_tokens > 50


def test_what_openai_python_has_read_is_sent_back(server: Running) -> None:
    """Items of an answer that was parsed, as they are and as dicts; events are not padded either way."""
    tool: Any = {"type": "function", "strict": True, **pydantic_function_tool(Order, name="buy")["function"]}
    said = server.client.responses.parse(model="small", input=ORDER[0]["content"], text_format=Order, temperature=0)
    called = server.client.responses.parse(
        model="small", input=ORDER[0]["content"], tools=[tool], tool_choice="required", temperature=0
    )
    assert called.output[0].type == "function_call"
    result = {"type": "function_call_output", "call_id": called.output[0].call_id, "output": "done"}
    for items in (said.output, called.output):
        for sent in (items, [item.model_dump(warnings=False) for item in items]):
            turns: list[Any] = [*ORDER, *sent, *([result] if items is called.output else ORDER)]
            events = server.client.responses.create(
                model="small",
                input=turns,
                max_output_tokens=1,
                stream=True,
                stream_options={"include_obfuscation": False},
            )
            assert list(events)[-1].type in ("response.completed", "response.incomplete")


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


def test_an_answer_of_no_text(server: Running) -> None:
    """It has an item all the same, streamed or not."""
    body = {"input": "a", "regex": "", "temperature": 0}
    whole = server.post("/v1/responses", {"model": "small", **body}).json()["output"]
    events = events_of(server, **body)
    kinds = [event["type"].removeprefix("response.") for event in events]
    ended = ["output_text.done", "content_part.done", "output_item.done", "completed"]
    assert kinds == ["created", "in_progress", "output_item.added", "content_part.added", *ended]
    for output in (whole, events[-1]["response"]["output"]):
        assert [(item["type"], item["content"][0]["text"]) for item in output] == [("message", "")]


def test_thinking_that_is_cut_has_no_message() -> None:
    for is_cut, kinds in ((True, ["reasoning"]), (False, ["reasoning", "message"])):
        items, other = ResponseItems(), ResponseItems()
        for _ in items.add_message(tool_calls.ParsedMessage(None, "Hm", ()), is_cut=is_cut):
            pass
        for _ in (*other.add(tool_calls.ReasoningDelta("Hm")), *other.close(is_cut=is_cut)):
            pass
        assert [item["type"] for item in items.output] == [item["type"] for item in other.output] == kinds
        assert items.output[-1]["status"] == ("incomplete" if is_cut else "completed")


def test_items_that_come_back() -> None:
    """What a model thought, said and called is one turn of a chat, as its template writes it."""
    text = [{"type": "output_text", "text": "I look.", "annotations": [], "logprobs": []}]
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "status": "completed"}
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    items = [
        {"role": "user", "content": "Rain?"},
        thought | {"content": [{"type": "reasoning_text", "text": "Hm"}]},
        {"type": "message", "role": "assistant", "content": text, "id": "msg_1", "status": "completed"},
        *(call | {"call_id": "c1"}, call | {"call_id": "c2"}),
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "yes"}]},
        {"type": "function_call_output", "call_id": "c2", "output": "no"},
        thought | {"summary": [{"type": "summary_text", "text": "Well"}]},
        *(call | {"call_id": "c3"}, {"type": "function_call_output", "call_id": "c3", "output": "so"}),
        *(thought, {"role": "assistant", "content": "It does."}, {"role": "assistant", "content": "Bye."}),
    ]
    chat = ResponsesRequest.model_validate({"model": "small", "input": items}).chat()
    turns = [message.model_dump(exclude_none=True) for message in chat.messages]
    roles = ["user", "assistant", "tool", "tool", "assistant", "tool", "assistant", "assistant"]
    assert [turn["role"] for turn in turns] == roles
    assert (turns[1]["reasoning_content"], turns[1]["content"]) == ("Hm", "I look.")
    assert [each["id"] for each in turns[1]["tool_calls"]] == ["c1", "c2"] and turns[2]["content"] == "yes"
    assert turns[4]["reasoning_content"] == "Well" and [each["id"] for each in turns[4]["tool_calls"]] == ["c3"]
    assert [turn["content"] for turn in turns[6:]] == ["It does.", "Bye."]


def test_items_of_all_kinds() -> None:
    items = ResponseItems()
    deltas = [
        *(
            tool_calls.ReasoningDelta("Hm"),
            tool_calls.ReasoningDelta("m."),
            tool_calls.ContentDelta("A"),
            tool_calls.ContentDelta("b"),
        ),
        *(
            tool_calls.CallDelta(0, "c0", "f"),
            tool_calls.ArgumentsDelta(0, "{"),
            tool_calls.ArgumentsDelta(0, "}"),
            tool_calls.CallEndDelta(0),
        ),
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
    assert [item["status"] for item in items.output] == ["completed"] * 3
    assert items.output[2]["arguments"] == "{}"


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id", "previous_response_not_found"),
        ({"previous_response_id": 1}, "previous_response_id", "invalid_value"),
        ({"conversation": "conv_1"}, "conversation", "unsupported_parameter"),
        ({"store": "yes"}, "store", "invalid_value"),
        ({"input": []}, "input", "invalid_value"),
        ({"input": "kettle " * 2000}, "input", "context_length_exceeded"),
        ({"max_output_tokens": 4, "regex": "[0-9]{5}"}, "max_output_tokens", "budget_too_small"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format", "invalid_value"),
        ({"include": ["reasoning.encrypted_content"]}, "include", "invalid_value"),
        ({"input": [{"type": "item_reference", "id": "a"}]}, "input[0]", "invalid_value"),
        ({"input": [{"type": "reasoning", "encrypted_content": "a"}]}, "input[0].encrypted_content", "invalid_value"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "a"}]}]},
            *("input", "unsupported_parameter"),
        ),
        (
            {"tools": [{"type": "function", "name": "f", "parameters": {"properties": {"a": {"type": "no"}}}}]},
            *("tools[0].parameters.properties.a.type", "invalid_tool"),
        ),
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
    tool = {"type": "function", "name": "f", "parameters": format["schema"]}
    error = server.error("/v1/responses", {"model": "small", "input": "a", "tools": [tool]})
    assert error["pointer"] == "/tools/0/parameters/properties/a/type"
    assert error["message"].startswith("tools/0/parameters/properties/a/type: ")


def test_what_is_said_of_calls_without_tools(server: Running) -> None:
    """As in OpenAI's API, whose answers have it always."""
    for told in (True, False):
        body = {"model": "small", "input": "a", "max_output_tokens": 1, "parallel_tool_calls": told}
        assert server.post("/v1/responses", body).json()["parallel_tool_calls"] == told


def test_a_response_goes_on_from_another(server: Running) -> None:
    """As if the whole conversation had been sent, whether it was streamed or not, and from either of its ends."""
    ask = {"model": "small", "temperature": 0, "max_output_tokens": 12}
    first = server.post("/v1/responses", {**ask, "input": TIME, "instructions": "Be brief."}).json()
    assert first["store"] is True and first["previous_response_id"] is None
    turns = [{"role": "user", "content": TIME}, *first["output"]]
    for again in ("Convert noon into HH:MM.", [{"role": "user", "content": "And noon?"}]):
        behind = {**ask, "input": again, "previous_response_id": first["id"]}
        second = server.post("/v1/responses", behind).json()
        last = [{"role": "user", "content": again}] if isinstance(again, str) else again
        whole = server.post("/v1/responses", {**ask, "input": [*turns, *last]}).json()
        assert second["previous_response_id"] == first["id"]
        assert second["output"][0]["content"] == whole["output"][0]["content"]
        assert second["usage"]["input_tokens"] == whole["usage"]["input_tokens"] > first["usage"]["input_tokens"]
    streamed = events_of(server, **{**behind, "model": "small"})[-1]["response"]
    assert streamed["output"][0]["content"] == second["output"][0]["content"]
    third = server.client.responses.create(
        model="small", input="Once more.", previous_response_id=streamed["id"], temperature=0, max_output_tokens=3
    )
    assert third.usage is not None and third.usage.input_tokens > second["usage"]["input_tokens"]


def test_responses_are_there_until_they_are_deleted(server: Running) -> None:
    made = server.client.responses.create(model="small", input=TIME, temperature=0)
    found = server.client.responses.retrieve(made.id)
    assert (found.id, found.output_text, found.usage) == (made.id, made.output_text, made.usage)
    server.client.responses.delete(made.id)
    assert server.http.get(f"/v1/responses/{made.id}").status_code == 404
    body = {"model": "small", "input": "a", "previous_response_id": made.id}
    error = server.error("/v1/responses", body)
    assert (error["param"], error["code"]) == ("previous_response_id", "previous_response_not_found")
    assert "send the whole conversation" in error["message"]
    unkept = server.post("/v1/responses", {"model": "small", "input": "a", "store": False, "max_output_tokens": 1})
    assert unkept.json()["store"] is False
    assert server.http.get(f"/v1/responses/{unkept.json()['id']}").status_code == 404


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("stream=true", "unsupported_parameter"),
        ("starting_after=3", "unknown_parameter"),
        ("include[]=message.output_text.logprobs", "unknown_parameter"),
        ("stream=false&nonsense=", "unknown_parameter"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_the_query_of_a_kept_response_is_read(server: Running, method: str, query: str, code: str) -> None:
    made = server.post("/v1/responses", {"model": "small", "input": "a", "max_output_tokens": 1}).json()
    answer = server.http.request(method, f"/v1/responses/{made['id']}?{query}")
    assert answer.status_code == 400 and answer.json()["error"]["code"] == code
    assert answer.json()["error"]["param"] in query
    assert server.http.get(f"/v1/responses/{made['id']}?stream=false").json() == made


def test_the_responses_used_last_are_kept() -> None:
    made = [{"id": f"resp_{number}", "output": []} for number in range(8)]
    size = len(json.dumps(made[0])) + len(json.dumps([{"text": "a" * 100}])) + 256
    kept = ResponseStore(4 * size + 8)
    for response in made[:4]:
        kept.store(response, [{"text": "a" * 100}], 1 << 20)
    assert json.loads(kept.conversation("resp_0")) == [{"text": "a" * 100}]
    kept.store(made[4], [{"text": "a" * 100}], 1 << 20)
    assert kept.response("resp_0") == made[0], "it was used"
    with pytest.raises(ApiError, match="no response 'resp_1'"):
        kept.conversation("resp_1")
    kept.forget("resp_0")
    kept.store(made[5], [{"text": "a" * 100}], 1 << 20)
    assert [kept.response(f"resp_{number}")["id"] for number in (2, 3, 4, 5)]
    kept.store(made[6], [{"text": "a" * 10000}], 1 << 20)
    with pytest.raises(ApiError, match="no response 'resp_6'"):
        kept.response("resp_6")
    assert kept.response("resp_5") == made[5], "what is too large by itself takes nobody's room"
    short = ResponseStore(1 << 20)
    assert short.store(made[0], [], 100) and not short.store(made[1], [{"text": "a" * 100}], 100)
    none = ResponseStore(0)
    none.store(made[0], [], 1 << 20)
    with pytest.raises(ApiError, match="keeps no responses"):
        none.response("resp_0")


def test_what_is_kept_is_what_a_model_reads(server: Running) -> None:
    """Not the fields that clients send along, of which the context bounds no size."""
    parsed = {"type": "output_text", "text": "16:15", "parsed": [[]] * 1000, "annotations": [], "logprobs": []}
    turns = [{"role": "assistant", "content": [parsed], "id": "msg_1"}, {"role": "user", "content": "Noon?"}]
    made = server.post("/v1/responses", {"model": "small", "input": turns, "max_output_tokens": 2}).json()
    kept = json.loads(server.models.shared.responses.conversation(made["id"]))
    assert kept[0]["content"] == [{"type": "output_text", "text": "16:15"}] and "id" not in kept[0]
    assert [item["role"] for item in kept] == ["assistant", "user", "assistant"]


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"tools": [{**TOOLS[0], "parameters": {"properties": {"a": {"default": 7e77}}}}]}, "tools[0].parameters"),
        ({"text": {"format": {"type": "text", "schema": {"maximum": 7e77}}}}, "text.format.schema"),
    ],
    ids=["tools", "text"],
)
def test_numbers_that_no_answer_could_repeat(
    server: Running, body: dict[str, Any], param: str, is_streamed: bool
) -> None:
    data = json.dumps({"model": "small", "input": "a", "stream": is_streamed, **body}).replace("7e+77", "1e999")
    error = server.error("/v1/responses", data.encode())
    assert error["param"].startswith(param) and "too large" in error["message"]
