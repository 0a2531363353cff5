"""Fields that clients bring from other servers: what vLLM, SGLang, llama.cpp and OpenAI's older API do with them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import openai
import pytest
from trellm import models

from .conftest import PASSAGE, SETTINGS, Running, running
from .support import ChatRequest

ASKED = [{"role": "user", "content": f"{PASSAGE}\n\nWho bought the kettle? Quote the text."}]
COLOUR = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"]}


def chat(server: Running, **body: Any) -> dict[str, Any]:
    """The first choice of a chat."""
    answer = server.post(
        "/v1/chat/completions", {"model": "small", "messages": ASKED, "temperature": 0, "max_tokens": 40, **body}
    )
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]


def test_hints_change_nothing(server: Running) -> None:
    hints: dict[str, Any] = {
        "cache_prompt": True,
        "keep_alive": "5m",
        "guided_decoding_backend": "xgrammar",
        "skip_special_tokens": True,
        "spaces_between_special_tokens": False,
        "include_stop_str_in_output": False,
        "store": True,
        "reasoning_effort": "low",
        "reasoning": {"effort": "low", "summary": "auto"},
        "chat_template_kwargs": {"enable_thinking": False},
        "add_generation_prompt": True,
    }
    plain = chat(server)
    for name, value in hints.items():
        assert chat(server, **{name: value}) == plain, name
    assert server.error("/v1/chat/completions", {"model": "small", "messages": ASKED, "skip_special_tokens": False})
    said = server.error(
        "/v1/chat/completions",
        {"model": "small", "messages": ASKED, "reasoning_effort": "low", "reasoning": {"effort": "high"}},
    )
    assert "differ" in said["message"]


def test_a_schema_of_an_object(server: Running) -> None:
    """llama.cpp's form of a schema."""
    said = chat(server, response_format={"type": "json_object", "schema": COLOUR})
    assert json.loads(said["message"]["content"])["colour"] in ("red", "blue")
    wrong = {"type": "json_object", "schema": {"type": "nothing"}}
    error = server.error("/v1/chat/completions", {"model": "small", "messages": ASKED, "response_format": wrong})
    assert error["pointer"] == "/response_format/schema/type"


def test_stop_beside_a_constraint(server: Running) -> None:
    """A stop string cuts no text of a constraint, and the answer says which ones it met."""
    for where in ({"regex": "one END two"}, {"structured_outputs": {"choice": ["one END two"]}}):
        said = chat(server, stop=["END"], **where)
        assert said["message"]["content"] == "one END two"
        assert said["trellm"]["overruled"] == ["stop"]
        assert "trellm" not in chat(server, stop="three", **where)
    whole = server.complete("x", regex="a+b", stop_token_ids=[*b"b"], max_tokens=5)["choices"][0]
    assert whole["text"].endswith("b")
    chunks = server.client.chat.completions.create(
        model="small", messages=ASKED, stop=["END"], stream=True, extra_body={"regex": "one END two"}, temperature=0
    )  # type: ignore[call-overload]
    pieces = list(chunks)
    assert "".join(each.choices[0].delta.content or "" for each in pieces) == "one END two"
    assert pieces[-1].choices[0].trellm == {"overruled": ["stop"]}


def test_ignore_eos(server: Running) -> None:
    said = server.complete("The", ignore_eos=True, max_tokens=60)
    assert said["usage"]["completion_tokens"] == 60 and said["choices"][0]["finish_reason"] == "length"
    assert server.error("/v1/completions", {"model": "small", "prompt": "x", "regex": "a", "ignore_eos": True})


def test_allowed_tokens(server: Running) -> None:
    tokens = server.post("/tokenize", {"prompt": "yes no"}).json()["tokens"]
    said = server.complete("Is it so? ", allowed_token_ids=tokens, max_tokens=8)["choices"][0]
    ids = server.post("/tokenize", {"prompt": said["text"]}).json()["tokens"]
    assert {*ids} <= {*tokens}
    error = server.error("/v1/completions", {"model": "small", "prompt": "x", "allowed_token_ids": [10**6]})
    assert error["param"] == "allowed_token_ids"


def test_bad_words(server: Running) -> None:
    free = server.text("The kettle", max_tokens=12)
    word = free.split()[0]
    said = server.text("The kettle", max_tokens=12, bad_words=[word])
    assert word not in said and said != free
    assert (
        "exclude each other"
        in server.error("/v1/completions", {"model": "small", "prompt": "x", "regex": "a", "bad_words": ["b"]})[
            "message"
        ]
    )


def test_echo(server: Running) -> None:
    plain = server.text("The kettle", max_tokens=6)
    assert server.text("The kettle", max_tokens=6, echo=True) == "The kettle" + plain
    tokens = server.post("/tokenize", {"prompt": "The kettle"}).json()["tokens"]
    assert server.text(tokens, max_tokens=6, echo=True).endswith(plain)
    streamed = server.client.completions.create(
        model="small", prompt="The kettle", max_tokens=6, echo=True, stream=True, temperature=0
    )
    assert "".join(each.choices[0].text for each in streamed) == "The kettle" + plain


def test_best_of(server: Running) -> None:
    """The likeliest ones by the mean of their tokens, the best one first."""
    body = {"temperature": 1.5, "seed": 1, "max_tokens": 8, "logprobs": 0}
    several = server.complete(["The", "A"], n=6, **body)["choices"]
    best = server.complete(["The", "A"], n=2, best_of=6, **body)
    assert [each["index"] for each in best["choices"]] == [0, 1, 2, 3]

    def mean(choice: dict[str, Any]) -> float:
        scores = choice["logprobs"]["token_logprobs"]
        return sum(scores) / len(scores)

    for number, told in enumerate((best["choices"][:2], best["choices"][2:])):
        ranked = sorted(several[6 * number : 6 * number + 6], key=lambda each: -mean(each))[:2]
        assert [each["text"] for each in told] == [each["text"] for each in ranked]
    assert server.complete("The", best_of=3, temperature=1, max_tokens=3)["choices"][0]["logprobs"] is None
    for wrong in ({"n": 3, "best_of": 2}, {"best_of": 2, "stream": True}, {"best_of": 2, "temperature": 0}):
        assert "best_of" in server.error("/v1/completions", {"model": "small", "prompt": "x", **wrong})["message"]


def test_truncated_prompts(server: Running) -> None:
    prompt = "one two three four five six seven"
    tokens = server.post("/tokenize", {"prompt": prompt}).json()["tokens"]
    cut = server.complete(prompt, truncate_prompt_tokens=3, max_tokens=4)
    assert cut["usage"]["prompt_tokens"] == 3
    assert cut["choices"][0]["text"] == server.text(tokens[-3:], max_tokens=4)
    whole = server.complete(prompt, truncate_prompt_tokens=-1, max_tokens=4)
    assert whole["usage"]["prompt_tokens"] == len(tokens)
    server.error("/v1/completions", {"model": "small", "prompt": [10**9], "truncate_prompt_tokens": 2})
    long = server.complete("word " * 20_000, truncate_prompt_tokens=-1, max_tokens=4)
    assert long["choices"][0]["finish_reason"] in ("length", "stop")


def test_functions(server: Running) -> None:
    """The API before tools, by openai-python, whole and streamed."""
    functions = [{"name": "paint", "parameters": COLOUR}]
    client: Any = server.client.chat.completions
    said = client.create(
        model="small", messages=ASKED, functions=functions, function_call={"name": "paint"}, temperature=0
    ).choices[0]
    assert said.finish_reason == "function_call" and said.message.tool_calls is None
    assert said.message.function_call.name == "paint"
    assert json.loads(said.message.function_call.arguments)["colour"] in ("red", "blue")
    pieces = [
        each.choices[0]
        for each in client.create(
            model="small",
            messages=ASKED,
            functions=functions,
            function_call={"name": "paint"},
            temperature=0,
            stream=True,
        )
    ]
    calls = [each.delta.function_call for each in pieces if each.delta.function_call is not None]
    assert calls[0].name == "paint" and pieces[-1].finish_reason == "function_call"
    assert "".join(each.arguments for each in calls) == said.message.function_call.arguments
    followed = [
        *ASKED,
        {"role": "assistant", "content": None, "function_call": {"name": "paint", "arguments": '{"colour": "red"}'}},
        {"role": "function", "name": "paint", "content": "done"},
    ]
    assert client.create(model="small", messages=followed, functions=functions, function_call="none", max_tokens=4)
    with pytest.raises(openai.BadRequestError, match="functions are the older form of tools"):
        client.create(
            model="small", messages=ASKED, functions=functions, tools=[{"type": "function", "function": functions[0]}]
        )


def test_a_message_that_is_continued(server: Running) -> None:
    begun = [*ASKED, {"role": "assistant", "content": "Brela"}]
    said = chat(server, messages=begun, continue_final_message=True, add_generation_prompt=False)
    assert said["message"]["content"].startswith(" Stonkard")
    for wrong in (
        {"messages": ASKED, "continue_final_message": True},
        {"messages": begun, "continue_final_message": True, "add_generation_prompt": True},
        {"messages": begun, "add_generation_prompt": False},
    ):
        server.error("/v1/chat/completions", {"model": "small", **wrong})


def test_effort_as_a_budget_of_thinking() -> None:
    def thought(**said: Any) -> Any:
        return ChatRequest.model_validate({"model": "m", "messages": ASKED, **said}).thinking_options

    assert thought() == ("auto", None)
    assert thought(reasoning_effort="none") == ("off", None)
    assert thought(reasoning={"enabled": False}) == ("off", None)
    assert thought(reasoning_effort="low") == ("auto", 1024)
    assert thought(reasoning={"effort": "high", "max_tokens": 50}) == ("auto", 50)
    assert thought(reasoning_effort="low", trellm={"thinking": "off"}) == ("off", None)
    assert thought(reasoning_effort="low", trellm={"thinking_budget": 7}) == ("auto", 7)


def test_priorities_are_for_the_operator_to_allow(server: Running) -> None:
    asked: dict[str, dict[str, Any]] = {
        "/v1/completions": {"prompt": "a", "max_tokens": 1},
        "/v1/chat/completions": {"messages": ASKED, "max_tokens": 1},
        "/v1/responses": {"input": "a", "max_output_tokens": 1},
        "/v1/embeddings": {"input": "a"},
        "/v1/rerank": {"query": "a", "documents": ["b"]},
    }
    for path, body in asked.items():
        error = server.error(path, {"model": "small", **body, "priority": -3})
        assert (error["param"], error["code"]) == ("priority", "unsupported_parameter")
        assert "--priorities" in error["message"]
        assert server.post(path, {"model": "small", **body, "priority": 0}).status_code == 200, "as for all"
    for open_to_all in running(models.small(), replace(SETTINGS, priorities=True)):
        submitted: list[int] = []
        enter = open_to_all.service.engine.enter

        def noted(requests: Any, limit: int, enter: Any = enter, submitted: list[int] = submitted) -> Any:
            submitted.extend(each.options.priority for each in requests)
            return enter(requests, limit)

        open_to_all.service.engine.enter = noted  # type: ignore[method-assign]
        for path, body in asked.items():
            answer = open_to_all.post(path, {"model": "small", **body, "priority": -3})
            assert answer.status_code == 200, answer.text
        assert submitted == [-3] * 6
        assert open_to_all.error("/v1/completions", {"model": "small", "prompt": "a", "priority": 1.5})["param"]
