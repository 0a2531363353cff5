"""openai-python against the server: chats, texts, streams, schemas."""

import json
from typing import Any

import openai
import pydantic
import pytest
from trellm import Beam, generate

from .conftest import PASSAGE, Running

CHAT: list[Any] = [{"role": "user", "content": "Convert a quarter past four in the afternoon into HH:MM."}]


class Order(pydantic.BaseModel):
    """A record of the passage."""

    buyer: str
    count: int
    paid: bool


ORDER: list[Any] = [
    {
        "role": "user",
        "content": f"{PASSAGE}\n\nExtract the data from this text as JSON.\n"
        "Fields: buyer (string), count (integer), paid (boolean)",
    }
]


def test_a_chat(server: Running) -> None:
    answer = server.client.chat.completions.create(model="small", messages=CHAT, temperature=0)
    assert answer.choices[0].message.content == "16:15"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    ids = server.post("/tokenize", {"messages": CHAT}).json()
    assert ids["count"] == answer.usage.prompt_tokens == len(ids["tokens"])


def test_a_streamed_chat_says_the_same(server: Running) -> None:
    stream = server.client.chat.completions.create(
        model="small", messages=CHAT, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "16:15"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]][-1] == "stop"
    assert chunks[-1].usage is not None and not chunks[-1].choices
    assert chunks[-1].usage.completion_tokens == 5
    assert len({chunk.id for chunk in chunks}) == 1


def test_streams_without_usage_have_none(server: Running) -> None:
    events = server.events("/v1/chat/completions", {"model": "small", "messages": CHAT, "max_tokens": 3})
    assert all("usage" not in each for each in events)
    assert events[-1]["choices"][0]["finish_reason"] == "length"


def test_parse_with_pydantic(server: Running) -> None:
    answer = server.client.chat.completions.parse(model="small", messages=ORDER, response_format=Order, temperature=0)
    assert answer.choices[0].message.parsed == Order(buyer="Brela Stonkard", count=12, paid=False)


def test_the_streaming_helper_parses(server: Running) -> None:
    with server.client.chat.completions.stream(
        model="small", messages=ORDER, response_format=Order, temperature=0
    ) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert final.choices[0].message.parsed == Order(buyer="Brela Stonkard", count=12, paid=False)


def test_any_json_object(server: Running) -> None:
    answer = server.client.chat.completions.create(
        model="small", messages=ORDER, response_format={"type": "json_object"}, temperature=0, max_tokens=60
    )
    assert isinstance(json.loads(answer.choices[0].message.content or ""), dict)
    assert answer.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("temperature", [0, 0.9])
def test_several_choices(server: Running, temperature: float) -> None:
    answer = server.client.chat.completions.create(
        model="small", messages=CHAT, n=3, seed=5, temperature=temperature, max_tokens=8
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    texts = [choice.message.content for choice in answer.choices]
    again = server.client.chat.completions.create(
        model="small", messages=CHAT, n=3, seed=5, temperature=temperature, max_tokens=8, stream=True
    )
    streamed = ["", "", ""]
    for chunk in again:
        streamed[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert streamed == texts
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 24


def test_completions_of_several_prompts(server: Running) -> None:
    prompts = [f"Write {day} as YYYY-MM-DD.\nAnswer:\n" for day in ("July 20, 1969", "the 11th of December 1972")]
    answer = server.client.completions.create(
        model="small", prompt=prompts, temperature=0, extra_body={"regex": r"\d{4}-\d{2}-\d{2}"}
    )
    assert [choice.text for choice in answer.choices] == ["1969-07-20", "1972-12-11"]
    ids = [server.post("/tokenize", {"prompt": prompt}).json()["tokens"] for prompt in prompts]
    assert server.text(ids[1], regex=r"\d{4}-\d{2}-\d{2}") == "1972-12-11"
    both = server.complete(ids, regex=r"\d{4}-\d{2}-\d{2}")
    assert [choice["text"] for choice in both["choices"]] == ["1969-07-20", "1972-12-11"]


def test_stop_strings(server: Running) -> None:
    prompt = "Write July 20, 1969 as YYYY-MM-DD.\nAnswer:\n"
    answer = server.complete(prompt, stop="-")["choices"][0]
    assert (answer["text"], answer["finish_reason"]) == ("1969", "stop")
    events = server.events("/v1/completions", {"model": "small", "prompt": prompt, "temperature": 0, "stop": ["07-2"]})
    assert "".join(event["choices"][0]["text"] for event in events) == "1969-"


def test_beams_are_those_of_the_package(server: Running, model: Any) -> None:
    prompt = "Write July 20, 1969 as YYYY-MM-DD.\nAnswer:\n"
    generator = generate.regex(model, "[0-9]{2,6}")
    found: list[list[str]] = []
    several: tuple[dict[str, Any], ...] = (
        {},
        {"length_penalty": -1.0, "early_stopping": True},
        {"sibling_penalty": 5.0},
    )
    for options in several:
        asked = {"trellm": {"beams": {"width": 4, **options}}, "regex": "[0-9]{2,6}"}
        answer = server.complete(prompt, n=4, max_tokens=12, **asked)
        found.append([choice["text"] for choice in answer["choices"]])
        assert found[-1] == generator(prompt, search=Beam(4, n=4, **options), max_tokens=12)
    assert found[0] != found[1] and found[0] != found[2]


def test_models(server: Running) -> None:
    assert [each.id for each in server.client.models.list()] == ["small", "gpt-4o"]
    assert server.client.models.retrieve("gpt-4o").owned_by == "trellm"
    with pytest.raises(openai.NotFoundError):
        server.client.models.retrieve("gpt-5")


def test_errors_reach_the_client_as_openais(server: Running) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        server.client.chat.completions.create(model="small", messages=CHAT, extra_body={"regex": "(a"})
    assert caught.value.code == "invalid_regex"
    assert caught.value.param == "regex"


def test_messages_of_all_roles(server: Running) -> None:
    messages: list[Any] = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": "c"},
        {"role": "user", "content": "d"},
    ]
    plain = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "a\nb"},
        *messages[2:],
    ]
    ids = [server.post("/tokenize", {"messages": each}).json()["tokens"] for each in (messages, plain)]
    assert ids[0] == ids[1]


def test_two_system_messages(server: Running) -> None:
    messages: list[Any] = [{"role": "system", "content": "One."}, {"role": "system", "content": "Two."}, *CHAT]
    answer = server.client.chat.completions.create(model="small", messages=messages, temperature=0, max_tokens=5)
    assert answer.usage is not None and answer.usage.prompt_tokens > 24


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # of openai-python about its own answers
def test_what_openai_python_has_read_is_sent_back(server: Running) -> None:
    """An answer that was parsed, as it is and as a dict, with a call and with text."""
    tool: Any = openai.pydantic_function_tool(Order, name="buy")
    chats = server.client.chat.completions
    said = chats.parse(model="small", messages=ORDER, response_format=Order, temperature=0).choices[0].message
    called = chats.parse(
        model="small", messages=ORDER, tools=[tool], tool_choice="required", temperature=0
    ).choices[0].message  # fmt: skip
    assert said.parsed and called.tool_calls and called.tool_calls[0].function.parsed_arguments
    result: Any = {"role": "tool", "tool_call_id": called.tool_calls[0].id, "content": "done"}
    for answer in (said, called):
        for sent in (answer, answer.model_dump(warnings=False)):
            turns: list[Any] = [*ORDER, sent, *([result] if answer is called else CHAT)]
            again = chats.create(model="small", messages=turns, max_tokens=1, temperature=0)
            assert again.usage is not None and again.usage.prompt_tokens > 40


def test_answers_are_sent_back_as_clients_write_them(server: Running) -> None:
    """openai-python's model_dump() of an answer, and LiteLLM's, which names what it does not know."""
    said = server.client.chat.completions.create(model="small", messages=CHAT, temperature=0).choices[0].message
    plain: list[Any] = [*CHAT, {"role": "assistant", "content": "16:15"}]
    for answer in (said.model_dump(), {**plain[-1], "provider_specific_fields": {"refusal": None}}):
        ids = [server.post("/tokenize", {"messages": each}).json()["tokens"] for each in ([*CHAT, answer], plain)]
        assert ids[0] == ids[1]
    for answer in ({"role": "assistant", "content": None}, {"role": "assistant", "content": None, "refusal": None}):
        nothing = [*CHAT, answer, *CHAT]
        assert server.post("/v1/chat/completions", {"model": "small", "messages": nothing, "max_tokens": 1}).is_success
    strange = {**plain[-1], "provider_specific_fields": {"cache": True}}
    error = server.error("/v1/chat/completions", {"model": "small", "messages": [*CHAT, strange]})
    assert error["pointer"] == "/messages/1/provider_specific_fields/cache"
