"""anthropic: messages whole and streamed, tools and their results, schemas, tokens, errors as its own classes.

python with_anthropic.py http://127.0.0.1:8000/v1
"""

from __future__ import annotations

from typing import Any

import anthropic
from report import CITY, DAY, EXPECTED, MODEL, ORDER, TIME, WEATHER, Checks, Order, same

check = Checks("anthropic")
client = anthropic.Anthropic(base_url=check.url.removesuffix("/v1"), api_key="unused", max_retries=0)
TOOL: Any = {
    "name": "get_weather",
    "description": "The weather of a city on a day.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "date": {"type": "string", "format": "date"}},
        "required": ["city", "date"],
    },
}
CALLED = {"city": CITY, "date": DAY.isoformat()}
COMMON: dict[str, Any] = {"model": MODEL, "max_tokens": 200, "extra_body": {"temperature": 0}}


def asked(content: str) -> list[Any]:
    return [{"role": "user", "content": content}]


@check
def plain() -> None:
    """messages.create"""
    found = client.messages.create(**COMMON, messages=asked(TIME))
    same(found.content[0].text, "16:15")
    same((found.stop_reason, found.usage.output_tokens), ("end_turn", 5))


@check
def streamed() -> None:
    """messages.stream, put together by the client"""
    with client.messages.stream(**COMMON, messages=asked(TIME)) as stream:
        same("".join(stream.text_stream), "16:15")
        found = stream.get_final_message()
    same((found.content[0].text, found.stop_reason, found.usage.output_tokens), ("16:15", "end_turn", 5))


@check
async def asynchronous() -> None:
    """AsyncAnthropic"""
    other = anthropic.AsyncAnthropic(base_url=check.url.removesuffix("/v1"), api_key="unused", max_retries=0)
    found = await other.messages.create(**COMMON, messages=asked(TIME))
    same(found.content[0].text, "16:15")


@check
def called() -> None:
    """a tool that is called, and its result sent back"""
    found = client.messages.create(**COMMON, messages=asked(WEATHER), tools=[TOOL], tool_choice={"type": "any"})
    (call,) = found.content
    same((found.stop_reason, call.type, call.name, call.input), ("tool_use", "tool_use", "get_weather", CALLED))
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "Rain."}
    turns = [*asked(WEATHER), {"role": "assistant", "content": found.content}, {"role": "user", "content": [result]}]
    again = client.messages.create(**COMMON, messages=turns, tools=[TOOL], tool_choice={"type": "none"})
    same(again.content[0].type, "text")


@check
def called_in_a_stream() -> None:
    """a tool that is called in a stream"""
    with client.messages.stream(
        **COMMON, messages=asked(WEATHER), tools=[TOOL], tool_choice={"type": "tool", "name": "get_weather"}
    ) as stream:
        found = stream.get_final_message()
    same((found.content[0].name, found.content[0].input), ("get_weather", CALLED))


@check
def a_schema() -> None:
    """a schema, as output_config"""
    form = {"type": "json_schema", "schema": Order.model_json_schema()}
    more = COMMON | {"extra_body": {"temperature": 0, "output_config": {"format": form}}}
    found = client.messages.create(**more, messages=asked(ORDER))
    same(Order.model_validate_json(found.content[0].text), EXPECTED)


@check
def counted() -> None:
    """messages.count_tokens"""
    found = client.messages.count_tokens(model=MODEL, messages=asked(TIME))
    usage = client.messages.create(**COMMON, messages=asked(TIME)).usage
    same(found.input_tokens, usage.input_tokens + (usage.cache_read_input_tokens or 0))


@check
def stopped() -> None:
    """stop_sequences"""
    found = client.messages.create(**COMMON, messages=asked(TIME), stop_sequences=["zzz", ":"])
    same((found.content[0].text, found.stop_reason, found.stop_sequence), ("16", "stop_sequence", ":"))


@check
def errors() -> None:
    """errors as its own classes"""
    try:
        client.messages.create(**COMMON | {"model": "other"}, messages=asked(TIME))
    except anthropic.NotFoundError as error:
        same(error.body["error"]["type"], "not_found_error")
    else:
        raise AssertionError("an unknown model is not refused")
    try:
        client.messages.create(**COMMON, messages=asked(TIME), tools=[TOOL | {"input_schema": {"type": "nothing"}}])
    except anthropic.BadRequestError as error:
        same(error.body["type"], "error")
    else:
        raise AssertionError("a wrong schema is not refused")


check.run()
