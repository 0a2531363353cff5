"""pydantic-ai: outputs by tools, natively and by prompt, tools, streams, retries, both APIs.

python with_pydantic_ai.py http://127.0.0.1:8000/v1
"""

from __future__ import annotations

import datetime
from contextlib import suppress
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, NativeOutput, PromptedOutput, ToolOutput, UsageLimits
from pydantic_ai.exceptions import ModelHTTPError, UsageLimitExceeded
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from report import CITY, DAY, EXPECTED, MODEL, ORDER, TIME, WEATHER, Anything, Checks, Order, same

check = Checks("pydantic-ai-slim")
PROVIDER = OpenAIProvider(base_url=check.url, api_key="unused")
SETTINGS: Any = {"temperature": 0.0, "max_tokens": 120}


class Weather(BaseModel):
    """The weather of a city on a day."""

    city: str
    date: datetime.date


def agent(output: Any = str, kind: Any = OpenAIChatModel, **more: Any) -> Any:
    """An agent on the server."""
    return Agent(kind(MODEL, provider=PROVIDER), output_type=output, model_settings=SETTINGS, **more)


@check
async def plain() -> None:
    """run, with a system prompt and instructions"""
    found = await agent(system_prompt="Be brief.").run(TIME)
    same(found.output, "16:15")
    same((await agent(instructions="Be brief.").run(TIME)).output, "16:15")


@check
async def streamed() -> None:
    """run_stream of a text"""
    async with agent().run_stream(TIME) as stream:
        same("".join([each async for each in stream.stream_text(delta=True)]), "16:15")


@check
async def native() -> None:
    """NativeOutput"""
    same((await agent(NativeOutput(Order, strict=True)).run(ORDER)).output, EXPECTED)


@check
async def by_tool() -> None:
    """ToolOutput"""
    same((await agent(ToolOutput(Weather)).run(WEATHER)).output, Weather(city=CITY, date=DAY))
    same(type((await agent(Order).run(ORDER)).output), Order)


@check
async def by_prompt() -> None:
    """PromptedOutput, by json_object"""
    same(bool((await agent(PromptedOutput(Anything)).run(ORDER)).output.model_extra), True)


@check
async def one_of_two() -> None:
    """one of two outputs"""
    same(type((await agent([Order, Weather]).run(WEATHER)).output) in (Order, Weather), True)
    same(type((await agent(NativeOutput([Order, Weather])).run(ORDER)).output) in (Order, Weather), True)


@check
async def streamed_output() -> str:
    """run_stream of a model, by tool and natively"""
    found: list[Any] = []
    for output in (ToolOutput(Order), NativeOutput(Order)):
        async with agent(output).run_stream(ORDER) as stream:
            found = [each async for each in stream.stream_output(debounce_by=None)]
            same(type(await stream.get_output()), Order)
    same(found[-1], EXPECTED)
    return f"{len(found)} states"


@check
async def tools() -> None:
    """a tool is called, and its result goes back"""
    called: list[Any] = []
    made = agent()

    @made.tool_plain
    def get_weather(city: str, date: datetime.date) -> str:
        """The weather of a city on a day, as YYYY-MM-DD."""
        called.append((city, date))
        return "rain"

    with suppress(UsageLimitExceeded):  # how long a model of this size goes on calling is its own
        await made.run(WEATHER, usage_limits=UsageLimits(request_limit=3))
    same(called[0], (CITY, DAY))


@check
async def asked_again() -> None:
    """ModelRetry: the model is asked again"""
    seen: list[Any] = []
    made = agent(ToolOutput(Weather), retries=2)

    @made.output_validator
    def twice(found: Weather) -> Weather:
        seen.append(found)
        if len(seen) == 1:
            raise ModelRetry("say it again")
        return found

    same(type((await made.run(WEATHER)).output), Weather)
    same(len(seen), 2)


@check
async def history() -> None:
    """message_history"""
    made = agent()
    first = await made.run(TIME)
    same(isinstance((await made.run("And now?", message_history=first.all_messages())).output, str), True)


@check
async def responses_api() -> None:
    """OpenAIResponsesModel: text, NativeOutput, ToolOutput, streamed"""
    same((await agent(kind=OpenAIResponsesModel).run(TIME)).output, "16:15")
    same((await agent(NativeOutput(Order), OpenAIResponsesModel).run(ORDER)).output, EXPECTED)
    same((await agent(ToolOutput(Weather), OpenAIResponsesModel).run(WEATHER)).output, Weather(city=CITY, date=DAY))
    async with agent(kind=OpenAIResponsesModel).run_stream(TIME) as stream:
        same(await stream.get_output(), "16:15")


@check
async def responses_tools() -> None:
    """OpenAIResponsesModel: a tool is called, and its result goes back"""
    made = agent(kind=OpenAIResponsesModel)
    seen: list[Any] = []

    @made.tool_plain
    def get_weather(city: str, date: datetime.date) -> str:
        """The weather of a city on a day, as YYYY-MM-DD."""
        return "rain"

    async with made.iter(WEATHER, usage_limits=UsageLimits(request_limit=3)) as run:
        try:
            async for node in run:
                response = getattr(node, "model_response", None)
                if response is not None:
                    seen += [part for part in response.parts if isinstance(part, ToolCallPart)]
        except UsageLimitExceeded:
            pass  # as above
    same(seen[0].args_as_dict(), {"city": CITY, "date": str(DAY)})


@check
async def errors() -> None:
    """errors: ModelHTTPError with status 400 and the body"""
    made = Agent(OpenAIChatModel(MODEL, provider=PROVIDER), model_settings={"extra_body": {"regex": "(a"}})
    try:
        await made.run(TIME)
    except ModelHTTPError as error:
        same(error.status_code, 400)
        same("invalid_regex" in str(error.body), True)
        return
    raise AssertionError("no error")


check.run()
