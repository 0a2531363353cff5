"""The OpenAI Agents SDK: both APIs, tools, output types, streams, handoffs.

python with_agents.py http://127.0.0.1:8000/v1
"""

from __future__ import annotations

import datetime
from contextlib import suppress
from typing import Any

from agents import (
    Agent,
    AgentOutputSchema,
    MaxTurnsExceeded,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from agents.agent import StopAtTools
from openai import AsyncOpenAI
from report import CITY, DAY, EXPECTED, MODEL, ORDER, TIME, WEATHER, Checks, Order, same

check = Checks("openai-agents")
set_tracing_disabled(True)
CALLED: list[tuple[str, datetime.date]] = []


@function_tool
def get_weather(city: str, date: datetime.date) -> str:
    """The weather of a city on a day, as YYYY-MM-DD."""
    CALLED.append((city, date))
    return f"rain in {city}"


def agent(kind: Any, name: str = "assistant", **more: Any) -> Agent[Any]:
    """An agent on the server."""
    model = kind(MODEL, AsyncOpenAI(base_url=check.url, api_key="unused", max_retries=0))
    return Agent(name=name, model=model, model_settings=ModelSettings(temperature=0.0, max_tokens=120), **more)


async def texts(kind: Any) -> None:
    same((await Runner.run(agent(kind), TIME)).final_output, "16:15")
    same((await Runner.run(agent(kind, instructions="Be brief."), TIME)).final_output, "16:15")


async def outputs(kind: Any) -> None:
    same((await Runner.run(agent(kind, output_type=Order), ORDER)).final_output, EXPECTED)
    loose = AgentOutputSchema(Order, strict_json_schema=False)
    same((await Runner.run(agent(kind, output_type=loose), ORDER)).final_output, EXPECTED)


async def tools(kind: Any) -> None:
    CALLED.clear()
    made = agent(kind, tools=[get_weather], tool_use_behavior=StopAtTools(stop_at_tool_names=["get_weather"]))
    same((await Runner.run(made, WEATHER)).final_output, f"rain in {CITY}")
    same(CALLED, [(CITY, DAY)])
    with suppress(MaxTurnsExceeded):  # how long a model of this size goes on calling is its own
        await Runner.run(agent(kind, tools=[get_weather]), WEATHER, max_turns=2)
    same(len(CALLED) > 1, True)


async def streams(kind: Any) -> None:
    CALLED.clear()
    stream = Runner.run_streamed(agent(kind), TIME)
    kinds = [event.type async for event in stream.stream_events()]
    same("raw_response_event" in kinds, True)
    same(stream.final_output, "16:15")
    stop = StopAtTools(stop_at_tool_names=["get_weather"])
    stream = Runner.run_streamed(agent(kind, tools=[get_weather], tool_use_behavior=stop), WEATHER)
    async for _ in stream.stream_events():
        pass
    same((stream.final_output, CALLED), (f"rain in {CITY}", [(CITY, DAY)]))


async def handoffs(kind: Any) -> None:
    other = agent(kind, "weather_expert", handoff_description="Knows the weather.")
    made = agent(kind, handoffs=[other])
    made.model_settings.tool_choice = "required"
    same((await Runner.run(made, TIME, max_turns=4)).last_agent.name, "weather_expert")


@check
async def chat_texts() -> None:
    """chat: a text, with instructions and without"""
    await texts(OpenAIChatCompletionsModel)


@check
async def chat_outputs() -> None:
    """chat: output_type, strict or not"""
    await outputs(OpenAIChatCompletionsModel)


@check
async def chat_tools() -> None:
    """chat: a tool is called, and its result goes back"""
    await tools(OpenAIChatCompletionsModel)


@check
async def chat_streams() -> None:
    """chat: run_streamed, text and tool"""
    await streams(OpenAIChatCompletionsModel)


@check
async def chat_handoffs() -> None:
    """chat: a handoff"""
    await handoffs(OpenAIChatCompletionsModel)


@check
async def responses_texts() -> None:
    """responses: a text, with instructions and without"""
    await texts(OpenAIResponsesModel)


@check
async def responses_outputs() -> None:
    """responses: output_type, strict or not"""
    await outputs(OpenAIResponsesModel)


@check
async def responses_tools() -> None:
    """responses: a tool is called, and its result goes back"""
    await tools(OpenAIResponsesModel)


@check
async def responses_streams() -> None:
    """responses: run_streamed, text and tool"""
    await streams(OpenAIResponsesModel)


@check
async def responses_handoffs() -> None:
    """responses: a handoff"""
    await handoffs(OpenAIResponsesModel)


check.run()
