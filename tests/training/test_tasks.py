"""Tasks: their answers are right, and within the constraint that goes with them."""

import datetime
import json
import re
from random import Random
from typing import Any

import jsonschema
import pytest

from .support import (
    KINDS,
    Score,
    Task,
    call_schema,
    chat_prompt,
    checks_task,
    described,
    draw,
    drawn,
    fields_of,
    held_out_task,
    in_words,
    make,
    messages_of,
    ordinal,
    plain_prompt,
    record,
    spell_date,
    spell_time,
    sum_task,
    written,
)


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_within_their_constraints(kind: str) -> None:
    random = Random(f"{kind} 1")
    for _ in range(60):
        task = held_out_task(random, kind)
        assert task.kind == kind
        assert _is_allowed(task), task
        assert task.request in plain_prompt(task, "Answer:\n")
        assert task.passage in chat_prompt(messages_of(task), task.tools)


def _is_allowed(task: Task) -> bool:
    name, argument = task.constraint
    if name == "json":
        jsonschema.Draft202012Validator(argument).validate(task.value)
        return json.loads(task.answer) == task.value
    if name in ("extract", "sentence"):
        return task.answer in (task.passage or argument) and argument in task.passage + task.request
    if name == "choice":
        return task.answer in argument and len(set(argument)) == len(argument)
    if name == "regex":
        return re.fullmatch(argument, task.answer) is not None
    return all(word in task.answer for word in argument)


@pytest.mark.parametrize("kind", KINDS)
def test_the_right_answer_scores_and_another_does_not(kind: str) -> None:
    random = Random(f"{kind} 2")
    score = Score()
    for _ in range(20):
        task = held_out_task(random, kind)
        score.add(task, written(task))
    assert score.shares() == {"whole": 1.0, "fields": 1.0, "formed": 1.0}
    score.add(task, "Nonsense")
    assert score.shares()["whole"] < 1


def test_parts_of_a_record_count_apart() -> None:
    task = Task("record", "", "", "", ("json", {}), {"a": 1, "b": {"c": True, "d": ["x"]}})
    score = Score()
    score.add(task, '{"a": 2, "b": {"c": 1, "d": ["x"]}}')
    assert (score.right, score.right_parts, score.parts, score.formed) == (0, 1, 3, 1)
    assert fields_of({"a": [{"b": 1}, {"b": 2}]}) == {"/a/0/b": 1, "/a/1/b": 2}


def test_records_satisfy_their_schemas_and_prompts_name_every_field() -> None:
    random = Random(5)
    for _ in range(200):
        schema, value = record(random, draw(random, False), False)
        jsonschema.Draft202012Validator(schema).validate(value)
        shown, _compact = described(random, schema)
        for path in fields_of(value):
            assert path.rsplit("/", 1)[1] in shown


def test_dates_and_times_mean_what_they_say() -> None:
    random = Random(6)
    for _ in range(300):
        day = datetime.date(1950, 1, 1) + datetime.timedelta(random.randrange(30_000))
        text = spell_date(day, random)
        assert str(day.year) in text and str(day.day) in text
        value: Any = make("time", random, False)
        hour, minute = map(int, value.json.split(":"))
        assert _minutes(spell_time(hour, minute, random)) == 60 * hour + minute


def _minutes(text: str) -> int:
    """The minute of the day that a time in one of our spellings means, read in another way than it was written."""
    if found := re.fullmatch(r"(\d+):(\d\d)(?: (am|pm))?", text):
        hour, minute = int(found[1]), int(found[2])
        return 60 * (hour % 12 + 12 * (found[3] == "pm") if found[3] else hour) + minute
    words = {in_words(number): number for number in range(60)} | {"a quarter": 15, "half": 30}
    clock, part = re.split(r" in the ", text)
    if clock.endswith(" o'clock"):
        minute = 60 * (words[clock.removesuffix(" o'clock")] % 12)
    elif " past " in clock:
        past, hour = clock.split(" past ")
        minute = 60 * (words[hour] % 12) + words[past]
    else:
        to, hour = clock.split(" to ")
        minute = 60 * (words[hour] % 12) - words[to]
    minute %= 720
    return minute if part == "morning" else minute + 720


def test_statements_are_true_or_not() -> None:
    random, found = Random(9), {True: 0, False: 0}
    for _ in range(200):
        scene = draw(random, False)
        task = checks_task(random, scene, False)
        assert re.fullmatch(task.constraint[1], task.answer)
        for line, answer in zip(task.request.splitlines()[1:], task.answer.splitlines(), strict=True):
            said, is_true = line.split(". ", 1)[1], answer.endswith("yes")
            value = said.rpartition(" is ")[2].removesuffix(".")
            if value != "yes" and scene.second is None and value != scene.domain.topic:
                assert is_true == (value in scene.texts.values())
                found[is_true] += 1
    assert min(found.values()) > 100


def test_numbers_in_words() -> None:
    assert [in_words(number) for number in (0, 13, 40, 99)] == ["zero", "thirteen", "forty", "ninety-nine"]
    assert in_words(305) == "three hundred and five"
    assert in_words(12_040) == "twelve thousand and forty"
    assert [ordinal(day) for day in (1, 2, 3, 4, 11, 12, 13, 21, 22, 30)] == (
        ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd", "30th"]
    )


def test_sums_are_right() -> None:
    random = Random(7)
    for _ in range(200):
        task = sum_task(random, False)
        for left, result in re.findall(r"(\d+ [+-] \d+(?: [+-] \d+)?) = (\d+)", task.thought):
            first, *others = re.split(r" ([+-]) ", left)
            total = int(first)
            for sign, number in zip(others[::2], others[1::2], strict=True):
                total += int(number) if sign == "+" else -int(number)
            assert total == int(result)
        assert task.thought.endswith(f" so {task.answer}")


def test_calls_are_of_a_tool_that_is_there() -> None:
    random = Random(8)
    for _ in range(100):
        tools, request, call = drawn(random, False)
        jsonschema.Draft202012Validator(call_schema(tools)).validate(call)
        names = [tool["name"] for tool in tools]
        assert len(set(names)) == len(names) >= 2
        assert request
