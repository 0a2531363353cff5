"""ollama: chats and texts whole and streamed, schemas, tools, models, errors as its own class.

python with_ollama.py http://127.0.0.1:8000/v1
"""

from __future__ import annotations

from typing import Any

import ollama
from report import CITY, DAY, EXPECTED, MODEL, ORDER, TIME, WEATHER, Checks, Order, same

check = Checks("ollama")
client = ollama.Client(host=check.url.removesuffix("/v1"))
GREEDY = {"temperature": 0}


def get_weather(city: str, date: str) -> str:
    """The weather of a city on a day.

    Args:
        city: its name
        date: as YYYY-MM-DD
    """
    return f"{city} {date}"


def asked(content: str) -> list[Any]:
    return [{"role": "user", "content": content}]


@check
def plain() -> None:
    """chat"""
    found = client.chat(MODEL, asked(TIME), options=GREEDY)
    same((found.message.content, found.done_reason, found.eval_count), ("16:15", "stop", 5))


@check
def streamed() -> None:
    """chat, streamed"""
    several = list(client.chat(MODEL, asked(TIME), options=GREEDY, stream=True))
    same("".join(each.message.content or "" for each in several), "16:15")
    same((several[-1].done, several[-1].eval_count), (True, 5))


@check
async def asynchronous() -> None:
    """AsyncClient"""
    found = await ollama.AsyncClient(host=check.url.removesuffix("/v1")).chat(MODEL, asked(TIME), options=GREEDY)
    same(found.message.content, "16:15")


@check
def a_schema() -> None:
    """format= a schema"""
    found = client.chat(MODEL, asked(ORDER), format=Order.model_json_schema(), options=GREEDY)
    same(Order.model_validate_json(found.message.content or ""), EXPECTED)


@check
def called() -> None:
    """a function that is called, and its result sent back"""
    found = client.chat(MODEL, asked(WEATHER), tools=[get_weather], options=GREEDY)
    (call,) = found.message.tool_calls or ()
    same((call.function.name, dict(call.function.arguments)), ("get_weather", {"city": CITY, "date": DAY.isoformat()}))
    result = {"role": "tool", "content": "Rain.", "tool_name": "get_weather"}
    again = client.chat(MODEL, [*asked(WEATHER), found.message, result], tools=[get_weather], options=GREEDY)
    same(again.done, True)


@check
def called_in_a_stream() -> None:
    """a function that is called in a stream"""
    several = list(client.chat(MODEL, asked(WEATHER), tools=[get_weather], options=GREEDY, stream=True))
    calls = [call for each in several for call in each.message.tool_calls or ()]
    same([call.function.name for call in calls], ["get_weather"])


@check
def generated() -> None:
    """generate, whole, streamed and raw"""
    same(client.generate(MODEL, TIME, options=GREEDY).response, "16:15")
    same("".join(each.response for each in client.generate(MODEL, TIME, options=GREEDY, stream=True)), "16:15")
    same(client.generate(MODEL, TIME, raw=True, options=GREEDY | {"num_predict": 4}).done_reason, "length")


@check
def models() -> None:
    """list, show and ps"""
    same(client.list().models[0].model, f"{MODEL}:latest")
    same("completion" in (client.show(MODEL).capabilities or ()), True)
    same(len(client.ps().models), 1)


@check
def errors() -> None:
    """errors as its own class"""
    try:
        client.chat("other", asked(TIME))
    except ollama.ResponseError as error:
        same(error.status_code, 404)
        same("does not exist" in error.error, True)
    else:
        raise AssertionError("an unknown model is not refused")


check.run()
