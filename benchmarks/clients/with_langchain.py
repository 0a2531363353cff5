"""LangChain's ChatOpenAI: structured output in its three methods, tools, agents, streams, both APIs.

python with_langchain.py http://127.0.0.1:8000/v1
"""

from __future__ import annotations

import datetime
from typing import Any

from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI
from pydantic import SecretStr
from report import CITY, DAY, EXPECTED, MODEL, ORDER, TIME, WEATHER, Checks, Order, same

check = Checks("langchain-openai")


CALL = {"city": CITY, "date": str(DAY)}


@tool
def get_weather(city: str, date: datetime.date) -> str:
    """The weather of a city on a day, as YYYY-MM-DD."""
    return f"rain in {city} on {date}"


def chat(**more: Any) -> ChatOpenAI:
    """A chat model on the server."""
    settings = {"base_url": check.url, "api_key": SecretStr("unused"), "temperature": 0, "max_retries": 0} | more
    return ChatOpenAI(model=MODEL, **settings)


@check
def plain() -> None:
    """invoke"""
    found = chat().invoke([SystemMessage("Be brief."), HumanMessage(TIME)])
    same(found.content, "16:15")
    same(found.response_metadata["finish_reason"], "stop")
    same(found.usage_metadata is not None and found.usage_metadata["output_tokens"] > 3, True)


@check
def streamed() -> None:
    """stream, with usage"""
    found = list(chat(stream_usage=True).stream(TIME))
    same("".join(str(each.content) for each in found), "16:15")
    same(any(each.usage_metadata for each in found), True)


@check
def batch() -> None:
    """batch of three"""
    same([each.content for each in chat().batch([TIME] * 3)], ["16:15"] * 3)


@check
async def asynchronous() -> None:
    """ainvoke and astream"""
    same((await chat().ainvoke(TIME)).content, "16:15")
    same("".join([str(each.content) async for each in chat().astream(TIME)]), "16:15")


@check
def json_schema() -> None:
    """with_structured_output, json_schema"""
    same(chat().with_structured_output(Order, method="json_schema").invoke(ORDER), EXPECTED)


@check
def json_schema_strict() -> None:
    """with_structured_output, json_schema, strict, include_raw"""
    made = chat().with_structured_output(Order, method="json_schema", strict=True, include_raw=True)
    found = made.invoke(ORDER)
    assert isinstance(found, dict)
    same(found["parsed"], EXPECTED)
    same(found["parsing_error"], None)


@check
def json_schema_of_a_dictionary() -> None:
    """with_structured_output of a JSON Schema in place of a class"""
    schema = Order.model_json_schema()
    same(chat().with_structured_output(schema, method="json_schema").invoke(ORDER), EXPECTED.model_dump())


@check
def function_calling() -> None:
    """with_structured_output, function_calling"""
    same(type(chat().with_structured_output(Order, method="function_calling").invoke(ORDER)), Order)


@check
def json_mode() -> None:
    """with_structured_output, json_mode"""
    found = chat().with_structured_output(None, method="json_mode").invoke(ORDER)
    same(isinstance(found, dict) and bool(found), True)


@check
def structured_streams() -> None:
    """with_structured_output, streamed"""
    found = list(chat().with_structured_output(Order.model_json_schema(), method="json_schema").stream(ORDER))
    same(found[-1], EXPECTED.model_dump())


@check
def tools() -> None:
    """bind_tools"""
    found = chat().bind_tools([get_weather]).invoke(WEATHER)
    assert isinstance(found, AIMessage)
    same([(call["name"], call["args"]) for call in found.tool_calls], [("get_weather", CALL)])


@check
def tool_choices() -> None:
    """bind_tools with tool_choice any, a name, auto, none; strict; one at a time"""
    for choice in ("any", "get_weather", "required"):
        found: Any = chat().bind_tools([get_weather], tool_choice=choice, strict=True).invoke(WEATHER)
        same(found.tool_calls[0]["args"], CALL)
    same(chat(max_tokens=20).bind_tools([get_weather], tool_choice="none").invoke(WEATHER).tool_calls, [])
    found = chat().bind_tools([get_weather], parallel_tool_calls=False).invoke(WEATHER)
    same(len(found.tool_calls), 1)


@check
def streamed_tools() -> None:
    """bind_tools, streamed"""
    total: Any = None
    for each in chat().bind_tools([get_weather]).stream(WEATHER):
        total = each if total is None else total + each
    same(total.tool_calls[0]["args"], CALL)


@check
def behind_a_call() -> None:
    """a ToolMessage sent back"""
    model = chat(max_tokens=40).bind_tools([get_weather])
    said: Any = model.invoke(WEATHER)
    result = get_weather.invoke(said.tool_calls[0])
    same(isinstance(result, ToolMessage), True)
    same(isinstance(model.invoke([HumanMessage(WEATHER), said, result]), AIMessage), True)


@check
def agent() -> str:
    """create_agent with a tool"""
    made = create_agent(chat(max_tokens=60), [get_weather])
    steps = made.stream({"messages": [HumanMessage(WEATHER)]}, {"recursion_limit": 25}, stream_mode="values")
    seen: list[Any] = []
    for state in steps:
        seen = state["messages"]
        if len(seen) > 3:
            break
    same([type(each) for each in seen[:4]], [HumanMessage, AIMessage, ToolMessage, AIMessage])
    return "the call, its result and the next turn; how long it goes on is the small model's"


@check
def agent_with_a_format() -> None:
    """create_agent with ProviderStrategy"""
    made = create_agent(chat(), [], response_format=ProviderStrategy(Order))
    same(made.invoke({"messages": [HumanMessage(ORDER)]})["structured_response"], EXPECTED)


@check
def logprobs() -> None:
    """logprobs and top_logprobs"""
    found = chat(logprobs=True, top_logprobs=2).invoke(TIME).response_metadata["logprobs"]["content"]
    same("".join(each["token"] for each in found), "16:15")
    same({len(each["top_logprobs"]) for each in found}, {2})


@check
def texts() -> None:
    """the completions API with a regex in extra_body"""
    made = OpenAI(
        model=MODEL, base_url=check.url, api_key=SecretStr("unused"), temperature=0,
        extra_body={"regex": r"\d{4}-\d{2}-\d{2}"},
    )  # fmt: skip
    same(made.invoke("Write July 20, 1969 as YYYY-MM-DD.\nAnswer:\n"), "1969-07-20")


@check
def responses_api() -> None:
    """the responses API: text, streams, structured output, tools"""
    model = chat(use_responses_api=True)
    same(model.invoke(TIME).text, "16:15")
    same("".join(each.text for each in model.stream(TIME)), "16:15")
    same(model.with_structured_output(Order, method="json_schema").invoke(ORDER), EXPECTED)
    found: Any = model.bind_tools([get_weather]).invoke(WEATHER)
    same(found.tool_calls[0]["args"], CALL)
    result = get_weather.invoke(found.tool_calls[0])
    again = chat(use_responses_api=True, max_tokens=40).bind_tools([get_weather])
    same(isinstance(again.invoke([HumanMessage(WEATHER), found, result]), AIMessage), True)


check.run()
