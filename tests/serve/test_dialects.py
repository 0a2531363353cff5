"""Other servers' own APIs: Anthropic's messages, Ollama's, llama.cpp's /completion and SGLang's /generate."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import PASSAGE, Running

QUESTION = f"{PASSAGE}\n\nWho bought the kettle? Quote the text."
TURN = [{"role": "user", "content": QUESTION}]
COLOUR = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"]}
PAINT = {"name": "paint", "description": "Paint it", "input_schema": COLOUR}
OLLAMA_TOOL = {"type": "function", "function": {"name": "paint", "description": "Paint it", "parameters": COLOUR}}


def said(server: Running, path: str, **body: Any) -> Any:
    """The answer of an endpoint."""
    answer = server.post(path, body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def lines(server: Running, path: str, **body: Any) -> list[Any]:
    """The lines of an answer of Ollama's."""
    answer = server.post(path, body)
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/x-ndjson", answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def events(server: Running, path: str, **body: Any) -> list[Any]:
    """The data of server-sent events."""
    answer = server.post(path, body | {"stream": True})
    assert answer.status_code == 200, answer.text
    found = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    return [each if each == "[DONE]" else json.loads(each) for each in found]


def usual(server: Running) -> str:
    """What /v1/chat/completions answers."""
    body = {"model": "small", "messages": TURN, "temperature": 0, "max_tokens": 30}
    return said(server, "/v1/chat/completions", **body)["choices"][0]["message"]["content"]


def test_messages(server: Running) -> None:
    body: dict[str, Any] = {"model": "small", "max_tokens": 30, "temperature": 0, "messages": TURN}
    answer = said(server, "/v1/messages", **body)
    assert answer["content"] == [{"type": "text", "text": usual(server)}]
    assert (answer["type"], answer["role"], answer["stop_reason"]) == ("message", "assistant", "end_turn")
    assert answer["usage"]["output_tokens"] > 0
    blocks = [{"role": "user", "content": [{"type": "text", "text": QUESTION, "cache_control": {"type": "ephemeral"}}]}]
    again = said(server, "/v1/messages", **body | {"messages": blocks})
    assert again["content"] == answer["content"] and again["usage"]["cache_read_input_tokens"] > 0
    counted = said(server, "/v1/messages/count_tokens", model="small", messages=TURN)["input_tokens"]
    assert counted == sum(again["usage"][name] for name in ("input_tokens", "cache_read_input_tokens"))
    short = said(server, "/v1/messages", **body | {"max_tokens": 1})
    assert short["stop_reason"] == "max_tokens"
    stopped = said(server, "/v1/messages", **body, stop_sequences=["zzz", "Stonkard"])
    assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", "Stonkard")
    prefilled = [*TURN, {"role": "assistant", "content": "Brela"}]
    assert said(server, "/v1/messages", **body | {"messages": prefilled})["content"][0]["text"].startswith(" Stonkard")


def test_messages_of_a_constraint(server: Running) -> None:
    body: dict[str, Any] = {"model": "small", "max_tokens": 40, "temperature": 0, "messages": TURN}
    form = {"type": "json_schema", "schema": COLOUR}
    for more in ({"output_config": {"format": form}}, {"output_format": form}, {"guided_json": COLOUR}):
        text = said(server, "/v1/messages", **body, **more)["content"][0]["text"]
        assert json.loads(text)["colour"] in ("red", "blue")
    quoted = said(server, "/v1/messages", **body, trellm={"extract": {"context": PASSAGE}})
    assert quoted["trellm"]["span"]["text"] == quoted["content"][0]["text"]


def test_messages_with_tools(server: Running) -> None:
    body: dict[str, Any] = {"model": "small", "max_tokens": 90, "temperature": 0, "tools": [PAINT]}
    choice = {"type": "tool", "name": "paint", "disable_parallel_tool_use": True}
    answer = said(server, "/v1/messages", **body, messages=TURN, tool_choice=choice)
    (call,) = answer["content"]
    assert answer["stop_reason"] == "tool_use" and call["type"] == "tool_use" and call["name"] == "paint"
    assert call["input"]["colour"] in ("red", "blue")
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": [{"type": "text", "text": "done"}]}
    turns = [*TURN, {"role": "assistant", "content": answer["content"]}, {"role": "user", "content": [result]}]
    assert said(server, "/v1/messages", **body, messages=turns, tool_choice={"type": "none"})["content"]
    several = events(server, "/v1/messages", **body, messages=TURN, tool_choice=choice)
    assert [each["type"] for each in several][:2] == ["message_start", "content_block_start"]
    assert several[1]["content_block"]["name"] == "paint" and several[-1]["type"] == "message_stop"
    written = [each["delta"]["partial_json"] for each in several if each["type"] == "content_block_delta"]
    assert json.loads("".join(written)) == call["input"]
    assert several[-2]["delta"]["stop_reason"] == "tool_use"


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ({"content": "no paint", "is_error": True}, "Error: no paint"),
        ({"content": [{"type": "text", "text": "no paint"}], "is_error": True}, "Error: no paint"),
        ({"is_error": True}, "Error"),
        ({"content": "done", "is_error": False}, "done"),
    ],
)
def test_a_model_reads_that_a_call_failed(server: Running, result: dict[str, Any], told: str) -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "paint", "input": {"colour": "red"}}
    turns = [
        *TURN,
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", **result}]},
    ]
    counted = said(server, "/v1/messages/count_tokens", model="small", messages=turns, tools=[PAINT])["input_tokens"]
    called = {"id": "toolu_1", "function": {"name": "paint", "arguments": json.dumps(call["input"])}}
    plain = [
        *TURN,
        {"role": "assistant", "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "toolu_1", "content": told},
    ]
    body = {"model": "small", "messages": plain, "tools": [OLLAMA_TOOL], "max_tokens": 1}
    assert counted == said(server, "/v1/chat/completions", **body)["usage"]["prompt_tokens"]


def test_messages_as_events(server: Running) -> None:
    body: dict[str, Any] = {"model": "small", "max_tokens": 30, "temperature": 0, "messages": TURN}
    several = events(server, "/v1/messages", **body)
    kinds = [each["type"] for each in several]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    text = "".join(each["delta"]["text"] for each in several if each["type"] == "content_block_delta")
    assert text == usual(server)
    assert several[0]["message"]["usage"]["output_tokens"] == 0 < several[-2]["usage"]["output_tokens"]


@pytest.mark.parametrize(
    ("more", "status", "kind"),
    [
        ({"model": "other"}, 404, "not_found_error"),
        ({"max_tokens": None}, 400, "invalid_request_error"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, 400, "invalid_request_error"),
        ({"tools": [{"type": "web_search_20250305", "name": "a"}]}, 400, "invalid_request_error"),
        ({"guided_json": {"type": "nothing"}}, 400, "invalid_request_error"),
    ],
)
def test_errors_of_messages(server: Running, more: dict[str, Any], status: int, kind: str) -> None:
    body = {"model": "small", "max_tokens": 5, "messages": TURN} | more
    answer = server.post("/v1/messages", {name: each for name, each in body.items() if each is not None})
    assert answer.status_code == status, answer.text
    assert answer.json()["type"] == "error" and answer.json()["error"]["type"] == kind


def test_ollama_chats(server: Running) -> None:
    body: dict[str, Any] = {"model": "small:latest", "messages": TURN, "options": {"temperature": 0, "num_predict": 30}}
    answer = said(server, "/api/chat", **body, stream=False)
    assert answer["message"] == {"role": "assistant", "content": usual(server)}
    assert answer["done"] is True and answer["done_reason"] == "stop" and answer["eval_count"] > 0
    several = lines(server, "/api/chat", **body)
    assert "".join(each["message"]["content"] for each in several) == usual(server)
    assert [each["done"] for each in several][-2:] == [False, True] and several[-1]["eval_duration"] >= 0
    for form in ("json", COLOUR):
        text = said(server, "/api/chat", **body, stream=False, format=form)["message"]["content"]
        assert isinstance(json.loads(text), dict)
    hints = {"num_ctx": 4096, "num_gpu": 1, "repeat_last_n": 64, "temperature": 0, "num_predict": 30}
    assert said(server, "/api/chat", **body | {"options": hints}, stream=False, keep_alive="5m", think=False)
    assert said(server, "/api/chat", model="small")["done_reason"] == "load"


def test_ollama_tools(server: Running) -> None:
    body: dict[str, Any] = {"model": "small", "tools": [OLLAMA_TOOL], "options": {"temperature": 0}, "stream": False}
    wanted = {"structured_outputs": {"json": {"const": "none"}}}
    assert said(server, "/api/chat", **body, messages=TURN, **wanted)["message"]
    called = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"function": {"name": "paint", "arguments": {"colour": "red"}}}],
    }
    turns = [*TURN, called, {"role": "tool", "content": "done", "tool_name": "paint"}]
    assert said(server, "/api/chat", **body, messages=turns)["done"]


def test_ollama_texts_and_models(server: Running) -> None:
    body: dict[str, Any] = {"model": "small", "options": {"temperature": 0, "num_predict": 30}}
    assert said(server, "/api/generate", **body, prompt=QUESTION, stream=False)["response"] == usual(server)
    raw = said(server, "/api/generate", **body, prompt="The kettle", raw=True, stream=False)
    assert raw["response"] == server.text("The kettle", max_tokens=30, top_k=40, top_p=0.9)
    several = lines(server, "/api/generate", **body, prompt=QUESTION)
    assert "".join(each["response"] for each in several) == usual(server)
    names = [each["name"] for each in server.http.get("/api/tags").json()["models"]]
    assert "small:latest" in names
    assert server.http.get("/api/ps").json()["models"] and server.http.get("/api/version").json()["version"]
    assert "completion" in said(server, "/api/show", model="small")["capabilities"]
    for path, wrong in (("/api/chat", {"model": "other", "messages": TURN}), ("/api/show", {"model": "other"})):
        answer = server.post(path, wrong)
        assert answer.status_code == 404 and "does not exist" in answer.json()["error"]
    assert isinstance(
        server.post("/api/chat", {"model": "small", "messages": TURN, "nonsense": 1}).json()["error"], str
    )


def test_llama_completions(server: Running) -> None:
    body: dict[str, Any] = {"prompt": "The kettle", "n_predict": 6, "temperature": 0, "cache_prompt": True, "seed": -1}
    plain = server.text("The kettle", max_tokens=6, top_k=40, top_p=0.95, min_p=0.05)
    answer = said(server, "/completion", **body)
    assert answer["content"] == plain and answer["stop"] is True and answer["stop_type"] == "limit"
    assert answer["tokens_predicted"] == len(answer["tokens"]) == 6
    assert "".join(each["content"] for each in events(server, "/completion", **body)) == plain
    assert len(said(server, "/completion", **body | {"prompt": ["The", "A"]})) == 2
    assert said(server, "/completion", **body, grammar='root ::= "ab"')["content"] == "ab"
    assert json.loads(said(server, "/completion", **body | {"n_predict": 40}, json_schema=COLOUR)["content"])
    assert said(server, "/completion", **body, n_probs=2)["completion_probabilities"][0]["top_logprobs"]
    server.error("/completion", {"prompt": "x", "mirostat": 2})


def test_sglang(server: Running) -> None:
    chosen: dict[str, Any] = {"max_new_tokens": 6, "temperature": 0}
    plain = server.text("The kettle", max_tokens=6)
    answer = said(server, "/generate", text="The kettle", sampling_params=chosen)
    assert answer["text"] == plain and answer["meta_info"]["finish_reason"] == {"type": "length", "length": 6}
    assert answer["meta_info"]["completion_tokens"] == 6
    several = events(server, "/generate", text="The kettle", sampling_params=chosen)
    assert several[-1] == "[DONE]" and several[-2]["text"] == plain
    tokens = said(server, "/tokenize", prompt="The kettle")["tokens"]
    both = said(server, "/generate", input_ids=[tokens, tokens], sampling_params=chosen)
    assert [each["text"] for each in both] == [plain, plain]
    assert said(server, "/generate", text="x", sampling_params=chosen | {"regex": "a{3}"})["text"] == "aaa"
    tag = {"type": "structural_tag", "format": {"type": "const_string", "value": "ab"}}
    assert said(server, "/generate", text="x", sampling_params=chosen | {"structural_tag": tag})["text"] == "ab"
    assert "text or input_ids" in server.error("/generate", {"sampling_params": {}})["message"]


def test_tokens_and_what_the_server_is(server: Running) -> None:
    tokens = said(server, "/tokenize", prompt="naïve 😀")["tokens"]
    assert said(server, "/detokenize", tokens=tokens)["prompt"] == "naïve 😀"
    assert server.error("/detokenize", {"tokens": [10**6]})["param"] == "tokens"
    assert server.http.get("/version").json()["version"]
    assert server.http.get("/props").json()["default_generation_settings"]["n_ctx"] > 0


OBJECT: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "objekt"}}}
SAID = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        ("/v1/responses", {"input": "a", "max_output_tokens": 1 << 20}, "/max_output_tokens"),
        ("/v1/responses", {"input": [{"role": "user", "content": "a"}, {"type": "function_call", "call_id": "c",
         "name": "f", "arguments": "{bad"}]}, "/input"),
        ("/v1/messages", {"max_tokens": 9, "messages": SAID, "stop_sequences": [""]}, "/stop_sequences"),
        ("/v1/messages", {"max_tokens": 9, "messages": SAID, "output_format": {"type": "json_schema",
         "schema": OBJECT}}, "/output_format/schema/properties/a/type"),
        ("/v1/messages", {"max_tokens": 9, "messages": SAID, "output_config": {"format": {"type": "json_schema",
         "schema": OBJECT}}}, "/output_config/format/schema/properties/a/type"),
        ("/v1/messages", {"max_tokens": 9, "messages": SAID, "tools": [{"name": "f", "input_schema": OBJECT}]},
         "/tools/0/input_schema/properties/a/type"),
        ("/v1/messages", {"max_tokens": 9, "messages": SAID, "tools": [{"name": "f", "input_schema": {}}],
         "tool_choice": {"type": "tool"}}, "/tool_choice"),
        ("/v1/messages", {"max_tokens": 9, "messages": [{"role": "user", "content": [
            {"type": "tool_use", "id": "x", "name": "f", "input": {}}]}]}, "/messages/0/content/0"),
        ("/v1/messages", {"max_tokens": 9, "messages": [*SAID, {"role": "assistant", "content": [
            {"type": "tool_result", "tool_use_id": "x"}]}]}, "/messages/1/content/0"),
        ("/v1/messages", {"max_tokens": 9, "messages": SAID, "output_format": {"type": "json_schema", "schema": {}},
         "response_format": {"type": "json_object"}}, "/output_format"),
        ("/api/chat", {"messages": SAID, "options": {"num_predict": 1 << 21}}, "/options/num_predict"),
        ("/api/chat", {"messages": SAID, "options": {"stop": ""}}, "/options/stop"),
        ("/api/chat", {"messages": SAID, "format": OBJECT}, "/format/properties/a/type"),
        ("/api/chat", {"messages": SAID, "format": {"type": "integer"}, "response_format": {"type": "json_object"}},
         "/format"),
        ("/api/chat", {"messages": SAID, "format": False}, "/format"),
        ("/api/generate", {"prompt": "a", "raw": True, "system": "b"}, "/system"),
        ("/api/generate", {"prompt": "a", "raw": True, "logprobs": True}, "/logprobs"),
        ("/completion", {"prompt": "a", "n_predict": 0}, "/n_predict"),
        ("/generate", {"text": "a", "sampling_params": {"stop_token_ids": [-1]}}, "/sampling_params/stop_token_ids/0"),
        ("/generate", {"text": "a", "sampling_params": {"max_new_tokens": 2, "regex": "[0-9]{9}"}},
         "/sampling_params/max_new_tokens"),
        ("/generate", {"text": "a", "sampling_params": {"regex": "("}}, "/sampling_params/regex"),
        ("/generate", {"text": "kettle " * 3000}, "/text"),
        ("/v1/chat/completions", {"messages": SAID, "functions": [{"name": "f", "parameters": OBJECT}]},
         "/functions/0/parameters/properties/a/type"),
        ("/v1/chat/completions", {"messages": SAID, "functions": [{"name": "f"}], "function_call": {"name": "g"}},
         "/function_call/name"),
    ],
    ids=lambda value: str(value)[:60],
)  # fmt: skip
def test_errors_name_the_fields_of_the_request(server: Running, path: str, body: dict[str, Any], pointer: str) -> None:
    """Each API its own, in the message too."""
    answer = server.http.post(path, json={"model": "small", **body})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    if path.startswith("/api/"):  # whose errors are messages alone
        assert pointer.rpartition("/")[2] in error, error
        return
    assert error["pointer"] == pointer, error
    assert "max_tokens" not in error["message"] or pointer.endswith("/max_tokens")


def test_biases_of_llama(server: Running) -> None:
    """As a list, where false bans a token, and as an object."""
    for biases in ([[5, 100.0]], [[5, 100]], {"5": 100}):
        body = {"prompt": "Hi", "n_predict": 2, "temperature": 0, "logit_bias": biases}
        answer = server.post("/completion", body)
        assert answer.status_code == 200, answer.text
        (token,) = {server.service.model.vocabulary.tokens[5]}
        assert answer.json()["content"].encode() == 2 * (token or b"")
    plain = server.post("/completion", {"prompt": "Hi", "n_predict": 1, "temperature": 0}).json()["content"]
    banned = server.service.model.vocabulary.tokens.index(plain.encode())
    body = {"prompt": "Hi", "n_predict": 1, "temperature": 0, "logit_bias": [[banned, False]]}
    assert server.post("/completion", body).json()["content"] != plain
