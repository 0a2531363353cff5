"""LiteLLM: chats, texts, responses, structured output, tools, a router, errors as its own classes.

python with_litellm.py http://127.0.0.1:8000/v1
"""

from __future__ import annotations

import json
from typing import Any

import litellm
from report import CITY, DAY, EXPECTED, MODEL, ORDER, TIME, WEATHER, Checks, Order, same

check = Checks("litellm")
litellm.telemetry = False


TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a city on a day.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "date": {"type": "string", "format": "date"}},
                "required": ["city", "date"],
            },
        },
    }
]
SERVER: dict[str, Any] = {"model": f"openai/{MODEL}", "api_base": check.url, "api_key": "unused", "temperature": 0}


def asked(content: str) -> list[Any]:
    return [{"role": "user", "content": content}]


@check
def plain() -> None:
    """completion"""
    found: Any = litellm.completion(**SERVER, messages=asked(TIME))
    same(found.choices[0].message.content, "16:15")
    same(found.usage.total_tokens, found.usage.prompt_tokens + found.usage.completion_tokens)


@check
def streamed() -> None:
    """completion, streamed, with usage, put together by stream_chunk_builder"""
    chunks: Any = list(
        litellm.completion(**SERVER, messages=asked(TIME), stream=True, stream_options={"include_usage": True})
    )
    whole: Any = litellm.stream_chunk_builder(chunks)
    same(whole.choices[0].message.content, "16:15")
    same(whole.usage.completion_tokens, 5)


@check
async def asynchronous() -> None:
    """acompletion, whole and streamed"""
    found: Any = await litellm.acompletion(**SERVER, messages=asked(TIME))
    same(found.choices[0].message.content, "16:15")
    stream: Any = await litellm.acompletion(**SERVER, messages=asked(TIME), stream=True)
    same("".join([chunk.choices[0].delta.content or "" async for chunk in stream]), "16:15")


@check
def model_class() -> None:
    """response_format of a pydantic class"""
    found: Any = litellm.completion(**SERVER, messages=asked(ORDER), response_format=Order)
    same(Order.model_validate_json(found.choices[0].message.content), EXPECTED)


@check
def formats() -> None:
    """response_format json_object and json_schema"""
    schema = {"name": "order", "schema": Order.model_json_schema(), "strict": True}
    for form in ({"type": "json_object"}, {"type": "json_schema", "json_schema": schema}):
        found: Any = litellm.completion(**SERVER, messages=asked(ORDER), response_format=form, max_tokens=80)
        same(isinstance(json.loads(found.choices[0].message.content), dict), True)


@check
def tools() -> None:
    """tools, every tool_choice"""
    for choice in ("auto", "required", {"type": "function", "function": {"name": "get_weather"}}):
        found: Any = litellm.completion(**SERVER, messages=asked(WEATHER), tools=TOOLS, tool_choice=choice)
        call = found.choices[0].message.tool_calls[0].function
        same((call.name, json.loads(call.arguments)), ("get_weather", {"city": CITY, "date": str(DAY)}))
        same(found.choices[0].finish_reason, "tool_calls")


@check
def streamed_tools() -> None:
    """tools, streamed"""
    chunks: Any = list(litellm.completion(**SERVER, messages=asked(WEATHER), tools=TOOLS, stream=True))
    call: Any = litellm.stream_chunk_builder(chunks).choices[0].message.tool_calls[0].function
    same((call.name, json.loads(call.arguments)), ("get_weather", {"city": CITY, "date": str(DAY)}))


@check
def behind_a_call() -> None:
    """a call and its result sent back"""
    first: Any = litellm.completion(**SERVER, messages=asked(WEATHER), tools=TOOLS)
    said = first.choices[0].message
    result = {"role": "tool", "tool_call_id": said.tool_calls[0].id, "content": "rain"}
    messages = [*asked(WEATHER), said, result]
    found: Any = litellm.completion(**SERVER, messages=messages, tools=TOOLS, max_tokens=20)
    same(found.choices[0].finish_reason in ("stop", "length", "tool_calls"), True)


@check
def several() -> None:
    """n, seed, logprobs, top_logprobs"""
    found: Any = litellm.completion(
        **SERVER | {"temperature": 1.0}, messages=asked(TIME), n=2, seed=3, logprobs=True, top_logprobs=2, max_tokens=8
    )
    same(len(found.choices), 2)
    same(len(found.choices[0].logprobs.content[0].top_logprobs), 2)


@check
def texts() -> None:
    """text_completion, with a regex in extra_body"""
    found: Any = litellm.text_completion(
        **SERVER | {"model": f"text-completion-openai/{MODEL}"},
        prompt="Write July 20, 1969 as YYYY-MM-DD.\nAnswer:\n",
        extra_body={"regex": r"\d{4}-\d{2}-\d{2}"},
    )
    same(found.choices[0].text, "1969-07-20")


@check
def responses() -> None:
    """responses, whole and streamed"""
    found: Any = litellm.responses(**SERVER, input=TIME)
    same(found.output[0].content[0].text, "16:15")
    events: Any = litellm.responses(**SERVER, input=TIME, stream=True)
    kinds = [str(getattr(event.type, "value", event.type)) for event in events]
    same((kinds[0], kinds[-1]), ("response.created", "response.completed"))


@check
def router() -> None:
    """Router"""
    made = litellm.Router([{"model_name": "a", "litellm_params": SERVER}])
    found: Any = made.completion(model="a", messages=asked(TIME))
    same(found.choices[0].message.content, "16:15")


@check
def errors() -> None:
    """errors: BadRequestError, ContextWindowExceededError, NotFoundError or BadRequestError"""
    for expected, more in (
        (litellm.BadRequestError, {"extra_body": {"regex": "(a"}}),
        (litellm.ContextWindowExceededError, {"messages": asked("word " * 3000)}),
        ((litellm.NotFoundError, litellm.BadRequestError), {"model": "openai/other"}),
    ):
        try:
            litellm.completion(**{**SERVER, "messages": asked(TIME)} | more)
        except expected:
            continue
        raise AssertionError(f"no error with {list(more)}")


check.run()
