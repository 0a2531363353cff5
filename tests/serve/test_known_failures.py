"""What other servers are known to get wrong: seams, cuts, characters in pieces, dropped constraints, crowds."""

import asyncio
import copy
import json
import re
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import jsonschema
import pytest
from trellm import models
from trellm.serve import tool_calls

from .conftest import HANGS, SETTINGS, Running, running
from .support import listen, make_guides_by, work_without_end
from .test_calling import ASK, SCHEMAS, TOOLS

CHAT, TEXT, RESPONSE = "/v1/chat/completions", "/v1/completions", "/v1/responses"
ODD = "é😀ß漢👩‍🚀"
ANSWER = {
    "type": "object",
    "properties": {"rain": {"enum": ["yes", "no"]}},
    "required": ["rain"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "a", "schema": ANSWER}}


def streamed(server: Running, path: str, body: dict[str, Any]) -> tuple[list[str], list[str], str]:
    """The pieces of content and of arguments in the events of a chat, and why it ends."""
    choices = [event["choices"][0] for event in server.events(path, body)]
    deltas = [choice["delta"] for choice in choices]
    arguments = [call["function"]["arguments"] for delta in deltas for call in delta.get("tool_calls", ())]
    return [delta["content"] for delta in deltas if delta.get("content")], arguments, choices[-1]["finish_reason"]


def test_characters_are_not_split_over_events(server: Running) -> None:
    """Content, arguments of a call and a response's text, of characters that are several tokens each."""
    asked: dict[str, Any] = {"model": "small", "messages": ASK, "temperature": 2.0, "seed": 3}
    pieces, _, _ = streamed(server, CHAT, asked | {"regex": f"[{ODD}]{{12}}"})
    assert re.fullmatch(f"[{ODD}]{{12}}", "".join(pieces)) and len(pieces) > 4
    parameters = {"type": "object", "properties": {"to": {"const": ODD}}, "required": ["to"]}
    tools = [{"type": "function", "function": {"name": "send", "parameters": parameters}}]
    _, arguments, finish = streamed(server, CHAT, asked | {"tools": tools, "tool_choice": "required"})
    assert finish == "tool_calls" and json.loads("".join(arguments))["to"] == ODD and len(arguments) > 4
    body = {"model": "small", "input": "Say.", "regex": f"[{ODD}]{{12}}", "stream": True}
    with server.http.stream("POST", RESPONSE, json=body) as answer:
        events = [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: ")]
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == events[-1]["response"]["output"][0]["content"][0]["text"]
    assert re.fullmatch(f"[{ODD}]{{12}}", "".join(deltas)) and len(deltas) > 4


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_call_is_whole_or_there_is_none(server: Running, is_streamed: bool) -> None:
    """Whatever the budget, for a model that may call and at a temperature that makes nonsense."""
    for budget in (1, 4, 9, 16, 25, 40):
        body: dict[str, Any] = {"model": "small", "messages": ASK, "tools": TOOLS, "max_tokens": budget}
        for more in ({"temperature": 0}, {"temperature": 1.5, "seed": budget}):
            if is_streamed:
                _, arguments, finish = streamed(server, CHAT, body | more)
            else:
                choice = server.post(CHAT, body | more).json()["choices"][0]
                finish = choice["finish_reason"]
                arguments = [call["function"]["arguments"] for call in choice["message"].get("tool_calls", ())][:1]
            assert (finish == "tool_calls") == bool(arguments), (budget, arguments)
            if arguments:
                found = json.loads("".join(arguments))
                assert any(set(found) == set(schema["properties"]) for schema in SCHEMAS.values())


@pytest.fixture(scope="module")
def thinking() -> Iterator[Running]:
    """A server whose model's template says that it has learned to think, in Hermes' form."""
    model: Any = models.small()
    model.tokenizer = copy.deepcopy(model.tokenizer)
    model.tokenizer.chat_template += "{# <think></think><tool_call> #}"
    form = tool_calls.ToolCallFormat.of(model)
    assert form.name == "hermes" and form.thinks
    yield from running(model, SETTINGS)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_thinking_ends_where_the_grammar_begins(thinking: Running, seed: int) -> None:
    """What is thought is free and apart, though it may look like an answer; the answer is the schema's, all of it."""
    ours = {"thinking": "on", "thinking_budget": 6}
    body = {"model": "small", "messages": ASK, "response_format": FORMAT, "trellm": ours, "temperature": 1.5}
    body |= {"seed": seed, "max_tokens": 60}
    message = thinking.post(CHAT, body).json()["choices"][0]["message"]
    jsonschema.validate(json.loads(message["content"]), ANSWER)
    assert "<think>" not in message["content"] and message["reasoning_content"] is not None
    deltas = [event["choices"][0]["delta"] for event in thinking.events(CHAT, body)]
    thoughts = [number for number, delta in enumerate(deltas) if delta.get("reasoning_content")]
    answers = [number for number, delta in enumerate(deltas) if delta.get("content")]
    assert not thoughts or thoughts[-1] < answers[0]
    assert "".join(deltas[number]["content"] for number in answers) == message["content"]
    assert "".join(deltas[number]["reasoning_content"] for number in thoughts) == message["reasoning_content"]


@pytest.mark.parametrize(
    "asked",
    [
        {"regex": "[xyz]{3}"},
        {"structured_outputs": {"regex": "[xyz]{3}"}},
        {"structured_outputs": {"grammar": 'root ::= [x-z] [x-z] [x-z]'}},
        {"ebnf": 'root ::= [x-z] [x-z] [x-z]'},
        {"guided_choice": ["xxx", "zyx"]},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": ["xyz"]}}}},
    ],
    ids=lambda asked: "-".join(asked),
)  # fmt: skip
def test_no_constraint_is_dropped(server: Running, asked: dict[str, Any]) -> None:
    """In chats as in texts, streamed, of several choices, with tools that are not to be called, and without sense."""
    body: dict[str, Any] = {"model": "small", "messages": ASK, "max_tokens": 12, "temperature": 2.0, **asked}
    texts = ["".join(streamed(server, CHAT, body)[0])]
    for more in ({"n": 3}, {"tools": TOOLS, "tool_choice": "none"}, {"tools": []}, {"stop": None}):
        choices = server.post(CHAT, body | more).json()["choices"]
        texts += [choice["message"]["content"] for choice in choices]
    assert len(texts) == 7
    assert all(re.fullmatch('"?[xyz]{3}"?', text) for text in texts), texts


def test_a_compilation_that_never_ends_takes_nobody_with_it(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a 400 when its time is over, and meanwhile others are answered."""
    has_begun = threading.Event()

    def forever(*given: Any, **options: Any) -> None:
        has_begun.set()
        work_without_end()

    make_guides_by(monkeypatch, RegexGuide=forever)
    body = {"model": "small", "prompt": "a", "regex": "[xyz]{4}q", "max_tokens": 9}
    with ThreadPoolExecutor(1) as threads:
        late = threads.submit(httpx.post, f"{server.url}{TEXT}", json=body, timeout=HANGS)
        assert has_begun.wait(HANGS)
        assert server.text("a", max_tokens=2) and not late.done()
        for work in server.service.compiler._compilations.values():
            work._end()  # which its timer would call
        assert late.result().status_code == 400
    assert late.result().json()["error"]["code"] == "constraint_too_large"


def test_json_of_a_crowd_is_valid(server: Running) -> None:
    """As many requests as there is room for, of several schemas, half of them streamed, some without sense."""
    schemas = [
        {"type": "object", "properties": {f"a{number}": kind}, "required": [f"a{number}"]}
        for number, kind in enumerate([{"type": "boolean"}, {"enum": [1, "é"]}, {"type": "string", "maxLength": 4}])
    ]

    async def ask(client: httpx.AsyncClient, number: int) -> str:
        schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": schemas[number % 3]}}
        body = {"model": "small", "prompt": f"{number}: ", "response_format": schema, "max_tokens": 40}
        body |= {"temperature": number % 4, "stream": number % 2 == 1}
        answer = await client.post(TEXT, json=body)
        assert answer.status_code == 200, answer.text
        lines = answer.text.split("\n\n")[:-2] if number % 2 else [f"data: {answer.text}"]
        return "".join(json.loads(line.removeprefix("data: "))["choices"][0]["text"] for line in lines)

    async def crowd() -> list[str]:
        async with httpx.AsyncClient(base_url=server.url, timeout=120, limits=httpx.Limits()) as client:
            return await asyncio.gather(*(ask(client, number) for number in range(48)))

    for number, text in enumerate(asyncio.run(crowd())):
        jsonschema.validate(json.loads(text), schemas[number % 3])


def test_small_packets_go_at_once() -> None:
    """Else the body of an answer, which is sent behind its head, waits 40 ms for the client to acknowledge that."""

    async def accepted() -> int:
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            found.set_result(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listening = listen("127.0.0.1", 0)
        async with await asyncio.start_server(connected, sock=listening):
            with socket.create_connection(listening.getsockname()):
                return await found

    assert asyncio.run(accepted()) == 1
