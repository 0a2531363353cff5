"""`tools.run`: a model that calls functions, and what it is told of them."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel
from trellm import models, tools
from trellm.errors import ModelError, OptionError
from trellm.serve import tool_calls

WEATHER = "Will it rain in Marlhaven on June 10, 2024?"
CALLED = {"city": "Marlhaven", "date": "June 10, 2024"}


def get_weather(city: str, date: str) -> dict[str, Any]:
    """The weather of a city on a day.

    What else stands here is not told.
    """
    return {"city": city, "on": date, "rain": True}


def test_a_call_is_run_and_its_result_read() -> None:
    deltas: list[Any] = []
    answer = tools.run(models.small(), WEATHER, [get_weather], told=deltas.append)
    (call, *_) = answer.calls
    assert (call.name, call.arguments, call.error) == ("get_weather", CALLED, None)
    assert call.value == {"city": "Marlhaven", "on": "June 10, 2024", "rain": True}
    user, asked, told, *_, last = answer.messages
    assert user == {"role": "user", "content": WEATHER}
    assert asked["tool_calls"][0]["id"] == told["tool_call_id"] == call.id
    assert told["content"] == '{"city": "Marlhaven", "on": "June 10, 2024", "rain": true}'
    assert last == {"role": "assistant", "content": answer.text} and str(answer) == answer.text != ""
    assert tool_calls.CallDelta(0, call.id, "get_weather") in deltas
    assert "".join(each.text for each in deltas if isinstance(each, tool_calls.ContentDelta)).endswith(answer.text)
    assert any(isinstance(each, tool_calls.ArgumentsDelta) for each in deltas) and answer.rounds >= 2


def test_arguments_are_what_the_function_takes() -> None:
    class Weather(BaseModel):
        """The weather of a city on a day."""

        city: str
        date: date

    model = models.small()
    (call, *_) = tools.run(model, WEATHER, [Weather], choice="required").calls
    assert isinstance(call.value, Weather) and isinstance(call.value.date, date)
    seen: list[date] = []

    def rain(city: str, date: date, loud: bool = False) -> str:
        """The weather of a city on a day."""
        seen.append(date)
        return f"{city}: {loud}"

    (call, *_) = tools.run(model, WEATHER, [rain, Weather], choice="rain").calls
    assert call.name == "rain" and seen and isinstance(seen[0], date)


def test_what_goes_wrong_is_told() -> None:
    def get_weather(city: str, date: str) -> str:
        """The weather of a city on a day."""
        raise LookupError("no such city")

    answer = tools.run(models.small(), WEATHER, [get_weather])
    assert answer.calls[0].error == "LookupError: no such city" and answer.calls[0].value is None
    assert answer.messages[2]["content"] == "LookupError: no such city"

    def stopped(city: str, date: str) -> str:
        """The weather of a city on a day."""
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tools.run(models.small(), WEATHER, [stopped], choice="required")


def test_rounds_end() -> None:
    """A model that may call for ever is asked for its answer."""
    times: list[int] = []

    def count(number: int) -> int:
        """Count."""
        times.append(number)
        return len(times)

    model = models.small()
    answer = tools.run(model, "Count.", [count], choice="required", rounds=1, max_tokens=60)
    assert answer.rounds == 2 and len(times) == 1
    assert tools.run(model, "Count.", [count], choice="required", rounds=50, max_tokens=60).rounds <= 51
    assert tools.run(model, WEATHER, [], max_tokens=5).calls == ()
    assert tools.run(model, [{"role": "user", "content": WEATHER}], [count], choice="none", max_tokens=5).rounds == 1


@pytest.mark.parametrize(
    ("functions", "options", "said"),
    [
        ([3], {}, "a list of functions"),
        (get_weather, {}, "a list of functions"),
        ([get_weather, get_weather], {}, "duplicate name 'get_weather'"),
        ([get_weather], {"choice": "get_wether"}, "tool_choice"),
        ([get_weather], {"rounds": 0}, "rounds"),
        ([get_weather], {"max_token": 3}, "max_tokens"),
        ([lambda *several: None], {}, "any number of arguments"),
    ],
)
def test_mistakes(functions: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        tools.run(models.small(), WEATHER, functions, **options)


def test_more_mistakes() -> None:
    async def later(city: str) -> str:
        """The weather."""
        return city

    with pytest.raises(OptionError, match="later is asynchronous"):
        tools.run(models.small(), WEATHER, [later])
    with pytest.raises(OptionError, match="a chat or a text"):
        tools.run(models.small(), [1, 2], [get_weather])  # type: ignore[list-item]


def test_a_template_that_knows_no_functions() -> None:
    """They are told in words, and so is what they gave."""
    try:
        model = models.pulled("smollm2")
    except (ModelError, OptionError):
        pytest.skip("smollm2 was not pulled")

    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    answer = tools.run(model, "What is 17 plus 25?", [add], choice="required", max_tokens=80)
    assert answer.calls[0].arguments == {"a": 17, "b": 25} and answer.calls[0].value == 42
    assert "42" in answer.text
