"""Tools: calls are valid and complete, whole and streamed, with every choice; and what cannot be is refused."""

import json
import re
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from trellm import Limits, models

from .conftest import SETTINGS, Running, running

ASK: list[Any] = [{"role": "user", "content": "Will it rain in Marlhaven on June 10, 2024?"}]
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "date": {"type": "string", "format": "date"}},
    "required": ["city", "date"],
    "additionalProperties": False,
}
SEND = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"], "additionalProperties": False}
SCHEMAS = {"get_weather": WEATHER, "send_message": SEND}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "description": "A tool.", "parameters": schema}}
    for name, schema in SCHEMAS.items()
]


def test_a_call(server: Running) -> None:
    answer = server.client.chat.completions.create(model="small", messages=ASK, tools=TOOLS, temperature=0)
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    call = choice.message.tool_calls[0]
    assert call.type == "function" and call.id.startswith("call_")
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Marlhaven", "date": "2024-06-10"}
    assert not choice.message.content


def test_a_streamed_call_says_the_same(server: Running) -> None:
    with server.client.chat.completions.stream(model="small", messages=ASK, tools=TOOLS, temperature=0) as stream:
        for _ in stream:
            pass
        message = stream.get_final_completion().choices[0].message
    assert message.tool_calls is not None
    assert json.loads(message.tool_calls[0].function.arguments) == {"city": "Marlhaven", "date": "2024-06-10"}
    events = server.events(
        "/v1/chat/completions", {"model": "small", "messages": ASK, "tools": TOOLS, "temperature": 0}
    )
    fragments = [call for event in events for call in event["choices"][0]["delta"].get("tool_calls", ())]
    assert fragments[0]["function"] == {"name": "get_weather", "arguments": ""} and fragments[0]["id"]
    assert len(fragments) > 3 and all(set(each) == {"index", "function"} for each in fragments[1:])
    assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("required", ["get_weather", "send_message"]),
        ("any", ["get_weather", "send_message"]),
        ({"type": "function", "function": {"name": "send_message"}}, ["send_message"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", [1, 2])
def test_calls_that_must_be(server: Running, choice: Any, names: list[str], seed: int) -> None:
    """At a temperature that makes nonsense, within a budget that cuts what could be cut."""
    body = {"model": "small", "messages": ASK, "tools": TOOLS, "tool_choice": choice, "temperature": 2.5, "seed": seed}
    answer = server.post("/v1/chat/completions", {**body, "max_tokens": 60}).json()["choices"][0]
    assert answer["finish_reason"] == "tool_calls"
    for call in answer["message"]["tool_calls"]:
        assert call["function"]["name"] in names
        jsonschema.validate(json.loads(call["function"]["arguments"]), SCHEMAS[call["function"]["name"]])


def test_a_call_that_does_not_fit_is_refused(server: Running) -> None:
    body: dict[str, Any] = {"model": "small", "messages": ASK, "tools": TOOLS, "tool_choice": "required"}
    error = server.error("/v1/chat/completions", {**body, "max_tokens": 3})
    assert (error["code"], error["param"]) == ("budget_too_small", "max_tokens")
    answer = server.post("/v1/chat/completions", {**body, "max_tokens": error["needed"]}).json()
    assert answer["choices"][0]["finish_reason"] == "tool_calls"


def test_no_calls(server: Running) -> None:
    body = {
        "model": "small",
        "messages": ASK,
        "tools": TOOLS,
        "tool_choice": "none",
        "max_tokens": 30,
        "temperature": 0,
    }
    choice = server.post("/v1/chat/completions", body).json()["choices"][0]
    assert "tool_calls" not in choice["message"] and choice["finish_reason"] in ("stop", "length")
    empty = server.post("/v1/chat/completions", {"model": "small", "messages": ASK, "tools": [], "max_tokens": 5})
    assert empty.status_code == 200


def test_an_answer_or_a_call(server: Running) -> None:
    """Tools together with a schema of the answer."""
    schema = {"type": "object", "properties": {"rain": {"enum": ["yes", "no"]}}, "required": ["rain"]}
    format = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    body = {"model": "small", "messages": ASK, "tools": TOOLS, "response_format": format, "max_tokens": 60}
    for seed in range(4):
        choice = server.post("/v1/chat/completions", {**body, "seed": seed, "temperature": 2.0}).json()["choices"][0]
        if choice["finish_reason"] == "tool_calls":
            for call in choice["message"]["tool_calls"]:
                jsonschema.validate(json.loads(call["function"]["arguments"]), SCHEMAS[call["function"]["name"]])
        else:
            jsonschema.validate(json.loads(choice["message"]["content"]), schema)


QUOTED = {"extract": {"context": "It rained in Marlhaven all day."}}


@pytest.mark.parametrize("choice", ["auto", "none", "required"])
@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({"trellm": QUOTED}, None),
        ({"trellm": {"include": ["quiz"]}}, r"[\s\S]*quiz[\s\S]*"),
        ({"trellm": {**QUOTED, "include": ["in"]}}, r".*in.*"),
        ({"trellm": {"include": ["b"]}, "regex": "[abc]{3,9}"}, "[ac]*b[abc]*"),
    ],
    ids=str,
)
def test_a_call_or_a_quotation_or_a_text_with_goals(
    server: Running, fields: dict[str, Any], pattern: str | None, choice: str
) -> None:
    """Content is held to what was asked of it, calls to their schemas; which it is is drawn here."""
    body = {"model": "small", "messages": ASK, "tools": TOOLS, "tool_choice": choice, "max_tokens": 50, **fields}
    kinds: set[str] = set()
    several = server.post("/v1/chat/completions", {**body, "n": 4, "seed": 0, "temperature": 3.0}).json()["choices"]
    for answer in several:
        kinds.add(answer["finish_reason"])
        if answer["finish_reason"] == "tool_calls":
            for call in answer["message"]["tool_calls"]:
                jsonschema.validate(json.loads(call["function"]["arguments"]), SCHEMAS[call["function"]["name"]])
                assert "quiz" not in call["function"]["arguments"]
            continue
        said = answer["message"]["content"]
        assert pattern is None or re.fullmatch(pattern, said)
        if "extract" in fields["trellm"]:
            span = answer["trellm"]["span"]
            assert span["text"] == said == QUOTED["extract"]["context"][span["start"] : span["end"]]
    assert kinds == {"tool_calls"} if choice == "required" else choice == "auto" or "tool_calls" not in kinds


def test_quoted_strings_beside_tools_have_their_places(server: Running) -> None:
    schema = {"type": "object", "properties": {"who": {"type": "string", "x-quote": "text"}}, "required": ["who"]}
    ours = {"json": {"contexts": {"text": "Brela Stonkard paid."}}}
    body = {"model": "small", "messages": ASK, "tools": TOOLS, "tool_choice": "none", "trellm": ours}
    answer = server.post("/v1/chat/completions", {**body, "guided_json": schema}).json()["choices"][0]
    span = answer["trellm"]["spans"]["/who"]
    assert json.loads(answer["message"]["content"])["who"] == "Brela Stonkard paid."[span["start"] : span["end"]]


@pytest.mark.parametrize("stream", [False, True])
def test_captures_are_in_the_answer(server: Running, stream: bool) -> None:
    grammar = 'start: "size " number <|im_start|> " mm"\nnumber[capture]: /[0-9]{1,3}/'
    body = {"model": "small", "prompt": "How large? ", "guided_grammar": grammar}
    if stream:
        choices = [each["choices"][0] for each in server.events("/v1/completions", body)]
    else:
        choices = server.post("/v1/completions", body).json()["choices"]
    text = "".join(choice["text"] for choice in choices)
    (captured,) = (choice["trellm"]["captures"]["number"] for choice in choices if "trellm" in choice)
    assert captured == [{"text": text[5:-3], "start": 5, "end": len(text) - 3}]


def test_a_limit_of_captures_is_told_beside_the_text() -> None:
    body = {"model": "small", "prompt": "aaaaaa", "guided_grammar": 'start: s{60}\ns[capture]: "a" s? "a" | "a"'}
    for limited in running(models.ziplm("aaaa. aaaa."), replace(SETTINGS, name="small", limits=Limits(work=300_000))):
        (choice,) = limited.post("/v1/completions", body).json()["choices"]
        assert set(choice["text"]) == {"a"} and choice["finish_reason"] == "stop"
        assert "300,000 steps" in choice["trellm"]["lookup_error"]


def test_a_chat_goes_on_behind_a_call(server: Running) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "M"}'}}
    messages = [
        *ASK,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    ]
    body = {"model": "small", "messages": messages, "tools": TOOLS, "max_tokens": 20}
    assert server.post("/v1/chat/completions", body).status_code == 200
    messages[1] = {"role": "assistant", "tool_calls": [call | {"function": {"name": "f", "arguments": "{"}}]}
    error = server.error("/v1/chat/completions", {**body, "messages": messages})
    assert error["pointer"] == "/messages/1/tool_calls/0/function/arguments"


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "fly"}}}, "/tool_choice"),
        ({"tools": TOOLS, "tool_choice": "maybe"}, "/tool_choice"),
        ({"tool_choice": "required"}, "/tool_choice"),
        ({"tools": [{"type": "retrieval"}]}, "/tools/0"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "objekt"}}}]}, "/tools/0"),
        ({"tools": [*TOOLS, TOOLS[0]]}, "/tools/2"),
        ({"tools": "get_weather"}, "/tools"),
        ({"tools": [{"type": "function", "function": {"name": f"f{i}"}} for i in range(2049)]}, "/tools"),
        ({"tools": TOOLS, "stop": ["ab", "b"]}, "/stop"),
        ({"tools": TOOLS, "stop_token_ids": [7]}, "/stop_token_ids"),
        ({"tools": TOOLS, "trellm": {"include": ["rain"]}, "stop": "a"}, "/stop"),
        ({"tools": TOOLS, "trellm": {"include": [""]}}, "/trellm/include"),
        ({"tools": TOOLS, "trellm": {"extract": {"context": ""}}}, "/trellm/extract"),
        ({"parallel_tool_calls": False}, "/parallel_tool_calls"),
        ({"trellm": {"thinking": "on"}}, "/trellm/thinking"),
        ({"trellm": {"thinking": "on"}, "tools": TOOLS, "stop": "zz"}, "/trellm/thinking"),
        ({"trellm": {"thinking_budget": 5}, "tools": TOOLS}, "/trellm/thinking_budget"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_tools_that_cannot_be(server: Running, body: dict[str, Any], pointer: str) -> None:
    error = server.error("/v1/chat/completions", {"model": "small", "messages": ASK, **body})
    assert error.get("pointer", "").startswith(pointer), error


def test_tools_without_parameters(server: Running) -> None:
    """Are called without arguments, whatever the template asks of their fields, and whatever is null in them."""
    for function in ({"name": "now"}, {"name": "now", "description": None, "parameters": None, "strict": None}):
        tool = {"type": "function", "function": function}
        body = {"model": "small", "messages": ASK, "tools": [tool], "tool_choice": "required"}
        answer = server.post("/v1/chat/completions", body)
        assert answer.status_code == 200, answer.text
        called = answer.json()["choices"][0]["message"]["tool_calls"][0]["function"]
        assert called == {"name": "now", "arguments": "{}"}
        said = server.post(
            "/v1/responses", {"model": "small", "input": "a", "tools": [{"type": "function", **function}]}
        )
        assert said.status_code == 200, said.text


@pytest.mark.parametrize("text", ["true", "5", "null", '"a"', "1e9999"])
def test_json_text_that_is_neither_object_nor_array(server: Running, text: str) -> None:
    """As the arguments of a call, which a model may have written anywhere, and as a schema."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": text}}
    messages = [*ASK, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": ""}]
    body = {"model": "small", "max_tokens": 1}
    answers = [server.post("/v1/chat/completions", {**body, "messages": messages})]
    for fields in ({"structured_outputs": {"json": text}}, {"json_schema": text}, {"guided_json": text}):
        answers.append(server.post("/v1/chat/completions", {**body, "messages": ASK, "max_tokens": 40, **fields}))
    schemas = {200} if text == "true" else {400}
    assert answers[0].status_code == 200 and {each.status_code for each in answers[1:]} == schemas


def test_names_are_not_taken_for_what_errors_say(server: Running) -> None:
    named = {"type": "function", "function": {"name": "a context of 7"}}
    body = {"model": "small", "messages": ASK, "tools": TOOLS, "tool_choice": named}
    error = server.error("/v1/chat/completions", body)
    assert (error["code"], error["param"]) == ("invalid_tool", "tool_choice.function.name")
    tags = {"structures": [{"begin": "a context of 7", "schema": {}, "end": "b"}], "triggers": ["c"]}
    body = {"model": "small", "messages": ASK, "structured_outputs": {"structural_tag": tags}}
    assert server.error("/v1/chat/completions", body)["code"] == "invalid_value"


def test_stop_strings_end_content_and_no_call(server: Running) -> None:
    body = {"model": "small", "messages": ASK, "tools": TOOLS, "temperature": 0}
    called = server.post("/v1/chat/completions", {**body, "stop": ["haven", "zz"]}).json()["choices"][0]
    assert called["finish_reason"] == "tool_calls"
    arguments = json.loads(called["message"]["tool_calls"][0]["function"]["arguments"])
    assert arguments == {"city": "Marlhaven", "date": "2024-06-10"}
    ask = [{"role": "user", "content": "Say something long."}]
    plain = {**body, "messages": ask, "max_tokens": 40, "tool_choice": "none"}
    text = server.post("/v1/chat/completions", plain).json()["choices"][0]["message"]["content"]
    stop = text[len(text) // 2 :][:3]
    cut = server.post("/v1/chat/completions", {**plain, "stop": stop}).json()["choices"][0]
    assert cut["message"]["content"] == text[: text.index(stop)] and cut["finish_reason"] == "stop"
    events = server.events("/v1/chat/completions", {**plain, "stop": stop})
    said = "".join(event["choices"][0]["delta"].get("content") or "" for event in events)
    assert said == text[: text.index(stop)]
