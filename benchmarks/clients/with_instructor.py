"""Instructor: every mode that OpenAI's API has, streams, lists, validators that ask again.

python with_instructor.py http://127.0.0.1:8000/v1
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

import instructor
from instructor import Mode
from openai import AsyncOpenAI, OpenAI
from pydantic import AfterValidator, BaseModel, Field
from report import CITY, DAY, EXPECTED, MODEL, ORDER, WEATHER, Anything, Checks, Order, same

check = Checks("instructor")
PLAIN = OpenAI(base_url=check.url, api_key="unused", max_retries=0)


class Weather(BaseModel):
    """The weather of a city on a day."""

    city: str
    date: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$")


class Ticket(BaseModel):
    """Of many kinds of fields."""

    topic: Literal["shopping", "travel", "weather"]
    buyer: str | None
    items: list[str] = Field(max_length=3)
    order: Order


def ask(mode: Mode, shape: Any, content: str = ORDER, **more: Any) -> Any:
    """What one request in a mode comes to."""
    client = instructor.from_openai(PLAIN, mode=mode)
    messages: Any = [{"role": "user", "content": content}]
    return client.chat.completions.create(
        model=MODEL, messages=messages, response_model=shape, **{"max_retries": 0, "temperature": 0} | more
    )


@check
def json_schema() -> None:
    """JSON_SCHEMA"""
    same(ask(Mode.JSON_SCHEMA, Order), EXPECTED)


@check
def json_object() -> None:
    """JSON: any object, of a schema that stands in the prompt"""
    found = ask(Mode.JSON, Anything, max_tokens=200)
    same(isinstance(found, Anything), True)
    same(bool(found.model_extra), True)


@check
def tools() -> None:
    """TOOLS"""
    same(isinstance(ask(Mode.TOOLS, Order), Order), True)
    same(ask(Mode.TOOLS, Weather, WEATHER), Weather(city=CITY, date=str(DAY)))


@check
def tools_strict() -> None:
    """TOOLS_STRICT"""
    same(isinstance(ask(Mode.TOOLS_STRICT, Order), Order), True)


@check
def parallel_tools() -> None:
    """PARALLEL_TOOLS"""
    found = list(ask(Mode.PARALLEL_TOOLS, Iterable[Weather | Order], WEATHER))
    same([isinstance(each, Weather | Order) for each in found], [True] * max(1, len(found)))


@check
def responses_tools() -> None:
    """RESPONSES_TOOLS"""
    same(ask(Mode.RESPONSES_TOOLS, Weather, WEATHER), Weather(city=CITY, date=str(DAY)))


@check
def many_kinds_of_fields() -> None:
    """JSON_SCHEMA of Literal, optional, list and nested fields"""
    same(isinstance(ask(Mode.JSON_SCHEMA, Ticket, temperature=2.0, max_tokens=120), Ticket), True)


def partials(mode: Mode, shape: type[BaseModel], content: str) -> list[Any]:
    """What `create_partial` streams."""
    messages: Any = [{"role": "user", "content": content}]
    return list(instructor.from_openai(PLAIN, mode=mode).chat.completions.create_partial(
        model=MODEL, messages=messages, response_model=shape, temperature=0
    ))  # fmt: skip


@check
def partial() -> str:
    """create_partial, streamed"""
    found = partials(Mode.JSON_SCHEMA, Order, ORDER)
    same(found[-1].model_dump(), EXPECTED.model_dump())
    same(len(found) > 1, True)  # sixty a second are told, and the small model writes this in a few of these
    return f"{len(found)} states"


@check
def partial_tools() -> None:
    """create_partial by TOOLS, streamed"""
    found = partials(Mode.TOOLS, Weather, WEATHER)
    same(found[-1].model_dump(), {"city": CITY, "date": str(DAY)})


@check
def iterable() -> str:
    """create_iterable, streamed"""
    client = instructor.from_openai(PLAIN, mode=Mode.JSON_SCHEMA)
    messages: Any = [{"role": "user", "content": WEATHER}]
    found = list(client.chat.completions.create_iterable(
        model=MODEL, messages=messages, response_model=Weather, temperature=0, max_tokens=200
    ))  # fmt: skip
    same([isinstance(each, Weather) for each in found], [True] * max(1, len(found)))
    return f"{len(found)} items"


@check
def validators() -> str:
    """a validator that refuses, asked again with its error"""
    seen: list[str] = []

    def once(value: str) -> str:
        seen.append(value)
        if len(seen) == 1:
            raise ValueError("say it again")
        return value

    class Strict(BaseModel):
        city: Annotated[str, AfterValidator(once)]
        date: str

    for mode in (Mode.TOOLS, Mode.JSON_SCHEMA):
        seen.clear()
        ask(mode, Strict, WEATHER, max_retries=2)
        same(len(seen), 2)
    return "TOOLS and JSON_SCHEMA"


@check
def with_completion() -> None:
    """create_with_completion: the raw answer with its usage"""
    client = instructor.from_openai(PLAIN, mode=Mode.TOOLS)
    messages: Any = [{"role": "user", "content": WEATHER}]
    found, raw = client.chat.completions.create_with_completion(
        model=MODEL, messages=messages, response_model=Weather, temperature=0
    )
    same(found, Weather(city=CITY, date=str(DAY)))
    same(raw.usage.completion_tokens > 5, True)


@check
async def asynchronous() -> None:
    """AsyncOpenAI"""
    async with AsyncOpenAI(base_url=check.url, api_key="unused") as plain:
        client = instructor.from_openai(plain, mode=Mode.JSON_SCHEMA)
        messages: Any = [{"role": "user", "content": ORDER}]
        found = await client.chat.completions.create(
            model=MODEL, messages=messages, response_model=Order, temperature=0
        )
        same(found, EXPECTED)


check.run()
